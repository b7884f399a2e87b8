-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- How a quorum permit is released: by cancel and nack; or, if its connection holds other locks and the library made the
-- queue, by closing its channel. A cancel at a quorum queue without a majority ends the connection, and its locks.

local Peer = require "spec.support.peer"
local scene = require "spec.unit.tokens.permit_scene"

local MARKS = "images.semaphore-count"
local NO_MARKS = "NOT_FOUND - no queue 'images.semaphore-count' in vhost '/'"
local DOWN = "NOT_FOUND - home node 'rabbit@two' of durable queue 'images.semaphore-count' in vhost '/' is down"

describe("a quorum permit", function ()
  local peer

  before_each(function () peer = Peer.open() end)

  -- Gives its lock, its consumer and the message's delivery tag.
  local function permit(is_classic)
    local op = scene.semaphore(peer, not is_classic):acquire(0)
    local taker = scene.consumes(peer)
    local delivery = scene.deliver(peer, taker)
    scene.welcome(peer, taker)
    return peer:result(op), taker, delivery
  end

  -- Gives the channel on which the core asks for the marks: not one that holds anything.
  local function asks(taker)
    if peer.holder:next() == "channel.open" then peer.holder:opened() end
    local look = peer.holder:expect("queue.declare", { queue = MARKS, passive = true })
    if taker then assert.are_not.equal(taker.channel, look.channel) end
    return look.channel
  end

  local function ours(channel) peer.holder:declared(channel, MARKS) end

  local function closes(lock, taker)
    local op = lock:release()
    assert.is_false(op:done())
    peer.holder:closes(taker.channel)
    assert.is_true(peer:result(op))
    peer.holder:silent()
  end

  -- The broker has the permit back when it answers the question behind the nack.
  local function gives_back(lock, taker, delivery)
    local op = lock:release()
    scene.gives_back(peer, taker, delivery)
    scene.asks(peer, taker)
    assert.is_false(op:done())
    scene.answer(peer, taker)
    assert.is_true(peer:result(op))
    peer.holder:silent()
  end

  it("on a connection that holds only permits is given back by cancel and nack, and nothing is asked", function ()
    local one, first, delivery = permit()
    local two, second, other = permit()
    peer.holder:silent()
    gives_back(one, first, delivery)
    gives_back(two, second, other)
  end)

  it("whose connection held another lock before is given back like that, too", function ()
    local slot, claim = peer:acquire("other")
    local lock, taker, delivery = permit()
    ours(asks(taker))
    slot:release()
    peer.holder:delete("other-1-B", claim.channel)
    gives_back(lock, taker, delivery)
  end)

  describe("beside another lock", function ()
    local slot

    before_each(function () slot = peer:acquire("other") end)

    it("goes back with its channel, without a cancel or a nack, in a queue that has marks, or whose node is down",
      function ()
        for _, is_down in ipairs{ false, true } do
          peer = Peer.open()
          slot = peer:acquire("other")
          local lock, taker = permit()
          local channel = asks(taker)
          if is_down then peer.holder:refuse(channel, 404, DOWN, "queue.declare") else ours(channel) end
          closes(lock, taker)
          assert.is_true(slot:held())
        end
      end)

    it("which came after it: the same", function ()
      peer = Peer.open()
      local lock, taker = permit()
      peer.holder:silent()
      local op = peer:semaphore("other"):acquire(0)
      peer.prober:look{ "other-1-A" }
      local claim = peer.holder:claim("other-1-B", "other-1-A")
      ours(asks(taker))
      peer.holder:grant(claim)
      peer.holder:silent()
      closes(lock, taker)
      assert.is_true(peer:result(op):held())
    end)

    it("in a queue that others made, is given back by cancel and nack: no close counts there", function ()
      local lock, taker, delivery = permit()
      peer.holder:refuse(asks(taker), 404, NO_MARKS, "queue.declare")
      gives_back(lock, taker, delivery)
    end)

    it("of which is not known yet whose queue it is, or may not be, is given back by cancel and nack", function ()
      local lock, taker, delivery = permit()
      local channel = asks(taker)
      gives_back(lock, taker, delivery)
      peer.holder:refuse(channel, 403, "ACCESS_REFUSED - configure access", "queue.declare")
      gives_back(permit())
    end)

    it("that is a classic queue's, is given back by cancel and nack, and nothing is asked", function ()
      local lock, taker, delivery = permit(true)
      assert.is_true(peer:result(lock:release()))
      scene.gives_back(peer, taker, delivery)
      peer.holder:silent()
    end)

    it("is asked for once for each queue and connection", function ()
      local _, taker = permit()
      ours(asks(taker))
      permit()
      peer.holder:silent()
      peer.holder:down("reset")
      peer:pass(1)
      peer.session:open()
      peer.holder:handshake()
      peer:acquire("other")
      peer.holder:silent()
      permit()
      ours(asks())
    end)

    it("is asked for again after a minute where others made the queue: it may be ours by then", function ()
      peer = Peer.open({ heartbeat = 600 })
      peer:acquire("other")
      local _, taker = permit()
      peer.holder:refuse(asks(taker), 404, NO_MARKS, "queue.declare")
      peer:pass(61)
      permit()
      ours(asks())
    end)

    it("is asked for again when the queue went, or was not there: the next of its name may be another's", function ()
      local _, taker = permit()
      ours(asks(taker))
      scene.notice(peer, taker)
      peer.holder:closes(taker.channel)
      permit()
      peer.holder:refuse(asks(), 404, NO_MARKS, "queue.declare")
      scene.semaphore(peer, true):acquire(0)
      peer.holder:refuse(scene.consumes(peer).channel, 404, scene.NO_QUEUE, "basic.consume")
      permit()
      ours(asks())
    end)

    it("is unconfirmed where the broker does not answer, and lost with the connection all the same", function ()
      for _, how in ipairs{ "silence", "loss" } do
        peer = Peer.open()
        peer:acquire("other")
        local lock, taker = permit()
        ours(asks(taker))
        local op = lock:release()
        peer.holder:expect("channel.close", { channel = taker.channel })
        if how == "loss" then peer.holder:down("reset") else peer:pass(5) end
        peer:failed(op, "unreachable")
        assert.equal("not_held", select(3, lock:held()))
      end
    end)

    it("is given back by cancel and nack where no channel is left to ask on", function ()
      peer = Peer.open(nil, { channel_max = 2 })
      peer:acquire("other")
      local lock, taker, delivery = permit()
      peer.holder:silent()
      gives_back(lock, taker, delivery)
    end)

    it("that is waited for in vain: ends by closing the channel, without a cancel", function ()
      local op = scene.semaphore(peer, true):acquire(2)
      local taker = scene.consumes(peer)
      scene.welcome(peer, taker)
      ours(asks(taker))
      peer.holder:declared(scene.looks(peer, taker), scene.QUEUE)
      scene.asks(peer, taker)
      scene.answer(peer, taker)
      peer:pass(2)
      peer.holder:closes(taker.channel)
      peer:failed(op, "timeout")
      assert.is_true(slot:held())
    end)
  end)
end)
