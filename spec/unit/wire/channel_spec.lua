-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"

describe("channels", function ()
  local peer

  before_each(function () peer = Peer.open() end)

  local function release(lock, claim)
    local op = lock:release()
    peer.holder:delete(claim.queue, claim.channel)
    assert.is_true(peer:result(op))
  end

  -- An acquire of `semaphore` as far as its claim. `peer:acquire`, in contrast, is a claim granted.
  local function claim(semaphore) return peer:claiming(semaphore, { max_attempts = 1 }) end

  it("are used again after a release, without being opened again", function ()
    local lock, first = peer:acquire("one")
    release(lock, first)
    assert.equal(first.channel, select(2, claim("new")).channel)
    peer.holder:silent()
    local op = peer:semaphore("third"):acquire(0)
    peer.prober:look{ "third-1-A" }
    assert.are_not.equal(first.channel, peer.holder:expect("channel.open").channel)
    assert.is_false(op:done())
  end)

  describe("being closed", function ()
    -- Channel 1 has been closed by the core, which was told nothing yet.
    before_each(function ()
      local lock, held = peer:acquire("images")
      peer.holder:send{ channel = 1, method = "basic.cancel", consumer_tag = held.tag }
      assert.is_false(lock:held())
      peer.holder:expect("channel.close", { channel = 1 })
    end)

    it("have what still comes on them ignored, and their number used again only after close-ok", function ()
      peer.holder:declared(1, "images-1-B")
      peer.holder:send({ channel = 1, method = "basic.deliver", consumer_tag = "x" },
        { channel = 1, header = true, class = 60, size = 2 }, { channel = 1, body = "hi" })
      assert.equal(2, select(2, claim("one")).channel)
      peer.holder:send{ channel = 1, method = "channel.close-ok" }
      assert.equal(1, select(2, claim("other")).channel)
    end)

    it("take nothing more once that is settled: protocol", function ()
      peer.holder:send{ channel = 1, method = "channel.close-ok" }
      peer.holder:send{ channel = 1, method = "basic.qos-ok" }
      assert.equal("down", peer.holder:state())
    end)
  end)

  it("closed by the broker while they lie in the pool are not used again", function ()
    local _, keep = peer:acquire("keep")
    local lock, held = peer:acquire("images")
    release(lock, held)
    peer.holder:refuse(held.channel, 541, "INTERNAL_ERROR")
    local op = peer:semaphore("other"):acquire(0)
    peer.prober:look{ "other-1-A" }
    peer.holder:expect("channel.open", { channel = held.channel })
    assert.is_false(op:done())
    assert.are_not.equal(keep.channel, held.channel)
  end)

  -- RabbitMQ up to 3.11, whose consumer timed out, says it again every minute until it has read close-ok.
  it("closed by the broker for a second time are not answered again, nor by who opens that number anew", function ()
    local lock, held = peer:acquire("keep")
    peer:semaphore("images", { bell = true }):acquire(60)
    local bell = peer.holder:opened()
    peer.holder:ignore()
    local close = { channel = bell, method = "channel.close", reply_code = 406, class_id = 0, method_id = 0,
      reply_text = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out" }
    for _ = 1, 3 do peer.holder:send(close, close) end
    peer.holder:expect("channel.close-ok", { channel = bell })
    peer.holder:silent()
    assert.is_true(lock:held())
    close.channel = held.channel
    peer.holder:send(close)
    peer.holder:expect("channel.close-ok")
    peer.holder:expect("channel.open", { channel = held.channel })
    peer.holder:expect("queue.delete")
    peer.holder:send(close)
    peer.holder:silent()
    assert.equal("open", peer.holder:state())
  end)

  it("closed by an answer that was not asked for bring the link down: protocol", function ()
    local lock, held = peer:acquire("images")
    peer.holder:send{ channel = held.channel, method = "channel.close-ok" }
    assert.equal("down", peer.holder:state())
    assert.equal("lost", select(3, lock:held()))
  end)

  describe("all in use", function ()
    it("are a limit, told at once, and nothing is written", function ()
      peer = Peer.open(nil, { channel_max = 2 })
      local one, first = peer:acquire("one")
      local other = peer:acquire("other")
      local op = peer:semaphore("images"):acquire(0)
      peer.prober:look{ "images-1-A" }
      peer:failed(op, "limit", "all 2 channels")
      peer.holder:silent()
      assert.same({ true, true }, { (one:held()), (other:held()) })
      release(one, first)
      local lock, third = peer:acquire("images")
      assert.is_true(lock:held())
      assert.equal(first.channel, third.channel)
    end)

    it("let certainty end, as there is none for the pulse", function ()
      peer = Peer.open({ heartbeat = 10 }, { channel_max = 1 })
      local lock = peer:acquire("images")
      for _ = 1, 4 do
        peer.holder:send{ channel = 0, heartbeat = true }
        peer:pass(5)
      end
      assert.equal("suspect", select(3, lock:held()))
    end)
  end)
end)
