-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A quorum queue counts how often a permit came back, and tells each consumer with its delivery. So a permit carries
-- the fencing token of its holder: the base that it was published with, its count, and one. What a queue counts of
-- messages that are got is in fence_spec.lua.
local fences = require "spec.broker.facts.fences"
local scene = require "spec.broker.facts.scene"

-- A queue of `count` permits, number 1 to `count`.
local function permits_of(queue_type, count)
  local arguments = { ["x-queue-type"] = queue_type }
  if queue_type == "quorum" and scene.connect():since(4, 0) then arguments["x-delivery-limit"] = -1 end
  local queue, channel = scene.queue{ durable = true, arguments = arguments }, scene.channel():confirm()
  for id = 1, count do
    assert.equal("basic.ack", (scene.publish(channel, { routing_key = queue, mandatory = true, properties = {
      delivery_mode = 2, message_id = tostring(id), headers = { ["x-amqplocks-base"] = fences.BASE },
    } })))
  end
  return queue
end

local function take(queue, channel)
  local self = { channel = channel or scene.channel() }
  self.tag = scene.wait_for_token(self.channel, queue)
  self.permit = assert(self.channel:await("basic.deliver", 20))
  return self
end

-- The ways in which a holder's permit comes back.
local ENDS = {
  ["its consumer is cancelled, and it is given back"] = function (self)
    self.channel:send{ method = "basic.cancel", consumer_tag = self.tag, no_wait = true }
    self.channel:send{ method = "basic.nack", delivery_tag = self.permit.delivery_tag, requeue = true }
    self.channel.client:flush()
  end,
  ["its channel is closed"] = function (self) self.channel:close() end,
  ["its connection is closed"] = function (self) self.channel.client:close() end,
  ["its connection is lost"] = function (self) self.channel.client:abort() end,
}

-- The library adds both counts: neither ever falls.
local function number_of(permit)
  local headers = permit.properties.headers
  return headers["x-amqplocks-base"] + (headers["x-acquired-count"] or 0) + (headers["x-delivery-count"] or 0) + 1
end

describe("a permit of a quorum queue, taken by consumers,", function ()
  after_each(scene.clear)

  it("has no count, or zero, for its first holder", function ()
    local first = take(permits_of("quorum", 1)).permit
    assert.is_false(first.redelivered)
    assert.equal(fences.BASE + 1, number_of(first))
  end)

  for way, ends in pairs(ENDS) do
    it("has a larger number for each next holder, when " .. way, function ()
      local queue, last, is_new = permits_of("quorum", 1), 0, scene.connect():since(4, 3)
      for _ = 1, 25 do
        local holder = take(queue)
        local number = number_of(holder.permit)
        assert.is_true(number > last, ("%d after %d"):format(number, last))
        assert.equal(last > 0, holder.permit.redelivered)
        local headers = holder.permit.properties.headers
        if last > 0 then assert.is_not_nil(headers[is_new and "x-acquired-count" or "x-delivery-count"]) end
        last = number
        ends(holder)
      end
    end)
  end

  it("is counted alone: the others keep their numbers", function ()
    local queue, counts, channel = permits_of("quorum", 3), { 0, 0, 0 }, scene.channel()
    local give_back = ENDS["its consumer is cancelled, and it is given back"]
    for _ = 1, 30 do
      local held = { take(queue), take(queue, channel) }
      for _, one in ipairs(held) do
        local id = tonumber(one.permit.properties.message_id)
        counts[id] = counts[id] + 1
        assert.equal(fences.BASE + counts[id], number_of(one.permit))
        give_back(one)
      end
      held[1].channel.client:close()
    end
  end)

  it("has larger numbers also after an administrator has taken all, and given them back", function ()
    local queue = permits_of("quorum", 2)
    local admin = scene.channel()
    assert(admin:call{ method = "basic.consume", queue = queue })
    for _ = 1, 2 do assert.equal(fences.BASE + 1, number_of(assert(admin:await("basic.deliver")))) end
    fences.give_back(admin)
    for _ = 1, 2 do assert.is_true(number_of(assert(admin:await("basic.deliver"))) > fences.BASE + 1) end
  end)
end)

describe("a permit of a classic queue, taken by consumers,", function ()
  after_each(scene.clear)

  it("is not counted: it is marked as delivered before, and has no count", function ()
    local queue = permits_of("classic", 1)
    for i = 1, 5 do
      local holder = take(queue)
      assert.equal(i > 1, holder.permit.redelivered)
      assert.equal(fences.BASE + 1, number_of(holder.permit))
      ENDS["its channel is closed"](holder)
    end
  end)
end)
