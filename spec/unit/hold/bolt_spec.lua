-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The bolt, a second queue that guards a lock, where the broker needs one: it is shut with every claim, opened with
-- every release, and probed by readers. It may be another connection's, or be denied. All other specs test claims
-- without bolts.

local Peer = require "spec.support.peer"
local admin = require "spec.unit.admin.admin_scene"
local scene = require "spec.unit.locks.rwlock_scene"

local unpack = table.unpack or unpack

local MUTEX, DOOR, SLOT = "db-mutex", "db-writer", "images-1-B"

-- The broker's words about a queue's bolt.
local function in_use(queue) return ("ACCESS_REFUSED - queue '%s-bolt' in vhost '/' in exclusive use"):format(queue) end

local function denied(queue, how)
  return ("ACCESS_REFUSED - %saccess to queue '%s-bolt' in vhost '/' refused for user 'u'"):format(how or "", queue)
end

-- What claims queues, step by step: how it is begun, how its queue is found to be "free" or "held", what is claimed
-- then, what is said to that, and what remains until it is had.
local kinds = {
  {
    name = "a mutex", queue = MUTEX, bell = "db-mutexbell",
    begin = function (peer, timeout) return peer:mutex("db"):acquire(timeout) end,
    sees = function (peer, state, waits) scene.looks(peer, MUTEX, state, waits) end,
    claims = function (peer) return scene.claim(peer, MUTEX) end,
    gets = function (peer, op) return peer:result(op) end,
  },
  {
    name = "a slot", queue = SLOT,
    begin = function (peer, timeout) return peer:semaphore("images"):acquire(timeout) end,
    sees = function (peer, state) peer.prober:look{ "images-1-A", state == "held" and SLOT or nil } end,
    claims = function (peer)
      local claim = peer.holder:claim(SLOT, "images-1-A")
      claim.replies = { "declared", "beside", "consumed" }
      return claim
    end,
    gets = function (peer, op) return peer:result(op) end,
  },
  {
    name = "a door", queue = DOOR, bell = "db-rwbell",
    begin = function (peer, timeout) return peer:rwlock("db"):write(timeout) end,
    sees = function (peer, state, waits) scene.looks(peer, DOOR, state, waits) end,
    claims = function (peer) return scene.claim(peer, DOOR) end,
    gets = function (peer, op, door)
      scene.makes_sure(peer, door)
      return peer:result(op)
    end,
  },
}

