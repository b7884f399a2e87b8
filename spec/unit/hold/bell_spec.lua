-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The doorbell, the queue whose messages (tokens) wake waiters: what stories of spec/sim do not tell of it. There each
-- token has its place, and a client without one rings (publishes one).

local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.rwlock_scene"

local ONE, ONE_HELD = { "images-1-A" }, { "images-1-A", "images-1-B" }
local NO_BELL = "NOT_FOUND - no queue 'images-bell' in vhost '/'"

describe("the doorbell", function ()
  local peer, sem

  local function open()
    peer = Peer.open()
    sem = peer:semaphore("images", { bell = true })
  end

  before_each(open)

  -- The core consumes from the bell, on a channel of its own. Returns { channel =, tag =, since = }.
  local function arrives(priority, again)
    local opened = peer.holder:next() == "channel.open" and peer.holder:opened()
    if opened or not again and peer.holder:next() == "basic.qos" then -- once for each channel
      local qos = peer.holder:expect("basic.qos", { prefetch_count = 1, global = false })
      peer.holder:send{ channel = qos.channel, method = "basic.qos-ok" }
    end
    local consume = peer.holder:expect("basic.consume", { queue = "images-bell", no_ack = false, exclusive = false })
    local since, arguments = peer:signed(consume.arguments)
    assert.same(priority and { ["x-priority"] = priority } or {}, arguments)
    return { channel = consume.channel, tag = consume.consumer_tag, since = since, queue = "images-bell" }
  end

  local function deliver(bell, properties) return scene.deliver(peer, bell, properties) end
  local function rings() scene.rings(peer, "images-bell") end

  -- An acquire that has arrived and has been welcome. Returns op, bell.
  local function begin(...)
    local op = sem:acquire(...)
    local bell = arrives((select(3, ...)))
    peer.holder:consumed(bell)
    return op, bell
  end

  -- No slot is free: the only one is another's, and a true lock.
  local function finds_none()
    while peer.prober:next() ~= "nothing" do peer.prober:look(ONE_HELD) end -- two slots, and then more
    scene.is_no_squatter(peer, "images-1-B")
  end

  -- One that waits.
  local function wait(...)
    local op, bell = begin(...)
    finds_none()
    peer:silent()
    return op, bell
  end

  -- The slot is found free, and claimed. Returns the lock.
  local function gets(op)
    peer.prober:look(ONE)
    peer.holder:grant(peer.holder:claim("images-1-B", "images-1-A"))
    return peer:result(op)
  end

  -- The lock is released, and when its queue is gone, its token goes back, or (without one) somebody is rung for.
  local function lets_go(lock, bell, token)
    peer:silent()
    lock:release()
    peer.holder:delete("images-1-B")
    if token then scene.returns(peer, bell, token) else rings() end
    peer:silent()
  end

  it("that has not answered when the slot is given back: its channel is closed, nothing cancelled, and it is rung",
    function ()
      local op = sem:acquire(0)
      local bell = arrives()
      gets(op):release()
      peer.holder:delete("images-1-B")
      peer.holder:expect("channel.close", { channel = bell.channel })
      rings()
      peer.holder:consumed(bell)
      deliver(bell)
      peer:silent()
    end)

  it("is rung by a fair one that has seen a slot free for more than 100 ms, and that waits for it", function ()
    local op, bell = begin(60, true)
    for _, milliseconds in ipairs{ 100, 8, 8 } do
      peer.prober:look(ONE)
      peer:silent()
      peer:pass(milliseconds / 1000 - 0.001)
      peer:silent()
      peer:pass(0.001001)
    end
    peer.prober:look(ONE)
    rings()
    peer:silent()
    assert.is_false(op:done())
    deliver(bell)
    gets(op)
  end)

  -- The token leads to nothing, and is thrown away. Returns where the waiter is at the bell then.
  local function throws_away(bell, priority)
    local token = deliver(bell)
    peer:live(5.2, function ()
      if peer.prober:next() == "basic.publish" then peer.prober:look(ONE_HELD) end
      return peer.holder:next() == "basic.cancel"
    end)
    peer.holder:expect("basic.cancel", { channel = bell.channel, consumer_tag = bell.tag, no_wait = false })
    peer.holder:expect("basic.ack", { channel = bell.channel, delivery_tag = token })
    local again = arrives(priority, true)
    peer.holder:send{ channel = bell.channel, method = "basic.cancel-ok", consumer_tag = bell.tag }
    peer.holder:consumed(again)
    return again
  end

  it("that wakes for nothing is come to again, with more priority each time, and still says since when", function ()
    peer:pass(5)
    local _, bell = wait(60)
    local came = bell.since
    assert.equal(math.floor(peer:wall()), came)
    for priority = 1, 3 do
      bell = throws_away(bell, priority)
      assert.equal(came, bell.since)
    end
  end)

  -- Of such a token only one search is expected to find something, the first that begins with it.
  it("that wakes during a search, soon behind a token for nothing: its token is kept for the next search", function ()
    local op, bell = wait(600, false, nil, 0.05)
    bell = throws_away(bell, 1)
    peer:live(0.1, function () return peer.prober:next() == "basic.publish" end)
    deliver(bell)
    peer.prober:look(ONE_HELD)
    peer.holder:silent()
    peer.prober:look(ONE_HELD)
    peer.holder:expect("basic.cancel", { consumer_tag = bell.tag })
    assert.is_false(op:done())
  end)

  it("that wakes with anything but a token: that is acknowledged away, and nobody looks", function ()
    local _, bell = wait(60)
    for _, properties in ipairs{ {}, { type = ("x"):rep(60) } } do
      local tag = deliver(bell, properties)
      peer.holder:expect("basic.ack", { channel = bell.channel, delivery_tag = tag })
      peer:silent()
    end
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
    local claim = peer.holder:claim("images-1-B", "images-1-A")
    peer.holder:refuse(claim.channel, 405, "RESOURCE_LOCKED", "queue.declare")
    assert_says "a slot was free, and could not be claimed"
  end)

  describe("that is missing", function ()
    local function misses(bell) peer.holder:refuse(bell.channel, 404, NO_BELL, "basic.consume") end

    local function gives_back_silently(lock)
      lock:release()
      peer.holder:delete("images-1-B")
      peer:silent()
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
          peer:silent()
          peer.holder:refuse(bell.channel, code, text, "basic.consume")
          gives_back_silently(gets(op))
        end
      end)

    it("is asked for at once when the semaphore was made anew", function ()
      knows_slot()
      local op = sem:acquire(0)
      misses(arrives())
      while peer.prober:next() ~= "nothing" do peer.prober:look{} end
      peer:failed(op, "not_found")
      peer:semaphore("images", { bell = true }):acquire(0)
      arrives()
    end)

    it("is asked for once a minute, whichever objects of that name ask", function ()
      peer = Peer.open({ heartbeat = 600 })
      knows_slot()
      for _, pause in ipairs{ 0, 59.9, 0.1 } do
        peer:pass(pause)
        local op = peer:semaphore("images", { bell = true }):acquire(0)
        if pause ~= 59.9 then misses(arrives()) end
        gives_back_silently(gets(op))
      end
    end)

    -- The bell is made before the first slot.
    it("is asked for again by a waiter that has not seen a slot, at once", function ()
      local op = sem:acquire(60, nil, nil, 600)
      misses(arrives())
      finds_none()
      local bell = arrives()
      peer.holder:consumed(bell)
      peer.prober:look(ONE_HELD)
      peer:silent()
      local token = deliver(bell)
      lets_go(gets(op), bell, token)
    end)

    it("is rung by one who has not seen a slot before, and has it, and asked for by the next", function ()
      local op = sem:acquire(0)
      misses(arrives())
      lets_go(gets(op))
      sem:acquire(0)
      arrives()
    end)
  end)
end)
