-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The answers that clients get from a real broker and from amqplocks.testing: one table for both. Each
-- row is a program over connections, and the lines that it must say.
--
-- A row gets a stage: conn and rival (two connections), connect(opts), name (unique), slots(n), permits(n, queue_type)
-- of that name, lose(lock), and say(...), which adds a line.
local leftovers = require "spec.support.leftovers"

local rows = {}

local function row(title, expected, run) table.insert(rows, { title = title, expected = expected, run = run }) end

-- "mutex", "slot 1" …, or the code.
local function told(lock, _, code)
  if not lock then return code or "nil" end
  if type(lock) ~= "table" then return tostring(lock) end
  if lock.locks then
    local list = {}
    for i, one in ipairs(lock.locks) do list[i] = told(one) end
    return "(" .. table.concat(list, ", ") .. ")"
  end
  return lock.kind .. (lock.slot and " " .. lock.slot or "")
end

-- ---- each kind ------------------------------------------------------------------------------------------------------

local KINDS = {
  { "mutex", "mutex", make = function(c, name) return c:mutex(name) end },
  { "fast mutex", "fast_mutex", make = function(c, name) return c:fast_mutex(name) end },
  { "semaphore", "slot 1", make = function(c, name) return c:semaphore(name) end,
    create = function(s) s.slots(1) end, is_created = true },
  { "persistent mutex", "slot 1", make = function(c, name) return c:mutex(name, { persistent = true }) end,
    create = function(s) s.slots(1) end, is_created = true },
  { "token semaphore", "permit", make = function(c, name) return c:token_semaphore(name) end,
    create = function(s) s.permits(1) end, is_created = true, waits_for_itself = true },
  { "quorum token semaphore", "permit", is_created = true, waits_for_itself = true, has_fence = true,
    make = function(c, name) return c:token_semaphore(name, { queue_type = "quorum" }) end,
    create = function(s) s.permits(1, "quorum") end },
  { "writer", "write", make = function(c, name) return c:rwlock(name):writer() end, knows_itself = true },
}

