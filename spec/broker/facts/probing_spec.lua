-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- How the broker handles a probe, how the probed queue handles it, and the effect of an expiration of zero.
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local function probe_of(name, id)
  return { routing_key = name, mandatory = true, properties = { delivery_mode = 1, message_id = id } }
end

-- Settles a pipeline. Gives, for each number, how it was confirmed, and for each message id after how many confirms it
-- was returned.
local function settle(channel, count)
  local confirmed, returned, open = {}, {}, count
  while open > 0 do
    local frame = assert(channel:next())
    if frame.method == "basic.return" then
      returned[frame.properties.message_id] = count - open
    else
      for number = frame.multiple and 1 or frame.delivery_tag, frame.delivery_tag do
        if not confirmed[number] then
          confirmed[number], open = { how = frame.method, after = count - open }, open - 1
        else
          assert.is_true(frame.multiple, "confirmed twice")
        end
      end
    end
  end
  return confirmed, returned
end

describe("a probe", function ()
  after_each(scene.clear)

  it("of a queue is acked; of no queue it is returned with its message id, then acked", function ()
    local name, channel = scene.queue(), scene.channel():confirm()
    local how, returned = scene.publish(channel, probe_of(name, "16"))
    assert.same({ "basic.ack" }, { how, returned })
    name = scene.name()
    how, returned = scene.publish(channel, probe_of(name, "17"))
    assert.equal("basic.ack", how)
    assert.equal(312, returned.reply_code)
    assert.equal(name, returned.routing_key)
    assert.equal("17", returned.properties.message_id)
    assert.equal("absent", scene.connect():probe(name))
  end)

  it("is answered once among two thousand in a pipeline, and a return comes before its ack", function ()
    local present, absent, channel = scene.queue(scene.slot()), scene.name(), scene.channel():confirm()
    for id = 1, 2000 do channel:publish(probe_of(id % 3 == 0 and absent or present, tostring(id))) end
    local confirmed, returned = settle(channel, 2000)
    for id = 1, 2000 do
      assert.equal("basic.ack", confirmed[id].how)
      local after = returned[tostring(id)]
      assert.equal(id % 3 == 0, after ~= nil)
      assert.is_true(not after or after <= confirmed[id].after)
    end
    assert.is_true(channel:silent())
  end)

  it("through a fanout exchange is returned while nothing is bound to it, before and after", function ()
    local exchange, channel = scene.name(), scene.channel():confirm()
    local probe = { exchange = exchange, mandatory = true }
    assert(channel:call{ method = "exchange.declare", exchange = exchange, type = "fanout" })
    scene.undo(function () channel:call{ method = "exchange.delete", exchange = exchange } end)
    assert.equal("NO_ROUTE", select(2, scene.publish(channel, probe)).reply_text)
    local queue = scene.queue()
    assert(channel:call{ method = "queue.bind", queue = queue, exchange = exchange })
    assert.is_nil(select(2, scene.publish(channel, probe)))
    assert(channel:call{ method = "queue.delete", queue = queue })
    assert.equal("NO_ROUTE", select(2, scene.publish(channel, probe)).reply_text)
  end)
end)

for _, queue_type in ipairs{ "classic", "quorum" } do
  describe("a " .. queue_type .. " queue of length zero that drops its head", function ()
    after_each(scene.clear)

    it("acks a probe and keeps nothing", function ()
      local name, asking = scene.queue(scene.slot(queue_type)), scene.connect()
      for _ = 1, 20 do assert.equal("present", asking:probe(name)) end
      until_true(function () return asking:message_count(name) == 0 end)
      assert.equal("basic.get-empty", asking:channel():call{ method = "basic.get", queue = name, no_ack = true }.method)
    end)

    it("delivers every message to a consumer without acknowledgements", function ()
      local name, consumer, asking = scene.queue(scene.slot(queue_type)), scene.channel(), scene.connect()
      assert(consumer:call{ method = "basic.consume", queue = name, no_ack = true })
      for id = 1, 20 do
        assert.equal("present", asking:probe(name, { message_id = tostring(id) }))
        assert.equal(tostring(id), assert(consumer:await("basic.deliver")).properties.message_id)
      end
    end)
  end)
end

describe("a queue of length zero that rejects", function ()
  after_each(scene.clear)

  it("nacks a probe, and its consumer never gets it", function ()
    local name, consumer = scene.queue(scene.slot("classic", "reject-publish")), scene.channel()
    assert(consumer:call{ method = "basic.consume", queue = name, no_ack = true })
    local asking = scene.connect()
    for _ = 1, 5 do assert.equal("unavailable", asking:probe(name)) end
    scene.barrier(consumer, name)
    assert.is_true(consumer:silent())
  end)
end)

describe("a holder queue", function ()
  after_each(scene.clear)

  -- Why it is consumed without acknowledgements.
  it("consumed with prefetch 1 confirms and loses what follows an unacknowledged probe", function ()
    local holder, name, prober = scene.channel(), scene.name(), scene.connect()
    assert(holder:call(scene.holder(name)))
    scene.wait_for_token(holder, name)
    assert.equal("present", prober:probe(name, { message_id = "a foreign probe" }))
    local delivery = assert(holder:await("basic.deliver"))
    assert.equal("present", prober:probe(name, { message_id = "a request" }))
    holder:send{ method = "basic.ack", delivery_tag = delivery.delivery_tag }
    scene.barrier(holder, name)
    assert.is_true(holder:silent())
  end)
end)

describe("a probe that expires at once", function ()
  after_each(scene.clear)
  local EXPIRED = { delivery_mode = 1, expiration = "0" }

  local shapes = {
    ["a plain durable queue"] = { durable = true },
    ["a plain quorum queue"] = { durable = true, arguments = { ["x-queue-type"] = "quorum" } },
    ["a slot queue"] = scene.slot(),
    ["a slot queue of type quorum"] = scene.slot("quorum"),
  }
  for shape, options in pairs(shapes) do
    it("is acked by " .. shape .. " and does not stay", function ()
      local name, asking = scene.queue(options), scene.connect()
      for _ = 1, 20 do assert.equal("present", asking:probe(name, EXPIRED)) end
      until_true(function () return asking:message_count(name) == 0 end)
    end)
  end

  it("is returned by no queue, and nacked by one that rejects", function ()
    local asking = scene.connect()
    assert.equal("absent", asking:probe(scene.name(), EXPIRED))
    assert.equal("unavailable", asking:probe(scene.queue(scene.slot("classic", "reject-publish")), EXPIRED))
  end)

  -- Expiry works at the head only: it does not make a queue safe to probe that has messages of its own.
  it("stays behind a message that does not expire", function ()
    local name, asking = scene.queue(), scene.connect()
    assert.equal("present", asking:probe(name))
    for _ = 1, 5 do assert.equal("present", asking:probe(name, EXPIRED)) end
    assert.equal(6, asking:message_count(name))
    asking:channel():call{ method = "basic.get", queue = name, no_ack = true }
    until_true(function () return asking:message_count(name) == 0 end)
  end)
end)
