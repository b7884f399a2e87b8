-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Readers bound to an exchange and counted by one probe.
local broker = require "spec.support.broker"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

-- "present" if a mandatory publish is routed, "absent" if it is returned, "unavailable" if one it goes to is dying.
local function routed(channel, exchange, key)
  local how, returned = scene.publish(channel, { exchange = exchange, routing_key = key, mandatory = true })
  if how == "basic.nack" then return "unavailable" end
  return returned and "absent" or "present"
end

local function reader(exchange, key)
  local channel = scene.channel()
  local name = scene.hold(channel, scene.name())
  assert(channel:call{ method = "queue.bind", queue = name, exchange = exchange, routing_key = key })
  return name, channel
end

describe("readers bound to amq.direct", function ()
  after_each(scene.clear)

  it("are all seen by one probe, from bind-ok of the first to delete-ok of the last", function ()
    local key, prober = scene.name(), scene.channel():confirm()
    assert.equal("absent", routed(prober, "amq.direct", key))
    local first, first_channel = reader("amq.direct", key)
    assert.equal("present", routed(prober, "amq.direct", key))
    assert.equal("absent", routed(prober, "amq.direct", scene.name()))
    local second, second_channel = reader("amq.direct", key)
    assert(first_channel:call{ method = "queue.delete", queue = first })
    assert.equal("present", routed(prober, "amq.direct", key))
    assert(second_channel:call{ method = "queue.delete", queue = second })
    assert.equal("absent", routed(prober, "amq.direct", key))
  end)

  it("cannot lose their exchange: 403", function ()
    local answer, reason = scene.channel():call{ method = "exchange.delete", exchange = "amq.direct" }
    assert.is_nil(answer)
    assert.equal(403, reason.code)
  end)

  -- A writer that finds a random key routed knows that no probe of amq.direct can be believed.
  operated_it("cannot be told from a policy with an alternate exchange", function ()
    local name, prober = scene.name(), scene.channel():confirm()
    local catcher = scene.queue(scene.slot())
    assert(prober:call{ method = "exchange.declare", exchange = name, type = "fanout" })
    scene.undo(function () prober:call{ method = "exchange.delete", exchange = name } end)
    assert(prober:call{ method = "queue.bind", queue = catcher, exchange = name })
    assert.equal("absent", routed(prober, "amq.direct", scene.name()))
    scene.undo(function ()
      broker.suite:clear_policy("/", name)
      until_true(function () return routed(prober, "amq.direct", scene.name()) == "absent" end)
    end)
    local policy = ('{"alternate-exchange":"%s"}'):format(name)
    broker.suite:set_policy("/", name, "^amq\\.direct$", policy, "exchanges")
    until_true(function () return routed(prober, "amq.direct", scene.name()) == "present" end)
  end)
end)

describe("a reader bound to an exchange of our own", function ()
  after_each(scene.clear)

  -- Why amq.direct, which nobody can delete, is used.
  it("is invisible once the exchange was deleted and made again, though its queue is there", function ()
    local exchange, asking = scene.name(), scene.channel():confirm()
    local declare = { method = "exchange.declare", exchange = exchange, type = "fanout" }
    scene.undo(function () asking:call{ method = "exchange.delete", exchange = exchange } end)
    assert(asking:call(declare))
    local queue, channel = reader(exchange, "")
    assert.equal("present", routed(asking, exchange, ""))
    assert(asking:call{ method = "exchange.delete", exchange = exchange })
    assert(asking:call(declare))
    assert.equal("absent", routed(asking, exchange, ""))
    assert.is_table(channel:call{ method = "queue.declare", queue = queue, passive = true })
  end)
end)
