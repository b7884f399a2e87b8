-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The writer: it shuts the door, then waits behind it until there are no readers; and faults at every moment behind it.
-- waiters_bell_spec.lua is about writers that wait for the door.

local scene = require "spec.unit.locks.rwlock_scene"

local DOOR, BELL = "db-writer", "db-rwbell"

describe("a writer", function ()
  local peer, rwlock

  local function open(...) peer, rwlock = scene.open("rwlock", ...) end

  before_each(function () open() end)

  -- A writer, behind the door.
  local function behind(timeout, ...)
    local op = rwlock:write(timeout, ...)
    return op, scene.shuts(peer, DOOR)
  end

  -- The same, as far as its count, which is not answered yet. Returns op, door, the probes.
  local function counts(timeout)
    local op, door = behind(timeout)
    peer.prober:barrier()
    return op, door, scene.counts(peer, door)
  end

  -- Gone, and a waiter is rung for.
  local function goes(door, channel) scene.goes(peer, door, BELL, channel) end

  it("looks, shuts the door, and counts behind a write of its own: four round trips, and it says what it is",
    function ()
      local op = rwlock:write()
      peer.holder:silent()
      local door = scene.claims(peer, DOOR)
      scene.reply(peer, door, "declared")
      peer:silent()
      scene.reply(peer, door, "consumed")
      assert.matches("^db%-scratch%-%x+$", peer.prober:barrier())
      scene.count(peer, nil, door)
      peer:silent()
      scene.has(peer, op, door, "write")
    end)

  it("asks for readers by a message that means nothing to them, and is worth nothing a moment later", function ()
    for _, probe in ipairs(select(3, counts())) do
      assert.is_nil(probe.properties.type)
      assert.same({ 1, "0" }, { probe.properties.delivery_mode, probe.properties.expiration })
    end
  end)

  for reply, text in pairs{ [404] = "NOT_FOUND - no queue 'db-writer'", [405] = scene.LOCKED } do
    it(("has no door any more when nobody is seen to read (%d): shuts it again"):format(reply), function ()
      local op, door, probes = counts(0)
      peer.prober:answer(probes, {})
      peer.holder:refuse(door.channel, reply, text, "queue.declare")
      if reply == 404 then scene.rings(peer, BELL) else goes(door, peer.holder:opened()) end
      assert.is_false(op:done())
      peer:pass(0.01)
      scene.writes(peer, op, scene.shuts(peer, DOOR))
    end)
  end

  describe("behind the door, while somebody reads,", function ()
    it("is busy if it may not wait, and opens the door again", function ()
      for _, somebody in ipairs{ "reader", "nack" } do
        open()
        local op, door = behind(0)
        scene.makes_sure(peer, door, somebody)
        peer:failed(op, "busy", 'a reader holds "db"')
        goes(door)
      end
    end)

    it("looks by itself at growing intervals, of a second at most, or of its poll", function ()
      for poll, least in pairs{ [60] = 6, [0.03] = 60 } do
        open()
        local op, door = behind(nil, false, 0, poll)
        scene.makes_sure(peer, door, "reader")
        local gaps, last = {}, peer.now
        peer:live(2, function ()
          if peer.prober:next() == "nothing" then return end
          table.insert(gaps, peer.now - last)
          last = peer.now
          scene.count(peer, "reader")
        end)
        assert.is_true(gaps[1] <= 0.0101 and #gaps >= least and #gaps < 120, #gaps .. " looks")
        for _, gap in ipairs(gaps) do assert.is_true(gap <= math.min(poll, 1) + 1e-4) end
        assert.is_false(op:done())
      end
    end)
  end)

  it("cannot count where whatever is published arrives somewhere: conflict, and the door is open again", function ()
    for _, states in ipairs{ { "db-readers", "other" }, { "other" }, { other = "nack" } } do
      open()
      local op, door, probes = counts()
      peer.holder:declared(door.channel, DOOR)
      probes[2].queue = "other"
      peer.prober:answer(probes, states)
      peer:failed(op, "conflict", "each message to amq.direct reaches a queue", '"db"', "alternate-exchange")
      goes(door)
    end
  end)

  -- Faults behind the door: it never writes while there is a reader, and it leaves no door shut.

  local function enters_barrier()
    if peer.prober:next() == "channel.open" then peer.prober:opened() end
    local declare = peer.prober:expect("queue.declare", { exclusive = true })
    peer.prober:expect("queue.delete", { queue = declare.queue })
    return declare
  end

  local function wakes(door)
    scene.makes_sure(peer, door, "reader")
    scene.tell(peer, door, "amqplocks.token")
  end

  local function counting(door)
    peer.prober:barrier()
    door.is_asked_for = true
    return scene.counts(peer, door)
  end

  -- Moments behind the door. Each returns the probes that are still to be answered, if there are any.
  local moments = {
    ["in its own write"] = function () enters_barrier() end,
    ["while it counts"] = counting,
    ["asleep"] = function (door) scene.makes_sure(peer, door, "reader") end,
    ["while it counts again"] = function (door)
      wakes(door)
      return scene.counts(peer)
    end,
    ["at the last count"] = function (door)
      wakes(door)
      scene.count(peer)
      return counting(door)
    end,
  }

  for text, reach in pairs(moments) do
    describe(text, function ()
      local op, door, probes

      before_each(function ()
        op, door = behind(60)
        probes = reach(door)
        peer:silent()
        assert.is_false(op:done())
      end)

      it("loses the prober: goes on with another one, behind the same door", function ()
        peer.prober:down("timed out")
        assert.is_false(op:done())
        peer.holder:silent()
        peer:live(2, function () return peer.prober:due() end)
        peer.prober:handshake()
        scene.count(peer)  -- which says nothing yet
        assert.is_false(op:done())
        if door.is_asked_for then peer.holder:declared(door.channel, DOOR) end  -- at last
        local lock = scene.writes(peer, op, door)
        assert.equal(door.tag, (select(3, lock:info())))
      end)

      it("meets an alarm: blocked, and the door is opened", function ()
        scene.alarm(peer)
        peer:failed(op, "blocked", 'the readers of "db" cannot be counted', "alarm")
        scene.deletes(peer, door)
      end)

      it("loses the door to somebody: shuts it again, and nothing said before counts", function ()
        scene.is_robbed(peer, door)
        scene.rings(peer, BELL)
        if probes then peer.prober:answer(probes, {}) else peer.prober:ignore() end
        assert.is_false(op:done())
        peer:pass(0.01)
        local again = scene.shuts(peer, DOOR)
        assert.are_not.equal(door.tag, again.tag)
        assert.is_false(op:done())
        local lock = scene.writes(peer, op, again)
        assert.equal(again.tag, (select(3, lock:info())))
      end)

      if text ~= "asleep" then
        it("and not answered: unreachable, and the door is opened", function ()
          peer:fails_after(5, op, "unreachable", "within 5 s")
          scene.deletes(peer, door)
        end)
      end
    end)
  end

  it("that sleeps, or counts, at its deadline: timeout, which says why, and the door is opened", function ()
    for text, words in pairs{ ["asleep"] = "a reader holds the lock",
      ["while it counts"] = "this writer keeps new readers out, and counts the readers that still hold the lock" } do
      open()
      local op, door = behind(0.002)
      moments[text](door)
      peer:fails_after(0.002, op, "timeout", ('"db" could not be locked for writing within 0.002 s (%s)'):format(words))
      scene.deletes(peer, door)
    end
  end)

  it("that loses the prober, and gets no other for a whole timeout: unreachable, and the door is opened", function ()
    local op, door = behind(60)
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

  it("that loses prober after prober, with answers between them, goes on", function ()
    local op, door = behind(60)
    scene.makes_sure(peer, door, "reader")
    for _ = 1, 2 do
      peer:pass(5)
      scene.counts(peer)
      peer.prober:down("timed out")
      peer:live(2, function () return peer.prober:due() end)
      peer.prober:handshake()
      peer:live(2, function () return peer.prober:next() ~= "nothing" end)
      scene.count(peer, "reader")
    end
    assert.is_false(op:done())
  end)

  -- As by a quorum queue without a leader: nothing that was published later on its channel is answered either.
  it("that counts behind a question that is not answered counts on another channel when that one is over", function ()
    peer.session:administer("status", "others", {})
    local stuck = peer.prober:probes()[1].channel
    peer:pass(3)
    local op, door = behind(60)
    assert.equal(stuck, counting(door)[1].channel)
    peer.holder:declared(door.channel, DOOR)
    peer:pass(2.001)
    peer.prober:expect("channel.close", { channel = stuck })
    local probes = scene.counts(peer)
    assert.are_not.equal(stuck, probes[1].channel)
    peer.prober:answer(probes, {})
    assert.is_true(peer:result(op):held())
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

  -- A client that may not publish to queues by their names asks passively, and counts readers as all clients do.
  it("that may not publish to queues counts behind a write on the connection it counts on", function ()
    local op = rwlock:write(0)
    local probe = scene.asks(peer, DOOR)
    peer.prober:refuse(probe.channel, 403, "ACCESS_REFUSED - access to exchange 'amq.default' refused",
      "basic.publish")
    scene.is_no_squatter(peer, DOOR, true) -- but nothing
    local door = scene.is_granted(peer, DOOR)
    peer.holder:silent()
    scene.writes(peer, op, door)
  end)
end)
