-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Where coroutines wait for operations, and what happens to operations whose coroutine never returns.
local Peer = require "spec.support.peer"
local waiting = require "amqplocks.waiting.sleepers"

describe("a coroutine that waits for an operation", function()
  local peer, room, signals
  local events = {}

  function events.condition() return { wait = events.wait, signal = function() signals = signals + 1 end } end

  before_each(function()
    peer, signals, events.wait = Peer.open(), 0, coroutine.yield
    room = waiting.new(events)
  end)

  local function wait()
    local operation = peer.session:resource("semaphore", "a", { silent = true }):acquire{}
    local thread = coroutine.create(function() room:wait(operation) end)
    coroutine.resume(thread)
    return operation, thread
  end

  it("is woken when its operation is done, and not before, nor if it was given back", function()
    local operation, other = wait(), wait()
    other:drop()
    room:call()
    assert.equal(0, signals)
    operation:end_closed()
    room:call()
    assert.equal(1, signals)
    other:end_closed()
  end)

  it("is not asked for any more when the collector has had it, and what it waited for", function()
    wait()
    for _ = 1, 3 do
      collectgarbage() -- its finalizer runs in one cycle, and weak tables are rid of it in the next
      room:call()
    end
    assert.equal(0, signals)
  end)
end)
