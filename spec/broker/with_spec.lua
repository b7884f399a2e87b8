-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What `with` returns, for every kind of lock: true and its function's results, or nil, message, code of the lock's own
-- failure. spec/unit/lua/scope_spec.lua has the orders of events that a broker does not offer.
local broker = require "spec.support.broker"
local gate = require "spec.support.gate"
local stage = require "spec.support.stage"
local token_scene = require "spec.broker.token_scene"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

after_each(stage.clear)
teardown(stage.check)

local function persistent()
  local name = stage.name()
  stage.undo(function() stage.connect():admin(name):destroy() end)
  assert(stage.connect():mutex(name, { persistent = true }):create())
  return name
end

-- name(): of one that only one can have. over(conn, name): what has `with`. queue(name): what is deleted to lose it.
local function gated(kind)
  return { name = gate.name, over = function(conn, name) return gate.new(conn, kind, name) end,
    queue = kind ~= "read" and function(name) return gate.queue(kind, name) end }
end

local KINDS = {
  slot = { name = function() return stage.semaphore(1) end, over = function(conn, name) return conn:semaphore(name) end,
    queue = function(name) return stage.holder(name, 1) end },
  ["persistent mutex"] = { name = persistent,
    over = function(conn, name) return conn:mutex(name, { persistent = true }) end,
    queue = function(name) return stage.holder(name, 1) end },
  permit = { name = function()
    local name = token_scene.name()
    assert(stage.connect():token_semaphore(name):create(1))
    return name
  end, over = function(conn, name) return conn:token_semaphore(name) end, queue = token_scene.permits },
  mutex = gated "mutex", read = gated "read", write = gated "write",
}

local function results(...) return { n = select("#", ...), ... } end

for kind, makes in pairs(KINDS) do
  describe("with: " .. kind, function()
    local name, over

    before_each(function()
      name = makes.name()
      over = makes.over(stage.connect(), name)
    end)

    -- A lock of somebody else that is in its way.
    local function other()
      local conn = stage.connect()
      return kind == "read" and gate.new(conn, "write", name) or makes.over(conn, name)
    end

    -- A permit is back a moment later.
    local function assert_free() assert.is_true(stage.take(other(), { timeout = 20 }):release()) end

    it("returns true and all results of its function, or rethrows its error unchanged, and lets go", function()
      assert.same(results(true), results(over:with(function(lock) assert(lock:held()) end)))
      assert_free()
      local function fails(lock, ...)
        assert(lock:held())
        return nil, "no job", ...
      end
      assert.same(results(true, nil, "no job", 7, nil), results(over:with({ timeout = 5 }, fails, 7, nil)))
      assert_free()
      local problem = { "mine" }
      local fine, what = pcall(over.with, over, { timeout = 5 }, function() error(problem) end)
      assert.is_false(fine)
      assert.equal(problem, what)
      assert_free()
    end)

    it("returns nil, message, code when it is not had, and does not call the function", function()
      local lock = stage.take(other())
      local function never() error "was called" end
      stage.fails("busy", over:with({ timeout = 0 }, never))
      stage.fails("timeout", over:with({ timeout = 0.05 }, never))
      assert(lock:release())
    end)

    operated_it("returns nil, message, lost when it is lost meanwhile", function()
      stage.fails("lost", over:with(function(lock)
        broker.suite:delete_queue(makes.queue and makes.queue(name) or name .. "-reader-" .. lock.ticket)
        until_true(function() return not lock:held() end)
        return "worthless"
      end))
      if kind ~= "permit" then assert_free() end -- its queue was the semaphore
    end)
  end)
end
