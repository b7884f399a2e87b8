-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The answer of a call is true when it returns: calls that take something and then fail, or that take it and give it
-- back, and calls of another client for the same, at once. A list of { title =, code =, run = function(s) … } for rows
-- of testing_rows.lua, where `s` is described. run(s) returns the code of the failure, or nil, and how often the other
-- client was told that it is taken, although the broker had answered in time.
local TIMES = os.getenv "AMQPLOCKS_SOAK" and 100 or 8
local LATE = 1 -- seconds: a call that fails waits no longer for the broker's answer

local function try_all(s, own) return s.conn:all{ own, s.conn:mutex(s.name .. "-z") }:try_acquire() end

local function hold_last(s) return s.third:mutex(s.name .. "-z"):acquire() end

local function read(s) return s.third:rwlock(s.name):read() end

local failures = {
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

-- ---- after a success -----------------------------------------------------------------------------------------------

local function mutex(c, name) return c:mutex(name) end

local function reentrant(c, name) return c:mutex(name, { reentrant = true }) end

local function persistent(c, name) return c:mutex(name, { persistent = true }) end

local function semaphore(c, name) return c:semaphore(name) end

local function classic(c, name) return c:token_semaphore(name) end

local function quorum(c, name) return c:token_semaphore(name, { queue_type = "quorum" }) end

local function writer(c, name) return c:rwlock(name):writer() end

local function reader(c, name) return c:rwlock(name):reader() end

-- With a mutex, and so on a connection that has more than permits.
local function beside(make)
  return function(c, name) return c:all{ c:mutex(name .. "-z"), make(c, name) } end
end

local function slots(count)
  return function(s) s.slots(count) end
end

local function permits(count, queue_type)
  return function(s) s.permits(count, queue_type) end
end

local function nothing() end

-- Not those whose release is unconfirmed: fast mutexes, and permits of a classic queue.
-- title, what is made, what the one client acquires and the other one tries, `count`, whether it is held meanwhile
local successes = {
  { "a mutex", nothing, mutex },
  { "an entry of a reentrant mutex", nothing, reentrant },
  { "a persistent mutex", slots(1), persistent },
  { "a slot", slots(1), semaphore },
  { "a quorum permit", permits(1, "quorum"), quorum },
  { "a writer, and another one", nothing, writer },
  { "a writer, and a reader", nothing, writer, reader },
  { "a reader, and a writer", nothing, reader, writer },
  { "several locks, with a slot", slots(1), beside(semaphore) },
  { "several locks, with a quorum permit", permits(1, "quorum"), beside(quorum) },
  { "several locks, with a writer", nothing, beside(writer), beside(reader) },
  { "two slots", slots(2), semaphore, count = 2 },
  { "two quorum permits", permits(2, "quorum"), quorum, count = 2 },
  { "two of four slots, which are held", slots(4), semaphore, count = 2, is_held = true },
  { "two of four permits, which are held", permits(4), classic, count = 2, is_held = true },
}

local function take(case, object, timeout) return object:acquire{ count = case.count, timeout = timeout } end

-- Returns a failure's row.
local function succeeding(case)
  local title, prepare, make, makes_other = case[1], case[2], case[3], case[4] or case[3]
  local held
  return { title, prepare,
    function(s)
      held = assert(take(case, make(s.conn, s.name)))
      return case.is_held or assert(held:release())
    end,
    function(s)
      local lock = take(case, makes_other(s.rival, s.name), 0)
      if lock and case.is_held then assert(held:release()) end
      return lock
    end }
end

-- ---- the rows ------------------------------------------------------------------------------------------------------

local function run(case, s)
  local _, prepare, fails, takes = (table.unpack or unpack)(case)
  s.third = s.connect()
  local held = prepare(s)
  local busy, failure, now = 0, nil, s.conn._driver.clock.now
  for _ = 1, TIMES do
    local begun = now()
    local got, _, code = fails(s)
    failure = not got and code or nil
    local is_late = now() - begun >= LATE
    local lock = takes(s)
    if not lock and not is_late then busy = busy + 1 end
    while not lock do lock = takes(s) end
    assert(lock:release())
  end
  if held then assert(held:release()) end
  return failure, busy
end

local list = {}

local function row(title, code, case)
  table.insert(list, { title = title, code = code, run = function(s) return run(case, s) end })
end

for _, case in ipairs(failures) do
  row("after a failure: " .. case[1], case[1] == "a writer that waits" and "timeout" or "busy", case)
end
for _, case in ipairs(successes) do row("after a success: " .. case[1], nil, succeeding(case)) end
return list
