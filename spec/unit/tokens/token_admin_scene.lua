-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The actions of an administrator of the token semaphore "images", step by step, and the peer's answers: for
-- token_admin*_spec.
local Peer = require "spec.support.peer"
local assert = require "luassert"
local frames = require "spec.support.frames"

local scene = {}

scene.PERMITS, scene.MARKS, scene.MUTEX = "images.semaphore", "images.semaphore-count", "images-tokenadmin"
scene.HIGHEST = 2147483647

--- A session whose broker is of this version.
function scene.open(version) return Peer.open(nil, { version = version }) end

local function not_found(queue) return ("NOT_FOUND - no queue '%s' in vhost '/'"):format(queue) end

-- The core looks at a queue on a scratch channel.
local function asked_for(peer, queue)
  local opened = peer.holder:next() == "channel.open" and peer.holder:opened()
  return peer.holder:expect("queue.declare", { queue = queue, passive = true, channel = opened or nil }).channel
end

--- The core looks at both queues. `seen` has the numbers of permits and of marks that lie ready, nil for a queue that
-- is not there, of consumers and of `takers`, who consume marks. `meanwhile` is called before it is answered.
function scene.looks(peer, seen, meanwhile)
  local channels = {}
  for i, queue in ipairs{ scene.PERMITS, scene.MARKS } do channels[i] = asked_for(peer, queue) end
  peer.holder:silent()
  if meanwhile then meanwhile(channels) end
  for _, i in ipairs(seen.order or { 1, 2 }) do
    local queue = i == 1 and scene.PERMITS or scene.MARKS
    local ready = i == 1 and seen.permits or i == 2 and seen.marks or nil
    if ready then
      peer.holder:send{ channel = channels[i], method = "queue.declare-ok", queue = queue, message_count = ready,
        consumer_count = (i == 1 and seen.consumers or i == 2 and seen.takers) or 0 }
    else
      peer.holder:refuse(channels[i], 404, not_found(queue), "queue.declare")
    end
  end
end

--- An action under way that has the mutex and knows what there is. Returns op, mutex.
function scene.begin(peer, action, amount, options, seen)
  local op = peer.session:administer_tokens(action, "images", options or {}, amount)
  local mutex = peer.holder:claim(scene.MUTEX)
  peer.holder:grant(mutex)
  scene.looks(peer, seen)
  return op, mutex
end

--- The core leaves the mutex, and then a collector that has thrown something away.
function scene.leaves(peer, mutex, one)
  peer.holder:delete(scene.MUTEX, mutex.channel)
  if one and one.has_thrown then one:lingers() end
  peer.holder:silent()
  peer.prober:silent()
end

--- The core asks whether it may publish at all, before it changes anything.
function scene.tries(peer)
  assert.same({ scene.MUTEX }, peer.prober:look{ scene.MUTEX })
end

