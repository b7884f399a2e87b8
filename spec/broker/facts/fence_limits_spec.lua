-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What ends the counter of fence_spec.lua, and what does not: limits, policies, alarms, crashes.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local fences = require "spec.broker.facts.fences"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

-- How often the message can be drawn, up to `most`.
local function lasts(queue, most, how)
  local channel, count = scene.channel(), 0
  while count < most do
    local message
    local is_there = pcall(until_true, function ()
      message = fences.get(channel, queue)
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

describe("a fence", function ()
  after_each(scene.clear)

  it("without a limit of deliveries ends after 21 on 4.0 to 4.2, and after 21 rejects on 4.3", function ()
    local arguments = { ["x-queue-type"] = "quorum", ["x-max-length"] = 1, ["x-overflow"] = "drop-head" }
    local asking = scene.connect()
    if not asking:since(4, 0) then
      assert.equal(50, lasts(fences.make(arguments), 50, nack))
    elseif not asking:since(4, 3) then
      assert.equal(21, lasts(fences.make(arguments), 50, nack))
    else
      assert.equal(50, lasts(fences.make(arguments), 50, nack))
      assert.equal(21, lasts(fences.make(arguments), 50, reject))
    end
  end)

  it("with the limit -1 has no limit from 4.0 on, and before ends at the first return", function ()
    local arguments = { ["x-queue-type"] = "quorum", ["x-delivery-limit"] = -1, ["x-max-length"] = 1 }
    assert.equal(scene.connect():since(4, 0) and 50 or 1, lasts(fences.make(arguments), 50, nack))
  end)

  it("keeps one message where the oldest is dropped, and two where new ones are rejected", function ()
    local function after_two(overflow)
      local name = fences.make{ ["x-queue-type"] = "quorum", ["x-max-length"] = 1, ["x-overflow"] = overflow }
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
    local queue, policy = fences.make(), client.unique "policy"
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
    local queue = fences.make()
    scene.undo(function () broker.suite:alarm(false) end)
    broker.suite:alarm(true)
    local channel = scene.channel()
    for i = 1, 5 do assert.equal(fences.BASE + i, (fences.draw(channel, queue))) end
  end)

  operated_it("counts on upwards when the broker was killed", function ()
    local queue, channel, last = fences.make(), scene.channel(), 0
    for _ = 1, 10 do last = fences.draw(channel, queue) end
    -- What a quorum queue needs to have a leader again lies in tables of Erlang, which are written to the disk seconds
    -- later. A queue that was made just before a crash has no leader after it, and gets none (seen on 3.10.8).
    broker.suite:tell "[ok = dets:sync(Table) || Table <- dets:all()], ok."
    broker.suite:kill()
    broker.suite:restart()
    local number
    until_true(function () -- until the queue has its leader, a get ends the connection
      local fine
      fine, number = pcall(function () return (fences.draw(scene.channel(), queue)) end)
      return fine, number
    end)
    assert.is_true(number > last, ("%d after %d"):format(number, last))
  end)
end)
