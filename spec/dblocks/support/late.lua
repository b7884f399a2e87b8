-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Statements that reach the database after their repetition, and after what followed: on each database with a network.
--
--     late {
--       port = function() return port end,            -- of the database
--       connect = function(port, is_plain) end,       -- locks by that port: by a function for clients, or one client
--     }
--
-- Called while busted loads a spec file.
local busted = require "busted"
local cutter = require "spec.dblocks.support.cutter"
local fails = require "spec.dblocks.support.fails"
local late = require "dblocks.late"
local process = require "spec.support.process"
local until_true = require "spec.support.until"

local after_each, before_each, describe, it = busted.after_each, busted.before_each, busted.describe, busted.it
local assert = require "luassert"

local LIMIT = 3 -- seconds: MariaDB has two of them to execute a statement

return function(store)
  local limit, between, direct, made

  before_each(function()
    limit, late.LIMIT = late.LIMIT, LIMIT
    between, made = cutter.start(store.port()), {}
    direct = store.connect(store.port())
  end)

  after_each(function()
    late.LIMIT = limit
    for _, entry in ipairs(assert(direct:list())) do direct:break_lock(entry.type, entry.id, entry.ticket) end
    for _, each in ipairs(made) do each:close() end
    direct:close()
    process.clear()
  end)

  -- Locks by way of the cutter, which have been asked for the time.
  local function through(is_plain)
    local locks = store.connect(between.port, is_plain)
    table.insert(made, locks)
    assert(locks:list())
    return locks
  end

  local function list() return assert(direct:list { type = "late" }) end

  -- What fn(...) returns whose nth statement is late.
  local function lately(nth, fn, ...)
    between:cut("late", nth)
    local first, second, third = fn(...)
    between:cut("nothing", 0)
    return first, second, third
  end

  -- Only this lock is there, and a stranger stays out.
  local function is_held(lock)
    assert.is_true(lock:verify())
    assert.equal(1, #list())
    fails("busy", direct:mutex("late", 1):try_acquire())
  end

  -- release() of a lock that may be in doubt; it is held no longer.
  local function release(lock)
    local released, message, code = lock:release()
    assert.is_true(released or code == "in_doubt", message)
  end

  -- kind -> acquires, tries
  local KINDS = {
    mutex = function(locks, how) return locks:mutex("late", 1):acquire(how) end,
    write = function(locks, how) return locks:rwlock("late", 1):write(how) end,
    read = function(locks, how) return locks:rwlock("late", 1):read(how) end,
  }

  -- Each is told which statement is late: 1 or 2. A statement that only looks may be late without harm.
  local cases = {}

  cases["an acquire, after the release of its repetition, leaves no lock of nobody"] = function(acquire, nth)
    local locks = through()
    local lock = assert(lately(nth, acquire, locks, { timeout = 60 }))
    assert.is_true(lock:release())
    between:deliver()
    assert.same({}, list())
  end

  cases["an acquire, while its repetition is held, changes nothing"] = function(acquire, nth)
    local lock = assert(lately(nth, acquire, through(), { timeout = 60 }))
    between:deliver()
    is_held(lock)
    assert.is_true(lock:release())
    assert.same({}, list())
  end

  cases["a release, after the next acquire with its ticket, does not end that lock"] = function(acquire, nth)
    local locks = through()
    local lock = assert(acquire(locks, { ticket = "mine", timeout = 60 }))
    lately(nth, release, lock)
    lock = assert(acquire(locks, { ticket = "mine", timeout = 60 }))
    between:deliver()
    is_held(lock)
    assert.is_true(lock:release())
  end

  cases["break_lock, after the next acquire with its ticket, does not end that lock"] = function(acquire, nth)
    local lock, operator = assert(acquire(direct, { ticket = "mine", timeout = 60 })), through(true)
    lately(nth, operator.break_lock, operator, "late", 1, "mine")
    lock:release()
    lock = assert(acquire(direct, { ticket = "mine", timeout = 60 }))
    between:deliver()
    is_held(lock)
  end

  describe("a statement that is late:", function()
    for words, case in pairs(cases) do
      for kind, acquire in pairs(KINDS) do
        for nth = 1, 2 do
          it(("%s (%s, statement %d)"):format(words, kind, nth), function() case(acquire, nth) end)
        end
      end
    end

    it("a downgrade, after the next acquire with its ticket, leaves a writer", function()
      for nth = 1, 2 do
        local locks, how = through(), { ticket = "mine", timeout = 60 }
        local lock = assert(KINDS.write(locks, how))
        assert.is_true(lately(nth, lock.downgrade, lock))
        assert.is_true(lock:release())
        lock = assert(KINDS.write(locks, how))
        between:deliver()
        assert.is_true(lock:verify())
        assert.equal("write", list()[1].kind)
        assert.is_true(lock:release())
      end
    end)

    it("an acquire that nobody has repeated does nothing once its time has passed", function()
      if store.has_no_clock then return end
      for nth = 1, 2 do
        local locks = through(true)
        local lock = lately(nth, KINDS.read, locks, { ticket = "mine", timeout = 0 })
        if lock then return assert.is_true(lock:release()) end
        local noted = { words = "late 1" }
        until_true(function() return late.left(locks._store, noted, "mine") == 0 end)
        assert.is_true(between:deliver())
        assert.same({}, list())
      end
    end)
  end)
end
