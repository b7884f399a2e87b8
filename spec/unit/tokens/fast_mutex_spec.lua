-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Acquiring a fast mutex: which requests it sends, when it rings, and what it leaves behind. Waiting and releasing are
-- as for a permit: permit_spec.
local scene = require "spec.unit.tokens.permit_scene"

local QUEUE = "images-fastmutex"

describe("a fast mutex", function ()
  local peer, mutex

  before_each(function ()
    peer = scene.open()
    mutex = peer:fast_mutex "images"
  end)

  local function acquire(...) return peer:keep(mutex:acquire(...)) end

  -- So many tokens are ready, so many clients consume.
  local function counts(channel, tokens, consumers)
    peer.holder:send{ channel = channel, method = "queue.declare-ok", queue = QUEUE, message_count = tokens,
      consumer_count = consumers }
  end

  -- The core declares the queue. Returns the channel.
  local function declares()
    local holder = peer.holder
    local opened = holder:next() == "channel.open" and holder:opened()
    if opened then holder:send{ channel = holder:expect("basic.qos").channel, method = "basic.qos-ok" } end
    local declare = holder:expect("queue.declare", { queue = QUEUE, passive = false, durable = true,
      exclusive = false, auto_delete = false, no_wait = false })
    assert.same({ ["x-queue-type"] = "classic", ["x-single-active-consumer"] = true, ["x-max-length"] = 1,
      ["x-overflow"] = "reject-publish", ["x-expires"] = 600000 }, declare.arguments)
    return declare.channel
  end

  -- The core consumes. Returns { channel =, tag = }.
  local function consumes()
    local consume = peer.holder:expect("basic.consume", { queue = QUEUE, no_ack = false, exclusive = false,
      no_wait = false })
    return { channel = consume.channel, tag = consume.consumer_tag }
  end

  -- The core declares the queue and consumes, and the broker welcomes it: so many tokens are ready, so many others
  -- consume. Returns { channel =, tag = }.
  local function asks(tokens, consumers)
    local channel = declares()
    local taker = consumes()
    assert.equal(channel, taker.channel)
    counts(channel, tokens, consumers)
    scene.welcome(peer, taker)
    scene.asks(peer, taker)
    return taker
  end

  -- An acquire that gets a token with these properties, and releases it. `is_known`: by that.
  local function visits(token, is_known)
    local op = acquire(0)
    local taker = consumes()
    scene.deliver(peer, taker, token)
    scene.welcome(peer, taker)
    if not is_known then
      assert.equal(taker.channel, declares())
      assert.is_false(op:done())
      counts(taker.channel, 0, 1)
    end
    peer:result(op):release()
    peer.holder:ignore()
  end

  -- The first acquire of the mutex. Its token has this id.
  local function begins(id)
    local op, taker = acquire(0), asks(1, 0)
    scene.deliver(peer, taker, { message_id = id })
    scene.answer(peer, taker)
    peer:result(op):release()
    peer.holder:ignore()
  end

  -- An acquire that waits, and finds no token and nobody else. Returns op, taker.
  local function is_deserted()
    local op, taker = acquire(60), asks(0, 0)
    scene.answer(peer, taker)
    return op, taker
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

  -- The queue answers a declare before a nack that came earlier.
  it("is held by a token that no count told of", function ()
    local op, taker = acquire(0), asks(0, 0)
    scene.deliver(peer, taker)
    assert.is_true(peer:result(op):held())
  end)

  it("is consumed from without a declare for five seconds; one with another token is declared", function ()
    begins "1.a"
    for _, row in ipairs{
      { { message_id = "1.a" }, true }, { { message_id = "2.b" } }, { { message_id = "2.b" }, true },
      { { message_id = "2.b", headers = { ["x-shovelled"] = true } } },
      { { message_id = "2.b", headers = { path = ("x"):rep(1100) } } },
    } do visits(row[1], row[2]) end
    visits{}
    begins "3.c" -- as the last token had no id
    peer:pass(5)
    begins "3.c"
  end)

  it("whose token is not the known one is a conflict if its queue has another shape", function ()
    begins "1.a"
    local op, taker = acquire(0), consumes()
    scene.deliver(peer, taker, { message_id = "2.b" })
    scene.welcome(peer, taker)
    peer.holder:refuse(declares(), 406, "PRECONDITION_FAILED - inequivalent arg", "queue.declare")
    peer:failed(op, "conflict", "inequivalent arg")
  end)

  it("whose queue is gone is declared at once, after it was consumed from without a declare", function ()
    begins "1.a"
    local op = acquire(0)
    peer.holder:refuse(consumes().channel, 404, "NOT_FOUND - no queue '" .. QUEUE .. "' in vhost '/'", "basic.consume")
    scene.deliver(peer, asks(1, 0))
    assert.is_true(peer:result(op):held())
  end)

  it("that was not declared is declared if nothing comes, by a waiter a moment later, and rung if deserted", function ()
    for _, timeout in ipairs{ 0, 60 } do
      peer = scene.open()
      mutex = peer:fast_mutex "images"
      begins "1.a"
      local op, taker = acquire(timeout), consumes()
      scene.welcome(peer, taker)
      if timeout > 0 then
        scene.asks(peer, taker)
        scene.answer(peer, taker)
        peer.holder:silent()
        peer:pass(0.1)
      end
      counts(declares(), 0, 1)
      scene.asks(peer, taker)
      scene.answer(peer, taker)
      rings()
      assert.is_false(op:done())
    end
  end)

  it("that another client holds is waited for; each poll publishes a token, over a prober opened for that", function ()
    local op, taker = acquire(60, false, 0, 4), asks(0, 1)
    scene.answer(peer, taker)
    peer.holder:silent()
    peer:pass(4)
    assert.is_true(peer.prober:wanted())
    peer.prober:handshake()
    peer:pass(0.3)
    for _ = 1, 2 do
      local probes = peer.prober:probes()
      assert.same({ QUEUE, "amqplocks.token" }, { probes[1].queue, probes[1].properties.type })
      peer.prober:send(peer.prober.nack(probes[1])) -- the queue has one
      peer:pass(4)
    end
    scene.deliver(peer, taker)
    assert.is_true(peer:result(op):held())
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
      mutex = peer:fast_mutex "images"
      local op, taker = is_deserted()
      case[2]()
      peer:failed(op, code, case[1])
      scene.cancels(peer, taker)
      scene.cancelled(peer, taker)
      peer.holder:silent()
    end
  end)

  it("that is deserted gets a token over another prober, if its waiter has lost one at any moment", function ()
    local op, taker = is_deserted()
    for step = 1, 2 do
      peer.prober:handshake()
      if step == 1 then peer.prober:probes() else rings() end
      peer:pass(4) -- the next prober has a timeout of its own
      peer.prober:down "reset by peer"
      peer:pass(2)
    end
    local token = rings()
    peer.prober:send(peer.prober.returned(token), peer.prober.ack(token)) -- its node does not know the queue yet
    peer:pass(2)
    assert.equal(QUEUE, peer.prober:probes()[1].queue)
    scene.deliver(peer, taker)
    assert.is_true(peer:result(op):held())
  end)

  it("whose queue was made anew by others while it was held is lost when it is verified", function ()
    local op, taker = acquire(0), asks(1, 0)
    local delivery = scene.deliver(peer, taker)
    local lock = peer:result(op)
    scene.answer(peer, taker)
    op = peer:keep(lock:verify())
    if peer.holder:next() == "channel.open" then peer.holder:opened() end
    local look = peer.holder:expect("queue.declare", { queue = QUEUE, passive = true })
    peer.holder:send{ channel = look.channel, method = "queue.declare-ok", queue = QUEUE, message_count = 1,
      consumer_count = 0 }
    scene.gives_back(peer, taker, delivery)
    peer:failed(op, "lost", "its queue was made anew")
    assert.equal("lost", select(3, lock:held()))
  end)
end)
