-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Acquiring a permit: which requests it sends, how long it waits, and what it leaves behind. Claims themselves:
-- permit_spec.

local scene = require "spec.unit.tokens.permit_scene"

describe("a token semaphore", function ()
  local peer

  before_each(function () peer = scene.open() end)

  after_each(function ()
    assert.is_false(peer.prober:wanted())
  end)

  it("now or not at all, is not told by the pulse that nothing lay ready", function ()
    peer = scene.open({ heartbeat = 10, timeout = 30 }, { channel_max = 2 })
    local op = scene.semaphore(peer):acquire(0)
    local taker = scene.consumes(peer)
    local lock = scene.holding(peer)
    peer:pass(5) -- no channel is left for the pulse, which beats on the first that there is
    peer.holder:expect("basic.qos", { channel = taker.channel })
    scene.welcome(peer, taker)
    scene.asks(peer, taker)
    scene.answer(peer, taker)
    scene.deliver(peer, taker)
    assert.is_true(peer:result(op):held() and lock:held())
  end)

  it("is unreachable when the question, or the end of consuming, is not answered in time", function ()
    local op, taker = scene.asking(peer, 0)
    peer:pass(5)
    peer:failed(op, "unreachable", "did not answer")
    scene.cancels(peer, taker)
    op, taker = scene.asking(peer, 0)
    scene.answer(peer, taker)
    scene.cancels(peer, taker)
    peer:pass(5)
    peer:failed(op, "unreachable", "did not answer")
    assert.is_false(op:done())
    scene.cancelled(peer, taker)
    assert.is_true(op:done())
  end)

  -- A quorum queue says consume-ok before it has handed out what it has; what it is asked later, it answers later.
  describe("of quorum permits, now or not at all", function ()
    local sem, op, taker

    local function begin()
      op = sem:acquire(0)
      taker = scene.consumes(peer)
      scene.welcome(peer, taker)
    end

    before_each(function ()
      sem = scene.semaphore(peer, true)
      begin()
    end)

    it("takes a permit that comes before the answer, and is still verified by an answer of its own", function ()
      local channel = scene.looks(peer, taker)
      scene.deliver(peer, taker)
      peer.holder:declared(channel, scene.QUEUE)
      local lock = peer:result(op)
      peer.holder:silent()
      local verify = lock:verify()
      assert.equal(channel, (scene.looks(peer, taker)))
      assert.is_false(verify:done())
      peer.holder:declared(channel, scene.QUEUE)
      assert.is_true(peer:result(verify))
    end)

    it("does without where asking is denied, and does not ask again", function ()
      peer.holder:refuse(scene.looks(peer, taker), 403, "ACCESS_REFUSED", "queue.declare")
      scene.asks(peer, taker)
      scene.answer(peer, taker)
      scene.cancels(peer, taker)
      scene.cancelled(peer, taker)
      peer:failed(op, "busy")
      begin()
      scene.asks(peer, taker)
      scene.deliver(peer, taker)
      assert.is_true(peer:result(op):held())
    end)

    it("does without where there is no channel left to ask on", function ()
      peer = scene.open(nil, { channel_max = 1 })
      sem = scene.semaphore(peer, true)
      begin()
      scene.asks(peer, taker)
    end)
  end)

  it("waiting ends when the time is up, though the broker has not even answered: the channel is closed", function ()
    local op = scene.semaphore(peer):acquire(1)
    local taker = scene.consumes(peer)
    peer:pass(1)
    peer:failed(op, "timeout", 'no permit of "images" came free within 1 s (the broker had not answered yet)')
    assert.is_false(op:done()) -- the broker may give it a permit, and have that back only with the channel
    peer.holder:closes(taker.channel)
    assert.is_true(op:done())
    peer.holder:silent()
  end)

  it("whose queue goes is asked for again and again, less and less often", function ()
    local op = scene.semaphore(peer):acquire(600)
    local taker = scene.consumes(peer) -- and is not even welcome when it goes
    for round = 1, 13 do
      scene.notice(peer, taker)
      peer.holder:closes(taker.channel)
      peer:pass(round == 13 and 0.49 or 0)
      peer.holder:silent()
      assert.is_false(op:done())
      peer:pass(1)
      taker = scene.consumes(peer)
      scene.welcome(peer, taker)
      scene.asks(peer, taker)
    end
  end)

  it("on a connection without a free channel is at its limit, and takes nothing", function ()
    peer = scene.open(nil, { channel_max = 1 })
    local lock = scene.holding(peer)
    peer:failed(scene.semaphore(peer):acquire(5), "limit", "all 1 channels", "each permit takes one")
    assert.is_true(lock:held())
    peer.holder:silent()
  end)
end)
