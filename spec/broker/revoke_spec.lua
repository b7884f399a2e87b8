-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- An administrator asks for a lock back (revoke). The holder releases it, or does not. First slots, then mutexes,
-- readers and writers.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local REVOKE = "amqplocks.revoke"
local operated_it = broker.operated_it(it, pending)

after_each(stage.clear)
teardown(stage.check)

-- Has a process compute, calling nothing that waits, until it is asked; then it releases.
local function obeys(one) one:begin("while not lock:revoked() do end return lock:held(), lock:release()") end
local function has_obeyed(one) assert.same({ true, true }, { one:finish() }) end

describe("a holder that is asked by a message from whoever", function()
  it("knows it without calling anything that waits, and holds on", function()
    local name = stage.semaphore(2)
    local sem = stage.connect():semaphore(name)
    local lock, other = stage.take(sem), stage.take(sem)
    local asking = stage.client()
    for _ = 1, 10 do assert.equal("present", asking:probe(stage.holder(name, 1))) end
    assert.equal("present", asking:probe(stage.holder(name, 1), { type = "amqplocks.token" }))
    assert.equal("present", asking:probe(stage.holder(name, 2), { type = REVOKE }))
    until_true(function() return other:revoked() end)
    assert.is_true(lock:verify()) -- its answer comes behind what the queue had for it
    assert.is_false(lock:revoked())
    assert.is_true(other:held() and other:verify() and stage.held(name, 2))
    assert.equal("present", asking:probe(stage.holder(name, 1), { type = REVOKE, delivery_mode = 2 }))
    until_true(function() return lock:revoked() end)
    assert.is_true(lock:release() and other:release())
    assert.is_true(lock:revoked() and other:revoked())
  end)

  it("is told nothing that was meant for the holder before it", function()
    local name = stage.semaphore(1)
    local conn, asking = stage.connect(), stage.client()
    assert.equal("absent", asking:probe(stage.holder(name, 1), { type = REVOKE }))
    local first = stage.take(conn:semaphore(name))
    assert.equal("present", asking:probe(stage.holder(name, 1), { type = REVOKE }))
    until_true(function() return first:revoked() end)
    assert.is_true(first:release())
    local second = stage.take(stage.connect():semaphore(name))
    assert.is_true(second:verify())
    assert.is_false(second:revoked())
  end)
end)