for _, kind in ipairs(KINDS) do
  local title, word, make = kind[1], kind[2], kind.make
  local function create(s)
    if kind.create then kind.create(s) end
    return make(s.conn, s.name), make(s.rival, s.name)
  end

  row(title .. ": acquired, verified, released", {
    word, "true", "true", "true", kind.has_fence and "a fence" or "no fence", "false", word == "write" and "read"
      or "downgrade: only a lock that writes can be turned into one that reads, not a " .. word:gsub(" .*", ""),
    "true", "not_held", "not_held", "not_held", "true",
  }, function(s)
    local lock, message, code = create(s):try_acquire()
    s.say(told(lock, message, code))
    s.say(lock:held())
    s.say(lock:certain_for() > 1)
    s.say(lock:verify())
    s.say(lock.fence and "a fence" or "no fence")
    s.say(lock:revoked())
    local fine, problem = pcall(lock.downgrade, lock)
    s.say(fine and lock.kind or problem)
    s.say(told(lock:release()))
    s.say(told(lock:release()))
    s.say(told(lock:verify()))
    s.say(told(lock:held() or nil, select(2, lock:held())))
    s.say(lock:certain_for() == 0)
  end)

  row(title .. ": held by another client, and released while one waits", {
    word, "busy", "busy", "timeout", "true", word, "not_held",
  }, function(s)
    local own, rivals = create(s)
    local lock = own:try_acquire()
    s.say(told(lock))
    s.say(told(rivals:try_acquire()))
    s.say(told(rivals:acquire { timeout = 0 }))
    s.say(told(rivals:acquire { timeout = 0.3 }))
    local function release(seconds)
      if seconds > 0.5 and lock:held() then s.say(lock:release()) end
    end
    s.say(told(rivals:acquire { timeout = 20, on_wait = release }))
    s.say(select(3, lock:held()))
  end)

  row(title .. ": held by itself", {
    kind.knows_itself and "deadlock" or "busy", kind.waits_for_itself and "timeout" or "deadlock",
  }, function(s)
    local own = create(s)
    local lock = own:try_acquire()
    s.say(told(own:try_acquire()))
    s.say(told(own:acquire { timeout = 0.3 }))
    lock:release()
  end)

  row(title .. ": a closed connection", { "true", "not_held", "closed", word }, function(s)
    local _, rivals = create(s)
    local other = s.connect()
    local theirs = make(other, s.name)
    local lock = theirs:try_acquire()
    s.say(lock:held())
    other:close()
    s.say(select(3, lock:held()))
    s.say(told(theirs:try_acquire()))
    s.say(told(rivals:acquire { timeout = 60 }))
  end)

  row(title .. ": with", { word, "true 7", "an error", "false", "true", "busy 0" }, function(s)
    local own, rivals = create(s)
    local seen
    local had, seven = own:with(function(lock, number)
      seen = lock
      s.say(told(lock))
      return number
    end, 7)
    s.say(tostring(had) .. " " .. tostring(seven))
    local _, problem = pcall(own.with, own, function() error("an error", 0) end)
    s.say(problem)
    s.say(seen:held() == true)
    local lock = rivals:acquire { timeout = 60 }
    s.say(lock ~= nil)
    local calls = 0
    local _, _, code = own:with({ timeout = 0 }, function() calls = calls + 1 end)
    s.say(code .. " " .. calls)
  end)

  if kind.is_created then
    row(title .. ": that does not exist", { "not_found", "not_found" }, function(s)
      local object = make(s.conn, s.name)
      s.say(told(object:try_acquire()))
      s.say(told(object:acquire { timeout = 60 }))
    end)
  end

  row(title .. ": lost", {
    "lost", "lost true", "lost lost", "lost", "not_held", "true", is_operated = true,
  }, function(s)
    local own = create(s)
    local reported
    s.conn:on_lost(function(lock, code) reported = code .. " " .. tostring(lock.name == s.name) end)
    local lock = own:try_acquire()
    s.lose(lock)
    s.say(told(lock:verify()))
    s.say(reported)
    s.say(select(3, lock:held()) .. " " .. told(lock:verify()))
    s.say(told(lock:release()))
    s.say(told(lock:release()))
    s.say(lock:certain_for() == 0)
  end)

end

-- ---- readers and writers --------------------------------------------------------------------------------------------

row("readers: beside each other, and not beside a writer", { "read", "read", "busy", "timeout", "write", "busy" },
  function(s)
    local own, rivals = s.conn:rwlock(s.name), s.rival:rwlock(s.name)
    local one, other = own:try_read(), rivals:try_read()
    s.say(told(one))
    s.say(told(other))
    local third = s.connect():rwlock(s.name)
    s.say(told(third:try_write()))
    s.say(told(third:write { timeout = 0.3 }))
    one:release()
    other:release()
    local lock = third:write { timeout = 60 }
    s.say(told(lock))
    s.say(told(own:try_read()))
  end)

row("readers: keep out their own connection", { "deadlock", "deadlock", "deadlock", "deadlock" }, function(s)
  local own = s.conn:rwlock(s.name)
  local lock = own:try_read()
  s.say(told(own:try_read()))
  s.say(told(own:read { timeout = 1 }))
  s.say(told(own:try_write()))
  s.say(told(own:write { timeout = 1 }))
  lock:release()
end)

row("writers: that wait keep readers out, and let them in when they give up", { "busy", "timeout", "read" }, function(s)
  local own, rivals, third = s.conn:rwlock(s.name), s.rival:rwlock(s.name), s.connect():rwlock(s.name)
  local lock = own:try_read()
  local tried
  local function try(seconds)
    if seconds > 0.3 and not tried then
      tried = told(third:try_read())
      s.say(tried)
    end
  end
  s.say(told(rivals:write { timeout = 2.5, on_wait = try }))
  s.say(told(third:read { timeout = 60 }))
  lock:release()
end)

row("writers: become readers", { "read", "true", "true", "read", "busy", "true" }, function(s)
  local own, rivals = s.conn:rwlock(s.name), s.rival:rwlock(s.name)
  local lock = own:try_write()
  local ticket = lock.ticket
  assert(lock:downgrade())
  s.say(told(lock))
  s.say(lock.ticket ~= ticket)
  s.say(lock:downgrade())
  s.say(told(rivals:try_read()))
  s.say(told(s.connect():rwlock(s.name):try_write()))
  s.say(lock:release())
end)

