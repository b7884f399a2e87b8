-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The answer of a call is true when it returns: calls that take something and then fail, or that take it and give it
-- back, and calls of another client for the same, at once. A list of { title =, code =, run = function(s) … } for rows
-- of testing_rows.lua, where `s` is described. run(s) returns the code of the failure, or nil, and how often the other
-- client was told that it is taken, although the broker had answered in time.
local TIMES = os.getenv "AMQPLOCKS_SOAK" and 100 or 8
local LATE = 1 -- seconds: a call that fails waits no longer for the broker's answer

local function nothing() end

local function slots(count)
  return function(s) s.slots(count) end
end

local function permits(count, queue_type)
  return function(s) s.permits(count, queue_type) end
end

-- What a connection makes.
local function mutex(c, name) return c:mutex(name) end

local function fast(c, name) return c:fast_mutex(name) end

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

-- Both tables: title, what is prepared, what the one client acquires and what the other one tries.
-- `third`: what a third client holds, of the name with the ending `of`; `count` of the one, `tried` of the other.
local failures = {
  { "several locks, with a mutex", nothing, beside(mutex), mutex, third = mutex, of = "-z" },
  { "several locks, with a fast mutex", nothing, beside(fast), fast, third = mutex, of = "-z" },
  { "several locks, with a reader", nothing, beside(reader), writer, third = mutex, of = "-z" },
  { "several locks, with a slot", slots(1), beside(semaphore), semaphore, third = mutex, of = "-z" },
  { "several locks, with a permit", permits(1), beside(classic), classic, third = mutex, of = "-z" },
  { "three slots", slots(3), semaphore, semaphore, third = semaphore, count = 3, tried = 2 },
  { "three permits", permits(3), classic, classic, third = classic, count = 3, tried = 2 },
  { "a writer that does not wait", nothing, writer, reader, third = reader },
  { "a writer that waits", nothing, writer, reader, third = reader, timeout = 0.02, code = "timeout" },
}

-- Not those whose release is unconfirmed: fast mutexes, and permits of a classic queue.
-- `is_held`: the one client holds it until the other one has tried.
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
  { "two slots", slots(2), semaphore, count = 2, tried = 2 },
  { "two quorum permits", permits(2, "quorum"), quorum, count = 2, tried = 2 },
  { "two of four slots, which are held", slots(4), semaphore, count = 2, tried = 2, is_held = true },
  { "two of four permits, which are held", permits(4), classic, count = 2, tried = 2, is_held = true },
}

local function run(case, s, fails)
  local _, prepare, make, makes_other = (table.unpack or unpack)(case)
  prepare(s)
  s.third = s.connect()
  local held = case.third and assert(case.third(s.third, s.name .. (case.of or "")):acquire())
  local busy, failure, now = 0, nil, s.conn._driver.clock.now
  local function takes() return (makes_other or make)(s.rival, s.name):acquire{ count = case.tried, timeout = 0 } end
  for _ = 1, TIMES do
    local begun = now()
    local timeout = fails and (case.timeout or 0) or nil
    local own, _, code = make(s.conn, s.name):acquire{ count = case.count, timeout = timeout }
    assert(fails or own, code)
    if own and not case.is_held then assert(own:release()) end
    failure = code
    local is_late = now() - begun >= LATE
    local lock = takes()
    if not lock and not is_late then busy = busy + 1 end
    if own and case.is_held then assert(own:release()) end
    while not lock do lock = takes() end
    assert(lock:release())
  end
  if held then assert(held:release()) end
  return failure, busy
end

local list = {}

local function row(title, code, case, fails)
  table.insert(list, { title = title, code = code, run = function(s) return run(case, s, fails) end })
end

for _, case in ipairs(failures) do row("after a failure: " .. case[1], case.code or "busy", case, true) end
for _, case in ipairs(successes) do row("after a success: " .. case[1], nil, case, false) end
return list