describe("an administrator", function()
  local name, conn, admin

  before_each(function()
    name = stage.semaphore(3)
    conn = stage.connect()
    admin = conn:admin(name)
  end)

  -- A second process that holds the next free slot.
  local function holder()
    local holding = stage.process(name)
    return holding, holding:run("lock = assert(sem:try_acquire()) return lock.slot")
  end

  -- The type and the body of the next message to a slot held by hand.
  local function request(occupant)
    local message = assert(occupant.channel:await "basic.deliver")
    return message.properties.type, message.body
  end

  describe("who asks for a slot back", function()
    it("is told that its holder was asked, which it then is, and nobody else", function()
      local holding, bystander = holder(), holder()
      assert.is_true(admin:revoke(1))
      obeys(holding)
      has_obeyed(holding)
      assert.is_true(stage.free(name, 1))
      assert.is_true(bystander:run("return lock:verify() and not lock:revoked()"))
      assert.is_true(stage.held(name, 2))
    end)

    it("waits until the holder has let go, as long as the call or the admin's own options say", function()
      for _, ask in ipairs{ function() return admin:revoke(1, { wait = 20 }) end,
        function() return conn:admin(name, { wait = 20 }):revoke(1) end } do
        local holding = holder()
        obeys(holding)
        assert.is_true(ask())
        assert.is_true(stage.free(name, 1))
        has_obeyed(holding)
      end
    end)

    it("is told who does not let go, and takes nothing away", function()
      local holding = holder()
      local message, seconds = stage.times_out(function(seconds) return admin:revoke(1, { wait = seconds }) end,
        function(why) return why:find("; its holder was asked to release it", 1, true) end)
      assert.matches(('still held in "%s" after %g s: slot 1;'):format(name, seconds), message, 1, true)
      local held, verified, revoked = holding:run("return lock:held(), lock:verify(), lock:revoked()")
      assert.is_true(held and verified and revoked)
      assert.is_true(stage.held(name, 1))
    end)

    it("finds nobody: slots that are free, gone, or never were", function()
      assert.equal(2, admin:remove(1))
      for _, slot in ipairs{ 1, 3, 4, 65535 } do
        assert.matches(("slot %d of"):format(slot), stage.fails("not_held", admin:revoke(slot)), 1, true)
        assert.is_true(admin:revoke(slot, { wait = 10 }))
      end
      stage.fails("not_held", conn:admin(stage.name()):revoke(1))
    end)

    it("can ask who holds a slot that is no more", function()
      local _, _, holding = holder(), holder(), (holder())
      assert.equal(2, admin:remove(1))
      obeys(holding)
      assert.is_true(admin:revoke(3, { wait = 20 }))
      assert.is_true(stage.free(name, 3))
      has_obeyed(holding)
    end)

    it("sees the slot come free when its holder is killed between two looks", function()
      local occupant = stage.occupy(name, 1)
      local asking = stage.process(name)
      asking:begin("return conn:admin(...):revoke(1, { wait = 20 })", name)
      assert.equal(REVOKE, (request(occupant)))
      occupant.channel.client:abort()
      assert.is_true(asking:finish())
      assert.is_true(stage.free(name, 1))
    end)

    it("is seen by a holder that is other software: a message by its type, again and again", function()
      local occupant = stage.occupy(name, 1)
      assert.is_true(admin:revoke(1))
      assert.same({ REVOKE, "" }, { request(occupant) })
      local asking = stage.process(name)
      asking:begin("return conn:admin(...):revoke(1, { wait = 20 })", name)
      for _ = 1, 3 do assert.equal(REVOKE, (request(occupant))) end
      occupant:release()
      assert.is_true(asking:finish())
    end)

    it("is told of its mistakes", function()
      local function throws(part, ...)
        local fine, message = pcall(admin.revoke, admin, ...)
        assert.is_false(fine)
        assert.matches(part, message, 1, true)
      end
      for _, bad in ipairs{ 0, -1, 1.5, 65536, 0 / 0, math.huge, "1", true, {} } do throws("revoke: the slot", bad) end
      throws "revoke: the slot"
    end)
  end)

  describe("who removes slots", function()
    local function everybody() return holder(), holder(), (holder()) end

    it("asks their holders once", function()
      local first, second, third = everybody()
      assert.equal(1, admin:remove(2, { revoke = true }))
      obeys(second)
      obeys(third)
      has_obeyed(second)
      has_obeyed(third)
      assert.is_true(stage.free(name, 2) and stage.free(name, 3))
      assert.is_true(first:run("return lock:verify() and not lock:revoked()"))
    end)

    for action, act in pairs{
      remove = function() return admin:remove(2, { revoke = true, wait = 20 }) end,
      resize = function() return admin:resize(1, { revoke = true, wait = 20 }) end,
    } do
      it("waits until they have let go: " .. action, function()
        local first, second, third = everybody()
        obeys(second)
        obeys(third)
        assert.equal(1, act())
        assert.is_true(stage.free(name, 2) and stage.free(name, 3) and stage.held(name, 1))
        has_obeyed(second)
        has_obeyed(third)
        assert.is_true(first:run("return lock:verify() and not lock:revoked()"))
      end)
    end

    it("asks them all: destroy", function()
      local first, second, third = everybody()
      for _, one in ipairs{ first, second, third } do obeys(one) end
      assert.is_true(admin:destroy{ revoke = true, wait = 20 })
      for i = 1, 3 do assert.is_true(stage.free(name, i)) end
      for _, one in ipairs{ first, second, third } do has_obeyed(one) end
    end)

    it("is told who does not care, when the slots are removed", function()
      local _, second, _ = everybody()
      obeys(second)
      local message, seconds = stage.times_out(function(seconds)
        assert.equal(3, admin:resize(3))
        return admin:remove(2, { revoke = true, wait = seconds })
      end, function(why) return why:find("s: slot 3; holders were asked to release them;", 1, true) end)
      assert.matches(("after %g s: "):format(seconds), message, 1, true)
      assert.matches("; the slots to remove are removed", message, 1, true)
      has_obeyed(second)
      assert.equal(1, admin:slots())
      assert.is_true(stage.held(name, 3))
    end)

    it("asks nobody where nobody holds", function()
      assert.equal(1, admin:remove(2, { revoke = true }))
      assert.is_true(admin:destroy{ revoke = true, wait = 20 })
    end)

    it("may leave the asking to wait_released", function()
      local _, second, _ = everybody()
      assert.equal(1, admin:remove(2))
      obeys(second)
      stage.times_out(function(seconds) return admin:wait_released({ 2, 3 }, { revoke = true, timeout = seconds }) end,
        function(message) return message:find("s: slot 3; holders were asked", 1, true) end)
      has_obeyed(second)
    end)
  end)

  operated_it("without the permission to publish is refused, asks nobody, and may when it is permitted", function()
    local user = client.unique "user"
    local theirs = stage.connect(broker.suite:add_user(user, ".*", "", ".*")):admin(name)
    stage.undo(function() broker.suite:delete_user(user) end)
    local lock = stage.take(conn:semaphore(name))
    for _ = 1, 2 do
      assert.matches(name, stage.fails("refused", theirs:revoke(1)), 1, true)
      stage.fails("refused", theirs:revoke(1, { wait = 20 }))
    end
    assert.equal(3, theirs:slots()) -- asked by other means
    assert.is_false(lock:revoked())
    broker.suite:permit(user, ".*", ".*", ".*")
    until_true(function() return theirs:revoke(1) end) -- the broker's channels remember for a moment
    until_true(function() return lock:revoked() end)
  end)

  operated_it("under a memory alarm cannot ask, sees who lets go, and asks when it is over", function()
    local first, second = stage.take(conn:semaphore(name)), stage.take(conn:semaphore(name))
    assert.equal(3, admin:slots()) -- the connection that asks has published
    stage.alarm("memory", conn)
    local message = stage.fails("blocked", admin:revoke(1))
    assert.matches("memory or disk alarm", message, 1, true)
    message = stage.times_out(function(seconds) return admin:revoke(2, { wait = seconds }) end,
      function(why) return why:find("slot 2; no holder is known to have been asked", 1, true) end)
    assert.matches("memory or disk alarm", message, 1, true)
    stage.fails("not_held", admin:revoke(3))
    assert.is_true(first:release())
    assert.is_true(admin:revoke(1, { wait = 20 }))
    assert.is_true(second:held())
    broker.suite:alarm(false)
    until_true(function() return admin:revoke(2) end)
    until_true(function() return second:revoked() end)
  end)
end)