-- The core publishes so many messages of a kind to a queue. Returns them.
local function published(peer, queue, count, kind)
  local messages = peer.prober:probes()
  assert.equal(count, #messages)
  for _, message in ipairs(messages) do
    assert.same({ queue, kind, 2 }, { message.queue, message.properties.type, message.properties.delivery_mode })
    assert.is_nil(message.properties.expiration)
  end
  return messages
end

function scene.publishes_marks(peer, count)
  local marks = published(peer, scene.MARKS, count, "amqplocks.mark")
  return function () peer.prober:answer(marks, { scene.MARKS }) end, marks
end

--- Every permit has an id of its own, and a base: the time in microseconds, or this number.
function scene.publishes_permits(peer, count, base)
  local permits, ids = published(peer, scene.PERMITS, count, "amqplocks.permit"), {}
  for _, permit in ipairs(permits) do
    assert.matches("^%x+$", permit.id)
    assert.equal(16, #permit.id)
    assert.is_nil(ids[permit.id])
    ids[permit.id] = true
    assert.is_true(math.abs(permit.properties.headers["x-amqplocks-base"] - (base or peer:wall() * 1e6)) < 2)
  end
  return function () peer.prober:answer(permits, { scene.PERMITS }) end, permits
end

--- The broker has no queue for a permit.
function scene.returned(permit)
  return frames.encode_content({ channel = permit.channel, method = "basic.return", reply_code = 312,
    reply_text = "NO_ROUTE", routing_key = permit.queue }, permit.properties, "")
end

--- The core declares a queue. Returns a function that says so, and its arguments.
function scene.declares(peer, mutex, queue)
  local declare = peer.holder:expect("queue.declare", { queue = queue, passive = false, durable = true,
    exclusive = false, auto_delete = false, channel = mutex.channel })
  peer.holder:silent()
  return function () peer.holder:declared(mutex.channel, queue) end, declare.arguments
end

function scene.deletes(peer, mutex, queue)
  peer.holder:expect("queue.delete", { queue = queue, channel = mutex.channel, if_unused = false, if_empty = false })
  peer.holder:silent()
  return function () peer.holder:deleted(mutex.channel) end
end

--- The core asks whether it may publish, and makes a permit that is missing, with this base.
function scene.makes_another(peer, base)
  scene.tries(peer)
  peer.prober:barrier()
  scene.publishes_permits(peer, 1, base)()
end

local collector = {}
collector.__index = collector

-- Gives the frame that begins to consume.
local function consumes(peer, queue, room, channel)
  local qos = peer.holder:expect("basic.qos", { prefetch_count = room, global = false, channel = channel })
  local consume = peer.holder:expect("basic.consume", { channel = qos.channel, queue = queue, no_ack = false,
    exclusive = false, no_wait = false, arguments = { ["x-priority"] = scene.HIGHEST } })
  peer.holder:silent()
  return consume
end

--- The core collects from a queue, with room for so many.
function scene.collects(peer, queue, room)
  local opened = peer.holder:next() == "channel.open" and peer.holder:opened()
  local consume = consumes(peer, queue, room, opened or nil)
  return setmetatable({ peer = peer, queue = queue, channel = consume.channel, tag = consume.consumer_tag,
    delivered = 0, room = room }, collector)
end

--- The core collects as many from another queue as well.
function collector:goes_on(queue)
  local consume = consumes(self.peer, queue, self.room, self.channel)
  assert.are_not.equal(self.tag, consume.consumer_tag)
  self.other, self.tag, self.queue = self.tag, consume.consumer_tag, queue
  return self
end

function collector:say(frame)
  frame.channel = self.channel
  self.peer.holder:send(frame)
end

--- The broker has it consume. Returns it.
function collector:consumes()
  self:say{ method = "basic.qos-ok" }
  self:say{ method = "basic.consume-ok", consumer_tag = self.tag }
  return self
end

--- The broker delivers a message with these properties.
function collector:deliver(properties)
  self.delivered = self.delivered + 1
  self.peer.holder:send(frames.encode_content({ channel = self.channel, method = "basic.deliver",
    consumer_tag = self.tag, delivery_tag = self.delivered, routing_key = self.queue }, properties or {}, ""))
end

function scene.permit(number, headers)
  return { message_id = ("%016x"):format(number), type = "amqplocks.permit", delivery_mode = 2, headers = headers }
end

--- The broker delivers so many different ones.
function collector:deliver_some(count)
  for _ = 1, count do self:deliver(scene.permit(self.delivered + 1)) end
end

--- The core asks how things stand, which is not answered yet.
function collector:asks()
  self.peer.holder:expect("queue.declare", { queue = self.queue, passive = true, channel = self.channel })
end

--- It is told: so many messages lie ready, so many others consume.
function collector:sees(ready, others)
  self:say{ method = "queue.declare-ok", queue = self.queue, message_count = ready, consumer_count = others + 1 }
  self.peer.holder:expect("basic.qos", { prefetch_count = self.room, channel = self.channel })
  self:say{ method = "basic.qos-ok" }
end

--- It asks and is told.
function collector:looks(ready, others)
  self:asks()
  self.peer.holder:silent()
  self:sees(ready, others)
end

--- Time passes until the core looks again.
function collector:looks_again(ready, others)
  self.peer:live(1, function () return self.peer.holder:next() ~= "nothing" end)
  self:looks(ready, others)
end

--- Time passes, so many seconds at most, and whenever the core looks, things stand like this; until it writes something
-- else. Gives how often it looked.
function collector:keeps_looking(seconds, ready, others)
  local looks, peer = 0, self.peer
  peer:live(seconds, function ()
    if peer.holder:next() == "queue.declare" then
      looks = looks + 1
      self:looks(ready, others)
    end
    return peer.holder:next() ~= "nothing" or peer.prober:next() ~= "nothing"
  end)
  return looks
end

function collector:ends(method, fields)
  if self.other then
    self.peer.holder:expect("basic.cancel", { channel = self.channel, consumer_tag = self.other, no_wait = true })
  end
  self.peer.holder:expect("basic.cancel", { channel = self.channel, consumer_tag = self.tag, no_wait = true })
  fields.channel = self.channel
  self.peer.holder:expect(method, fields)
end

function collector:closes()
  self.peer.holder:expect("channel.close", { channel = self.channel })
  self:say{ method = "channel.close-ok" }
end

-- Long enough for what was acknowledged to arrive. Until then the channel stays open.
function collector:lingers()
  self.peer:pass(0.099)
  self.peer.holder:silent()
  self.peer:pass(0.002)
  self:closes()
end

local function settles(self)
  self.peer.holder:expect("basic.qos", { channel = self.channel })
  self.peer.holder:silent()
  return function ()
    self:say{ method = "basic.qos-ok" }
    if not self.has_thrown then self:closes() end
  end
end

--- The core throws all away that it has, the last of it with this delivery tag.
function collector:acknowledges(last)
  self.has_thrown = true
  self:ends("basic.ack", { delivery_tag = last or self.delivered, multiple = true })
  return settles(self)
end

--- The core gives all back that it has.
function collector:returns()
  self:ends("basic.nack", { delivery_tag = 0, multiple = true, requeue = true })
  return settles(self)
end

--- The core throws away one that is too many.
function collector:throws(tag)
  self.has_thrown = true
  self.peer.holder:expect("basic.ack", { channel = self.channel, delivery_tag = tag, multiple = false })
end

return scene
