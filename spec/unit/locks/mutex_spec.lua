-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The mutex: probed, claimed, held, released. waiters_bell_spec.lua is about its waiters.

local scene = require "spec.unit.locks.rwlock_scene"

local MUTEX = "db-mutex"

describe("a mutex", function ()
  local peer, mutex

  local function open(...) peer, mutex = scene.open("mutex", ...) end

  before_each(function () open() end)

  local function sees(state) scene.looks(peer, MUTEX, state) end

  local function acquire()
    local op = mutex:acquire(0)
    local claim = scene.shuts(peer, MUTEX)
    return peer:result(op), claim
  end

  it("takes two round trips, and says what it is", function ()
    open{ name = "worker 7" }
    local op = mutex:acquire()
    local claim = scene.claims(peer, MUTEX)
    peer:silent()
    scene.is_signed(claim, "worker 7")
    scene.replies(peer, claim)
    scene.has(peer, op, claim, "mutex")
  end)

  it("under an alarm is had, and let go without a ring; blocked, if it is to be asked for by publishing", function ()
    scene.alarm(peer)
    local op = mutex:acquire(0)
    scene.is_no_squatter(peer, MUTEX, true) -- but nothing
    local claim = scene.is_granted(peer, MUTEX)
    peer:result(op):release()
    peer.holder:delete(MUTEX, claim.channel)
    peer:silent()
    open(nil, { probe = "publish" })
    scene.alarm(peer)
    peer:failed(mutex:acquire(0), "blocked", "reads no publishers")
  end)

  it("under an alarm, seen free for more than 100 ms, is had by a fair one, which cannot ring for others", function ()
    scene.alarm(peer)
    mutex:acquire(5, true)
    local bell = scene.makes_bell(peer, "db-mutexbell")
    scene.is_no_squatter(peer, MUTEX, true)
    scene.welcome(peer, bell)
    for _, seconds in ipairs{ 0.1, 0.008, 0.008, 0 } do
      scene.is_no_squatter(peer, MUTEX, true)
      peer:pass(seconds)
    end
    scene.claim(peer, MUTEX)
  end)

  describe("that this session is letting go", function ()
    -- Released, and not gone yet. Returns the claim, the release.
    local function leaving()
      local lock, claim = acquire()
      local release = lock:release()
      scene.deletes(peer, claim)
      return claim, release
    end

    it("is asked for when it is gone, not before, by a client that wants it, waiting or not", function ()
      for _, timeout in ipairs{ 0, 60 } do
        open()
        local claim, release = leaving()
        local op = mutex:acquire(timeout)
        peer:silent()
        peer.holder:deleted(claim.channel)
        assert.is_true(peer:result(release))
        peer.prober:look{} -- the ring, and the question
        scene.is_granted(peer, MUTEX)
        assert.is_true(peer:result(op):held())
      end
    end)

    it("and that the broker says nothing about: unreachable", function ()
      leaving()
      local op = mutex:acquire(0)
      peer:fails_after(5, op, "unreachable", "within 5 s")
    end)

    it("and that may not be deleted: is not waited for, and busy", function ()
      local claim, release = leaving()
      peer.holder:refuse(claim.channel, 403, scene.DENIED, "queue.delete")
      local channel = scene.deletes(peer, claim, peer.holder:opened())
      local op = mutex:acquire(0)
      peer:silent()
      peer.holder:refuse(channel, 403, scene.DENIED, "queue.delete")
      peer:failed(release, "refused", "may not be deleted")
      sees("free")
      peer:failed(op, "busy")
    end)
  end)
end)
