-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Ways in which other software publishes a message of a queue again: the broker counts its returns anew. Each is a
-- function of the queue's name. The one message of the queue is ready, before and after.
local assert = require "luassert"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local movers = {}

-- Returns the channel and basic.get-ok.
local function get(queue)
  local channel, message = stage.client():channel(), nil
  until_true(function ()
    message = assert(channel:call{ method = "basic.get", queue = queue })
    return message.method == "basic.get-ok", message.method
  end)
  return channel, message
end

-- `change`: of the properties.
local function moves(queue, change)
  local channel, message = get(queue)
  channel:send{ method = "basic.ack", delivery_tag = message.delivery_tag }
  assert(channel:call{ method = "basic.qos", prefetch_count = 1 })
  if change then change(message.properties) end
  assert.equal("present", client.shared():probe(queue, message.properties))
  until_true(function () return client.shared():message_count(queue) == 1 end)
  channel.client:close()
end

movers["moved away and back, with its properties"] = moves

movers["moved away and back, without the broker's count"] = function (queue)
  moves(queue, function (properties)
    properties.headers = { ["x-amqplocks-base"] = properties.headers["x-amqplocks-base"] }
  end)
end

--- Needs an operator: a consumer rejects it, and a dead letter exchange brings it back after a while.
function movers.retry(queue)
  local name = client.unique "retry"
  stage.undo(function ()
    broker.suite:clear_policy("/", name)
    client.shared():delete(name)
  end)
  assert(client.shared():declare(name, { durable = true, arguments = { ["x-queue-type"] = "classic",
    ["x-message-ttl"] = 1, ["x-dead-letter-exchange"] = "", ["x-dead-letter-routing-key"] = queue } }))
  broker.suite:set_policy("/", name, "^" .. queue:gsub("%p", "[%0]") .. "$",
    ('{"dead-letter-exchange":"","dead-letter-routing-key":"%s"}'):format(name))
  local channel, message = get(queue)
  channel:send{ method = "basic.reject", delivery_tag = message.delivery_tag, requeue = false }
  channel.client:flush()
  until_true(function ()
    channel, message = get(queue)
    channel.client:close()
    return message.properties.headers["x-death"] ~= nil
  end)
  until_true(function () return client.shared():message_count(queue) == 1 end)
end

return movers
