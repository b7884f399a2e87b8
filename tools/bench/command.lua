-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What amqp-lock costs, and how soon the next client holds the lock when it is killed. All processes share one clock.
local bare = require "bare"
local broker = require "spec.support.broker"
local command = require "spec.support.command"
local process = require "spec.support.process"
local rows = require "tools.bench.parts.rows"
local until_true = require "spec.support.until"

local TIMES = rows.rounds
local name = ("bench-%d"):format(os.time())

local function ms(seconds) return ("%.1f"):format(seconds * 1000) end

local function milliseconds(list)
  local all = {}
  for i, seconds in ipairs(list) do all[i] = seconds * 1000 end
  return ms(rows.median(list)), rows.spread(all, "%.1f")
end

local function shell(line) return rows.seconds(os.execute, line .. " </dev/null") end

local function cost()
  local list, tool = {}, ("%s/amqp-lock %s true"):format(command.DIRECTORY, name)
  for i = 0, TIMES do -- the first round warms up
    local took = shell(tool) - shell "true"
    if i > 0 then list[i] = took end
  end
  local value, spread = milliseconds(list)
  rows.row("amqp-lock NAME true, without true, ms", "<= 40", rows.median(list) <= 0.040, value, spread)
end

local function proportional(pid)
  return tonumber(process.contents(("/proc/%d/smaps_rollup"):format(pid)):match "\nPss:%s+(%d+) kB") / 1024
end

-- A command with one process, which tells its number; returns amqp-lock and that process.
local function start(...)
  local words = { ... }
  table.insert(words, name)
  for _, word in ipairs { "sh", "-c", "echo job $$; exec sleep 600" } do table.insert(words, word) end
  local one = command.start({}, (unpack or table.unpack)(words))
  return one, command.process((one:await "job (%d+)\n"))
end

local function children(pid)
  local list = {}
  for child in process.shell("ps", "-o", "pid=,comm=", "--ppid", tostring(pid)):gmatch "(%d+) amqp%-lock%-guard" do
    table.insert(list, tonumber(child))
  end
  return list
end

local function memory()
  local one = start()
  local guard = assert(children(one.pid)[1], "there is no guard")
  local both = proportional(one.pid) + proportional(guard)
  rows.row("amqp-lock and its guard, MiB (Pss)", "<= 8", both <= 8, ("%.1f"):format(both))
  command.clear()
end

-- A second process that waits for the mutex; its result is when it had it.
local function waiter()
  local other = process.start()
  other:run([[
    bare = require "bare"
    mutex = require("amqplocks").connect():mutex(...)
  ]], name)
  other:begin("local lock = assert(mutex:acquire()) local got = bare.now() assert(lock:release()) return got")
  bare.sleep(0.05)
  return other
end

local function after_kill(times, what, ...)
  local list = {}
  for i = 1, times do
    local one = start(...)
    local other = waiter()
    local begun = bare.now()
    one:signal "KILL"
    list[i] = other:finish() - begun
    command.clear()
    process.clear()
  end
  rows.plain(what, milliseconds(list))
end

-- The broker lets the next holder in at once, and the command lives until TERM has reached it.
local function overlap(times)
  local list = {}
  for i = 1, times do
    local one, job = start("--name", name)
    local other = waiter()
    broker.suite:close_connection(name .. " holder")
    until_true(function() return not job:alive() end, 30)
    local dead = bare.now()
    list[i] = dead - other:finish()
    one:wait()
    command.clear()
    process.clear()
  end
  rows.plain("connection closed: command ends after next holds, ms", milliseconds(list))
end

cost()
memory()
after_kill(math.ceil(TIMES / 3), "kill -9 of amqp-lock -> next holds, ms")
if broker.suite then overlap(math.ceil(TIMES / 3)) end
