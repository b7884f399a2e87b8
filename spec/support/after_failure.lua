-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Calls that take something and then fail, and calls of another client for what they took, at once. A list of
-- { title =, run = function(s) … } for rows of testing_rows.lua, where `s` is described. run(s) returns the code of the
-- failure, and how often the other client was told "busy".
local TIMES = 25

local function try_all(s, own) return s.conn:all{ own, s.conn:mutex(s.name .. "-z") }:try_acquire() end

local function hold_last(s) return s.third:mutex(s.name .. "-z"):acquire() end

local function read(s) return s.third:rwlock(s.name):read() end

local cases = {
  { "several locks, with a mutex", hold_last,
    function(s) return try_all(s, s.conn:mutex(s.name)) end,
    function(s) return s.rival:mutex(s.name):try_acquire() end },
  { "several locks, with a fast mutex", hold_last,
    function(s) return try_all(s, s.conn:fast_mutex(s.name)) end,
    function(s) return s.rival:fast_mutex(s.name):try_acquire() end },
  { "several locks, with a reader", hold_last,
    function(s) return try_all(s, s.conn:rwlock(s.name):reader()) end,
    function(s) return s.rival:rwlock(s.name):try_write() end },
  { "several locks, with a slot", function(s)
      s.slots(1)
      return hold_last(s)
    end,
    function(s) return try_all(s, s.conn:semaphore(s.name)) end,
    function(s) return s.rival:semaphore(s.name):try_acquire() end },
  { "several locks, with a permit", function(s)
      s.permits(1)
      return hold_last(s)
    end,
    function(s) return try_all(s, s.conn:token_semaphore(s.name)) end,
    function(s) return s.rival:token_semaphore(s.name):try_acquire() end },
  { "three slots", function(s)
      s.slots(3)
      return s.third:semaphore(s.name):acquire()
    end,
    function(s) return s.conn:semaphore(s.name):acquire{ count = 3, timeout = 0 } end,
    function(s) return s.rival:semaphore(s.name):acquire{ count = 2, timeout = 0 } end },
  { "three permits", function(s)
      s.permits(3)
      return s.third:token_semaphore(s.name):acquire()
    end,
    function(s) return s.conn:token_semaphore(s.name):acquire{ count = 3, timeout = 0 } end,
    function(s) return s.rival:token_semaphore(s.name):acquire{ count = 2, timeout = 0 } end },
  { "a writer that does not wait", read,
    function(s) return s.conn:rwlock(s.name):try_write() end,
    function(s) return s.rival:rwlock(s.name):try_read() end },
  { "a writer that waits", read,
    function(s) return s.conn:rwlock(s.name):write{ timeout = 0.02 } end,
    function(s) return s.rival:rwlock(s.name):try_read() end },
}

local function run(case, s)
  local _, prepare, fails, takes = (table.unpack or unpack)(case)
  s.third = s.connect()
  local held = assert(prepare(s))
  local busy, failure = 0, nil
  for _ = 1, TIMES do
    local got, _, code = fails(s)
    failure = got and "it did not fail" or code
    local lock = takes(s)
    if not lock then busy = busy + 1 end
    while not lock do lock = takes(s) end
    assert(lock:release())
  end
  assert(held:release())
  return failure, busy
end

local list = {}
for i, case in ipairs(cases) do
  list[i] = { title = case[1], code = case[1] == "a writer that waits" and "timeout" or "busy",
    run = function(s) return run(case, s) end }
end
return list
