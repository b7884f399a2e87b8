-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A quorum queue counts how often a message was delivered and came back. One message that each client gets and gives
-- back is therefore a counter that the broker increments: a source of fencing tokens. What ends such a counter is
-- in fence_limits_spec.lua.
local fences = require "spec.broker.facts.fences"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

after_each(scene.clear)

describe("a message of a quorum queue that is got and given back", function ()
  it("is counted for all clients: by x-acquired-count from 4.3 on, by x-delivery-count before", function ()
    local queue, channels = fences.make(), { scene.channel(), scene.channel(), scene.channel() }
    local count, none = "x-delivery-count", "x-acquired-count"
    if scene.connect():since(4, 3) then count, none = none, count end
    for i = 1, 30 do
      local number, headers, is_redelivered = fences.draw(channels[i % 3 + 1], queue)
      assert.same({ fences.BASE + i, i > 1 }, { number, is_redelivered })
      if i > 1 then assert.same({ i - 1, 0 }, { headers[count], headers[none] or 0 }) end
    end
  end)

  it("is counted, too, when the client closes its channel, is killed, or rejects the message", function ()
    local queue, last = fences.make(), 0
    for _, ends in ipairs{
      function (channel) channel:close() end,
      function (channel) channel.client:abort() end,
      function (channel, message)
        channel:send{ method = "basic.reject", delivery_tag = message.delivery_tag, requeue = true }.client:flush()
      end,
      fences.give_back,
    } do
      local channel = scene.channel()
      local message = fences.get_now(channel, queue)
      assert.is_true(fences.number(message) > last)
      last = fences.number(message)
      ends(channel, message)
    end
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
    for i = 1, 10 do assert.equal(fences.BASE + i, (until_true(draw))) end  -- it may still be on its way back
  end)

  it("is not there while another client has it, and giving back nothing is no error", function ()
    local queue, one, other = fences.make(), scene.channel(), scene.channel()
    assert.equal("basic.get-ok", fences.get(one, queue).method)
    for _ = 1, 2 do
      assert.equal("basic.get-empty", fences.get(other, queue).method)
      fences.give_back(other)
    end
    fences.give_back(one)
    assert.equal(fences.BASE + 2, (fences.draw(other, queue)))
  end)

  it("is not got by a request behind a declare that was refused", function ()
    local queue, held, channel = fences.make(), scene.hold(scene.channel(), scene.name()), scene.channel()
    channel:send{ method = "queue.declare", queue = held, exclusive = true, auto_delete = true }
    channel:send{ method = "basic.get", queue = queue }
    channel:send{ method = "basic.nack", delivery_tag = 0, multiple = true, requeue = true }
    assert.same({}, scene.closed(channel, 405))
    assert.equal(fences.BASE + 1, (fences.draw(scene.channel(), queue)))
  end)
end)
