-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The time of each operation, as a ratio to the time that rabbitmq-c alone needs for the broker's part of the work.
-- Both run in one process: the two sides of each row run in turns, and the ratio is that of their medians.
local amqplocks = require "amqplocks"
local bare = require "bare"
local distant = require "tools.bench.parts.distant"
local process = require "spec.support.process"
local rows = require "tools.bench.parts.rows"

local conn = assert(amqplocks.connect(nil, { name = "bench" }))
local raw = bare.connect(os.getenv "AMQP_URL")
local name = ("bench-%d"):format(os.time())

local function acquire_and_release()
  assert(conn:admin(name):create(3))
  local semaphore = conn:semaphore(name)
  rows.ratio("uncontended acquire + release / declare + delete", 1.20, 50, function()
    for _ = 1, 50 do assert(assert(semaphore:try_acquire()):release()) end
  end, function() raw:declare_delete(name .. "-bare", 50) end)
end

-- The broker is 1 ms away, each way: round trips count.
local function far_away()
  local url = distant.start(0.001)
  local far, far_raw = assert(amqplocks.connect(url, { name = "far" })), bare.connect(url)
  local mutex, rwlock = far:mutex(name), far:rwlock(name)
  rows.ratio("mutex / declare + delete, 1 ms away", 1.30, 20, function()
    for _ = 1, 20 do assert(assert(mutex:acquire()):release()) end
  end, function() far_raw:declare_delete(name .. "-bare", 20) end)
  rows.ratio("writer / declare + delete, twice, 1 ms away", 1.20, 20, function()
    for _ = 1, 20 do assert(assert(rwlock:write()):release()) end
  end, function() far_raw:declare_delete(name .. "-bare", 40) end)
  far:close()
  far_raw:close()
end

-- Runs in a process that ends at any system call except those that read the clock or allocate memory.
local CONFINED = [[
  local name, ask, confine = %q, %q, require "confine"
  local lock = assert(require("amqplocks").connect():semaphore(name):acquire())
  confine.begin()
  for _ = 1, 1000 do lock[ask](lock) end
  confine.leave()
]]

local function survives(ask)
  return (pcall(process.shell, os.getenv "LUA" or "lua", "-e", CONFINED:format(name, ask)))
end

local function held()
  local lock = assert(conn:semaphore(name):try_acquire())
  local calls = 1000000
  rows.ratio("held() / an empty C method", 6, calls, function()
    for _ = 1, calls do lock:held() end
  end, function()
    for _ = 1, calls do raw:nothing() end
  end)
  assert(not survives "verify", "a call that asks the broker makes no system call?")
  local none = survives "held"
  rows.row("system calls of held() but for the clock", "0", none, none and "0" or ">= 1")
  lock:release()
end

-- Counting 1,000 slots probes in windows of 16, 32, … 512: 1,008 probes, and 512 more to see that no slot follows.
local function probes()
  local many = name .. "-many"
  assert(conn:admin(many):create(1000, { timeout = 120 }))
  local admin = conn:admin(many)
  rows.ratio("pipelined probes / publish loop, rate", 0.9, 1520, function() assert(admin:slots()) end, function()
    local first = 1
    for _, window in ipairs { 16, 32, 64, 128, 256, 512, 512 } do
      raw:publish(many, first, window)
      first = first + window
    end
  end, true)
  assert(admin:destroy { timeout = 120 })
end

acquire_and_release()
far_away()
held()
probes()
assert(conn:admin(name):destroy())
conn:close()
raw:close()
process.clear()
