-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Calls that are undone if their coroutine is closed while they wait.
local failing_close = require "spec.support.failing_close"
local guard = require "amqplocks.waiting.guard"

local closing_it = coroutine.close and it or pending
local unpack = table.unpack or unpack

describe("a call that is undone when its coroutine is closed", function()
  local owner, undone

  before_each(function() owner, undone = {}, {} end)

  local function undo(whose) table.insert(undone, whose) end

  local function call(fn, ...) return guard.unless_closed(undo, fn, owner, ...) end

  it("gets its owner and the arguments, returns all results, and is not undone", function()
    local function count(...) return select("#", ...), ... end
    local results = { call(count, nil, "a", nil) }
    assert.same({ 4, owner, nil, "a" }, { unpack(results, 1, 4) })
    assert.equal(owner, results[2])
    assert.same({}, undone)
  end)

  it("may yield, and is not undone; nor where its function throws, whose error comes out unchanged", function()
    local thread = coroutine.create(call)
    assert.same({ true, "waits" }, { coroutine.resume(thread, function() return coroutine.yield "waits" end) })
    assert.same({ true, "result" }, { coroutine.resume(thread, "result") })
    for _, problem in ipairs { "text", { "a table" }, false } do
      local fine, what = pcall(call, function() error(problem, 0) end)
      assert.same({ false, true }, { fine, problem == what })
    end
    assert.same({}, undone)
  end)

  local function suspended(fn)
    local thread = coroutine.create(call)
    assert(coroutine.resume(thread, fn))
    assert.equal("suspended", coroutine.status(thread))
    return thread
  end

  closing_it("is undone once when it is closed, also where a variable inside throws, whose error comes out", function()
    assert(coroutine.close(suspended(coroutine.yield)))
    assert.same({ owner }, undone)
    for _, problem in ipairs { "text", { "a table" } } do
      undone = {}
      local fine, what = coroutine.close(suspended(failing_close(coroutine.yield, problem)))
      assert.same({ false, true }, { fine, problem == what })
      assert.same({ owner }, undone)
    end
  end)

  closing_it("is undone when it is closed inside another one, which is undone after it", function()
    local inner = {}
    local thread = suspended(function() return guard.unless_closed(undo, coroutine.yield, inner) end)
    assert(coroutine.close(thread))
    assert.same({ true, true, 2 }, { undone[1] == inner, undone[2] == owner, #undone })
  end)
end)
