-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The answer of a call is true when it returns: calls that take something and then fail, or that take it and give it
-- back, and calls of another client for the same, at once. A list of { title =, code =, run = function(s) … } for rows
-- of testing_rows.lua, where `s` is described. run(s) returns the code of the failure, or nil, and how often the other
-- client was told that it is taken, although the broker had answered in time.
local TIMES = os.getenv "AMQPLOCKS_SOAK" and 100 or 2
local LATE = 1 -- seconds: a call that fails waits no longer for the broker's answer

-- What a connection makes.
local make = {
  mutex = function(c, name) return c:mutex(name) end,
  fast = function(c, name) return c:fast_mutex(name) end,
  reentrant = function(c, name) return c:mutex(name, { reentrant = true }) end,
  persistent = function(c, name) return c:mutex(name, { persistent = true }) end,
  slot = function(c, name) return c:semaphore(name) end,
  permit = function(c, name) return c:token_semaphore(name) end,
  quorum = function(c, name) return c:token_semaphore(name, { queue_type = "quorum" }) end,
  writer = function(c, name) return c:rwlock(name):writer() end,
  reader = function(c, name) return c:rwlock(name):reader() end,
}

-- With a mutex, and so on a connection that has more than permits.
for _, kind in ipairs{ "mutex", "fast", "reader", "writer", "slot", "permit", "quorum" } do
  make["mutex+" .. kind] = function(c, name) return c:all{ c:mutex(name .. "-z"), make[kind](c, name) } end
end

-- Both tables: title, what the one client acquires and what the other one tries (the same unless given).
-- `slots`, `permits`: how many there are; `count` of the one, `tried` of the other.
-- `third`: what a third client holds, of the name with the ending `of`.
local failures = {
  { "several locks, with a mutex", "mutex+mutex", "mutex", third = "mutex", of = "-z" },
  { "several locks, with a fast mutex", "mutex+fast", "fast", third = "mutex", of = "-z" },
  { "several locks, with a reader", "mutex+reader", "writer", third = "mutex", of = "-z" },
  { "several locks, with a slot", "mutex+slot", "slot", third = "mutex", of = "-z", slots = 1 },
  { "several locks, with a permit", "mutex+permit", "permit", third = "mutex", of = "-z", permits = 1 },
  { "three slots", "slot", third = "slot", slots = 3, count = 3, tried = 2 },
  { "three permits", "permit", third = "permit", permits = 3, count = 3, tried = 2 },
  { "a writer that does not wait", "writer", "reader", third = "reader" },
  { "a writer that waits", "writer", "reader", third = "reader", timeout = 0.02, code = "timeout" },
}

-- Not those whose release is unconfirmed: fast mutexes, and permits of a classic queue.
-- `is_held`: the one client holds it until the other one has tried.
local successes = {
  { "a mutex", "mutex" },
  { "an entry of a reentrant mutex", "reentrant" },
  { "a persistent mutex", "persistent", slots = 1 },
  { "a slot", "slot", slots = 1 },
  { "a quorum permit", "quorum", permits = 1 },
  { "a writer, and a reader", "writer", "reader" },
  { "a reader, and a writer", "reader", "writer" },
  { "several locks, with a quorum permit", "mutex+quorum", permits = 1 },
  { "several locks, with a writer", "mutex+writer", "mutex+reader" },
  { "two slots", "slot", slots = 2, count = 2, tried = 2 },
  { "two of four slots, which are held", "slot", slots = 4, count = 2, tried = 2, is_held = true },
  { "two of four permits, which are held", "permit", permits = 4, count = 2, tried = 2, is_held = true },
}

local function run(case, s, fails)
  local own_kind, other_kind = case[2], case[3] or case[2]
  if case.slots then s.slots(case.slots) end
  if case.permits then s.permits(case.permits, own_kind:find "quorum" and "quorum" or nil) end
  s.third = s.connect()
  local held = case.third and assert(make[case.third](s.third, s.name .. (case.of or "")):acquire())
  local busy, failure, now = 0, nil, s.conn._driver.clock.now
  local function takes() return make[other_kind](s.rival, s.name):acquire{ count = case.tried, timeout = 0 } end
  for _ = 1, TIMES do
    local begun = now()
    local timeout = fails and (case.timeout or 0) or nil
    local own, _, code = make[own_kind](s.conn, s.name):acquire{ count = case.count, timeout = timeout }
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
