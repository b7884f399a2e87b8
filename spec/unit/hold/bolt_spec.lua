-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The bolt, a second queue that guards a lock, where the broker needs one: it is shut with every claim, opened with
-- every release, and probed by readers. It may be another connection's, or be denied. Other specs test claims without
-- bolts; stories and broker/bolt_spec show holders who were robbed of their queues.

local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.rwlock_scene"

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

describe("the bolt", function ()
  local peer, told

  -- With a broker of that version; as a rule with one whose locks need bolts.
  local function open(version) peer, told = Peer.open({ heartbeat = 600 }, { version = version }), {} end

  before_each(function () open "3.10.8" end)

  local function ends_clean()
    peer:silent()
    scene.all_channels_are_back(peer)
  end

  -- A door is found free, and claimed, as a mutex is. Returns op, claim.
  local function begin()
    local op = peer:rwlock("db"):write(0)
    return op, scene.claims(peer, DOOR)
  end

  -- The same, and had. Returns lock, claim.
  local function acquire()
    local op, claim = begin()
    scene.replies(peer, claim)
    return scene.writes(peer, op, claim), claim
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

  -- Deleted, and then the bolt is opened, if it was shut.
  local function goes(claim)
    local is_bolted = peer.holder:bolts(claim.queue)
    if is_bolted then checks(claim) end
    peer.holder:delete(claim.queue, claim.channel)
    if is_bolted then opens(claim) end
    if claim.queue == DOOR then scene.rings(peer, "db-rwbell") end
    peer:silent()
  end

  -- What people have been told of bolts up to now: to be asked in time, as no more than the latest notes are kept.
  local function news()
    for _, text in ipairs(peer:news "locks are held without the bolt") do table.insert(told, text) end
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

  it("is there before RabbitMQ 4.3, for locks, readers and administrators", function ()
    for _, version in ipairs{ "3.10.8", "4.0.5", "4.2.9", "4.3.0", "4.10.1", "5.0.0", false, "", "trunk" } do
      open(version)
      for _, take in ipairs{ acquire, function () return peer:acquire "images" end } do
        local lock, claim = take()
        lock:drop()
        goes(claim)
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
    peer:acquire "images"
    peer.holder:down()
    peer.prober:ignore()
    peer.session:open()
    peer.holder:handshake()
    peer:acquire "images"
  end)

  it("may end: the lock is held as long as its queue is there, and its channel is closed when it is let go", function ()
    for _, is_claiming in ipairs{ true, false } do
      open "3.10.8"
      local op, claim = begin()
      if not is_claiming then scene.replies(peer, claim) end
      local lock = not is_claiming and scene.writes(peer, op, claim)
      peer.holder:send{ channel = claim.channel, method = "basic.cancel", consumer_tag = claim.tag .. "-bolt",
        no_wait = true }
      if is_claiming then scene.replies(peer, claim) end
      lock = lock or scene.writes(peer, op, claim)
      if not is_claiming then peer.holder:declared(asks_beside(claim), claim.queue) end
      assert.is_true(lock:held())
      lock:drop()
      checks(claim)
      peer.holder:delete(claim.queue, claim.channel)
      opens(claim)
      peer.holder:closes(claim.channel)
    end
  end)

  for code, text in pairs{ [404] = not_found(DOOR), [405] = locked(DOOR) } do
    it("opens when its holder, who was robbed and asks, has been told of it: " .. code, function ()
      local lock, claim = acquire()
      local op = peer:keep(lock:verify())
      peer.holder:refuse(asks_beside(claim), code, text, "queue.declare")
      peer:failed(op, "lost", text:sub(1, 80))
      peer.holder:closes(claim.channel) -- and with it the bolt opens
    end)
  end

  it("stays shut if the holder asks, and the broker refuses to say it", function ()
    local lock, claim = acquire()
    local op = peer:keep(lock:verify())
    peer.holder:refuse(asks_beside(claim), 403, denied(claim.queue), "queue.declare")
    assert.is_true(peer:result(op))
    lock:drop()
    goes(claim)
    ends_clean()
  end)

  it("that another has shut, or that is gone just now, is tried again: nothing was made", function ()
    local gone = not_found(DOOR .. "-bolt")
    for _, text in ipairs{ in_use(DOOR), gone } do
      open "3.10.8"
      local op, lost = begin()
      refuse(lost, text, "basic.consume", text == gone and 404)
      peer:silent()
      peer:pass(0.01)
      local claim = scene.claims(peer, DOOR)
      scene.replies(peer, claim)
      assert.is_true(scene.writes(peer, op, claim):held())
      assert.same({}, news())
    end
  end)

  for _, refusal in ipairs{
    { "queue.declare", 403, denied(DOOR) },
    { "queue.declare", 403, denied(DOOR, "configure ") },
    { "basic.consume", 403, denied(DOOR, "read ") },
    { "queue.declare", 405, locked(DOOR .. "-bolt") },
    { "queue.declare", 406, ("PRECONDITION_FAILED - inequivalent arg 'x-expires' for queue '%s-bolt' in vhost '/'"
      .. ": received '10000' but current is '1'"):format(DOOR) },
    { "queue.declare", 404, ("NOT_FOUND - home node 'rabbit@other' of durable queue '%s-bolt' in vhost '/' is "
      .. "down or inaccessible"):format(DOOR) },
  } do
    local method, code, text = (table.unpack or unpack)(refusal)
    it(("that is refused is done without, and people are told: %s, %.30s"):format(method, text), function ()
      local op, denied_claim = begin()
      refuse(denied_claim, text, method, code)
      peer.holder.unbolted[DOOR] = true
      local claim = scene.is_granted(peer, DOOR)
      scene.writes(peer, op, claim):drop()
      assert.equal(1, #news())
      assert.is_truthy(told[1]:find('"db-writer-bolt"', 1, true) and told[1]:find(text, 1, true), told[1])
      goes(claim)
      ends_clean()
    end)
  end

  it("that is refused is asked for again after a minute, and not before", function ()
    local op, denied_claim = begin()
    refuse(denied_claim, denied(DOOR, "configure "), "queue.declare")
    peer.holder.unbolted[DOOR] = true
    local claim = scene.is_granted(peer, DOOR)
    scene.writes(peer, op, claim):drop()
    goes(claim)
    peer:pass(59.9)
    local lock, late = acquire()
    peer:pass(0.1)
    lock:drop()
    goes(late)
    peer.holder.unbolted[DOOR] = nil
    acquire()
    assert.equal(1, #news())
  end)

  it("of a lock that was robbed in the moment in which it was let go: its channel is closed after a minute", function ()
    local lock, claim = peer:acquire "images"
    lock:drop()
    checks(claim)
    peer.holder:expect("queue.delete", { queue = SLOT, channel = claim.channel })
    opens(claim)
    peer.holder:deleted(claim.channel, true)
    peer:pass(59)
    peer:silent()
    peer:pass(2)
    peer.holder:closes(claim.channel)
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
      local op, claim = steps_in()
      scene.replies(peer, claim, 1, 2)
      peer.holder:send{ channel = claim.channel, method = "queue.declare-ok", queue = DOOR .. "-bolt",
        consumer_count = 1 }
      scene.deletes(peer, claim)
      scene.reply(peer, claim, "through")
      scene.reply(peer, claim, "consumed")
      peer:silent()
      assert.is_false(op:done())
      peer.holder:deleted(claim.channel)
      scene.rings(peer, DOOR)
      peer:pass(0.01)
      scene.finds_held(peer, DOOR)
      peer:failed(op, "busy", "or waits for it")
      ends_clean()
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
      peer:pass(60)
      peer.holder.unbolted[DOOR] = nil
      steps_in()
    end)
  end)

  -- RabbitMQ tells no more than 255 bytes.
  describe("that has a long name, of which the broker tells the beginning,", function ()
    local function cut(text) return #text > 255 and text:sub(1, 252) .. "..." or text end

    for _, length in ipairs{ 189, 190, 205, 215, 230 } do
      local name = ("x"):rep(length)
      local queue = name .. "-mutex"

      it(("of %d bytes: is another's, as the queue may be, or is refused"):format(length), function ()
        for _, case in ipairs{ { in_use(queue), "basic.consume" }, { locked(queue), "queue.declare", 405 },
          { denied(queue), "queue.declare", is_denied = true },
          { denied(queue, "configure "), "queue.declare", is_denied = true } } do
          open "3.10.8"
          local op = peer:mutex(name):acquire(0)
          scene.looks(peer, queue, "free")
          refuse(scene.claim(peer, queue), cut(case[1]), case[2], case[3])
          peer.holder.unbolted[queue] = case.is_denied
          if not case.is_denied then
            peer:pass(0.01)
            scene.looks(peer, queue, "free")
          end
          scene.is_granted(peer, queue)
          assert.is_true(peer:result(op):held())
          assert.equal(case.is_denied and 1 or 0, #news())
        end
      end)

      it(("of %d bytes: is not taken for the door's queue, which is another's"):format(length), function ()
        local long_door = name .. "-writer"
        peer:rwlock(name):read(0)
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