local WORDS = {
  mutex = { not_held = 'mutex "%s" is not held', held = 'mutex "%s" is still held after ', whom = "its holder was" },
  read = { not_held = 'nobody reads "%s"', held = '"%s" has readers still after ', whom = "its readers were" },
  write = { not_held = 'nobody writes "%s"', held = '"%s" has a writer still after ', whom = "its writer was" },
}

local function revoke(conn, kind, name, options)
  if kind == "mutex" then return conn:mutex(name):revoke(options) end
  local rwlock = conn:rwlock(name)
  if kind == "read" then return rwlock:revoke_readers(options) end
  return rwlock:revoke_writer(options)
end

for _, kind in ipairs{ "mutex", "read", "write" } do
  describe("revoking, kind " .. kind .. ":", function()
    local name, conn, words

    before_each(function()
      name, conn, words = gate.name(), stage.connect(), WORDS[kind]
    end)

    it("asks the holder, which then knows it, and holds on until it releases", function()
      local one = gate.holder(kind, name)
      assert.is_true(revoke(conn, kind, name))
      local held, verified = one:run("while not lock:revoked() do end return lock:held(), lock:verify()")
      assert.is_true(held and verified and gate.held(kind, name))
      assert.is_true(one:run("return lock:release() and lock:revoked()"))
      gate.until_free(kind, name)
    end)

    it("waits until the holder has released, having computed", function()
      local one = gate.holder(kind, name)
      obeys(one)
      assert.is_true(revoke(conn, kind, name, { wait = 30 }))
      assert.is_false(gate.held(kind, name))
      has_obeyed(one)
    end)

    it("tells who does not release, and takes nothing away", function()
      local one = gate.holder(kind, name)
      local message = stage.times_out(function(seconds) return revoke(conn, kind, name, { wait = seconds }) end,
        function(why) return why:find(words.whom, 1, true) end)
      assert.matches("^timeout: " .. words.held:format(name):gsub("%p", "%%%0"), message)
      assert.matches("; " .. words.whom .. " asked to release it", message, 1, true)
      assert.is_true(one:run("return lock:held() and lock:verify()"))
    end)

    it("finds nobody", function()
      local message = stage.fails("not_held", revoke(conn, kind, name))
      assert.equal("not_held: " .. words.not_held:format(name), message)
      assert.is_true(revoke(conn, kind, name, { wait = 10 }))
      local other = kind == "write" and "read" or kind == "read" and "write" or nil
      local lock = other and gate.take(other, name)
      stage.fails("not_held", revoke(conn, kind, name))
      if lock then assert.is_false(lock:revoked()) end
      if lock then assert(lock:release()) end
    end)

    it("is one message of that type, empty, that expires at once", function()
      local held = gate.occupy(kind, name)
      assert.is_true(revoke(conn, kind, name))
      local message
      repeat message = assert(held:asked(20)) until message.properties.type == REVOKE
      assert.equal("0", message.properties.expiration)
      assert.equal("", message.body)
      held:release()
    end)

    operated_it("in an alarm tells that nobody can be asked", function()
      local lock = gate.take(kind, name, nil, conn)
      stage.alarm("memory", conn)
      stage.fails("blocked", revoke(conn, kind, name))
      broker.suite:alarm(false, "memory")
      assert.is_true(lock:release())
    end)
  end)
