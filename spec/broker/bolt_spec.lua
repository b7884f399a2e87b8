-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Clients that die while their declare is on its way. Before RabbitMQ 4.3 the queue of such a client removes the queue
-- that the next client has declared under its name; only the holder of that queue still has it. The bolt, a second
-- queue with an exclusive consumer, still excludes others: a holder whose queue was removed has the lock by the bolt,
-- until it releases the lock, or verifies it at the broker.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

stage.tidy()

local ROUNDS, SECONDS = os.getenv "AMQPLOCKS_SOAK" and 60 or 30, 0.01
local HELD = { ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head" }

-- What a lock of each kind is called, its object, and the queue of its holder.
local KINDS = {
  slot = { name = function() return stage.semaphore(1) end, queue = function(name) return stage.holder(name, 1) end,
    new = function(conn, name) return conn:semaphore(name) end },
}
for _, kind in ipairs{ "mutex", "write", "read" } do
  KINDS[kind] = { name = gate.name, queue = function(name) return gate.queue(kind, name) end,
    new = function(conn, name) return gate.new(conn, kind, name) end }
end

-- Claims a queue, as software without this library may, and is gone before the broker has seen that.
local function die_claiming(queue)
  local one = client.connect()
  local channel = one:channel()
  channel:send{ method = "queue.declare", queue = queue, exclusive = true, auto_delete = true, arguments = HELD }
  channel:send{ method = "basic.consume", queue = queue, no_ack = true }
  one:flush()
  one:abort()
end

-- Takes what may still be held for a moment. RabbitMQ may close the connection as it comes upon what the dead one left.
local function take(kind, name, conn)
  local lock, message, code
  local deadline = socket.gettime() + 60
  repeat
    lock, message, code = KINDS[kind].new(conn, name):try_acquire()
    if code == "unreachable" then conn = stage.connect() end
  until lock or socket.gettime() > deadline
  return assert(lock, message), conn
end

-- Whether nobody got what is held, though they tried for some milliseconds.
local function is_alone(lock, rivals)
  local deadline = socket.gettime() + SECONDS
  repeat
    for _, rival in ipairs(rivals) do
      local second = rival:try_acquire()
      if second and lock:held() then return false end
      if second then second:release() end
    end
  until socket.gettime() > deadline
  return true
end

describe("a client that dies while its claim is on its way", function()
  for kind, rivals in pairs{ slot = { "slot" }, mutex = { "mutex" }, write = { "write", "read" } } do
    it("does not open what the next one holds: " .. kind, function()
      local conn, other, together = stage.connect(), stage.connect(), 0
      for _ = 1, ROUNDS do
        local name, others = KINDS[kind].name(), {}
        local lock
        for i, rival in ipairs(rivals) do others[i] = KINDS[rival].new(other, name) end
        die_claiming(KINDS[kind].queue(name))
        lock, conn = take(kind, name, conn)
        if not is_alone(lock, others) then together = together + 1 end
        lock:release()
      end
      assert.equal(0, together)
    end)
  end
end)

-- ---- holders whose queue was removed --------------------------------------------------------------------------------

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

  local function takes_and_leaves(kind, name)
    local lock = assert(gate.new(other, kind, name):acquire{ timeout = 60 })
    assert.is_true(gate.held(kind, name))
    assert(lock:verify() and lock:release())
  end

  for _, kind in ipairs{ "mutex", "write" } do
    describe("of what is for one, " .. kind .. ",", function ()
      it("is alone, and another process that waits has it, with its own queue, when it lets go", function ()
        local lock, name = robbed(kind)
        assert.is_false(gate.held(kind, name))
        stage.fails("contended", gate.new(other, kind, name):try_acquire())
        if kind == "write" then stage.fails("contended", gate.new(other, "read", name):try_acquire()) end
        assert.is_true(lock:held())
        local waiter = gate.process(kind, name)
        line.join(waiter, nil, true)
        assert(lock:release())
        gate.served(waiter)
        assert.is_true(gate.held(kind, name) and waiter:run "return lock:release()")
      end)

      it("loses it when it asks the broker, would be a reader, or its bolt is deleted, too", function ()
        for _, act in ipairs{ "verify", "downgrade", "delete" } do
          local lock, name = robbed(kind)
          if act == "delete" then
            stage.delete(gate.queue(kind, name) .. "-bolt")
            until_true(function () return not lock:held() end)
            stage.fails("lost", lock:release())
          elseif act == "verify" or kind == "write" then
            stage.fails("lost", lock[act](lock))
            assert.is_false((lock:held()))
          end
          lock:release()
          takes_and_leaves(kind, name)
        end
      end)
    end)
  end

  it("has it as long as its queue is there, when only its bolt is deleted", function ()
    local name = gate.name()
    local lock = gate.take("mutex", name)
    stage.delete(gate.queue("mutex", name) .. "-bolt")
    assert.is_true(lock:verify())
    assert(lock:release())
    takes_and_leaves("mutex", name)
  end)

  it("of a slot keeps nobody from the others, whatever the strategy", function ()
    local lock, name = robbed "slot"
    for _, strategy in ipairs{ "ascending", "last", "random" } do
      local one = assert(other:semaphore(name, { strategy = strategy }):try_acquire())
      assert.is_true(one.slot ~= lock.slot and one:release())
    end
    assert.is_true(lock:held())
  end)

  -- Under a policy that rejects what is published: its bolt's own arguments win.
  it("of a slot is waited for by administrators, and cannot be asked to let go", function ()
    broker.suite:set_policy("/", "rejecting", "[-]bolt$", '{"overflow":"reject-publish","max-length":0}')
    stage.undo(function () broker.suite:clear_policy("/", "rejecting") end)
    local lock, name = robbed "slot"
    local admin = other:admin(name)
    assert.equal("present", stage.client():probe(stage.holder(name, 1) .. "-bolt"))
    stage.times_out(function (seconds) return admin:wait_released({ 1, 2, 3 }, { timeout = seconds }) end,
      function (message) return message:find "slot 1$" end)
    stage.fails("unavailable", admin:revoke(1))
    stage.fails("timeout", admin:revoke(1, { wait = 0.5 }))
    assert.is_true(not lock:revoked() and lock:held())
    assert(lock:release())
    assert.is_true(admin:wait_released({ 1, 2, 3 }, { timeout = 60 }))
    stage.fails("not_held", admin:revoke(1))
  end)

  -- What administrators of it change under its mutex, and what keeps a removal waiting while it is suspended.
  for _, kind in ipairs{
    { name = "semaphore", of = "admin", mutex = "-admin", queue = "-3-A" },
    { name = "token semaphore", of = "token_semaphore", mutex = "-tokenadmin", queue = ".semaphore" },
  } do
    it("of the mutex of a " .. kind.name .. "'s administrators is the only one at work, and is told: lost", function ()
      local name, witness = stage.name(), stage.client()
      local second, first = other[kind.of](other, name), stage.process(name)
      assert.equal(3, second:create(3))
      stage.undo(function () pcall(broker.suite.resume_queue, broker.suite, name .. kind.queue) end)
      for _, loses in ipairs{ false, true } do
        -- The first of two has the mutex, is kept waiting, and is robbed.
        broker.suite:suspend_queue(name .. kind.queue)
        first:begin("return conn:" .. kind.of .. "(...):remove(1, { timeout = 60 })", name)
        until_true(function () return witness:locked(name .. kind.mutex) end)
        broker.suite:rob_queue(name .. kind.mutex)
        if loses then
          stage.delete(name .. kind.mutex .. "-bolt")
          until_true(function () return first:finished() end)
          stage.fails("lost", first:finish())
          broker.suite:resume_queue(name .. kind.queue)
        else
          stage.times_out(function (seconds) return second:add(1, { timeout = seconds }) end,
            function (message) return message:find "another administrator was at work" end)
          assert.is_false(first:finished())
          broker.suite:resume_queue(name .. kind.queue)
          assert.equal(2, first:finish())
          assert.equal(3, second:add(1, { timeout = 60 }))
        end
      end
      assert(second:destroy{ timeout = 60 })
    end)
  end
end)
