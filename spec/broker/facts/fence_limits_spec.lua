-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What ends the counter of fence_spec.lua, and what does not: limits, policies, crashes.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local fences = require "spec.broker.facts.fences"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

-- How often the message can be drawn, up to 40. The queue sees a get behind what its channel gave back before.
local function lasts(queue, how)
  local channel, count = scene.channel(), 0
  while count < 40 do
    local message = fences.get(channel, queue)
    if message.method ~= "basic.get-ok" then break end
    count = count + 1
    channel:send{ method = how or "basic.nack", delivery_tag = message.delivery_tag, requeue = true }
  end
  return count
end

describe("a fence", function ()
  after_each(scene.clear)

  it("without a limit ends after 21 returns from 4.0 on, after 21 rejects from 4.3 on; -1 is no limit", function ()
    local asking = scene.connect()
    local is_4_0, is_4_3 = asking:since(4, 0), asking:since(4, 3)
    local arguments = { ["x-queue-type"] = "quorum", ["x-max-length"] = 1, ["x-overflow"] = "drop-head" }
    assert.equal(is_4_0 and not is_4_3 and 21 or 40, lasts(fences.make(arguments)))
    if is_4_3 then assert.equal(21, lasts(fences.make(arguments), "basic.reject")) end
    arguments["x-delivery-limit"] = -1  -- before 4.0: the first return is too many
    assert.equal(is_4_0 and 40 or 1, lasts(fences.make(arguments)))
  end)

  it("keeps one message where the oldest is dropped, and two where new ones are rejected", function ()
    for overflow, count in pairs{ ["drop-head"] = 1, ["reject-publish"] = 2 } do
      local name = fences.make{ ["x-queue-type"] = "quorum", ["x-max-length"] = 1, ["x-overflow"] = overflow }
      local channel, kept = scene.channel():confirm(), 0
      scene.publish(channel, { routing_key = name, properties = { delivery_mode = 2 } })
      while fences.get(channel, name).method == "basic.get-ok" do kept = kept + 1 end
      assert.equal(count, kept)
    end
  end)

  operated_it("is ended by a policy with delivery-limit before 4.3, and not from 4.3 on", function ()
    local queue, policy = fences.make(), client.unique "policy"
    scene.undo(function () broker.suite:clear_policy("/", policy) end)
    broker.suite:set_policy("/", policy, "^" .. queue:gsub("%p", "[%0]") .. "$", '{"delivery-limit":5}')
    assert.equal(scene.connect():since(4, 3), lasts(queue) == 40)
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
