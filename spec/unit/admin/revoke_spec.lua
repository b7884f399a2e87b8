-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Asking for a lock back (revoke): how its holder is notified, and how an administrator does it.
local frames = require "spec.support.frames"
local gates = require "spec.unit.locks.rwlock_scene"
local Peer = require "spec.support.peer"
local scene = require "spec.unit.admin.admin_scene"

local REVOKE = "amqplocks.revoke"

local function revoke(claim, properties, body)
  return frames.encode_content({ channel = claim.channel, method = "basic.deliver", consumer_tag = claim.tag,
    delivery_tag = 1, routing_key = claim.queue }, properties or { type = REVOKE, delivery_mode = 1 }, body or "")
end

local ASKED = "asks the holder" -- what the news of it say
local ONCE = { 'info: another client asks the holder of "images-1-B" to release it' }

describe("a holder", function ()
  local peer

  before_each(function () peer = Peer.open() end)

  it("is not asked for its lock back by itself, nor by probes, of whatever type", function ()
    local lock, claim = peer:acquire("images")
    assert.is_false(lock:revoked())
    for _, properties in ipairs{ {}, { type = "" }, { type = "revoke" }, { type = REVOKE .. "d" },
      { type = REVOKE:sub(1, -2) }, { type = REVOKE:upper() }, { type = "amqplocks.token" },
      { type = REVOKE:rep(10) }, { message_id = REVOKE }, { correlation_id = REVOKE } } do
      peer.holder:send(revoke(claim, properties))
      peer.holder:send(revoke(claim, properties, REVOKE))
    end
    -- Sent to the last one who used the channel.
    peer.holder:send(revoke{ channel = claim.channel, tag = "0123456789abcdef", queue = claim.queue })
    assert.is_false(lock:revoked())
    assert.same({}, peer:news(ASKED))
    assert.is_true(lock:held())
  end)

  it("reads that it was asked, says so once in the log, alerts once, and holds on", function ()
    local lock, claim = peer:acquire("images")
    peer.holder:send(revoke(claim, {}))
    assert.equal(0, peer.session:alerts())
    peer.holder:send(revoke(claim))
    assert.equal(1, peer.session:alerts())
    assert.is_true(lock:revoked())
    assert.same(ONCE, peer:news(ASKED))
    peer.holder:send(revoke(claim, { message_id = "7", type = REVOKE, app_id = "by hand" }, ("please "):rep(100)))
    assert.same({}, peer:news(ASKED))
    assert.equal(1, peer.session:alerts())
    assert.is_true(lock:revoked() and lock:held())
    peer.holder:silent()
  end)

  it("hears it in the moment it has been counted as holding, before any answer to its claim", function ()
    local op, claim = peer:claiming "images"
    peer.holder:send(revoke(claim))
    peer.holder:grant(claim)
    assert.is_true(peer:result(op):revoked())
    assert.same(ONCE, peer:news(ASKED))
  end)

  it("that lets go has been asked, or has not, for good; its next lock there is a new one", function ()
    local asked, claim = peer:acquire("images")
    local other, spared = peer:acquire("others")
    peer.holder:send(revoke(claim))
    asked:release()
    other:release()
    peer.holder:delete("images-1-B", claim.channel)
    peer.holder:send(revoke(spared)) -- was on its way
    peer.holder:delete("others-1-B", spared.channel)
    assert.same({ true, false }, { asked:revoked(), other:revoked() })
    assert.same(ONCE, peer:news(ASKED))
    assert.is_false((peer:acquire("images")):revoked())
  end)
end)

