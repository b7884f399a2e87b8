-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- How claims end: the rest of the state table in src/core/session/claim.h.

local Peer = require "spec.support.peer"
local scene = require "spec.unit.session.claim_scene"

local DENIED = scene.DENIED
local claiming, assert_free, assert_taken = scene.claiming, scene.assert_free, scene.assert_taken

describe("a claim", function ()
  local peer

  before_each(function () peer = Peer.open() end)

  it("HELD is lost and UNDOING when the broker closes its channel", function ()
    local lock, claim = peer:acquire("images")
    peer.holder:refuse(claim.channel, 406, "PRECONDITION_FAILED - consumer ack timed out")
    local held, message, code = lock:held()
    assert.same({ false, "lost" }, { held, code })
    assert.matches("consumer ack timed out", message)
    local channel = scene.undoes(peer)
    assert_taken(peer)
    peer.holder:deleted(channel)
    assert_free(peer)
    assert.is_false(lock:held())
  end)

  describe("RELEASING", function ()
    local function releasing()
      local lock, claim = peer:acquire("images")
      local op = lock:release()
      peer.holder:expect("queue.delete", { channel = claim.channel, queue = "images-1-B", if_unused = false,
        if_empty = false })
      peer.holder:silent()
      return op, claim
    end

    -- RabbitMQ says delete-ok before the queue has ended. Until then its channel would cancel what consumes there by
    -- the same name; and whoever stops consuming may let it end, and take its namesake along.
    it("is told of its consumer's end once, and of no other's", function ()
      local op, claim = releasing()
      peer.holder:deleted(claim.channel, true)
      assert.is_true(peer:result(op))
      peer.holder:cancelled{ channel = claim.channel, tag = claim.tag:sub(1, -2) }
      assert.are_not.equal(claim.channel, select(2, peer:acquire("others")).channel)
      for _ = 1, 2 do peer.holder:cancelled(claim) end
      local again, other = peer:acquire("images")
      assert.equal(claim.channel, other.channel)
      peer.holder:cancelled(claim)
      assert.is_true(again:held())
      assert.are_not.equal(claim.channel, select(2, peer:acquire("more")).channel)
    end)

    it("unanswered is unreachable, and stays RELEASING", function ()
      local op, claim = releasing()
      peer:fails_after(5, op, "unreachable", "within 5 s")
      assert_taken(peer)
      peer.holder:deleted(claim.channel)
      assert_free(peer)
    end)
  end)

  describe("UNDOING", function ()
    local function undoing(limits)
      if limits then peer = Peer.open(nil, limits) end
      local _, claim = claiming(peer)
      peer.holder:declared(claim.channel, "images-1-B")
      peer.holder:refuse(claim.channel, 403, DENIED, "basic.consume")
      return scene.undoes(peer)
    end

    it("is GONE when the deletion is refused, as it is going away, or is another's by now", function ()
      for _, reply in ipairs{ 404, 405 } do
        peer = Peer.open()
        peer.holder:refuse(undoing(), reply, "no", "queue.delete")
        assert_free(peer)
      end
    end)

    it("deletes it by a third channel when the broker closes the second for reasons of its own", function ()
      local channel = undoing()
      peer.holder:refuse(channel, 406, "PRECONDITION_FAILED - a delivery was not acknowledged")
      assert_taken(peer)
      peer:live(0.1)
      peer.holder:deleted(scene.undoes(peer))
      assert_free(peer)
    end)

    it("deletes it as soon as there is a channel again", function ()
      local channel = undoing{ channel_max = 1 }
      peer.holder:refuse(channel, 406, "PRECONDITION_FAILED - a delivery was not acknowledged")
      local lock, other = peer:acquire("others")
      peer:live(1)
      peer.holder:silent()
      assert.is_true(peer:tick() > 1)
      lock:release()
      peer.holder:delete("others-1-B", other.channel)
      peer.holder:expect("queue.delete", { channel = other.channel, queue = "images-1-B" })
      peer.holder:deleted(other.channel)
      assert_free(peer)
    end)

    it("and denied keeps the name, and looks, less and less often, until it is seen to be gone", function ()
      peer.holder:refuse(undoing(), 403, DENIED, "queue.delete")
      local last, channel = 0, nil
      for _ = 1, 8 do
        local pause = peer:tick()
        assert.is_true(pause > last and pause <= math.max(2 * 2 * last, 0.01))
        peer:pass(pause)
        channel = channel or peer.holder:opened()
        peer.holder:expect("queue.declare", { queue = "images-1-B", passive = true, channel = channel })
        peer.holder:declared(channel, "images-1-B")
        last = pause
      end
      assert_taken(peer)
      peer:live(60)
      peer.holder:expect("queue.declare", { queue = "images-1-B", passive = true, channel = channel })
      peer.holder:ignore() -- heartbeats
      peer.prober:ignore()
      peer.holder:refuse(channel, 404, "NOT_FOUND - no queue", "queue.declare")
      assert_free(peer)
    end)
  end)
end)
