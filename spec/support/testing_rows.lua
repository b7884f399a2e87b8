-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The answers that clients get from a real broker and from amqplocks.testing: one table for both, as busted tests.
-- Each row is a program over connections, and says what its calls return.
--
-- A row gets a stage: conn and rival (two connections), connect(opts), name and other_name (unique), slots(n),
-- permits(n, queue_type) of the first, lose(lock), and is(expected, ...), which compares the results of a call: as
-- text, "mutex", "slot 1" … for a lock, or the code.
local assert = require "luassert"
local leftovers = require "spec.support.leftovers"

local rows = {}

local is_late -- rows of a kind that real brokers have from RabbitMQ 4.3 on

local function row(title, run, is_operated)
  table.insert(rows, { title = title, run = run, is_operated = is_operated, is_late = is_late })
end

local function told(lock, _, code)
  if not lock then return code or tostring(lock) end
  if type(lock) ~= "table" then return tostring(lock) end
  if lock.locks then
    local list = {}
    for i, one in ipairs(lock.locks) do list[i] = told(one) end
    return "(" .. table.concat(list, ", ") .. ")"
  end
  return lock.kind .. (lock.slot and " " .. lock.slot or "")
end

local function is(expected, ...) assert.equal(tostring(expected), told(...)) end

-- ---- each kind ------------------------------------------------------------------------------------------------------

local KINDS = {
  { "mutex", "mutex", settles = true, make = function(c, name) return c:mutex(name) end },
  { "fast mutex", "fast_mutex", settles = true, make = function(c, name) return c:fast_mutex(name) end },
  { "quorum mutex", "fast_mutex", make = function(c, name) return c:fast_mutex(name, { queue_type = "quorum" }) end,
    is_late = true, settles = true },
  { "semaphore", "slot 1", make = function(c, name) return c:semaphore(name) end,
    create = function(s) s.slots(1) end },
  { "token semaphore", "permit", make = function(c, name) return c:token_semaphore(name) end,
    create = function(s) s.permits(1) end, waits_for_itself = true },
  { "quorum token semaphore", "permit", waits_for_itself = true, has_fence = true,
    make = function(c, name) return c:token_semaphore(name, { queue_type = "quorum" }) end,
    create = function(s) s.permits(1, "quorum") end },
  { "writer", "write", make = function(c, name) return c:rwlock(name):writer() end, knows_itself = true },
}