-- ---- fencing tokens -------------------------------------------------------------------------------------------------

row("fences: grow with each holder", { "true", "true", "nil" }, function(s)
  local last = 0
  for _, conn in ipairs { s.conn, s.rival } do
    local lock = conn:mutex(s.name, { fenced = true }):acquire { timeout = 10 }
    s.say(lock.fence > last)
    last = lock.fence
    lock:release()
  end
  local lock = s.conn:mutex(s.name):acquire { timeout = 60 }
  s.say(lock.fence)
  lock:release()
  s.conn:mutex(s.name):forget_fence()
end)

row("permits: of a quorum queue have an id", { "true", "true", "permit" }, function(s)
  s.permits(1, "quorum")
  local one = s.conn:token_semaphore(s.name, { queue_type = "quorum", fenced = true }):acquire { timeout = 60 }
  one:release()
  local next_one = s.rival:token_semaphore(s.name, { queue_type = "quorum" }):acquire { timeout = 60 }
  s.say(next_one.fence > one.fence)
  s.say(next_one.permit == one.permit)
  next_one:release()
  s.say(told(s.connect():token_semaphore(s.name):try_acquire()))
end)

row("permits: of a classic queue have none", { "permit nil nil", "conflict" }, function(s)
  s.permits(1)
  local lock = s.connect():token_semaphore(s.name):acquire { timeout = 60 }
  s.say(told(lock) .. " " .. tostring(lock.fence) .. " " .. tostring(lock.permit))
  lock:release()
  s.say(told(s.connect():token_semaphore(s.name, { queue_type = "quorum", fenced = true }):acquire { timeout = 60 }))
end)

-- ---- several --------------------------------------------------------------------------------------------------------

row("several slots: together or not at all", {
  "(slot 1, slot 2)", "busy", "timeout", "slot 3", "true", "deadlock", "limit", "limit",
}, function(s)
  s.slots(3)
  local own, rivals = s.conn:semaphore(s.name), s.rival:semaphore(s.name)
  local locks = own:acquire { count = 2, timeout = 60 }
  s.say(told(locks))
  s.say(told(rivals:acquire { count = 2, timeout = 0 }))
  s.say(told(rivals:acquire { count = 2, timeout = 0.3 }))
  local lock = rivals:acquire { timeout = 60 }
  s.say(told(lock))
  s.say(locks:release())
  s.say(told(rivals:acquire { count = 2, timeout = 1 }))
  lock:release()
  s.say(told(own:acquire { count = 4, timeout = 60 }))
  s.say(told(own:acquire { count = 4, timeout = 0 }))
end)

row("several permits: together or not at all", { "(permit, permit)", "busy", "true", "(permit, permit)", "not_found" },
  function(s)
    s.permits(3)
    local own, rivals = s.conn:token_semaphore(s.name), s.rival:token_semaphore(s.name)
    local locks = own:acquire { count = 2, timeout = 60 }
    s.say(told(locks))
    s.say(told(rivals:acquire { count = 2, timeout = 0 }))
    s.say(locks:release())
    local further = rivals:acquire { count = 2, timeout = 60 }
    s.say(told(further))
    further:release()
    s.say(told(own._connection:token_semaphore(s.name .. "-none"):acquire { count = 2, timeout = 1 }))
  end)

row("several locks: together or not at all", {
  "(write, mutex)", "busy", "timeout", "true", "true", "false", "mutex", "deadlock",
}, function(s)
  local function both(conn) return conn:all { conn:rwlock(s.name):writer(), conn:mutex(s.name) } end
  local locks = both(s.conn):acquire { timeout = 60 }
  s.say(told(locks))
  s.say(told(both(s.rival):try_acquire()))
  s.say(told(both(s.rival):acquire { timeout = 0.3 }))
  s.say(locks:verify())
  s.say(locks:release())
  s.say(locks:held() == true)
  local lock = s.rival:mutex(s.name):acquire { timeout = 60 }
  s.say(told(lock))
  lock:release()
  s.say(told(s.conn:all({ s.conn:mutex(s.name), s.rival:mutex(s.name) }):try_acquire()))
end)

