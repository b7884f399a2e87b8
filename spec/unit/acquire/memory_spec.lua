-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What a session remembers of a semaphore: each acquire here is of a new object, as in a request of nginx.

local Peer = require "spec.support.peer"

-- The slot at which the search under way begins, and how many slots it asks for. `queues`: what there is.
local function looks(peer, queues)
  local asked = peer.prober:look(queues)
  return tonumber(asked[1]:match "%-(%d+)%-A$"), math.floor(#asked / 2)
end

-- Slots 1 to `count`, of which those in `held` are held.
local function row(count, held)
  local queues = {}
  for slot = 1, count do table.insert(queues, ("images-%d-A"):format(slot)) end
  for _, slot in ipairs(held or {}) do table.insert(queues, ("images-%d-B"):format(slot)) end
  return queues
end

describe("a session", function()
  local peer

  before_each(function() peer = Peer.open() end)

  local function begin(strategy, ...)
    return peer:semaphore("images", { strategy = strategy or "last" }):acquire(...)
  end

  local function claims(slot) return peer.holder:claim(("images-%d-B"):format(slot), ("images-%d-A"):format(slot)) end

  local function wins(op, slot)
    peer.holder:grant(claims(slot))
    local lock = peer:result(op)
    assert.equal(slot, (lock:info()))
    return lock
  end

  local function leaves(lock)
    local slot = lock:info()
    lock:drop()
    peer.holder:delete(("images-%d-B"):format(slot))
  end

  -- This session has had these slots of five, the last one latest.
  local function had(...)
    for _, slot in ipairs{ ... } do
      local op, held = begin("ascending", 0), {}
      for other = 1, slot - 1 do held[other] = other end
      while peer.prober:next() ~= "nothing" do looks(peer, row(5, held)) end
      leaves(wins(op, slot))
    end
  end

  it("lets each of its callers begin at another slot that it had", function()
    had(2, 4, 3)
    local starts = {}
    for i = 1, 4 do
      begin(nil, 0)
      local probes = peer.prober:probes()
      starts[i] = tonumber(probes[1].queue:match "%-(%d+)%-A$")
    end
    assert.same({ 3, 4, 2, 3 }, starts)
  end)

  it("takes no slot beyond the most that an object may take, though it had one", function()
    had(3)
    local op = peer:semaphore("images", { strategy = "last", most = 2 }):acquire(0)
    assert.same({ 1, 2 }, { looks(peer, row(5)) })
    wins(op, 1)
  end)

  it("remembers 64 names, the latest", function()
    had(3)
    for i = 1, 63 do peer:semaphore("other-" .. i) end
    begin(nil, 0)
    assert.equal(3, (looks(peer, row(5))))
    for i = 64, 127 do peer:semaphore("other-" .. i) end
    begin(nil, 0)
    assert.equal(1, (looks(peer, row(5))))
  end)
end)
