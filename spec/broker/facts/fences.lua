-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Fences for the facts about them: a fence is a quorum queue with one message, which each client gets and gives back.
local assert = require "luassert"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local fences = {}

--- What the message's number is counted from.
fences.BASE = 1000

--- Makes a fence as it should be made, or with these arguments. Returns its name.
function fences.make(arguments)
  local asking = scene.connect()
  if not arguments then
    arguments = { ["x-queue-type"] = "quorum", ["x-max-length"] = 1, ["x-overflow"] = "drop-head" }
    if asking:since(4, 0) then arguments["x-delivery-limit"] = -1 end
    if asking:since(4, 3) then arguments["x-consumer-disconnected-timeout"] = 1000 end
  end
  local name = scene.queue{ durable = true, arguments = arguments }
  assert.equal("basic.ack", (scene.publish(asking:channel():confirm(), { routing_key = name, mandatory = true,
    properties = { delivery_mode = 2, headers = { ["x-amqplocks-base"] = fences.BASE } } })))
  return name
end

--- Gets the message. Returns basic.get-ok or basic.get-empty.
function fences.get(channel, queue) return assert(channel:call{ method = "basic.get", queue = queue }) end

--- The same until the message is there: it may be on its way back from another client.
function fences.get_now(channel, queue)
  local message
  until_true(function ()
    message = fences.get(channel, queue)
    return message.method == "basic.get-ok", message.method
  end)
  return message
end

--- Gives back all that the channel has.
function fences.give_back(channel)
  channel:send{ method = "basic.nack", delivery_tag = 0, multiple = true, requeue = true }
  channel.client:flush()
end

--- The number that a client reads from the message.
function fences.number(message)
  local headers = message.properties.headers
  return headers["x-amqplocks-base"] + (headers["x-acquired-count"] or headers["x-delivery-count"] or 0) + 1
end

--- Gets the message and gives it back. Returns its number, its headers, and whether it is marked as delivered before.
function fences.draw(channel, queue)
  local message = fences.get_now(channel, queue)
  assert.equal(0, message.message_count)
  fences.give_back(channel)
  return fences.number(message), message.properties.headers, message.redelivered
end

return fences
