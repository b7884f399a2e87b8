-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Which messages a queue keeps, in which order, for how long, and which clients may delete the queue.
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local function put(channel, queue, id)
  assert.equal("basic.ack", scene.publish(channel, { routing_key = queue, properties = { message_id = id } }))
end

local function get(channel, queue)
  return assert(channel:call{ method = "basic.get", queue = queue })
end

-- The ids of what is there, in order; nothing is left.
local function empty(queue)
  local channel, ids = scene.channel(), {}
  local message = get(channel, queue)
  while message.method == "basic.get-ok" do
    table.insert(ids, message.properties.message_id)
    channel:send{ method = "basic.ack", delivery_tag = message.delivery_tag }
    message = get(channel, queue)
  end
  return table.concat(ids, " ")
end

local refused = scene.refused

describe("a message that is given back", function ()
  after_each(scene.clear)

  local ways = {
    ["by nack"] = function (channel, tag, queue)
      channel:send{ method = "basic.nack", delivery_tag = tag, requeue = true }
      scene.barrier(channel, queue)
    end,
    ["by reject"] = function (channel, tag, queue)
      channel:send{ method = "basic.reject", delivery_tag = tag, requeue = true }
      scene.barrier(channel, queue)
    end,
    ["by the end of its channel"] = function (channel) channel:close() end,
  }
  for way, give_back in pairs(ways) do
    it(way .. " has its old place, and is marked", function ()
      local queue, channel, asking = scene.queue(), scene.channel():confirm(), scene.connect()
      for _, id in ipairs{ "1", "2", "3" } do put(channel, queue, id) end
      get(channel, queue)
      local second, other = get(channel, queue), asking:channel()
      assert.equal(1, asking:message_count(queue))
      put(asking:channel():confirm(), queue, "4")
      give_back(channel, second.delivery_tag, queue)
      until_true(function () return asking:message_count(queue) >= 3 end)
      local first = get(other, queue)
      assert.equal(way:find("end") and "1" or "2", first.properties.message_id)
      assert.is_true(first.redelivered)
      other:close()
    end)
  end
end)

describe("all messages of a channel", function ()
  after_each(scene.clear)

  it("are given back by one nack of tag 0, none too, and another channel's are not", function ()
    local queue, channel, other = scene.queue(), scene.channel():confirm(), scene.channel()
    local all = { method = "basic.nack", delivery_tag = 0, multiple = true, requeue = true }
    scene.barrier(channel:send(all), queue)
    for _, id in ipairs{ "1", "2", "3" } do put(channel, queue, id) end
    for _, by in ipairs{ channel, other, channel } do get(by, queue) end
    scene.barrier(channel:send(all), queue)
    scene.barrier(channel:send(all), queue)
    until_true(function () return channel.client:message_count(queue) == 2 end)
    assert.equal("1 3", empty(queue))
  end)
end)

describe("a bell of length one that drops its head", function ()
  after_each(scene.clear)
  local LENGTH_ONE = { durable = true, arguments = {
    ["x-queue-type"] = "classic", ["x-max-length"] = 1, ["x-overflow"] = "drop-head",
  } }

  it("keeps the last of many tokens, and acks them all", function ()
    local bell, channel = scene.queue(LENGTH_ONE), scene.channel():confirm()
    for _, id in ipairs{ "1", "2", "3" } do put(channel, bell, id) end
    assert.equal("3", empty(bell))
  end)

  -- Why nobody asks for such a bell by a probe.
  it("loses its token to a probe, even to one that expires at once", function ()
    local bell, channel, prober = scene.queue(LENGTH_ONE), scene.channel():confirm(), scene.connect()
    put(channel, bell, "1")
    assert.equal("present", prober:probe(bell, { expiration = "0" }))
    assert.equal("", empty(bell))
  end)
end)

