-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Acquiring a fast mutex: which requests it sends, when it rings, and what it leaves behind. Waiting and releasing are
-- as for a permit: token_semaphore_spec, permit_spec.
local scene = require "spec.unit.tokens.permit_scene"

local QUEUE = "images-fastmutex"
local HELD = 'fast mutex "images" is held'

describe("a fast mutex", function ()
  local peer, mutex

  before_each(function ()
    peer = scene.open()
    mutex = peer.session:fast_mutex "images"
  end)

  local function acquire(...) return peer:keep(mutex:acquire(...)) end

  -- The core declares and consumes. Returns { channel =, tag = }.
  local function asks()
    local holder = peer.holder
    local opened = holder:next() == "channel.open" and holder:opened()
    if holder:next() == "basic.qos" then
      local qos = holder:expect("basic.qos", { prefetch_count = 1 })
      holder:send{ channel = qos.channel, method = "basic.qos-ok" }
    end
    local declare = holder:expect("queue.declare", { queue = QUEUE, passive = false, durable = true,
      exclusive = false, auto_delete = false, no_wait = false })
    assert.same({ ["x-queue-type"] = "classic", ["x-single-active-consumer"] = true, ["x-max-length"] = 1,
      ["x-overflow"] = "reject-publish", ["x-expires"] = 600000 }, declare.arguments)
    local consume = holder:expect("basic.consume", { channel = declare.channel, queue = QUEUE, no_ack = false,
      exclusive = false, no_wait = false })
    if opened then assert.equal(opened, consume.channel) end
    return { channel = consume.channel, tag = consume.consumer_tag, consume = consume }
  end

  -- The broker has declared it: so many tokens are ready, and so many consume.
  local function declared(taker, tokens, consumers)
    peer.holder:send{ channel = taker.channel, method = "queue.declare-ok", queue = QUEUE, message_count = tokens,
      consumer_count = consumers }
  end

  -- The broker welcomes it, and has nothing for it.
  local function is_welcome(taker, tokens, consumers)
    declared(taker, tokens, consumers)
    scene.welcome(peer, taker)
    scene.asks(peer, taker)
    scene.answer(peer, taker)
  end

  -- An acquire finds so many other clients there, and no token. Returns op, taker.
  local function meets(others, ...)
    local op, taker = acquire(...), asks()
    is_welcome(taker, 0, others)
    return op, taker
  end

  -- The core is asked for a try, and the broker has welcomed it; the queue has so many tokens. Returns op, taker.
  local function settles(tokens)
    local op, taker = acquire(0), asks()
    declared(taker, tokens, 0)
    scene.welcome(peer, taker)
    scene.asks(peer, taker)
    return op, taker
  end

  -- The core stops consuming: it is busy.
  local function is_busy(op, taker)
    scene.cancels(peer, taker)
    scene.cancelled(peer, taker)
    peer:failed(op, "busy", HELD)
  end

  -- The core asks for the plain mutex, which is absent, and rings. Returns the probe.
  local function rings()
    if peer.prober:state() ~= "open" then peer.prober:handshake() end
    assert.same({ "images-mutex" }, peer.prober:look{})
    local probes = peer.prober:probes()
    assert.same({ QUEUE, "amqplocks.token", 2 },
      { probes[1].queue, probes[1].properties.type, probes[1].properties.delivery_mode })
    return probes[1]
  end

  -- Held, by an acquire. Returns lock, taker, delivery tag.
  local function holding()
    local op, taker = settles(1)
    local delivery = scene.deliver(peer, taker)
    local lock = peer:result(op)
    scene.answer(peer, taker)
    return lock, taker, delivery
  end

  -- The queue answers a declare before a nack that came earlier.
  it("is held by a token that no count told of", function ()
    local op, taker = settles(0)
    scene.deliver(peer, taker)
    assert.is_true(peer:result(op):held())
  end)

  it("that another client holds is waited for; each poll publishes a token, over a prober opened for that", function ()
    local op, taker = meets(1, 60, false, 0, 4)
    peer.holder:silent()
    assert.is_false(op:done())
    peer:pass(4)
    assert.is_true(peer.prober:wanted())
    peer.prober:handshake()
    peer:pass(0.3)
    for _ = 1, 3 do
      local probes = peer.prober:probes()
      assert.same({ QUEUE, "amqplocks.token" }, { probes[1].queue, probes[1].properties.type })
      peer.prober:send(peer.prober.nack(probes[1])) -- the queue has one
      peer:pass(4)
    end
    scene.deliver(peer, taker)
    assert.is_true(peer:result(op):held())
  end)

  describe("that was counted less than five seconds ago", function ()
    local taker

    -- The core declares the queue without an answer, and consumes.
    local function consumes()
      peer.holder:expect("queue.declare", { queue = QUEUE, passive = false, no_wait = true })
      local consume = peer.holder:expect("basic.consume", { queue = QUEUE })
      taker = { channel = consume.channel, tag = consume.consumer_tag, consume = consume }
      scene.welcome(peer, taker)
    end

    -- The core looks at the queue, which has so many tokens and consumers, this one among them.
    local function looks(tokens, consumers)
      if peer.holder:next() == "channel.open" then peer.holder:opened() end
      local look = peer.holder:expect("queue.declare", { queue = QUEUE, passive = true })
      peer.holder:send{ channel = look.channel, method = "queue.declare-ok", queue = QUEUE,
        message_count = tokens, consumer_count = consumers }
      scene.asks(peer, taker)
    end

    before_each(function ()
      local lock, first, delivery = holding()
      lock:release()
      scene.gives_back(peer, first, delivery)
      peer:pass(4.9)
    end)

    it("is consumed from at once, and held", function ()
      local op = acquire(0)
      consumes()
      looks(0, 1)
      scene.deliver(peer, taker)
      assert.is_true(peer:result(op):held())
    end)

    it("is busy if another client is there as well", function ()
      local op = acquire(0)
      consumes()
      looks(0, 2)
      scene.answer(peer, taker)
      is_busy(op, taker)
      assert.is_false(peer.prober:wanted())
    end)

    it("is rung once if nobody else is there, and is busy if its queue takes no token", function ()
      local op = acquire(0)
      consumes()
      looks(0, 1)
      scene.answer(peer, taker)
      peer.prober:send(peer.prober.nack(rings()))
      scene.asks(peer, taker)
      scene.answer(peer, taker)
      is_busy(op, taker)
      peer.prober:silent()
    end)
  end)

  it("that is deserted gets no token where that is impossible, and leaves no consumer", function ()
    for code, case in pairs{
      conflict = { '"images" is in use as a plain mutex', function ()
        peer.prober:handshake()
        assert.same({ "images-mutex" }, peer.prober:look{ "images-mutex" })
      end },
      unreachable = { "refused", function ()
        peer.prober:attach()
        peer.prober:down "refused"
      end },
    } do
      peer = scene.open()
      mutex = peer.session:fast_mutex "images"
      local op, taker = meets(0, 60)
      case[2]()
      peer:failed(op, code, case[1])
      scene.cancels(peer, taker)
      scene.cancelled(peer, taker)
      peer.holder:silent()
    end
  end)

  it("that is deserted gets a token over another prober, if its waiter has lost one at any moment", function ()
    local op, taker = meets(0, 60)
    for step = 1, 2 do
      peer.prober:handshake()
      if step == 1 then peer.prober:probes() else rings() end
      peer.prober:down "reset by peer"
      peer:pass(2)
    end
    rings()
    scene.deliver(peer, taker)
    assert.is_true(peer:result(op):held())
  end)

  it("whose queue was made anew by others while it was held is lost when it is verified", function ()
    local lock, taker, delivery = holding()
    local op = peer:keep(lock:verify())
    if peer.holder:next() == "channel.open" then peer.holder:opened() end
    local look = peer.holder:expect("queue.declare", { queue = QUEUE, passive = true })
    peer.holder:send{ channel = look.channel, method = "queue.declare-ok", queue = QUEUE, message_count = 1,
      consumer_count = 0 }
    scene.gives_back(peer, taker, delivery)
    peer:failed(op, "lost", "its queue was made anew")
    assert.equal("lost", select(3, lock:held()))
  end)

  it("whose queue's node is down is unavailable", function ()
    local op = acquire(60)
    peer.holder:refuse(asks().channel, 404, "NOT_FOUND - home node 'rabbit@other' of durable queue "
      .. "'images-fastmutex' in vhost '/' is down or inaccessible", "queue.declare")
    peer:failed(op, "unavailable", "down or inaccessible")
  end)
end)
