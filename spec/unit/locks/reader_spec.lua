-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The reader: it declares and binds a queue of its own, and then checks whether the door is shut. waiters_bell_spec.lua
-- is about readers that wait for the door.

local scene = require "spec.unit.locks.rwlock_scene"

local unpack = table.unpack or unpack

local DOOR = "db-writer"

describe("a reader", function ()
  local peer, rwlock

  local function open(...) peer, rwlock = scene.open(nil, "rwlock", ...) end

  before_each(function () open() end)

  local function silent() scene.silent(peer) end

  -- The door is found open, and the reader steps in. Returns its claim.
  local function steps_in()
    scene.looks(peer, DOOR, "free")
    return scene.reader(peer)
  end

  -- The door was open at the look, and is shut behind the claim. Returns the claim, whose channel the broker has
  -- closed.
  local function meets_door(order)
    local claim = steps_in()
    for _, reply in ipairs(order or { "declared", "bound" }) do scene.reply(peer, claim, reply) end
    peer.holder:refuse(claim.channel, 405, scene.LOCKED, "queue.delete")
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

  local function assert_free()
    local lock, claim = read()
    scene.leaves_nothing(peer, lock, claim, DOOR)
  end

  it("takes two round trips: a look, and all of its claim in one write", function ()
    open{ name = "worker 7" }
    local op = rwlock:read()
    peer.holder:silent()
    local claim = steps_in()
    silent()
    scene.is_signed(claim, "worker 7")
    scene.replies(peer, claim)
    scene.has(peer, op, claim, "read")
  end)

  it("is in when all four replies are there, in any order", function ()
    for _, order in ipairs(scene.orders{ "declared", "bound", "through", "consumed" }) do
      open()
      local op = rwlock:read(0)
      local claim = steps_in()
      for i, reply in ipairs(order) do
        assert.is_false(op:done(), table.concat(order, ", ") .. ": too early")
        scene.reply(peer, claim, reply)
        assert.equal(i == 4, op:done())
      end
      assert.is_true(peer:result(op):held())
      silent()
    end
  end)

  it("is not in by a reply of the wrong kind, twice", function ()
    for _, missing in ipairs{ "declared", "bound", "through", "consumed" } do
      open()
      local op = rwlock:read(60)
      local claim = steps_in()
      for _ = 1, 2 do
        for _, reply in ipairs(claim.replies) do
          if reply ~= missing then scene.reply(peer, claim, reply) end
        end
      end
      assert.is_false(op:done())
    end
  end)

  describe("that finds the door shut behind its claim", function ()
    it("steps back: deletes what may be left on another channel, and only then tells the writer", function ()
      for _, order in ipairs{ { "declared", "bound" }, { "declared", "consumed", "bound" } } do
        open()
        local op = rwlock:read(0)
        local claim = meets_door(order)
        goes(claim, peer.holder:opened())
        assert.is_false(op:done())
        peer:pass(0.01)
        scene.finds_held(peer, DOOR)
        peer:failed(op, "busy", "or waits for it")
        scene.all_channels_are_back(peer)
      end
    end)

    it("steps back, looks again before that is settled, and may be in by then with another queue", function ()
      local op = rwlock:read(0)
      local claim = meets_door()
      local channel = scene.deletes(peer, claim, peer.holder:opened())
      peer:pass(0.01)
      scene.looks(peer, DOOR, "free")
      local again = scene.reader(peer)
      assert.are_not.equal(claim.queue, again.queue)
      scene.replies(peer, again)
      local lock = peer:result(op)
      peer.holder:deleted(channel)
      scene.rings(peer, DOOR)
      assert.is_true(lock:held())
      assert.equal(again.tag, (select(3, lock:info())))
      silent()
    end)

    it("steps back, and what is left is gone by itself, or not its own to delete", function ()
      for _, reply in ipairs{ 404, 405 } do
        open()
        local op = rwlock:read(0)
        local channel = scene.deletes(peer, meets_door(), peer.holder:opened())
        peer.holder:refuse(channel, reply, "no", "queue.delete")
        scene.rings(peer, DOOR)
        silent()
        assert.is_false(op:done())
      end
    end)

    it("steps back as often as it may, and waits if it may: says so at its deadline", function ()
      open(nil, { max_attempts = 1 })
      local op = rwlock:read(2)
      scene.deletes(peer, meets_door(), peer.holder:opened())
      scene.makes_bell(peer, "db-rwbell")
      peer:pass(2)
      peer:failed(op, "timeout",
        '"db" could not be locked for reading within 2 s (writers take and release the lock again and again)')
      peer.holder:expect("channel.close")
    end)
  end)

  describe("refused", function ()
    -- After so many of its replies, for what request, and whether something is to be undone elsewhere.
    local cases = {
      { 0, "queue.declare", 403, scene.DENIED, "refused", is_gone = true },
      { 0, "queue.declare", 406, "PRECONDITION_FAILED - queue limit in vhost '/' (3) is reached", "limit",
        is_gone = true },
      { 1, "basic.consume", 403, scene.DENIED, "refused" },
      { 1, "queue.bind", 403, "ACCESS_REFUSED - access to exchange 'amq.direct' in vhost '/' refused", "refused" },
      { 2, "queue.delete", 403, scene.DENIED, "refused" },
      { 2, nil, 541, "INTERNAL_ERROR", "unreachable" },
    }
    for _, case in ipairs(cases) do
      local after, method, reply, text, code = unpack(case, 1, 5)
      it(("its %s with %d: %s, and nothing is left"):format(method or "channel", reply, code), function ()
        local op = rwlock:read(60)
        local claim = steps_in()
        scene.replies(peer, claim, 1, after)
        peer.holder:refuse(claim.channel, reply, text, method)
        peer:failed(op, code, "could not be claimed", claim.queue, text)
        if not case.is_gone then goes(claim, peer.holder:opened()) end
        silent()
        assert_free()
      end)
    end

    it("and may not delete what is left: looks until it is gone, and tells the writer then", function ()
      local op = rwlock:read(60)
      local claim = meets_door()
      local channel = scene.deletes(peer, claim, peer.holder:opened())
      peer.holder:refuse(channel, 403, scene.DENIED, "queue.delete")
      op:drop()
      silent()
      peer:pass(0.01)
      local look = peer.holder:expect("queue.declare", { queue = claim.queue, passive = true,
        channel = peer.holder:opened() })
      peer.holder:refuse(look.channel, 404, "NOT_FOUND - no queue", "queue.declare")
      scene.rings(peer, DOOR)
      silent()
    end)
  end)

  for after = 0, 4 do
    -- As far as so many of its replies. In the end it has a lock, or not.
    local function stepping(timeout)
      local op = rwlock:read(timeout)
      local claim = steps_in()
      scene.replies(peer, claim, 1, after)
      return op, claim
    end

    -- It lets go: the delete is behind what is still to be answered, the door's among it.
    local function goes_late(claim)
      scene.deletes(peer, claim)
      silent()
      for i = after + 1, 4 do
        scene.reply(peer, claim, claim.replies[i])
        silent()
      end
      peer.holder:deleted(claim.channel)
      scene.rings(peer, DOOR)
    end

    describe(("after %d of its 4 replies"):format(after), function ()
      it("abandoned: out, when its own queue is deleted and not when the door's is", function ()
        local op, claim = stepping(60)
        op:drop()
        goes_late(claim)
        silent()
        assert_free()
      end)

      it("closed with the session: out, then goodbye", function ()
        local op, claim = stepping(60)
        peer.session:close()
        if after < 4 then peer:failed(op, "closed") end
        goes_late(claim)
        peer.holder:expect("connection.close")
        peer.prober:expect("connection.close")
      end)

      it("its connection lost: out with it, and the writer is told", function ()
        local op = stepping(60)
        local lock = after == 4 and peer:result(op)
        peer.holder:down("timed out")
        if lock then
          assert.equal("lost", select(3, lock:held()))
        else
          peer:failed(op, "unreachable", "timed out")
        end
        if after > 0 then scene.rings(peer, DOOR) end
        peer.session:open()
        peer.holder:handshake()
        silent()
        read()
      end)

      if after > 0 then
        it("its queue deleted by somebody: out, and the writer is told", function ()
          local op, claim = stepping(0)
          if after == 4 then
            scene.loses(peer, peer:result(op), claim, 'the read lock on "db"')
            scene.rings(peer, DOOR)
          else
            scene.is_robbed(peer, claim)
            scene.rings(peer, DOOR)
            silent()
            peer:pass(0.01)
            scene.replies(peer, steps_in())
            assert.is_true(peer:result(op):held())
          end
        end)
      end

      if after == 4 then return end

      it("abandoned, and refused the door only then: out by another channel", function ()
        if after > 2 then return end
        local op, claim = stepping(60)
        op:drop()
        scene.deletes(peer, claim)
        scene.replies(peer, claim, after + 1, 2)
        peer.holder:refuse(claim.channel, 405, scene.LOCKED, "queue.delete")
        goes(claim, peer.holder:opened())
        assert_free()
      end)
    end)
  end

  it("that is inside is counted by writers, which means nothing to it", function ()
    local lock, claim = read()
    for _, type in ipairs{ "", "amqplocks.token", "amqplocks.waiting" } do scene.tell(peer, claim, type) end
    silent()
    assert.same({ true, false }, { lock:held(), lock:revoked() })
  end)

  describe("beside others of its session", function ()
    it("cannot read again, or write, before it lets go: deadlock, whether it would wait or not", function ()
      local lock = read()
      for _, timeout in ipairs{ 0, 60 } do
        for _, what in ipairs{ "read", "write" } do
          peer:failed(rwlock[what](rwlock, timeout), "deadlock", 'this connection already reads or writes "db"')
        end
      end
      silent()
      lock:drop()
      peer.holder:expect("queue.delete")
      rwlock:read(0)
      scene.looks(peer, DOOR, "free")
      assert.equal("channel.open", peer.holder:next())
    end)

    it("of which one writes when the other is told that the door is shut: by itself, that is", function ()
      local writes = rwlock:write(60)
      local reads, tries = rwlock:read(60), rwlock:read(0)
      local probes = peer.prober:probes()
      peer.prober:answer({ probes[1] }, {})
      local door = scene.is_granted(peer, DOOR)
      assert.is_true(scene.writes(peer, writes, door):held())
      peer.prober:answer({ probes[2], probes[3] }, { DOOR })
      peer:failed(reads, "deadlock", 'this connection already reads or writes "db"')
      peer:failed(tries, "busy")
    end)

    -- The door would be its own, and in use: RabbitMQ says so, in other words than of another's.
    it("of which one wants to write at the same moment: who is first gets in, and the other is told", function ()
      for _, first in ipairs{ "read", "write" } do
        open()
        local ops = { [first] = rwlock[first](rwlock, 60) }
        for _, what in ipairs{ "read", "write" } do ops[what] = ops[what] or rwlock[what](rwlock, 60) end
        peer.prober:answer(peer.prober:probes(), {})
        if first == "read" then
          peer:failed(ops.write, "deadlock", 'this connection already reads or writes "db"')
          scene.replies(peer, scene.reader(peer))
          assert.is_true(peer:result(ops.read):held())
        else
          local door = scene.claim(peer, DOOR)
          local bell = scene.makes_bell(peer, "db-rwbell")
          scene.replies(peer, door)
          scene.welcome(peer, bell)
          peer:failed(ops.read, "deadlock", 'this connection already reads or writes "db"')
          scene.cancels(peer, bell)
          assert.is_true(scene.writes(peer, ops.write, door):held())
        end
      end
    end)
  end)
end)
