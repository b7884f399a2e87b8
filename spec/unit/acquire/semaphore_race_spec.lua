-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Acquiring with contention: lost races, waiting, locks of the caller's own session, squatters.

local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.rwlock_scene"

local ONE, ONE_HELD = { "images-1-A" }, { "images-1-A", "images-1-B" }
local TWO_HELD = { "images-1-A", "images-1-B", "images-2-A", "images-2-B" }

describe("an acquire", function ()
  local peer

  local function open(settings) peer = Peer.open(settings) end

  before_each(function () open() end)

  -- An acquire with these options has asked once which queues exist: `seen`. Returns it.
  local function searches(seen, ...)
    local op = peer:semaphore("images"):acquire(...)
    peer.prober:look(seen)
    return op
  end

  -- Somebody was faster: the claim on a slot, the first as a rule, meets another's queue.
  local function loses(states, slot)
    peer.prober:look(states or ONE)
    local claim = peer:claims(slot or 1)
    peer.holder:refuse(claim.channel, 405, "RESOURCE_LOCKED", "queue.declare")
    peer:silent()
  end

  -- The claim on a slot, the first as a rule, is granted; the operation then has it.
  local function is_granted(op, slot)
    peer.holder:grant(peer:claims(slot or 1))
    assert.is_true(peer:result(op):held())
  end

  describe("that loses a race", function ()
    it("looks again, from the start, after a skew of at most ten milliseconds", function ()
      local skews = {}
      for seed = 1, 5 do
        open{ seed = seed }
        local op = peer:semaphore("images"):acquire(0)
        loses()
        skews[seed] = peer:tick()
        assert.is_true(skews[seed] >= 0 and skews[seed] <= 0.01)
        peer:pass(0.01)
        peer.prober:look(ONE)
        is_granted(op)
      end
      assert.is_true(skews[1] ~= skews[2] or skews[2] ~= skews[3])
    end)

    it("passes over what it lost while another looks free, also when it has waited", function ()
      local op = peer:semaphore("images", { max_attempts = 2 }):acquire(60, false, 0, 0.5)
      loses(Peer.row(3), 1)
      peer:pass(0.01)
      loses(Peer.row(3, { 3 }), 2)
      peer:pass(0.5)
      loses(Peer.row(3, { 3 }), 1)
      peer:pass(0.01)
      peer.prober:look(Peer.row(3))
      is_granted(op, 3)
    end)

    it("passes over the last sixteen that it lost", function ()
      local op = peer:semaphore("images", { max_attempts = 30 }):acquire(0)
      for slot = 1, 17 do
        if slot == 17 then peer.prober:look(Peer.row(17)) end -- a window, of which it lost all
        loses(Peer.row(17), slot)
        peer:pass(0.01)
      end
      peer.prober:look(Peer.row(17))
      is_granted(op) -- the first one is forgotten
    end)

    it("as often as it may: contended", function ()
      for _, attempts in ipairs{ 1, 8 } do
        open()
        local op = peer:semaphore("images", { max_attempts = attempts }):acquire(0)
        for i = 1, attempts do
          assert.is_false(op:done())
          loses()
          if i < attempts then peer:pass(0.01) end
        end
        peer:failed(op, "contended", ('other claims of "images" were faster %d times'):format(attempts))
      end
    end)

    it("as often as it may, goes on waiting if it has time, and may as often again", function ()
      local op = peer:semaphore("images", { max_attempts = 2 }):acquire(60, false, 0, 0.5)
      for _ = 1, 3 do
        loses()
        peer:pass(0.01)
        loses()
        peer.prober:silent()
        peer:pass(0.5)
      end
      assert.is_false(op:done())
      peer.prober:look(ONE)
      is_granted(op)
    end)
  end)

  describe("that waits", function ()
    it("gives up at its deadline, not before, also in the middle of a look, and says how things stood", function ()
      local op = searches(TWO_HELD, 2, false, 0, 1.5)
      scene.no_squatters(peer)
      peer:pass(1.5)
      local probes = peer.prober:probes()
      peer:fails_after(0.5, op, "timeout", 'no slot of "images" came free within 2 s (2 of 2 held)')
      peer.prober:answer(probes, ONE)
      peer.holder:silent()
    end)

    it("gets no answer to a look: unreachable after the session's timeout, although it has time", function ()
      open{ timeout = 3 }
      local op = peer:semaphore("images"):acquire()
      peer.prober:probes()
      peer:fails_after(3, op, "unreachable", "did not answer within 3 s")
    end)
  end)

  describe("where this session holds slots itself", function ()
    -- It has the first, looks for another one, and sees these queues. Returns peer, op, lock.
    local function holds_and_searches(seen, timeout)
      local lock = peer:acquire("images")
      local op = peer:semaphore("images"):acquire(timeout)
      while peer.prober:next() ~= "nothing" do peer.prober:look(seen) end -- two slots, and then more
      return op, lock
    end

    it("waits when one of them is another's, or is about to be free", function ()
      local op, lock = holds_and_searches(TWO_HELD, 60)
      scene.no_squatters(peer)
      assert.is_false(op:done())
      lock:release()
      local second = peer:semaphore("images"):acquire(60)
      peer.prober:look(ONE)
      assert.is_false(second:done())
    end)

    it("does not take its own slot when the broker says that it is free", function ()
      local op, lock = holds_and_searches(ONE, 0)
      peer:failed(op, "busy")
      peer.holder:silent()
      assert.is_true(lock:held())
    end)
  end)

  describe("where queues squat on slots", function ()
    it("tells so, and names the first", function ()
      local op = searches(TWO_HELD, 60)
      local channel = peer.holder:opened()
      for _, name in ipairs{ "images-1-B", "images-2-B" } do
        peer.holder:expect("queue.declare", { channel = channel, queue = name, passive = true })
      end
      for _, name in ipairs{ "images-1-B", "images-2-B" } do peer.holder:declared(channel, name) end
      peer:failed(op, "squatted", '"images-1-B" is not exclusive')
    end)

    it("asks at most once a minute", function ()
      open{ heartbeat = 600 }
      local semaphore = peer:semaphore("images")
      for _, pause in ipairs{ 0, 59.9, 0.1 } do
        peer:pass(pause)
        local op = semaphore:acquire(0)
        peer.prober:look(ONE_HELD)
        if pause ~= 59.9 then scene.no_squatters(peer) end
        peer.holder:silent()
        peer:failed(op, "busy")
      end
    end)
  end)
end)
