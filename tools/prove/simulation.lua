-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The prover's simulation: plays the stories of spec/support/model/stories.lua in turn, each time with a new seed,
-- until the time is over, so many were played, or one of them fails.
--
--     make prove-sim                                   # a minute of all stories
--     make prove-sim STORIES=500000 FROM=1000000       # so many, by seeds from that one on
--     make prove-sim SECONDS=600 STORY="rw all"        # ten minutes of one
--     make prove-sim STORY="rw all" SEED=1700000000123 # one seed of it again, with the whole trace
--
-- Rates are per second of processor time, so that the load of the machine does not change them. The seed decides
-- everything in a story, so that the last form shows exactly what was wrong.
local settings = require "tools.prove.settings"
local stories = require "spec.support.model.stories"

local SHOWN = 60  -- lines of the trace of a failed story

local SECONDS, STORY = settings.seconds(os.getenv "SECONDS") or 60, os.getenv "STORY" or ""
local SEED = settings.seed(os.getenv "SEED")
local STORIES, FROM = settings.count(os.getenv "STORIES", "STORIES"), settings.seed(os.getenv "FROM", "FROM")

local function chosen()
  if STORY == "" then return stories.all end
  local story = stories.named(STORY)
  if story then return { story } end
  local names = {}
  for i, other in ipairs(stories.all) do names[i] = other.name end
  settings.refuse("there is no story %q; the stories are: %s", STORY, table.concat(names, ", "))
end

-- Counting ----------------------------------------------------------------------------------------------------------

local FIELDS = { "stories", "steps", "clients", "locks" }

local function new_count() return { stories = 0, steps = 0, clients = 0, locks = 0 } end

local function add(sum, count)
  for _, field in ipairs(FIELDS) do sum[field] = sum[field] + count[field] end
end

local function count_of(crowd)
  return { stories = 1, steps = crowd.world.steps, clients = #crowd.processes, locks = crowd.watch.grants }
end

local ROW = "%-22s %8s %10s %9s %9s"

local function report(list, counts, seconds)
  print(ROW:format("story", "seeds", "steps", "clients", "locks"))
  local sum = new_count()
  for _, story in ipairs(list) do
    local count = counts[story]
    print(ROW:format(story.name, count.stories, count.steps, count.clients, count.locks))
    add(sum, count)
  end
  print(ROW:format("all", sum.stories, sum.steps, sum.clients, sum.locks))
  print(("per second on one core: %.0f stories, %.0f clients, %.0f steps, %.0f locks"):format(sum.stories / seconds,
    sum.clients / seconds, sum.steps / seconds, sum.locks / seconds))
  return sum
end

-- Playing -----------------------------------------------------------------------------------------------------------

-- Plays it again with a trace; it must fail in the same way.
local function show_failure(story, seed, err)
  local crowd, again = stories.play(story, seed, true)
  local trace = crowd.world.trace
  print(table.concat(trace, "\n", math.max(1, #trace - SHOWN)))
  print(("\n%s by seed %d: %s"):format(story.name, seed, err))
  if again ~= err then print(("played again it ended differently: %s"):format(again or "well")) end
  print(("the whole trace: make prove-sim STORY=%q SEED=%d"):format(story.name, seed))
end

local function amount(count) return ("%d %s"):format(count, count == 1 and "story" or "stories") end

local function play_on(list, first)
  local counts, began, over_at, seed, played = {}, os.clock(), os.time() + SECONDS, first, 0
  for _, story in ipairs(list) do counts[story] = new_count() end
  while true do
    for _, story in ipairs(list) do
      local crowd, err = stories.play(story, seed)
      played = played + 1
      add(counts[story], count_of(crowd))
      if err then return counts, os.clock() - began, { story = story, seed = seed, err = err } end
      local is_over = STORIES and played == STORIES or not STORIES and os.time() >= over_at
      if is_over then return counts, os.clock() - began end
    end
    seed = seed + 1
  end
end

local function prove(list)
  local first = FROM or os.time() * 1000
  print(("%s by seeds from %d on, %s"):format(amount(#list), first,
    STORIES and ("%d in all"):format(STORIES) or ("for %g s"):format(SECONDS)))
  io.stdout:flush()
  local counts, seconds, failure = play_on(list, first)
  local sum = report(list, counts, seconds)
  if failure then show_failure(failure.story, failure.seed, failure.err) end
  print(failure and "FAILED" or amount(sum.stories) .. " ended well")
  return not failure
end

local function show(story, seed)
  local crowd, err = stories.play(story, seed, true)
  print(table.concat(crowd.world.trace, "\n"))
  print(("%s by seed %d: %s"):format(story.name, seed, err or "ended well"))
  print(err and "FAILED" or "1 story ended well")
  return not err
end

stories.hurry()
local list = chosen()
if SEED and #list > 1 then settings.refuse "SEED needs a STORY, too" end
if SEED and (STORIES or FROM) then settings.refuse "SEED is one story again: it needs neither STORIES nor FROM" end
local is_well = SEED and show(list[1], SEED) or not SEED and prove(list)
os.exit(is_well and 0 or 1, true) -- Lua 5.1 takes a number only
