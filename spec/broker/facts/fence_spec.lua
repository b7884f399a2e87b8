-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A quorum queue counts how often a message was delivered and came back. One message that each client gets and gives
-- back is therefore a counter that the broker increments: a source of fencing tokens. This file has what such a
-- counter rests on, and what ends it.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local BASE = 1000

-- Makes a fence, a quorum queue with one message, as it should be made. `arguments`: instead of these.
local function fence(arguments)
  local asking = scene.connect()
  if not arguments then
    arguments = { ["x-queue-type"] = "quorum", ["x-max-length"] = 1, ["x-overflow"] = "drop-head" }
    if asking:since(4, 0) then arguments["x-delivery-limit"] = -1 end
    if asking:since(4, 3) then arguments["x-consumer-disconnected-timeout"] = 1000 end
  end
  local name = scene.queue{ durable = true, arguments = arguments }
  assert.equal("basic.ack", (scene.publish(asking:channel():confirm(), { routing_key = name, mandatory = true,
    properties = { delivery_mode = 2, headers = { ["x-amqplocks-base"] = BASE } } })))
  return name
end

local function get(channel, queue) return assert(channel:call{ method = "basic.get", queue = queue }) end

local function give_back(channel)
  channel:send{ method = "basic.nack", delivery_tag = 0, multiple = true, requeue = true }
  channel.client:flush()
end

-- The number that a client reads from the message.
local function number_in(message)
  local headers = message.properties.headers
  return headers["x-amqplocks-base"] + (headers["x-acquired-count"] or headers["x-delivery-count"] or 0) + 1
end

-- Gets the message, gives it back, and returns its number. The message may be on its way back from another client.
local function draw(channel, queue)
  local message
  until_true(function ()
    message = get(channel, queue)
    return message.method == "basic.get-ok", message.method
  end)
  assert.equal(0, message.message_count)
  give_back(channel)
  return number_in(message), message.properties.headers
end

-- How often the message can be drawn, up to `most`.
local function lasts(queue, most, how)
  local channel, count = scene.channel(), 0
  while count < most do
    local message
    local is_there = pcall(until_true, function ()
      message = get(channel, queue)
      return message.method == "basic.get-ok"
    end, 2)
    if not is_there then break end
    count = count + 1
    how(channel, message)
    channel.client:flush()
  end
  return count
end

local function nack(channel, message)
  channel:send{ method = "basic.nack", delivery_tag = message.delivery_tag, requeue = true }
end

local function reject(channel, message)
  channel:send{ method = "basic.reject", delivery_tag = message.delivery_tag, requeue = true }
end

describe("a message of a quorum queue that is got and given back", function ()
  after_each(scene.clear)

  it("is counted: by x-acquired-count from 4.3 on, by x-delivery-count before", function ()
    local queue, channel = fence(), scene.channel()
    local is_new = channel.client:since(4, 3)
    for i = 1, 30 do
      local number, headers = draw(channel, queue)
      assert.equal(BASE + i, number)
      if is_new and i > 1 then
        assert.equal(i - 1, headers["x-acquired-count"])
        assert.is_true((headers["x-delivery-count"] or 0) == 0)
      elseif i > 1 then
        assert.is_nil(headers["x-acquired-count"])
        assert.equal(i - 1, headers["x-delivery-count"])
      end
    end
  end)

  it("gives each of several clients another, larger number", function ()
    local queue, channels, last = fence(), {}, 0
    for i = 1, 4 do channels[i] = scene.channel() end
    for i = 1, 40 do
      local number = draw(channels[i % 4 + 1], queue)
      assert.is_true(number > last, ("%d after %d"):format(number, last))
      last = number
    end
  end)

  it("is counted, too, when the client closes its channel, is killed, or rejects the message", function ()
    local queue, last = fence(), 0
    local ends = {
      function (channel) channel:close() end,
      function (channel) channel.client:abort() end,
      function (channel, message)
        reject(channel, message)
        channel.client:flush()
      end,
    }
    for _, ends_it in ipairs(ends) do
      local channel = scene.channel()
      local message
      until_true(function ()
        message = get(channel, queue)
        return message.method == "basic.get-ok"
      end)
      local number = number_in(message)
      assert.is_true(number > last)
      last = number
      ends_it(channel, message)
    end
    assert.is_true(draw(scene.channel(), queue) > last)
  end)

  it("needs one write: open, get, give back, close", function ()
    local queue, asking = fence(), scene.connect()
    for i = 1, 10 do
      local channel = asking:channel()
      channel:send{ method = "basic.get", queue = queue }
      channel:send{ method = "basic.nack", delivery_tag = 0, multiple = true, requeue = true }
      channel:send{ method = "channel.close", reply_code = 200, reply_text = "", class_id = 0, method_id = 0 }
      local message = assert(channel:await("basic.get-ok", "basic.get-empty"))
      assert.equal("basic.get-ok", message.method)
      assert.equal(BASE + i, number_in(message))
    end
  end)

  it("is not there while another client has it, and giving back nothing is no error", function ()
    local queue, one, other = fence(), scene.channel(), scene.channel()
    assert.equal("basic.get-ok", get(one, queue).method)
    assert.equal("basic.get-empty", get(other, queue).method)
    give_back(other)
    assert.equal("basic.get-empty", get(other, queue).method)
    give_back(one)
    assert.equal(BASE + 2, (draw(other, queue)))
  end)

  it("is not got by a request behind a declare that was refused", function ()
    local queue, held = fence(), scene.hold(scene.channel(), scene.name())
    local channel = scene.channel()
    channel:send{ method = "queue.declare", queue = held, exclusive = true, auto_delete = true }
    channel:send{ method = "basic.get", queue = queue }
    channel:send{ method = "basic.nack", delivery_tag = 0, multiple = true, requeue = true }
    local answer, reason = channel:await("queue.declare-ok", "basic.get-ok", "basic.get-empty")
    assert.is_nil(answer)
    assert.equal(405, reason.code)
    assert.equal(BASE + 1, (draw(scene.channel(), queue)))
  end)
end)

