-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Plays all stories in turn, one seed of each, then the next seed of each, with the module in MODULES, until a story
-- fails as the patch says it must, or the time is over. Any story may be the one that fails; a patch that only rare
-- events show names the stories that are played, and maybe the first seed. A story with `often` plays so many seeds in
-- a turn.
--
--     lua tools/prove/breakages/play.lua MODULES FILE SECONDS BASE [PATCH]
--
-- FILE always holds the name of the running story, in case it never returns. The seconds are processor time, which
-- other work on the machine does not change. Seeds are counted from BASE on, or from the patch's first seed. Without a
-- patch no story may fail. It prints one line; the exit status is 0 on success.
local MODULES, FILE, SECONDS, BASE, PATCH = arg[1], arg[2], tonumber(arg[3]), tonumber(arg[4]), arg[5]

package.cpath = MODULES .. "/?.so;" .. package.cpath
local stories = require "spec.support.model.stories"

-- What the head of the patch says: the words by which a story must catch it, the stories to play, and the first seed.
local function told(what)
  local values = {}
  for line in io.lines(PATCH) do
    table.insert(values, line:match("^" .. what .. ": (.+)$"))
  end
  return values
end

local words = PATCH and told "Must be caught as"
assert(not PATCH or words[1], "the patch does not say how it must be caught: " .. tostring(PATCH))

if PATCH then BASE = tonumber(told("First seed")[1]) or BASE end

local function chosen()
  local list = {}
  for i, name in ipairs(PATCH and told "Played by" or {}) do
    list[i] = assert(stories.named(name), ("%s: there is no story %q"):format(PATCH, name))
  end
  return list[1] and list or stories.all
end

local function is_meant(wrong)
  for _, some in ipairs(words or {}) do
    if wrong:find(some, 1, true) then return true end
  end
  return not words
end

local function note(what)
  local file = assert(io.open(FILE, "w"))
  file:write(what)
  file:close()
end

local played, began, others, other = 0, os.clock(), 0, nil

local function first_line(text) return (text:match("^[^\n]*")) end

local function report(outcome)
  local also = other and ("; %d ended badly otherwise, such as %s"):format(others, other) or ""
  print(("%s, after %.1f s and %d stories%s"):format(outcome, os.clock() - began, played, also))
end

local function play(story, seed)
  local what = ("%s %d"):format(story.name, seed)
  note(what)
  local _, wrong = stories.play(story, seed)
  played = played + 1
  if not wrong then return end
  wrong = tostring(wrong)
  if is_meant(wrong) then
    report(("%s by \"%s\": %s"):format(words and "caught" or "FAILED", what, first_line(wrong)))
    os.exit(words and 0 or 1)
  end
  others, other = others + 1, ("\"%s\": %s"):format(what, first_line(wrong))
end

stories.hurry()
local list, turn = chosen(), 0
while true do
  for _, story in ipairs(list) do
    local seeds = story.often or 1
    for i = 0, seeds - 1 do
      if os.clock() - began >= SECONDS then
        report(words and "NOT CAUGHT" or "all stories end well")
        os.exit(words and 1 or 0)
      end
      play(story, BASE + turn * seeds + i)
    end
  end
  turn = turn + 1
end
