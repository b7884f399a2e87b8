-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Administrators that see to the fence of a semaphore, from which its fencing tokens are drawn.
local fences = require "spec.unit.acquire.fence_scene"
local Peer = require "spec.support.peer"
local scene = require "spec.unit.admin.admin_scene"

local FENCE = "images-fence"
local FENCED = { fenced = true }

local slots, declares, gives, deletes = scene.slots, scene.declares, scene.gives, scene.deletes

describe("an administrator of a fenced semaphore", function ()
  local peer, fence

  before_each(function ()
    peer = Peer.open()
    fence = fences.of(peer, FENCE)
  end)

  -- An action under way that has the mutex, and knows that these slots exist. Returns op, mutex.
  local function begin(action, amount, exists, options)
    return scene.begin(peer, action, amount, options or FENCED, exists)
  end

  local function needs_no_fence()
    assert.is_false(peer.fence:wanted())
    assert.is_false(peer.maker:wanted())
  end

  -- Failed, having changed nothing, and gives the mutex back.
  local function fails(op, mutex, code, ...)
    local message = peer:failed(op, code, ...)
    assert.not_matches("resize", message)
    peer.holder:expect("queue.delete", { channel = mutex.channel, queue = "images-admin" })
    peer.holder:silent()
    assert.not_equal("open", peer.maker:state())
  end

  it("makes the fence before the first slot, while it has the mutex", function ()
    local op, mutex = begin("create", 2, {})
    fence.connects(peer.fence)
    fence.is_absent()
    fence.enters()
    fence.looks(false)
    fence.confirm((fence.publishes()))
    peer.holder:silent()
    fence.finishes()
    fence.draws(fences.TRIES)
    declares(peer, mutex, slots(1, 2), false)
    gives(peer, op, mutex, 2)
  end)

  for _, action in ipairs{ "resize", "repair" } do
    it("sees that the fence works, and leaves it as it is, in " .. action, function ()
      local op, mutex = begin(action, 2, slots(1, 2))
      fence.connects(peer.fence)
      peer.holder:silent()
      fence.draws(7)
      declares(peer, mutex, {}, 2, 0)
      gives(peer, op, mutex, 2)
      assert.is_false(peer.maker:wanted())
    end)
  end

  it("does nothing with the fence where it makes no semaphore", function ()
    local op, mutex = begin("create", 5, slots(1))
    scene.fails(peer, op, mutex, "exists")
    needs_no_fence()
    for action, amount in pairs{ resize = 0, destroy = false, add = 1 } do
      op, mutex = begin(action, amount or nil, slots(1))
      if action == "add" then declares(peer, mutex, slots(2)) else deletes(peer, mutex, slots(1), true) end
      scene.leaves(peer, mutex)
      assert.is_truthy(peer:result(op))
      needs_no_fence()
    end
  end)

  describe("that repairs", function ()
    local function is_replaced(op, mutex)
      peer.maker:delete(FENCE)
      fence.confirm((fence.publishes()))
      fence.finishes()
      fence.draws(fences.TRIES)
      declares(peer, mutex, {}, 1, 0)
      gives(peer, op, mutex, 1)
    end

    it("makes a fence anew that has lost its message, also where its maker came to its end", function ()
      local op, mutex = begin("repair", nil, slots(1))
      fence.connects(peer.fence)
      peer:live(10, function ()
        if peer.fence:next() ~= "nothing" then fence.empty(peer.fence, fence.peeks(peer.fence)) end
        return op:done() or peer.maker:wanted()
      end)
      peer.holder:ignore() -- heartbeats
      fence.enters()
      fence.looks(true)
      fence.empty(peer.maker, fence.peeks(peer.maker))
      is_replaced(op, mutex)
    end)

    it("makes a fence anew whose numbers are smaller than those seen before", function ()
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
  end)

  describe("where the fence cannot be had, changes nothing:", function ()
    it("blocked", function ()
      local op, mutex = begin("create", 1, {})
      fence.connects(peer.fence)
      fence.is_absent()
      fence.enters()
      fence.looks(false)
      fence.publishes()
      peer.maker:send{ channel = 0, method = "connection.blocked", reason = "memory" }
      fails(op, mutex, "blocked", FENCE)
    end)

    it("refused", function ()
      local op, mutex = begin("create", 1, {})
      fence.connects(peer.fence)
      peer.fence:refuse(fence.peeks(peer.fence), 403, "ACCESS_REFUSED - access refused for user 'guest'")
      fails(op, mutex, "refused", FENCE)
    end)

    it("lost, as the mutex was", function ()
      local op, mutex = begin("create", 1, {})
      fence.connects(peer.fence)
      fence.is_absent()
      fence.enters()
      fence.looks(false)
      fence.publishes()
      peer.holder:cancelled(mutex)
      peer:failed(op, "lost")
      assert.equal("down", peer.maker:state())
    end)
  end)
end)