row("a reentrant mutex: entered by its owner", {
  "mutex", "mutex", "busy", "true", "busy", "true", "mutex",
}, function(s)
  local own, rivals = s.conn:mutex(s.name, { reentrant = true }), s.rival:mutex(s.name)
  local outer, inner = own:try_acquire(), own:try_acquire()
  s.say(told(outer))
  s.say(told(inner))
  s.say(told(rivals:try_acquire()))
  s.say(inner:release())
  s.say(told(rivals:try_acquire()))
  s.say(outer:release())
  s.say(told(rivals:acquire { timeout = 60 }))
end)

row("a reentrant mutex: a holder without a token gets none by entering as fenced", {
  "mutex nil", "conflict", "conflict", "mutex nil", "busy", "true", "true", "mutex",
}, function(s)
  local function own(fenced) return s.conn:mutex(s.name, { reentrant = true, fenced = fenced }) end
  local outer = own():acquire { timeout = 60 }
  s.say(told(outer) .. " " .. tostring(outer.fence))
  s.say(told(own(true):acquire { timeout = 60 }))
  s.say(told(s.conn:all { own(true) }:try_acquire()))
  local inner = own():try_acquire()
  s.say(told(inner) .. " " .. tostring(inner.fence))
  s.say(told(s.rival:mutex(s.name):try_acquire()))
  s.say(inner:release())
  s.say(outer:release())
  s.say(told(s.rival:mutex(s.name):acquire { timeout = 60 }))
end)

row("a reentrant mutex: a token is every entry's", { "true", "true", "true", "true" }, function(s)
  local function own(fenced) return s.conn:mutex(s.name, { reentrant = true, fenced = fenced }) end
  local outer = own(true):acquire { timeout = 10 }
  for _, fenced in ipairs { true, false } do
    local inner = own(fenced):try_acquire()
    s.say(inner.fence == outer.fence)
    s.say(inner:release())
  end
  outer:release()
  own(true):forget_fence()
end)

row("an election: over when fn returns", { "true 3", "again 1", "true 4", is_operated = true }, function(s)
  s.say("true " .. select(2, s.conn:elect(s.name, function() return 3 end)))
  local terms = 0
  local _, four = s.conn:elect(s.name, function(lock)
    terms = terms + 1
    if terms == 2 then return 4 end
    s.say("again " .. terms)
    s.lose(lock)
  end)
  s.say("true " .. four)
end)

-- ---- administrators -------------------------------------------------------------------------------------------------

row("slots: created, added, removed, destroyed", {
  "not_found", "not_found", "not_found", "0", "2", "exists", "5", "4", "4", "4", "0", "0", "3", "true", "not_found",
}, function(s)
  local admin = s.conn:admin(s.name)
  for _, call in ipairs {
    { "add", 1 }, { "remove", 1 }, { "repair" }, { "slots" }, { "create", 2 }, { "create", 2 }, { "add", 3 },
    { "remove", 1 }, { "repair" }, { "slots" }, { "remove", 9 }, { "slots" }, { "resize", 3 }, { "destroy" },
    { "destroy" },
  } do
    s.say(told(admin[call[1]](admin, call[2])))
  end
end)

