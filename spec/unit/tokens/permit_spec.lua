-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The claim on a permit: the state tables in src/core/tokens/permit.h and src/core/queue/consumer.h. Then its acquire:
-- which requests it sends, how long it waits, and what it leaves behind.

local scene = require "spec.unit.tokens.permit_scene"

local unpack = table.unpack or unpack

local QUEUE, NO_QUEUE = scene.QUEUE, scene.NO_QUEUE
local DOWN = "NOT_FOUND - home node 'rabbit@two' of durable queue 'images.semaphore' in vhost '/' is down"
local LOCKED = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'images.semaphore' in vhost '/'"

local peer

before_each(function () peer = scene.open() end)

after_each(function () assert.is_false(peer.prober:wanted()) end)

describe("a permit", function ()
  local function code(lock) return select(3, lock:held()) end

  -- A new acquire. Returns its consumer.
  local function another()
    scene.semaphore(peer):acquire(0)
    return scene.consumes(peer)
  end

  describe("CLAIMING", function ()
    it("consumes on a channel of its own, under its name, since its time, as urgent and as long as told", function ()
      for _, row in ipairs{
        { {}, {} }, { { 10, false, 7 }, { ["x-priority"] = 7 } }, { { 10, false, -3 }, { ["x-priority"] = -3 } },
        { { 0 }, { ["x-consumer-timeout"] = 315360000000 }, is_quorum = true },
      } do
        scene.semaphore(peer, row.is_quorum):acquire(unpack(row[1]))
        local taker = scene.consumes(peer)
        assert.is_truthy(taker.is_new)
        assert.same(row[2], (select(2, peer:signed(taker.consume.arguments))))
        peer.holder:silent()
      end
    end)

    it("is HELD by a message before consume-ok, but not until then, and gives back what comes beyond it", function ()
      local op = scene.semaphore(peer):acquire(0)
      local taker = scene.consumes(peer)
      local delivery = scene.deliver(peer, taker)
      scene.nacks(peer, taker, scene.deliver(peer, taker))
      assert.is_false(op:done())
      peer.holder:silent()
      scene.welcome(peer, taker)
      local lock = peer:result(op)
      scene.nacks(peer, taker, scene.deliver(peer, taker))
      assert.is_true(lock:held())
      lock:release()
      scene.gives_back(peer, taker, delivery)
    end)

    it("is GONE when its consume is refused", function ()
      for _, case in ipairs{
        { "not_found", 404, NO_QUEUE, 'there is no token semaphore "images"' }, { "unavailable", 404, DOWN },
        { "squatted", 405, LOCKED }, { "conflict", 406, "PRECONDITION_FAILED - invalid arg 'x-consumer-timeout'" },
        { "limit", 406, "PRECONDITION_FAILED - consumer limit reached" },
      } do
        local op = scene.semaphore(peer):acquire(10)
        local taker = scene.consumes(peer)
        peer.holder:refuse(taker.channel, case[2], case[3], "basic.consume")
        peer:failed(op, case[1], case[4] or case[3])
        peer.holder:silent()
        assert.is_truthy(another().is_new)
        peer = scene.open()
      end
    end)
  end)

  describe("HELD", function ()
    it("is given back by its release in one go, which waits for nothing, and the channel is used again", function ()
      local lock, taker, delivery = scene.holding(peer)
      local op = lock:release()
      scene.gives_back(peer, taker, delivery)
      peer.holder:silent()
      assert.is_true(op:done())
      assert.is_true(peer:result(op))
      assert.equal("not_held", code(lock))
      peer:failed(lock:release(), "not_held", "released before")
      local next_one = another()
      assert.same({ taker.channel, false }, { next_one.channel, next_one.is_new })
      assert.are_not.equal(taker.tag, next_one.tag)
    end)

    it("is given back while a question is open: its channel is closed", function ()
      local op, taker = scene.asking(peer, 0)
      local delivery = scene.deliver(peer, taker)
      peer:result(op):release()
      scene.gives_back(peer, taker, delivery)
      peer.holder:expect("channel.close", { channel = taker.channel })
    end)

    it("does not hear what comes for another consumer, such as its channel's last owner", function ()
      local first, old = scene.holding(peer)
      first:release()
      peer.holder:ignore()
      local op, taker = scene.asking(peer, 0)
      assert.equal(old.channel, taker.channel)
      scene.deliver(peer, old)
      assert.is_false(op:done())
      scene.deliver(peer, taker)
      scene.deliver(peer, old)
      scene.answer(peer, taker)
      for _, tag in ipairs{ old.tag, taker.tag .. "0", "" } do scene.notice(peer, taker, tag) end
      assert.is_true(peer:result(op):held())
      peer.holder:silent()
    end)

    it("keeps the link's pulse beating, and only then", function ()
      peer = scene.open({ heartbeat = 10 })
      local lock, taker = scene.holding(peer)
      peer:pass(5)
      local pulse = peer.holder:opened()
      assert.are_not.equal(taker.channel, pulse)
      peer.holder:expect("basic.qos", { channel = pulse })
      scene.answer(peer, { channel = pulse })
      lock:release()
      peer.holder:ignore()
      peer:pass(5)
      peer.holder:expect("heartbeat")
      peer.holder:silent()
    end)
  end)

  it("of a quorum queue is held on a connection of its own: each of the two may go without the other", function ()
    for _, which in ipairs{ "holder", "quorum" } do
      peer = require("spec.support.peer").open()
      local links = { holder = peer.holder, quorum = peer.quorum }
      local slot = peer:acquire "other"
      assert.is_false(peer.quorum:wanted())
      local op = scene.semaphore(peer, true):acquire(0)
      local taker = scene.consumes(peer)
      scene.deliver(peer, taker)
      scene.welcome(peer, taker)
      local permit = peer:result(op)
      links[which]:down()
      assert.same({ which ~= "holder", which ~= "quorum" }, { (slot:held()), (permit:held()) })
      assert.equal("lost", code(which == "holder" and slot or permit))
    end
  end)

  describe("verified", function ()
    local lock, taker

    before_each(function () lock, taker = scene.holding(peer) end)

    local function looks() return scene.looks(peer, taker) end

    it("is there when its queue is, which is asked for elsewhere, each time", function ()
      local one = lock:verify()
      local channel = looks()
      local two = lock:verify()
      assert.same({ channel, false }, { looks() })
      peer.holder:declared(channel, QUEUE)
      assert.same({ true, false }, { one:done(), two:done() })
      peer.holder:declared(channel, QUEUE)
      assert.is_true(peer:result(one) and peer:result(two))
      assert.is_true(lock:held())
    end)

    it("is lost when its queue is not there, or down: it is let go of", function ()
      for _, text in ipairs{ NO_QUEUE, DOWN } do
        peer = scene.open()
        lock, taker = scene.holding(peer)
        local op = lock:verify()
        peer.holder:refuse(looks(), 404, text, "queue.declare")
        peer:failed(op, "lost", text)
        peer.holder:expect("basic.cancel")
        peer.holder:expect("basic.nack")
        assert.equal("lost", code(lock))
        scene.notice(peer, taker)
        peer.holder:silent()
      end
    end)

    it("stays held when looking is denied: no bad news had come", function ()
      local op = lock:verify()
      peer.holder:refuse(looks(), 403, "ACCESS_REFUSED - configure access to queue refused", "queue.declare")
      assert.is_true(peer:result(op))
      assert.is_true(lock:held())
      peer.holder:silent()
    end)

    it("is not held when it is released meanwhile", function ()
      local op = lock:verify()
      local channel = looks()
      lock:release()
      peer:failed(op, "not_held")
      peer.holder:expect("basic.cancel")
      peer.holder:expect("basic.nack")
      peer.holder:expect("channel.close", { channel = channel })
    end)

    it("cannot be asked for where there is no channel left", function ()
      peer = scene.open(nil, { channel_max = 1 })
      lock = scene.holding(peer)
      peer:failed(lock:verify(), "limit", "no channel")
      assert.is_true(lock:held())
    end)
  end)
end)

describe("a token semaphore", function ()
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

  it("is unreachable at once when the connection is lost at the end of consuming", function ()
    local op, taker = scene.asking(peer, 0)
    scene.answer(peer, taker)
    scene.cancels(peer, taker)
    peer.holder:down "reset by peer"
    peer:failed(op, "unreachable", "reset by peer")
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
