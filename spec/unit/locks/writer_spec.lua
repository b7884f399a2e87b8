-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The writer: it shuts the door, then waits behind it until there are no readers. waiters_bell_spec.lua is about
-- writers that wait for the door, writer_trouble_spec.lua about faults behind it.

local scene = require "spec.unit.locks.rwlock_scene"

local DOOR, BELL = "db-writer", "db-rwbell"

describe("a writer", function ()
  local peer, rwlock

  local function open(...) peer, rwlock = scene.open("rwlock", ...) end

  before_each(function () open() end)

  local function silent() scene.silent(peer) end

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

  -- Gone, and who waits is rung for.
  local function goes(door, channel) scene.goes(peer, door, BELL, channel) end

  it("looks, shuts the door, and counts behind a write of its own: four round trips, and it says what it is",
    function ()
      local op = rwlock:write()
      peer.holder:silent()
      local door = scene.claims(peer, DOOR)
      scene.reply(peer, door, "declared")
      silent()
      scene.reply(peer, door, "consumed")
      assert.matches("^db%-scratch%-%x+$", peer.prober:barrier())
      scene.count(peer, nil, door)
      silent()
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
      goes(door, peer.holder:opened())
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
end)