end

describe("revoking", function()
  it("reaches all readers, and the writer that waits for them has its turn", function()
    local name, readers = gate.name(), {}
    for i = 1, 3 do readers[i] = gate.holder("read", name) end
    local writing = gate.process("write", name)
    writing:begin("lock = assert(sem:acquire{ timeout = 60 }) return lock:verify()")
    gate.until_held("write", name)
    for _, one in ipairs(readers) do obeys(one) end
    assert.is_true(stage.connect():rwlock(name):revoke_readers{ wait = 30 })
    for _, one in ipairs(readers) do has_obeyed(one) end
    assert.is_true(writing:finish())
    assert.is_false(writing:run("return lock:revoked()"))
    assert.is_true(writing:run("return lock:release()"))
  end)

  it("reaches a writer that waits for readers, which knows it when it writes", function()
    local name = gate.name()
    local reading, writing = gate.take("read", name), gate.process("write", name)
    writing:begin("lock = assert(sem:acquire{ timeout = 60 }) return lock:revoked(), lock:release()")
    gate.until_held("write", name)
    assert.is_true(stage.connect():rwlock(name):revoke_writer())
    assert.is_false(reading:revoked())
    assert.is_true(reading:release())
    assert.same({ true, true }, { writing:finish() })
  end)

  it("a writer that becomes a reader has not asked the reader", function()
    local name, conn = gate.name(), stage.connect()
    local lock = gate.take("write", name, nil, conn)
    assert.is_true(conn:rwlock(name):revoke_writer())
    until_true(function() return lock:revoked() end)
    assert.is_true(lock:downgrade())
    assert.is_false(lock:revoked())
    assert.is_true(conn:rwlock(name):revoke_readers())
    until_true(function() return lock:revoked() end)
    assert.is_true(lock:release())
  end)

  it("a mutex asks no holder of another lock of its name", function()
    local name = stage.semaphore(1)
    local slot, reader = stage.take(stage.connect():semaphore(name)), gate.take("read", name)
    stage.fails("not_held", stage.connect():mutex(name):revoke())
    assert.is_true(slot:verify() and reader:verify())
    assert.is_false(slot:revoked() or reader:revoked())
    assert.is_true(reader:release())
  end)

  operated_it("readers where an alternate exchange hides them says so", function()
    local name, url, vhost = client.unique "lock", gate.catching()
    gate.catch(vhost)
    local rwlock = stage.connect(url):rwlock(name)
    for _, options in ipairs{ {}, { wait = 20 } } do
      until_true(function()
        local _, message, code = rwlock:revoke_readers(options)
        return code == "conflict" and message:find("alternate-exchange", 1, true), message
      end)
    end
  end)
end)

describe("the example of a long job", function()
  teardown(function()
    local conn = assert(amqplocks.connect())
    conn:admin("long-jobs"):destroy()
    conn:close()
  end)

  local RUN = [[
    local pipe = assert(io.popen("exec " .. os.getenv "LUA" .. " examples/revoke.lua " .. ... .. " 2>&1"))
    return pipe:read "*a"
  ]]

  it("lets go when it is asked, and otherwise comes to its end", function()
    assert.equal("working, in slot 1\nall done\n", process.start():run(RUN, "work 1"))
    local working = process.start():begin(RUN, "work")
    local looking = assert(client.connect())
    until_true(function() return looking:locked "long-jobs-1-B" end)
    looking:close()
    assert.equal("slot 1 is free\n", process.start():run(RUN, "ask 1"))
    assert.matches("^working, in slot 1\nasked to let go after %d+ steps\n$", working:finish())
  end)
end)
