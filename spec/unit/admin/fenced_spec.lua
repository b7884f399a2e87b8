-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Administrators that see to the fence of a semaphore, from which its fencing tokens are drawn.
local fences = require "spec.unit.acquire.fence_scene"
local Peer = require "spec.support.peer"
local scene = require "spec.unit.admin.admin_scene"

local FENCE = "images-fence"
local FENCED = { fenced = true }

local slots, declares, gives = scene.slots, scene.declares, scene.gives

describe("an administrator of a fenced semaphore", function ()
  local peer, fence

  before_each(function ()
    peer = Peer.open()
    fence = fences.of(peer, FENCE)
  end)

  -- An action under way that has the mutex, and knows that these slots exist. Returns op, mutex.
  local function begin(action, amount, exists) return scene.begin(peer, action, amount, FENCED, exists) end

  it("makes the fence before the first slot, while it has the mutex", function ()
    local op, mutex = begin("create", 2, {})
    fence.connects(peer.fence)
    fence.is_absent()
    fence.is_made()
    peer.holder:silent()
    fence.draws(fences.TRIES)
    declares(peer, mutex, slots(1, 2), false)
    gives(peer, op, mutex, 2)
  end)

  it("does nothing with the fence where it makes no semaphore", function ()
    local op, mutex = begin("add", 1, slots(1))
    declares(peer, mutex, slots(2))
    gives(peer, op, mutex, 2)
    assert.is_false(peer.fence:wanted())
  end)

  it("that repairs makes a fence anew that has lost its message", function ()
    local function empty(link) link:send{ channel = fence.peeks(link), method = "basic.get-empty" } end
    local op, mutex = begin("repair", nil, slots(1))
    fence.connects(peer.fence)
    local began = peer.now
    peer:live(10, function ()
      if peer.fence:next() ~= "nothing" then empty(peer.fence) end
      return op:done() or peer.maker:wanted()
    end)
    assert.is_true(peer.now - began >= 2.5) -- the message may be with another client
    fence.enters()
    fence.looks(true)
    empty(peer.maker)
    peer.maker:delete(FENCE)
    fence.confirm((fence.publishes()))
    fence.finishes()
    fence.draws(fences.TRIES)
    declares(peer, mutex, {}, 1, 0)
    gives(peer, op, mutex, 1)
  end)

  it("that repairs makes a fence anew whose numbers are smaller than those seen before", function ()
    local op, mutex = begin("repair", nil, slots(1))
    fence.connects(peer.fence)
    fence.draws(50)
    declares(peer, mutex, {}, 1, 0)
    gives(peer, op, mutex, 1)
    op, mutex = begin("repair", nil, slots(1))
    fence.draws(9)
    fence.enters()
    fence.looks(true)
    fence.draws(10, peer.maker)
    peer.maker:delete(FENCE)
    local channel, base = fence.publishes()
    assert.is_true(base > fences.BASE + 50)
    fence.confirm(channel)
    fence.finishes()
    fence.draws(60)
    declares(peer, mutex, {}, 1, 0)
    gives(peer, op, mutex, 1)
  end)

  -- The fence is being made for a first slot, and its message is not confirmed. Returns op, mutex.
  local function makes_fence()
    local op, mutex = begin("create", 1, {})
    fence.connects(peer.fence)
    fence.is_absent()
    fence.enters()
    fence.looks(false)
    fence.publishes()
    return op, mutex
  end

  it("where the fence cannot be had, changes nothing: blocked", function ()
    local op, mutex = makes_fence()
    peer.maker:send{ channel = 0, method = "connection.blocked", reason = "memory" }
    scene.fails(peer, op, mutex, "blocked", FENCE)
  end)

  it("where the fence cannot be had, changes nothing: lost, as the mutex was", function ()
    local op, mutex = makes_fence()
    peer.holder:cancelled(mutex)
    peer:failed(op, "lost")
    assert.equal("down", peer.maker:state())
  end)
end)
