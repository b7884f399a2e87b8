-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A mutex that is claimed without a look before. boldness_spec.lua is about how many wins that takes.

local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.rwlock_scene"

local MUTEX, BELL = "db-mutex", "db-mutexbell"

for _, way in ipairs(Peer.all_ways) do
  describe("a mutex that was free each time, fed " .. way, function()
    local peer, mutex

    local function open(...) peer, mutex = scene.open(way, "mutex", ...) end

    local function silent() scene.silent(peer) end

    -- The claim is granted, and released again.
    local function has_it(op)
      local claim = scene.is_granted(peer, MUTEX)
      local release = peer:result(op):release()
      scene.goes(peer, claim, BELL)
      assert.is_true(peer:result(release))
    end

    -- Acquired and released so many times, each time with a look.
    local function wins(times)
      for _ = 1, times do
        local op = mutex:acquire(0)
        scene.looks(peer, MUTEX, "free")
        has_it(op)
      end
    end

    -- Begins an acquire that claims without a look. Returns the operation, the claim.
    local function dares(...)
      local op = mutex:acquire(...)
      local claim = scene.claim(peer, MUTEX)
      silent()
      return op, claim
    end

    -- Claims without a look, has it, and releases it.
    local function is_bold(...)
      local op, claim = dares(...)
      scene.replies(peer, claim)
      local lock = peer:result(op)
      assert.is_true(lock:held())
      lock:release()
      scene.goes(peer, claim, BELL)
    end

    -- A bold claim is lost to a holder. Returns the operation, which looks.
    local function loses(...)
      local op, claim = dares(...)
      scene.is_late(peer, claim)
      return op
    end

    before_each(function()
      open()
      wins(3)
    end)

    it("is claimed at once the fourth time, and from then on, waiting or not", function()
      is_bold(0)
      is_bold()
      is_bold(60)
    end)

    it("is claimed by the fourth acquire of that object only", function()
      local op = peer:mutex("db"):acquire(0)
      scene.looks(peer, MUTEX, "free")
      has_it(op)
    end)

    it("and is held now: a look follows at once, and it is busy", function()
      local op = loses(0)
      scene.finds_held(peer, MUTEX)
      peer:failed(op, "busy", 'mutex "db" is held')
      silent()
      scene.all_channels_are_back(peer)
    end)

    it("and is held now: waits in line", function()
      local op = loses(60)
      scene.finds_held(peer, MUTEX)
      local bell = scene.makes_bell(peer, BELL)
      scene.welcome(peer, bell)
      scene.looks(peer, MUTEX, "held", true)
      silent()
      assert.is_false(op:done())
      local token = scene.deliver(peer, bell)
      scene.looks(peer, MUTEX, "free", true)
      local claim = scene.is_granted(peer, MUTEX)
      peer:result(op):release()
      scene.deletes(peer, claim)
      peer.holder:deleted(claim.channel)
      scene.returns(peer, bell, token)
      silent()
    end)

    it("and is held now by a queue that is no lock: squatted", function()
      local op = loses(60)
      scene.looks(peer, MUTEX, "held")
      scene.is_squatted(peer, MUTEX)
      peer:failed(op, "squatted")
    end)

    it("and was held: is claimed after a look if that finds it free", function()
      local op = loses(0)
      scene.looks(peer, MUTEX, "free")
      has_it(op)
    end)

    it("is lost: that is none of its attempts", function()
      open(nil, { max_attempts = 1 })
      wins(3)
      local op = loses(0)
      local claim = scene.claims(peer, MUTEX)
      scene.is_late(peer, claim)
      peer:failed(op, "contended", 'other claims of "db" were faster 1 times')
    end)

    it("is lost: six wins in a row are needed then", function()
      local op = loses(0)
      scene.looks(peer, MUTEX, "free")
      has_it(op) -- counts for nothing
      wins(6)
      is_bold(0)
    end)

    it("is deleted under the bold claim: a look follows", function()
      local op, claim = dares(0)
      scene.reply(peer, claim, "declared")
      scene.is_robbed(peer, claim)
      scene.looks(peer, MUTEX, "free")
      has_it(op)
    end)

    it("refuses the consumer: what was made is deleted first, and no look follows", function()
      local op, claim = dares(0)
      scene.reply(peer, claim, "declared")
      peer.holder:refuse(claim.channel, 403, scene.DENIED, "basic.consume")
      peer:failed(op, "refused", '"db-mutex" could not be claimed')
      scene.goes(peer, claim, BELL, peer.holder:opened())
    end)

    it("is closed out of the blue under the bold claim: unreachable", function()
      local op, claim = dares(60)
      peer.holder:refuse(claim.channel, 541, "INTERNAL_ERROR", "queue.declare")
      peer:failed(op, "unreachable")
    end)

    it("loses the connection under the bold claim: unreachable", function()
      local op = dares(60)
      peer.holder:down("timed out")
      peer:failed(op, "unreachable", "timed out")
    end)

    it("loses the prober under the bold claim: goes on", function()
      local op, claim = dares(0)
      peer.prober:down("timed out")
      scene.replies(peer, claim)
      assert.is_true(peer:result(op):held())
    end)

    it("has no more time under the bold claim: timeout, and deleted", function()
      local op, claim = dares(2)
      peer:pass(2)
      peer:failed(op, "timeout", 'mutex "db" did not come free within 2 s (the broker had not answered yet)')
      scene.deletes(peer, claim)
      scene.replies(peer, claim)
      peer.holder:deleted(claim.channel)
      scene.rings(peer, BELL)
      silent()
      scene.all_channels_are_back(peer)
    end)

    it("is abandoned under the bold claim: deleted", function()
      local op, claim = dares(60)
      op:drop()
      scene.deletes(peer, claim)
      scene.replies(peer, claim)
      peer.holder:deleted(claim.channel)
      scene.rings(peer, BELL)
      silent()
    end)

    describe("is looked at", function()
      it("by a fair acquire", function()
        local op = mutex:acquire(60, true)
        local bell = scene.makes_bell(peer, BELL)
        scene.looks(peer, MUTEX, "free", true)
        scene.welcome(peer, bell, true)
        scene.looks(peer, MUTEX, "free", true)
        scene.is_granted(peer, MUTEX)
        scene.cancels(peer, bell)
        assert.is_true(peer:result(op):held())
      end)

      it("while this session holds it", function()
        local op, claim = dares(0)
        scene.replies(peer, claim)
        local lock = peer:result(op)
        op = mutex:acquire(60)
        scene.looks(peer, MUTEX, "held")
        peer:failed(op, "deadlock")
        assert.is_true(lock:held())
      end)

      it("while this session claims it", function()
        dares(0)
        local op = mutex:acquire(0)
        scene.looks(peer, MUTEX, "free")
        peer:failed(op, "busy")
      end)

      it("when it is gone, while this session releases it", function()
        local op, claim = dares(0)
        scene.replies(peer, claim)
        peer:result(op):release()
        scene.deletes(peer, claim)
        mutex:acquire(0)
        silent()
      end)

      for rests, what in pairs{ [1] = "less than a minute ago", [2] = "a minute ago" } do
        it("after a waiter told the holder, " .. what .. ": until three more wins", function()
          local op, claim = dares(0)
          scene.replies(peer, claim)
          scene.tell(peer, claim, "amqplocks.waiting")
          local bell = scene.makes_bell(peer, BELL, 2147483647)
          local release = peer:result(op):release()
          scene.deletes(peer, claim)
          peer.holder:deleted(claim.channel)
          peer.holder:closes(bell.channel)
          scene.rings(peer, BELL)
          assert.is_true(peer:result(release))
          for _ = 1, rests do scene.rests(peer, 30) end
          local first = mutex:acquire(0)
          scene.looks(peer, MUTEX, "free")
          claim = scene.is_granted(peer, MUTEX)
          peer.holder:ignore() -- the pulse
          peer:result(first):release()
          scene.goes(peer, claim, BELL)
          wins(3)
          if rests == 1 then wins(3) else is_bold(0) end
        end)
      end
    end)

    it("counts from the last time that it was held", function()
      open()
      wins(2)
      local op = mutex:acquire(0)
      scene.finds_held(peer, MUTEX)
      peer:failed(op, "busy")
      wins(3)
      is_bold(0)
    end)

    it("counts from the last lost race", function()
      open()
      wins(2)
      local op = mutex:acquire(0)
      scene.is_late(peer, scene.claims(peer, MUTEX))
      silent()
      peer:pass(0.01)
      scene.looks(peer, MUTEX, "free")
      has_it(op)
      wins(3)
      is_bold(0)
    end)
  end)
end
