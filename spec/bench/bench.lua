-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Ratios to what rabbitmq-c alone needs for the broker's part of the same work, in one process: the two sides of each
-- row run in turns, and the ratio is that of their medians.
local amqplocks = require "amqplocks"
local bare = require "bare"

local ROUNDS = tonumber(os.getenv "ROUNDS") or 15

local conn = assert(amqplocks.connect(nil, { name = "bench" }))
local raw = bare.connect(os.getenv "AMQP_URL")
local name = ("bench-%d"):format(os.time())

local function median(times)
  table.sort(times)
  return times[math.floor(#times / 2) + 1]
end

local function seconds(fn)
  local start = bare.now()
  fn()
  return bare.now() - start
end

--- Runs both sides in turns; the medians of a single call of each.
local function measure(calls, ours, theirs)
  local mine, bares = {}, {}
  for round = 0, ROUNDS do -- the first round warms up
    local a, b = seconds(ours), seconds(theirs)
    if round > 0 then
      mine[#mine + 1], bares[#bares + 1] = a / calls, b / calls
    end
  end
  return median(mine), median(bares)
end

local function row(what, budget, is_fine, value)
  print(("%-52s %10s   budget %-8s %s"):format(what, value, budget, is_fine and "ok" or "over"))
end

local function ratio_row(what, budget, calls, ours, theirs, at_least)
  local mine, bares = measure(calls, ours, theirs)
  local ratio = at_least and bares / mine or mine / bares
  local fine = at_least and ratio >= budget or not at_least and ratio <= budget
  row(what, (at_least and ">= %.2f" or "<= %.2f"):format(budget), fine, ("%.2f"):format(ratio))
  print(("%-52s %8.2f us, bare %.2f us"):format("", mine * 1e6, bares * 1e6))
end

local function acquire_and_release()
  assert(conn:admin(name):create(3))
  local semaphore = conn:semaphore(name)
  ratio_row("uncontended acquire + release / declare + delete", 1.20, 50, function()
    for _ = 1, 50 do assert(assert(semaphore:try_acquire()):release()) end
  end, function() raw:declare_delete(name .. "-bare", 50) end)
end

local function held()
  local lock = assert(conn:semaphore(name):try_acquire())
  local calls = 1000000
  ratio_row("held() / an empty C method", 6, calls, function()
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
  ratio_row("pipelined probes / publish loop, rate", 0.9, 1520, function() assert(admin:slots()) end, function()
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
  row("an idle session, KiB resident", "<= 400", session <= 400, ("%.0f"):format(session))
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
  row("a held lock, KiB", "<= 24", each <= 24, ("%.1f"):format(each))
  for i = 1, count do locks[i]:release() end
  assert(conn:admin(held_name):destroy())
end

acquire_and_release()
held()
probes()
memory()
assert(conn:admin(name):destroy())
conn:close()
