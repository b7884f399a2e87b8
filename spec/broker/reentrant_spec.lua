-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Reentrant mutexes: the owner enters again without asking the broker, and the last release releases.
local broker = require "spec.support.broker"
local gate = require "spec.support.gate"
local stage = require "spec.support.stage"

local operated_it = broker.operated_it(it, pending)

local AGAIN = { reentrant = true }

local function held(name) return gate.held("mutex", name) end

stage.tidy()

describe("a reentrant mutex", function()
  it("is entered again by its owner, and released with its last entry", function()
    local conn, name = stage.connect(), gate.name()
    local mutex = conn:mutex(name, AGAIN)
    local first = assert(mutex:acquire{ timeout = 60 })
    local asked = stage.wait_by(conn, function() error "it asks the broker" end)
    local second = assert(mutex:acquire{ timeout = 60 })
    local third = assert(conn:mutex(name, AGAIN):try_acquire()) -- another object
    assert.equal(first.ticket, third.ticket)
    assert.is_true(third:held() and third:certain_for() > 0 and not third:revoked())
    assert.is_true(first:release())
    for _, what in ipairs{ "release", "held", "verify" } do stage.fails("not_held", first[what](first)) end
    assert.equal(0, first:certain_for())
    assert.is_true(third:release())
    assert.is_true(held(name))
    asked()
    assert.is_true(second:verify())
    assert.is_true(second:release())
    assert.is_false(held(name))
    assert(mutex:try_acquire()):release()
  end)

  it("belongs to the owner that is named, as a key of a table does; otherwise to the coroutine", function()
    local conn, name = stage.connect(), gate.name()
    local function is_equal() return true end
    local function equal() return setmetatable({}, { __eq = is_equal }) end
    local function mutex(owner) return conn:mutex(name, { reentrant = true, owner = owner }) end
    local own, thread = equal(), coroutine.create(function() end)
    for _, row in ipairs{
      { own, own, true }, { own, equal(), false }, { "1", 1, false }, { "1", "1", true }, { 1, 1.0, true },
      { 0.5, 1 / 2, true }, { false, false, true }, { thread, thread, true }, { thread, own, false },
    } do
      local first = assert(mutex(row[1]):try_acquire())
      local again, _, code = mutex(row[2]):acquire{ timeout = 60 }
      assert.same(row[3] and { true } or { false, "deadlock" }, { again ~= nil, code })
      if again then assert(again:release()) end
      assert.is_true(held(name))
      assert(first:release())
      assert.is_false(held(name))
    end
    local entry = assert(mutex(own):acquire())
    local again = coroutine.wrap(function() return assert(mutex(own):acquire()) end)()
    assert.is_true(entry:release() and held(name) and again:release())
    entry = assert(mutex():acquire())
    stage.fails("deadlock", coroutine.wrap(function() return mutex():acquire() end)())
    stage.fails("deadlock", conn:mutex(name):acquire())
    entry:release()
  end)

  it("is released when the coroutine that owns it is collected", function()
    local conn, name = stage.connect(), gate.name()
    local thread = coroutine.create(function()
      local entry = assert(conn:mutex(name, AGAIN):acquire{ timeout = 60 })
      coroutine.yield()
      return entry:release()
    end)
    assert(coroutine.resume(thread))
    for _ = 1, 3 do collectgarbage() end
    assert.is_true(held(name))
    thread = nil -- luacheck: ignore 311
    for _ = 1, 3 do collectgarbage() end
    assert(conn:mutex(gate.name()):try_acquire()):release() -- a call that sends the release
    gate.until_free("mutex", name)
  end)

  it("is held by `with` in `with`, and after an error of the inner one", function()
    local conn, name = stage.connect(), gate.name()
    local mutex = conn:mutex(name, AGAIN)
    assert.same({ true, "inner" }, { mutex:with(function()
      assert.is_false((pcall(mutex.with, mutex, function() error "x" end)))
      return select(2, mutex:with({ timeout = 1 }, function(lock) return lock:held() and held(name) and "inner" end))
    end) })
    assert.is_false(held(name))
  end)

  it("is released when its last entry is collected, and not before", function()
    local conn, name = stage.connect(), gate.name()
    local mutex = conn:mutex(name, AGAIN)
    local first = assert(mutex:acquire())
    for _ = 1, 3 do assert(mutex:acquire()) end
    for _ = 1, 3 do collectgarbage() end
    assert.is_true(held(name))
    first:release()
    assert.is_false(held(name))
    assert(mutex:acquire())
    for _ = 1, 3 do collectgarbage() end
    assert(conn:mutex(gate.name()):try_acquire()):release() -- a call that sends the release
    gate.until_free("mutex", name)
  end)

  operated_it("that is lost is entered no more by its owner until all entries are released", function()
    local told, name = {}, gate.name()
    local conn = stage.connect(nil, { on_lost = function(lock) table.insert(told, lock.name) end })
    local function mutex(owner) return conn:mutex(name, { reentrant = true, owner = owner }) end
    local one, other = mutex "one", mutex "other"
    local first, second = assert(one:acquire{ timeout = 60 }), assert(one:acquire{ timeout = 60 })
    broker.suite:delete_queue(gate.queue("mutex", name))
    stage.fails("lost", first:verify())
    stage.fails("lost", one:acquire{ timeout = 60 })
    assert(other:with({ timeout = 60 }, function(lock)
      stage.fails("lost", one:acquire{ timeout = 60 })
      stage.fails("lost", first:release())
      assert.is_true(lock:held() and held(name))
      assert(other:try_acquire()):release()
    end))
    stage.fails("lost", one:acquire{ timeout = 60 })
    local rival = gate.take("mutex", name)
    stage.fails("lost", one:try_acquire())
    assert(rival:release())
    stage.fails("lost", second:release())
    assert.same({ name }, told) -- once
    stage.fails("lost", one:with({ timeout = 60 }, function()
      local had, _, code = one:with(function(lock)
        broker.suite:delete_queue(gate.queue("mutex", name))
        stage.fails("lost", lock:verify()) -- the news of a deletion may come behind the answer to a release
      end)
      assert.is_true(had or code == "lost")
    end))
    assert.is_false(held(name))
  end)

  it("is a part of several locks", function()
    local conn, name, other = stage.connect(), gate.name(), gate.name()
    local mutex = conn:mutex(name, AGAIN)
    local first = assert(mutex:acquire())
    local locks = assert(conn:all{ mutex, conn:mutex(other) }:acquire())
    assert.is_true(locks:held())
    locks:release()
    assert.is_true(held(name))
    local occupant = gate.occupy("mutex", other)
    stage.fails("busy", conn:all{ mutex, conn:mutex(other) }:try_acquire())
    assert.is_true(held(name) and first:held())
    occupant:release()
    first:release()
  end)
end)
