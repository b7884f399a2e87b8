-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The pauses before a lost connection is tried again: exponential backoff from 50 ms to 5 s, with 50 % jitter.
local Peer = require "spec.support.peer"

local FIRST, MOST = 0.05, 5

describe("connecting anew", function ()
  local peer

  before_each(function () peer = Peer.new() end)

  local function assert_between(least, most, pause)
    assert.is_true(pause >= least - 1e-6 and pause <= most + 1e-6,
      ("%g is not between %g and %g"):format(pause, least, most))
  end

  -- Somebody wants the holder and waits until it is due, with no turn in between that is not asked for. Returns the
  -- operation, and how long that took.
  local function await()
    local op, begun = peer.session:open(), peer.now
    assert.is_true(peer.holder:wanted())
    while not peer.holder:due() do
      local pause, wake = peer.holder:pause(), peer:tick()
      assert_between(pause, pause, wake)
      peer:pass(math.max(wake, 1e-6))
      assert.is_false(op:done())
    end
    return op, peer.now - begun
  end

  local function fail()
    local op, pause = await()
    peer.holder:attach()
    peer.holder:down("connection refused")
    peer:failed(op, "unreachable", "connection refused")
    return pause
  end

  it("waits after one that did not last, and after each that fails, longer and longer, up to a limit", function ()
    for seed = 1, 20 do
      peer = Peer.new({ seed = seed })
      peer.session:open()
      peer.holder:handshake()
      peer:pass(MOST - 0.001)
      peer.holder:down()
      local expected = FIRST
      for _ = 1, 12 do
        assert_between(expected / 2, expected, fail())
        expected = math.min(expected * 2, MOST)
      end
    end
  end)

  it("waits shortly again after a connection that had lasted, and not after one that had not", function ()
    for _ = 1, 5 do fail() end
    await()
    peer.holder:handshake()
    peer.holder:down()
    assert_between(32 * FIRST / 2, 32 * FIRST, fail())
    await()
    peer.holder:handshake()
    peer:pass(MOST)
    peer.holder:down()
    assert.equal(0, fail())
    assert_between(FIRST / 2, FIRST, fail())
  end)

  it("happens few times however often somebody asks", function ()
    local sem, stop, asked, tried = peer:semaphore("images"), peer.now + 60, 0, 0
    while peer.now < stop do
      local op = sem:acquire(0)
      asked = asked + 1
      while not op:done() do
        if peer.holder:due() then
          tried = tried + 1
          peer.holder:attach()
          peer.holder:down("connection refused")
        else
          peer:pass(math.max(peer:tick(), 1e-6))
        end
      end
      peer:failed(op, "unreachable", "connection refused")
    end
    assert.equal(asked, tried) -- each was told by an attempt of its own
    assert.is_true(tried < 33, tried .. " times in a minute")
  end)
end)
