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

  -- Another connection, as soon as one is wanted, within this time.
  local function reconnects(seconds)
    peer:live(seconds or 1, function () return peer.holder:due() end)
    peer.holder:handshake()
  end

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
      for _, timeout in ipairs{ 0, 10 } do
        it("begins again on another connection; its timeout was " .. timeout, function ()
          local op, consumes = takes(timeout)
          consumes(peer)
          closes(peer.holder, BROKEN)
          assert.is_false(op:done())
          reconnects()
          scene.welcome(peer, consumes(peer))
          assert.is_false(op:done())
        end)
      end

      it("does so a few times", function ()
        local op, consumes = takes(60)
        for _ = 1, 4 do
          consumes(peer)
          closes(peer.holder, BROKEN)
          assert.is_false(op:done())
          reconnects(5)
        end
        consumes(peer)
        closes(peer.holder, BROKEN)
        peer:failed(op, "unreachable", "INTERNAL_ERROR")
      end)

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
