-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Effects of an operator's actions: alarms and permissions.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

after_each(scene.clear)

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

operated_it("a memory alarm stops the broker from reading publishers, until it is over; others work on; a dead "
  .. "publisher's exclusive queue is kept for so long, a dead holder's is not", function ()
  local publisher, dying, holder, asking = scene.connect(), scene.connect(), scene.connect(), scene.connect()
  local channel = publisher:channel()
  local held, kept = scene.hold(channel, scene.name()), scene.hold(dying:channel(), scene.name())
  local freed = scene.hold(holder:channel(), scene.name())
  scene.undo(function () broker.suite:alarm(false) end)
  broker.suite:alarm(true)
  for _, one in ipairs{ publisher, dying } do
    until_true(function ()  -- the alarm reaches the connections a moment after the operator's command is done
      one.channels[1]:publish{ routing_key = held }
      return one:find(function (frame) return frame.method == "connection.blocked" end, 0.05)
    end)
  end
  channel:send{ method = "queue.declare", queue = held, passive = true }
  publisher:flush()
  dying:abort()
  holder:abort()
  until_true(function () return not asking:exists(freed) end)
  others_work()
  assert.is_nil(publisher:find(function (frame) return frame.method == "queue.declare-ok" end, 0))
  assert.is_true(asking:locked(kept))
  broker.suite:alarm(false)
  assert(publisher:await("connection.unblocked"))
  assert.is_table(channel:await("queue.declare-ok"))
  until_true(function () return not asking:exists(kept) end)
end)

-- Brokers up to 4.0 let everybody declare passively; 4.3 asks for the permission to configure.
operated_it("a user with no permission gets 403 for everything but, on older brokers, a passive declare", function ()
  local user, queue, missing = client.unique("user"), scene.queue(), scene.name()
  scene.undo(function () broker.suite:delete_user(user) end)
  broker.suite:add_user(user, "", "", "")
  local nobody = scene.connect{ user = user, password = "password" }
  for _, frame in ipairs{ scene.holder(missing), { method = "queue.delete", queue = queue },
    { method = "queue.delete", queue = missing }, { method = "basic.consume", queue = queue },
    { method = "basic.get", queue = queue }, { method = "queue.bind", queue = queue, exchange = "amq.direct" } } do
    scene.refused(403, nobody:channel(), frame)
  end
  local answer, reason = nobody:probe(missing)
  assert.same({ nil, 403, 60, 40 }, { answer, reason.code, reason.class_id, reason.method_id })
  for name, code in pairs{ [queue] = 0, [missing] = 404 } do
    answer, reason = nobody:channel():call{ method = "queue.declare", queue = name, passive = true }
    assert.truthy(answer and code == 0 or reason.code == code or reason.code == 403)
  end
end)
