-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Several sessions that ask by one prober connection, and one session that several callers share.

local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.rwlock_scene"

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

  it("asks beside others, and each gets its own answers", function ()
    local second = owner:borrower()
    local first_op, second_op = borrower:semaphore("images"):acquire(0), second:semaphore("sounds"):acquire(0)
    local owner_op = owner:semaphore("films"):acquire(0)
    local probes = owner.prober:probes()
    assert.equal(96, #probes)
    owner.prober:answer(probes, { "images-1-A" })
    assert.is_true(granted(first_op):held())
    second.holder:again{ "sounds-1-A" }
    second:failed(second_op, "not_found")
    owner.holder:again{ "films-1-A" }
    owner:failed(owner_op, "not_found")
  end)

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
    borrower.holder:again{ "sounds-1-A" }
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

  it("waits for what another caller of it holds, instead of calling that a deadlock", function ()
    local lock = peer:acquire("images")
    local op = peer:semaphore("images"):acquire(60, false, 0, 1)
    for _ = 1, 2 do peer.prober:look{ "images-1-A", "images-1-B" } end -- two slots, and then more
    assert.is_false(op:done())
    assert.equal("1 of 1 held", select(2, op:waiting()))
    lock:release()
    peer.holder:delete("images-1-B")
    local claim
    peer:live(10, function ()
      if peer.prober:next() == "basic.publish" then peer.prober:look{ "images-1-A" } end
      claim = peer.holder:next() ~= "nothing" and peer.holder:claim("images-1-B", "images-1-A")
      return claim
    end)
    peer.holder:grant(claim)
    assert.is_true(peer:result(op):held())
  end)

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
    end
  end)

  it("does not let a caller read while another one shuts the door", function ()
    local writing = peer:rwlock("db"):write(0)
    scene.looks(peer, "db-writer", "free")
    peer.holder:grant(scene.claim(peer, "db-writer"))
    peer.prober:ignore()
    local reading = peer:rwlock("db"):read(0)
    scene.looks(peer, "db-writer", "free") -- as the broker said before the door was there
    peer:failed(reading, "busy")
    assert.is_false(writing:done())
  end)
end)
