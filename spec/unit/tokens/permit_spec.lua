-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The claim on a permit: the state tables in src/core/tokens/permit.h and src/core/queue/consumer.h.

local scene = require "spec.unit.tokens.permit_scene"

local unpack = table.unpack or unpack

local QUEUE, NO_QUEUE = scene.QUEUE, scene.NO_QUEUE
local DOWN = "NOT_FOUND - home node 'rabbit@two' of durable queue 'images.semaphore' in vhost '/' is down"
local LOCKED = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'images.semaphore' in vhost '/'"
local TIMED_OUT = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out"

describe("a permit", function ()
  local peer

  before_each(function () peer = scene.open() end)

  after_each(function ()
    assert.is_false(peer.prober:wanted())
  end)

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

    it("is HELD when a message comes, whatever it is, and keeps its consumer", function ()
      for _, properties in ipairs{ {}, { type = "amqplocks.permit", message_id = "0123456789abcdef" },
        { type = "amqplocks.token" }, { type = "anything", message_id = ("x"):rep(200) } } do
        local op, taker = scene.asking(peer, 0)
        scene.deliver(peer, taker, properties)
        local lock = peer:result(op)
        assert.is_true(lock:held())
        local slot, name, ticket, _, kind = lock:info()
        assert.same({ "images", taker.tag, "permit" }, { name, ticket, kind })
        assert.is_nil(slot)
        peer.holder:silent()
      end
    end)

    it("reads all that came with consume-ok before it asks, whatever else happens", function ()
      local op = scene.semaphore(peer):acquire(0)
      local taker = scene.consumes(peer)
      local message = scene.message(taker)
      peer.holder:send({ channel = taker.channel, method = "basic.consume-ok", consumer_tag = taker.tag },
        { channel = 0, method = "connection.blocked", reason = "low on memory" }, message)
      assert.is_true(peer:result(op):held())
      peer.holder:silent()
    end)

    it("is HELD by a message that came before consume-ok, but not until then", function ()
      local op = scene.semaphore(peer):acquire(0)
      local taker = scene.consumes(peer)
      local delivery = scene.deliver(peer, taker)
      assert.is_false(op:done())
      peer.holder:silent()
      scene.welcome(peer, taker)
      local lock = peer:result(op)
      assert.is_true(lock:held())
      peer.holder:silent()
      lock:release()
      scene.gives_back(peer, taker, delivery)
    end)

    it("keeps one message, and gives back what comes beyond that", function ()
      local op = scene.semaphore(peer):acquire(0)
      local taker = scene.consumes(peer)
      local delivery = scene.deliver(peer, taker)
      scene.nacks(peer, taker, scene.deliver(peer, taker))
      scene.welcome(peer, taker)
      local lock = peer:result(op)
      scene.nacks(peer, taker, scene.deliver(peer, taker))
      assert.is_true(lock:held())
      lock:release()
      scene.gives_back(peer, taker, delivery)
    end)

    for _, refusal in ipairs{ { 404, NO_QUEUE, "not_found" }, { 404, DOWN, "unavailable" },
      { 403, "ACCESS_REFUSED - read access to queue 'images.semaphore' refused", "refused" },
      { 405, LOCKED, "squatted" }, { 406, "PRECONDITION_FAILED - invalid arg 'x-consumer-timeout'", "conflict" },
      { 406, "PRECONDITION_FAILED - consumer limit reached", "limit" },
      { 541, "INTERNAL_ERROR", "unreachable" } } do
      local reply, text, name = refusal[1], refusal[2], refusal[3]
      it(("is GONE when its consume is refused with %d: %s"):format(reply, name), function ()
        local op = scene.semaphore(peer):acquire(10)
        local taker = scene.consumes(peer)
        peer.holder:refuse(taker.channel, reply, text, "basic.consume")
        local words = name == "not_found" and 'there is no token semaphore "images"' or text
        peer:failed(op, name, words)
        peer.holder:silent()
        assert.is_truthy(another().is_new)
      end)
    end

    it("is GONE when the connection is", function ()
      for after = 0, 2 do
        peer = scene.open()
        local op = scene.semaphore(peer):acquire(10)
        local taker = scene.consumes(peer)
        if after >= 1 then scene.welcome(peer, taker) end
        if after >= 2 then
          scene.asks(peer, taker)
          scene.answer(peer, taker)
        end
        peer.holder:down("reset")
        peer:failed(op, "unreachable", "reset")
      end
    end)

    it("given up before consume-ok, in vain or abandoned, closes its channel, and answers nothing any more", function ()
      for _, is_there in ipairs{ false, true } do
        for _, gives_up in ipairs{ function (op) op:drop() end, function () peer:pass(5) end } do
          local op = scene.semaphore(peer):acquire(60)
          local taker = scene.consumes(peer)
          if is_there then scene.deliver(peer, taker) end -- it goes back by itself
          gives_up(op)
          peer.holder:expect("channel.close", { channel = taker.channel })
          scene.welcome(peer, taker)
          scene.deliver(peer, taker)
          peer.holder:silent()
          peer.holder:send{ channel = taker.channel, method = "channel.close-ok" }
          scene.deliver(peer, taker)
          peer.holder:silent()
        end
      end
    end)
  end)

  describe("RELEASING", function ()
    local taker

    before_each(function ()
      local op
      op, taker = scene.waiting(peer, 10)
      op:drop()
      scene.cancels(peer, taker)
      peer.holder:silent()
    end)

    it("is GONE with cancel-ok, and its channel is used again", function ()
      assert.are_not.equal(taker.channel, another().channel)
      scene.cancelled(peer, taker)
      local next_one = another()
      assert.equal(taker.channel, next_one.channel)
      assert.is_falsy(next_one.is_new)
      assert.are_not.equal(taker.tag, next_one.tag)
    end)

    it("gives back a message that was on its way", function ()
      for _ = 1, 2 do
        scene.nacks(peer, taker, scene.deliver(peer, taker))
        scene.asks(peer, taker)
      end
      scene.answer(peer, taker)
      scene.cancelled(peer, taker)
      scene.answer(peer, taker)
      peer.holder:silent()
      assert.equal(taker.channel, another().channel)
    end)

    it("is not disturbed by a notice that the queue went: cancel-ok comes all the same", function ()
      scene.notice(peer, taker)
      peer.holder:silent()
      scene.cancelled(peer, taker)
      assert.equal(taker.channel, another().channel)
    end)

    it("is GONE when the connection is", function ()
      peer.holder:down()
      local closing = peer.session:close()
      assert.is_true(peer:result(closing))
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
      lock:drop()
      peer.holder:silent()
      local next_one = another()
      assert.same({ taker.channel, false }, { next_one.channel, next_one.is_new })
      assert.are_not.equal(taker.tag, next_one.tag)
    end)

    it("is given back when its lock is dropped or never taken, or with the session, before it says goodbye", function ()
      for _, ends in ipairs{
        function (op) peer:result(op):drop() end,
        function (op) op:drop() end,
        function (op) peer:result(op) peer.session:close() end,
      } do
        peer = scene.open()
        local op, taker = scene.asking(peer, 0)
        local delivery = scene.deliver(peer, taker)
        scene.answer(peer, taker)
        ends(op)
        scene.gives_back(peer, taker, delivery)
      end
      peer.holder:expect("connection.close")
    end)

    it("is given back by its release though a question is still open: the channel is closed behind it", function ()
      local op, taker = scene.asking(peer, 0)
      local delivery = scene.deliver(peer, taker)
      local lock = peer:result(op)
      assert.is_true(peer:result(lock:release()))
      scene.gives_back(peer, taker, delivery)
      peer.holder:expect("channel.close", { channel = taker.channel })
      scene.answer(peer, taker)
      peer.holder:silent()
    end)

    it("is given back when the session rests; after an open question its channel's end is awaited", function ()
      local op, taker = scene.asking(peer, 0)
      local delivery = scene.deliver(peer, taker)
      peer:result(op)
      local rest = peer.session:rest()
      scene.gives_back(peer, taker, delivery)
      peer.holder:expect("channel.close", { channel = taker.channel })
      scene.answer(peer, taker)
      assert.is_false(rest:done())
      peer.holder:send{ channel = taker.channel, method = "channel.close-ok" }
      assert.is_true(peer:result(rest))
    end)

    local function assert_lost(lock, why)
      local held, message, name = lock:held()
      assert.same({ false, "lost" }, { held, name })
      assert.is_truthy(message:find('lost: a permit of "images": ', 1, true), message)
      assert.is_truthy(message:find(why, 1, true), message)
      assert.equal(1, peer.session:alerts())
      peer:failed(lock:verify(), "lost", why)
      peer:failed(lock:release(), "lost", why)
      peer.holder:silent()
    end

    it("is lost when the broker cancels its consumer, closes its channel, or the connection goes", function ()
      for why, ends in pairs{
        ["its queue was deleted or is down"] = function (taker)
          scene.notice(peer, taker)
          peer.holder:closes(taker.channel)
        end,
        ["timed out"] = function (taker) peer.holder:refuse(taker.channel, 406, TIMED_OUT) end,
        ["reset"] = function ()
          peer.holder:down("reset")
          peer.session:open()
          peer:pass(10)
          peer.holder:handshake()
        end,
      } do
        peer = scene.open()
        local lock, taker = scene.holding(peer)
        ends(taker)
        assert_lost(lock, why)
      end
    end)

    it("does not hear what comes for another consumer, such as its channel's last owner", function ()
      local lock, old, delivery = scene.holding(peer)
      lock:release()
      scene.gives_back(peer, old, delivery)
      local op, taker = scene.asking(peer, 0)
      assert.equal(old.channel, taker.channel)
      scene.deliver(peer, old)
      assert.is_false(op:done())
      delivery = scene.deliver(peer, taker)
      lock = peer:result(op)
      scene.deliver(peer, old)
      scene.answer(peer, taker)
      for _, tag in ipairs{ old.tag, taker.tag .. "0", "" } do scene.notice(peer, taker, tag) end
      assert.is_true(lock:held())
      peer.holder:silent()
      lock:release()
      scene.gives_back(peer, taker, delivery)
    end)

    it("keeps the link's pulse beating, and only then", function ()
      peer = scene.open(nil, { heartbeat = 10 })
      local lock, taker = scene.holding(peer)
      peer:pass(5)
      local pulse = peer.holder:opened()
      assert.are_not.equal(taker.channel, pulse)
      peer.holder:expect("basic.qos", { channel = pulse })
      scene.answer(peer, { channel = pulse })
      peer:pass(4)
      assert.is_true(lock:held())
      lock:release()
      peer.holder:ignore()
      peer:pass(5)
      peer.holder:expect("heartbeat")
      peer.holder:silent()
    end)
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

    it("is unreachable when nobody answers in time, and held nevertheless; lost when the connection is", function ()
      local op = lock:verify()
      local channel = looks()
      peer:pass(5)
      peer:failed(op, "unreachable", "did not answer")
      assert.is_true(lock:held())
      peer.holder:declared(channel, QUEUE)
      peer.holder:silent()
      op = lock:verify()
      assert.equal(channel, looks())
      peer.holder:down("reset")
      peer:failed(op, "lost", "reset")
    end)

    it("is lost when its queue is not there, or down: it is let go of", function ()
      for _, text in ipairs{ NO_QUEUE, DOWN } do
        peer = scene.open()
        local delivery
        lock, taker, delivery = scene.holding(peer)
        local op = lock:verify()
        peer.holder:refuse(looks(), 404, text, "queue.declare")
        peer:failed(op, "lost", text)
        scene.gives_back(peer, taker, delivery)
        peer.holder:silent()
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

    it("is lost when the news of it comes first", function ()
      local op = lock:verify()
      local channel = looks()
      scene.notice(peer, taker)
      peer:failed(op, "lost")
      peer.holder:ignore()
      peer.holder:declared(channel, QUEUE)
      peer.holder:silent()
      assert.equal("lost", code(lock))
    end)

    it("is not held when it is released, or dropped, meanwhile", function ()
      for _, letting_go in ipairs{ "release", "drop" } do
        peer = scene.open()
        lock, taker = scene.holding(peer)
        local op = lock:verify()
        local channel = looks()
        lock[letting_go](lock)
        peer:failed(op, "not_held")
        peer.holder:expect("basic.cancel")
        peer.holder:expect("basic.nack")
        peer.holder:expect("channel.close", { channel = channel })
        peer.holder:declared(channel, QUEUE)
        peer.holder:silent()
      end
    end)

    it("cannot be asked for where there is no channel left", function ()
      peer = scene.open(nil, nil, { channel_max = 1 })
      lock, taker = scene.holding(peer)
      peer:failed(lock:verify(), "limit", "no channel")
      assert.is_true(lock:held())
      peer.holder:silent()
    end)
  end)
end)
