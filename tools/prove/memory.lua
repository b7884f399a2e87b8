-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The memory that tens of thousands of operations leave behind in a process that uses the library from Lua, on a real
-- broker: locks of every kind are acquired and released, found busy, and waited for in vain; then sessions are opened
-- and closed. Allocated memory is measured a hundred times. A leak of a few bytes in every operation would show in the
-- trend.
--
--     OPERATIONS=50000 SESSIONS=1000 [LEAK=1] lua memory.lua     LEAK keeps some locks, to check that it is detected
local amqplocks = require "amqplocks"
local bare = require "bare"

local OPERATIONS = tonumber(os.getenv "OPERATIONS") or 50000
local SESSIONS = tonumber(os.getenv "SESSIONS") or 1000
local LEAKS = os.getenv "LEAK" == "1"
local SAMPLES, WARM = 100, 0.2
local GROWTH_MOST = 64 * 1024  -- by the trend, in total; a leaked lock takes some kilobytes

local name = ("memory-%d"):format(os.time())
local kept = {}

local function heap()
  collectgarbage()
  collectgarbage()
  return select(2, bare.memory())
end

-- The growth from the first value to the last, by the trend (least squares).
local function trend(values)
  local n, sum_x, sum_y, sum_xy, sum_xx = #values, 0, 0, 0, 0
  for x, y in ipairs(values) do
    sum_x, sum_y, sum_xy, sum_xx = sum_x + x, sum_y + y, sum_xy + x * y, sum_xx + x * x
  end
  return (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x) * (n - 1)
end

-- Calls `once` until it has done `count` operations; true if the allocated memory has no trend.
local function is_flat(what, count, once)
  local values, done, next_sample = {}, 0, count * WARM
  while done < count do
    done = done + once(done)
    if done >= next_sample then
      table.insert(values, heap())
      next_sample = next_sample + count * (1 - WARM) / SAMPLES
    end
  end
  local grown = trend(values)
  print(("%d %s: %.1f KiB more allocated by the trend, %.1f from the first look to the last, of %.0f"):format(done,
    what, grown / 1024, (values[#values] - values[1]) / 1024, values[1] / 1024))
  return grown <= GROWTH_MOST
end

local function release(lock)
  assert(lock:held())
  assert(lock:release())
end

local function locks(conn)
  local semaphore, permits = conn:semaphore(name), conn:token_semaphore(name)
  local mutex, rwlock = conn:mutex(name), conn:rwlock(name)
  return function (done)
    local held = assert(mutex:acquire())
    assert(not mutex:try_acquire())
    release(held)
    release(assert(semaphore:acquire()))
    release(assert(rwlock:read()))
    local writes = assert(rwlock:write())
    assert(writes:downgrade())
    release(writes)
    held = assert(permits:acquire())
    assert(not permits:acquire{ timeout = 0.001 })
    release(held)
    for _ = 1, 11 do
      held = assert(permits:acquire())
      assert(held:verify())
      release(held)
    end
    if LEAKS and done % 100 < 20 then table.insert(kept, held) end
    return 20
  end
end

local function session()
  local conn = assert(amqplocks.connect())
  release(assert(conn:mutex(name):acquire()))
  assert(conn:close())
  return 1
end

local conn = assert(amqplocks.connect())
assert(conn:admin(name):create(2))
assert(conn:token_semaphore(name):create(1))
local flat = is_flat("operations", OPERATIONS, locks(conn))
flat = is_flat("sessions", SESSIONS, session) and flat
assert(conn:admin(name):destroy())
assert(conn:token_semaphore(name):destroy())
conn:close()
if not flat then
  print(("memory grew by more than %d KiB"):format(GROWTH_MOST / 1024))
  os.exit(1)
end
