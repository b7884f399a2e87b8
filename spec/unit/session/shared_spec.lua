-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A session that several callers share.

local Peer = require "spec.support.peer"

describe("a session that is shared", function ()
  local peer

  before_each(function () peer = Peer.open({ shared = true }) end)

  it("takes nothing for a squatter that another caller of it has got, or let go of, while that was asked", function ()
    for _, is_released in ipairs{ false, true } do
      peer = Peer.open({ shared = true })
      local op = peer:semaphore("images"):acquire(60)
      peer.prober:look{ "images-1-A", "images-1-B" }
      local channel = peer.holder:opened()
      peer.holder:expect("queue.declare", { channel = channel, queue = "images-1-B", passive = true })
      local lock, claim = peer:acquire("images")
      local told = { { channel = channel, method = "queue.declare-ok", queue = "images-1-B" } } -- said before
      if is_released then
        lock:release()
        peer.holder:expect("queue.delete", { queue = "images-1-B" })
        table.insert(told, 1, { channel = claim.channel, method = "queue.delete-ok" })
      end
      peer.holder:send((table.unpack or unpack)(told))
      assert.is_false(op:done())
    end
  end)
end)
