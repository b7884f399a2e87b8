-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Ratios to what rabbitmq-c alone needs for the broker's part of the same work, in one process: the two sides of each
-- row run in turns, and the ratio is that of their medians.
local amqplocks = require "amqplocks"
local bare = require "bare"
local rows = require "spec.support.rows"

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

local function held()
  local lock = assert(conn:semaphore(name):try_acquire())
  local calls = 1000000
  rows.ratio("held() / an empty C method", 6, calls, function()
    for _ = 1, calls do lock:held() end
  end, function()
    for _ = 1, calls do raw:nothing() end
  end)
  lock:release()
end

-- Counting 1,000 slots asks in windows of 16, 32, … 512: 1,008 questions, and 512 more to see that nothing follows.
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

local function memory()
  local sessions = 20
  collectgarbage()
  local resident, heap = bare.memory()
  local idle = {}
  for i = 1, sessions do
    idle[i] = assert(amqplocks.connect())
    assert(idle[i]:admin(name):slots()) -- opens the prober
  end
  local resident_now, heap_now = bare.memory()
  local session = (resident_now - resident) / sessions / 1024
  rows.row("an idle session, KiB resident", "<= 400", session <= 400, ("%.0f"):format(session))
  print(("%-52s %7.0f KiB allocated"):format("", (heap_now - heap) / sessions / 1024))
  for i = 1, sessions do idle[i]:close() end
  local held_name, count = name .. "-held", 100
  assert(conn:admin(held_name):create(count))
  local semaphore = conn:semaphore(held_name)
  heap = select(2, bare.memory())
  local locks = {}
  for i = 1, count do locks[i] = assert(semaphore:try_acquire()) end
  heap_now = select(2, bare.memory())
  local each = (heap_now - heap) / count / 1024
  rows.row("a held lock, KiB", "<= 24", each <= 24, ("%.1f"):format(each))
  for i = 1, count do locks[i]:release() end
  assert(conn:admin(held_name):destroy())
end

acquire_and_release()
held()
probes()
memory()
assert(conn:admin(name):destroy())
conn:close()
