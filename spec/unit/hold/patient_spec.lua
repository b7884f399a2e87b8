-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Acquires that begin again: src/core/hold/patient.h.

local scene = require "spec.unit.tokens.permit_scene"

local BROKEN = { 541, "INTERNAL_ERROR" }
local FORCED = { 320, "CONNECTION_FORCED - Node was put into maintenance mode" }

local function closes(link, why)
  link:send{ channel = 0, method = "connection.close", reply_code = why[1], reply_text = why[2], class_id = 0,
    method_id = 0 }
end

describe("an acquire", function ()
  local peer

  before_each(function () peer = scene.open() end)

  local function takes_one(timeout) return scene.semaphore(peer, true):acquire(timeout), scene.consumes end

  -- Three at once, behind a gate.
  local function takes_several(timeout)
    local op = scene.semaphore(peer, true):acquire(timeout, false, 0, 5, false, nil, 3)
    return op, function ()
      peer.holder:ignore() -- it asks how many there are, and is not answered
      if peer.prober:wanted() then peer.prober:handshake() end
      peer.prober:look{}
      peer.holder:grant(peer.holder:claim"images-tokenmany")
      peer:pass(0)
      return scene.consumes(peer)
    end
  end

  for words, takes in pairs{ ["a permit"] = takes_one, ["several permits"] = takes_several } do
    describe("of " .. words .. " of a quorum queue, which the broker ends by an error of its own,", function ()
      for timeout, times in pairs{ [0] = 1, [60] = 4 } do
        it(("begins again on another connection, %d times; its timeout was %d"):format(times, timeout), function ()
          local op, consumes = takes(timeout)
          for _ = 1, times do
            consumes(peer)
            closes(peer.holder, BROKEN)
            assert.is_false(op:done())
            peer:live(5, function () return peer.holder:due() end)
            peer.holder:handshake()
          end
          consumes(peer)
          if times == 1 then return end
          closes(peer.holder, BROKEN)
          peer:failed(op, "unreachable", "INTERNAL_ERROR")
        end)
      end

      it("or ends for another reason: is unreachable", function ()
        local op, consumes = takes(60)
        consumes(peer)
        closes(peer.holder, FORCED)
        peer:failed(op, "unreachable", "CONNECTION_FORCED")
      end)
    end)
  end

  it("that is patient, and fails when its time is over, is told of its time", function ()
    local op = scene.semaphore(peer):acquire(10, false, 0, 5, true)
    scene.consumes(peer)
    peer.now = peer.now + 11
    closes(peer.holder, FORCED)
    peer:failed(op, "timeout", "within 10 s", "unreachable: ")
  end)
end)
