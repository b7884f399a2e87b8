-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Programming errors raise an error that names the argument. Nothing here asks a database.
local dblocks = require "dblocks"
local ticket = require "dblocks.ticket"

local asked = 0

local function connect()
  asked = asked + 1
  return nil, "nobody may ask"
end

local locks = dblocks.redis(connect, { name = "spec" })

local function raises(words, fn, ...)
  local fine, problem = pcall(fn, ...)
  assert.is_false(fine)
  assert.is_truthy(tostring(problem):find(words, 1, true), problem)
end

describe("a bad name", function()
  it("raises an error that names it", function()
    for _, name in ipairs{ "", ("x"):rep(65), "a'b", "a b", "a,b", "{a}", "a\0b", "a\n", "ä", "a/b", "a%b" } do
      raises("mutex: the type must be", locks.mutex, locks, name, 1)
      raises("rwlock: the id must be", locks.rwlock, locks, "job", name)
      local mutex = locks:mutex("job", 1)
      raises("acquire: option ticket must be", mutex.acquire, mutex, { ticket = name })
      raises("break_lock: the ticket must be", locks.break_lock, locks, "job", 1, name)
      raises("list: option type must be", locks.list, locks, { type = name })
      raises("redis: option name must be", dblocks.redis, connect, { name = name })
    end
  end)

  it("of another kind raises one, too, but whole numbers are their digits", function()
    for id, digits in pairs{ [7] = "7", [-1 * 0.0] = "0", [2 ^ 40] = "1099511627776" } do
      assert.equal(digits, locks:mutex("job", id)._resource.id)
    end
    for _, id in ipairs{ 1.5, 0 / 0, 1 / 0, 2 ^ 53, {}, true } do
      raises("mutex: the id must be", locks.mutex, locks, "job", id)
    end
    raises("mutex: the type must be", locks.mutex, locks, 7, 7)
    raises("mutex: the id must be", locks.mutex, locks, "job")
  end)

  it("is also the ticket of all readers, or the name of a client that leaves a ticket no digits", function()
    local mutex = locks:mutex("job", 1)
    raises('a ticket other than "readers"', mutex.acquire, mutex, { ticket = "readers" })
    raises("redis: option name must be at most 47 bytes", dblocks.redis, connect, { name = ("x"):rep(48) })
    assert.equal(64, #ticket.new(("x"):rep(47)))
  end)
end)

describe("a bad option", function()
  it("raises an error that names it", function()
    local mutex, rwlock = locks:mutex("job", 1), locks:rwlock("job", 1)
    raises('acquire: unknown option "timeuot"', mutex.acquire, mutex, { timeuot = 1 })
    raises("try_acquire: unknown option", mutex.try_acquire, mutex, { timeout = 1 })
    raises("read: option timeout must be", rwlock.read, rwlock, { timeout = -1 })
    raises("write: option poll must be more than 0", rwlock.write, rwlock, { poll = 0 })
    raises("with_read: the function must be", rwlock.with_read, rwlock, { timeout = 1 })
    raises("with: option on_wait must be", mutex.with, mutex, { on_wait = 1 }, print)
    raises("list: option older_than must be", locks.list, locks, { older_than = "1" })
    raises('redis: unknown option "tabel"', dblocks.redis, connect, { tabel = "x" })
    raises("redis: a client, or a function that returns one, must be given", dblocks.redis, nil)
    raises("acquire: options must be a table", mutex.acquire, mutex, 5)
    raises("mutex: must be called with a colon, locks:mutex", locks.mutex, "job", 1)
  end)

  it("is one that comes after the function, and a bad call is one that only another object has", function()
    local mutex, rwlock, opts = locks:mutex("job", 1), locks:rwlock("job", 1), { timeout = 0 }
    for name, object in pairs { with = mutex, with_read = rwlock, with_write = rwlock } do
      raises(name .. ": options come before the function", object[name], object, print, opts)
    end
    raises("acquire: there is no rwlock:acquire(); call ", rwlock.acquire, rwlock)
    raises("write: there is no mutex:write(); call ", mutex.write, mutex)
  end)

  it("is a wait where nothing can sleep", function()
    local clock = require "dblocks.clock"
    local find = clock.find
    clock.find = function() return nil, os.time end
    finally(function() clock.find = find end)
    local mutex = locks:mutex("job", 1)
    raises("acquire: nothing here can sleep: give the option sleep", mutex.acquire, mutex)
    assert.equal("unreachable", select(3, mutex:try_acquire()))
  end)
end)

it("a ticket begins with the program, the host and the process, in characters that tickets have", function()
  local name = ticket.name()
  assert.is_truthy(name:find "^[%w_.+-]+@[%w_.+-]+:%d+$", name)
  assert.is_true(#name <= 47)
  assert.is_not.equal(ticket.new(name), ticket.new(name))
end)

it("nobody was asked for any of these", function()
  assert.equal(1, asked) -- by the one try_acquire
end)
