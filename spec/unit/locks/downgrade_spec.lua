-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Downgrading: the writer becomes a reader behind its own door (the queue that excludes readers) before it opens it. At
-- every moment it is one of the two, also with faults.

local scene = require "spec.unit.locks.rwlock_scene"

local DOOR, BELL = "db-writer", "db-rwbell"

describe("a downgrade", function ()
  local peer, rwlock, lock, door

  local function open(settings, limits)
    peer, rwlock = scene.open("rwlock", settings, nil, limits)
    local op = rwlock:write(0)
    door = scene.shuts(peer, DOOR)
    lock = scene.writes(peer, op, door)
  end

  before_each(function () open() end)

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
    peer:silent()
    is("write")
    peer.holder:declared(door.channel, DOOR)
  end

  -- As far as the door's deletion, which is not answered yet.
  local function opening()
    local op, reader = begin()
    scene.replies(peer, reader)
    makes_sure()
    scene.deletes(peer, door)
    peer:silent()
    return op, reader
  end

  local function door_goes()
    peer.holder:deleted(door.channel)
    scene.rings(peer, BELL)
  end

  local function reader_goes(reader, channel)
    peer.holder:delete(reader.queue, channel or reader.channel)
    scene.rings(peer, DOOR)
  end

  -- Let go of by who reads, and nothing is left.
  local function reader_releases(reader)
    lock:release()
    reader_goes(reader)
    peer:silent()
    scene.all_channels_are_back(peer)
  end

  it("claims a reader's queue, makes sure of the door, then opens it, and is held throughout", function ()
    peer:pass(2)
    local op, reader = begin()
    peer:pass(1)
    for _, reply in ipairs(reader.replies) do
      is("write")
      peer:silent()
      scene.reply(peer, reader, reply)
    end
    makes_sure()
    assert.same({ nil, "db", reader.tag, 1700001003, "read" }, { lock:info() }) -- another ticket, as of now
    scene.deletes(peer, door)
    peer:silent()
    assert.is_false(op:done())
    door_goes()
    assert.is_true(peer:result(op))
    reader_releases(reader)
  end)

  describe("that fails before the door is opened leaves it writing, and nothing behind:", function ()
    it("no channel is left", function ()
      open(nil, { channel_max = 2 })
      peer:acquire("other")
      peer:failed(lock:downgrade(), "limit", "channels")
      is("write")
    end)

    it("its binding is refused", function ()
      local op, reader = begin()
      scene.replies(peer, reader, 1, 1)
      peer.holder:refuse(reader.channel, 403, scene.DENIED, "queue.bind")
      peer:failed(op, "refused", "could not be claimed", reader.queue)
      is("write")
      reader_goes(reader, peer.holder:opened())
    end)

    it("its new queue is deleted by somebody: unavailable, as the lock is not lost", function ()
      local op, reader = begin()
      scene.replies(peer, reader, 1, 1)
      scene.is_robbed(peer, reader)
      peer:failed(op, "unavailable", reader.queue, "deleted, but not by this client")
      is("write")
    end)

    it("not answered, or abandoned", function ()
      for _, how in ipairs{ "reader", "door", "abandoned" } do
        open()
        local op, reader = begin()
        scene.replies(peer, reader, 1, how == "door" and 3 or 1)
        if how == "door" then asks_for_door() end
        if how == "abandoned" then op:drop() else peer:pass(5) end
        if how ~= "abandoned" then peer:failed(op, "unreachable", "within 5 s") end
        scene.deletes(peer, reader)
        if how ~= "door" then scene.replies(peer, reader, 2) end
        peer:silent()
        peer.holder:deleted(reader.channel)
        scene.rings(peer, DOOR)
        is("write")
      end
    end)
  end)

  describe("while the door is opened", function ()
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

    -- Stopped before it reads that the door is open; by then somebody may have shut it, found no reader, and write.
    local function read_late()
      local op, reader = opening()
      peer.reads_at = peer.now + 200 -- heartbeats are 60
      peer.holder:deleted(door.channel)
      peer.now, peer.reads_at = peer.reads_at, nil
      assert.is_false(op:done())
      peer.holder:ignore()
      return op, reader
    end

    it("reads of that late: asks for its new queue, which is there", function ()
      local op, reader = read_late()
      peer.holder:declared(reader.channel, reader.queue)
      assert.is_true(peer:result(op))
      is("read")
    end)

    it("reads of that late: asks for its new queue, which went with the connection", function ()
      local op = read_late()
      peer.holder:down("timed out")
      peer:failed(op, "lost", 'the read lock on "db"')
    end)

    it("reads of that late, and is not answered: the next one asks for what reads already", function ()
      local op, reader = read_late()
      peer.holder:send{ channel = 0, heartbeat = true }
      peer:fails_after(5, op, "unreachable", "within 5 s")
      peer.holder:ignore()
      op = peer:keep(lock:downgrade())
      assert.is_false(op:done())
      for _ = 1, 2 do peer.holder:declared(reader.channel, reader.queue) end -- what the first had asked, and it
      assert.is_true(peer:result(op))
      is("read")
    end)

    it("is released: both go", function ()
      local op, reader = opening()
      local release = lock:release()
      scene.deletes(peer, reader)
      peer.holder:deleted(reader.channel)
      scene.rings(peer, DOOR)
      assert.is_true(peer:result(release))
      door_goes()
      peer:failed(op, "not_held")
      peer:silent()
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
    peer.holder:declared(door.channel, DOOR)
    peer.holder:expect("queue.delete", { queue = first.queue, channel = first.channel })
    door_goes()
    peer.holder:deleted(first.channel)
    scene.rings(peer, DOOR)
    assert.is_true(peer:result(one) and peer:result(other))
    reader_releases(second)
  end)

  it("needs no prober, and no free publisher", function ()
    scene.alarm(peer)
    local op = opening()
    peer.prober:down()
    peer.holder:deleted(door.channel)
    assert.is_true(peer:result(op))
    is("read")
  end)

  it("lets nobody else of its session in before it lets go", function ()
    opening()
    peer:failed(rwlock:read(60), "deadlock")
    peer:failed(rwlock:write(60), "deadlock")
    door_goes()
    peer:failed(rwlock:write(60), "deadlock")
    lock:drop()
    rwlock:write(0)
    peer.holder:expect("queue.delete")
    scene.looks(peer, DOOR, "free")
    assert.equal("queue.declare", peer.holder:next())
  end)
end)
