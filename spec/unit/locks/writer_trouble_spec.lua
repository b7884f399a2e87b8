-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Faults at every moment after a writer has shut the door: it never writes while there is a reader, and it leaves no
-- door shut.

local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.rwlock_scene"

local DOOR, BELL = "db-writer", "db-rwbell"

describe("a writer", function ()
  local peer, rwlock

  local function open(...) peer, rwlock = scene.open(nil, "rwlock", ...) end

  before_each(function () open() end)

  local function silent() scene.silent(peer) end

  -- A writer, behind the door.
  local function behind(timeout)
    local op = rwlock:write(timeout)
    return op, scene.shuts(peer, DOOR)
  end

  -- The door is gone, and who waits for it is told.
  local function goes(door)
    scene.deletes(peer, door)
    if door.is_asked_for then peer.holder:declared(door.channel, DOOR) end
    peer.holder:deleted(door.channel)
    scene.rings(peer, BELL)
  end

  local function assert_free()
    local op, door = behind(0)
    scene.writes(peer, op, door):drop()
    goes(door)
    scene.all_channels_are_back(peer)
  end

  local function enters_barrier()
    if peer.prober:next() == "channel.open" then peer.prober:opened() end
    local declare = peer.prober:expect("queue.declare", { exclusive = true })
    peer.prober:expect("queue.delete", { queue = declare.queue })
    return declare
  end

  -- Returns what answers it.
  local function writes_its_own()
    local declare = enters_barrier()
    return function ()
      peer.prober:declared(declare.channel, declare.queue)
      peer.prober:deleted(declare.channel)
    end
  end

  -- Up to each moment behind the door. Each gives what the broker has still to say then.
  local function nothing() end

  local function wakes(door)
    scene.makes_sure(peer, door, "reader")
    scene.tell(peer, door, "amqplocks.token")
  end

  local function counting(door)
    local probes = scene.counts(peer, door)
    if door then door.is_asked_for = true end
    return function ()
      peer.prober:answer(probes, {})
    end
  end

  local moments = {
    { text = "in its own write", reach = writes_its_own },
    { text = "while it counts", reach = function (door)
      peer.prober:barrier()
      return counting(door)
    end },
    { text = "with nobody to be seen, its door not confirmed,", has_answers = true, reach = function (door)
      peer.prober:barrier()
      counting(door)()
      return nothing
    end },
    { text = "asleep", has_met_readers = true, reach = function (door)
      scene.makes_sure(peer, door, "reader")
      return nothing
    end },
    { text = "while it counts again", has_met_readers = true, reach = function (door)
      wakes(door)
      return counting()
    end },
    { text = "while it makes sure", reach = function (door)
      wakes(door)
      scene.count(peer)
      return writes_its_own()
    end },
    { text = "at the last count", reach = function (door)
      wakes(door)
      scene.count(peer)
      peer.prober:barrier()
      return counting(door)
    end },
  }

  for _, moment in ipairs(moments) do
    -- Returns the operation, its door, and what the broker has still to say on the prober.
    local function reach(timeout)
      local op, door = behind(timeout)
      local late = moment.reach(door)
      silent()
      assert.is_false(op:done())
      return op, door, late
    end

    describe(moment.text, function ()
      it("abandoned: the door is opened", function ()
        local op, door, late = reach(60)
        op:drop()
        local closed = peer.prober:next() == "channel.close" and peer.prober:expect("channel.close").channel
        late()
        if closed then peer.prober:send{ channel = closed, method = "channel.close-ok" } end
        goes(door)
        assert_free()
      end)

      it("at its deadline: timeout, and the door is opened", function ()
        local op, door = reach(0.002)
        peer:pass(0.002)
        local standing = moment.has_met_readers and "a reader holds the lock"
          or "this writer keeps new readers out, and counts the readers that still hold the lock"
        peer:failed(op, "timeout", ('"db" could not be locked for writing within 0.002 s (%s)'):format(standing))
        if peer.prober:next() == "channel.close" then peer.prober:closes() end
        goes(door)
        silent()
      end)

      it("loses the holder, and the door with it: unreachable, whatever is said about readers", function ()
        local op, _, late = reach(60)
        peer.holder:down("timed out")
        peer:failed(op, "unreachable", "timed out")
        if peer.prober:next() == "channel.close" then peer.prober:expect("channel.close") end
        late()
        peer.prober:ignore()
        peer.session:open()
        peer.holder:handshake()
        peer.holder:silent()
      end)

      it("loses the prober: goes on with another one if it may wait, behind the same door", function ()
        local op, door = reach(60)
        peer.prober:down("timed out")
        assert.is_false(op:done())
        peer.holder:silent()
        if moment.has_answers then
          peer.holder:declared(door.channel, DOOR)
          assert.is_true(peer:result(op):held())
          return
        end
        peer:live(2, function () return peer.prober:due() end)
        assert.is_true(peer.prober:due())
        peer.prober:handshake()
        scene.count(peer)  -- which says nothing yet
        assert.is_false(op:done())
        if door.is_asked_for then peer.holder:declared(door.channel, DOOR) end  -- at last
        door.is_asked_for = false
        local lock = scene.writes(peer, op, door)
        assert.equal(door.tag, (select(3, lock:info())))
        lock:drop()
        goes(door)
        assert_free()
      end)

      if not moment.has_answers then
        it("loses the prober, and gets no other for a whole timeout: unreachable, and the door is opened", function ()
          local op, door = reach(60)
          peer.prober:down("timed out")
          for _ = 1, 100 do
            if op:done() then break end
            peer:live(2, function () return op:done() or peer.prober:due() end)
            if peer.prober:due() then
              peer.prober:attach()
              peer.prober:down("no more of them")
            end
          end
          peer:failed(op, "unreachable", "no more of them")
          scene.deletes(peer, door)
        end)
      end

      it("meets an alarm: blocked, and the door is opened", function ()
        local op, door = reach(60)
        scene.alarm(peer)
        peer:failed(op, "blocked", 'the readers of "db" cannot be counted', "alarm")
        scene.deletes(peer, door)
        if door.is_asked_for then peer.holder:declared(door.channel, DOOR) end
        peer.holder:deleted(door.channel)
        peer.prober:ignore()
        silent()
        peer.prober:send{ channel = 0, method = "connection.unblocked" }
        silent()
      end)

      it("loses the door to somebody: shuts it again, and nothing said before counts", function ()
        local op, door, late = reach(60)
        scene.is_robbed(peer, door)
        scene.rings(peer, BELL)
        if peer.prober:next() == "channel.close" then peer.prober:closes() else late() end
        assert.is_false(op:done())
        peer:pass(0.01)
        local again = scene.shuts(peer, DOOR)
        assert.are_not.equal(door.tag, again.tag)
        assert.is_false(op:done())
        local lock = scene.writes(peer, op, again)
        assert.equal(again.tag, (select(3, lock:info())))
      end)

      it("loses the door as often as it may: lines up for it like everybody else", function ()
        open(nil, { max_attempts = 1 })
        local op, door = reach(60)
        scene.is_robbed(peer, door)
        scene.rings(peer, BELL)
        if peer.prober:next() == "channel.close" then peer.prober:closes() end
        local bell = scene.makes_bell(peer, BELL)
        silent()
        scene.welcome(peer, bell)
        scene.finds_held(peer, DOOR, true)
        silent()
        local token = scene.deliver(peer, bell)
        local again = scene.shuts(peer, DOOR, true)
        scene.writes(peer, op, again):drop()
        peer.holder:delete(DOOR, again.channel)
        scene.returns(peer, bell, token)
        silent()
        scene.all_channels_are_back(peer)
      end)

      if moment.text ~= "asleep" then
        it("and not answered: unreachable, and the door is opened", function ()
          local op, door = reach(60)
          peer:pass(5)
          peer:failed(op, "unreachable", "within 5 s")
          scene.deletes(peer, door)
        end)
      end
    end)
  end

  -- As by a quorum queue without a leader: nothing that was published later on its channel is answered either. Gives
  -- a writer that has counted there, in time of its own, when that channel was given up; its door, and the channel.
  local function counts_behind_silence()
    local other = peer.session:administer("status", "others", {})
    local stuck = peer.prober:probes()[1].channel
    peer:pass(3)
    local op, door = behind(60)
    peer.prober:barrier()
    assert.equal(stuck, scene.counts(peer, door)[1].channel)
    peer.holder:declared(door.channel, DOOR)
    peer:pass(2.001)
    peer:failed(other, "unreachable", "within 5 s")
    peer.prober:expect("channel.close", { channel = stuck })
    return op, door, stuck
  end

  it("that counts behind a question that is not answered counts on another channel when that one is over", function ()
    local op, door, stuck = counts_behind_silence()
    assert.is_false(op:done())
    local probes = scene.counts(peer)
    assert.are_not.equal(stuck, probes[1].channel)
    peer.prober:answer(probes, {})
    peer:result(op):drop()
    goes(door)
  end)

  it("that counts on another channel has no more time there than it had, for the sake of those behind it", function ()
    local op = counts_behind_silence()
    local probes = scene.counts(peer)
    peer:pass(2)
    peer.session:administer("status", "others", {})
    peer.prober:probes()
    peer:pass(1)
    peer:failed(op, "unreachable")
    peer.prober:expect("channel.close", { channel = probes[1].channel })
  end)

  it("that loses prober after prober, with answers between them, goes on for as long as it likes", function ()
    local op, door = behind(60)
    scene.makes_sure(peer, door, "reader")
    local function counts() return peer.prober:next() ~= "nothing" end
    for _ = 1, 8 do
      peer:live(2, counts)
      scene.counts(peer)
      peer.prober:down("timed out")
      peer:live(4, function () return peer.prober:due() end)
      peer.prober:handshake()
      peer:live(2, counts)
      scene.count(peer, "reader")
      assert.is_false(op:done())
    end
    assert.is_true(peer.now > 1010)
  end)

  it("that may not write anything of its own, or has no channel for it, opens the door: refused, limit", function ()
    local op, door = behind(60)
    peer.prober:refuse(enters_barrier().channel, 403, scene.DENIED, "queue.declare")
    peer:failed(op, "refused", scene.DENIED)
    goes(door)
    open(nil, nil, { channel_max = 1 })
    op, door = behind(60)
    peer:failed(op, "limit", "no channel")
    goes(door)
  end)

  -- Whoever may not publish to queues by their names asks for them otherwise, but counts readers as everybody does.
  it("that may not publish to queues counts behind a write on the connection it counts on", function ()
    local op = rwlock:write(0)
    local probe = scene.asks(peer, DOOR)
    peer.prober:refuse(probe.channel, 403, "ACCESS_REFUSED - access to exchange 'amq.default' refused",
      "basic.publish")
    scene.looks_passively(peer, DOOR, false)
    local door = scene.is_granted(peer, DOOR)
    peer.holder:silent()
    scene.writes(peer, op, door)
  end)

  it("whose first prober cannot be had: waits for another one if it may wait, else unreachable", function ()
    for _, timeout in ipairs{ 0, 60 } do
      peer = Peer.new()
      local op = peer:rwlock("db", { probe = "passive" }):write(timeout)
      peer.holder:handshake()
      scene.looks_passively(peer, DOOR, false)
      local door = scene.is_granted(peer, DOOR)
      for _ = 1, 3 do
        assert.is_true(peer.prober:due())
        peer.prober:attach()
        peer.prober:down("refused")
        if timeout == 0 then break end
        assert.is_false(op:done())
        peer:live(6, function () return peer.prober:due() end)
      end
      if timeout == 0 then
        peer:failed(op, "unreachable", "refused")
        peer.holder:delete(DOOR, door.channel)
      else
        peer.prober:handshake()
        scene.count(peer)
        scene.writes(peer, op, door)
      end
    end
  end)

  it("beside another one, that loses the prober and is told at the same moment that somebody left: both go on",
    function ()
      local one, other = rwlock:write(60), peer:rwlock("else"):write(60)
      local looks = peer.prober:probes()
      peer.prober:answer(looks, {})
      local door = scene.claim(peer, DOOR)
      local second = scene.claim(peer, "else-writer")
      scene.replies(peer, door)
      peer.prober:barrier()
      scene.counts(peer, door)
      scene.replies(peer, second)
      peer.prober:barrier()
      peer.prober:probes("amq.direct")
      scene.tell(peer, door, "amqplocks.token")
      scene.tell(peer, second, "amqplocks.token")
      peer.prober:down("timed out")
      assert.same({ false, false }, { one:done(), other:done() })
    end)
end)
