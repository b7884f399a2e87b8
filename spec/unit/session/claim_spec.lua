-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The state table in src/core/session/claim.h, row by row. Acquires make the claims.

local Peer = require "spec.support.peer"
local rwlocks = require "spec.unit.locks.rwlock_scene"
local scene = require "spec.unit.session.claim_scene"

local DENIED, LOCKED = scene.DENIED, scene.LOCKED
local claiming, assert_free = scene.claiming, scene.assert_free

describe("a claim", function ()
  local peer

  local function open(settings) peer = Peer.open(settings) end

  before_each(function () open() end)

  it("declares, consumes and looks in one go, on one channel", function ()
    open{ name = "worker 7" }
    peer:pass(0.5)
    local op, claim = claiming(peer)
    peer.holder:silent()
    assert.is_false(op:done())
    assert.matches("^%x+$", claim.tag)
    assert.equal(16, #claim.tag)
    assert.same({ ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head",
      ["x-amqplocks-ticket"] = claim.tag, ["x-amqplocks-holder"] = "worker 7",
      ["x-amqplocks-acquired-at"] = 1700001000 }, claim.declare.arguments)
    assert.same({ false, false }, { claim.declare.durable, claim.declare.no_wait })
    peer.holder:grant(claim)
    local lock = peer:result(op)
    assert.same({ true }, { lock:held() })
    assert.same({ 1, "images", claim.tag, 1700001000.5, "slot" }, { lock:info() })
  end)

  describe("CLAIMING", function ()
    it("is HELD when declare-ok, consume-ok and every look are there, in any order", function ()
      for _, order in ipairs(rwlocks.orders{ "declared", "looked", "consumed" }) do
        open()
        local op, claim = claiming(peer)
        for i, reply in ipairs(order) do
          assert.is_false(op:done(), table.concat(order, ", ") .. ": too early")
          if reply == "declared" then peer.holder:declared(claim.channel, "images-1-B") end
          if reply == "looked" then peer.holder:declared(claim.channel, "images-1-A") end
          if reply == "consumed" then peer.holder:consumed(claim) end
          assert.equal(i == 3, op:done())
        end
        assert.is_true(peer:result(op):held())
        peer.holder:silent()
      end
    end)

    it("is GONE when its declare is refused: nothing to undo", function ()
      for code, refusal in pairs{ contended = { 405, LOCKED }, refused = { 403, DENIED },
        limit = { 406, "PRECONDITION_FAILED - queue limit in vhost '/' (3) is reached" },
        conflict = { 406, "PRECONDITION_FAILED - inequivalent arg" }, unreachable = { 541, "INTERNAL_ERROR" } } do
        open()
        local op, claim = claiming(peer)
        peer.holder:refuse(claim.channel, refusal[1], refusal[2], "queue.declare")
        peer:failed(op, code)
        peer.holder:silent()
        assert.are_not.equal(claim.tag, assert_free(peer).tag)
      end
    end)

    it("is UNDOING when the channel is closed for no request of ours, even before declare-ok", function ()
      -- 406: the former user of the channel had kept a message for too long.
      for reply, code in pairs{ [541] = "unreachable", [406] = "contended" } do
        open()
        local op, claim = claiming(peer)
        peer.holder:refuse(claim.channel, reply, "for no request of ours")
        peer:failed(op, code)
        peer.holder:deleted(scene.undoes(peer))
        assert_free(peer)
      end
    end)
  end)
end)
