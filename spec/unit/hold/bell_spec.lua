-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The bookkeeping of the doorbell, the queue whose messages (tokens) wake waiters: which caller has a token, which one
-- gives it back and when, and which one rings (publishes one).

local frames = require "spec.support.frames"
local Peer = require "spec.support.peer"

local ONE, ONE_HELD = { "images-1-A" }, { "images-1-A", "images-1-B" }
local NO_BELL = "NOT_FOUND - no queue 'images-bell' in vhost '/'"

describe("the doorbell", function ()
  local peer, sem

  local function open(settings, options)
    options = options or {}
    options.bell = true
    peer = Peer.open("whole", settings)
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
    return { channel = consume.channel, tag = consume.consumer_tag, since = since }
  end

  local function welcome(bell) peer.holder:consumed(bell) end

  -- Something is delivered from the bell, a token unless told.
  local tags = 0
  local function deliver(bell, properties)
    tags = tags + 1
    peer.holder:send(frames.encode_content({ channel = bell.channel, method = "basic.deliver",
      consumer_tag = bell.tag, delivery_tag = tags, redelivered = false, exchange = "",
      routing_key = "images-bell" }, properties or { type = "amqplocks.token", delivery_mode = 2 }, ""))
    return tags
  end

  local function cancels(bell)
    peer.holder:expect("basic.cancel", { channel = bell.channel, consumer_tag = bell.tag, no_wait = false })
  end

  local function gives_back(bell, token)
    peer.holder:expect("basic.nack", { channel = bell.channel, delivery_tag = token, requeue = true,
      multiple = false })
  end

  local function cancelled(bell)
    peer.holder:send{ channel = bell.channel, method = "basic.cancel-ok", consumer_tag = bell.tag }
  end

  -- The core, which has the token, gives it back, and needs no answer to be done with the bell.
  local function returns(bell, token)
    peer.holder:expect("basic.cancel", { channel = bell.channel, consumer_tag = bell.tag, no_wait = true })
    gives_back(bell, token)
  end

  -- The core publishes one token, and is told that it was taken.
  local function rings()
    local probes = peer.prober:probes()
    assert.equal(1, #probes)
    assert.same({ "images-bell", "amqplocks.token", 2 },
      { probes[1].queue, probes[1].properties.type, probes[1].properties.delivery_mode })
    peer.prober:answer(probes, { "images-bell" })
  end

  local function silent()
    peer.holder:silent()
    peer.prober:silent()
  end

  -- An acquire that has arrived and has been welcome. Returns op, bell.
  local function begin(...)
    local op = sem:acquire(...)
    local bell = arrives((select(3, ...)))
    welcome(bell)
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

  -- The slot was found free, by one whose token is in doubt: after two more looks it is claimed.
  local function gets_in_doubt(op)
    for _ = 1, 2 do
      peer.holder:silent()
      peer:pass(0.008)
      peer.prober:look(ONE)
    end
    peer.holder:grant(claims())
    assert.is_true((peer:result(op):held()))
  end

  -- One that waits.
  local function wait(...)
    local op, bell = begin(...)
    finds_none()
    silent()
    return op, bell
  end

  -- The token in hand leads to nothing, and is thrown away. Returns where the waiter is at the bell then.
  local function throws_away(bell, priority)
    peer:live(1, function ()
      if peer.prober:next() == "basic.publish" then peer.prober:look(ONE_HELD) end
      return peer.holder:next() == "basic.cancel"
    end)
    cancels(bell)
    peer.holder:expect("basic.ack")
    local again = arrives(priority, true)
    cancelled(bell)
    welcome(again)
    return again
  end

  -- The slot is found free, and claimed. Returns the lock.
  local function gets(op)
    peer.prober:look(ONE)
    local claim = claims()
    peer.holder:grant(claim)
    return peer:result(op), claim
  end

  describe("while nobody holds", function ()
    it("is asked in the same breath as the slots, on a channel of its own", function ()
      sem:acquire(0)
      local bell = arrives()
      local probes = peer.prober:probes()
      assert.equal("images-1-A", probes[1].queue)
      peer.prober:answer(probes, ONE)
      assert.are_not.equal(bell.channel, claims().channel)
    end)

    it("gives a token, which the lock keeps, unacknowledged, until its queue is gone", function ()
      local op, bell = begin(0)
      local token = deliver(bell)
      local lock, claim = gets(op)
      silent()
      lock:release()
      peer.holder:expect("queue.delete", { queue = "images-1-B", channel = claim.channel })
      silent()
      peer.holder:deleted(claim.channel)
      returns(bell, token)
      silent()
    end)

    -- None has come while the slot was claimed; none lies ready.
    local function gives_none(bell)
      assert.equal(bell.channel, peer.holder:expect("basic.qos").channel)
      silent()
      peer.holder:send{ channel = bell.channel, method = "basic.qos-ok" }
    end

    it("gives none: the lock consumes no longer, and rings when it is gone", function ()
      local op, bell = begin(0)
      local lock = gets(op)
      gives_none(bell)
      cancels(bell)
      cancelled(bell)
      silent()
      lock:release()
      peer.holder:delete("images-1-B")
      peer.holder:silent()
      rings()
      silent()
    end)

    it("gives one that lay ready, just when the slot is held: the lock keeps it, and rings for nobody", function ()
      local op, bell = begin(0)
      local lock = gets(op)
      peer.holder:expect("basic.qos")
      local token = deliver(bell)
      peer.holder:send{ channel = bell.channel, method = "basic.qos-ok" }
      silent()
      lock:release()
      peer.holder:delete("images-1-B")
      returns(bell, token)
      silent()
    end)

    it("answers after the slot was found free: it is claimed with the token, and not asked for again", function ()
      for _, fair in ipairs{ false, true } do
        open()
        local op = sem:acquire(5, fair)
        local bell = arrives()
        peer.prober:look(ONE)
        silent()
        welcome(bell)
        silent()
        local token = deliver(bell)
        peer.holder:grant(claims())
        local lock = peer:result(op)
        silent()
        lock:release()
        peer.holder:delete("images-1-B")
        returns(bell, token)
        silent()
      end
    end)

    it("answers after the slot was found free, and another caller here has claimed it since: looks again", function ()
      local op = sem:acquire(5)
      local bell = arrives()
      peer.prober:look(ONE)
      local other = peer:semaphore("images"):acquire(0)
      peer.prober:look(ONE)
      peer.holder:grant(claims())
      assert.is_true(peer:result(other):held())
      welcome(bell)
      deliver(bell)
      peer.prober:look(ONE_HELD)
      assert.is_false(op:done())
    end)

    it("answers without a token after the slot was found free: that is left to others", function ()
      local op = sem:acquire(5)
      local bell = arrives()
      peer.prober:look(ONE)
      welcome(bell)
      silent()
      peer:pass(0.035)
      peer.prober:look(ONE)
      silent()
      deliver(bell)
      peer.prober:look(ONE)
      peer.holder:grant(claims())
      assert.is_true(peer:result(op):held())
    end)

    it("has not answered when the slot is held: the lock still hears what it has to say", function ()
      for _, has_token in ipairs{ true, false } do
        open()
        local op = sem:acquire(0)
        local bell = arrives()
        local lock = gets(op)
        silent()
        welcome(bell)
        local token = has_token and deliver(bell)
        gives_none(bell)
        if not has_token then
          cancels(bell)
          cancelled(bell)
        end
        lock:release()
        peer.holder:delete("images-1-B")
        if has_token then returns(bell, token) else rings() end
        silent()
      end
    end)

    it("has not answered when the slot is given back: its channel is closed, nothing cancelled, and it is rung",
      function ()
        local op = sem:acquire(0)
        local bell = arrives()
        local lock = gets(op)
        lock:release()
        peer.holder:delete("images-1-B")
        peer.holder:expect("channel.close", { channel = bell.channel })
        rings()
        welcome(bell)
        deliver(bell)
        silent()
      end)

    it("uses the channel again that the last one gave back", function ()
      for _ = 1, 3 do
        local op, bell = begin(0)
        local token = deliver(bell)
        local lock, claim = gets(op)
        assert.same({ 1, 2 }, { math.min(bell.channel, claim.channel), math.max(bell.channel, claim.channel) })
        lock:release()
        peer.holder:delete("images-1-B")
        returns(bell, token)
        silent()
      end
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

    it("is given fifty milliseconds to send one by whoever has found a slot and may wait", function ()
      local op, bell = begin(5)
      sees_free(35, 8)
      peer.prober:look(ONE)
      peer:pass(0.007)
      silent()
      deliver(bell)
      gets(op)
    end)

    it("lets somebody else have taken it in that time: waits on, and begins anew", function ()
      local op = begin(60)
      sees_free(35, 8)
      finds_none()
      silent()
      peer:pass(5)
      sees_free(35, 8, 8)
      gets(op)
    end)

    it("is given no more time by one that has been overtaken eight times", function ()
      local op = begin(60, false, nil, 0.05)
      for turn = 1, 8 do
        sees_free(35)
        if turn == 1 then finds_none() else peer.prober:look(ONE_HELD) end
        silent()
        peer:pass(0.05)
      end
      gets(op)
    end)

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
      assert.equal("open", peer.prober:state())
    end)

    it("lets a fair one be told: timeout, as others may have come before", function ()
      local op = begin(3, true)
      peer.prober:look(ONE)
      for _ = 1, 30 do
        if peer.prober:next() == "basic.publish" then peer.prober:look{ "images-1-A", "images-bell" } end
        peer:pass(0.1)
      end
      peer:failed(op, "timeout", "a slot is free, and left to waiters that may have come first")
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
      open(nil, { probe = "passive" })
      peer.prober:send{ channel = 0, method = "connection.blocked", reason = "memory" }
      sem:acquire(5, true)
      welcome(arrives())
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
    it("before the slot is free: looks after milliseconds, in the end every tenth of a second", function ()
      local op, bell = wait(60)
      deliver(bell)
      local last, gaps = peer.now, {}
      peer.prober:look(ONE_HELD)
      peer:live(1.8, function ()
        if peer.prober:next() == "nothing" then return end
        table.insert(gaps, peer.now - last)
        last = peer.now
        peer.prober:look(ONE_HELD)
        peer.holder:silent()
      end)
      assert.is_true(gaps[1] >= 0.0009 and gaps[1] <= 0.0021, "first after " .. gaps[1])
      assert.is_true(#gaps > 18, #gaps .. " looks")
      for i = 10, #gaps do assert.is_true(gaps[i] >= 0.0499 and gaps[i] <= 0.1001, "then after " .. gaps[i]) end
      if peer.prober:next() == "nothing" then peer:pass(0.1) end
      for _ = 1, 2 do -- it may be somebody else's
        peer.prober:look(ONE)
        peer.holder:silent()
        peer:pass(0.008)
      end
      gets(op)
    end)

    it("a little before the slot is free: takes it at the first look that finds it", function ()
      local op, bell = wait(60)
      deliver(bell)
      peer.prober:look(ONE_HELD)
      peer:pass(0.002)
      peer.prober:look(ONE_HELD)
      peer:pass(0.004)
      gets(op)
    end)

    it("for nothing: after two seconds the token is thrown away, and the waiter is first in line again",
      function ()
      local op, bell = wait(60)
      local token = deliver(bell)
      local function finished() return peer.holder:next() == "basic.cancel" end
      peer:live(5.2, function ()
        if peer.prober:next() == "basic.publish" then peer.prober:look(ONE_HELD) end
        return finished()
      end)
      cancels(bell)
      peer.holder:expect("basic.ack", { channel = bell.channel, delivery_tag = token, multiple = false })
      local again = arrives(1, true)
      assert.equal(bell.channel, again.channel)
      assert.are_not.equal(bell.tag, again.tag)
      cancelled(bell)
      welcome(again)
      silent()
      peer:pass(4)
      silent()
      local second = deliver(again)
      assert.are_not.equal(token, second)
      gets(op)
    end)

    it("for nothing, and is not answered when it comes anew: for a poll from then on it is at the bell", function ()
      local _, bell = wait(60, false, nil, 2)
      deliver(bell)
      peer:live(2.5, function ()
        if peer.prober:next() == "basic.publish" then peer.prober:look(ONE_HELD) end
        return peer.holder:next() == "basic.cancel"
      end)
      cancels(bell)
      peer.holder:expect("basic.ack")
      local again = arrives(1, true)
      cancelled(bell)
      silent()
      for look = 1, 2 do
        peer:pass(1.999)
        if look == 2 then peer.holder:closes(again.channel) end
        peer.prober:look(ONE_HELD)
        silent()
      end
    end)

    it("for nothing, again and again: higher and higher", function ()
      local _, bell = wait(600, false, 7, 0.1)
      for priority = 8, 10 do
        deliver(bell)
        bell = throws_away(bell, priority)
      end
    end)

    it("for nothing, and many more lie ready: they get one look each", function ()
      local op, bell = wait(60)
      deliver(bell)
      peer:live(5.2, function ()
        if peer.prober:next() == "basic.publish" then peer.prober:look(ONE_HELD) end
        return peer.holder:next() == "basic.cancel"
      end)
      for priority = 1, 4 do
        cancels(bell)
        peer.holder:expect("basic.ack")
        local again = arrives(priority, true)
        cancelled(bell)
        welcome(again)
        silent()
        bell = again
        deliver(bell)
        peer.prober:look(priority < 4 and ONE_HELD or ONE)
      end
      gets_in_doubt(op)
    end)

    it("while it looks, soon behind one for nothing: that look says nothing of the token, the next one does",
      function ()
      local op, bell = wait(600, false, nil, 0.05)
      deliver(bell)
      local again = throws_away(bell, 1)
      silent()
      peer:live(0.1, function () return peer.prober:next() == "basic.publish" end)
      deliver(again)
      peer.prober:look(ONE_HELD)
      peer.prober:look(ONE)
      gets_in_doubt(op)
    end)

    it("while it looks, after it saw free what was another's by then: that is left to others anew", function ()
      local op, bell = wait(600, false, nil, 0.02)
      deliver(bell)
      local again = throws_away(bell, 1)
      peer:live(0.1, function () return peer.prober:next() == "basic.publish" end)
      for _, pause in ipairs{ 0.035, 0.008, 0.008 } do
        peer.prober:look(ONE)
        peer.holder:silent()
        peer:live(pause + 0.001, function () return peer.prober:next() == "basic.publish" end)
      end
      deliver(again)
      peer.prober:look(ONE_HELD)
      peer.prober:look(ONE)
      gets_in_doubt(op)
    end)

    it("says since when it waits, and goes on saying so when it comes again", function ()
      peer:pass(5)
      local _, bell = wait(600, false, nil, 0.1)
      assert.equal(math.floor(peer:wall()), bell.since)
      local came = bell.since
      for priority = 1, 2 do
        peer:live(2, function () if peer.prober:next() == "basic.publish" then peer.prober:look(ONE_HELD) end end)
        deliver(bell)
        bell = throws_away(bell, priority)
        assert.equal(came, bell.since)
      end
      assert.is_true(peer:wall() > came + 2)
    end)

    it("with anything but a token: it is acknowledged away, and nobody looks", function ()
      local _, bell = wait(60)
      for _, properties in ipairs{ {}, { type = "spam" }, { type = ("x"):rep(60) } } do
        local tag = deliver(bell, properties)
        peer.holder:expect("basic.ack", { channel = bell.channel, delivery_tag = tag })
        silent()
      end
    end)

    -- A probe, or anything, in a queue that was deleted while it was on its way. To answer it costs the channel.
    it("on a channel where messages for its last owner still come: not answered, and nobody looks", function ()
      local op, bell = begin(0)
      local token = deliver(bell)
      local lock, claim = gets(op)
      lock:release()
      peer.holder:delete("images-1-B")
      peer.holder:next()
      returns(bell, token)
      peer:acquire("other") -- has the bell's channel
      local again, late = sem:acquire(60), arrives()
      assert.equal(claim.channel, late.channel)
      for _, type in ipairs{ "", "amqplocks.token" } do
        deliver({ channel = late.channel, tag = claim.tag }, { type = type })
        peer.holder:silent()
      end
      welcome(late)
      finds_none()
      silent()
      deliver(late)
      assert.is_true(gets(again):held())
    end)

    -- RabbitMQ does that: the connection, and every lock on it, is not at stake.
    it("behind the broker's closing of its channel: not heeded", function ()
      local op, bell = begin(0)
      deliver(bell)
      local lock = gets(op)
      peer.holder:refuse(bell.channel, 406, "PRECONDITION_FAILED")
      deliver(bell)
      silent()
      assert.is_true(lock:held())
      peer:pass(0.1)
      local again = sem:acquire(60)
      peer.holder:expect("channel.open", { channel = bell.channel })
      deliver(bell)
      peer.holder:send{ channel = bell.channel, method = "channel.open-ok" }
      local new = arrives()
      assert.equal(bell.channel, new.channel)
      assert.is_true(lock:held())
      again:drop()
    end)

    it("with a second token, which the broker may not send: it goes back", function ()
      local _, bell = wait(60)
      deliver(bell)
      local second = deliver(bell)
      gives_back(bell, second)
    end)
  end)

  describe("a waiter at rest", function ()
    it("looks once in a poll, at most an eighth early, and is otherwise silent", function ()
      local op = wait(nil)
      local looks, last = 0, peer.now
      peer:live(60, function ()
        if peer.prober:next() == "heartbeat" then peer.prober:expect("heartbeat") end
        if peer.holder:next() == "heartbeat" then peer.holder:expect("heartbeat") end
        if peer.prober:next() == "basic.publish" then
          looks = looks + 1
          assert.is_true(peer.now - last >= 4.3749 and peer.now - last <= 5.0001, "after " .. peer.now - last)
          last = peer.now
          peer.prober:look(ONE_HELD)
          peer.holder:ignore()
        end
        silent()
      end)
      assert.is_true(looks >= 11 and looks <= 14, looks .. " looks")
      assert.is_false(op:done())
    end)

    it("says how long it has waited, and for what", function ()
      local op = wait(nil)
      peer:pass(3)
      local seconds, reason = op:waiting()
      assert.is_true(math.abs(seconds - 3) < 1e-6)
      assert.equal("1 of 1 held", reason)
      assert.is_nil((begin(5)):waiting())
    end)

    it("says that a slot is free, and what becomes of that; who was first, nobody knows", function ()
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
      peer.holder:refuse(claims().channel, 405, "RESOURCE_LOCKED", "queue.declare")
      assert_says "a slot was free, and could not be claimed"
    end)

    it("claims a slot that came free without a sign, gives nobody's token back, and rings in the end", function ()
      local op, bell = wait(60)
      peer:pass(5)
      for _, seconds in ipairs{ 0.035, 0.008, 0.008 } do
        peer.prober:look(ONE)
        peer:pass(seconds)
      end
      local lock = gets(op)
      cancels(bell)
      cancelled(bell)
      lock:release()
      peer.holder:delete("images-1-B")
      rings()
    end)
  end)

  describe("that went away", function ()
    local function goes(bell)
      peer.holder:send{ channel = bell.channel, method = "basic.cancel", consumer_tag = bell.tag, no_wait = true }
      peer.holder:expect("channel.close", { channel = bell.channel })
      peer.holder:send{ channel = bell.channel, method = "channel.close-ok" }
    end

    it("with the semaphore: whoever waits is told at once", function ()
      local op, bell = wait(60)
      goes(bell)
      peer.holder:ignore()
      peer.prober:look{}
      peer.holder:again{ "images-1-A" }
      peer:failed(op, "not_found")
    end)

    it("alone: whoever waits looks at once, and asks for another bell", function ()
      local op, bell = wait(60)
      goes(bell)
      local again = arrives()
      peer.prober:look(ONE_HELD)
      welcome(again)
      silent()
      deliver(again)
      gets(op)
    end)

    it("during a look: that look says nothing of it, the next one does, and another bell is asked for", function ()
      local op, bell = wait(600, false, nil, 2)
      peer:live(5, function () return peer.prober:next() == "basic.publish" end)
      goes(bell)
      peer.prober:look(ONE_HELD)
      local again = arrives()
      peer.prober:look(ONE_HELD)
      welcome(again)
      silent()
      deliver(again)
      gets(op)
    end)

    it("with the token in hand: the holder rings in the end, on the next bell", function ()
      local op, bell = begin(0)
      deliver(bell)
      local lock = gets(op)
      goes(bell)
      silent()
      assert.is_true(lock:held())
      lock:release()
      peer.holder:delete("images-1-B")
      rings()
    end)

    it("while it was being cancelled: cancel-ok comes all the same", function ()
      local op, bell = wait(3)
      peer:pass(3)
      peer:failed(op, "timeout")
      cancels(bell)
      peer.holder:send{ channel = bell.channel, method = "basic.cancel", consumer_tag = bell.tag, no_wait = true }
      silent()
      cancelled(bell)
      silent()
    end)

    it("when it was done with: nothing happens", function ()
      local op, bell = begin(0)
      local token = deliver(bell)
      gets(op):drop()
      peer.holder:delete("images-1-B")
      returns(bell, token)
      peer.holder:send{ channel = bell.channel, method = "basic.cancel", consumer_tag = bell.tag, no_wait = true }
      silent()
    end)

    it("by a notice of another consumer: nothing happens", function ()
      local op, bell = wait(60)
      peer.holder:send{ channel = bell.channel, method = "basic.cancel", consumer_tag = "other", no_wait = true }
      silent()
      assert.is_false(op:done())
    end)

    it("because a token was kept for too long: the lock is not touched", function ()
      local op, bell = begin(0)
      deliver(bell)
      local lock = gets(op)
      peer.holder:refuse(bell.channel, 406, "PRECONDITION_FAILED - delivery acknowledgement timed out")
      silent()
      assert.is_true(lock:held())
      lock:release()
      peer.holder:delete("images-1-B")
      rings()
    end)
  end)

  describe("that is missing", function ()
    local function misses(bell) peer.holder:refuse(bell.channel, 404, NO_BELL, "basic.consume") end

    -- This connection has seen the slot before.
    local function knows_slot()
      gets(peer:semaphore("images"):acquire(0)):release()
      peer.holder:delete("images-1-B")
    end

    before_each(knows_slot)

    it("keeps nobody from a free slot, and is not rung", function ()
      local op = sem:acquire(60)
      local bell = arrives()
      peer.prober:look(ONE)
      silent()
      misses(bell)
      local lock = gets(op)
      lock:release()
      peer.holder:delete("images-1-B")
      silent()
    end)

    it("is asked for at once when the semaphore was made anew", function ()
      local op = sem:acquire(0)
      misses(arrives())
      while peer.prober:next() ~= "nothing" do peer.prober:look{} end
      peer.holder:again{ "images-1-A" }
      peer:failed(op, "not_found")
      peer:semaphore("images", { bell = true }):acquire(0)
      arrives()
    end)

    it("is asked for once a minute, whichever objects of that name ask", function ()
      for _, pause in ipairs{ 0, 30, 29.9, 0.1 } do
        peer:pass(pause)
        peer.holder:ignore()
        peer.prober:ignore()
        local op = peer:semaphore("images", { bell = true }):acquire(0)
        if pause == 0 or pause == 0.1 then misses(arrives()) end
        local lock = gets(op)
        peer.holder:ignore() -- a pulse, perhaps
        lock:release()
        peer.holder:delete("images-1-B")
        silent()
      end
    end)

    it("or may not be read, or is another client's own queue: the same", function ()
      for _, refusal in ipairs{ { 403, "ACCESS_REFUSED" }, { 405, "RESOURCE_LOCKED" } } do
        open()
        local op = sem:acquire(0)
        local bell = arrives()
        peer.holder:refuse(bell.channel, refusal[1], refusal[2], "basic.consume")
        local lock = gets(op)
        lock:release()
        peer.holder:delete("images-1-B")
        silent()
      end
    end)

    describe("to one who has not seen a slot, as the semaphore may just be being made,", function ()
      before_each(function () open() end)

      -- The bell is made before the first slot.
      for _, order in ipairs{ "the bell's answer first", "the slots' answer first" } do
        it("is asked for again by a waiter, at once: " .. order, function ()
          local op = sem:acquire(60, nil, nil, 600)
          local bell = arrives()
          if order == "the bell's answer first" then misses(bell) end
          finds_none()
          if order ~= "the bell's answer first" then misses(bell) end
          bell = arrives()
          welcome(bell)
          peer.prober:look(ONE_HELD)
          silent()
          local token = deliver(bell)
          local lock = gets(op)
          lock:release()
          peer.holder:delete("images-1-B")
          returns(bell, token)
          silent()
        end)
      end

      it("is rung by one who has the slot, and asked for by the next", function ()
        local op = sem:acquire(0)
        misses(arrives())
        gets(op):release()
        peer.holder:delete("images-1-B")
        rings()
        sem:acquire(0)
        arrives()
      end)

      it("is missing indeed if it is missing again", function ()
        local op = sem:acquire(60)
        misses(arrives())
        finds_none()
        local again = arrives()
        peer.prober:look(ONE_HELD)
        misses(again)
        peer.prober:look(ONE_HELD)
        silent()
        peer:pass(5)
        gets(op):release()
        peer.holder:delete("images-1-B")
        silent()
      end)
    end)

    it("makes a waiter look, and look again in a poll", function ()
      local op = sem:acquire(60)
      local bell = arrives()
      finds_none()
      misses(bell)
      peer.prober:look(ONE_HELD)
      silent()
      peer:pass(5)
      gets(op)
    end)
  end)

  describe("is left clean by", function ()
    it("one who finds no slot and may not wait", function ()
      local op, bell = begin(0)
      finds_none()
      peer:failed(op, "busy")
      cancels(bell)
      cancelled(bell)
      silent()
    end)

    it("one whose time is up, a token on its way or not", function ()
      for _, late in ipairs{ false, true } do
        open()
        local op, bell = wait(3)
        peer:pass(3)
        peer:failed(op, "timeout")
        cancels(bell)
        if late then gives_back(bell, deliver(bell)) end
        cancelled(bell)
        silent()
      end
    end)

    it("one whose time is up with the token in hand", function ()
      local op, bell = wait(3)
      local token = deliver(bell)
      peer.prober:look(ONE_HELD)
      peer:pass(3)
      peer:failed(op, "timeout")
      returns(bell, token)
    end)

    it("one who is abandoned before the bell has answered: by closing the channel", function ()
      local op = sem:acquire(60)
      local bell = arrives()
      op:drop()
      peer.holder:expect("channel.close", { channel = bell.channel })
      welcome(bell)
      deliver(bell)
      peer.prober:ignore()
      silent()
    end)

    it("one who is abandoned while it waits", function ()
      local op, bell = wait(60)
      op:drop()
      cancels(bell)
      silent()
    end)

    it("one who is abandoned in the middle of a claim: the token goes back when the claim is undone", function ()
      local op, bell = begin(60)
      local token = deliver(bell)
      peer.prober:look(ONE)
      local claim = claims()
      op:drop()
      peer.holder:expect("queue.delete", { queue = "images-1-B", channel = claim.channel })
      silent()
      peer.holder:grant(claim)
      silent()
      peer.holder:deleted(claim.channel)
      returns(bell, token)
    end)

    it("one who is abandoned in the middle of a claim without a token: rings if there was anything to claim",
      function ()
        for _, is_granted in ipairs{ true, false } do
          open()
          local op, bell = begin(0)
          peer.prober:look(ONE)
          local claim = claims()
          op:drop()
          peer.holder:expect("queue.delete")
          cancels(bell)
          cancelled(bell)
          if is_granted then
            peer.holder:grant(claim)
            peer.holder:deleted(claim.channel)
            rings()
          else
            peer.holder:refuse(claim.channel, 405, "RESOURCE_LOCKED", "queue.declare")
          end
          silent()
        end
      end)

    it("one who loses the race: it keeps its token, and looks again with it", function ()
      local op, bell = begin(60)
      deliver(bell)
      peer.prober:look(ONE)
      peer.holder:refuse(claims().channel, 405, "RESOURCE_LOCKED", "queue.declare")
      peer:pass(0.01)
      peer.holder:silent()
      gets(op)
      silent()
    end)

    it("a lock whose queue was deleted by somebody else", function ()
      local op, bell = begin(0)
      local token = deliver(bell)
      local _, claim = gets(op)
      peer.holder:send{ channel = claim.channel, method = "basic.cancel", consumer_tag = claim.tag, no_wait = true }
      peer.holder:expect("channel.close", { channel = claim.channel })
      returns(bell, token)
    end)

    it("the session's end: what is held is deleted first, then tokens go back, then it says goodbye", function ()
      local op, bell = begin(0)
      local token = deliver(bell)
      gets(op)
      peer.session:close()
      peer.holder:delete("images-1-B")
      returns(bell, token)
      peer.holder:expect("connection.close")
    end)

    it("the session's end while somebody waits", function ()
      local op, bell = wait(60)
      peer.session:close()
      peer:failed(op, "closed")
      cancels(bell)
      peer.holder:expect("connection.close")
    end)

    it("the loss of the connection: nobody is rung for a token that goes back by itself", function ()
      local op, bell = begin(0)
      deliver(bell)
      local lock = gets(op)
      peer.holder:down()
      assert.is_false((lock:held()))
      peer.prober:silent()
    end)
  end)

  it("is done without where there is no channel left for it", function ()
    peer = Peer.open("whole", nil, { channel_max = 2 })
    peer:acquire("other")
    sem = peer:semaphore("images", { bell = true })
    local op = sem:acquire(0)
    local bell = arrives()
    peer.prober:look(ONE)
    peer:failed(op, "limit")
    peer.holder:expect("channel.close", { channel = bell.channel })
  end)
end)