describe("a fence", function ()
  after_each(scene.clear)

  it("without a limit of deliveries ends after 21 on 4.0 to 4.2, and after 21 rejects on 4.3", function ()
    local arguments = { ["x-queue-type"] = "quorum", ["x-max-length"] = 1, ["x-overflow"] = "drop-head" }
    local asking = scene.connect()
    if not asking:since(4, 0) then
      assert.equal(50, lasts(fence(arguments), 50, nack))
    elseif not asking:since(4, 3) then
      assert.equal(21, lasts(fence(arguments), 50, nack))
    else
      assert.equal(50, lasts(fence(arguments), 50, nack))
      assert.equal(21, lasts(fence(arguments), 50, reject))
    end
  end)

  it("with the limit -1 has no limit from 4.0 on, and before ends at the first return", function ()
    local arguments = { ["x-queue-type"] = "quorum", ["x-delivery-limit"] = -1, ["x-max-length"] = 1 }
    assert.equal(scene.connect():since(4, 0) and 50 or 1, lasts(fence(arguments), 50, nack))
  end)

  it("keeps one message where the oldest is dropped, and two where new ones are rejected", function ()
    local function after_two(overflow)
      local name = fence{ ["x-queue-type"] = "quorum", ["x-max-length"] = 1, ["x-overflow"] = overflow }
      scene.publish(scene.channel():confirm(), { routing_key = name, properties = { delivery_mode = 2 } })
      local asking, count = scene.connect(), nil
      until_true(function ()
        local now = asking:message_count(name)
        local is_same = now == count
        count = now
        return is_same
      end)
      return count
    end
    assert.equal(1, after_two "drop-head")
    assert.equal(2, after_two "reject-publish")
  end)

  operated_it("is ended by a policy with delivery-limit before 4.3, and not from 4.3 on", function ()
    local queue, policy = fence(), client.unique "policy"
    scene.undo(function () broker.suite:clear_policy("/", policy) end)
    broker.suite:set_policy("/", policy, "^" .. queue:gsub("%p", "[%0]") .. "$", '{"delivery-limit":5}')
    local count = lasts(queue, 40, nack)
    if scene.connect():since(4, 3) then
      assert.equal(40, count)
    else
      assert.is_true(count < 40, count .. " draws")
    end
  end)

  operated_it("counts on under a memory alarm", function ()
    local queue = fence()
    scene.undo(function () broker.suite:alarm(false) end)
    broker.suite:alarm(true)
    local channel = scene.channel()
    for i = 1, 5 do assert.equal(BASE + i, (draw(channel, queue))) end
  end)

  operated_it("counts on upwards when the broker was killed", function ()
    local queue, channel, last = fence(), scene.channel(), 0
    for _ = 1, 10 do last = draw(channel, queue) end
    -- What a quorum queue needs to have a leader again lies in tables of Erlang that are written to the disk some seconds
    -- later. A queue that was made just before that has no leader after a crash, and gets none (seen on 3.10.8).
    broker.suite:tell "[ok = dets:sync(Table) || Table <- dets:all()], ok."
    broker.suite:kill()
    broker.suite:restart()
    local number
    until_true(function () -- until the queue has its leader, a get ends the connection
      local fine
      fine, number = pcall(function () return (draw(scene.channel(), queue)) end)
      return fine, number
    end, 30)
    assert.is_true(number > last, ("%d after %d"):format(number, last))
  end)
end)
