-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The prover's simulation: plays the stories of spec/support/model/stories.lua in turn, each time with a new seed,
-- until the time is over, so many were played, or one of them fails. JOBS processes share the work: each plays seeds of
-- its own, and tells the first process what it has played.
--
--     make prove-sim                                   # a minute of all stories
--     make prove-sim STORIES=500000 FROM=1000000       # so many, by seeds from that one on
--     make prove-sim SECONDS=600 STORY="rw all"        # ten minutes of one
--     make prove-sim JOBS=1                            # on one core, and not on all
--     make prove-sim STORY="rw all" SEED=1700000000123 # one seed of it again, with the whole trace
--
-- One rate is per second, and one per second of processor time, which the load of the machine does not change. The seed
-- decides everything in a story, so that the last form shows exactly what was wrong.
local settings = require "tools.prove.settings"
local stories = require "spec.support.model.stories"

local SHOWN = 60  -- lines of the trace of a failed story

local SECONDS, STORY = settings.seconds(os.getenv "SECONDS") or 60, os.getenv "STORY" or ""
local SEED = settings.seed(os.getenv "SEED")
local STORIES, FROM = settings.count(os.getenv "STORIES", "STORIES"), settings.seed(os.getenv "FROM", "FROM")
local JOBS = settings.count(os.getenv "JOBS", "JOBS") or 1
-- For a process that the first one has started: its number, and a file that all of them look for. They end when it is
-- gone.
local JOB, GOES_ON = settings.count(os.getenv "PROVE_JOB", "PROVE_JOB"), os.getenv "PROVE_GOES_ON"

local function chosen()
  if STORY == "" then return stories.all end
  local story = stories.named(STORY)
  if story then return { story } end
  local names = {}
  for i, other in ipairs(stories.all) do names[i] = other.name end
  settings.refuse("there is no story %q; the stories are: %s", STORY, table.concat(names, ", "))
end

local function amount(count, one, many) return ("%d %s"):format(count, count == 1 and one or many) end

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

-- `seconds`: since the beginning. `busy`: of processor time, of all jobs.
local function report(list, counts, seconds, busy)
  print(ROW:format("story", "seeds", "steps", "clients", "locks"))
  local sum = new_count()
  for _, story in ipairs(list) do
    local count = counts[story]
    print(ROW:format(story.name, count.stories, count.steps, count.clients, count.locks))
    add(sum, count)
  end
  print(ROW:format("all", sum.stories, sum.steps, sum.clients, sum.locks))
  print(("per second: %.0f stories, by %s"):format(sum.stories / seconds, amount(JOBS, "process", "processes")))
  print(("per second on one core: %.0f stories, %.0f clients, %.0f steps, %.0f locks"):format(sum.stories / busy,
    sum.clients / busy, sum.steps / busy, sum.locks / busy))
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

local function exists(path)
  local file = io.open(path)
  return file ~= nil and file:close()
end

-- Plays the share of one job: every JOBS-th seed of each story. Returns the counts, and a failure.
local function play_on(list, first)
  local counts, over_at, seed, played = {}, os.time() + SECONDS, first + JOB - 1, 0
  local share = STORIES and math.floor((STORIES + JOBS - JOB) / JOBS)
  for _, story in ipairs(list) do counts[story] = new_count() end
  while share ~= 0 and exists(GOES_ON) do
    for _, story in ipairs(list) do
      local crowd, err = stories.play(story, seed)
      played = played + 1
      add(counts[story], count_of(crowd))
      if err then return counts, { story = story, seed = seed, err = tostring(err) } end
      local is_over = share and played == share or not share and os.time() >= over_at
      if is_over then return counts end
    end
    seed = seed + JOBS
  end
  return counts
end

-- Jobs --------------------------------------------------------------------------------------------------------------

-- A job prints a line for each story, one for its failure, and one at its end.
local function work(list)
  local began = os.clock()
  local counts, failure = play_on(list, FROM)
  for i, story in ipairs(list) do
    local count = counts[story]
    print(("count %d %d %d %d %d"):format(i, count.stories, count.steps, count.clients, count.locks))
    if failure and failure.story == story then print(("failure %d %d %q"):format(i, failure.seed, failure.err)) end
  end
  if failure then os.remove(GOES_ON) end
  print(("end %f"):format(os.clock() - began))
end

-- This program again, with other settings.
local function start_job(number, first, goes_on)
  local its_settings = ("PROVE_JOB=%d PROVE_GOES_ON='%s' FROM=%d"):format(number, goes_on, first)
  return assert(io.popen(("%s '%s' '%s'"):format(its_settings, os.getenv "LUA" or "lua", arg[0])))
end

-- Adds to the counts what a job says. Returns its processor time, and its failure. A job that ends too early, as by a
-- signal, ends this program.
local function read_job(job, list, counts)
  local text = job:read "*a"
  job:close()
  local busy = tonumber(text:match "\nend (%S+)\n$")
  if not busy then error("a process of this run ended early:\n" .. text, 0) end
  for i, played, steps, clients, locks in text:gmatch "count (%d+) (%d+) (%d+) (%d+) (%d+)\n" do
    add(counts[list[tonumber(i)]], { stories = tonumber(played), steps = tonumber(steps), clients = tonumber(clients),
      locks = tonumber(locks) })
  end
  local i, seed, err = text:match '\nfailure (%d+) (%d+) (".-[^\\]")\n'
  if not i then return busy end
  local words = assert((loadstring or load)("return " .. err))()
  return busy, { story = list[tonumber(i)], seed = tonumber(seed), err = words }
end

local function prove(list)
  local first, began, counts, jobs, busy, failure = FROM or os.time() * 1000, os.time(), {}, {}, 0, nil
  print(("%s by seeds from %d on, %s"):format(amount(#list, "story", "stories"), first,
    STORIES and ("%d in all"):format(STORIES) or ("for %g s"):format(SECONDS)))
  io.stdout:flush()
  for _, story in ipairs(list) do counts[story] = new_count() end
  local goes_on = os.tmpname()
  local fine, problem = pcall(function ()
    for number = 1, JOBS do jobs[number] = start_job(number, first, goes_on) end
    for _, job in ipairs(jobs) do
      local its_busy, its_failure = read_job(job, list, counts)
      busy, failure = busy + its_busy, failure or its_failure
    end
  end)
  os.remove(goes_on) -- the other jobs end, too, if one has ended too early
  if not fine then error(problem, 0) end
  local sum = report(list, counts, math.max(os.time() - began, 1), math.max(busy, 0.01))
  if failure then show_failure(failure.story, failure.seed, failure.err) end
  print(failure and "FAILED" or amount(sum.stories, "story", "stories") .. " ended well")
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
if JOB then
  work(list)
  os.exit(0, true)
end
if SEED and #list > 1 then settings.refuse "SEED needs a STORY, too" end
if SEED and (STORIES or FROM) then settings.refuse "SEED is one story again: it needs neither STORIES nor FROM" end
local is_well = SEED and show(list[1], SEED) or not SEED and prove(list)
os.exit(is_well and 0 or 1, true) -- Lua 5.1 takes a number only