describe("asking a holder to let go", function ()
  local B3 = { "images-3-B" }
  local peer

  before_each(function () peer = Peer.open() end)

  local function revoking(options) return peer.session:revoke("images", options or {}, 3) end

  -- Takes the requests written, each of the right kind, one for each of these slots; answers them.
  local function asks(wanted, states)
    local probes, names = peer.prober:probes(), {}
    for i, probe in ipairs(probes) do
      names[i] = probe.queue
      assert.same({ REVOKE, "0", 1 },
        { probe.properties.type, probe.properties.expiration, probe.properties.delivery_mode })
    end
    assert.same(wanted, names)
    if states then peer.prober:answer(probes, states) end
    return probes
  end

  -- It finds nobody, and believes that behind a barrier, where it sees what is in `states`.
  local function sees_behind_barrier(states)
    asks(B3, {})
    peer.prober:barrier()
    asks(B3, states)
  end

  describe("once", function ()
    it("finds nobody, and believes it only behind a barrier, where it asks whom it finds", function ()
      for _, seen in ipairs{ {}, B3 } do
        local op = revoking()
        sees_behind_barrier(seen)
        if seen == B3 then
          assert.is_true(peer:result(op))
        else
          peer:failed(op, "not_held", 'slot 3 of "images" is not held')
        end
      end
    end)

    it("gives up on a queue that refuses", function ()
      local op, looks = revoking(), 0
      peer:live(5, function ()
        if peer.prober:next() ~= "nothing" then
          asks(B3, { ["images-3-B"] = "nack" })
          looks = looks + 1
        end
        return op:done()
      end)
      peer:failed(op, "unavailable", 'holders in "images" were not asked to release', "slot 3")
      assert.is_true(looks > 3)
    end)

    it("asks nobody under an alarm, does not count on a request that an alarm has met on its way, and says so",
      function ()
        for _, is_on_its_way in ipairs{ false, true } do
          peer = Peer.open()
          local op = is_on_its_way and revoking()
          if op then asks(B3) end
          peer.prober:send{ channel = 0, method = "connection.blocked", reason = "low on memory" }
          op = op or revoking()
          gates.is_no_squatter(peer, B3[1])
          peer:failed(op, "blocked", 'holders in "images" were not asked to release', "memory or disk alarm", "slot 3")
          peer.prober:silent()
        end
      end)

    it("is over in its time when there is no connection, or the broker does not answer", function ()
      peer = Peer.new({ timeout = 60 })
      local op = revoking{ timeout = 2 }
      peer:fails_after(2, op, "timeout", 'slot 3 of "images"', "within 2 s")
      peer = Peer.open()
      op = revoking()
      asks(B3)
      peer:fails_after(5, op, "unreachable", "within 5 s")
    end)
  end)

  describe("and waiting", function ()
    it("names the slot when its time is over, counted from when it is connected", function ()
      peer = Peer.new()
      local op = revoking{ wait = 4, timeout = 4 }
      peer:pass(3)
      peer.holder:handshake()
      peer.prober:handshake()
      peer:live(3.9, function ()
        if peer.prober:next() ~= "nothing" then asks(B3, B3) end
      end)
      assert.is_false(op:done())
      peer:fails_after(0.1, op, "timeout",
        'still held in "images" after 4 s: slot 3; its holder was asked to release it')
    end)
  end)

  it("lists so many slots, and asks so many holders, as there is room to tell", function ()
    local list = {}
    for i = 1, 300 do list[i] = i end
    local op = peer.session:wait_released("images", { revoke = true, timeout = 3 }, list)
    peer.prober:ignore()
    peer:fails_after(3, op, "timeout", "slot 1 2 3 ", " 60 ", " and more; no holder is known")
  end)

  it("after a removal happens once more, behind a barrier, when somebody was not seen", function ()
    local op, mutex = scene.begin(peer, "remove", 2, { revoke = true }, scene.slots(1, 2, 3))
    scene.deletes(peer, mutex, scene.slots(3, 2))
    scene.finds_bell(peer, 3)
    peer.holder:delete("images-admin", mutex.channel)
    asks({ "images-3-B", "images-2-B" }, {})
    peer.prober:barrier()
    assert.is_false(op:done())
    asks({ "images-3-B", "images-2-B" }, { "images-2-B" })
    assert.equal(1, peer:result(op))
  end)
end)
