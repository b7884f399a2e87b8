-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- When the caller of an operation that failed may know that: as soon as the broker has back what the operation took,
-- and no later than a second after its time. Before that another client would find the lock busy.
local scene = require "spec.unit.locks.rwlock_scene"

local TIMEOUT, MUTEX, DOOR = 5, "db-mutex", "db-writer"

describe("an operation that failed", function ()
  local peer

  -- Its claim may not consume from what it has declared, and deletes that. Returns the channel on which.
  local function is_refused(op, claim)
    scene.reply(peer, claim, "declared")
    peer.holder:refuse(claim.channel, 403, scene.DENIED, "basic.consume")
    peer:failed(op, "refused")
    return scene.deletes(peer, claim, peer.holder:opened())
  end

  local function open(what, settings)
    local lock
    peer, lock = scene.open(what, settings)
    return lock
  end

  local function tries()
    local op = open"mutex":acquire(0)
    return op, is_refused(op, scene.claims(peer, MUTEX))
  end

  local ends = {
    ["the queue is deleted"] = function (channel) peer.holder:deleted(channel) end,
    ["the connection is lost"] = function () peer.holder:down("timed out") end,
    ["the connection's timeout has passed"] = function () peer:pass(TIMEOUT - 0.01) end,
  }

  for what, happens in pairs(ends) do
    it("is over when " .. what, function ()
      local op, channel = tries()
      peer:pass(0.01)
      assert.is_false(op:done())
      happens(channel)
      assert.is_true(op:done())
      peer:failed(op, "refused")
    end)
  end

  it("is over a second after its time, or after the connection's timeout, if nothing is answered", function ()
    for _, case in ipairs{ { timeout = 5, after = 3, late = 1 }, { timeout = 0.25, after = 0.125, late = 0.25 } } do
      local op = open("mutex", { timeout = case.timeout }):acquire(case.after, nil, nil, nil, true) -- patient
      local claim = scene.claims(peer, MUTEX)
      peer:pass(case.after)
      peer:failed(op, "timeout")
      scene.deletes(peer, claim)
      assert.is_nil((op:waiting()))
      assert.equal(0, peer.session:stats().waiting)
      peer:pass(case.late - 0.01)
      assert.is_false(op:done())
      peer:pass(0.01)
      assert.is_true(op:done())
    end
  end)

  it("waits also for what it gave back before its last attempt; one that has its lock does not", function ()
    for _, gets in ipairs{ false, true } do
      local op = open"rwlock":read(60)
      scene.looks(peer, DOOR, "free")
      local first = scene.reader(peer)
      scene.replies(peer, first, 1, 2)
      peer.holder:refuse(first.channel, 405, scene.LOCKED, "queue.delete")
      local channel = scene.deletes(peer, first, peer.holder:opened())
      peer:pass(0.02)
      scene.looks(peer, DOOR, "free")
      local second = scene.reader(peer)
      if gets then
        scene.replies(peer, second)
        assert.is_true(peer:result(op):held())
      else
        local other = is_refused(op, second)
        peer.holder:deleted(other)
        assert.is_false(op:done())
      end
      peer.holder:deleted(channel)
      assert.is_true(op:done())
    end
  end)
end)
