-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"
local frames = require "spec.support.frames"

local HEARTBEAT = { channel = 0, heartbeat = true }
local CLOSE = { channel = 0, method = "connection.close", reply_code = 320,
  reply_text = "CONNECTION_FORCED - Closed via management plugin" }

-- Bytes become frames here, and in transport/foreign_message_spec, whole and byte by byte. Other specs send all frames
-- whole.

for _, way in ipairs(Peer.ways) do
  describe("a link, fed " .. way, function ()
    -- In the order in which they come, and what shows that the core has read each.
    it("reads every kind of frame", function ()
      local peer = Peer.new{ way = way }
      local opening = peer.session:open()
      peer.holder:handshake() -- start, tune, open-ok
      assert.is_true(peer:result(opening))
      local op = peer:semaphore("images"):acquire(0)
      peer.prober:handshake()
      peer.prober:look{ "images-1-A" } -- channel.open-ok, confirm.select-ok, basic.return with its header, ack
      local claim = peer.holder:claim("images-1-B", "images-1-A")
      for _, method in ipairs{ "connection.blocked", "connection.unblocked" } do
        peer.holder:send(HEARTBEAT, { channel = 0, method = method })
        assert.equal("open", peer.holder:state())
      end
      peer.holder:grant(claim) -- declare-ok, consume-ok
      local lock = peer:result(op)
      local deliver = { channel = claim.channel, method = "basic.deliver", consumer_tag = claim.tag }
      for _, size in ipairs{ 0, 1, 4096, 10000, 500000 } do
        local message = frames.encode_content(deliver, { type = "hello" }, ("x"):rep(size), 8192)
        local first = #frames.encode(deliver)
        peer.holder:send(message:sub(1, first), HEARTBEAT, message:sub(first + 1), HEARTBEAT)
      end
      peer.holder:send(frames.encode_content(deliver, { type = "amqplocks.revoke" }, ("x"):rep(10000), 4096))
      assert.is_true(lock:revoked())
      peer.holder:cancelled(claim) -- and channel.close-ok, for a channel that the core closes
      assert.equal("lost", select(3, lock:held()))
      peer.holder:closes(claim.channel)
      local _, other = peer:acquire("films")
      peer.holder:refuse(other.channel, 541, "INTERNAL_ERROR")
      peer.holder:ignore()
      peer.holder:send(CLOSE)
      assert.equal("down", peer.holder:state())
    end)

    it("ends at once, with everything on it, when the broker closes it", function ()
      local peer = Peer.open{ way = way }
      local lock = peer:acquire("images")
      peer.holder:send(CLOSE)
      assert.equal("down", peer.holder:state())
      local held, message, code = lock:held()
      assert.same({ false, "lost" }, { held, code })
      assert.matches("Closed via management plugin", message)
    end)

    it("answers the broker's close at any moment", function ()
      for _, step in ipairs{ "greeted", "tuned", "handshake" } do
        local peer = Peer.new{ way = way }
        peer.session:open()
        peer.holder[step](peer.holder)
        peer.holder:send(CLOSE)
        peer.holder:expect("connection.close-ok", { channel = 0 })
        peer.holder:silent()
      end
    end)

    local misplaced = {
      ["a method on a channel that is not open"] = { channel = 9, method = "queue.declare-ok" },
      ["a header without a message"] = { channel = 1, header = true, class = 60, size = 3 },
      ["a body without a message"] = { channel = 1, body = "abc" },
      ["a header on channel 0"] = { channel = 0, header = true, class = 60, size = 3 },
      ["a body on channel 0"] = { channel = 0, body = "abc" },
      ["another version's header"] = "\1\0\1\0\0\0\4\0\200\0\11\206",
      ["a frame without its end"] = "\8\0\0\0\0\0\0\207",
      ["a method larger than any"] = "\1\0\1\0\0\32\0",
      ["a method in the middle of a message"] = frames.encode{ channel = 1, method = "basic.return", reply_code = 312 }
        .. frames.encode{ channel = 1, method = "basic.ack", delivery_tag = 1 },
    }
    for name, frame in pairs(misplaced) do
      it("goes down by " .. name .. ": protocol", function ()
        local peer = Peer.open{ way = way }
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:probes()
        peer.prober:send(frame)
        assert.equal("down", peer.prober:state())
        peer:failed(op, "protocol")
      end)
    end

    it("goes down by more body than the header announced: protocol", function ()
      local peer = Peer.open{ way = way }
      local _, claim = peer:acquire("images")
      local deliver = { channel = claim.channel, method = "basic.deliver", consumer_tag = claim.tag }
      peer.holder:send(deliver, { channel = claim.channel, header = true, class = 60, size = 3 },
        { channel = claim.channel, body = "ab" }, { channel = claim.channel, body = "cd" })
      assert.equal("down", peer.holder:state())
    end)

    it("reads no more than it should in one turn, and wants the next one at once", function ()
      local peer = Peer.open{ way = way }
      local op = peer:semaphore("images"):acquire(0)
      local probes = peer.prober:probes()
      local said = {}
      for i = 1, 20000 do said[i] = frames.encode(HEARTBEAT) end
      for _, probe in ipairs(probes) do
        table.insert(said, peer.prober.returned(probe))
        table.insert(said, frames.encode(peer.prober.ack(probe)))
      end
      peer.session:feed("prober", table.concat(said))
      local wants = peer:tick()
      assert.is_true(op:done() or wants <= 0)
      peer:tick()
      peer:tick()
      peer.holder:absent()
      peer:failed(op, "not_found")
    end)
  end)
end
