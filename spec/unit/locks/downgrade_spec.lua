-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Downgrading: the writer becomes a reader behind its own door (the queue that excludes readers) before it opens it. At
-- every moment it is one of the two, also with faults.

local scene = require "spec.unit.locks.rwlock_scene"

local unpack = table.unpack or unpack

local DOOR, BELL = "db-writer", "db-rwbell"

describe("a downgrade", function ()
  local peer, rwlock, lock, door

  local function open(settings, limits)
    peer, rwlock = scene.open(nil, "rwlock", settings, nil, limits)
    local op = rwlock:write(0)
    door = scene.shuts(peer, DOOR)
    lock = scene.writes(peer, op, door)
  end

  before_each(function () open() end)

  local function silent() scene.silent(peer) end

  local function is(kind)
    assert.is_true(lock:held())
    assert.equal(kind, (select(5, lock:info())))
  end

  -- Begun. Returns op, the reader's claim.
  local function begin()
    local op = peer:keep(lock:downgrade())
    return op, scene.reader(peer, true)
  end

  local function asks_for_door()
    peer.holder:expect("queue.declare", { queue = DOOR, passive = true, channel = door.channel })
  end

  -- Whether the door was still its own when there was a reader.
  local function makes_sure()
    asks_for_door()
    silent()
    is("write")
    peer.holder:declared(door.channel, DOOR)
  end

  -- As far as the door's deletion, which is not answered yet.
  local function opening()
    local op, reader = begin()
    scene.replies(peer, reader)
    makes_sure()
    scene.deletes(peer, door)
    silent()
    return op, reader
  end

  local function door_goes()
    peer.holder:deleted(door.channel)
    scene.rings(peer, BELL)
  end

  -- The whole of it. Returns the reader's claim.
  local function downgrade()
    local op, reader = opening()
    door_goes()
    assert.is_true(peer:result(op))
    is("read")
    silent()
    return reader
  end

  local function writer_releases()
    local op = lock:release()
    peer.holder:delete(DOOR, door.channel)
    scene.rings(peer, BELL)
    assert.is_true(peer:result(op))
    silent()
    scene.all_channels_are_back(peer)
  end

  local function reader_goes(reader, channel)
    peer.holder:delete(reader.queue, channel or reader.channel)
    scene.rings(peer, DOOR)
  end

  local function reader_releases(reader)
    local op = lock:release()
    reader_goes(reader)
    assert.is_true(peer:result(op))
    silent()
    scene.all_channels_are_back(peer)
  end

  it("claims a reader's queue, bound, makes sure of the door, then opens it, and is held throughout", function ()
    for _, order in ipairs(scene.orders{ "declared", "bound", "consumed" }) do
      open()
      peer:pass(2)
      local op, reader = begin()
      assert.are_not.equal(door.channel, reader.channel)
      peer:pass(1)
      for _, reply in ipairs(order) do
        is("write")
        silent()
        scene.reply(peer, reader, reply)
      end
      makes_sure()
      assert.same({ nil, "db", reader.tag, 1700001003, "read" }, { lock:info() }) -- another ticket, as of now
      scene.deletes(peer, door)
      silent()
      assert.is_false(op:done())
      door_goes()
      assert.is_true(peer:result(op))
      is("read")
      reader_releases(reader)
    end
  end)

  describe("that fails before the door is opened leaves it writing, and nothing behind:", function ()
    local cases = {
      { 0, "queue.declare", 406, "PRECONDITION_FAILED - queue limit in vhost '/' (3) is reached", "limit",
        is_gone = true },
      { 1, "basic.consume", 403, scene.DENIED, "refused" },
      { 1, "queue.bind", 403, "ACCESS_REFUSED - access to exchange 'amq.direct' in vhost '/' refused", "refused" },
      { 2, nil, 541, "INTERNAL_ERROR", "unreachable" },
    }
    for _, case in ipairs(cases) do
      local after, method, reply, text, code = unpack(case, 1, 5)
      it(("its %s refused with %d"):format(method or "channel", reply), function ()
        local op, reader = begin()
        scene.replies(peer, reader, 1, after)
        peer.holder:refuse(reader.channel, reply, text, method)
        peer:failed(op, code, "could not be claimed", reader.queue, text)
        is("write")
        if not case.is_gone then reader_goes(reader, peer.holder:opened()) end
        silent()
        reader_releases(downgrade())
      end)
    end

    it("no channel is left", function ()
      open(nil, { channel_max = 2 })
      peer:acquire("other")
      peer:failed(lock:downgrade(), "limit", "channels")
      is("write")
      silent()
      lock:release()
      peer.holder:delete(DOOR, door.channel)
    end)

    for after = 0, 2 do
      it(("not answered, or abandoned, after %d of 3 replies"):format(after), function ()
        for _, is_abandoned in ipairs{ false, true } do
          open()
          local op, reader = begin()
          scene.replies(peer, reader, 1, after)
          if is_abandoned then
            op:drop()
          else
            peer:pass(5)
            peer:failed(op, "unreachable", "within 5 s")
          end
          is("write")
          scene.deletes(peer, reader)
          scene.replies(peer, reader, after + 1)
          silent()
          peer.holder:deleted(reader.channel)
          scene.rings(peer, DOOR)
          is("write")
          writer_releases()
        end
      end)
    end

    it("its new queue deleted by somebody", function ()
      for _, after in ipairs{ 1, 2 } do
        open()
        local op, reader = begin()
        scene.replies(peer, reader, 1, after)
        scene.is_robbed(peer, reader)
        scene.rings(peer, DOOR)
        peer:failed(op, "unavailable", reader.queue, "deleted, but not by this client")
        is("write")
        reader_releases(downgrade())
      end
    end)
  end)

  for after = 0, 2 do
    describe(("after %d of 3 replies"):format(after), function ()
      local function claiming()
        local op, reader = begin()
        scene.replies(peer, reader, 1, after)
        return op, reader
      end

      -- The reader, which is not wanted any more, goes behind what is still to be answered.
      local function reader_leaves(reader)
        scene.deletes(peer, reader)
        scene.replies(peer, reader, after + 1)
        peer.holder:deleted(reader.channel)
      end

      it("loses the door to somebody: lost, and no reader stays", function ()
        local op, reader = claiming()
        scene.rob(peer, door)
        assert.equal("lost", select(3, lock:held()))
        peer.holder:closes(door.channel)
        scene.rings(peer, BELL)
        -- seen with the next reply, or by being looked at
        if not op:done() then scene.reply(peer, reader, reader.replies[after + 1]) end
        peer:failed(op, "lost", 'the write lock on "db"', "deleted, but not by this client")
        peer.holder:delete(reader.queue, reader.channel)
        assert.equal("lost", select(3, lock:held()))
      end)

      it("loses the connection: lost", function ()
        local op = claiming()
        peer.holder:down("timed out")
        peer:failed(op, "lost", 'the write lock on "db"', "timed out")
        assert.equal("lost", select(3, lock:held()))
      end)

      it("is released meanwhile: not held, and no reader stays", function ()
        local op, reader = claiming()
        local release = lock:release()
        peer.holder:delete(DOOR, door.channel)
        scene.rings(peer, BELL)
        assert.is_true(peer:result(release))
        if not op:done() then scene.reply(peer, reader, reader.replies[after + 1]) end
        peer:failed(op, "not_held", "was released before")
        scene.deletes(peer, reader)
        assert.equal("not_held", select(3, lock:held()))
      end)

      it("is closed with the session: neither stays", function ()
        local op, reader = claiming()
        peer.session:close()
        peer:failed(op, "closed")
        reader_leaves(reader)
        scene.rings(peer, DOOR)
        peer.holder:delete(DOOR, door.channel)
        scene.rings(peer, BELL)
        peer.holder:expect("connection.close")
      end)

      it("is verified meanwhile, which is answered when it reads already", function ()
        local op, reader = claiming()
        scene.replies(peer, reader, after + 1)
        asks_for_door()
        local verify = lock:verify()
        asks_for_door()
        peer.holder:declared(door.channel, DOOR)
        scene.deletes(peer, door)
        peer.holder:declared(door.channel, DOOR)
        door_goes()
        assert.is_true(peer:result(op))
        if not verify:done() then
          peer.holder:expect("queue.declare", { queue = reader.queue, passive = true, channel = reader.channel })
          peer.holder:declared(reader.channel, reader.queue)
        end
        assert.is_true(peer:result(verify))
      end)
    end)
  end

  -- Another writer may have come in, and counted nobody.
  describe("whose door was deleted before there was a reader", function ()
    local function lost(op, reader, ...)
      peer:failed(op, "lost", 'the write lock on "db"', ...)
      assert.equal("lost", select(3, lock:held()))
      reader_goes(reader)
      silent()
    end

    it("hears of it then: lost, and no reader stays", function ()
      local op, reader = begin()
      scene.replies(peer, reader)
      asks_for_door()
      scene.is_robbed(peer, door)
      scene.rings(peer, BELL)
      lost(op, reader, "deleted, but not by this client")
    end)

    for _, reply in ipairs{ 404, 405 } do
      it(("finds out by %d: lost, and no reader stays"):format(reply), function ()
        local op, reader = begin()
        scene.replies(peer, reader)
        asks_for_door()
        peer.holder:refuse(door.channel, reply, "not yours", "queue.declare")
        local channel = peer.holder:opened()
        peer.holder:expect("queue.delete", { queue = DOOR, channel = channel })
        lost(op, reader, "not yours")
      end)
    end

    it("is not answered: unreachable, it writes as before, and no reader stays", function ()
      local op, reader = begin()
      scene.replies(peer, reader)
      asks_for_door()
      peer:pass(5)
      peer:failed(op, "unreachable", "within 5 s")
      is("write")
      reader_goes(reader)
      is("write")
    end)
  end)

  describe("while the door is opened", function ()
    it("reads, whatever the broker says of the door, and others are let in when it is gone", function ()
      for _, reply in ipairs{ 541, 404 } do
        open()
        local op, reader = opening()
        peer.holder:refuse(door.channel, reply, "INTERNAL_ERROR", "queue.delete")
        is("read")
        assert.is_false(op:done())
        peer.holder:delete(DOOR, peer.holder:opened())
        scene.rings(peer, BELL)
        assert.is_true(peer:result(op))
        is("read")
        reader_releases(reader)
      end
    end)

    it("reads, though the door may not be deleted: it goes with its channel", function ()
      local op, reader = opening()
      peer.holder:refuse(door.channel, 403, scene.DENIED, "queue.delete")
      local channel = peer.holder:opened()
      peer.holder:expect("queue.delete", { queue = DOOR, channel = channel })
      peer.holder:refuse(channel, 403, scene.DENIED, "queue.delete")
      assert.is_true(peer:result(op))
      is("read")
      lock:release()
      peer.holder:delete(reader.queue, reader.channel)
    end)

    it("reads, though the broker does not answer (unreachable), or nobody waits for it any more", function ()
      for _, is_abandoned in ipairs{ false, true } do
        open()
        local op, reader = opening()
        if is_abandoned then op:drop() else peer:pass(5) end
        if not is_abandoned then peer:failed(op, "unreachable", "within 5 s") end
        is("read")
        door_goes()
        is("read")
        reader_releases(reader)
      end
    end)

    it("loses its new queue to somebody: lost", function ()
      local op, reader = opening()
      scene.rob(peer, reader)
      local held, message, code = lock:held()
      assert.same({ false, "lost" }, { held, code })
      assert.matches('^lost: the read lock on "db": ', message)
      peer.holder:closes(reader.channel)
      scene.rings(peer, DOOR)
      door_goes()
      peer:failed(op, "lost", 'the read lock on "db"')
    end)

    it("is told that its door was deleted, which is so", function ()
      local op = opening()
      scene.rob(peer, door)
      silent()
      is("read")
      door_goes()
      assert.is_true(peer:result(op))
    end)

    -- Stopped before it reads that the door is open; by then somebody may have shut it, found no reader, and write.
    for _, outcome in ipairs{ "there", "gone" } do
      it("reads of that late: asks for its new queue, which is " .. outcome, function ()
        local op, reader = opening()
        peer.reads_at = peer.now + 200 -- heartbeats are 60
        peer.holder:deleted(door.channel)
        peer.now, peer.reads_at = peer.reads_at, nil
        assert.is_false(op:done())
        if peer.holder:next() == "channel.open" then peer.holder:opened() end -- for the pulse
        if peer.holder:next() == "basic.qos" then peer.holder:expect("basic.qos") end
        peer.holder:expect("queue.declare", { queue = reader.queue, passive = true, channel = reader.channel })
        if outcome == "there" then
          peer.holder:declared(reader.channel, reader.queue)
          assert.is_true(peer:result(op))
          is("read")
        else
          peer.holder:down("timed out")
          peer:failed(op, "lost", 'the read lock on "db"')
        end
      end)
    end

    it("is released: both go", function ()
      local op, reader = opening()
      local release = lock:release()
      scene.deletes(peer, reader)
      peer.holder:deleted(reader.channel)
      scene.rings(peer, DOOR)
      assert.is_true(peer:result(release))
      door_goes()
      peer:failed(op, "not_held")
      silent()
      scene.all_channels_are_back(peer)
    end)
  end)

  it("twice at once, both of which make sure: reads in the end, by one queue", function ()
    local one, first = begin()
    local other, second = begin()
    scene.replies(peer, first)
    scene.replies(peer, second)
    asks_for_door()
    makes_sure()
    peer.holder:expect("queue.delete", { queue = DOOR })
    is("read")
    peer.holder:declared(door.channel, DOOR)
    peer.holder:expect("queue.delete", { queue = first.queue, channel = first.channel })
    door_goes()
    peer.holder:deleted(first.channel)
    scene.rings(peer, DOOR)
    assert.is_true(peer:result(one))
    assert.is_true(peer:result(other))
    reader_releases(second)
  end)

  local function read_late(fn)
    peer.reads_at = peer.now + 200 -- heartbeats are 60
    fn()
    peer.now, peer.reads_at = peer.reads_at, nil
  end

  it("twice at once, one of them in doubt: both go by the one that is left", function ()
    open{ timeout = 600 }
    local one, first = begin()
    local other, second = begin()
    scene.replies(peer, first)
    makes_sure()
    peer.holder:expect("queue.delete", { queue = DOOR })
    read_late(function () peer.holder:deleted(door.channel) end)
    peer.holder:ignore()
    scene.replies(peer, second)
    peer.holder:ignore()
    peer.holder:declared(first.channel, first.queue) -- the answer for what was let go of meanwhile
    peer.holder:deleted(first.channel)
    assert.is_true(peer:result(one))
    assert.is_true(peer:result(other))
    is("read")
  end)

  it("once more, where the first was not answered in time: asks for what reads already", function ()
    local op, reader = opening()
    read_late(function () peer.holder:deleted(door.channel) end)
    peer.holder:ignore()
    peer.holder:send{ channel = 0, heartbeat = true }
    peer:pass(5)
    peer:failed(op, "unreachable", "within 5 s")
    peer.holder:ignore()
    op = peer:keep(lock:downgrade())
    assert.is_false(op:done())
    for _ = 1, 2 do peer.holder:declared(reader.channel, reader.queue) end -- what the first had asked, and it
    assert.is_true(peer:result(op))
    is("read")
  end)

  it("needs no prober, and no free publisher", function ()
    peer.prober:send{ channel = 0, method = "connection.blocked", reason = "memory" }
    local op, reader = opening()
    peer.prober:down()
    peer.holder:deleted(door.channel)
    assert.is_true(peer:result(op))
    is("read")
    lock:release()
    peer.holder:delete(reader.queue, reader.channel)
    silent()
  end)

  it("lets nobody else of its session in before it lets go", function ()
    local function refuses()
      peer:failed(rwlock:read(60), "deadlock")
      peer:failed(rwlock:write(60), "deadlock")
    end
    local op, reader = opening()
    refuses()
    door_goes()
    assert.is_true(peer:result(op))
    refuses()
    silent()
    lock:drop()
    reader_goes(reader)
    rwlock:write(0)
    scene.looks(peer, DOOR, "free")
    assert.equal("queue.declare", peer.holder:next())
  end)
end)
