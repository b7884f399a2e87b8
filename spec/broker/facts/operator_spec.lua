-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Effects of an operator's actions: alarms, permissions, and refused connections.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

-- A channel, a queue held on it, and a function to call under an alarm: it publishes until the broker says "blocked".
local function blocked_publisher()
  local publisher = scene.connect()
  local channel = publisher:channel()
  local held = scene.hold(channel, scene.name())
  return channel, held, function ()
    until_true(function ()  -- the alarm reaches the connections a moment after the operator's command is done
      channel:publish{ routing_key = held }
      return publisher:find(function (frame) return frame.method == "connection.blocked" end, 0.05)
    end)
  end
end

local function memory_alarm()
  local function over()
    broker.suite:alarm(false)
    local asking = assert(client.connect())
    assert.equal("absent", asking:probe(scene.name()))  -- published, so no alarm
    asking:close()
  end
  scene.undo(over)
  broker.suite:alarm(true)
  return over
end

-- A dozen whole lives of a lock on connections that do not publish: enough for anything that was going to happen.
local function others_work()
  local holder, other, name = scene.channel(), scene.connect(), scene.name()
  for _ = 1, 12 do
    scene.hold(holder, name)
    assert.is_true(other:locked(name))
    assert(holder:call{ method = "queue.delete", queue = name })
    assert.is_false(other:exists(name))
  end
end

describe("a memory alarm", function ()
  after_each(scene.clear)

  operated_it("stops the broker from reading whoever publishes, until it is over; others work on", function ()
    local channel, held, be_blocked = blocked_publisher()
    local publisher = channel.client
    local over = memory_alarm()
    be_blocked()
    channel:send{ method = "queue.declare", queue = held, passive = true }
    publisher:flush()
    others_work()
    assert.is_nil(publisher:find(function (frame) return frame.method == "queue.declare-ok" end, 0))
    over()
    assert(publisher:await("connection.unblocked"))
    assert.is_table(channel:await("queue.declare-ok"))
  end)

  operated_it("keeps a dead publisher's exclusive queue until it is over, but not a dead holder's", function ()
    local channel, kept, be_blocked = blocked_publisher()
    local holder, asking = scene.connect(), scene.connect()
    local freed = scene.hold(holder:channel(), scene.name())
    local over = memory_alarm()
    be_blocked()
    channel.client:abort()
    holder:abort()
    until_true(function () return not asking:exists(freed) end)
    others_work()
    assert.is_true(asking:locked(kept))
    over()
    until_true(function () return not asking:exists(kept) end)
  end)
end)

describe("a user", function ()
  after_each(scene.clear)

  local function user(configure, write, read)
    local name = client.unique("user")
    scene.undo(function () broker.suite:delete_user(name) end)
    broker.suite:add_user(name, configure, write, read)
    return { user = name, password = "password" }
  end

  local function refused(connection, frame)
    local answer, reason = connection:channel():call(frame)
    assert.is_nil(answer)
    assert.is_nil(reason.connection)
    return reason.code
  end

  -- Brokers up to 4.0 let everybody declare passively; 4.3 asks for the permission to configure.
  operated_it("with no permission at all gets 403 for everything but, on older brokers, a passive declare", function ()
    local nobody, queue, missing = scene.connect(user("", "", "")), scene.queue(), scene.name()
    assert.equal(403, refused(nobody, scene.holder(missing)))
    assert.equal(403, refused(nobody, { method = "queue.delete", queue = queue }))
    assert.equal(403, refused(nobody, { method = "queue.delete", queue = missing }))
    assert.equal(403, refused(nobody, { method = "basic.consume", queue = queue }))
    assert.equal(403, refused(nobody, { method = "basic.get", queue = queue }))
    assert.equal(403, refused(nobody, { method = "queue.bind", queue = queue, exchange = "amq.direct" }))
    local answer, reason = nobody:probe(missing)
    assert.is_nil(answer)
    assert.same({ 403, 60, 40 }, { reason.code, reason.class_id, reason.method_id })
    local declared, refusal = nobody:channel():call{ method = "queue.declare", queue = queue, passive = true }
    assert.truthy(declared or refusal.code == 403)
    declared, refusal = nobody:channel():call{ method = "queue.declare", queue = missing, passive = true }
    assert.is_nil(declared)
    assert.truthy(refusal.code == 404 or refusal.code == 403)
  end)

  operated_it("with configure alone declares and deletes a holder queue, which a refused consume leaves", function ()
    local connection, name, other = scene.connect(user(".*", "", "")), scene.name(), scene.connect()
    local channel = connection:channel()
    assert(channel:call(scene.holder(name)))
    local answer, reason = channel:call{ method = "basic.consume", queue = name, no_ack = true }
    assert.is_nil(answer)
    assert.same({ 403, 60, 20 }, { reason.code, reason.class_id, reason.method_id })
    assert.is_true(other:locked(name))
    assert.is_table(connection:delete(name))
    assert.is_false(other:exists(name))
  end)

  operated_it("with configure and read holds locks, and with write on amq.default alone probes", function ()
    local holder = scene.connect(user(".*", "", ".*"))
    local prober = scene.connect(user("", "^amq\\.default$", ""))
    local name = scene.hold(holder:channel(), scene.name())
    assert.equal("present", prober:probe(name))
    assert(holder:delete(name))
    assert.equal("absent", prober:probe(name))
  end)
end)
