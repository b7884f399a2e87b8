-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The seal of a mutex (src/core/hold/seal.h), refused, late, and lost. broker/settle_spec.lua is about what others see.

local scene = require "spec.unit.locks.rwlock_scene"

local MUTEX, SEAL = "db-mutex", "db-mutex-seal"

describe("an acquire that settles", function()
  local peer, mutex

  local function open(...) peer, mutex = scene.open("mutex", ...) end

  before_each(function() open() end)

  -- It has the mutex by now, and not its lock. Returns the operation, and its claim of the mutex.
  local function begins(timeout, patient, settle)
    local op = mutex:acquire(timeout, false, 0, 5, patient, nil, settle or 20)
    return op, scene.shuts(peer, MUTEX)
  end

  local function sees(state) scene.looks(peer, SEAL, state) end

  -- Returns the claim of the seal.
  local function puts_on(settle)
    local holder = peer.holder
    if holder:next() == "channel.open" then holder:opened() end
    local channel = holder:expect("queue.delete", { queue = SEAL, no_wait = true, if_unused = false }).channel
    table.remove(holder.deletes[channel])
    local declare = holder:expect("queue.declare", { channel = channel, queue = SEAL, no_wait = true, durable = true })
    assert.equal((settle or 20) * 1000, declare.arguments["x-expires"])
    local consume = holder:expect("basic.consume", { channel = channel, queue = SEAL, no_ack = true })
    peer:silent()
    return { channel = channel, tag = consume.consumer_tag, queue = SEAL }
  end

  local function is_refused(seal, code, text) peer.holder:refuse(seal.channel, code, text, "basic.consume") end

  it("puts its seal on again if that was deleted before it had a consumer, and asks for the mutex if that takes long",
    function()
      local op, claim = begins(0)
      sees "free"
      for _ = 1, 2 do is_refused(puts_on(), 404, "NOT_FOUND - no queue 'db-mutex-seal' in vhost '/'") end
      local seal = puts_on()
      peer.reads_at = peer.now + 200 -- heartbeats are 60
      peer.holder:consumed(seal)
      peer.now, peer.reads_at = peer.reads_at, nil
      assert.is_false(op:done())
      peer.holder:expect("queue.declare", { channel = claim.channel, queue = MUTEX, passive = true })
      peer.holder:declared(claim.channel, MUTEX)
      assert.is_true(peer:result(op):held())
    end)

  for _, state in ipairs{ "nack", "seems absent" } do
    it("waits for its own time, and puts no seal on, while the node of the seal before is down: " .. state, function()
      local function looks(is_over)
        peer.prober:look{ [SEAL] = state }
        if not is_over and state == "nack" then return end
        is_refused(puts_on(), 404, "NOT_FOUND - home node 'rabbit@other' of durable queue is down or inaccessible")
      end
      local op = begins(0)
      looks()
      peer:live(0.2, function() if peer.prober:next() == "basic.publish" then looks() end end)
      peer.holder:ignore()
      peer:pass(10)
      peer:failed(op, "busy", "settles for 20 s")
      open()
      local claim
      op, claim = begins(60)
      looks()
      peer:live(19.99, function() if peer.prober:next() == "basic.publish" then looks() end end)
      assert.is_false(op:done())
      peer:pass(0.01)
      looks(true)
      peer:result(op):release()
      scene.deletes(peer, claim)
      peer.holder:silent()
    end)
  end

  it("is refused where the seal is, and gives the mutex back", function()
    local op, claim = begins(60)
    sees "free"
    is_refused(puts_on(), 403, scene.DENIED)
    scene.goes(peer, claim, "db-mutexbell")
    peer:failed(op, "refused", "was not sealed", "access refused")
    open(nil, nil, { channel_max = 1 })
    op = begins(0)
    sees "free"
    peer.holder:ignore()
    peer:pass(10)
    peer:failed(op, "limit", "a lock that settles takes two")
  end)

  it("is told of its time while it puts its seal on, and gives both back", function()
    local op, claim = begins(3)
    sees "free"
    local seal = puts_on()
    peer:pass(3)
    peer.holder:closes(seal.channel)
    scene.goes(peer, claim, "db-mutexbell")
    peer:failed(op, "timeout", "it has come, and the broker is asked whether it has settled")
  end)

  it("goes on with another prober if it waits, gives the mutex back if there is none, and otherwise is unreachable",
    function()
      local op = begins(0)
      scene.asks(peer, SEAL)
      peer.prober:down "reset"
      peer:failed(op, "unreachable", "reset")
      open()
      local claim
      op, claim = begins(60, true)
      for _ = 1, 2 do
        scene.asks(peer, SEAL)
        peer.prober:down "reset"
        peer:live(5, function() return peer.prober:due() end)
        peer.prober:handshake()
      end
      scene.asks(peer, SEAL)
      peer.prober:down "reset"
      peer:live(5, function() return peer.prober:due() end)
      peer.prober:attach()
      peer.prober:down "refused"
      scene.deletes(peer, claim)
      assert.is_false(op:done())
    end)

  it("is unreachable if its connection is lost, also if that of the seal is known first", function()
    local op, claim = begins(0)
    sees "free"
    local seal = puts_on()
    peer.holder:consumed(seal)
    peer:result(op):release()
    peer.holder:expect("basic.cancel", { channel = seal.channel })
    peer.holder:expect("queue.delete", { channel = seal.channel })
    scene.goes(peer, claim, "db-mutexbell")
    peer.holder:deleted(seal.channel)
    op, claim = begins(0)
    sees "free"
    assert.is_true(puts_on().channel < claim.channel)
    peer.holder:down "reset"
    peer:failed(op, "unreachable", "reset")
  end)

  it("leaves its seal behind, without a consumer, when the mutex is lost", function()
    local op, claim = begins(0)
    sees "free"
    local seal = puts_on()
    peer.holder:consumed(seal)
    local lock = peer:result(op)
    peer.holder:cancelled(claim)
    assert.equal("lost", select(3, lock:held()))
    for _, channel in ipairs{ claim.channel, seal.channel } do peer.holder:closes(channel) end
    peer.holder:silent()
  end)

  it("begins again if it waits and loses the mutex, and if it is patient, also when that was with the connection",
    function()
      local op, claim = begins(60)
      scene.asks(peer, SEAL)
      scene.is_robbed(peer, claim)
      scene.rings(peer, "db-mutexbell")
      peer:live(5, function() return peer.prober:next() == "basic.publish" end)
      scene.shuts(peer, MUTEX)
      sees "free"
      peer.holder:consumed(puts_on())
      assert.is_true(peer:result(op):held())
      open()
      op = begins(60, true)
      sees "free"
      puts_on()
      peer.holder:down "reset"
      assert.is_false(op:done())
    end)

  it("puts another seal on if the mutex was retained with that of another time", function()
    open({ heartbeat = 600 }, { retain = 60 })
    local op = begins(0)
    sees "free"
    local seal = puts_on()
    peer.holder:consumed(seal)
    peer:result(op):release()
    peer.prober:ignore()
    op = mutex:acquire(0, false, 0, 5, false, nil, 20)
    peer.holder:silent()
    peer:result(op):release()
    op = mutex:acquire(0, false, 0, 5, false, nil, 1e300)
    peer:tick()
    peer.holder:expect("basic.cancel", { channel = seal.channel, consumer_tag = seal.tag, no_wait = true })
    peer.holder:expect("queue.delete", { channel = seal.channel, queue = SEAL, if_unused = true })
    peer.holder:consumed(puts_on(315360000)) -- the broker takes ten years at most
    assert.is_true(peer:result(op):held())
  end)
end)
