-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What makes an exchange hide readers. (That a policy may tell of readers that are not there, rwlock_spec.lua shows.)
local scene = require "spec.broker.facts.scene"

after_each(scene.clear)

-- Why amq.direct is used.
it("a reader is invisible once its exchange was deleted and made again; nobody can delete amq.direct", function ()
  local exchange, asking = scene.name(), scene.channel():confirm()
  local declare = { method = "exchange.declare", exchange = exchange, type = "fanout" }
  local function is_routed()
    return select(2, scene.publish(asking, { exchange = exchange, mandatory = true })) == nil
  end
  scene.undo(function () asking:call{ method = "exchange.delete", exchange = exchange } end)
  assert(asking:call(declare))
  local channel = scene.channel()
  local queue = scene.hold(channel, scene.name())
  assert(channel:call{ method = "queue.bind", queue = queue, exchange = exchange, routing_key = "" })
  assert.is_true(is_routed())
  assert(asking:call{ method = "exchange.delete", exchange = exchange })
  assert(asking:call(declare))
  assert.is_false(is_routed())
  scene.barrier(channel, queue)
  scene.refused(403, scene.channel(), { method = "exchange.delete", exchange = "amq.direct" })
end)