for _, kind in ipairs(KINDS) do
  local title, word, make = kind[1], kind[2], kind.make
  is_late = kind.is_late
  local function create(s)
    if kind.create then kind.create(s) end
    return make(s.conn, s.name), make(s.rival, s.name)
  end

  row(title .. ": free for others after its time, although its program hangs", function(s)
    local own, others = create(s)
    local lock = assert(own:acquire{ at_most = 0.3 })
    assert.is_true(lock:certain_for() <= 0.3)
    is(word, others:acquire{ timeout = 60 }) -- nothing calls the first connection meanwhile
    is("lost", lock:held())
    assert.matches(": expired: ", (select(2, lock:held())))
    assert.equal(0, lock:certain_for())
    is("lost", lock:verify())
    is("lost", lock:release())
  end)

  if kind.settles then
    row(title .. ": settles when it was lost, and not when it was released", function(s)
      local own, others = create(s)
      is(true, others:acquire{ settle = 600 }:release())
      s.lose(own:acquire{ settle = 2, timeout = 60 })
      local _, message, code = others:acquire{ settle = 600, timeout = 0 }
      is("busy", nil, message, code)
      assert.matches("settles", message)
      local reason
      is("timeout", others:acquire{ settle = 600, timeout = 0.3, on_wait = function(_, why) reason = why end })
      assert.matches("did not end by a release", reason)
      is(true, others:acquire{ settle = 600, timeout = 60 }:release())
      s.lose(own:acquire{ settle = 600, timeout = 60 })
      is(word, others:acquire{ settle = 0.2, timeout = 60 }) -- by its own time, which is shorter
    end, true)
  end

  row(title .. ": acquired, verified, released", function(s)
    local own = create(s)
    local lock = own:try_acquire()
    is(word, lock)
    is(true, lock:held())
    assert.is_true(lock:certain_for() > 1)
    is(true, lock:verify())
    assert.equal(kind.has_fence or false, lock.fence ~= nil)
    is(false, lock:revoked())
    is(kind.knows_itself and "deadlock" or "busy", own:try_acquire())
    if kind.waits_for_itself then
      is("timeout", own:acquire { timeout = 0.3 })
    else
      local _, message, code = own:acquire { timeout = 60, patient = true }
      is("deadlock", nil, message, code)
      assert.matches(s.name, message, 1, true)
      is("deadlock", own:acquire { timeout = 60 })
    end
    local fine, problem = pcall(lock.downgrade, lock)
    is(word == "write" and "read" or "downgrade: only a lock that writes can be turned into one that reads, not a "
      .. word:gsub(" .*", ""), fine and lock.kind or problem)
    is(true, lock:release())
    is("not_held", lock:release())
    is("not_held", lock:verify())
    is("not_held", lock:held())
    assert.equal(0, lock:certain_for())
  end)

  row(title .. ": held by another client, and released while one waits", function(s)
    local own, rivals = create(s)
    local lock = own:try_acquire()
    is("busy", rivals:try_acquire())
    is("busy", rivals:acquire { timeout = 0 })
    is("timeout", rivals:acquire { timeout = 0.3 })
    local function release(seconds)
      if seconds > 0.3 and lock:held() then is(true, lock:release()) end
    end
    is(word, rivals:acquire { timeout = 60, on_wait = release })
    is("not_held", lock:held())
  end)

  row(title .. ": a closed connection", function(s)
    local _, rivals = create(s)
    local other = s.connect()
    local theirs = make(other, s.name)
    local lock = theirs:try_acquire()
    is(true, lock:held())
    is(true, other:close())
    is(true, other:close())
    is("not_held", lock:held())
    is("closed", theirs:try_acquire())
    is("closed", theirs:with(error))
    is("closed", make(other, s.name):acquire { timeout = 5 })
    is("closed", make(other, s.name):acquire { timeout = 60, patient = true })
    is("closed", other:admin(s.name):slots())
    is("closed", other:admin(s.name):resize(2))
    is(word, rivals:acquire { timeout = 60 })
  end)

  row(title .. ": with", function(s)
    local own, rivals = create(s)
    local seen
    assert.same({ true, 7 }, { own:with(function(lock, number)
      seen = lock
      is(word, lock)
      return number
    end, 7) })
    assert.same({ false, "an error" }, { pcall(own.with, own, function() error("an error", 0) end) })
    is("not_held", seen:held())
    local lock = rivals:acquire { timeout = 60 } -- kept: a lock that is collected is free
    is(word, lock)
    is("busy", own:with({ timeout = 0 }, error))
  end)

  if word == "fast_mutex" then
    row(title .. ": clients of another type of queue are refused", function(s)
      is(word, create(s):try_acquire())
      local other = { queue_type = kind.is_late and "classic" or "quorum" }
      is("conflict", s.rival:fast_mutex(s.name, other):acquire { timeout = 60 })
    end)
  end

  if kind.create then
    row(title .. ": that does not exist", function(s)
      local object = make(s.conn, s.name)
      is("not_found", object:try_acquire())
      is("not_found", object:acquire { timeout = 60 })
      is("not_found", object:acquire { timeout = 60, patient = true })
    end)
  end

  row(title .. ": lost", function(s)
    local reported
    s.conn:on_lost(function(lock, code) reported = code .. " " .. tostring(lock.name == s.name) end)
    local lock = create(s):try_acquire()
    s.lose(lock)
    is("lost", lock:verify())
    is("lost true", reported)
    is("lost", lock:held())
    is("lost", lock:release())
    is("not_held", lock:release())
    assert.equal(0, lock:certain_for())
  end, true)
end

row("mutex: an acquire asks its holder to release, if it is told to", function(s)
  local lock = s.conn:mutex(s.name):try_acquire()
  is("timeout", s.rival:mutex(s.name):acquire { timeout = 0.3 })
  is(false, lock:revoked())
  is("timeout", s.rival:mutex(s.name):acquire { timeout = 0.3, revoke = true })
  for _ = 1, 600 do -- a message to the holder is on its way
    if lock:revoked() then break end
    is(true, lock:verify())
  end
  is(true, lock:revoked())
  is(true, lock:release())
  assert.is_false((pcall(s.conn.semaphore(s.conn, s.name).acquire, s.conn:semaphore(s.name), { revoke = true })))
end)

-- ---- readers and writers --------------------------------------------------------------------------------------------

row("readers: beside each other, and not beside a writer", function(s)
  local own, rivals, third = s.conn:rwlock(s.name), s.rival:rwlock(s.name), s.connect():rwlock(s.name)
  local one, other = own:try_read(), rivals:try_read()
  is("read", one)
  is("read", other)
  is("busy", third:try_write())
  is("timeout", third:write { timeout = 0.3 })
  for _, call in ipairs { "try_read", "read", "try_write", "write" } do is("deadlock", own[call](own)) end
  one:release()
  is("busy", third:try_write())
  other:release()
  local lock = third:write { timeout = 60 }
  is("write", lock)
  is("busy", own:try_read())
  lock:release()
end)

