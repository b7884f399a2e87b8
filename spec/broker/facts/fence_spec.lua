-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A quorum queue counts how often a message was delivered and came back. One message that each client gets and gives
-- back is therefore a counter that the broker increments: a source of fencing tokens. What ends such a counter is
-- in fence_limits_spec.lua.
local fences = require "spec.broker.facts.fences"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local function reject(channel, message)
  channel:send{ method = "basic.reject", delivery_tag = message.delivery_tag, requeue = true }
  channel.client:flush()
end

describe("a message of a quorum queue that is got and given back", function ()
  after_each(scene.clear)

  it("is counted: by x-acquired-count from 4.3 on, by x-delivery-count before", function ()
    local queue, channel = fences.make(), scene.channel()
    local is_new = channel.client:since(4, 3)
    for i = 1, 30 do
      local number, headers, is_redelivered = fences.draw(channel, queue)
      assert.equal(fences.BASE + i, number)
      assert.equal(i > 1, is_redelivered)
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
    local queue, channels, last = fences.make(), {}, 0
    for i = 1, 4 do channels[i] = scene.channel() end
    for i = 1, 40 do
      local number = fences.draw(channels[i % 4 + 1], queue)
      assert.is_true(number > last, ("%d after %d"):format(number, last))
      last = number
    end
  end)

  it("is counted, too, when the client closes its channel, is killed, or rejects the message", function ()
    local queue, last = fences.make(), 0
    local ends = {
      function (channel) channel:close() end,
      function (channel) channel.client:abort() end,
      reject,
    }
    for _, ends_it in ipairs(ends) do
      local channel = scene.channel()
      local message = fences.get_now(channel, queue)
      local number = fences.number(message)
      assert.is_true(number > last)
      last = number
      ends_it(channel, message)
    end
    assert.is_true(fences.draw(scene.channel(), queue) > last)
  end)

  it("needs one write: open, get, give back, close", function ()
    local queue, asking = fences.make(), scene.connect()
    local function draw()
      local channel = asking:channel()
      channel:send{ method = "basic.get", queue = queue }
      channel:send{ method = "basic.nack", delivery_tag = 0, multiple = true, requeue = true }
      channel:send{ method = "channel.close", reply_code = 200, reply_text = "", class_id = 0, method_id = 0 }
      local message = assert(channel:await("basic.get-ok", "basic.get-empty"))
      return message.method == "basic.get-ok" and fences.number(message)
    end
    for i = 1, 10 do
      local number
      until_true(function () -- the message may still be on its way back
        number = draw()
        return number
      end)
      assert.equal(fences.BASE + i, number)
    end
  end)

  it("is not there while another client has it, and giving back nothing is no error", function ()
    local queue, one, other = fences.make(), scene.channel(), scene.channel()
    assert.equal("basic.get-ok", fences.get(one, queue).method)
    assert.equal("basic.get-empty", fences.get(other, queue).method)
    fences.give_back(other)
    assert.equal("basic.get-empty", fences.get(other, queue).method)
    fences.give_back(one)
    assert.equal(fences.BASE + 2, (fences.draw(other, queue)))
  end)

  it("is not got by a request behind a declare that was refused", function ()
    local queue, held = fences.make(), scene.hold(scene.channel(), scene.name())
    local channel = scene.channel()
    channel:send{ method = "queue.declare", queue = held, exclusive = true, auto_delete = true }
    channel:send{ method = "basic.get", queue = queue }
    channel:send{ method = "basic.nack", delivery_tag = 0, multiple = true, requeue = true }
    local answer, reason = channel:await("queue.declare-ok", "basic.get-ok", "basic.get-empty")
    assert.is_nil(answer)
    assert.equal(405, reason.code)
    assert.equal(fences.BASE + 1, (fences.draw(scene.channel(), queue)))
  end)
end)
