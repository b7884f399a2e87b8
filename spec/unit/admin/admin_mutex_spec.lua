-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The mutex that lets one administrator work at a time. Administrators of slots and of permits take it in the same way.
local Peer = require "spec.support.peer"
local scene = require "spec.unit.admin.admin_scene"

local MUTEX = "images-admin"

describe("the administration mutex", function ()
  local peer

  before_each(function () peer = Peer.open() end)

  local function create(options) return peer.session:administer("create", "images", options or {}, 1) end
  local function claim() return peer.holder:claim(MUTEX) end
  local function is_anothers(try) peer.holder:refuse(try.channel, 405, "RESOURCE_LOCKED", "queue.declare") end

  it("that another administrator keeps is tried seldom in the end, until the deadline", function ()
    local op, looks = create{ timeout = 3 }, 0
    is_anothers(claim())
    is_anothers(peer.holder:expect("queue.declare", { passive = true, queue = MUTEX, channel = peer.holder:opened() }))
    peer:live(3, function ()
      if peer.holder:next() ~= "channel.open" then return end
      is_anothers(claim())
      looks = looks + 1
    end)
    assert.is_true(looks >= 15 and looks <= 40, looks .. " looks")
    peer:failed(op, "timeout", 'another administrator was at work on "images" for all of 3 s')
    peer.holder:silent()
  end)

  it("that nobody was seen to hold is nobody's fault: when the broker says nothing", function ()
    local op = create{ timeout = 2 }
    claim()
    peer:live(2)
    peer:failed(op, "timeout", 'create of "images" took longer than 2 s')
  end)

  it("that this session holds is waited for without asking the broker", function ()
    local op, mutex = scene.begin(peer, "destroy", nil, {}, scene.slots(1))
    local second = create()
    scene.deletes(peer, mutex, scene.slots(1), true)
    peer:pass(1)
    peer.holder:expect("queue.delete", { queue = MUTEX })
    peer:pass(1)
    peer.holder:silent()
    peer.holder:deleted(mutex.channel)
    assert.is_true(peer:result(op))
    peer:pass(1)
    assert.are_not.equal(mutex.tag, claim().tag)
    assert.is_false(second:done())
  end)

  it("is tried again where it goes away under its claim, as its administrator has just died", function ()
    create()
    local mutex = claim()
    peer.holder:declared(mutex.channel, MUTEX)
    peer.holder:refuse(mutex.channel, 404, "NOT_FOUND - no queue 'images-admin' in vhost '/'", "basic.consume")
    local channel = peer.holder:opened()
    peer:pass(0.005)
    peer.holder:delete(MUTEX, channel)
    peer:pass(0.05)
    peer.holder:grant(claim())
    peer.prober:barrier()
  end)

  it("is not waited for where its node is down", function ()
    local reply = "NOT_FOUND - home node 'rabbit@other' of durable queue 'images-admin' in vhost '/' is down"
    local op = create()
    peer.holder:refuse(claim().channel, 404, reply, "queue.declare")
    peer:failed(op, "unavailable", 'the administration mutex of "images"', reply)
    peer.holder:silent()
  end)

  it("needs a channel", function ()
    peer = Peer.open(nil, { channel_max = 1 })
    peer:acquire("other")
    peer:failed(create(), "limit", "all 1 channels")
    peer.holder:silent()
  end)
end)
