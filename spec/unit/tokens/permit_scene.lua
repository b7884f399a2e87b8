-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Permits of "images", acquired.
local assert = require "luassert"
local Peer = require "spec.support.peer"
local frames = require "spec.support.frames"

local scene = {}

scene.QUEUE = "images.semaphore"
scene.NO_QUEUE = "NOT_FOUND - no queue 'images.semaphore' in vhost '/'"

--- A peer whose prober nobody has connected, and nobody should ever want to.
function scene.open(settings, limits)
  local peer = Peer.new(settings)
  peer.limits = limits
  peer.holder:handshake(limits)
  return peer
end

--- One of the session's token semaphores: has acquire(). Its permits are held on the link `holder` of the peer: for a
-- quorum semaphore, that is the link of quorum queues from now on.
function scene.semaphore(peer, quorum, options)
  local given = { queue_type = quorum and "quorum" or nil }
  for key, value in pairs(options or {}) do given[key] = value end
  if quorum then peer.holder = peer.quorum end
  return peer:token_semaphore("images", given)
end

--- The core consumes, on a link and a channel that it may have to open. Returns { channel =, tag =, consume =,
-- is_new = }.
function scene.consumes(peer)
  local holder = peer.holder
  if holder:due() then holder:handshake(peer.limits) end
  local opened = holder:next() == "channel.open" and holder:opened()
  if opened or holder:next() == "basic.qos" then -- once for each channel
    local qos = holder:expect("basic.qos", { prefetch_count = 1, global = false })
    if opened then assert.equal(opened, qos.channel) end
    holder:send{ channel = qos.channel, method = "basic.qos-ok" }
  end
  local consume = holder:expect("basic.consume", { queue = scene.QUEUE, no_ack = false, exclusive = false,
    no_wait = false })
  if opened then assert.equal(opened, consume.channel) end
  return { channel = consume.channel, tag = consume.consumer_tag, consume = consume, is_new = opened }
end

function scene.welcome(peer, taker) peer.holder:consumed(taker) end

local deliveries = 0

--- A message as it comes from the queue, and its delivery tag. Anything is a permit, also what has no type and no id.
function scene.message(taker, properties, redelivered)
  deliveries = deliveries + 1
  return frames.encode_content({ channel = taker.channel, method = "basic.deliver", consumer_tag = taker.tag,
    delivery_tag = deliveries, redelivered = redelivered or false, exchange = "", routing_key = scene.QUEUE },
    properties or { delivery_mode = 2 }, ""), deliveries
end

--- A message comes. Returns its delivery tag.
function scene.deliver(peer, taker, properties, redelivered)
  local message, delivery = scene.message(taker, properties, redelivered)
  peer.holder:send(message)
  return delivery
end

--- The core asks whether a permit lies ready: for nothing, on the consumer's channel.
function scene.asks(peer, taker)
  peer.holder:expect("basic.qos", { channel = taker.channel, prefetch_count = 1, global = false })
  peer.holder:silent()
end

--- The core looks whether the queue is there, on another channel than the consumer's. Returns it.
function scene.looks(peer, taker)
  local opened = peer.holder:next() == "channel.open" and peer.holder:opened()
  local look = peer.holder:expect("queue.declare", { queue = scene.QUEUE, passive = true })
  if opened then assert.equal(opened, look.channel) end
  assert.are_not.equal(taker.channel, look.channel)
  peer.holder:silent()
  return look.channel, opened
end

function scene.answer(peer, taker) peer.holder:send{ channel = taker.channel, method = "basic.qos-ok" } end

--- The core gives a message back, and stops consuming first.
function scene.gives_back(peer, taker, delivery)
  peer.holder:expect("basic.cancel", { channel = taker.channel, consumer_tag = taker.tag, no_wait = true })
  scene.nacks(peer, taker, delivery)
end

function scene.nacks(peer, taker, delivery)
  peer.holder:expect("basic.nack", { channel = taker.channel, delivery_tag = delivery, requeue = true,
    multiple = false })
end

--- The core stops consuming, and wants an answer.
function scene.cancels(peer, taker)
  peer.holder:expect("basic.cancel", { channel = taker.channel, consumer_tag = taker.tag, no_wait = false })
end

function scene.cancelled(peer, taker)
  peer.holder:send{ channel = taker.channel, method = "basic.cancel-ok", consumer_tag = taker.tag }
end

--- The broker cancels the consumer: the queue is gone.
function scene.notice(peer, taker, tag)
  peer.holder:send{ channel = taker.channel, method = "basic.cancel", consumer_tag = tag or taker.tag, no_wait = true }
end

--- An acquire that has consumed and was welcome, and has asked. Returns op, taker.
function scene.asking(peer, ...)
  local op = scene.semaphore(peer):acquire(...)
  local taker = scene.consumes(peer)
  scene.welcome(peer, taker)
  scene.asks(peer, taker)
  return op, taker
end

--- One that waits. Returns op, taker.
function scene.waiting(peer, ...)
  local op, taker = scene.asking(peer, ...)
  scene.answer(peer, taker)
  peer.holder:silent()
  assert.is_false(op:done())
  return op, taker
end

--- One that has got a permit. Returns lock, taker, delivery tag.
function scene.holding(peer)
  local op, taker = scene.asking(peer, 0)
  local delivery = scene.deliver(peer, taker)
  local lock = peer:result(op)
  scene.answer(peer, taker)
  return lock, taker, delivery
end

return scene