row("writers: that wait keep readers out, and let them in when they give up", function(s)
  local own, rivals, third = s.conn:rwlock(s.name), s.rival:rwlock(s.name), s.connect():rwlock(s.name)
  local lock = own:try_read()
  local tried
  local function try(seconds)
    if seconds > 0.3 and not tried then tried = told(third:try_read()) end
  end
  is("timeout", rivals:write { timeout = 2.5, on_wait = try })
  is("busy", tried)
  is("read", third:read { timeout = 60 })
  lock:release()
end)

row("writers: become readers", function(s)
  local own, rivals = s.conn:rwlock(s.name), s.rival:rwlock(s.name)
  local lock = own:try_write()
  local ticket, since = lock.ticket, lock.acquired_at
  is(true, lock:downgrade())
  is("read", lock)
  assert.is_not.equal(ticket, lock.ticket)
  assert.is_true(lock.acquired_at >= since)
  is(true, lock:held())
  is(true, lock:verify())
  is(true, lock:downgrade())
  local other = rivals:try_read()
  is("read", other)
  is("busy", s.connect():rwlock(s.name):try_write())
  is(true, lock:release())
  is("not_held", lock:downgrade())
  is(true, other:verify())
  is(true, other:release())
  is("write", s.connect():rwlock(s.name):write { timeout = 60 })
end)

-- ---- fencing tokens -------------------------------------------------------------------------------------------------

row("fences: grow with each holder", function(s)
  local last = 0
  for _, conn in ipairs { s.conn, s.rival } do
    local lock = conn:mutex(s.name, { fenced = true }):acquire { timeout = 60 }
    assert.is_true(lock.fence > last)
    last = lock.fence
    lock:release()
  end
  local lock = s.conn:mutex(s.name):acquire { timeout = 60 }
  assert.is_nil(lock.fence)
  lock:release()
  s.conn:mutex(s.name):forget_fence()
end)

row("permits: of a quorum queue have an id", function(s)
  s.permits(1, "quorum")
  local one = s.conn:token_semaphore(s.name, { queue_type = "quorum", fenced = true }):acquire { timeout = 60 }
  one:release()
  local next_one = s.rival:token_semaphore(s.name, { queue_type = "quorum" }):acquire { timeout = 60 }
  assert.is_true(next_one.fence > one.fence)
  if math.type then assert.equal("integer", math.type(one.fence)) end
  assert.equal(one.permit, next_one.permit)
  assert.matches("^" .. ("%x"):rep(16) .. "$", one.permit)
  next_one:release()
  is("permit", s.connect():token_semaphore(s.name):try_acquire())
end)

row("permits: of a classic queue have none", function(s)
  s.permits(1)
  local lock = s.connect():token_semaphore(s.name):acquire { timeout = 60 }
  is("permit", lock)
  assert.same({}, { lock.fence, lock.permit })
  lock:release()
  is("conflict", s.connect():token_semaphore(s.name, { queue_type = "quorum", fenced = true }):acquire { timeout = 60 })
end)

-- ---- several --------------------------------------------------------------------------------------------------------

row("several slots: together or not at all", function(s)
  s.slots(3)
  local own, rivals = s.conn:semaphore(s.name), s.rival:semaphore(s.name)
  local locks = own:acquire { count = 2, timeout = 60 }
  is("(slot 1, slot 2)", locks)
  is("busy", rivals:acquire { count = 2, timeout = 0 })
  is("timeout", rivals:acquire { count = 2, timeout = 0.3 })
  local lock = rivals:acquire { timeout = 60 }
  is("slot 3", lock)
  is(true, locks:release())
  is("deadlock", rivals:acquire { count = 3, timeout = 60 })
  lock:release()
  is("limit", own:acquire { count = 4, timeout = 60 })
end)

row("several permits: together or not at all", function(s)
  s.permits(3)
  local own, rivals = s.conn:token_semaphore(s.name), s.rival:token_semaphore(s.name)
  local locks = own:acquire { count = 2, timeout = 60 }
  is("(permit, permit)", locks)
  is("busy", rivals:acquire { count = 2, timeout = 0 })
  is(true, locks:release())
  is("(permit, permit)", rivals:acquire { count = 2, timeout = 60 })
  is("not_found", s.conn:token_semaphore(s.name .. "-none"):acquire { count = 2, timeout = 60 })
end)

