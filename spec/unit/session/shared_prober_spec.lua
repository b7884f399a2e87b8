-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Several sessions that ask by one prober connection, and one session that several callers share.

local Peer = require "spec.support.peer"

local unpack = table.unpack or unpack

describe("a session that asks by another one's prober", function ()
  local owner, borrower

  before_each(function ()
    owner = Peer.open()
    borrower = owner:borrower()
  end)

  -- The slot of "images" is free, and claimed by the borrower.
  local function granted(op)
    local claim = borrower.holder:claim("images-1-B", "images-1-A")
    borrower.holder:grant(claim)
    return borrower:result(op), claim
  end

  it("is told when the prober is lost: a try fails, its locks stay, and the next one asks anew", function ()
    local op = borrower:semaphore("images"):acquire(0)
    owner.prober:look{ "images-1-A" }
    local lock = granted(op)
    op = borrower:semaphore("images"):acquire(0)
    owner.prober:probes()
    owner.prober:down()
    borrower:failed(op, "unreachable", "connection reset by peer")
    assert.is_true(lock:held())
    op = borrower:semaphore("sounds"):acquire(0)
    assert.is_true(owner.prober:wanted())
    owner:pass(1)
    owner.prober:handshake()
    owner.prober:look{}
    borrower:failed(op, "not_found")
  end)

  it("outlives the one whose prober it is: what it asked fails, what it holds it can let go of", function ()
    local op = borrower:semaphore("images"):acquire(0)
    owner.prober:look{ "images-1-A" }
    local lock = granted(op)
    op = borrower:semaphore("sounds"):acquire(0)
    owner.prober:probes()
    owner.session:abort()
    assert.is_true(op:done())
    borrower:failed(op, "closed")
    assert.is_true(lock:held())
    local release = lock:release()
    borrower.holder:delete("images-1-B")
    assert.is_true(borrower:result(release))
    owner = nil
    collectgarbage()
    collectgarbage()
    op = borrower:semaphore("sounds"):acquire(60)
    borrower:failed(op, "closed") -- nobody will ever connect this prober again
  end)
end)

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
      peer.holder:send(unpack(told))
      assert.is_false(op:done())
      if is_released then -- then nothing is known, and the next search asks again
        peer:pass(5)
        while peer.prober:next() ~= "nothing" do peer.prober:look{ "images-1-A", "images-1-B" } end
        peer.holder:expect("queue.declare", { queue = "images-1-B", passive = true })
      end
    end
  end)
end)
