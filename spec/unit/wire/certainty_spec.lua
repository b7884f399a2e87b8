-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Heartbeats, the pulse, and for how long a lock is certain. The heartbeat interval is 10 s everywhere.

local Peer = require "spec.support.peer"

local HEARTBEAT = { channel = 0, heartbeat = true }

local peer

before_each(function () peer = Peer.open({ heartbeat = 10 }) end)

local function code(lock)
  local held, _, why = lock:held()
  return held and "held" or why
end

-- Time passes while the broker sends heartbeats and answers nothing.
local function pass(seconds)
  peer.holder:send(HEARTBEAT)
  peer.prober:send(HEARTBEAT)
  peer:pass(seconds)
end

it("heartbeats are sent at half the interval, on both links, when nothing else is", function ()
  for _ = 1, 2 do
    assert.equal(5, peer:tick())
    pass(4.999)
    for _, link in ipairs{ peer.holder, peer.prober } do link:silent() end
    peer:pass(0.001)
    for _, link in ipairs{ peer.holder, peer.prober } do
      link:expect("heartbeat", { channel = 0 })
      link:silent()
    end
  end
end)

describe("silence", function ()
  it("of two heartbeats is the end of a link, whatever we sent, and of its locks", function ()
    local lock = peer:acquire("images")
    peer:pass(10)
    peer:pass(10)
    assert.equal("open", peer.holder:state())
    assert.is_true(peer:tick() <= 1e-6)
    peer:pass(0.001)
    assert.same({ "down", "down" }, { peer.holder:state(), peer.prober:state() })
    local held, message, why = lock:held()
    assert.same({ false, "lost" }, { held, why })
    assert.matches("nothing came from the broker for two heartbeats", message)
  end)

  it("is broken by any byte", function ()
    peer:pass(19)
    peer.session:feed("holder", "\8")
    peer.session:feed("prober", "\8")
    peer:tick()
    peer:pass(20)
    assert.equal("open", peer.holder:state())
    peer:pass(0.001)
    assert.equal("down", peer.holder:state())
  end)

  it("is no silence when bytes lay waiting while we were stopped, but locks are suspect at the first look", function ()
    local lock = peer:acquire("images")
    peer.session:feed("holder", "\8\0\0\0\0\0\0\206")
    peer:pass(1000)
    assert.same({ "open", "down" }, { peer.holder:state(), peer.prober:state() })
    assert.equal("suspect", code(lock))
  end)
end)

it("the pulse beats twice a heartbeat on a channel of its own while a lock is held, and is answered", function ()
  local lock, claim = peer:acquire("images")
  pass(5)
  local channel = peer.holder:opened()
  assert.are_not.equal(claim.channel, channel)
  for _ = 1, 5 do
    peer.holder:expect("basic.qos", { channel = channel, global = false })
    peer.holder:silent()
    peer.holder:send{ channel = channel, method = "basic.qos-ok" }
    assert.is_true(lock:held())
    pass(4.999)
    peer.holder:silent()
    peer:pass(0.001)
  end
end)

it("the pulse goes on, on another channel, when the broker closes its own, and does not pile up unanswered", function ()
  local lock, pulses = peer:acquire("images"), 1
  pass(5)
  local channel = peer.holder:opened()
  peer.holder:expect("basic.qos")
  peer.holder:refuse(channel, 541, "INTERNAL_ERROR", "basic.qos")
  assert.is_true(lock:held())
  pass(5)
  peer.holder:opened()
  peer.holder:expect("basic.qos")
  for _ = 1, 10 do
    pass(5)
    peer.holder:pull()
    while peer.holder:next() ~= "nothing" do
      if table.remove(peer.holder.frames, 1).method == "basic.qos" then pulses = pulses + 1 end
    end
  end
  assert.is_true(pulses <= 2, pulses .. " pulses")
  assert.equal("suspect", code(lock))
end)

describe("a lock", function ()
  -- Held since 1000 s, when its claim was written; granted half a second later.
  local function held()
    local op, claim = peer:claiming "images"
    peer:pass(0.5)
    peer.holder:grant(claim)
    return peer:result(op), claim
  end

  it("is certain until two heartbeats less a margin after the last answered request was sent", function ()
    local lock = held()
    for _ = 1, 18 do
      pass(1)
      assert.is_true(lock:held())
    end
    pass(0.999)
    assert.is_true(lock:held())
    pass(0.001)
    local is_held, message, why = lock:held()
    assert.same({ false, "suspect" }, { is_held, why })
    assert.matches('^suspect: slot 1 of "images": ', message)
    for _ = 1, 10 do pass(10) end
    assert.equal("suspect", code(lock))
  end)

  it("counts an answer for the oldest request that is open on its channel", function ()
    local lock, claim = held()
    pass(1.5)
    local first = lock:verify()
    pass(2)
    local second = lock:verify()
    peer.holder:declared(claim.channel, "images-1-B")  -- the one of 1002 s
    pass(8)
    pass(9.499)
    assert.is_true(lock:held())
    pass(0.001)
    assert.equal("suspect", code(lock))
    assert.same({ true, true }, { first:done(), second:done() })
  end)

  it("is made no more certain by a channel that is closed out of the blue", function ()
    local lock = held()
    pass(4.5)
    local channel = peer.holder:expect("channel.open").channel
    pass(10)
    peer.holder:ignore()
    peer.holder:refuse(channel, 320, "CONNECTION_FORCED")
    pass(4.5)
    assert.equal("suspect", code(lock))
  end)
end)
