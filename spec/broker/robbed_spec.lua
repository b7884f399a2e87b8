-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Holders whose queue was removed by the end of another queue, as happens before RabbitMQ 4.3 (see bolt_spec beside
-- this). They hold the lock by its bolt, until they release it, or verify it at the broker.

local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

after_each(stage.clear)
teardown(stage.check)

local function needs_bolts()
  local one = assert(client.connect())
  local is_later = one:since(4, 3)
  one:close()
  return not is_later
end

local robbed_describe = broker.suite and needs_bolts() and describe or pending

robbed_describe("a holder who was robbed", function ()
  local other

  before_each(function () other = stage.connect() end)

  -- A lock, whose queue is gone, and its name.
  local function robbed(kind)
    local name = kind == "slot" and stage.semaphore(3) or gate.name()
    local conn = stage.connect()
    local object = kind == "slot" and conn:semaphore(name) or gate.new(conn, kind, name)
    local lock = assert(object:try_acquire())
    local queue = kind == "slot" and stage.holder(name, lock.slot) or gate.queue(kind, name)
    broker.suite:rob_queue(queue)
    assert.is_true(lock:held())
    return lock, name
  end

  for _, kind in ipairs{ "mutex", "write" } do
    describe("of what is for one, " .. kind .. ",", function ()
      it("is alone, and has a successor when it lets go, who has its own queue", function ()
        local lock, name = robbed(kind)
        assert.is_false(gate.held(kind, name))
        stage.fails("contended", gate.new(other, kind, name):try_acquire())
        assert.is_true(lock:held())
        assert(lock:release())
        local next_lock = assert(gate.new(other, kind, name):try_acquire())
        assert.is_true(gate.held(kind, name))
        assert(next_lock:verify())
        assert(next_lock:release())
      end)

      it("lets another process in that waits, when it lets go", function ()
        local lock, name = robbed(kind)
        local waiter = gate.process(kind, name)
        line.join(waiter, nil, true)
        assert(lock:release())
        gate.served(waiter)
        assert.is_true(waiter:run "return lock:release()")
      end)

      it("loses it when it asks the broker", function ()
        local lock, name = robbed(kind)
        stage.fails("lost", lock:verify())
        assert.is_false((lock:held()))
        assert(assert(gate.new(other, kind, name):acquire{ timeout = 10 }):release())
      end)

      it("loses it when its bolt is deleted, too", function ()
        local lock, name = robbed(kind)
        stage.delete(gate.queue(kind, name) .. "-bolt")
        until_true(function () return not lock:held() end)
        stage.fails("lost", lock:release())
        assert(assert(gate.new(other, kind, name):acquire{ timeout = 10 }):release())
      end)
    end)
  end

  it("has it as long as its queue is there, when only its bolt is deleted", function ()
    local name = gate.name()
    local lock = gate.take("mutex", name)
    stage.delete(gate.queue("mutex", name) .. "-bolt")
    assert.is_true(lock:verify())
    assert(lock:release())
    assert(assert(gate.new(other, "mutex", name):try_acquire()):release())
  end)

  it("of the door keeps readers out", function ()
    local lock, name = robbed "write"
    stage.fails("contended", gate.new(other, "read", name):try_acquire())
    assert(lock:release())
    assert(assert(gate.new(other, "read", name):acquire{ timeout = 10 }):release())
  end)

  it("of the door does not become a reader", function ()
    local lock, name = robbed "write"
    stage.fails("lost", lock:downgrade())
    assert.is_false((lock:held()))
    assert(assert(gate.new(other, "write", name):acquire{ timeout = 10 }):release())
  end)

  for _, strategy in ipairs{ "ascending", "last", "random" } do
    it("of a slot keeps nobody from the others, whose strategy is " .. strategy, function ()
      local lock, name = robbed "slot"
      local semaphore, slots = other:semaphore(name, { strategy = strategy }), {}
      for i = 1, 2 do
        local one = assert(semaphore:try_acquire())
        slots[one.slot] = one
        if i == 1 then assert(one:release()) end
      end
      assert.is_nil(slots[lock.slot])
      assert.is_true(lock:held())
    end)
  end

  it("of a slot is waited for by administrators, and cannot be asked to let go", function ()
    local lock, name = robbed "slot"
    local admin = other:admin(name)
    stage.times_out(function (seconds) return admin:wait_released({ 1, 2, 3 }, { timeout = seconds }) end,
      function (message) return message:find "slot 1$" end)
    stage.fails("unavailable", admin:revoke(1))
    stage.fails("timeout", admin:revoke(1, { wait = 0.5 }))
    assert.is_false(lock:revoked())
    assert.is_true(lock:held())
    assert(lock:release())
    assert.is_true(admin:wait_released({ 1, 2, 3 }, { timeout = 10 }))
    stage.fails("not_held", admin:revoke(1))
  end)

  it("of a slot is waited for under a policy that rejects what is published: its bolt's own arguments win", function ()
    broker.suite:set_policy("/", "rejecting", "[-]bolt$", '{"overflow":"reject-publish","max-length":0}')
    stage.undo(function () broker.suite:clear_policy("/", "rejecting") end)
    local lock, name = robbed "slot"
    local admin = other:admin(name)
    assert.equal("present", stage.client():probe(stage.holder(name, 1) .. "-bolt"))
    stage.times_out(function (seconds) return admin:wait_released({ 1 }, { timeout = seconds }) end,
      function (message) return message:find "slot 1$" end)
    assert(lock:release())
    assert.is_true(admin:wait_released({ 1 }, { timeout = 10 }))
  end)

  -- What administrators of it change under its mutex, and what keeps a removal waiting while it is suspended.
  local administered = {
    { name = "semaphore", of = "admin", mutex = "-admin", queue = "-3-A" },
    { name = "token semaphore", of = "token_semaphore", mutex = "-tokenadmin", queue = ".semaphore" },
  }
  for _, kind in ipairs(administered) do
    describe("of the mutex of a " .. kind.name .. "'s administrators", function ()
      local name, first, second

      -- The first of two has the mutex, is kept waiting, and is robbed.
      before_each(function ()
        name = stage.name()
        second, first = other[kind.of](other, name), stage.process(name)
        assert.equal(3, second:create(3))
        broker.suite:suspend_queue(name .. kind.queue)
        stage.undo(function () pcall(broker.suite.resume_queue, broker.suite, name .. kind.queue) end)
        first:begin("return conn:" .. kind.of .. "(...):remove(1, { timeout = 60 })", name)
        local witness = stage.client()
        until_true(function () return witness:locked(name .. kind.mutex) end)
        broker.suite:rob_queue(name .. kind.mutex)
      end)

      it("is the only one at work", function ()
        stage.times_out(function (seconds) return second:add(1, { timeout = seconds }) end,
          function (message) return message:find "another administrator was at work" end)
        assert.is_false(first:finished())
        broker.suite:resume_queue(name .. kind.queue)
        assert.equal(2, first:finish())
        assert.equal(3, second:add(1, { timeout = 10 }))
        assert(second:destroy())
      end)

      it("is told when its bolt is deleted, too: lost", function ()
        stage.delete(name .. kind.mutex .. "-bolt")
        until_true(function () return first:finished() end)
        stage.fails("lost", first:finish())
        broker.suite:resume_queue(name .. kind.queue)
        assert(second:destroy{ timeout = 10 })
      end)
    end)
  end
end)
