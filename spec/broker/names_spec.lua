-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Locks of all kinds beside one another, under one name and under names that look like parts of each other's queues.
-- They do not affect each other.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local kinds = require "spec.support.kinds"
local stage = require "spec.support.stage"

local operated_it = broker.operated_it(it, pending)

-- What stands in the broker for a semaphore of one slot and a token semaphore of one permit of each of these names.
local function create(names)
  local conn = stage.connect()
  for _, name in ipairs(names) do
    assert.equal(1, conn:admin(name):resize(1))
    assert.equal(1, conn:token_semaphore(name):resize(1))
  end
  stage.undo(function()
    local undoing = stage.connect()
    for _, name in ipairs(names) do
      undoing:admin(name):destroy()
      assert.is_true(undoing:token_semaphore(name):destroy())
      stage.delete(name .. "-fastmutex")
    end
  end)
end

local function new_name(suffix)
  local name = gate.name(suffix)
  create{ name }
  return name
end

-- What has try_acquire and acquire.
local function new(kind, conn, name) return kinds.all[kind].over(conn, name) end

local function assert_all_held(locks)
  for i, lock in ipairs(locks) do
    assert.is_true(lock:held() and lock:verify(), ("%d, %s"):format(i, tostring(lock)))
  end
end

stage.tidy()

it("locks of one name are a persistent mutex as well, which is the semaphore, and none of the others", function()
  local name = new_name()
  local conn, other = stage.connect(), stage.connect()
  local locks = { stage.take(new("permit", conn, name)), stage.take(new("mutex", conn, name)),
    stage.take(new("write", conn, name)), stage.take(conn:mutex(name, { persistent = true })) }
  assert_all_held(locks)
  stage.fails("busy", new("slot", other, name):try_acquire())
  stage.fails("exists", other:mutex(name, { persistent = true }):create())
  assert.is_true(other:mutex(name, { persistent = true }):destroy())
  stage.fails("removed", locks[4]:verify())
  table.remove(locks, 4)
  assert_all_held(locks)
  assert.equal(0, conn:admin(name):slots())
end)

describe("locks whose names look like the queues of others", function()
  local HEX = "0123456789abcdef"
  local SUFFIXES = { "", "-1", "-1-A", "-1-B", "-bell", "-admin", "-mutex", "-mutexbell", "-mutex-bell", "-fast",
    "-fastmutex", "-writer", "-rwbell", "-reader", "-readers", "-reader-" .. HEX, "-scratch-" .. HEX, ".semaphore",
    ".semaphore-count", ".semaphore-1-A", "-tokenadmin", "-", "-A" }
  local PER_NAME = { "-1-A", "-1-B", "-bell", "-fastmutex", "-mutex", "-writer", ".semaphore", ".semaphore-count" }

  operated_it("never meet: all are held at once, each by itself", function()
    local base = client.unique "lock"
    local names, conn, locks = {}, stage.connect(), {}
    for i, suffix in ipairs(SUFFIXES) do names[i] = base .. "x" .. suffix end
    create(names)
    for _, name in ipairs(names) do
      for _, kind in ipairs{ "slot", "permit", "fast_mutex", "mutex", "write" } do
        table.insert(locks, stage.take(new(kind, conn, name)))
      end
    end
    assert_all_held(locks)
    local expected, there = {}, broker.suite:queues(base .. "x")
    for _, name in ipairs(names) do
      for _, suffix in ipairs(PER_NAME) do table.insert(expected, name .. suffix) end
    end
    table.sort(expected)
    table.sort(there)
    assert.same(expected, there)
    local other = stage.connect()
    for _, name in ipairs(names) do
      for _, kind in ipairs{ "slot", "permit", "fast_mutex", "mutex", "read", "write" } do
        stage.fails("busy", new(kind, other, name):try_acquire())
      end
    end
    -- Each is free when it is released, and only that.
    for i = #locks, 1, -1 do
      local lock = table.remove(locks, i)
      assert.is_true(lock:release())
      assert.is_true(stage.take(new(lock.kind, other, lock.name), { timeout = 60 }):release())
      if i % 10 == 0 then assert_all_held(locks) end
    end
  end)

  it("never meet where readers are counted", function()
    local base, conn, own, readers = client.unique "lock", stage.connect(), stage.connect(), {}
    for i, suffix in ipairs(SUFFIXES) do
      readers[i] = stage.take(new("read", own, base .. "y" .. suffix))
    end
    while readers[1] do
      local reader = table.remove(readers, 1)
      stage.fails("busy", new("write", conn, reader.name):try_acquire())
      assert.is_true(reader:release())
      assert.is_true(stage.take(new("write", conn, reader.name)):release())
      for _, other in ipairs(readers) do assert.is_true(other:held()) end
    end
  end)
end)
