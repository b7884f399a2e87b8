-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A quorum mutex is held when its queue has proved it (proof.h). A token is told by its surplus: by how many the
-- failures that its queue counts exceed its other returns. Those are 10, unless something else is said.
local scene = require "spec.unit.tokens.permit_scene"

local QUEUE, CERTAIN, TAKEOVER = "images-fastmutex", 14.5, 15.25

describe("a quorum mutex", function ()
  local peer, mutex

  local function open(settings)
    peer = scene.open(settings)
    peer.holder = peer.quorum -- scenes act on the link on which permits are held
    peer.limits = { version = "4.3.6" }
    mutex = peer:fast_mutex("images", { queue_type = "quorum" })
  end

  before_each(function () open() end)

  -- The core looks whether the queue exists. It may have a token, and a consumer.
  local function looks(exists, tokens, consumers)
    local channel = peer.quorum:expect("queue.declare", { queue = QUEUE, passive = true }).channel
    if exists then
      return peer.quorum:send{ channel = channel, method = "queue.declare-ok", queue = QUEUE,
        message_count = tokens or 1, consumer_count = consumers or 0 }
    end
    peer.quorum:refuse(channel, 404, "NOT_FOUND - no queue 'images-fastmutex' in vhost '/'", "queue.declare")
  end

  local function token(taker, surplus, others)
    taker.others = others or taker.others or 10
    taker.failures = taker.others + surplus
    local message
    message, taker.delivery = scene.message(taker, { headers = { ["x-acquired-count"] = taker.others + taker.failures,
      ["x-delivery-count"] = taker.failures } }, true)
    return message
  end

  local function comes(...) peer.quorum:send(token(...)) end

  -- An acquire that consumes, and gets a token of this surplus, or none: then so many consume. Returns op, taker.
  local function asks(timeout, surplus, consumers, exists, others)
    local op, link = peer:keep(mutex:acquire(timeout)), peer.quorum
    if link:due() then link:handshake(peer.limits) end
    if link:next() == "channel.open" then link:opened() end
    if link:next() == "queue.declare" and link.frames[1].passive then looks(exists ~= false) end
    if link:next() == "channel.open" then link:opened() end
    if link:next() == "basic.qos" then
      link:send{ channel = link:expect("basic.qos", { prefetch_count = 2 }).channel, method = "basic.qos-ok" }
    end
    local declare = link:expect("queue.declare", { queue = QUEUE, passive = false, durable = true })
    local channel = declare.channel
    assert.same({ ["x-queue-type"] = "quorum", ["x-single-active-consumer"] = true, ["x-max-length"] = 1,
      ["x-overflow"] = "reject-publish", ["x-delivery-limit"] = -1, ["x-consumer-timeout"] = 60000,
      ["x-consumer-disconnected-timeout"] = 15000 }, declare.arguments)
    local consume = link:expect("basic.consume", { channel = channel, queue = QUEUE, no_ack = false })
    assert.is_nil(select(2, peer:signed(consume.arguments))["x-priority"])
    link:send{ channel = channel, method = "queue.declare-ok", queue = QUEUE, message_count = 0,
      consumer_count = consumers or 0 }
    local taker = { channel = channel, tag = consume.consumer_tag }
    peer.quorum:send({ channel = channel, method = "basic.consume-ok", consumer_tag = taker.tag },
      surplus and token(taker, surplus, others))
    return op, taker
  end

  -- The core asks how many consumers the queue of a free token has.
  local function counted(taker)
    local queue = peer.quorum:expect("queue.declare", { channel = taker.channel, passive = true }).queue
    peer.quorum:send{ channel = taker.channel, method = "queue.declare-ok", queue = queue, message_count = 0,
      consumer_count = taker.consumers or 1 }
  end

  -- The core gives the token back, by "nack" or "reject".
  local function gives(taker, how)
    peer.quorum:expect("basic." .. how, { channel = taker.channel, delivery_tag = taker.delivery, requeue = true })
    if peer.quorum:next() == "queue.declare" then counted(taker) end
    peer.quorum:silent()
  end

  -- The same, and it comes again.
  local function returns(taker, how, ...)
    for _, way in ipairs{ how, ... } do
      gives(taker, way)
      local surplus = taker.failures - taker.others
      if way == "nack" then taker.others = taker.others + 1 end
      comes(taker, way == "nack" and surplus - 1 or surplus + 1)
    end
  end

  local function is_even(taker) return taker.others % 2 == 0 end

  local function pulse(taker) returns(taker, "nack", "nack", "reject", "reject") end

  -- The core proves that it has the token, and brings it to what a holder leaves.
  local function proves(taker)
    returns(taker, "reject")
    while taker.failures ~= taker.others or not is_even(taker) do
      returns(taker, is_even(taker) and taker.failures < taker.others and "reject" or "nack")
    end
  end

  -- For so many seconds the mutex may be held by another client. The core leaves the token odd.
  local function doubts(taker, seconds)
    if is_even(taker) then returns(taker, "nack") end
    for _ = 1, math.floor(seconds) do
      peer:pass(1)
      if peer.quorum:next() == "heartbeat" then peer.quorum:expect "heartbeat" end
      peer.quorum:silent()
    end
    peer:pass(seconds % 1)
  end

  -- Now another client may hold the mutex; when it certainly does not, the core proves it. Returns the lock.
  local function waits_out(op, taker)
    doubts(taker, TAKEOVER - 0.01)
    peer.quorum:silent()
    peer:pass(0.02)
    assert.is_false(op:done())
    proves(taker)
    return peer:result(op)
  end

  -- What the core asks while no token has come.
  local function settles(taker)
    if peer.quorum:next() == "channel.open" then peer.quorum:opened() end
    local channel = peer.quorum:expect("queue.declare", { queue = QUEUE, passive = true }).channel
    peer.quorum:send{ channel = channel, method = "queue.declare-ok", queue = QUEUE, message_count = 0,
      consumer_count = 1 }
    scene.asks(peer, taker)
    scene.answer(peer, taker)
  end

  -- Returns lock, taker; its surplus is 0.
  local function holding()
    local op, taker = asks(0, 1)
    returns(taker, "reject", "nack")
    assert.is_false(op:done())
    returns(taker, "nack")
    return peer:result(op), taker
  end

  it("is held when the token came back by our reject, for as long as the queue confirms it", function ()
    local lock, taker = holding()
    for _ = 1, 3 do
      assert.near(CERTAIN, lock:certain_for(), 0.01)
      peer:pass(2.6)
      returns(taker, "nack")
      assert.near(CERTAIN - 2.6, lock:certain_for(), 0.01)
      returns(taker, "nack", "reject", "reject")
    end
    peer:pass(2.6)
    gives(taker, "nack")
    peer:pass(CERTAIN - 2.7)
    assert.is_true(lock:held())
    peer:pass(0.2)
    assert.equal("lost", select(3, lock:held()))
    peer.quorum:closes(taker.channel)
  end)

  it("is certain since its question was sent, not since the answer came", function ()
    local op, taker = asks(20, 1)
    gives(taker, "reject")
    peer:pass(3)
    comes(taker, 2)
    returns(taker, "nack", "nack")
    assert.near(CERTAIN - 3, peer:result(op):certain_for(), 0.01)
  end)

  it("is not held by an answer that is not exactly one step further", function ()
    for _, counts in ipairs{ { 1, 11 }, { 0, 12 }, { 3, 10 } } do
      local op, taker = asks(60, 1)
      returns(taker, "reject", "nack")
      gives(taker, "nack")
      comes(taker, counts[1], counts[2] + 1)
      assert.is_false(op:done())
      op:drop()
      peer.quorum:ignore()
    end
  end)

  it("is lost by such an answer, and by a token that comes beside the one in hand", function ()
    for _, counts in ipairs{ { 0, 13 }, { 0, 14 }, { -2, 14 }, { 1, 13 }, { -1, 13, is_beside = true } } do
      local lock, taker = holding()
      if not counts.is_beside then
        peer:pass(2.6)
        gives(taker, "nack")
      end
      comes(taker, counts[1], counts[2])
      assert.equal("lost", select(3, lock:held()))
      peer.quorum:closes(taker.channel)
    end
  end)

  it("whose last holder may not know its loss is waited for, and then proved by rejects", function ()
    open{ url = "amqp://localhost?heartbeat=10" }
    local op, taker = asks(60, 0)
    assert.near(CERTAIN, waits_out(op, taker):certain_for(), 0.01) -- the broker has answered on this connection, too
  end)

  it("is held when it would not be free to another client, should the queue hand it on", function ()
    local op, taker = asks(60, 2)
    returns(taker, "reject", "nack", "nack", "nack", "nack")
    assert.is_false(op:done())
    returns(taker, "reject")
    assert.is_true(peer:result(op):held())
  end)

  it("is not free while the queue counts another consumer, or does not answer", function ()
    for consumers = 0, 2, 2 do
      local op, taker = asks(60)
      settles(taker)
      taker.consumers = consumers
      comes(taker, 1, 10)
      if consumers == 2 then taker.consumers = 1 end
      returns(taker, "reject", "nack")
      taker.consumers = consumers
      returns(taker, "nack")
      if consumers == 2 then returns(taker, "nack") end -- also if it counted 1 before
      peer.quorum:silent()
      assert.is_false(op:done())
      if consumers == 0 then
        taker.consumers = 1
        peer:pass(2.6)
        pulse(taker)
      else
        doubts(taker, TAKEOVER)
        proves(taker)
      end
      local lock = peer:result(op)
      lock:release():drop()
      peer.quorum:closes(taker.channel)
    end
  end)

  -- Otherwise clients with shorter timeouts would wait anew, one after the other, for ever.
  it("whose last holder may not know its loss is busy, and given back when the next client need not wait", function ()
    for i, timeout in ipairs{ 0, 5 } do
      local op, taker = asks(timeout, -1, nil, nil, 11)
      if timeout > 0 then doubts(taker, 5.01) end
      peer:failed(op, timeout > 0 and "timeout" or "busy", 'fast mutex "images" '
        .. (timeout > 0 and "did not come free within 5 s" or "is held"))
      peer.quorum:silent()
      local close = i == 2 and peer.session:close() -- which waits for that
      doubts(taker, TAKEOVER + 0.01 - (timeout > 0 and 5.01 or 0))
      assert.is_false(close and close:done())
      proves(taker)
      peer.quorum:closes(taker.channel)
      if close then peer.quorum:expect "connection.close" end
    end
  end)

  it("is given back at once by a client that has only got it", function ()
    local op, taker = asks(5, 1)
    gives(taker, "reject")
    peer:pass(5.01)
    peer.quorum:closes(taker.channel)
    peer:failed(op, "timeout")
  end)

  it("with a token that nobody has held is doubted, unless there was no queue", function ()
    for _, exists in ipairs{ true, false } do
      mutex = peer:fast_mutex("images", { queue_type = "quorum" })
      local op, taker = asks(60, 1, 0, exists, 0) -- somebody had it, and has ended
      if exists then returns(taker, "nack") else returns(taker, "reject", "nack", "nack") end
      assert.equal(not exists, op:done())
      op:drop()
      peer.quorum:ignore()
    end
  end)

  it("that is deserted gets a token; one that another client holds is busy", function ()
    local op, taker = asks(60)
    settles(taker)
    peer.prober:handshake()
    assert.same({ "images-mutex" }, peer.prober:look{})
    assert.equal(QUEUE, peer.prober:probes()[1].queue)
    assert.is_false(op:done())
    op, taker = asks(0, nil, 1)
    settles(taker)
    peer.quorum:closes(taker.channel)
    peer:failed(op, "busy")
  end)

  -- Another token comes, with these counts of the queue, perhaps behind another message.
  local function another(taker, acquired, failures, behind)
    local message, delivery = scene.message(taker, { message_id = "7", headers = { ["x-acquired-count"] = acquired,
      ["x-delivery-count"] = failures } }, true)
    peer.quorum:send(behind or message, behind and message)
    return delivery
  end

  local function deletes(taker, delivery)
    peer.quorum:expect("basic.ack", { channel = taker.channel, delivery_tag = delivery, multiple = false })
    peer.quorum:silent()
  end

  it("deletes a token that comes beside its own, or in place of it", function ()
    local lock, taker = holding()
    deletes(taker, another(taker, 20, 10))
    peer:pass(2.6)
    pulse(taker)
    deletes(taker, another(taker, 0, 0))
    assert.is_true(lock:held())
    lock:release():drop()
    peer.quorum:closes(taker.channel)
    local op
    op, taker = asks(60, 1)
    returns(taker, "reject", "nack")
    gives(taker, "nack")
    deletes(taker, another(taker, 12, 12)) -- nobody has held it
    assert.is_false(op:done())
    comes(taker, 0, 12)
    assert.is_true(peer:result(op):held())
  end)

  it("whose queue has two tokens is proved by the one that may be held, not by the free one", function ()
    local op, taker = asks(60, nil, 1)
    settles(taker)
    local own = token(taker, 1)
    local free, held = taker.delivery, another(taker, 20, 10, own)
    peer.quorum:expect("basic.ack", { channel = taker.channel, delivery_tag = free })
    taker.delivery = held
    gives(taker, "nack")
    op:drop()
    peer.quorum:ignore()
    taker = select(2, asks(60, 1))
    gives(taker, "reject")
    taker.delivery = another(taker, 20, 10)
    gives(taker, "nack")
    comes(taker, 2)
    deletes(taker, taker.delivery)
  end)

  it("whose queue has a free token, too, is not proved by one that nobody has held", function ()
    local op, taker = asks(60, 0, 0, true, 0)
    gives(taker, "nack")
    taker.delivery = another(taker, 21, 11)
    gives(taker, "reject")
    op:drop()
  end)

  it("whose queue has two tokens that may be held is proved by the one of the lower surplus", function ()
    local op, taker = asks(60, 0)
    gives(taker, "nack")
    taker.delivery = another(taker, 25, 10)
    peer:pass(TAKEOVER + 0.01)
    gives(taker, "reject")
    op:drop()
  end)

  -- A client in doubt gives its token back, and deletes another one that comes meanwhile, and may be held, too.
  local function deletes_in_doubt()
    local op, taker = asks(60, 0)
    gives(taker, "nack")
    deletes(taker, another(taker, 31, 20))
    return op, taker
  end

  it("whose queue has two tokens that may be held is waited for since the second one came", function ()
    local op, taker = deletes_in_doubt()
    comes(taker, -1, taker.others + 1)
    assert.is_true(waits_out(op, taker):held())
  end)

  it("is still waited for when its own token is gone, and a free one comes: the deleted one may be held", function ()
    local op, taker = deletes_in_doubt()
    peer:pass(CERTAIN + 0.1)
    peer.quorum:ignore()
    taker.delivery = another(taker, 21, 11)
    gives(taker, "nack")
    assert.is_false(op:done())
  end)

  -- A waiter is told of so many tokens and consumers. Returns how many it has published until it does something else,
  -- and after how many seconds that was.
  local function stands(tokens, consumers)
    local began, quorum, prober, rings = peer.now, peer.quorum, peer.prober, 0
    repeat
      peer:pass(1)
      if prober:due() then prober:handshake() end
      if prober:next() == "heartbeat" then prober:ignore() end
      if prober:next() ~= "nothing" then rings = rings + #prober:look{ [QUEUE] = "nack" } end
      if quorum:next() == "channel.open" then quorum:opened() end
      if quorum:next() == "queue.declare" then looks(true, tokens, consumers) end
    until quorum:next() ~= "nothing" or peer.now - began > 200
    return rings, peer.now - began
  end

  it("gets a token from its waiter at times; one that is passed over asks anew", function ()
    for _, way in ipairs{ "a token lies ready", "its own does not come again" } do
      local op, taker = asks(1000, nil, 1)
      settles(taker)
      local rings, seconds = stands(0, 0) -- the queue does not answer
      assert.is_true(rings == 0 and seconds > 200)
      rings, seconds = stands(0, 1)
      assert.is_true(rings > 0 and seconds > 200)
      if way == "its own does not come again" then
        comes(taker, 1)
        gives(taker, "reject")
        assert.is_true(select(2, stands(0, 0)) > 200)
      end
      assert.is_true(select(2, stands(way == "a token lies ready" and 1 or 0, 1)) < 200)
      peer.quorum:closes(taker.channel)
      assert.is_false(op:done())
      op:drop()
      peer.quorum:ignore()
    end
  end)

  it("is released by the end of its channel, during a proof behind the proof's end", function ()
    local lock, taker = holding()
    local op = peer:keep(lock:release())
    peer.quorum:closes(taker.channel)
    assert.is_true(op:done())
    lock, taker = holding()
    peer:pass(2.6)
    gives(taker, "nack")
    op = peer:keep(lock:release())
    peer.quorum:silent()
    comes(taker, -1, 13)
    returns(taker, "nack", "reject", "reject")
    peer.quorum:closes(taker.channel)
    assert.is_true(op:done())
  end)

  it("is verified by a proof that begins after the question", function ()
    local lock, taker = holding()
    local op = peer:keep(lock:verify())
    peer:tick()
    gives(taker, "nack")
    local second = peer:keep(lock:verify())
    comes(taker, -1, 13)
    returns(taker, "nack", "reject")
    assert.is_true(op:done() and second:done())
    returns(taker, "reject")
    local third = peer:keep(lock:verify())
    peer:tick()
    returns(taker, "nack", "nack")
    gives(taker, "reject")
    local fourth = peer:keep(lock:verify())
    comes(taker, -1)
    assert.is_true(third:done())
    assert.is_false(fourth:done())
  end)

  -- Such a consume may end the connection, and with it the channels of others first.
  it("lets the next client wait, should its channel end, while its session consumes from another queue", function ()
    local lock, held = holding()
    local other = peer:fast_mutex("maps", { queue_type = "quorum" })
    local op = peer:keep(other:acquire(60))
    if peer.quorum:next() == "channel.open" then peer.quorum:opened() end
    peer.quorum:send{ channel = peer.quorum:expect("queue.declare", { passive = true }).channel,
      method = "queue.declare-ok", queue = "maps-fastmutex", message_count = 1, consumer_count = 0 }
    gives(held, "nack") -- and nothing else yet
    comes(held, -1, 13)
    if peer.quorum:next() == "basic.qos" then peer.quorum:expect "basic.qos" end
    local taker = { channel = peer.quorum:expect("queue.declare", { queue = "maps-fastmutex" }).channel }
    taker.tag = peer.quorum:expect("basic.consume", { channel = taker.channel }).consumer_tag
    for _ = 1, 8 do
      peer:keep(lock:verify())
      peer:tick()
      returns(held, "nack", "nack", "reject")
      if held.failures - held.others < -7 then returns(held, "reject") end
    end
    peer.quorum:send({ channel = taker.channel, method = "queue.declare-ok", queue = "maps-fastmutex",
      message_count = 1, consumer_count = 0 }, { channel = taker.channel, method = "basic.consume-ok",
      consumer_tag = taker.tag }, token(taker, 1))
    peer.quorum:expect("basic.reject", { channel = taker.channel })
    counted(taker)
    returns(held, "nack")
    while held.failures < held.others do returns(held, "reject") end
    comes(taker, 2)
    returns(taker, "nack", "nack")
    assert.is_true(peer:result(op):held() and lock:held())
  end)

  it("lets its session give back a quorum permit by the end of its channel, as the mutex may lack a shield", function ()
    local op = scene.semaphore(peer, true):acquire(60)
    local taker = scene.consumes(peer)
    peer.quorum:send({ channel = taker.channel, method = "basic.consume-ok", consumer_tag = taker.tag },
      (scene.message(taker)))
    local permit, lock = peer:result(op), holding()
    permit:release()
    peer.quorum:closes(taker.channel)
    assert.is_true(lock:held())
  end)

  it("deletes a token that is older than the one that it awaits", function ()
    local _, taker = asks(60, 1)
    gives(taker, "reject")
    comes(taker, 2, 9)
    peer.quorum:expect("basic.ack", { channel = taker.channel, delivery_tag = taker.delivery })
  end)

  it("is asked for again when the broker ends the connection by an error, as while its queue is made", function ()
    local op = asks(60, nil, 0, false)
    peer.quorum:send{ channel = 0, method = "connection.close", reply_code = 541, reply_text = "INTERNAL_ERROR",
      class_id = 0, method_id = 0 }
    assert.is_false(op:done())
    peer:live(5, function () return peer.quorum:due() end)
  end)

  it("is left to a client that may be making its queue, for a second", function ()
    local op = peer:keep(mutex:acquire(60))
    peer.quorum:handshake(peer.limits)
    peer.quorum:opened()
    for _, seconds in ipairs{ 0.2, 0.9 } do
      looks(true, 0, 0)
      peer.quorum:silent()
      peer:pass(seconds)
    end
    looks(true, 0, 0)
    peer.quorum:expect("basic.qos", { prefetch_count = 2 })
    assert.is_false(op:done())
  end)

  it("needs RabbitMQ 4.3", function ()
    local op = peer:keep(mutex:acquire(0))
    peer.quorum:handshake{ version = "4.2.6" }
    peer:failed(op, "conflict", "4.3", "4.2")
  end)
end)
