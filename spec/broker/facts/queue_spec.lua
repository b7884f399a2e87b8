-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Which messages a queue keeps, in which order, for how long, and with which arguments it may be declared again.
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

after_each(scene.clear)

local function put(channel, queue, ...)
  for _, id in ipairs{ ... } do
    assert.equal("basic.ack", scene.publish(channel, { routing_key = queue, properties = { message_id = id } }))
  end
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

it("a message that is given back, by nack, reject or the end of its channel, has its old place, and is marked",
  function ()
    for _, way in ipairs{ "basic.nack", "basic.reject", "close" } do
      local queue, channel, asking = scene.queue(), scene.channel():confirm(), scene.connect()
      put(channel, queue, "1", "2", "3")
      get(channel, queue)
      local second = get(channel, queue)
      assert.equal(1, asking:message_count(queue))
      put(asking:channel():confirm(), queue, "4")
      if way == "close" then
        channel:close()
      else
        scene.barrier(channel:send{ method = way, delivery_tag = second.delivery_tag, requeue = true }, queue)
      end
      until_true(function () return asking:message_count(queue) >= 3 end)
      local first = get(asking:channel(), queue)
      assert.same({ way == "close" and "1" or "2", true }, { first.properties.message_id, first.redelivered })
    end
  end)

it("all messages of a channel are given back by one nack of tag 0, none too, and another channel's are not", function ()
  local queue, channel, other = scene.queue(), scene.channel():confirm(), scene.channel()
  local all = { method = "basic.nack", delivery_tag = 0, multiple = true, requeue = true }
  scene.barrier(channel:send(all), queue)
  put(channel, queue, "1", "2", "3")
  for _, by in ipairs{ channel, other, channel } do get(by, queue) end
  scene.barrier(channel:send(all), queue)
  scene.barrier(channel:send(all), queue)
  until_true(function () return channel.client:message_count(queue) == 2 end)
  assert.equal("1 3", empty(queue))
end)

-- Why nobody asks for such a bell by a probe.
it("a bell of length one that drops its head keeps the last of many tokens, and loses it to a probe", function ()
  local bell = scene.queue{ durable = true, arguments = {
    ["x-queue-type"] = "classic", ["x-max-length"] = 1, ["x-overflow"] = "drop-head",
  } }
  local channel, prober = scene.channel():confirm(), scene.connect()
  put(channel, bell, "1", "2", "3")
  assert.equal("3", empty(bell))
  put(channel, bell, "4")
  assert.equal("present", prober:probe(bell, { expiration = "0" }))
  assert.equal("", empty(bell))
end)

-- To ask for it would be to use it; to publish is not.
it("a queue that expires goes when nobody consumes, gets or declares, whatever is in it and whoever probes it, and "
  .. "not before", function ()
  local function expiring(milliseconds)
    return scene.queue{ durable = true, arguments = { ["x-queue-type"] = "classic", ["x-expires"] = milliseconds } }
  end
  local prober, time = scene.connect(), 750
  local function is_gone(queue) return prober:probe(queue) == "absent" end
  local function outlive()
    local channel, consumer = scene.channel(), scene.channel()
    local used = { expiring(time), expiring(time), expiring(time), expiring(time) }
    scene.wait_for_token(consumer, used[4])
    local witness = expiring(2 * time)
    until_true(function ()
      scene.barrier(channel, used[1])
      assert(channel:call{ method = "queue.declare", queue = used[2], durable = true,
        arguments = { ["x-queue-type"] = "classic", ["x-expires"] = time } })
      assert(channel:call{ method = "basic.get", queue = used[3], no_ack = true })
      return is_gone(witness)
    end)
    for _, queue in ipairs(used) do assert.is_false(is_gone(queue)) end
    consumer.client:close()
    for _, queue in ipairs(used) do until_true(function () return is_gone(queue) end) end
  end
  until_true(function () -- where a use came too late, as on a busy machine, with more time
    time = 2 * time
    return pcall(outlive)
  end, 300)
end)

it("a queue declared again with another argument, or not durable, is refused: 406", function ()
  local arguments = { ["x-queue-type"] = "classic", ["x-max-length"] = 1, ["x-overflow"] = "drop-head",
    ["x-expires"] = 60000, ["x-single-active-consumer"] = true }
  local connection, queue = scene.connect(), scene.queue{ durable = true, arguments = arguments }
  local declare = { method = "queue.declare", queue = queue, durable = true, arguments = arguments }
  assert(connection:channel():call(declare))
  for name, value in pairs{ ["x-queue-type"] = "quorum", ["x-max-length"] = 2, ["x-overflow"] = "reject-publish",
    ["x-expires"] = 70000, ["x-single-active-consumer"] = false, ["x-message-ttl"] = 70000 } do
    local before = arguments[name]
    arguments[name] = value
    scene.refused(406, connection:channel(), declare)
    arguments[name] = before
  end
  declare.durable = false
  scene.refused(406, connection:channel(), declare)
end)
