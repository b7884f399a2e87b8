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
    it("is held when B is ours and A is there, in either order", function ()
      for _, first in ipairs{ "B", "A" } do
        holds()
        local op, probes = verifying()
        if first == "A" then peer.prober:answer(probes, { "images-1-A" }) end
        peer.holder:declared(claim.channel, "images-1-B")
        if first == "B" then
          assert.is_false(op:done())
          peer.prober:answer(probes, { "images-1-A" })
        end
        assert.is_true(peer:result(op))
        assert.is_true(lock:held())
        peer.holder:silent()
      end
    end)

    for reply, text in pairs{ [404] = "NOT_FOUND - no queue 'images-1-B'", [405] = "RESOURCE_LOCKED - another's" } do
      it(("is lost when the broker says %d of B"):format(reply), function ()
        local op = verifying()
        peer.holder:refuse(claim.channel, reply, text, "queue.declare")
        peer:failed(op, "lost", 'slot 1 of "images"', text)
        assert.equal("lost", select(3, lock:held()))
        peer.holder:delete("images-1-B", peer.holder:opened())
      end)
    end

    it("was removed when A is absent, and is held until it is released", function ()
      local op, probes = verifying()
      peer.holder:declared(claim.channel, "images-1-B")
      peer.prober:answer(probes, {})
      peer.holder:again{ "images-1-A" }
      peer:failed(op, "removed", 'slot 1 of "images"', "release it")
      assert.is_true(lock:held())
      local release = lock:release()
      peer.holder:delete("images-1-B", claim.channel)
      assert.is_true(peer:result(release))
    end)

    it("is not removed because A refuses, or is on a node that is down: only a passive declare tells that", function ()
      for _, state in ipairs{ "nack", "down" } do
        holds()
        local op, probes = verifying()
        peer.prober:answer(probes, { ["images-1-A"] = state })
        peer.holder:declared(claim.channel, "images-1-B")
        if state == "down" then peer.holder:again({ "images-1-A" }, { ["images-1-A"] = "down" }) end
        assert.is_true(peer:result(op))
        assert.is_true(lock:held())
      end
    end)

    -- What is told of A and B. A is asked for by a passive declare when the probe says that it is absent.
    for what, tells in pairs{
      ["B"] = function (probes) peer.prober:answer(probes, { "images-1-A" }) end,
      ["A"] = function (probes)
        peer.holder:declared(claim.channel, "images-1-B")
        peer.prober:answer(probes, {})
        peer.holder:opened()
        peer.holder:expect("queue.declare", { queue = "images-1-A", passive = true })
      end,
      ["A, as the prober is lost"] = function ()
        peer.holder:declared(claim.channel, "images-1-B")
        peer.prober:down("within 5 s it is timed out")
      end,
    } do
      it("without an answer about " .. what .. " is unreachable, and held", function ()
        local op, probes = verifying()
        tells(probes)
        peer:pass(5)
        peer:failed(op, "unreachable", "within 5 s")
        assert.is_true(lock:held())
      end)
    end

    it("opens the prober if need be", function ()
      peer.prober:down()
      local op = lock:verify()
      peer.holder:silent()
      peer.prober:handshake()
      peer.holder:expect("queue.declare", { passive = true })
      peer.holder:declared(claim.channel, "images-1-B")
      peer.prober:look{ "images-1-A" }
      assert.is_true(peer:result(op))
    end)

    it("asks for A on the holder during an alarm, on another channel than the lock's", function ()
      peer.prober:send{ channel = 0, method = "connection.blocked", reason = "low on disk" }
      local verify = lock:verify()
      peer.holder:expect("queue.declare", { channel = claim.channel, queue = "images-1-B", passive = true })
      local other = peer.holder:opened()
      peer.holder:expect("queue.declare", { channel = other, queue = "images-1-A", passive = true })
      peer.holder:declared(claim.channel, "images-1-B")
      peer.holder:refuse(other, 404, "NOT_FOUND - no queue 'images-1-A' in vhost '/'", "queue.declare")
      peer:failed(verify, "removed")
      assert.is_true(lock:held())
      peer.prober:silent()
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
      local verify, probes = verifying()
      local release = lock:release()
      peer.holder:expect("queue.delete")
      peer.holder:declared(claim.channel, "images-1-B")
      peer.holder:deleted(claim.channel)
      peer.prober:answer(probes, { "images-1-A" })
      assert.is_true(peer:result(release))
      peer:failed(verify, "not_held")
    end)

    it("after its release is not held, after its loss lost, and asks nothing", function ()
      lock:release()
      peer.holder:delete("images-1-B", claim.channel)
      peer:failed(lock:verify(), "not_held", "was released before")
      local other, lost = peer:acquire("images")
      peer.holder:send{ channel = lost.channel, method = "basic.cancel", consumer_tag = lost.tag }
      peer.holder:expect("channel.close")
      peer:failed(other:verify(), "lost", "deleted, but not by this client")
      peer.holder:silent()
      peer.prober:silent()
    end)
  end)

  describe("released", function ()
    it("again, before or after the answer, is not held, and writes nothing", function ()
      local op = lock:release()
      assert.equal("not_held", select(3, lock:held()))
      peer:failed(lock:release(), "not_held")
      peer.holder:delete("images-1-B", claim.channel)
      assert.is_true(peer:result(op))
      peer:failed(lock:release(), "not_held", 'slot 1 of "images"')
      peer.holder:silent()
    end)

    it("after its loss is lost, once; then it is not held", function ()
      peer.holder:down("timed out")
      peer:failed(lock:release(), "lost", 'slot 1 of "images"', "timed out")
      peer:failed(lock:release(), "not_held")
      assert.equal("not_held", select(3, lock:held()))
      assert.is_false(peer.holder:wanted())
    end)
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
