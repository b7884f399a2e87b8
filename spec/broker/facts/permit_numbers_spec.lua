-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A quorum queue counts how often a permit came back, and tells each consumer with its delivery. So a permit carries
-- the fencing token of its holder: the base that it was published with, its count, and one. What a queue counts of
-- messages that are got is in fence_spec.lua.
local fences = require "spec.broker.facts.fences"
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"

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

local function take(queue, connection) return single.served(single.join(queue, nil, connection)) end

-- The ways in which a holder's permit comes back.
local ENDS = {
  single.give_back,
  function (self) self.channel:close() end,
  function (self) self.channel.client:close() end,
  function (self) self.channel.client:abort() end,
}

-- The library adds both counts: neither ever falls.
local function number_of(permit)
  local headers = permit.properties.headers
  return headers["x-amqplocks-base"] + (headers["x-acquired-count"] or 0) + (headers["x-delivery-count"] or 0) + 1
end

describe("a permit of a quorum queue, taken by consumers,", function ()
  after_each(scene.clear)

  it("has no count for its first holder, and a larger number for each next one, however it comes back", function ()
    local queue, is_new = permits_of("quorum", 1), scene.connect():since(4, 3)
    local last = 0
    for round = 1, 40 do
      local holder = take(queue)
      local number, headers = number_of(holder.delivery), holder.delivery.properties.headers
      assert.is_true(round == 1 and number == fences.BASE + 1 or round > 1 and number > last)
      assert.equal(round > 1, holder.delivery.redelivered)
      if round > 1 then assert.is_not_nil(headers[is_new and "x-acquired-count" or "x-delivery-count"]) end
      last = number
      ENDS[round % #ENDS + 1](holder)
    end
  end)

  it("is counted alone: the others keep their numbers", function ()
    local queue, counts, connection = permits_of("quorum", 3), { 0, 0, 0 }, scene.connect()
    for _ = 1, 30 do
      local held = { take(queue), take(queue, connection) }
      for _, one in ipairs(held) do
        local id = tonumber(one.delivery.properties.message_id)
        counts[id] = counts[id] + 1
        assert.equal(fences.BASE + counts[id], number_of(one.delivery))
        single.give_back(one)
      end
      held[1].channel.client:close()
    end
  end)

  it("has larger numbers also after an administrator has taken all, and given them back", function ()
    local queue, admin = permits_of("quorum", 2), scene.channel()
    assert(admin:call{ method = "basic.consume", queue = queue })
    for _ = 1, 2 do assert.equal(fences.BASE + 1, number_of(assert(admin:await("basic.deliver")))) end
    fences.give_back(admin)
    for _ = 1, 2 do assert.is_true(number_of(assert(admin:await("basic.deliver"))) > fences.BASE + 1) end
  end)

  it("is not counted if the queue is a classic one: it is only marked as delivered before", function ()
    local queue = permits_of("classic", 1)
    for i = 1, 5 do
      local holder = take(queue)
      assert.same({ i > 1, fences.BASE + 1 }, { holder.delivery.redelivered, number_of(holder.delivery) })
      holder.channel:close()
    end
  end)
end)
