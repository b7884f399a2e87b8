-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What `with` returns: true and its function's results, or nil, message, code of the lock's own failure. In a world of
-- amqplocks.testing; spec/support/testing_rows.lua has every kind of lock on a real one, on_lost_spec.lua losses.
local testing = require "amqplocks.testing"

local scoped_it = coroutine.close and it or pending -- where Lua has scopes

describe("with", function()
  local world, conn, rival

  before_each(function()
    world = testing.new()
    conn, rival = world:connect(), world:connect()
  end)

  local function results(...) return { n = select("#", ...), ... } end

  local function is_free() assert(rival:mutex("a"):try_acquire()):release() end

  local function with(...)
    local returned = results(conn:mutex("a"):with({ timeout = 0 }, ...))
    is_free()
    return returned
  end

  it("returns true and the function's results, nils among them, also where it has released the lock", function()
    assert.same(results(true), with(function() end))
    assert.same(results(true, "done"), with(function(lock)
      assert(lock:release())
      return "done"
    end))
    assert.same(results(true, false, nil, "a", nil), with(function(_, ...) return false, nil, ... end, "a", nil))
  end)

  scoped_it("lets go of the lock also where its release throws, or is not possible there", function()
    for _, check in ipairs{ function() error("not now", 0) end, function() return "not there", "phase" end } do
      pcall(with, function() conn._driver.check = check end)
      conn._driver.check = nil
      is_free()
    end
  end)

  it("tells the function's own nil, message, code from the lock's", function()
    local function fails() return nil, "the job failed", "timeout" end
    assert.same(results(true, nil, "the job failed", "timeout"), with(fails))
    local lock = assert(rival:mutex("a"):try_acquire())
    local not_had = results(conn:mutex("a"):with({ timeout = 0 }, fails))
    assert.same({ 3, nil, "busy" }, { not_had.n, not_had[1], not_had[3] })
    assert.matches("^busy: ", not_had[2])
    lock:release()
  end)

  it("returns nil, message, lost when the lock was lost meanwhile, whatever the function returns or has released",
    function()
      local lost, told = results(nil, 'lost: mutex of "a": by accident', "lost"), nil
      for _, releases in ipairs{ false, true } do
        assert.same(lost, with(function(lock)
          world:lose(lock, "by accident")
          told = releases and results(lock:release())
          return "worthless"
        end))
      end
      assert.same(lost, told)
    end)

  it("rethrows the function's own error unchanged, also when the lock was lost meanwhile", function()
    for _, problem in ipairs{ "text", { "a table" }, false } do
      for _, is_lost in ipairs{ false, true } do
        local was = results(pcall(with, function(lock)
          if is_lost then world:lose(lock) end
          error(problem, 0)
        end))
        assert.same({ 2, false }, { was.n, was[1] })
        assert.equal(problem, was[2])
        is_free()
      end
    end
  end)
end)
