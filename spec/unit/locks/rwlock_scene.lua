-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The mutex and the readers–writer lock called "db", the clients that claim them, and the clients that wait at the
-- bell that they declare: for the specs of mutexes, readers, writers and their bell.
local assert = require "luassert"
local frames = require "spec.support.frames"
local Peer = require "spec.support.peer"

local unpack = table.unpack or unpack

local scene = {}

scene.LOCKED = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'db-writer' in vhost '/'"
scene.DENIED = "ACCESS_REFUSED - access refused"

--- A session whose links are open, and its "mutex" or "rwlock". Returns both.
function scene.open(what, settings, options, limits)
  local peer = Peer.open(settings, limits)
  return peer, peer[what](peer, "db", options)
end

--- The broker reads no publishers any more.
function scene.alarm(peer)
  peer.prober:send{ channel = 0, method = "connection.blocked", reason = "memory" }
end

--- The core asks whether `queue`, a gate, is there, which it does not answer yet. `waits`: with the word that somebody
-- waits. Returns the probe.
function scene.asks(peer, queue, waits)
  local probes = peer.prober:probes()
  assert.same({ 1, queue, waits and "amqplocks.waiting" or nil },
    { #probes, probes[1].queue, probes[1].properties.type })
  peer.prober:silent()
  return probes[1]
end

--- The core asks, and the gate is "free", or "held" by somebody.
function scene.looks(peer, queue, state, waits)
  local probe = scene.asks(peer, queue, waits)
  peer.prober:answer({ probe }, state == "held" and { queue } or {})
end

--- The core asks by a passive declare, whether what holds the gate is a true lock: it is, or (is_free) nothing does.
function scene.is_no_squatter(peer, queue, is_free)
  if peer.holder:next() == "channel.open" then peer.holder:opened() end
  local look = peer.holder:expect("queue.declare", { queue = queue, passive = true })
  local text = is_free and ("NOT_FOUND - no queue '%s' in vhost '/'"):format(queue) or "RESOURCE_LOCKED"
  peer.holder:refuse(look.channel, is_free and 404 or 405, text, "queue.declare")
end

--- The core asks that of all queues that it takes for held: one of them is a true lock.
function scene.no_squatters(peer)
  local channel = peer.holder:next() == "channel.open" and peer.holder:opened()
  while peer.holder:next() == "queue.declare" do
    channel = peer.holder:expect("queue.declare", { passive = true }).channel
  end
  peer.holder:refuse(channel, 405, "RESOURCE_LOCKED", "queue.declare")
end

--- The core finds the gate held, by a true lock.
function scene.finds_held(peer, queue, waits)
  scene.looks(peer, queue, "held", waits)
  scene.is_no_squatter(peer, queue)
end

--- The core claims a gate. Returns a claim with the replies it waits for, as RabbitMQ orders them.
function scene.claim(peer, queue)
  local claim = peer.holder:claim(queue)
  claim.replies = { "declared", "consumed" }
  return claim
end

--- The core claims a reader's queue, binds it, and (unless told) goes through the door, and asks for its bolt if the
-- link bolts it. The lock is called `name`, "db" unless told.
function scene.reader(peer, has_no_door, name)
  name = name or "db"
  local opened = peer.holder:next() == "channel.open" and peer.holder:opened()
  local declare = peer.holder:expect("queue.declare", { passive = false, exclusive = true, auto_delete = true,
    durable = false })
  local channel, queue = declare.channel, declare.queue
  if opened then assert.equal(opened, channel) end
  local consume = peer.holder:expect("basic.consume", { channel = channel, queue = queue, no_ack = true })
  assert.equal(name .. "-reader-" .. consume.consumer_tag, queue)
  peer.holder:expect("queue.bind", { channel = channel, queue = queue, exchange = "amq.direct",
    routing_key = name .. "-readers", no_wait = false })
  if not has_no_door then
    peer.holder:expect("queue.delete", { channel = channel, queue = name .. "-writer", if_unused = true,
      if_empty = true, no_wait = false })
  end
  local bolt
  if peer.holder:bolts(name .. "-writer") and not has_no_door then
    local declare_bolt = peer.holder:declares_bolt(name .. "-writer", false)
    assert.equal(channel, declare_bolt.channel)
    bolt = declare_bolt.queue
  end
  peer.holder:silent()
  return { channel = channel, tag = consume.consumer_tag, queue = queue, declare = declare, looks = {},
    bolt = bolt, replies = has_no_door and { "declared", "bound", "consumed" }
      or bolt and { "declared", "bound", "through", "unbolted", "consumed" }
      or { "declared", "bound", "through", "consumed" } }
end

--- The broker gives one of the replies to a claim.
function scene.reply(peer, claim, reply)
  local holder = peer.holder
  if reply == "declared" then holder:declared(claim.channel, claim.queue) end
  if reply == "bound" then holder:send{ channel = claim.channel, method = "queue.bind-ok" } end
  if reply == "through" then holder:deleted(claim.channel) end
  if reply == "unbolted" then holder:declared(claim.channel, claim.bolt) end
  if reply == "consumed" then holder:consumed(claim) end
end

--- The replies number `first` to `last`, or all.
function scene.replies(peer, claim, first, last)
  for i = first or 1, last or #claim.replies do scene.reply(peer, claim, claim.replies[i]) end
end

--- The core claims a gate, and is granted it. Returns the claim.
function scene.is_granted(peer, queue)
  local claim = scene.claim(peer, queue)
  scene.replies(peer, claim)
  return claim
end

--- The core finds the gate free, and claims it. Returns the claim.
function scene.claims(peer, queue)
  scene.looks(peer, queue, "free")
  return scene.claim(peer, queue)
end

--- The core finds the gate free, and is granted it. Returns the claim.
function scene.shuts(peer, queue, waits)
  scene.looks(peer, queue, "free", waits)
  return scene.is_granted(peer, queue)
end

--- The queue that is claimed tells whose it is, and since when.
function scene.is_signed(claim, holder)
  assert.same({ ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head",
    ["x-amqplocks-ticket"] = claim.tag, ["x-amqplocks-holder"] = holder,
    ["x-amqplocks-acquired-at"] = 1700001000 }, claim.declare.arguments)
end

--- The operation has its lock, which tells what it is.
function scene.has(peer, op, claim, kind)
  local lock = peer:result(op)
  assert.is_true(lock:held())
  assert.same({ nil, "db", claim.tag, 1700001000, kind }, { lock:info() })
  peer:silent()
end

function scene.is_late(peer, claim) peer.holder:refuse(claim.channel, 405, scene.LOCKED, "queue.declare") end

--- The core deletes a claim's queue on the claim's channel, or another one, which is not answered yet. Returns the
-- channel.
function scene.deletes(peer, claim, channel)
  channel = channel or claim.channel
  peer.holder:expect("queue.delete", { queue = claim.queue, channel = channel, if_unused = false, if_empty = false })
  return channel
end

--- The core deletes a claim's queue, and when it is gone, no sooner, rings `bell`.
function scene.goes(peer, claim, bell, channel)
  channel = scene.deletes(peer, claim, channel)
  peer:silent()
  peer.holder:deleted(channel)
  scene.rings(peer, bell)
  peer:silent()
end

--- All orders of a list.
function scene.orders(list)
  if #list == 0 then return { {} } end
  local all = {}
  for i, first in ipairs(list) do
    local rest = { unpack(list) }
    table.remove(rest, i)
    for _, order in ipairs(scene.orders(rest)) do table.insert(all, { first, unpack(order) }) end
  end
  return all
end

--- Somebody deletes a claim's queue, and the core closes its channel.
function scene.is_robbed(peer, claim)
  peer.holder:cancelled(claim)
  peer.holder:closes(claim.channel)
end

--- A message arrives in a claim's queue: "amqplocks.token", "amqplocks.waiting", "amqplocks.revoke".
function scene.tell(peer, claim, type)
  peer.holder:send(frames.encode_content({ channel = claim.channel, method = "basic.deliver",
    consumer_tag = claim.tag, delivery_tag = 1, exchange = "", routing_key = claim.queue }, { type = type }, ""))
end

--- The core asks who reads, and whether what nobody can be bound with goes anywhere; and, if it is sure by now, whether
-- the `door` is still there, which is not answered yet. Returns the probes.
function scene.counts(peer, door)
  if door then
    peer.holder:expect("queue.declare", { queue = door.queue, passive = true, channel = door.channel })
  end
  peer.holder:silent()
  local probes = peer.prober:probes("amq.direct")
  assert.equal(2, #probes)
  assert.equal("db-readers", probes[1].queue)
  assert.matches("^db%-scratch%-%x+$", probes[2].queue)
  peer.prober:silent()
  return probes
end

--- The core counts, and somebody reads, or ("nack") may do so still, or (nil) nobody; the `door` is still there.
function scene.count(peer, somebody, door)
  local probes = scene.counts(peer, door)
  if door then peer.holder:declared(door.channel, door.queue) end
  peer.prober:answer(probes, somebody == "nack" and { ["db-readers"] = "nack" } or somebody and { "db-readers" } or {})
end

function scene.makes_sure(peer, door, somebody)
  peer.prober:barrier()
  scene.count(peer, somebody, door)
end

--- The core makes sure that nobody reads. Returns the lock.
function scene.writes(peer, op, door)
  scene.makes_sure(peer, door)
  return peer:result(op)
end

--- The core makes the bell `queue` and consumes from it on a channel of its own. Returns { channel, tag, queue }.
function scene.makes_bell(peer, queue, priority)
  local holder = peer.holder
  local opened = holder:next() == "channel.open" and holder:opened()
  local qos = holder:next() == "basic.qos" and holder:expect("basic.qos", { prefetch_count = 1, global = false })
  if qos then holder:send{ channel = qos.channel, method = "basic.qos-ok" } end
  local declare = holder:expect("queue.declare", { queue = queue, durable = true, exclusive = false,
    auto_delete = false, passive = false, no_wait = false, arguments = { ["x-queue-type"] = "classic",
      ["x-expires"] = 60000, ["x-max-length"] = 1, ["x-overflow"] = "drop-head" } })
  if opened then assert.equal(opened, declare.channel) end
  local consume = holder:expect("basic.consume", { channel = declare.channel, queue = queue, no_ack = false,
    exclusive = false, no_wait = false })
  local _, arguments = peer:signed(consume.arguments)
  assert.same(priority and { ["x-priority"] = priority } or {}, arguments)
  return { channel = declare.channel, tag = consume.consumer_tag, queue = queue }
end

--- Others were at the bell before, unless it `is_first`.
function scene.welcome(peer, bell, is_first)
  peer.holder:send{ channel = bell.channel, method = "queue.declare-ok", queue = bell.queue,
    consumer_count = is_first and 0 or 1 }
  peer.holder:consumed(bell)
end

local tags = 0

--- A token, or something else, is delivered from the bell. Returns its tag.
function scene.deliver(peer, bell, properties)
  tags = tags + 1
  peer.holder:send(frames.encode_content({ channel = bell.channel, method = "basic.deliver", consumer_tag = bell.tag,
    delivery_tag = tags, redelivered = false, exchange = "", routing_key = bell.queue },
    properties or { type = "amqplocks.token", delivery_mode = 2 }, ""))
  return tags
end

--- The core stops consuming, and is told that nothing more will come.
function scene.cancels(peer, bell)
  peer.holder:expect("basic.cancel", { channel = bell.channel, consumer_tag = bell.tag, no_wait = false })
  peer.holder:send{ channel = bell.channel, method = "basic.cancel-ok", consumer_tag = bell.tag }
end

--- The core gives the token back that it has.
function scene.returns(peer, bell, token)
  peer.holder:expect("basic.cancel", { channel = bell.channel, consumer_tag = bell.tag, no_wait = true })
  peer.holder:expect("basic.nack", { channel = bell.channel, delivery_tag = token, requeue = true, multiple = false })
end

--- The core publishes a token to each of these queues, in this order, which are there or not.
function scene.rings(peer, ...)
  local probes, names = peer.prober:probes(), {}
  for i, probe in ipairs(probes) do
    names[i] = probe.queue
    assert.same({ "amqplocks.token", 2 }, { probe.properties.type, probe.properties.delivery_mode })
  end
  assert.same({ ... }, names)
  peer.prober:answer(probes, {})
end

--- Every channel of the holder is in the pool, or free: as many locks as it has ever had channels need no other one.
function scene.all_channels_are_back(peer)
  local most = peer.holder.most
  for i = 1, most do
    local _, claim = peer:acquire("other" .. i)
    assert.is_true(claim.channel <= most, ("channel %d of %d never came back"):format(claim.channel, most))
  end
end

return scene
