-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A writer that shuts the door without a look before. bold_claim_spec.lua is about what a mutex has in common with it.

local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.rwlock_scene"

local DOOR, BELL = "db-writer", "db-rwbell"

for _, way in ipairs(Peer.all_ways) do
  describe("a door that was open each time, fed " .. way, function()
    local peer, rwlock

    local function open(...) peer, rwlock = scene.open(way, "rwlock", ...) end

    local function silent() scene.silent(peer) end

    -- Nobody reads: the writer has the lock, and releases it.
    local function has_it(op, door)
      scene.writes(peer, op, door):drop()
      scene.goes(peer, door, BELL)
    end

    -- Written and released so many times, each time with a look.
    local function wins(times)
      for _ = 1, times do
        local op = rwlock:write(0)
        has_it(op, scene.shuts(peer, DOOR))
      end
    end

    -- The same, to read.
    local function reads(times)
      for _ = 1, times do
        local op = rwlock:read(0)
        scene.looks(peer, DOOR, "free")
        local claim = scene.reader(peer)
        scene.replies(peer, claim)
        peer:result(op):drop()
        scene.goes(peer, claim, DOOR)
      end
    end

    -- A writer claims the door without a look. Returns the operation, the door.
    local function dares(...)
      local op = rwlock:write(...)
      local door = scene.claim(peer, DOOR)
      silent()
      return op, door
    end

    -- The same; it is granted the door.
    local function shuts(...)
      local op, door = dares(...)
      scene.replies(peer, door)
      return op, door
    end

    local function is_bold(...) has_it(shuts(...)) end

    before_each(function()
      open()
      wins(3)
    end)

    it("is shut at once the fourth time: three round trips, and readers are counted as before", function()
      local op, door = dares()
      scene.reply(peer, door, "declared")
      silent()
      scene.reply(peer, door, "consumed")
      peer.holder:silent()
      peer.prober:barrier()
      assert.is_false(op:done())
      scene.count(peer, nil, door)
      silent()
      scene.has(peer, op, door, "write")
    end)

    it("is shut at once from then on, waiting or not", function()
      is_bold(0)
      is_bold()
      is_bold(60)
    end)

    it("is looked at by readers, which delete an empty queue that is no door", function()
      reads(3)
      is_bold(0)
      reads(1)
    end)

    it("was open for readers: the writer shuts it at once", function()
      open()
      reads(3)
      is_bold(0)
    end)

    it("is shut by another writer now: a look follows, and it is busy", function()
      local op, door = dares(0)
      scene.is_late(peer, door)
      scene.finds_held(peer, DOOR)
      peer:failed(op, "busy", 'another writer holds "db", or waits for it')
      silent()
      scene.all_channels_are_back(peer)
    end)

    it("is shut by another writer now: waits in line, and has it with the token", function()
      local op, door = dares(60)
      scene.is_late(peer, door)
      scene.finds_held(peer, DOOR)
      local bell = scene.makes_bell(peer, BELL)
      scene.welcome(peer, bell)
      scene.looks(peer, DOOR, "held", true)
      silent()
      local token = scene.deliver(peer, bell)
      door = scene.shuts(peer, DOOR, true)
      scene.writes(peer, op, door):drop()
      scene.deletes(peer, door)
      peer.holder:deleted(door.channel)
      scene.returns(peer, bell, token)
      silent()
    end)

    it("was shut for a reader: three more wins are needed", function()
      open()
      reads(2)
      local op = rwlock:read(0)
      scene.finds_held(peer, DOOR)
      peer:failed(op, "busy")
      reads(1)
      wins(2)
      is_bold(0)
    end)

    it("is shut by a queue that is no door: squatted", function()
      local op, door = dares(60)
      scene.is_late(peer, door)
      scene.looks(peer, DOOR, "held")
      scene.is_squatted(peer, DOOR)
      peer:failed(op, "squatted")
    end)

    it("is shut, and somebody reads: waits for readers, who are no contest for the door", function()
      local op, door = shuts(60)
      scene.makes_sure(peer, door, "reader")
      silent()
      scene.tell(peer, door, "amqplocks.token")
      scene.count(peer)
      scene.makes_sure(peer, door)
      peer:result(op):drop()
      scene.goes(peer, door, BELL)
      is_bold(0)
    end)

    it("is shut, and somebody reads: busy for a writer that does not wait", function()
      local op, door = shuts(0)
      scene.makes_sure(peer, door, "reader")
      peer:failed(op, "busy", 'a reader holds "db"')
      scene.goes(peer, door, BELL)
    end)

    it("is lost while the writer counts: shut again after a pause and a look, as by each writer", function()
      local op, door = shuts(60)
      peer.prober:barrier()
      local probes = scene.counts(peer, door)
      scene.is_robbed(peer, door)
      scene.rings(peer, BELL)
      silent()
      peer:pass(0.01)
      peer.prober:answer(probes, {})
      has_it(op, scene.shuts(peer, DOOR))
    end)

    it("is claimed when the connection is lost: unreachable", function()
      local op = dares(60)
      peer.holder:down("timed out")
      peer:failed(op, "unreachable", "timed out")
    end)

    it("is claimed when the prober is lost: the writer goes on, behind the door", function()
      local op, door = dares(60)
      peer.prober:down("timed out")
      scene.replies(peer, door)
      assert.is_false(op:done())
      silent()
    end)

    describe("is not claimed", function()
      it("while this session reads: deadlock", function()
        local op = rwlock:read(0)
        scene.looks(peer, DOOR, "free")
        scene.replies(peer, scene.reader(peer))
        assert.is_true(peer:result(op):held())
        for _, timeout in ipairs{ 0, 60 } do peer:failed(rwlock:write(timeout), "deadlock") end
        silent()
      end)

      it("while this session claims it, or writes: deadlock", function()
        local op, door = dares(0)
        peer:failed(rwlock:write(60), "deadlock")
        scene.replies(peer, door)
        assert.is_true(scene.writes(peer, op, door):held())
        peer:failed(rwlock:write(60), "deadlock")
        silent()
      end)

      it("while this session releases it", function()
        local op, door = shuts(0)
        scene.writes(peer, op, door):drop()
        scene.deletes(peer, door)
        rwlock:write(0)
        silent()
      end)
    end)
  end)
end
