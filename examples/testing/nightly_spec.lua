-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Tests the job without a broker: `busted --lua=lua5.4 examples/testing/nightly_spec.lua`.
local nightly = dofile "examples/testing/nightly.lua"
local testing = require "amqplocks.testing"

describe("the nightly job", function()
  local world, conn, rival, moved

  before_each(function()
    world = testing.new()
    conn, rival, moved = world:connect(), world:connect { name = "rival" }, {}
  end)

  local function move(row) table.insert(moved, row) end

  it("moves all rows, and releases the mutex", function()
    assert.equal("done", nightly.run(conn, { "a", "b" }, move))
    assert.same({ "a", "b" }, moved)
    assert(rival:mutex("nightly"):try_acquire())
  end)

  it("does nothing while another machine is at it", function()
    local theirs = assert(rival:mutex("nightly"):try_acquire())
    assert.equal("elsewhere", nightly.run(conn, { "a", "b" }, move))
    assert.same({}, moved)
    assert.equal(60, world.now) -- it has waited for a minute, and this test has not
    assert.is_true(theirs:held())
  end)

  it("begins when the other machine is done", function()
    local theirs = assert(rival:mutex("nightly"):try_acquire())
    world:after(20, function() theirs:release() end)
    assert.equal("done", nightly.run(conn, { "a" }, move))
    assert.equal(20, world.now)
  end)

  it("stops when the lock is lost, and says so", function()
    local result, message = nightly.run(conn, { "a", "b", "c" }, function(row)
      move(row)
      if row == "b" then world:lose(conn, "the broker was restarted") end
    end)
    assert.is_nil(result)
    assert.matches("^lost: .*the broker was restarted", message)
    assert.same({ "a", "b" }, moved)
  end)

  it("stops when it is asked to", function()
    world:after(0, function() rival:mutex("nightly"):revoke() end)
    local result, count = nightly.run(conn, { "a", "b" }, function(row)
      move(row)
      world:advance(1)
    end)
    assert.equal("stopped", result)
    assert.equal(1, count)
  end)

  it("writes with a number that grows with each holder", function()
    local fences = {}
    local function note(_, fence) table.insert(fences, fence) end
    nightly.run(conn, { "a" }, note)
    nightly.run(rival, { "a" }, note)
    assert.is_true(fences[2] > fences[1])
  end)

  it("reports that there is no broker", function()
    world:fail "unreachable"
    local result, message = nightly.run(conn, { "a" }, move)
    assert.is_nil(result)
    assert.matches("^unreachable: ", message)
  end)
end)
