-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The bookkeeping of the doorbell, the queue whose messages (tokens) wake waiters: which caller has a token, which one
-- gives it back and when, and which one rings (publishes one).

local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.rwlock_scene"

local ONE, ONE_HELD = { "images-1-A" }, { "images-1-A", "images-1-B" }
local NO_BELL = "NOT_FOUND - no queue 'images-bell' in vhost '/'"

describe("the doorbell", function ()
  local peer, sem

  local function open(options)
    options = options or {}
    options.bell = true
    peer = Peer.open()
    sem = peer:semaphore("images", options)
  end

  before_each(function () open() end)

  -- The core consumes from the bell, on a channel of its own. Returns { channel =, tag = }.
  local function arrives(priority, again)
    local opened = peer.holder:next() == "channel.open" and peer.holder:opened()
    if opened or not again and peer.holder:next() == "basic.qos" then -- once for each channel
      local qos = peer.holder:expect("basic.qos", { prefetch_count = 1, global = false })
      if opened then assert.equal(opened, qos.channel) end
      peer.holder:send{ channel = qos.channel, method = "basic.qos-ok" }
    end
    local consume = peer.holder:expect("basic.consume", { queue = "images-bell", no_ack = false, exclusive = false })
    local since, arguments = peer:signed(consume.arguments)
    assert.same(priority and { ["x-priority"] = priority } or {}, arguments)
    return { channel = consume.channel, tag = consume.consumer_tag, since = since, queue = "images-bell" }
  end

  local function deliver(bell, properties) return scene.deliver(peer, bell, properties) end

  local function cancels(bell)
    peer.holder:expect("basic.cancel", { channel = bell.channel, consumer_tag = bell.tag, no_wait = false })
  end

  local function cancelled(bell)
    peer.holder:send{ channel = bell.channel, method = "basic.cancel-ok", consumer_tag = bell.tag }
  end

  -- The broker says that the consumer is one no longer.
  local function ends(bell)
    peer.holder:send{ channel = bell.channel, method = "basic.cancel", consumer_tag = bell.tag, no_wait = true }
  end

  local function gives_back(bell, token)
    peer.holder:expect("basic.nack", { channel = bell.channel, delivery_tag = token, requeue = true })
  end

  local function rings() scene.rings(peer, "images-bell") end

  local function silent() scene.silent(peer) end

  -- An acquire that has arrived and has been welcome. Returns op, bell.
  local function begin(...)
    local op = sem:acquire(...)
    local bell = arrives((select(3, ...)))
    peer.holder:consumed(bell)
    return op, bell
  end

  -- No slot is free: the only one is another's, and a true lock.
  local function finds_none()
    peer.prober:look(ONE_HELD)
    while peer.prober:next() ~= "nothing" do peer.prober:look(ONE_HELD) end -- two slots, and then more
    if peer.holder:next() == "channel.open" then peer.holder:opened() end
    local look = peer.holder:expect("queue.declare", { queue = "images-1-B", passive = true })
    peer.holder:refuse(look.channel, 405, "RESOURCE_LOCKED", "queue.declare")
  end

  local function claims() return peer.holder:claim("images-1-B", "images-1-A") end

  local function is_late(claim) peer.holder:refuse(claim.channel, 405, "RESOURCE_LOCKED", "queue.declare") end

  -- The slot is found free, and claimed. Returns the lock.
  local function gets(op)
    peer.prober:look(ONE)
    local claim = claims()
    peer.holder:grant(claim)
    return peer:result(op), claim
  end

  -- The slot is found free by one whose token is in doubt: after two more looks it is claimed.
  local function gets_in_doubt(op)
    for _ = 1, 2 do
      peer.holder:silent()
      peer:pass(0.008)
      peer.prober:look(ONE)
    end
    peer.holder:grant(claims())
    assert.is_true((peer:result(op):held()))
  end

  -- The slot is had with a token. Returns the lock, the bell, the token, the claim.
  local function holds()
    local op, bell = begin(0)
    local token = deliver(bell)
    local lock, claim = gets(op)
    return lock, bell, token, claim
  end

  -- The lock is released, and when its queue is gone, no sooner, its token goes back, or (without one) somebody is
  -- rung for.
  local function lets_go(lock, bell, token)
    silent()
    lock:release()
    local delete = peer.holder:expect("queue.delete", { queue = "images-1-B" })
    silent()
    peer.holder:deleted(delete.channel)
    if token then scene.returns(peer, bell, token) else rings() end
    silent()
  end

  -- The bell is asked whether a token lies ready, now that the slot is had. Ends when it is told.
  local function gives_none(bell)
    assert.equal(bell.channel, peer.holder:expect("basic.qos").channel)
    silent()
    peer.holder:send{ channel = bell.channel, method = "basic.qos-ok" }
  end

  -- One that waits.
  local function wait(...)
    local op, bell = begin(...)
    finds_none()
    silent()
    return op, bell
  end

  -- The token in hand leads to nothing, and is thrown away. Returns where the waiter is at the bell then.
  local function throws_away(bell, priority, token)
    peer:live(5.2, function ()
      if peer.prober:next() == "basic.publish" then peer.prober:look(ONE_HELD) end
      return peer.holder:next() == "basic.cancel"
    end)
    cancels(bell)
    peer.holder:expect("basic.ack", { channel = bell.channel, delivery_tag = token })
    local again = arrives(priority, true)
    assert.are_not.equal(bell.tag, again.tag)
    cancelled(bell)
    peer.holder:consumed(again)
    return again
  end

  describe("while nobody holds", function ()
    it("gives one that lay ready, just when the slot is held: the lock keeps it, and rings for nobody", function ()
      local op, bell = begin(0)
      local lock = gets(op)
      peer.holder:expect("basic.qos")
      local token = deliver(bell)
      peer.holder:send{ channel = bell.channel, method = "basic.qos-ok" }
      silent()
      lets_go(lock, bell, token)
    end)

    it("answers after the slot was found free: it is claimed with the token, and not asked for again", function ()
      for _, fair in ipairs{ false, true } do
        open()
        local op = sem:acquire(5, fair)
        local bell = arrives()
        peer.prober:look(ONE)
        silent()
        peer.holder:consumed(bell)
        silent()
        local token = deliver(bell)
        peer.holder:grant(claims())
        lets_go(peer:result(op), bell, token)
      end
    end)

    it("has not answered when the slot is held: the lock still hears what it has to say", function ()
      for _, has_token in ipairs{ true, false } do
        open()
        local op = sem:acquire(0)
        local bell = arrives()
        local lock = gets(op)
        silent()
        peer.holder:consumed(bell)
        local token = has_token and deliver(bell)
        gives_none(bell)
        if not has_token then
          cancels(bell)
          cancelled(bell)
        end
        lets_go(lock, bell, token)
      end
    end)

    it("has not answered when the slot is given back: its channel is closed, nothing cancelled, and it is rung",
      function ()
        local op = sem:acquire(0)
        local bell = arrives()
        gets(op):release()
        peer.holder:delete("images-1-B")
        peer.holder:expect("channel.close", { channel = bell.channel })
        rings()
        peer.holder:consumed(bell)
        deliver(bell)
        silent()
      end)
  end)

  describe("without a token", function ()
    -- The slot is seen free, and seen again after so many milliseconds.
    local function sees_free(...)
      for _, milliseconds in ipairs{ ... } do
        peer.prober:look(ONE)
        silent()
        peer:pass(milliseconds / 1000 - 0.001)
        silent()
        peer:pass(0.001001)
      end
    end

    it("is rung by a fair one that has seen a slot free for more than 100 ms, and that waits for it", function ()
      local op, bell = begin(60, true)
      sees_free(100, 8, 8)
      peer.prober:look(ONE)
      peer.holder:silent()
      rings()
      silent()
      assert.is_false(op:done())
      deliver(bell)
      gets(op)
    end)

    it("is rung on another channel, when the look ends with the broker closing the one it was asked on", function ()
      begin(60, true)
      sees_free(100, 8, 8)
      local probes = peer.prober:probes()
      peer.prober:send(peer.prober.ack(probes[1]), peer.prober.returned(probes[2]), peer.prober.ack(probes[2]))
      peer.prober:refuse(probes[1].channel, 541, "INTERNAL_ERROR", "basic.publish")
      rings()
    end)

    it("lets a fair one that looks once be busy", function ()
      local op, bell = begin(0, true)
      sees_free(100, 8, 8)
      peer.prober:look(ONE)
      rings()
      peer:failed(op, "busy", "a slot of \"images\" is free, but other waiters come first")
      cancels(bell)
    end)

    it("cannot be rung while the broker reads no publishers: a fair one takes the slot", function ()
      open{ probe = "passive" }
      peer.prober:send{ channel = 0, method = "connection.blocked", reason = "memory" }
      begin(5, true)
      for _, seconds in ipairs{ 0.1, 0.008, 0.008, 0 } do
        local queues = {}
        for slot = 1, seconds == 0.1 and 16 or 2 do
          for _, half in ipairs{ "A", "B" } do table.insert(queues, ("images-%d-%s"):format(slot, half)) end
        end
        peer.holder:again(queues, { ["images-1-A"] = true })
        peer:pass(seconds)
      end
      claims()
    end)
  end)

  describe("that wakes", function ()
    it("a little before the slot is free: takes it at the first look that finds it", function ()
      local op, bell = wait(60)
      deliver(bell)
      peer.prober:look(ONE_HELD)
      peer:pass(0.002)
      gets(op)
    end)

    it("for nothing, and many more lie ready: they get one look each, and it says since when it waits", function ()
      peer:pass(5)
      local op, bell = wait(60)
      local came = bell.since
      assert.equal(math.floor(peer:wall()), came)
      for priority = 1, 4 do
        bell = throws_away(bell, priority, deliver(bell))
        assert.equal(came, bell.since)
        silent()
      end
      deliver(bell)
      peer.prober:look(ONE)
      gets_in_doubt(op)
    end)

    it("while it looks, soon behind one for nothing: that look says nothing of the token, the next one does",
      function ()
        local op, bell = wait(600, false, nil, 0.05)
        local again = throws_away(bell, 1, deliver(bell))
        silent()
        peer:live(0.1, function () return peer.prober:next() == "basic.publish" end)
        deliver(again)
        peer.prober:look(ONE_HELD)
        peer.prober:look(ONE)
        gets_in_doubt(op)
      end)

    it("with anything but a token: it is acknowledged away, and nobody looks", function ()
      local _, bell = wait(60)
      for _, properties in ipairs{ {}, { type = ("x"):rep(60) } } do
        local tag = deliver(bell, properties)
        peer.holder:expect("basic.ack", { channel = bell.channel, delivery_tag = tag })
        silent()
      end
    end)

    -- A probe, or anything, in a queue that was deleted while it was on its way. To answer it costs the channel.
    it("on a channel where messages for its last owner still come: not answered, and nobody looks", function ()
      local lock, bell, token, claim = holds()
      lets_go(lock, bell, token)
      peer:acquire("other") -- has the bell's channel
      local again, late = sem:acquire(60), arrives()
      assert.equal(claim.channel, late.channel)
      deliver({ channel = late.channel, tag = claim.tag })
      peer.holder:silent()
      peer.holder:consumed(late)
      finds_none()
      silent()
      deliver(late)
      gets(again)
    end)

    -- A token that was kept for longer than the broker likes. Messages come behind its closing of the channel, too.
    it("behind the broker's closing of its channel: not heeded, and the lock is not touched", function ()
      local lock, bell = holds()
      peer.holder:refuse(bell.channel, 406, "PRECONDITION_FAILED - delivery acknowledgement timed out")
      deliver(bell)
      silent()
      peer:pass(0.1)
      local again = sem:acquire(60)
      peer.holder:expect("channel.open", { channel = bell.channel })
      deliver(bell)
      peer.holder:send{ channel = bell.channel, method = "channel.open-ok" }
      assert.equal(bell.channel, arrives().channel)
      assert.is_true(lock:held())
      again:drop()
    end)

    it("with a second token, which the broker may not send: it goes back", function ()
      local _, bell = wait(60)
      deliver(bell)
      gives_back(bell, deliver(bell))
    end)
  end)

  it("lets one that waits say that a slot is free, and what becomes of that; nobody knows the first one", function ()
    local op = wait(60)
    local function assert_says(reason) assert.equal(reason, select(2, op:waiting())) end
    peer:pass(5)
    for _, seconds in ipairs{ 0.035, 0.008, 0.008 } do
      peer.prober:look(ONE)
      assert_says "a slot is free, and left to waiters that may have come first"
      peer:pass(seconds)
      assert_says "a slot was free at the last search"
    end
    peer.prober:look(ONE)
    assert_says "a slot is free, and being claimed"
    is_late(claims())
    assert_says "a slot was free, and could not be claimed"
  end)

  describe("that went away", function ()
    local function goes(bell)
      ends(bell)
      peer.holder:closes(bell.channel)
    end

    it("alone: a waiter looks at once, and asks for another bell", function ()
      local op, bell = wait(60)
      goes(bell)
      local again = arrives()
      peer.prober:look(ONE_HELD)
      peer.holder:consumed(again)
      silent()
      deliver(again)
      gets(op)
    end)

    it("with the token in hand: the holder rings in the end, on the next bell", function ()
      local lock, bell = holds()
      goes(bell)
      silent()
      assert.is_true(lock:held())
      lets_go(lock)
    end)

    it("while it was being cancelled, or when it was done with: nothing happens", function ()
      local op, bell = wait(3)
      peer:pass(3)
      peer:failed(op, "timeout")
      cancels(bell)
      ends(bell)
      silent()
      cancelled(bell)
      silent()
      ends(bell)
      silent()
    end)
  end)

  describe("that is missing", function ()
    local function misses(bell) peer.holder:refuse(bell.channel, 404, NO_BELL, "basic.consume") end

    local function gives_back_silently(lock)
      lock:release()
      peer.holder:delete("images-1-B")
      silent()
    end

    -- This connection has seen the slot before.
    local function knows_slot() gives_back_silently(gets(peer:semaphore("images"):acquire(0))) end

    it("or may not be read, or is another client's own queue, keeps nobody from a free slot, and is not rung",
      function ()
        for code, text in pairs{ [404] = NO_BELL, [403] = "ACCESS_REFUSED", [405] = "RESOURCE_LOCKED" } do
          open()
          knows_slot()
          local op = sem:acquire(60)
          local bell = arrives()
          peer.prober:look(ONE)
          silent()
          peer.holder:refuse(bell.channel, code, text, "basic.consume")
          gives_back_silently(gets(op))
        end
      end)

    it("is asked for at once when the semaphore was made anew", function ()
      knows_slot()
      local op = sem:acquire(0)
      misses(arrives())
      while peer.prober:next() ~= "nothing" do peer.prober:look{} end
      peer.holder:again{ "images-1-A" }
      peer:failed(op, "not_found")
      peer:semaphore("images", { bell = true }):acquire(0)
      arrives()
    end)

    it("is asked for once a minute, whichever objects of that name ask", function ()
      knows_slot()
      for _, pause in ipairs{ 0, 30, 29.9, 0.1 } do
        peer:pass(pause)
        peer.holder:ignore()
        peer.prober:ignore()
        local op = peer:semaphore("images", { bell = true }):acquire(0)
        if pause == 0 or pause == 0.1 then misses(arrives()) end
        local lock = gets(op)
        peer.holder:ignore() -- a pulse, perhaps
        gives_back_silently(lock)
      end
    end)

    -- The bell is made before the first slot.
    for _, order in ipairs{ "the bell's answer first", "the slots' answer first" } do
      it("is asked for again by a waiter that has not seen a slot, at once: " .. order, function ()
        local op = sem:acquire(60, nil, nil, 600)
        local bell = arrives()
        if order == "the bell's answer first" then misses(bell) end
        finds_none()
        if order ~= "the bell's answer first" then misses(bell) end
        bell = arrives()
        peer.holder:consumed(bell)
        peer.prober:look(ONE_HELD)
        silent()
        local token = deliver(bell)
        lets_go(gets(op), bell, token)
      end)
    end

    it("is missing indeed if it is missing again: the waiter looks in a poll", function ()
      local op = sem:acquire(60)
      misses(arrives())
      finds_none()
      local again = arrives()
      peer.prober:look(ONE_HELD)
      misses(again)
      peer.prober:look(ONE_HELD)
      silent()
      peer:pass(5)
      gives_back_silently(gets(op))
    end)

    it("is rung by one who has not seen a slot before, and has it, and asked for by the next", function ()
      local op = sem:acquire(0)
      misses(arrives())
      lets_go(gets(op))
      sem:acquire(0)
      arrives()
    end)
  end)

  describe("is left clean by", function ()
    it("a lock whose queue was deleted by somebody else", function ()
      local _, bell, token, claim = holds()
      ends(claim)
      peer.holder:expect("channel.close", { channel = claim.channel })
      scene.returns(peer, bell, token)
    end)

    it("the session's end: what is held is deleted first, then tokens go back, then it says goodbye", function ()
      local _, bell, token = holds()
      peer.session:close()
      peer.holder:delete("images-1-B")
      scene.returns(peer, bell, token)
      peer.holder:expect("connection.close")
    end)
  end)

  it("is done without where there is no channel left for it", function ()
    peer = Peer.open(nil, { channel_max = 2 })
    peer:acquire("other")
    sem = peer:semaphore("images", { bell = true })
    local op = sem:acquire(0)
    local bell = arrives()
    peer.prober:look(ONE)
    peer:failed(op, "limit")
    peer.holder:expect("channel.close", { channel = bell.channel })
  end)
end)
