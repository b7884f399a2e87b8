-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A gather, frame by frame: the gate, slots one after the other, and what becomes of these when it fails. The gate is
-- the queue images-many.
local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.rwlock_scene"

local LATE = "its queue was deleted, but not by this client"

describe("a gather", function ()
  -- The gate is free, and is claimed.
  local function enters(wanted, timeout)
    local peer = Peer.open()
    local semaphore = peer:semaphore("images")
    local op = semaphore:acquire(timeout, nil, nil, nil, nil, wanted)
    assert.same({ "images-many" }, peer.prober:look{})
    local gate = peer.holder:claim("images-many")
    peer.holder:grant(gate)
    peer:pass(0)
    return peer, op, gate, semaphore
  end

  -- It looks for a slot, of three; the lowest ones are held.
  local function looks(peer, held)
    repeat peer.prober:look(Peer.row(3, held)) until peer.prober:next() == "nothing"
  end

  local function takes(peer, slot)
    looks(peer, slot - 1)
    local claim = peer:claims(slot)
    peer.holder:grant(claim)
    peer:pass(0)
    return claim
  end

  -- Exactly these queues are deleted.
  local function deletes(peer, ...)
    local deleted, expected = {}, { ... }
    while peer.holder:next() ~= "nothing" do
      local method = peer.holder:next()
      local frame = peer.holder:expect(method)
      if method == "queue.delete" then
        table.insert(deleted, frame.queue)
        peer.holder:deleted(frame.channel)
      end
    end
    table.sort(deleted)
    table.sort(expected)
    assert.same(expected, deleted)
  end

  it("that fails before its gate is gone keeps nothing, and returns when the gate is gone", function ()
    for code, slots in pairs{ timeout = { "images-1-B", "images-2-B" }, lost = { "images-1-B" } } do
      local peer, op, gate = enters(2, 1)
      takes(peer, 1)
      local second = takes(peer, 2)
      peer.holder:expect("queue.delete", { queue = "images-many" })
      if code == "lost" then peer.holder:cancelled(second) end
      peer:pass(code == "timeout" and 1 or 0)
      peer:failed(op, code)
      deletes(peer, (table.unpack or unpack)(slots))
      assert.is_false(op:done())
      peer.holder:deleted(gate.channel)
      assert.is_true(op:done())
    end
  end)

  it("whose session takes a slot meanwhile says deadlock where that is in the way, and not limit", function ()
    local peer, op, _, semaphore = enters(3, 20)
    takes(peer, 1)
    looks(peer, 1)
    local second = peer:claims(2)
    local other = semaphore:acquire(0)
    looks(peer, 2)
    peer.holder:grant(peer:claims(3))
    assert.equal(3, (peer:result(other):info()))
    peer.holder:grant(second)
    peer:pass(0)
    looks(peer, 3)
    peer.holder:absent()
    peer:pass(0)
    peer:failed(op, "deadlock", "2 of 3 slots")
    deletes(peer, "images-1-B", "images-2-B", "images-many")
  end)

  -- It has the first slot, and claims the second.
  it("that loses its gate, or a slot, or has no more time, says so, and keeps nothing", function ()
    for what, case in pairs{ gate = { "lost", 'the gate of "images" was lost', LATE, "images-1-B" },
      slot = { "lost", 'slot 1 of "images"', LATE, "images-many" },
      time = { "timeout", "1 of 3 slots", "", "images-1-B", "images-many" } } do
      local peer, op, gate = enters(3, 5)
      local first = takes(peer, 1)
      looks(peer, 1)
      local second = peer:claims(2)
      if what ~= "time" then peer.holder:cancelled(what == "gate" and gate or first) end
      peer:pass(what == "time" and 6 or 0)
      peer:failed(op, case[1], case[2], case[3])
      peer.holder:grant(second)
      deletes(peer, "images-2-B", (table.unpack or unpack)(case, 4))
    end
  end)

  it("that waits for one more slot counts as one waiter", function ()
    local peer, op = enters(2, 20)
    takes(peer, 1)
    assert.equal(0, peer.session:stats().waiting)
    looks(peer, 3)
    scene.no_squatters(peer)
    assert.equal(1, peer.session:stats().waiting)
    assert.is_truthy(op:waiting())
  end)

  it("that was granted the last slot in the moment in which it fails keeps nothing of it", function ()
    local peer, op, gate = enters(2, 20)
    takes(peer, 1)
    looks(peer, 1)
    local second = peer:claims(2)
    peer.holder:send({ channel = second.channel, method = "queue.declare-ok", queue = second.queue },
      { channel = second.channel, method = "queue.declare-ok", queue = "images-2-A" },
      { channel = second.channel, method = "basic.consume-ok", consumer_tag = second.tag },
      { channel = gate.channel, method = "basic.cancel", consumer_tag = gate.tag, no_wait = true })
    peer:pass(0)
    peer:failed(op, "lost", "the gate")
    deletes(peer, "images-1-B", "images-2-B")
  end)
end)