row("several locks: together or not at all, whatever their kinds", function(s)
  s.slots(1)
  s.permits(1)
  -- A fast mutex is in the way of a plain one of its name.
  local function parts(conn)
    return { conn:rwlock(s.name):writer(), conn:mutex(s.name), conn:semaphore(s.name), conn:token_semaphore(s.name),
      conn:fast_mutex(s.other_name) }
  end
  local function all(conn) return conn:all(parts(conn)) end
  local locks = all(s.conn):acquire { timeout = 60 }
  is("(write, mutex, slot 1, permit, fast_mutex)", locks)
  is("busy", all(s.rival):try_acquire())
  is("timeout", all(s.rival):acquire { timeout = 0.3 })
  for _, part in ipairs(parts(s.rival)) do is("busy", part:try_acquire()) end
  is(true, locks:held())
  is(true, locks:verify())
  is(false, locks:revoked())
  assert.is_true(locks:certain_for() > 0)
  is(true, locks:release())
  is("not_held", locks:held())
  is("not_held", locks:release())
  for _, part in ipairs(parts(s.rival)) do assert(part:acquire { timeout = 60 }):release() end
  s.rival:close()
  is("closed", s.conn:all { s.conn:mutex(s.name), s.rival:mutex(s.other_name) }:acquire { timeout = 60 })
  is("mutex", s.conn:mutex(s.name):try_acquire())
end)

for persistent, word in pairs { [false] = "mutex", [true] = "slot 1" } do
  row(("a reentrant %s: entered by its owner; a holder without a token gets none by entering as fenced"):format(word),
    function(s)
      if persistent then s.slots(1) end
      local function own(fenced)
        return s.conn:mutex(s.name, { reentrant = true, fenced = fenced, persistent = persistent })
      end
      local rivals = s.rival:mutex(s.name, { persistent = persistent })
      local outer, inner = own():try_acquire(), own():try_acquire()
      is(word, outer)
      is(word, inner)
      assert.same({}, { outer.fence, inner.fence })
      local _, message, code = own(true):acquire { timeout = 60 }
      is("conflict", nil, message, code)
      assert.matches("without a fencing token", message, 1, true)
      is("conflict", s.conn:all { own(true) }:try_acquire())
      is(true, inner:release())
      is("busy", rivals:try_acquire())
      is(true, outer:release())
      is(word, rivals:acquire { timeout = 60 })
    end)
end

row("a reentrant mutex: a token is every entry's", function(s)
  local function own(fenced) return s.conn:mutex(s.name, { reentrant = true, fenced = fenced }) end
  local outer = own(true):acquire { timeout = 60 }
  for _, fenced in ipairs { true, false } do
    local inner = own(fenced):try_acquire()
    assert.equal(outer.fence, inner.fence)
    is(true, inner:release())
  end
  outer:release()
  own(true):forget_fence()
end)

row("an election: over when fn returns", function(s)
  assert.same({ true, 3 }, { s.conn:elect(s.name, function() return 3 end) })
  local terms = 0
  assert.same({ true, 4 }, { s.conn:elect(s.name, function(lock)
    terms = terms + 1
    if terms == 2 then return 4 end
    s.lose(lock)
  end) })
end, true)

-- ---- administrators -------------------------------------------------------------------------------------------------

row("slots: created, added, removed, destroyed", function(s)
  local admin = s.conn:admin(s.name)
  for _, call in ipairs {
    { "not_found", "add", 1 }, { "not_found", "remove", 1 }, { "not_found", "repair" }, { 0, "slots" },
    { 2, "create", 2 }, { "exists", "create", 2 }, { 5, "add", 3 }, { 4, "remove", 1 }, { 4, "repair" }, { 4, "slots" },
    { 0, "remove", 9 }, { 0, "slots" }, { 3, "resize", 3 }, { true, "destroy" }, { "not_found", "destroy" },
  } do
    is(call[1], admin[call[2]](admin, call[3]))
  end
end)

