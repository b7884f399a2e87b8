-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"

describe("a lock", function ()
  local peer, lock, claim

  local function holds()
    peer = Peer.open()
    lock, claim = peer:acquire("images")
  end

  before_each(holds)

  -- A lock being verified: B is asked for on the lock's own channel, A on the prober. Returns op, probes.
  local function verifying()
    local op = lock:verify()
    peer.holder:expect("queue.declare", { channel = claim.channel, queue = "images-1-B", passive = true })
    peer.holder:silent()
    local probes = peer.prober:probes()
    assert.same({ 1, "images-1-A" }, { #probes, probes[1].queue })
    peer.prober:silent()
    return op, probes
  end

  describe("verified", function ()
    it("is held when B is ours and A is there, in either order, or refuses", function ()
      local there = { "images-1-A" }
      for _, case in ipairs{ { "B", there }, { "A", there }, { "A", { ["images-1-A"] = "nack" } } } do
        holds()
        local op, probes = verifying()
        if case[1] == "A" then peer.prober:answer(probes, case[2]) end
        peer.holder:declared(claim.channel, "images-1-B")
        if case[1] == "B" then
          assert.is_false(op:done())
          peer.prober:answer(probes, case[2])
        end
        assert.is_true(peer:result(op))
        assert.is_true(lock:held())
        peer.holder:silent()
      end
    end)

    it("is lost when B is absent, and its slot is claimed anew at once", function ()
      local op = verifying()
      peer.holder:refuse(claim.channel, 404, "NOT_FOUND - no queue", "queue.declare")
      peer:failed(op, "lost", "NOT_FOUND")
      assert.is_true(peer:acquire("images"):held())
    end)

    it("opens the prober if need be", function ()
      peer.prober:down()
      local op = lock:verify()
      peer.holder:silent()
      peer.prober:handshake()
      peer.holder:declared(claim.channel, "images-1-B")
      peer.prober:look{ "images-1-A" }
      assert.is_true(peer:result(op))
    end)

    it("was removed when A is absent, and is held until it is released", function ()
      local op, probes = verifying()
      peer.holder:declared(claim.channel, "images-1-B")
      peer.prober:answer(probes, {})
      peer:failed(op, "removed", 'slot 1 of "images"', "release it")
      assert.is_true(lock:held())
    end)

    it("without an answer about A or B is unreachable, and held", function ()
      for _, told in ipairs{ "A", "B" } do
        holds()
        local op, probes = verifying()
        if told == "A" then
          peer.prober:answer(probes, { "images-1-A" })
        else
          peer.holder:declared(claim.channel, "images-1-B")
          peer.prober:down("timed out")
        end
        peer:pass(5)
        peer:failed(op, "unreachable", told == "A" and "within 5 s" or "timed out")
        assert.is_true(lock:held())
      end
    end)

    it("once more after one that was abandoned, waits for its own answer", function ()
      verifying():drop()
      local op, probes = verifying()
      peer.prober:answer(probes, { "images-1-A" })
      peer.holder:declared(claim.channel, "images-1-B")
      assert.is_false(op:done())
      peer.holder:declared(claim.channel, "images-1-B")
      assert.is_true(peer:result(op))
    end)

    it("while it is released is not held", function ()
      local verify = verifying()
      lock:release()
      peer.holder:declared(claim.channel, "images-1-B")
      peer:failed(verify, "not_held")
    end)
  end)

  it("released again, before or after the answer, is not held, and writes nothing", function ()
    local op = lock:release()
    peer:failed(lock:release(), "not_held")
    peer.holder:delete("images-1-B", claim.channel)
    assert.is_true(peer:result(op))
    peer:failed(lock:release(), "not_held", 'slot 1 of "images"')
    peer.holder:silent()
  end)

  it("given back is released, and is no lock any more", function ()
    lock:drop()
    peer.holder:delete("images-1-B", claim.channel)
    lock:drop()
    for _, method in ipairs{ "held", "info", "verify", "release" } do
      assert.error_matches(function () lock[method](lock) end, "the lock was freed")
    end
  end)
end)
