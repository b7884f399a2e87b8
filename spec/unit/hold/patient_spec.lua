-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Acquires that begin again: src/core/hold/retry.h.

local scene = require "spec.unit.tokens.permit_scene"

describe("an acquire of a permit of a quorum queue", function ()
  local peer

  before_each(function () peer = scene.open() end)

  for timeout, times in pairs{ [0] = 1, [60] = 4 } do
    it(("begins again on another connection, %d times, when the broker ends its own by an error; its timeout was %d")
      :format(times, timeout), function ()
        local op = scene.semaphore(peer, true):acquire(timeout)
        for _ = 1, times do
          scene.consumes(peer)
          peer.holder:ends(541, "INTERNAL_ERROR")
          assert.is_false(op:done())
          peer:live(5, function () return peer.holder:due() end)
          peer.holder:handshake()
        end
        scene.consumes(peer)
        if times == 1 then return end
        peer.holder:ends(541, "INTERNAL_ERROR")
        peer:failed(op, "unreachable", "INTERNAL_ERROR")
      end)
  end

  it("is unreachable when its connection ends for another reason; if it is patient, it is told of its time", function ()
    for _, patient in ipairs{ false, true } do
      peer = scene.open()
      local op = scene.semaphore(peer, true):acquire(10, false, 0, 5, patient)
      scene.consumes(peer)
      if patient then peer.now = peer.now + 11 end
      peer.holder:ends(320, "CONNECTION_FORCED - Node was put into maintenance mode")
      if patient then
        peer:failed(op, "timeout", "within 10 s", "unreachable: ")
      else
        peer:failed(op, "unreachable", "CONNECTION_FORCED")
      end
    end
  end)
end)