describe("a queue that expires", function ()
  after_each(scene.clear)
  local function expiring(milliseconds)
    return scene.queue{ durable = true, arguments = { ["x-queue-type"] = "classic", ["x-expires"] = milliseconds } }
  end

  -- To ask for it would be to use it; to publish is not.
  it("goes when nobody consumes, gets or declares, whatever is in it and whoever probes it", function ()
    local queue, prober = expiring(100), scene.connect()
    until_true(function () return prober:probe(queue) == "absent" end)
  end)

  it("stays while it is consumed, and goes after that", function ()
    local queue, prober, channel = expiring(1000), scene.connect(), scene.channel()
    scene.wait_for_token(channel, queue)
    local witness = expiring(1500)
    until_true(function () return prober:probe(witness) == "absent" end)
    assert.equal("present", prober:probe(queue))
    channel.client:close()
    until_true(function () return prober:probe(queue) == "absent" end)
  end)

  it("stays while it is asked for, declared again or got from now and then, and goes after that", function ()
    local asked, declared, got, witness = expiring(1500), expiring(1500), expiring(1500), expiring(3000)
    local prober, channel = scene.connect(), scene.channel()
    until_true(function ()
      assert(channel:call{ method = "queue.declare", queue = asked, passive = true })
      assert(channel:call{ method = "queue.declare", queue = declared, durable = true,
        arguments = { ["x-queue-type"] = "classic", ["x-expires"] = 1500 } })
      assert(channel:call{ method = "basic.get", queue = got, no_ack = true })
      return prober:probe(witness) == "absent"
    end)
    for _, queue in ipairs{ asked, declared, got } do assert.equal("present", prober:probe(queue)) end
    for _, queue in ipairs{ asked, declared, got } do
      until_true(function () return prober:probe(queue) == "absent" end)
    end
  end)
end)

describe("a queue declared again", function ()
  after_each(scene.clear)

  local differences = { ["x-max-length"] = 2, ["x-overflow"] = "reject-publish", ["x-expires"] = 70000,
    ["x-message-ttl"] = 70000 }
  for argument, value in pairs(differences) do
    it("with another " .. argument .. " is refused: 406", function ()
      local arguments = { ["x-queue-type"] = "classic", ["x-max-length"] = 1, ["x-overflow"] = "drop-head",
        ["x-expires"] = 60000 }
      local queue, channel = scene.queue{ durable = true, arguments = arguments }, scene.channel()
      local declare = { method = "queue.declare", queue = queue, durable = true, arguments = arguments }
      assert(channel:call(declare))
      arguments[argument] = value
      refused(406, channel, declare)
    end)
  end

  it("not durable is refused: 406", function ()
    local queue = scene.queue()
    refused(406, scene.channel(), { method = "queue.declare", queue = queue, durable = false })
  end)
end)

describe("queue.delete", function ()
  after_each(scene.clear)

  it("if unused: not under a consumer, 406, and whatever is in it", function ()
    local queue, channel = scene.queue(), scene.channel()
    put(scene.channel():confirm(), queue, "1")
    local tag = assert(channel:call{ method = "basic.consume", queue = queue }).consumer_tag
    refused(406, scene.channel(), { method = "queue.delete", queue = queue, if_unused = true })
    assert(channel:call{ method = "basic.cancel", consumer_tag = tag })
    assert(channel:call{ method = "queue.delete", queue = queue, if_unused = true })
    assert.equal("absent", channel.client:probe(queue))
  end)

  it("if empty: not while a message is ready, 406, but while it is with a client", function ()
    local queue, channel = scene.queue(), scene.channel():confirm()
    put(channel, queue, "1")
    refused(406, scene.channel(), { method = "queue.delete", queue = queue, if_empty = true })
    get(channel, queue)
    assert(channel:call{ method = "queue.delete", queue = queue, if_empty = true })
    assert.equal("absent", channel.client:probe(queue))
  end)

  it("of no queue is fine, whatever it asks", function ()
    local channel = scene.channel()
    assert(channel:call{ method = "queue.delete", queue = scene.name(), if_unused = true, if_empty = true })
  end)
end)

describe("queue.unbind", function ()
  after_each(scene.clear)

  it("ends one binding and no other, and does not mind one that is not there", function ()
    local queue, channel = scene.queue(scene.slot()), scene.channel():confirm()
    local one, two = scene.name(), scene.name()
    local function routed(key)
      local _, returned = scene.publish(channel, { exchange = "amq.direct", routing_key = key, mandatory = true })
      return not returned
    end
    local function call(method, key)
      assert(channel:call{ method = method, queue = queue, exchange = "amq.direct", routing_key = key })
    end
    for _, key in ipairs{ one, two, two } do call("queue.bind", key) end
    assert.is_true(routed(one) and routed(two))
    for _, key in ipairs{ two, two } do call("queue.unbind", key) end
    assert.is_true(routed(one))
    assert.is_false(routed(two))
  end)
end)
