-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- An administrator asks for a lock back (revoke). The holder releases it, or does not.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local REVOKE = "amqplocks.revoke"
local operated_it = broker.operated_it(it, pending)

describe("a holder that is asked by a message from whoever", function()
  after_each(stage.clear)
  teardown(stage.check)

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
  after_each(stage.clear)
  teardown(stage.check)

  -- A second process that holds the next free slot.
  local function holder()
    local holding = stage.process(name)
    return holding, holding:run("lock = assert(sem:try_acquire()) return lock.slot")
  end

  -- Has it compute, calling nothing that waits, until it is asked; then it lets go.
  local function obeys(holding)
    holding:begin("while not lock:revoked() do end return lock:held(), lock:release()")
  end

  local function has_obeyed(holding) assert.same({ true, true }, { holding:finish() }) end

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

describe("the example of a long job", function()
  teardown(function()
    local conn = assert(amqplocks.connect())
    conn:admin("long-jobs"):destroy()
    conn:close()
  end)
  after_each(process.clear)

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
