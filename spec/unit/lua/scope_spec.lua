-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What `with` returns: true and its function's results, or nil, message, code of the lock's own failure. Over a
-- scripted broker; spec/support/testing_rows.lua has every kind of lock on a real one.
local Peer = require "spec.support.peer"
local connection = require "amqplocks.connection"
local losses = require "amqplocks.waiting.losses"

local scoped_it = coroutine.close and it or pending -- where Lua has scopes

describe("with", function()
  local peer, conn, script, claim

  before_each(function()
    peer, script = Peer.open("whole"), {}
    local session = peer.session
    local semaphore = session.semaphore
    session.semaphore = function(self, name, strategy, attempts, probe) -- without a doorbell
      return semaphore(self, name, strategy, attempts, probe, true)
    end
    conn = assert(connection.open(session, {
      wait = function() assert(table.remove(script, 1), "waits for nothing")() end,
      news = function() return session:news() end,
      losses = losses.new(function() return session:alerts() end),
    }))
  end)

  local function grant()
    peer.prober:look{ "a-1-A" }
    claim = peer.holder:claim("a-1-B", "a-1-A")
    peer.holder:grant(claim)
  end

  local function refuse() peer.prober:look{ ["a-1-A"] = "nack" } end

  local function delete() peer.holder:delete "a-1-B" end

  -- Somebody deletes the lock's queue.
  local function lose()
    peer.holder:send{ channel = claim.channel, method = "basic.cancel", consumer_tag = claim.tag }
    peer.holder:expect("channel.close", { channel = claim.channel })
    peer.holder:send{ channel = claim.channel, method = "channel.close-ok" }
  end

  local function results(...) return { n = select("#", ...), ... } end

  -- `steps` happen one after the other, whenever anything waits.
  local function with(steps, ...)
    script = steps
    return results(conn:semaphore("a"):with({ timeout = 0 }, ...))
  end

  it("returns true, and nothing more, for a function that returns nothing", function()
    assert.same(results(true), with({ grant, delete }, function() end))
  end)

  it("returns true and the function's results, nils among them", function()
    assert.same(results(true, nil), with({ grant, delete }, function() return nil end))
    assert.same(results(true, false, nil, "a", nil), with({ grant, delete }, function(_, ...)
      return false, nil, ...
    end, "a", nil))
  end)

  it("releases once, and asks for nothing more", function()
    local begun = 0
    conn._driver.check = function() begun = begun + 1 end
    with({ grant, delete }, function() end)
    assert.equal(2, begun) -- acquire and release
    pcall(with, { grant, delete }, error)
    assert.equal(4, begun)
  end)

  for what, check in pairs{ ["throws"] = function() error("not now", 0) end,
    ["is not possible there"] = function() return "not there", "phase" end } do
    scoped_it("lets go of the lock also where its release " .. what, function()
      pcall(with, { grant }, function() conn._driver.check = check end)
      peer:tick()
      peer.holder:delete "a-1-B"
    end)
  end

  it("tells the function's own nil, message, code from the lock's", function()
    local function fails() return nil, "the job failed", "timeout" end
    assert.same(results(true, nil, "the job failed", "timeout"), with({ grant, delete }, fails))
    local not_had = with({ refuse, refuse }, fails) -- of two slots, and then of a wide window
    assert.same({ 3, nil, "unavailable" }, { not_had.n, not_had[1], not_had[3] })
    assert.matches("^unavailable: ", not_had[2])
  end)

  it("returns nil, message, lost when the lock was lost meanwhile, whatever the function returns", function()
    for _, value in ipairs{ true, false, "worthless" } do
      local lost = with({ grant }, function()
        lose()
        return value
      end)
      assert.same(results(nil, 'lost: slot 1 of "a": its queue was deleted, but not by this client', "lost"), lost)
    end
  end)

  it("rethrows the function's own error unchanged, also when the lock was lost meanwhile", function()
    for _, problem in ipairs{ "text", { "a table" }, false } do
      for _, ends in ipairs{ delete, false } do
        local was = results(pcall(with, ends and { grant, ends } or { grant }, function()
          if not ends then lose() end
          error(problem, 0)
        end))
        assert.same({ 2, false }, { was.n, was[1] })
        assert.equal(problem, was[2])
      end
    end
  end)

  it("says that the lock was lost, also if the function has released it and was told so first", function()
    local told
    local got = with({ grant }, function(lock)
      lose()
      told = results(lock:release())
      return "done"
    end)
    assert.same({ n = 3, nil, told[2], "lost" }, told)
    assert.same(told, got)
  end)

  it("returns true if the function has released the lock, and it was not lost before", function()
    assert.same(results(true, "done"), with({ grant, delete }, function(lock)
      assert(lock:release())
      return "done"
    end))
  end)
end)