row("slots: removed from their holders", function(s)
  local admin = s.rival:admin(s.name)
  s.slots(2)
  local own = s.conn:semaphore(s.name)
  local first, second = own:try_acquire(), own:try_acquire()
  first:release()
  local status = admin:status()
  assert.same({ 2, true, true, false, true },
    { #status, status[1].exists, status[2].exists, status[1].held, status[2].held })
  is("timeout", admin:remove(1, { wait = 0.3 }))
  is("removed", second:verify())
  is(true, second:held())
  is(false, second:revoked())
  is(true, second:release())
  is(true, admin:wait_released { 1, 2 })
  admin:destroy()
  is("not_found", own:try_acquire())
end)

row("slots and mutexes: asked for", function(s)
  local admin, mutex = s.rival:admin(s.name), s.rival:mutex(s.name)
  is("not_held", admin:revoke(1))
  s.slots(1)
  is("not_held", admin:revoke(1))
  is(true, admin:revoke(1, { wait = 60 }))
  is("not_held", admin:revoke(65535))
  local lock, reader = s.conn:semaphore(s.name):try_acquire(), s.conn:rwlock(s.name):try_read()
  is("not_held", mutex:revoke()) -- the others of that name are not asked
  is("not_held", s.rival:rwlock(s.name):revoke_writer())
  for _, one in ipairs { lock, reader } do
    one:verify()
    is(false, one:revoked())
  end
  local held = s.conn:mutex(s.name):try_acquire()
  is(true, admin:revoke(1))
  is(true, mutex:revoke())
  for _, one in ipairs { lock, held } do
    one:verify()
    is(true, one:revoked())
  end
  is("timeout", admin:revoke(1, { wait = 0.3 }))
  is(true, lock:held())
  is("timeout", mutex:revoke { wait = 0.3 })
  held:release()
  is(true, reader:verify())
  reader:release()
end)

row("readers and writers: asked for", function(s)
  local own, rivals = s.conn:rwlock(s.name), s.rival:rwlock(s.name)
  is("not_held", rivals:revoke_readers())
  is("not_held", rivals:revoke_writer())
  local lock = own:try_write()
  is(true, rivals:revoke_writer())
  lock:verify()
  is(true, lock:revoked())
  is("not_held", rivals:revoke_readers())
  assert(lock:downgrade())
  is(false, lock:revoked())
  is(true, rivals:revoke_readers())
  lock:verify()
  is(true, lock:revoked())
  lock:release()
  is(false, own:try_read():revoked())
end)

row("permits: created, added, removed, destroyed", function(s)
  local own = s.conn:token_semaphore(s.name)
  local function slots(...) assert.same({ ... }, { own:slots() }) end
  is("not_found", own:add(1))
  is(0, own:slots())
  is(2, own:create(2))
  is("exists", own:create(2))
  own:add(3)
  slots(5, 5, 0)
  own:remove(1)
  slots(4, 4, 0)
  local lock = s.rival:token_semaphore(s.name):acquire { timeout = 60 }
  slots(4, 3, 1)
  is("busy", own:resize(0))
  is("timeout", own:resize(0, { wait = 0.3 }))
  is(true, lock:release())
  assert(own:resize(0, { wait = 60 }))
  is("not_found", own:try_acquire())
  own:resize(1)
  slots(1, 1, 0)
  local again = own:acquire { timeout = 60 }
  is("permit", again)
  again:release()
  is(true, own:destroy { wait = 60 })
  is("not_found", own:destroy())
  is(0, own:slots())
end)

-- ---- what a call took and gave back is free when it has returned ----------------------------------------------------

for _, case in ipairs(leftovers) do
  row("another client's first call, " .. case.title, function(s) assert.same({ case.code, 0 }, { case.run(s) }) end)
end

-- ---- events and counts ----------------------------------------------------------------------------------------------

row("events: of acquires, waits, failures and ends", function(s)
  local heard = {}
  for _, conn in ipairs { s.conn, s.rival } do
    conn:on_event(function(event)
      if event.name ~= s.name then return end
      table.insert(heard, event.what .. " " .. event.kind .. (event.code and " " .. event.code or ""))
    end)
  end
  local lock = s.conn:mutex(s.name):try_acquire()
  s.rival:mutex(s.name):try_acquire()
  s.rival:mutex(s.name):acquire { timeout = 0.3 }
  lock:release()
  s.conn:rwlock(s.name):try_read():release()
  assert.same({ "acquired mutex", "failed mutex busy", "waiting mutex", "failed mutex timeout", "released mutex",
    "acquired read", "released read" }, heard)
  assert.equal(2, s.conn:stats().acquired)
  assert.same({ busy = 1, timeout = 1 }, s.rival:stats().failed)
end)

--- `it_`: busted's it. `operated_it`: the same for rows that need an operator. `new_stage` returns what a row gets.
-- `late_it`: for rows that the broker is too old for; nil: it is not.
return function(it_, operated_it, new_stage, late_it)
  for _, each in ipairs(rows) do
    local its = each.is_late and late_it or each.is_operated and operated_it or it_
    its(each.title, function() each.run(new_stage()) end)
  end
end
