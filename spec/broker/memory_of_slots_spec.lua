-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A connection remembers what it has learned of a semaphore's name, and each acquire here is of a new object. Others
-- change the semaphore behind its back. spec/unit/acquire/memory_spec.lua shows what is asked.
local stage = require "spec.support.stage"

after_each(stage.clear)
teardown(stage.check)

-- Acquires by a new object, and releases. Returns the slot.
local function slot_of(conn, name, strategy)
  local lock = stage.take(conn:semaphore(name, { strategy = strategy or "last" }), { timeout = 20 })
  local slot = lock.slot
  assert.is_true(stage.held(name, slot))
  assert(lock:release())
  return slot
end

-- A semaphore of five slots, of which the connection has had the third by an object that is gone.
local function had_third()
  local name, conn, other = stage.semaphore(5), stage.connect(), stage.connect()
  local one, two = stage.take(other:semaphore(name)), stage.take(other:semaphore(name))
  assert.equal(3, slot_of(conn, name))
  assert(one:release())
  assert(two:release())
  return name, conn, other
end

describe("a connection that had a slot", function()
  it("has that slot again, by another object; others begin where they were, or at the first", function()
    local name, conn, other = had_third()
    assert.equal(3, slot_of(conn, name))
    assert.equal(2, slot_of(other, name))
    assert.equal(1, slot_of(stage.connect(), name))
    stage.occupy(name, 3)
    assert.equal(4, slot_of(conn, name)) -- as that is somebody else's
    assert.equal(4, slot_of(conn, name))
  end)

  it("finds the slots that are left when an administrator took that one away", function()
    local name, conn, other = had_third()
    assert(other:admin(name):resize(2))
    for _, strategy in ipairs{ "last", "random", "ascending" } do
      assert.is_true(slot_of(conn, name, strategy) <= 2)
    end
    for _ = 1, 2 do stage.take(other:semaphore(name)) end
    assert.equal(('busy: all 2 slots of "%s" are held'):format(name),
      stage.fails("busy", conn:semaphore(name):try_acquire()))
  end)

  it("finds the slots that an administrator added", function()
    local name, conn, other = had_third()
    for _ = 1, 5 do stage.take(other:semaphore(name)) end
    assert(other:admin(name):resize(7))
    assert.is_true(slot_of(conn, name) > 5)
    assert.is_true(slot_of(conn, name, "random") > 5)
    assert(other:admin(name):resize(5))
  end)

  it("is told that the semaphore is gone, and takes a slot of the one that was made anew with fewer", function()
    for _, has_looked in ipairs{ true, false } do
      local name, conn, other = had_third()
      assert(other:admin(name):destroy())
      if has_looked then
        stage.fails("not_found", conn:semaphore(name, { strategy = "last" }):acquire{ timeout = 20 })
      end
      assert(other:admin(name):create(1))
      assert.equal(1, slot_of(conn, name))
      assert.equal(1, slot_of(conn, name, "random"))
    end
  end)

  it("is told that the semaphore is gone though that slot was left behind", function()
    local name, conn, other = had_third()
    assert(other:admin(name):destroy())
    stage.add(name, 3, 3)
    stage.fails("not_found", conn:semaphore(name, { strategy = "last" }):acquire{ timeout = 20 })
    assert.is_true(stage.free(name, 3))
  end)
end)
