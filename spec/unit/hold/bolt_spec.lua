-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The bolt, a second queue that guards a lock, where the broker needs one: it is shut with every claim, opened with
-- every release, and probed by readers. It may be another connection's, or be denied. All other specs test claims
-- without bolts.

local Peer = require "spec.support.peer"
local admin = require "spec.unit.admin.admin_scene"
local scene = require "spec.unit.locks.rwlock_scene"

local unpack = table.unpack or unpack

local DOOR, SLOT = "db-writer", "images-1-B"

-- The broker's words about a queue and its bolt.
local function in_use(queue) return ("ACCESS_REFUSED - queue '%s-bolt' in vhost '/' in exclusive use"):format(queue) end

local function denied(queue, how)
  return ("ACCESS_REFUSED - %saccess to queue '%s-bolt' in vhost '/' refused for user 'u'"):format(how or "", queue)
end

local function locked(queue)
  return ("RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '%s' in vhost '/'. It could be originally "
    .. "declared on another connection or the exclusive property value does not match that of the original "
    .. "declaration."):format(queue)
end

local function not_found(queue) return ("NOT_FOUND - no queue '%s' in vhost '/'"):format(queue) end

-- What claims queues, step by step: how it is begun, how its queue is found free, what is claimed then, and what
-- remains until it is had. A mutex is claimed as a door is.
local slot = {
  begin = function (peer) return peer:semaphore("images"):acquire(0) end,
  looks = function (peer) peer.prober:look{ "images-1-A" } end,
  claims = function (peer)
    local claim = peer.holder:claim(SLOT, "images-1-A")
    claim.replies = { "declared", "beside", "consumed" }
    return claim
  end,
  gets = function (peer, op) return peer:result(op) end,
}
local door = {
  begin = function (peer) return peer:rwlock("db"):write(0) end,
  looks = function (peer) scene.looks(peer, DOOR, "free") end,
  claims = function (peer) return scene.claim(peer, DOOR) end,
  gets = function (peer, op, claim)
    scene.makes_sure(peer, claim)
    return peer:result(op)
  end,
}

