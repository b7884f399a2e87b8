-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The state table in src/core/session/claim.h, row by row. Acquires make the claims.

local Peer = require "spec.support.peer"
local rwlocks = require "spec.unit.locks.rwlock_scene"

local DENIED = "ACCESS_REFUSED - access refused"

-- An acquire of slot 1 of "images", its only one, as far as its claim. Returns op, claim.
local function claiming(peer) return peer:claiming("images", { max_attempts = 1 }) end

-- What was made before its channel was closed is deleted on another one. Returns that channel.
local function undoes(peer)
  local channel = peer.holder:opened()
  peer.holder:expect("queue.delete", { channel = channel, queue = "images-1-B" })
  return channel
end

-- The name is free: a new acquire claims it. Returns the claim.
local function assert_free(peer) return select(2, claiming(peer)) end

-- The name is taken: a new acquire finds the only slot busy, although the broker says that B is absent.
local function assert_taken(peer)
  local op = peer:semaphore("images"):acquire(0)
  while not op:done() do peer.prober:look{ "images-1-A" } end -- two slots, and then more
  peer:failed(op, "busy")
end

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
      for code, refusal in pairs{ contended = { 405, "RESOURCE_LOCKED - cannot obtain exclusive access" },
        refused = { 403, DENIED },
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
        peer.holder:deleted(undoes(peer))
        assert_free(peer)
      end
    end)
  end)

  it("HELD is lost and UNDOING when the broker closes its channel", function ()
    local lock, claim = peer:acquire("images")
    peer.holder:refuse(claim.channel, 406, "PRECONDITION_FAILED - consumer ack timed out")
    local held, message, code = lock:held()
    assert.same({ false, "lost" }, { held, code })
    assert.matches("consumer ack timed out", message)
    local channel = undoes(peer)
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
    -- the same name; and a client that stops consuming may let it end, and take its namesake along.
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
      return undoes(peer)
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
      peer.holder:deleted(undoes(peer))
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

    it("is GONE with its connection, also while it waits to look again", function ()
      peer.holder:refuse(undoing(), 403, DENIED, "queue.delete")
      peer.holder:down()
      peer:semaphore("images", { max_attempts = 1 }):acquire(60)
      peer:pass(1)
      peer.holder:handshake()
      peer.prober:look{ "images-1-A" }
      peer:claims(1)
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
