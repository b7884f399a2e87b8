-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- When the caller of an operation that failed may know that: as soon as the broker has back what the operation took,
-- and no later than a second after its time. Before that another client would find the lock busy.
local scene = require "spec.unit.locks.rwlock_scene"

local TIMEOUT, MUTEX = 5, "db-mutex"

describe("an operation that failed", function ()
  local peer

  local function open(what, settings)
    local lock
    peer, lock = scene.open(what, settings)
    return lock
  end

  -- Its claim may not consume from what it has declared, and deletes that. Returns the operation, the channel.
  local function tries()
    local op = open"mutex":acquire(0)
    local claim = scene.claims(peer, MUTEX)
    scene.reply(peer, claim, "declared")
    peer.holder:refuse(claim.channel, 403, scene.DENIED, "basic.consume")
    peer:failed(op, "refused")
    return op, scene.deletes(peer, claim, peer.holder:opened())
  end

  local ends = {
    ["the queue is deleted"] = function (channel) peer.holder:deleted(channel) end,
    ["the connection is lost"] = function () peer.holder:down("timed out") end,
    ["the session is ended before it can ask again"] = function (channel)
      peer.holder:refuse(channel, 541, "INTERNAL_ERROR")
      peer.session:abort()
    end,
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
    for _, case in ipairs{ { timeout = 5, after = 3, late = 1 }, { timeout = 0.25, after = 0.125, late = 0.25 },
      { timeout = 5, after = 5, late = 1, code = "unreachable" } } do -- the broker is silent
      local wait, is_patient = case.code and 0 or case.after, not case.code
      local op = open("mutex", { timeout = case.timeout }):acquire(wait, nil, nil, nil, is_patient)
      local claim = scene.claims(peer, MUTEX)
      peer:pass(case.after)
      peer:failed(op, case.code or "timeout")
      scene.deletes(peer, claim)
      assert.is_nil((op:waiting()))
      assert.equal(0, peer.session:stats().waiting)
      peer:pass(case.late - 0.01)
      assert.is_false(op:done())
      peer:pass(0.01)
      assert.is_true(op:done())
    end
  end)
end)