describe("the bolt", function ()
  local peer, told

  -- With a broker of that version; as a rule with one whose locks need bolts.
  local function open(version) peer, told = Peer.open(nil, { version = version }), {} end

  before_each(function () open "3.10.8" end)

  local function silent() scene.silent(peer) end

  local function ends_clean()
    silent()
    scene.all_channels_are_back(peer)
  end

  local function replies(claim)
    for _, reply in ipairs(claim.replies) do
      if reply == "beside" then peer.holder:declared(claim.channel, claim.looks[1]) end
      scene.reply(peer, claim, reply)
    end
  end

  -- Found free, and claimed. Returns op, claim.
  local function begin(kind)
    local op = kind.begin(peer)
    kind.looks(peer)
    return op, kind.claims(peer)
  end

  -- Found free, and had. Returns lock, claim.
  local function acquire(kind)
    local op, claim = begin(kind)
    silent()
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

  local function rings() scene.rings(peer, "db-rwbell") end

  -- Deleted, and then the bolt is opened, if it was shut.
  local function goes(claim, kind)
    local is_bolted = peer.holder:bolts(claim.queue)
    if is_bolted then checks(claim) end
    peer.holder:delete(claim.queue, claim.channel)
    if is_bolted then opens(claim) end
    if kind == door then rings() end
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

  -- The broker closes the channel, and has made nothing.
  local function refuse(claim, text, method, code)
    peer.holder:refuse(claim.channel, code or 403, text, method)
    news()
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

  it("is there before RabbitMQ 4.3, for locks, readers and administrators", function ()
    for _, version in ipairs{ "3.10.8", "4.0.5", "4.2.9", "4.3.0", "4.10.1", "5.0.0", false, "", "trunk" } do
      open(version)
      for _, kind in ipairs{ slot, door } do
        local lock, claim = acquire(kind)
        lock:drop()
        goes(claim, kind)
      end
      local op = peer:rwlock("db"):read(0)
      scene.looks(peer, DOOR, "free")
      scene.replies(peer, scene.reader(peer))
      assert.is_true(peer:result(op):held())
      peer.session:administer("create", "images", {}, 1)
      peer.holder:claim("images-admin")
    end
  end)

  it("is not there with the next connection, to a broker that needs none", function ()
    acquire(slot)
    peer.holder:down()
    peer.prober:ignore()
    peer.session:open()
    peer.holder:handshake()
    acquire(slot)
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
    rings()
    ends_clean()
  end

  -- Had, and asked for. Returns lock, claim, the operation that asks, and the channel where the answer is awaited.
  local function verifies()
    local lock, claim = acquire(door)
    local op = peer:keep(lock:verify())
    local channel = asks_beside(claim)
    return lock, claim, op, channel
  end

  it("is shut before the declare, and opened behind the delete", function ()
    local lock, claim = acquire(door)
    silent()
    local release = lock:release()
    goes(claim, door)
    assert.is_true(peer:result(release))
    ends_clean()
  end)

  it("may end: the lock is held as long as its queue is there", function ()
    local lock, claim = acquire(door)
    ends(claim)
    local channel = asks_beside(claim)
    assert.is_true(lock:held())
    peer.holder:declared(channel, claim.queue)
    assert.is_true(lock:held())
    silent()
    lock:drop()
    goes_for_good(claim)
  end)

  it("may end while the queue is claimed, which is let go with its channel", function ()
    local op, claim = begin(door)
    ends(claim)
    replies(claim)
    local lock = door.gets(peer, op, claim)
    silent()
    lock:drop()
    goes_for_good(claim)
  end)

  it("ends, and the lock is lost, if it was robbed of its queue", function ()
    local lock, claim = acquire(door)
    ends(claim)
    peer.holder:refuse(asks_beside(claim), 404, not_found(claim.queue), "queue.declare")
    assert.is_false((lock:held()))
    peer.holder:closes(claim.channel)
    rings()
    ends_clean()
  end)

  for code, text in pairs{ [404] = not_found(DOOR), [405] = locked(DOOR) } do
    it("opens when its holder, who was robbed and asks, has been told of it: " .. code, function ()
      local lock, claim, op, channel = verifies()
      assert.is_true(lock:held())
      peer.holder:refuse(channel, code, text, "queue.declare")
      assert.is_false((lock:held()))
      peer:failed(op, "lost", text:sub(1, 80))
      peer.holder:closes(claim.channel) -- and with it the bolt opens
      rings()
      ends_clean()
    end)
  end

  it("stays shut if the holder asks, and the broker refuses to say it", function ()
    local lock, claim, op, channel = verifies()
    peer.holder:refuse(channel, 403, denied(claim.queue), "queue.declare")
    assert.is_true(peer:result(op))
    assert.is_true(lock:held())
    lock:drop()
    goes(claim, door)
    ends_clean()
  end)

  it("may be opened while the holder asks", function ()
    local lock, claim, op, channel = verifies()
    lock:drop()
    checks(claim)
    peer.holder:delete(claim.queue, claim.channel)
    opens(claim)
    assert.is_true(op:done())
    peer.holder:closes(channel) -- the question is not answered yet
    rings()
    ends_clean()
  end)

  it("that another has shut, or that is gone just now, is tried again: nothing was made", function ()
    local gone = not_found(DOOR .. "-bolt")
    for _, text in ipairs{ in_use(DOOR), gone } do
      open "3.10.8"
      local op, lost = begin(door)
      refuse(lost, text, "basic.consume", text == gone and 404)
      silent()
      peer:pass(0.01)
      assert.is_false(op:done())
      door.looks(peer)
      local claim = door.claims(peer)
      replies(claim)
      door.gets(peer, op, claim):drop()
      assert.same({}, news())
      goes(claim, door)
      ends_clean()
    end
  end)

  it("is asked for on its lock's own channel where the connection has no other one", function ()
    peer = Peer.new()
    peer.holder:handshake{ version = "3.10.8", channel_max = 1 }
    peer.prober:handshake{ version = "3.10.8" }
    local lock, claim = acquire(door)
    local op = peer:keep(lock:verify())
    peer.holder:expect("queue.declare", { queue = claim.queue, channel = claim.channel, passive = true })
    peer.holder:declared(claim.channel, claim.queue)
    assert.is_true(peer:result(op))
  end)

  for _, refusal in ipairs{
    { "queue.declare", 403, denied(SLOT) },
    { "queue.declare", 403, denied(SLOT, "configure ") },
    { "basic.consume", 403, denied(SLOT, "read ") },
    { "queue.declare", 405, locked(SLOT .. "-bolt") },
    { "queue.declare", 406, ("PRECONDITION_FAILED - inequivalent arg 'x-expires' for queue '%s-bolt' in vhost '/'"
      .. ": received '10000' but current is '1'"):format(SLOT) },
    { "queue.declare", 404, ("NOT_FOUND - home node 'rabbit@other' of durable queue '%s-bolt' in vhost '/' is "
      .. "down or inaccessible"):format(SLOT) },
  } do
    local method, code, text = unpack(refusal)
    it(("that is refused is done without, and people are told: %s, %.30s"):format(method, text), function ()
      local op, denied_claim = begin(slot)
      refuse(denied_claim, text, method, code)
      peer.holder.unbolted[SLOT] = true
      local claim = slot.claims(peer)
      assert.is_false(op:done())
      replies(claim)
      peer:result(op):drop()
      assert.equal(1, #news())
      assert.is_truthy(told[1]:find('"images-1-B-bolt"', 1, true) and told[1]:find(text, 1, true), told[1])
      goes(claim)
      ends_clean()
    end)
  end

  it("that is refused is remembered beside fifteen others", function ()
    -- Locks a slot, and lets it go; its bolt is refused, or was lately.
    local function lock_slot(number, is_refused)
      local name = "n" .. number
      local queue = name .. "-1-B"
      peer.holder.unbolted[queue] = not is_refused
      local op = peer:semaphore(name):acquire(0)
      peer.prober:look{ name .. "-1-A" }
      local claim = peer.holder:claim(queue, name .. "-1-A")
      if is_refused then
        refuse(claim, denied(queue), "basic.consume")
        peer.holder.unbolted[queue] = true
        claim = peer.holder:claim(queue, name .. "-1-A")
      end
      peer.holder:grant(claim)
      peer:result(op):drop()
      peer.holder:delete(queue, claim.channel)
    end
    for i = 1, 16 do lock_slot(i, true) end
    for i = 1, 16 do lock_slot(i, false) end
    lock_slot(17, true)
    lock_slot(2, false)
    lock_slot(1, true)
    assert.equal(1, #news()) -- in a minute
  end)

  it("that is refused is asked for again after a minute, and not before", function ()
    peer:acquire("other") -- held all the time, so that no round trip is due just then
    local op, denied_claim = begin(slot)
    refuse(denied_claim, denied(SLOT, "configure "), "queue.declare")
    peer.holder.unbolted[SLOT] = true
    local claim = slot.claims(peer)
    replies(claim)
    peer:result(op):drop()
    goes(claim)
    pass(59.9)
    local lock, late = acquire(slot)
    peer:pass(0.1)
    lock:drop()
    goes(late)
    peer.holder.unbolted[SLOT] = nil
    acquire(slot)
    assert.equal(1, #news())
  end)

  it("of a lock that was robbed, as is found when it is let go: its channel is closed", function ()
    local lock, claim = acquire(door)
    local release = lock:release()
    checks(claim)
    peer.holder:expect("queue.delete", { queue = claim.queue, channel = claim.channel })
    peer.holder:expect("basic.cancel", { channel = claim.channel })
    assert.is_false(release:done())
    peer.holder:refuse(claim.channel, 404, not_found(DOOR), "queue.declare")
    assert.is_true(peer:result(release))
    rings()
    ends_clean()
  end)

  -- Between that look and the deletion.
  for version, is_bolted in pairs{ ["3.10.8"] = true, ["4.3.0"] = false } do
    it(("of a lock that was robbed when it was let go of, on %s: its channel %s"):format(version,
      is_bolted and "is closed after a minute" or "waits for the news, which will come"), function ()
      open(version)
      peer:acquire("other") -- held all the time, so that no round trip is due just then
      local lock, claim = acquire(slot)
      lock:drop()
      if is_bolted then checks(claim) end
      peer.holder:expect("queue.delete", { queue = SLOT, channel = claim.channel })
      if is_bolted then opens(claim) end
      peer.holder:deleted(claim.channel, true)
      pass(59)
      silent()
      pass(2)
      if is_bolted then
        peer.holder:closes(claim.channel)
      else
        pass(120)
        silent()
        peer.holder:cancelled(claim)
      end
      silent()
      local most = peer.holder.most
      assert.is_true(select(2, peer:acquire"again").channel <= most)
    end)
  end

  describe("of an administrator's mutex", function ()
    -- As far as the claim. Returns op, claim.
    local function administers()
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
      goes(mutex)
      assert.equal(1, peer:result(op))
      scene.all_channels_are_back(peer)
    end

    it("is done without where it is refused, and people are told", function ()
      local op, mutex = administers()
      refuse(mutex, denied("images-admin", "configure "), "queue.declare")
      peer.holder.unbolted["images-admin"] = true
      works(op, peer.holder:claim("images-admin"))
      assert.equal(1, #news())
    end)
  end)

  describe("of the door, for a reader,", function ()
    -- The door is found open, and the reader steps in. Returns op, claim.
    local function steps_in(options)
      local op = peer:rwlock("db", options):read(0)
      scene.looks(peer, DOOR, "free")
      return op, scene.reader(peer)
    end

    -- There is no bolt of its own to be opened.
    local function goes_by_itself(claim)
      peer.holder:delete(claim.queue, claim.channel)
      scene.rings(peer, DOOR)
      ends_clean()
    end

    local function shut(claim)
      peer.holder:send{ channel = claim.channel, method = "queue.declare-ok", queue = DOOR .. "-bolt",
        consumer_count = 1 }
    end

    it("is asked for behind the door: all five replies are needed, in any order", function ()
      for _, order in ipairs(scene.orders{ "declared", "bound", "through", "unbolted", "consumed" }) do
        open "4.0.5"
        local op, claim = steps_in()
        for i, reply in ipairs(order) do
          assert.is_false(op:done(), table.concat(order, ", ") .. ": too early")
          scene.reply(peer, claim, reply)
          assert.equal(i == 5, op:done())
        end
        peer:result(op):drop()
        goes_by_itself(claim)
      end
    end)

    it("is shut: the reader steps back, tells the writer when it is gone, and looks again", function ()
      for _, before in ipairs{ { "declared", "bound", "through", "consumed" }, { "declared", "bound" } } do
        open "3.10.8"
        local op, claim = steps_in()
        local late = { declared = true, bound = true, through = true, consumed = true }
        for _, reply in ipairs(before) do
          scene.reply(peer, claim, reply)
          late[reply] = nil
        end
        shut(claim)
        scene.deletes(peer, claim)
        for reply in pairs(late) do scene.reply(peer, claim, reply) end
        silent()
        assert.is_false(op:done())
        peer.holder:deleted(claim.channel)
        scene.rings(peer, DOOR)
        silent()
        peer:pass(0.01)
        scene.finds_held(peer, DOOR)
        peer:failed(op, "busy", "or waits for it")
        assert.same({}, news())
        ends_clean()
      end
    end)

    it("may not be asked for: the reader is in without, and people are told", function ()
      local op, claim = steps_in{ max_attempts = 1 }
      scene.replies(peer, claim, 1, 3)
      peer.holder:refuse(claim.channel, 403, denied(DOOR, "configure "), "queue.declare")
      is_undone(claim)
      scene.rings(peer, DOOR)
      peer.holder.unbolted[DOOR] = true
      peer:pass(0.01)
      scene.looks(peer, DOOR, "free")
      local again = scene.reader(peer)
      scene.replies(peer, again)
      peer:result(op):drop()
      assert.equal(1, #news())
      goes_by_itself(again)
      pass(60)
      peer.holder.unbolted[DOOR] = nil
      steps_in()
    end)

    it("that was a writer: is its own, not asked for, and opened with the door", function ()
      local lock, claim = acquire(door)
      local op = peer:keep(lock:downgrade())
      local reader = scene.reader(peer, true)
      scene.replies(peer, reader)
      local channel = asks_beside(claim)
      silent()
      peer.holder:declared(channel, DOOR)
      goes(claim, door)
      assert.is_true(peer:result(op))
      lock:drop()
      goes_by_itself(reader)
    end)
  end)

  -- RabbitMQ tells no more than 255 bytes.
  describe("that has a long name, of which the broker tells the beginning,", function ()
    local function cut(text) return #text > 255 and text:sub(1, 252) .. "..." or text end

    for _, length in ipairs{ 189, 190, 205, 215, 230 } do
      local name = ("x"):rep(length)
      local queue = name .. "-mutex"
      local op

      -- The broker closes the first claim of the mutex.
      local function loses(text, method, code)
        op = peer:mutex(name):acquire(0)
        scene.looks(peer, queue, "free")
        refuse(scene.claim(peer, queue), cut(text), method, code)
      end

      local function is_had(notes)
        scene.replies(peer, scene.claim(peer, queue))
        assert.is_true(peer:result(op):held())
        assert.equal(notes, #news())
      end

      it(("of %d bytes: is another's, or the queue itself is, and tried again"):format(length), function ()
        for _, how in ipairs{ { in_use(queue), "basic.consume" }, { locked(queue), "queue.declare", 405 } } do
          open "3.10.8"
          loses(unpack(how))
          peer:pass(0.01)
          scene.looks(peer, queue, "free")
          is_had(0)
        end
      end)

      it(("of %d bytes: is refused, and the lock had without"):format(length), function ()
        for _, how in ipairs{ "", "configure " } do
          open "3.10.8"
          loses(denied(queue, how), "queue.declare")
          peer.holder.unbolted[queue] = true
          is_had(1)
        end
      end)

      it(("of %d bytes: is not taken for the door's queue, which is another's"):format(length), function ()
        local long_door = name .. "-writer"
        op = peer:rwlock(name):read(0)
        scene.looks(peer, long_door, "free")
        local claim = scene.reader(peer, false, name)
        scene.replies(peer, claim, 1, 2)
        peer.holder:refuse(claim.channel, 405, cut(locked(long_door)), "queue.delete")
        is_undone(claim)
        scene.rings(peer, long_door)
        peer:pass(0.01)
        scene.looks(peer, long_door, "free")
        scene.reader(peer, false, name) -- bolted as before
        assert.same({}, news())
      end)
    end
  end)
end)
