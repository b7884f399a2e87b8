-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Asking for a lock back, as its holder hears it.
local frames = require "spec.support.frames"
local Peer = require "spec.support.peer"

local REVOKE = "amqplocks.revoke"

local function revoke(claim, properties, body)
  return frames.encode_content({ channel = claim.channel, method = "basic.deliver", consumer_tag = claim.tag,
    delivery_tag = 1, routing_key = claim.queue }, properties or { type = REVOKE, delivery_mode = 1 }, body or "")
end

local function news(peer)
  local list = {}
  local level, text = peer.session:news()
  while level do
    if text:find("asked for", 1, true) then table.insert(list, level .. ": " .. text) end
    level, text = peer.session:news()
  end
  return list
end

local ONCE = { 'info: "images-1-B" is asked for: an administrator wants it let go' }

for _, way in ipairs(Peer.all_ways) do
  describe("a holder, fed " .. way, function ()
    local function open(settings) return Peer.open(way, settings) end

    it("is not asked for its lock back by itself, nor by probes, of whatever type", function ()
      local peer = open()
      local lock, claim = peer:acquire("images")
      assert.is_false(lock:revoked())
      for _, properties in ipairs{ {}, { type = "" }, { type = "revoke" }, { type = REVOKE .. "d" },
        { type = REVOKE:sub(1, -2) }, { type = REVOKE:upper() }, { type = "amqplocks.token" },
        { type = REVOKE:rep(10) }, { message_id = REVOKE }, { correlation_id = REVOKE } } do
        peer.holder:send(revoke(claim, properties))
        peer.holder:send(revoke(claim, properties, REVOKE))
      end
      assert.is_false(lock:revoked())
      assert.same({}, news(peer))
      assert.is_true(lock:held())
    end)

    it("reads that it was asked, says so once in the log, and holds on", function ()
      local peer = open()
      local lock, claim = peer:acquire("images")
      peer.holder:send(revoke(claim))
      assert.is_true(lock:revoked())
      assert.is_true(lock:held())
      assert.same(ONCE, news(peer))
      for _ = 1, 3 do peer.holder:send(revoke(claim)) end
      assert.same({}, news(peer))
      assert.is_true(lock:revoked())
      assert.is_true(lock:held())
      peer:pass(1)
      peer.holder:silent()
      peer.prober:silent()
    end)

    it("is asked by a message with a body, and more besides, too", function ()
      local peer = open()
      local lock, claim = peer:acquire("images")
      peer.holder:send(revoke(claim, { message_id = "7", type = REVOKE, app_id = "by hand" }, ("please "):rep(100)))
      assert.is_true(lock:revoked())
    end)

    it("hears it in the moment it has been counted as holding, before the last answer", function ()
      for after = 0, 2 do
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{ "images-1-A" }
        local claim = peer.holder:claim("images-1-B", "images-1-A")
        local answers = {
          function () peer.holder:declared(claim.channel, "images-1-B") end,
          function () peer.holder:declared(claim.channel, "images-1-A") end,
          function () peer.holder:consumed(claim) end,
        }
        for i = 1, after do answers[i]() end
        peer.holder:send(revoke(claim))
        assert.same({}, news(peer))
        for i = after + 1, 3 do answers[i]() end
        local lock = peer:result(op)
        assert.is_true(lock:held())
        assert.is_true(lock:revoked())
        assert.same(ONCE, news(peer))
      end
    end)

    it("says nothing of it when the claim comes to nothing", function ()
      local peer = open()
      local op = peer:semaphore("images"):acquire(0)
      peer.prober:look{ "images-1-A" }
      local claim = peer.holder:claim("images-1-B", "images-1-A")
      peer.holder:declared(claim.channel, "images-1-B")
      peer.holder:send(revoke(claim))
      op:drop()
      assert.same({}, news(peer))
    end)

    it("that lets go has been asked, or has not, for good", function ()
      local peer = open()
      local asked, claim = peer:acquire("images")
      local other, spared = peer:acquire("others")
      peer.holder:send(revoke(claim))
      local op, second = asked:release(), other:release()
      peer.holder:expect("queue.delete", { queue = "images-1-B" })
      peer.holder:expect("queue.delete", { queue = "others-1-B" })
      peer.holder:send(revoke(spared)) -- was on its way
      peer.holder:deleted(claim.channel)
      peer.holder:deleted(spared.channel)
      peer:result(op)
      peer:result(second)
      assert.same({ true, false }, { asked:revoked(), other:revoked() })
      assert.equal("not_held", select(3, asked:held()))
      assert.same(ONCE, news(peer))
    end)

    it("that is lost has been asked none the less", function ()
      local peer = open()
      local lock, claim = peer:acquire("images")
      peer.holder:send(revoke(claim))
      peer.holder:down("timed out")
      assert.equal("lost", select(3, lock:held()))
      assert.is_true(lock:revoked())
    end)

    it("of two slots is asked for the one alone, and its next lock there is a new one", function ()
      local peer = open()
      local lock, claim = peer:acquire("images")
      local other = peer:acquire("others")
      peer.holder:send(revoke(claim))
      assert.same({ true, false }, { lock:revoked(), other:revoked() })
      local op = lock:release()
      peer.holder:delete("images-1-B", claim.channel)
      peer:result(op)
      local again, same = peer:acquire("images")
      assert.equal(claim.channel, same.channel)
      assert.is_false(again:revoked())
    end)
  end)
end
