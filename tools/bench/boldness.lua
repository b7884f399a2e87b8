-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What claims without a look cost the broker: the channel errors of two processes that lock the same mutexes, with
-- pauses of half a second, as a ratio to those of mutexes that are looked at before each claim. The same processes lock
-- both kinds of mutexes at the same time. Each process has had each mutex three times before. Then both begin at nearly
-- the same moment, and pause for nearly the same time, because otherwise they would seldom meet: with more errors of
-- either kind the ratio scatters less. A mutex that was waited for is not claimed without a look for a minute, so new
-- mutexes follow after some rounds.
--
-- The errors are counted in the broker's log, where each of them names a queue. So this needs the broker that
-- `make bench` starts.
local bare = require "bare"
local broker = require "spec.support.broker"
local process = require "spec.support.process"
local rows = require "tools.bench.parts.rows"

local SECONDS = 45
local MUTEXES, ROUNDS = 20, 8 -- of each kind at a time; of each mutex
local PAUSE, SPREAD = 0.5, 0.02 -- seconds; a pause is longer by a random part of `SPREAD`

-- Runs in each process. It does one round after the other, as the time of each comes.
local WORKER = [[
  local bare, timid = require "bare", require "timid"
  local conn, mutexes = assert(require("amqplocks").connect())
  local number = ...
  math.randomseed(number)

  local function round(mutex) assert(assert(mutex:acquire{ timeout = 20 }):release()) end

  local function add(name, count, place, is_timid)
    for i = 1, count do
      local mutex = conn:mutex(name .. i)
      if is_timid then timid.never(mutex._core) end
      for _ = 1, 3 do round(mutex) end
      mutexes[2 * i - place] = mutex
    end
  end

  -- The two processes begin with different names, so that they do not meet yet.
  function win(bold, looked_at, count)
    mutexes = {}
    if number == 1 then add(bold, count, 1) end
    add(looked_at, count, 0, true)
    if number == 2 then add(bold, count, 1) end
  end

  function meet(start, rounds, pause, spread)
    local due = {}
    for i in ipairs(mutexes) do due[i] = start + pause * i / #mutexes + spread * math.random() end
    for _ = 1, rounds * #mutexes do
      local first = 1
      for i in ipairs(mutexes) do
        if due[i] < due[first] then first = i end
      end
      bare.sleep(math.max(due[first] - bare.now(), 0))
      round(mutexes[first])
      due[first] = bare.now() + pause + spread * math.random()
    end
  end
]]

local function errors(name)
  local count, pattern = 0, "caused a channel exception.*'" .. name:gsub("%-", "%%-")
  for line in io.lines(broker.suite.directory .. "/log/rabbit.log") do
    if line:find(pattern) then count = count + 1 end
  end
  return count
end

local workers = { process.start(), process.start() }

-- Has both processes do this.
local function together(...)
  for _, one in ipairs(workers) do one:begin(...) end
  for _, one in ipairs(workers) do one:finish(60) end
end

if not broker.suite then
  print "channel errors are not counted: the log of the broker at AMQP_URL is elsewhere"
  return
end
local name = ("bench-%d-"):format(os.time())
local bold, looked_at = name .. "bold-", name .. "looked-at-"
for i, one in ipairs(workers) do one:run(WORKER, i) end
local count, ends = 0, bare.now() + SECONDS
repeat
  count = count + 1
  together("win(...)", bold .. count .. "-", looked_at .. count .. "-", MUTEXES)
  together("meet(...)", bare.now() + 0.1, ROUNDS, PAUSE, SPREAD)
until bare.now() > ends
local ours, theirs = errors(bold), errors(looked_at)
rows.row("channel errors: claims without a look / with one", "<= 1.50", ours <= 1.5 * theirs,
  ("%.2f"):format(ours / theirs), ("%d / %d"):format(ours, theirs))
print(("  of %d mutexes of each kind"):format(count * MUTEXES))
process.clear()