describe("the bolt", function ()
  local peer, told

  -- With a broker of that version; as a rule with one whose locks need bolts.
  local function open(version) peer, told = Peer.open("whole", nil, { version = version }), {} end

  before_each(function () open("3.10.8") end)

  local function silent() scene.silent(peer) end

  local function replies(claim, first, last)
    for i = first or 1, last or #claim.replies do
      if claim.replies[i] == "beside" then peer.holder:declared(claim.channel, claim.looks[1]) end
      scene.reply(peer, claim, claim.replies[i])
    end
  end

  -- Found free, and had. Returns lock, claim.
  local function acquire(kind)
    local op = kind.begin(peer, 0)
    kind.sees(peer, "free")
    local claim = kind.claims(peer)
    replies(claim)
    return kind.gets(peer, op, claim), claim
  end

  -- Its channel is to be closed if the queue was taken away.
  local function checks(claim)
    peer.holder:expect("queue.declare", { queue = claim.queue, channel = claim.channel, passive = true,
      no_wait = true })
  end

  local function opens(claim)
    local tag = claim.tag .. "-bolt"
    peer.holder:expect("basic.cancel", { channel = claim.channel, consumer_tag = tag, no_wait = false })
    peer.holder:send{ channel = claim.channel, method = "basic.cancel-ok", consumer_tag = tag }
  end

  -- The holder asks for its queue, on another channel: a refusal would open the bolt with the lock's own. Returns
  -- that channel.
  local function asks_beside(claim)
    if peer.holder:next() == "channel.open" then peer.holder:opened() end
    local look = peer.holder:expect("queue.declare", { queue = claim.queue, passive = true, no_wait = false })
    assert.are_not.equal(claim.channel, look.channel)
    return look.channel
  end

  local function not_found(queue) return ("NOT_FOUND - no queue '%s' in vhost '/'"):format(queue) end

  local function rings(kind) if kind.bell then scene.rings(peer, kind.bell) end end

  -- Deleted, and then the bolt is opened, if it was shut.
  local function goes(kind, claim)
    if peer.holder:bolts(claim.queue) then checks(claim) end
    peer.holder:delete(claim.queue, claim.channel)
    if peer.holder:bolts(claim.queue) then opens(claim) end
    rings(kind)
    silent()
  end

  -- What people have been told of bolts up to now: to be asked in time, as no more than the latest notes are kept.
  local function news()
    for _, text in function () return peer.session:news() end do
      if text:find("locks are held without the bolt", 1, true) then table.insert(told, text) end
    end
    return told
  end

  -- What was made before the claim's channel was closed is deleted on another one.
  local function is_undone(claim)
    peer.holder:delete(claim.queue, peer.holder:opened())
    news()
  end

  -- Had, and asked for. Returns lock, claim, the operation that asks, and the channel on which the answer is awaited.
  local function verifies(kind)
    local lock, claim = acquire(kind)
    local op = peer:keep(lock:verify())
    local channel = asks_beside(claim)
    if kind.queue == SLOT then peer.prober:look{ "images-1-A" } end
    return lock, claim, op, channel
  end

  -- The broker closes the channel, and has made nothing.
  local function refuse(claim, text, method, code)
    peer.holder:refuse(claim.channel, code or 403, text, method)
    news()
  end

  -- Locks the slot of another semaphore, and lets it go; its bolt is refused, or was lately.
  local function lock_other(name, is_refused)
    peer.holder.unbolted[name .. "-1-B"] = not is_refused
    local op = peer:semaphore(name):acquire(0)
    peer.prober:look{ name .. "-1-A" }
    local claim = peer.holder:claim(name .. "-1-B", name .. "-1-A")
    if is_refused then
      refuse(claim, denied(name .. "-1-B"), "basic.consume")
      peer.holder.unbolted[name .. "-1-B"] = true
      claim = peer.holder:claim(name .. "-1-B", name .. "-1-A")
    end
    peer.holder:grant(claim)
    peer:result(op):drop()
    peer.holder:delete(claim.queue, claim.channel)
  end

  -- Time that is long, with heartbeats, and the round trips that a connection makes that holds a lock.
  local function pass(seconds)
    while seconds > 0 do
      peer:pass(math.min(seconds, 20))
      seconds = seconds - 20
      for _, link in ipairs{ peer.holder, peer.prober } do
        if link:next() == "channel.open" then link:opened() end
        if link:next() == "basic.qos" then
          link:send{ channel = link:expect("basic.qos").channel, method = "basic.qos-ok" }
        end
        if link:next() == "heartbeat" then link:expect("heartbeat") end
        link:send{ channel = 0, heartbeat = true }
      end
    end
  end

  for _, kind in ipairs(kinds) do
    describe(kind.name, function ()
      for _, version in ipairs{ "3.10.8", "4.0.5", "4.2.9" } do
        it(("has one on %s: shut before the declare, opened behind the delete"):format(version), function ()
          open(version)
          local op = kind.begin(peer, 0)
          peer.holder:silent()
          kind.sees(peer, "free")
          local claim = kind.claims(peer)
          silent()
          replies(claim)
          local lock = kind.gets(peer, op, claim)
          assert.is_true(lock:held())
          silent()
          local release = lock:release()
          goes(kind, claim)
          assert.is_true(peer:result(release))
          scene.all_channels_are_back(peer)
        end)
      end

      for _, version in ipairs{ "4.3.0", "4.3.6", "4.10.1", "5.0.0", false, "", "trunk" } do
        it("has none on " .. (version and ("%q"):format(version) or "what tells no version"), function ()
          open(version)
          local lock, claim = acquire(kind)
          silent()
          lock:drop()
          goes(kind, claim)
          scene.all_channels_are_back(peer)
        end)
      end

      it("has none with the next connection, to a broker that needs none", function ()
        acquire(kind)
        peer.holder:down()
        peer.prober:ignore()
        peer.session:open()
        peer.holder:handshake()
        acquire(kind)
        silent()
      end)

      -- The broker tells that the bolt's consumer is one no longer: it is gone, or one before it is.
      local function ends(claim)
        peer.holder:send{ channel = claim.channel, method = "basic.cancel", consumer_tag = claim.tag .. "-bolt",
          no_wait = true }
      end

      -- Let go of, by who has been told so: what consumes there still ends with the channel.
      local function goes_for_good(claim)
        checks(claim)
        peer.holder:delete(claim.queue, claim.channel)
        opens(claim)
        peer.holder:closes(claim.channel)
        rings(kind)
        silent()
        scene.all_channels_are_back(peer)
      end

      it("is held though its bolt ends, as long as its queue is there", function ()
        local lock, claim = acquire(kind)
        ends(claim)
        local channel = asks_beside(claim)
        assert.is_true(lock:held())
        peer.holder:declared(channel, claim.queue)
        assert.is_true(lock:held())
        silent()
        lock:drop()
        goes_for_good(claim)
      end)

      it("keeps its channel, whose bolt has ended, until the end of its queue's consumer is told", function ()
        local lock, claim = acquire(kind)
        ends(claim)
        peer.holder:declared(asks_beside(claim), claim.queue)
        lock:drop()
        checks(claim)
        peer.holder:expect("queue.delete", { queue = claim.queue, channel = claim.channel })
        opens(claim)
        peer.holder:deleted(claim.channel, true)
        rings(kind)
        silent()
        peer.holder:cancelled(claim)
        peer.holder:closes(claim.channel)
        silent()
        scene.all_channels_are_back(peer)
      end)

      it("is lost when its bolt ends, if it was robbed of its queue", function ()
        local lock, claim = acquire(kind)
        ends(claim)
        peer.holder:refuse(asks_beside(claim), 404, not_found(claim.queue), "queue.declare")
        assert.is_false((lock:held()))
        peer.holder:closes(claim.channel)
        rings(kind)
        silent()
        scene.all_channels_are_back(peer)
      end)

      for code, text in pairs{ [404] = not_found(kind.queue),
        [405] = ("RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '%s'"):format(kind.queue) } do
        it("is lost to its holder before its bolt opens, if the holder asks, and the broker says " .. code, function ()
          local lock, claim, op, channel = verifies(kind)
          assert.is_true(lock:held())
          peer.holder:refuse(channel, code, text, "queue.declare")
          assert.is_false((lock:held()))
          peer:failed(op, "lost", text)
          peer.holder:closes(claim.channel) -- and with it the bolt opens
          rings(kind)
          silent()
          scene.all_channels_are_back(peer)
        end)
      end

      it("is still held if the holder asks, and the broker refuses to say it", function ()
        local lock, claim, op, channel = verifies(kind)
        peer.holder:refuse(channel, 403, denied(claim.queue), "queue.declare")
        assert.is_true(peer:result(op))
        assert.is_true(lock:held())
        lock:drop()
        goes(kind, claim)
        scene.all_channels_are_back(peer)
      end)

      it("is asked for on its own channel where the connection has no other one", function ()
        peer = Peer.new()
        peer.holder:handshake{ version = "3.10.8", channel_max = 1 }
        peer.prober:handshake{ version = "3.10.8" }
        local lock, claim = acquire(kind)
        local op = peer:keep(lock:verify())
        peer.holder:expect("queue.declare", { queue = claim.queue, channel = claim.channel, passive = true })
        if kind.queue == SLOT then peer.prober:look{ "images-1-A" } end
        peer.holder:declared(claim.channel, claim.queue)
        assert.is_true(peer:result(op))
      end)

      it("may be let go while the holder asks", function ()
        local lock, claim, op, channel = verifies(kind)
        lock:drop()
        checks(claim)
        peer.holder:delete(claim.queue, claim.channel)
        opens(claim)
        assert.is_true(op:done())
        peer.holder:closes(channel) -- the question is not answered yet
        rings(kind)
        silent()
        scene.all_channels_are_back(peer)
      end)

      it("is had though a bolt ends while it is claimed, and let go with its channel", function ()
        local op = kind.begin(peer, 0)
        kind.sees(peer, "free")
        local claim = kind.claims(peer)
        ends(claim)
        replies(claim)
        local lock = kind.gets(peer, op, claim)
        silent()
        lock:drop()
        goes_for_good(claim)
      end)

      it("is let go with its channel when its bolt ends just then", function ()
        local lock, claim = acquire(kind)
        lock:drop()
        ends(claim)
        goes_for_good(claim)
      end)

      -- After so many of the claim's replies.
      for after = 0, 1 do
        -- Abandoned. Returns the claim.
        local function abandoned()
          local op = kind.begin(peer, 60)
          kind.sees(peer, "free")
          local claim = kind.claims(peer)
          replies(claim, 1, after)
          op:drop()
          checks(claim)
          peer.holder:expect("queue.delete", { queue = claim.queue, channel = claim.channel })
          opens(claim)
          silent()
          return claim
        end

        it(("is abandoned after %d of its replies: opened and deleted behind them"):format(after), function ()
          local claim = abandoned()
          replies(claim, after + 1)
          silent()
          peer.holder:deleted(claim.channel)
          rings(kind)
          silent()
          scene.all_channels_are_back(peer)
        end)

        if after == 1 and kind.queue == SLOT then
          it("is abandoned, and its slot was removed: it is deleted on another channel", function ()
            local claim = abandoned()
            refuse(claim, "NOT_FOUND - no queue 'images-1-A' in vhost '/'", "queue.declare", 404)
            is_undone(claim)
            silent()
            scene.all_channels_are_back(peer)
          end)
        end

        if after == 0 then
          it("is abandoned, and was another's: nothing is left to be deleted", function ()
            local claim = abandoned()
            refuse(claim, in_use(kind.queue), "basic.consume")
            silent()
            assert.same({}, news())
            scene.all_channels_are_back(peer)
          end)
        end
      end

      describe("that another has shut", function ()
        -- Lost by the bolt.
        local function loses(text, code)
          kind.sees(peer, "free")
          local claim = kind.claims(peer)
          refuse(claim, text or in_use(kind.queue), "basic.consume", code)
          silent()
          peer:pass(0.01)
        end

        it("or that is gone just now is tried again: nothing was made", function ()
          local gone = ("NOT_FOUND - no queue '%s-bolt' in vhost '/'"):format(kind.queue)
          for _, text in ipairs{ in_use(kind.queue), gone } do
            open "3.10.8"
            local op = kind.begin(peer, 0)
            loses(text, text == gone and 404)
            assert.is_false(op:done())
            kind.sees(peer, "free")
            local claim = kind.claims(peer)
            replies(claim)
            local lock = kind.gets(peer, op, claim)
            assert.same({}, news())
            lock:drop()
            goes(kind, claim)
            scene.all_channels_are_back(peer)
          end
        end)

        it("is busy when the queue is seen", function ()
          local op = kind.begin(peer, 0)
          loses()
          kind.sees(peer, "held")
          scene.is_no_squatter(peer, kind.queue)
          peer:failed(op, "busy")
          silent()
          scene.all_channels_are_back(peer)
        end)

        it("is contended when it is not, again and again", function ()
          local op = kind.begin(peer, 0)
          for _ = 1, 8 do loses() end
          peer:failed(op, "contended", "were faster", "8 times in a row: " .. in_use(kind.queue))
          scene.all_channels_are_back(peer)
        end)

        if kind.bell then
          it("keeps the token that it has, and gives it back when it is let go", function ()
            local op = kind.begin(peer, 60)
            kind.sees(peer, "held", false)
            scene.is_no_squatter(peer, kind.queue)
            local bell = scene.makes_bell(peer, kind.bell)
            scene.welcome(peer, bell)
            kind.sees(peer, "held", true)
            local token = scene.deliver(peer, bell)
            kind.sees(peer, "free", true)
            local lost = kind.claims(peer)
            refuse(lost, in_use(kind.queue), "basic.consume")
            silent()
            peer:pass(0.01)
            kind.sees(peer, "free", true)
            local claim = kind.claims(peer)
            replies(claim)
            local lock = kind.gets(peer, op, claim)
            silent()
            lock:drop()
            checks(claim)
            peer.holder:delete(claim.queue, claim.channel)
            opens(claim)
            scene.returns(peer, bell, token)
            silent()
            scene.all_channels_are_back(peer)
          end)
        end
      end)

      local refusals = {
        { "queue.declare", 403, denied(kind.queue) },
        { "queue.declare", 403, denied(kind.queue, "configure ") },
        { "basic.consume", 403, denied(kind.queue) },
        { "basic.consume", 403, denied(kind.queue, "read ") },
        { "queue.declare", 405, ("RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '%s-bolt' in "
          .. "vhost '/'. It could be originally declared on another connection or the exclusive property value does "
          .. "not match that of the original declaration."):format(kind.queue) },
        { "queue.declare", 406, ("PRECONDITION_FAILED - inequivalent arg 'x-expires' for queue '%s-bolt' in vhost '/'"
          .. ": received '10000' but current is '1'"):format(kind.queue) },
        { "queue.declare", 404, ("NOT_FOUND - home node 'rabbit@other' of durable queue '%s-bolt' in vhost '/' is "
          .. "down or inaccessible"):format(kind.queue) },
      }
      for i, refusal in ipairs(refusals) do
        local method, code, text = unpack(refusal)
        it(("that is refused (%d: %s, %d) is had without, and people are told"):format(i, method, code), function ()
          local op = kind.begin(peer, 0)
          kind.sees(peer, "free")
          local denied_claim = kind.claims(peer)
          refuse(denied_claim, text, method, code)
          peer.holder.unbolted[kind.queue] = true
          local claim = kind.claims(peer)
          assert.is_false(op:done())
          replies(claim)
          local lock = kind.gets(peer, op, claim)
          local notes = news()
          assert.equal(1, #notes)
          assert.is_truthy(notes[1]:find(('"%s-bolt"'):format(kind.queue), 1, true))
          assert.is_truthy(notes[1]:find(text, 1, true))
          lock:drop()
          goes(kind, claim)
          scene.all_channels_are_back(peer)
        end)
      end

      it("that is refused is remembered beside fifteen others", function ()
        for i = 1, 16 do lock_other("n" .. i, true) end
        for i = 1, 16 do lock_other("n" .. i, false) end
        lock_other("n17", true)
        lock_other("n2", false)
        lock_other("n1", true)
        assert.equal(1, #news()) -- in a minute
      end)

      it("that is refused is asked for again after a minute, and not before", function ()
        open("4.2.9")
        peer:acquire("other") -- held all the time, so that no round trip is due just then
        local op = kind.begin(peer, 0)
        kind.sees(peer, "free")
        local denied_claim = kind.claims(peer)
        refuse(denied_claim, denied(kind.queue, "configure "), "queue.declare")
        peer.holder.unbolted[kind.queue] = true
        local claim = kind.claims(peer)
        replies(claim)
        kind.gets(peer, op, claim):drop()
        goes(kind, claim)
        pass(59.9)
        local lock, late = acquire(kind)
        peer:pass(0.1)
        lock:drop()
        goes(kind, late)
        peer.holder.unbolted[kind.queue] = nil
        local again, shut = acquire(kind)
        again:drop()
        goes(kind, shut)
        assert.equal(1, #news())
      end)
    end)
  end

  it("a lock that was robbed is found to be so when it is let go, and its channel is closed", function ()
    for _, kind in ipairs(kinds) do
      open "3.10.8"
      local lock, claim = acquire(kind)
      local release = lock:release()
      checks(claim)
      peer.holder:expect("queue.delete", { queue = claim.queue, channel = claim.channel })
      peer.holder:expect("basic.cancel", { channel = claim.channel })
      assert.is_false(release:done())
      peer.holder:refuse(claim.channel, 404, ("NOT_FOUND - no queue '%s' in vhost '/'"):format(claim.queue),
        "queue.declare")
      assert.is_true(peer:result(release))
      rings(kind)
      silent()
      scene.all_channels_are_back(peer)
    end
  end)

  -- Between that look and the deletion.
  describe("a lock that was robbed and let go of", function ()
    local function let_go(version)
      open(version)
      peer:acquire("other") -- held all the time, so that no round trip is due just then
      local locks, claims = {}, {}
      for i = 1, 3 do locks[i], claims[i] = peer:acquire("images" .. i) end
      for i, claim in ipairs(claims) do
        locks[i]:drop()
        if peer.holder:bolts(claim.queue) then checks(claim) end
        peer.holder:expect("queue.delete", { queue = claim.queue, channel = claim.channel })
        if peer.holder:bolts(claim.queue) then opens(claim) end
        peer.holder:deleted(claim.channel, true)
        pass(19)
      end
      silent()
      return claims
    end

    local function are_back(claims)
      local most = peer.holder.most
      for i in ipairs(claims) do assert.is_true(select(2, peer:acquire("again" .. i)).channel <= most) end
    end

    it("gives its channel back after a minute", function ()
      local claims = let_go "3.10.8"
      pass(2)
      silent()
      for i = 1, 3 do
        pass(2)
        peer.holder:closes(claims[i].channel)
        silent()
        pass(17)
        silent()
      end
      are_back(claims)
    end)

    it("keeps its channel where there are no robbers: the news will come", function ()
      local claims = let_go "4.3.0"
      pass(120)
      silent()
      for i = 1, 3 do peer.holder:cancelled(claims[i]) end
      are_back(claims)
    end)
  end)

  describe("an administrator's mutex", function ()
    -- As far as the claim. Returns op, claim.
    local function begin()
      local op = peer.session:administer("create", "images", {}, 1)
      local mutex = peer.holder:claim("images-admin")
      silent()
      return op, mutex
    end

    -- It has the mutex: creates a slot, and gives it back.
    local function works(op, mutex)
      peer.holder:grant(mutex)
      peer.prober:barrier()
      admin.survey(peer, {})
      admin.declares(peer, mutex, admin.slots(1), false)
      if peer.holder:bolts(mutex.queue) then checks(mutex) end
      peer.holder:delete(mutex.queue, mutex.channel)
      if peer.holder:bolts(mutex.queue) then opens(mutex) end
      silent()
      assert.equal(1, peer:result(op))
      scene.all_channels_are_back(peer)
    end

    -- Refused, and looked for: nobody's by now.
    local function refused(mutex, text, method)
      refuse(mutex, text, method)
      local looking = peer.holder:opened()
      peer.holder:expect("queue.declare", { queue = mutex.queue, passive = true, channel = looking })
      peer.holder:refuse(looking, 404, "NOT_FOUND - no queue 'images-admin' in vhost '/'", "queue.declare")
      peer:live(2, function () return peer.holder:next() ~= "nothing" end)
    end

    for _, version in ipairs{ "3.10.8", "4.0.5", "4.2.9", "4.3.0", "4.3.6", false } do
      it("has one, if there is one on " .. (version or "no version"), function ()
        open(version)
        works(begin())
      end)
    end

    it("that another has shut is tried again", function ()
      local op, mutex = begin()
      refused(mutex, in_use("images-admin"), "basic.consume")
      works(op, peer.holder:claim("images-admin"))
      assert.same({}, news())
    end)

    for _, how in ipairs{ "", "configure " } do
      it(("that is refused (%saccess) is had without, and people are told"):format(how), function ()
        local op, mutex = begin()
        refuse(mutex, denied("images-admin", how), "queue.declare")
        peer.holder.unbolted["images-admin"] = true
        works(op, peer.holder:claim("images-admin"))
        assert.equal(1, #news())
      end)
    end
  end)

  describe("a reader", function ()
    -- The door is found open, and the reader steps in. Returns op, claim.
    local function steps_in(timeout)
      local op = peer:rwlock("db"):read(timeout or 0)
      scene.looks(peer, DOOR, "free")
      return op, scene.reader(peer)
    end

    local function read()
      local op, claim = steps_in()
      scene.replies(peer, claim)
      return peer:result(op), claim
    end

    -- There is no bolt of its own to be opened.
    local function goes_by_itself(claim)
      peer.holder:delete(claim.queue, claim.channel)
      scene.rings(peer, DOOR)
      silent()
    end

    local function shut(claim)
      peer.holder:send{ channel = claim.channel, method = "queue.declare-ok", queue = DOOR .. "-bolt",
        consumer_count = 1 }
    end

    -- It may not ask for the bolt behind an open door.
    local function is_denied(claim, how)
      scene.replies(peer, claim, 1, 3)
      peer.holder:refuse(claim.channel, 403, denied(DOOR, how), "queue.declare")
      is_undone(claim)
      scene.rings(peer, DOOR)
    end

    -- It finds the bolt shut behind an open door.
    local function steps_back(claim)
      scene.replies(peer, claim, 1, 3)
      shut(claim)
      peer.holder:consumed(claim)
      peer.holder:delete(claim.queue, claim.channel)
      scene.rings(peer, DOOR)
    end

    for _, version in ipairs{ "3.10.8", "4.0.5", "4.2.9", "4.3.0", "4.3.6", false } do
      it("asks for the door's, behind the door, if there is one on " .. (version or "no version"), function ()
        open(version)
        local lock, claim = read()
        assert.is_true(lock:held())
        silent()
        lock:drop()
        goes_by_itself(claim)
        scene.all_channels_are_back(peer)
      end)
    end

    it("is in when all five replies are there, in any order", function ()
      for _, order in ipairs(scene.orders{ "declared", "bound", "through", "unbolted", "consumed" }) do
        open("4.0.5")
        local op, claim = steps_in()
        for i, reply in ipairs(order) do
          assert.is_false(op:done(), table.concat(order, ", ") .. ": too early")
          scene.reply(peer, claim, reply)
          assert.equal(i == 5, op:done())
        end
        assert.is_true(peer:result(op):held())
      end
    end)

    it("steps back where it is shut, tells the writer when it is gone, and looks again", function ()
      for _, before in ipairs{ { "declared", "bound", "through" }, { "declared", "bound", "through", "consumed" },
        { "declared", "bound" } } do
        open("3.10.8")
        local op, claim = steps_in()
        local late = { declared = true, bound = true, through = true, consumed = true }
        for _, reply in ipairs(before) do
          scene.reply(peer, claim, reply)
          late[reply] = nil
        end
        shut(claim)
        peer.holder:expect("queue.delete", { queue = claim.queue, channel = claim.channel, if_unused = false,
          if_empty = false })
        for reply in pairs(late) do scene.reply(peer, claim, reply) end
        silent()
        assert.is_false(op:done())
        peer.holder:deleted(claim.channel)
        scene.rings(peer, DOOR)
        silent()
        peer:pass(0.01)
        scene.looks(peer, DOOR, "held")
        scene.is_no_squatter(peer, DOOR)
        peer:failed(op, "busy", "or waits for it")
        assert.same({}, news())
        scene.all_channels_are_back(peer)
      end
    end)

    it("steps back as often as it may: contended", function ()
      local op = peer:rwlock("db", { max_attempts = 3 }):read(0)
      for _ = 1, 3 do
        scene.looks(peer, DOOR, "free")
        local claim = scene.reader(peer)
        steps_back(claim)
        peer:pass(0.01)
      end
      peer:failed(op, "contended", 'other claims of "db" were faster 3 times')
      scene.all_channels_are_back(peer)
    end)

    it("passes the bell's token on though it is shut", function ()
      local op = peer:rwlock("db"):read(60)
      scene.looks(peer, DOOR, "held")
      scene.is_no_squatter(peer, DOOR)
      local bell = scene.makes_bell(peer, "db-rwbell")
      scene.welcome(peer, bell)
      scene.looks(peer, DOOR, "held", true)
      local token = scene.deliver(peer, bell)
      scene.looks(peer, DOOR, "free", true)
      local claim = scene.reader(peer)
      steps_back(claim)
      silent()
      peer:pass(0.01)
      scene.looks(peer, DOOR, "free", true)
      local again = scene.reader(peer)
      scene.replies(peer, again)
      scene.returns(peer, bell, token)
      peer:result(op):drop()
      goes_by_itself(again)
      scene.all_channels_are_back(peer)
    end)

    for after = 0, 3 do
      it(("is abandoned after %d replies: deleted, and it does not matter any more"):format(after), function ()
        local op, claim = steps_in(60)
        scene.replies(peer, claim, 1, after)
        op:drop()
        peer.holder:expect("queue.delete", { queue = claim.queue, channel = claim.channel })
        scene.replies(peer, claim, after + 1, 3)
        shut(claim)
        peer.holder:consumed(claim)
        silent()
        peer.holder:deleted(claim.channel)
        scene.rings(peer, DOOR)
        silent()
        scene.all_channels_are_back(peer)
      end)
    end

    for _, how in ipairs{ "", "configure " } do
      it(("that may not ask (%saccess) is in without, and people are told"):format(how), function ()
        local op, claim = steps_in()
        is_denied(claim, how)
        peer.holder.unbolted[DOOR] = true
        peer:pass(0.01)
        scene.looks(peer, DOOR, "free")
        local again = scene.reader(peer)
        scene.replies(peer, again)
        local lock = peer:result(op)
        assert.equal(1, #news())
        lock:drop()
        goes_by_itself(again)
        scene.all_channels_are_back(peer)
        pass(60)
        peer.holder.unbolted[DOOR] = nil
        assert.is_true(read():held())
      end)
    end

    it("that may not ask, and has not remembered it, is excused once", function ()
      local op = peer:rwlock("db", { max_attempts = 1 }):read(0)
      for i = 1, 2 do
        scene.looks(peer, DOOR, "free")
        local claim = scene.reader(peer)
        is_denied(claim)
        if i == 1 then
          for j = 1, 16 do lock_other("n" .. j, true) end -- others in the meantime
          peer:pass(0.01)
        end
      end
      peer:failed(op, "contended", "1 times")
    end)

    it("that was a writer asks for none, and opens its own with the door", function ()
      local lock, door = acquire(kinds[3])
      local op = peer:keep(lock:downgrade())
      local claim = scene.reader(peer, true)
      scene.replies(peer, claim)
      local channel = asks_beside(door)
      silent()
      peer.holder:declared(channel, DOOR)
      checks(door)
      peer.holder:delete(DOOR, door.channel)
      opens(door)
      scene.rings(peer, "db-rwbell")
      assert.is_true(peer:result(op))
      assert.is_true(lock:held())
      lock:drop()
      goes_by_itself(claim)
      scene.all_channels_are_back(peer)
    end)
  end)

  -- RabbitMQ tells no more than 255 bytes.
  describe("that has a long name, of which the broker tells the beginning,", function ()
    local function cut(text) return #text > 255 and text:sub(1, 252) .. "..." or text end

    for _, length in ipairs{ 189, 190, 205, 215, 230 } do
      local name = ("x"):rep(length)
      local queue = name .. "-mutex"

      local function loses(text, method)
        local op = peer:mutex(name):acquire(0)
        scene.looks(peer, queue, "free")
        local claim = scene.claim(peer, queue)
        refuse(claim, cut(text), method)
        return op
      end

      local function is_had(op)
        peer:pass(0.01)
        scene.looks(peer, queue, "free")
        scene.replies(peer, scene.claim(peer, queue))
        assert.is_true(peer:result(op):held())
      end

      it(("of %d bytes: is another's, and tried again"):format(length), function ()
        is_had(loses(in_use(queue), "basic.consume"))
        assert.same({}, news())
      end)

      for _, how in ipairs{ "", "configure " } do
        it(("of %d bytes: is refused (%saccess), and the lock had without"):format(length, how), function ()
          local op = loses(denied(queue, how), "queue.declare")
          peer.holder.unbolted[queue] = true
          scene.replies(peer, scene.claim(peer, queue))
          assert.is_true(peer:result(op):held())
          assert.equal(1, #news())
        end)
      end

      -- The broker's words about another's queue.
      local function locked(what)
        local text = ("RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '%s' in vhost '/'. It could "
          .. "be originally declared on another connection or the exclusive property value does not match that of "
          .. "the original declaration."):format(what)
        return cut(text)
      end

      it(("of %d bytes: is not taken for the queue itself, which is another's"):format(length), function ()
        local op = peer:mutex(name):acquire(0)
        scene.looks(peer, queue, "free")
        peer.holder:refuse(scene.claim(peer, queue).channel, 405, locked(queue), "queue.declare")
        is_had(op) -- bolted as before
        assert.same({}, news())
      end)

      it(("of %d bytes: is not taken for the door's queue, which is another's"):format(length), function ()
        local door = name .. "-writer"
        local op = peer:rwlock(name):read(0)
        scene.looks(peer, door, "free")
        local claim = scene.reader(peer, false, name)
        scene.replies(peer, claim, 1, 2)
        peer.holder:refuse(claim.channel, 405, locked(door), "queue.delete")
        is_undone(claim)
        scene.rings(peer, door)
        peer:pass(0.01)
        scene.looks(peer, door, "free")
        scene.reader(peer, false, name) -- bolted as before
        assert.is_false(op:done())
        assert.same({}, news())
      end)
    end
  end)
end)