row("slots: removed from their holders", {
  "2", "true false", "true true", "timeout", "removed", "true", "true", "true", "not_found",
}, function(s)
  local admin = s.rival:admin(s.name)
  s.slots(2)
  local own = s.conn:semaphore(s.name)
  local first, second = own:try_acquire(), own:try_acquire()
  first:release()
  local status = admin:status()
  s.say(#status)
  for _, slot in ipairs(status) do s.say(tostring(slot.exists) .. " " .. tostring(slot.held)) end
  s.say(told(admin:remove(1, { wait = 0.3 })))
  s.say(told(second:verify()))
  s.say(second:held())
  s.say(second:release())
  s.say(told(admin:wait_released { 1, 2 }))
  admin:destroy()
  s.say(told(own:try_acquire()))
end)

row("slots and mutexes: asked for", { "not_held", "true", "true", "not_held", "true", "true", "timeout" }, function(s)
  s.slots(1)
  local admin = s.rival:admin(s.name)
  s.say(told(admin:revoke(1)))
  local lock = s.conn:semaphore(s.name):try_acquire()
  s.say(told(admin:revoke(1)))
  lock:verify()
  s.say(lock:revoked())
  lock:release()
  local mutex = s.rival:mutex(s.name)
  s.say(told(mutex:revoke()))
  local held = s.conn:mutex(s.name):try_acquire()
  s.say(told(mutex:revoke()))
  held:verify()
  s.say(held:revoked())
  s.say(told(mutex:revoke { wait = 0.3 }))
  held:release()
end)

row("readers and writers: asked for", { "not_held", "not_held", "true", "true", "not_held", "true", "true", "false" },
  function(s)
    local own, rivals = s.conn:rwlock(s.name), s.rival:rwlock(s.name)
    s.say(told(rivals:revoke_readers()))
    s.say(told(rivals:revoke_writer()))
    local lock = own:try_write()
    s.say(told(rivals:revoke_writer()))
    lock:verify()
    s.say(lock:revoked())
    s.say(told(rivals:revoke_readers()))
    assert(lock:downgrade())
    s.say(told(rivals:revoke_readers()))
    lock:verify()
    s.say(lock:revoked())
    lock:release()
    s.say(s.conn:rwlock(s.name):try_read():revoked())
  end)

row("permits: created, added, removed, destroyed", {
  "not_found", "0", "2", "exists", "5 5 0", "4 4 0", "4 3 1", "busy", "timeout", "true", "not_found",
  "1 1 0", "permit", "true", "not_found", "0",
}, function(s)
  local own = s.conn:token_semaphore(s.name)
  local function slots() s.say(table.concat({ own:slots() }, " ")) end
  s.say(told(own:add(1)))
  s.say((own:slots()))
  s.say(told(own:create(2)))
  s.say(told(own:create(2)))
  own:add(3)
  slots()
  own:remove(1)
  slots()
  local lock = s.rival:token_semaphore(s.name):acquire { timeout = 60 }
  slots()
  s.say(told(own:resize(0)))
  s.say(told(own:resize(0, { wait = 0.3 })))
  s.say(lock:release())
  assert(own:resize(0, { wait = 5 }))
  s.say(told(own:try_acquire()))
  own:resize(1)
  slots()
  local again = own:acquire { timeout = 60 }
  s.say(told(again))
  again:release()
  s.say(told(own:destroy { wait = 5 }))
  s.say(told(own:destroy()))
  s.say((own:slots()))
end)

-- ---- what a call took and gave back is free when it has returned ----------------------------------------------------

for _, case in ipairs(leftovers) do
  row("another client's first call, " .. case.title, { case.code or "true", "busy 0" }, function(s)
    local code, busy = case.run(s)
    s.say(code or "true")
    s.say("busy " .. busy)
  end)
end

-- ---- events and counts ----------------------------------------------------------------------------------------------

row("events: of acquires, waits, failures and ends", {
  "acquired mutex", "failed mutex busy", "waiting mutex", "failed mutex timeout", "released mutex", "acquired read",
  "released read", "1 2 busy=1 timeout=1",
}, function(s)
  local function listen(conn)
    conn:on_event(function(event)
      if event.name ~= s.name then return end
      s.say(event.what .. " " .. event.kind .. (event.code and " " .. event.code or ""))
    end)
  end
  listen(s.conn)
  listen(s.rival)
  local lock = s.conn:mutex(s.name):try_acquire()
  s.rival:mutex(s.name):try_acquire()
  s.rival:mutex(s.name):acquire { timeout = 0.3 }
  lock:release()
  s.conn:rwlock(s.name):try_read():release()
  local stats = s.rival:stats()
  local counts = {}
  for code, count in pairs(stats.failed) do table.insert(counts, code .. "=" .. count) end
  table.sort(counts)
  s.say(stats.acquired + 1 .. " " .. s.conn:stats().acquired .. " " .. table.concat(counts, " "))
end)

return rows
