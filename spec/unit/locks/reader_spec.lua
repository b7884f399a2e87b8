-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The reader: it declares and binds a queue of its own, and then checks whether the door is shut. waiters_bell_spec.lua
-- is about readers that wait for the door.

local scene = require "spec.unit.locks.rwlock_scene"

local DOOR = "db-writer"

describe("a reader", function ()
  local peer, rwlock

  local function open(...) peer, rwlock = scene.open("rwlock", ...) end

  before_each(function () open() end)

  -- The door is found open, and the reader steps in. Returns its claim.
  local function steps_in()
    scene.looks(peer, DOOR, "free")
    return scene.reader(peer)
  end

  -- The door was open at the look, and is shut behind the claim. Returns the claim, whose channel the broker has
  -- closed.
  local function meets_door(code, text)
    local claim = steps_in()
    scene.replies(peer, claim, 1, 2)
    peer.holder:refuse(claim.channel, code or 405, text or scene.LOCKED, "queue.delete")
    return claim
  end

  local function read()
    local op = rwlock:read(0)
    local claim = steps_in()
    scene.replies(peer, claim)
    return peer:result(op), claim
  end

  -- Its queue is deleted, on its own channel or another one; the writer behind the door, if there is one, is told.
  local function goes(claim, channel) scene.goes(peer, claim, DOOR, channel) end

  it("takes two round trips: a look, and all of its claim in one write", function ()
    open{ name = "worker 7" }
    local op = rwlock:read()
    local claim = steps_in()
    scene.is_signed(claim, "worker 7")
    scene.replies(peer, claim)
    scene.has(peer, op, claim, "read")
  end)

  describe("that finds the door shut behind its claim", function ()
    it("steps back: deletes what may be left on another channel, and only then tells the writer", function ()
      local op = rwlock:read(0)
      local claim = meets_door()
      goes(claim, peer.holder:opened())
      assert.is_false(op:done())
      peer:pass(0.01)
      scene.finds_held(peer, DOOR)
      peer:failed(op, "busy", "or waits for it")
      scene.all_channels_are_back(peer)
    end)

    it("steps back as often as it may, and waits if it may: says so at its deadline", function ()
      open(nil, { max_attempts = 1 })
      local op = rwlock:read(2)
      meets_door(406, "PRECONDITION_FAILED - queue 'db-writer' in vhost '/' in use") -- by this very session
      peer:fails_after(2, op, "timeout", "within 2 s (writers take and release the lock again and again)")
    end)
  end)

  -- After so many of its replies, for what request, and whether something is to be undone elsewhere.
  local cases = {
    { 0, "queue.declare", 406, "PRECONDITION_FAILED - queue limit in vhost '/' (3) is reached", "limit",
      is_gone = true },
    { 1, "queue.bind", 403, "ACCESS_REFUSED - access to exchange 'amq.direct' in vhost '/' refused", "refused" },
    { 2, "queue.delete", 403, scene.DENIED, "refused" },
    { 2, nil, 541, "INTERNAL_ERROR", "unreachable" },
  }
  for _, case in ipairs(cases) do
    local after, method, reply, text, code = (table.unpack or unpack)(case, 1, 5)
    it(("refused its %s with %d: %s, and nothing is left"):format(method or "channel", reply, code), function ()
      local op = rwlock:read(60)
      local claim = steps_in()
      scene.replies(peer, claim, 1, after)
      peer.holder:refuse(claim.channel, reply, text, method)
      peer:failed(op, code, "could not be claimed", claim.queue, text)
      if not case.is_gone then goes(claim, peer.holder:opened()) end
      peer:silent()
      scene.all_channels_are_back(peer)
    end)
  end

  describe("that is bound, but not through the door,", function ()
    local op, claim

    before_each(function ()
      op = rwlock:read(60)
      claim = steps_in()
      scene.replies(peer, claim, 1, 2)
    end)

    it("abandoned, and refused the door only then: out by another channel", function ()
      op:drop()
      scene.deletes(peer, claim)
      peer:silent()
      peer.holder:refuse(claim.channel, 405, scene.LOCKED, "queue.delete")
      goes(claim, peer.holder:opened())
      scene.all_channels_are_back(peer)
    end)

    it("its connection lost: out with it, and the writer is told", function ()
      peer.holder:down("timed out")
      peer:failed(op, "unreachable", "timed out")
      scene.rings(peer, DOOR)
    end)
  end)

  it("that is inside has its queue deleted by somebody: lost, and the writer is told", function ()
    local lock, claim = read()
    scene.is_robbed(peer, claim)
    assert.matches('^lost: the read lock on "db": its queue was deleted', (select(2, lock:held())))
    scene.rings(peer, DOOR)
  end)

  -- The door would be its own, and in use: RabbitMQ says so, in other words than of another's.
  it("beside a writer of its session, which came at the same moment and is the first: deadlock", function ()
    local write, read_op = rwlock:write(60), rwlock:read(60)
    peer.prober:look{}
    local door = scene.claim(peer, DOOR)
    local bell = scene.makes_bell(peer, "db-rwbell")
    scene.replies(peer, door)
    scene.welcome(peer, bell)
    peer:failed(read_op, "deadlock", 'this connection already reads or writes "db"')
    scene.cancels(peer, bell)
    assert.is_true(scene.writes(peer, write, door):held())
  end)
end)
