-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Coroutines that are closed while they wait (coroutine.close): their operations are undone at once, and other callers
-- get the lock, without the garbage collector. This is tested on a native connection whose waits yield as those of an
-- event loop do. loops_spec has the loops, cut_off_spec each step of an acquire, a release and `with`.
local amqplocks = require "amqplocks"
local failing_close = require "spec.support.failing_close"
local gate = require "spec.support.gate"
local kinds = require "spec.support.kinds"
local lfs = require "lfs"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local MANY = 100 -- more waits than anything has here
local SECONDS = 60

local closing_it = coroutine.close and it or pending

before_each(function() collectgarbage "stop" end)

after_each(function()
  stage.clear()
  collectgarbage "restart"
end)

teardown(stage.check)

-- A connection on which a coroutine yields before each wait.
local function connect()
  local conn = stage.connect()
  stage.wait_by(conn, function(wait, operation)
    if coroutine.isyieldable() then coroutine.yield "waits" end
    wait(operation)
  end)
  return conn
end

-- Runs fn in a coroutine until it has yielded so often, and closes that. Returns whether it had come to its end.
local function close_after(yields, fn)
  local thread = coroutine.create(fn)
  for _ = 1, yields do
    if coroutine.status(thread) ~= "dead" then assert(coroutine.resume(thread)) end
  end
  local ended = coroutine.status(thread) == "dead"
  assert(coroutine.close(thread))
  return ended
end

-- Has new_fn() closed at each of its yields, and looks after each.
local function closed_at_each(new_fn, look)
  for yields = 1, MANY do
    local ended = close_after(yields, new_fn())
    look(yields)
    if ended then return end
  end
  error("it never came to its end")
end

local function take(lockable)
  return until_true(function()
    local lock, message = lockable:try_acquire()
    return lock, message
  end, SECONDS)
end

local function give_and_take(lockable) assert(take(lockable):release()) end

for kind, makes in pairs(kinds.all) do
  describe("of a coroutine that is closed, " .. kind, function()
    closing_it("goes to others when it comes free, and not to the one that waited for it", function()
      local name = makes.name()
      local own, rival = makes.over(connect(), name), kinds.rival(kind, name)
      local held = take(rival)
      for times = 1, 2 do
        local told = 0
        local thread = coroutine.create(function()
          own:acquire{ timeout = 60, poll = 0.05, on_wait = function() told = told + 1 end }
        end)
        until_true(function()
          assert(coroutine.resume(thread))
          return told == times
        end, SECONDS)
        assert(coroutine.close(thread))
        assert(held:release())
        held = take(rival)
      end
      assert(held:release())
      give_and_take(own)
    end)

    closing_it("stays held while it is verified", function()
      local name = makes.name()
      local lock, rival = assert(makes.over(connect(), name):acquire()), kinds.rival(kind, name)
      closed_at_each(function()
        return function() assert.is_true(lock:verify()) end
      end, function()
        assert.is_true(lock:held())
        stage.fails("busy", rival:try_acquire())
      end)
      assert(lock:release())
    end)
  end)
end

describe("a coroutine that is closed", function()
  closing_it("at a wait of the first acquire of its connection leaves the slot to others", function()
    local name = stage.semaphore(1)
    local rival = stage.connect():semaphore(name)
    closed_at_each(function()
      local fresh = connect():semaphore(name)
      return function() assert(assert(fresh:acquire{ timeout = 60 }):release()) end
    end, function() give_and_take(rival) end)
  end)

  closing_it("behind the door, on which it waited for a reader, opens it", function()
    local name = gate.name()
    local own, other = connect():rwlock(name), stage.connect():rwlock(name)
    local reader, reason = assert(other:try_read()), nil
    local thread = coroutine.create(function()
      own:write{ timeout = 60, on_wait = function(_, why) reason = why end }
    end)
    until_true(function()
      assert(coroutine.resume(thread))
      return reason == "a reader holds the lock", reason
    end, SECONDS)
    stage.fails("busy", stage.connect():rwlock(name):try_read())
    assert(coroutine.close(thread))
    local second = stage.connect():rwlock(name)
    assert(until_true(function() return second:try_read() end, SECONDS):release())
    assert(reader:release())
  end)

  closing_it("while it becomes a reader, knows which of the two it is", function()
    local name = gate.name()
    local own, others = connect():rwlock(name), stage.connect():rwlock(name)
    local lock
    closed_at_each(function()
      lock = assert(own:try_write())
      return function() assert.is_true(lock:downgrade()) end
    end, function()
      assert.is_true(lock:verify())
      assert.equal(select(5, lock._core:info()), lock.kind)
      assert.equal(select(3, lock._core:info()), lock.ticket)
      stage.fails("busy", others:try_write())
      if lock.kind == "read" then assert(others:try_read()):release() else stage.fails("busy", others:try_read()) end
      assert(lock:release())
      assert(until_true(function() return others:try_write() end, SECONDS):release())
    end)
    assert.equal("read", lock.kind)
  end)

  for what, makes in pairs {
    ["a semaphore"] = {
      name = function() return stage.semaphore(1) end,
      over = function(conn, name) return conn:admin(name, { timeout = 10 }) end,
    },
    ["a token semaphore"] = {
      name = kinds.all.permit.name,
      over = function(conn, name) return conn:token_semaphore(name) end,
    },
  } do
    closing_it("while it administers " .. what .. ", leaves that to others", function()
      local name, size = makes.name(), 1
      local own, other = makes.over(connect(), name), makes.over(stage.connect(), name)
      closed_at_each(function()
        return function()
          assert(own:resize(3))
          assert(own:resize(1))
        end
      end, function()
        size = 3 - size
        until_true(function()
          local count, message = other:resize(size, { timeout = 10 })
          if not count and what == "a token semaphore" then other:repair() end -- marks may be there, and no permits yet
          return count == size, message
        end, SECONDS)
      end)
      assert.equal(1, other:resize(1))
    end)
  end

  closing_it("while it waits for a permit to be taken away, lets others administer", function()
    local name, raw = kinds.all.permit.name(), stage.client()
    local own, other = connect():token_semaphore(name), stage.connect():token_semaphore(name)
    local lock = assert(other:try_acquire())
    local thread = coroutine.create(function() own:remove(1, { wait = 600 }) end)
    until_true(function()
      assert(coroutine.resume(thread))
      return raw:locked(name .. "-tokenadmin")
    end, SECONDS)
    assert.equal("suspended", coroutine.status(thread))
    assert(coroutine.close(thread))
    assert.equal(2, other:add(1, { timeout = SECONDS }))
    assert(lock:release())
    assert.equal(1, other:remove(1, { wait = SECONDS }))
  end)

  local function descriptors()
    local count = 0
    for _ in lfs.dir "/proc/self/fd" do count = count + 1 end
    return count
  end

  for how, log in pairs { [""] = coroutine.yield,
    [", also where the log throws at that"] = failing_close(coroutine.yield, "it throws") } do
    closing_it("while it connects, leaves no connection" .. how, function()
      local before = descriptors()
      local thread = coroutine.create(function() return amqplocks.connect(nil, { log = log }) end)
      assert(coroutine.resume(thread))
      assert.equal("suspended", coroutine.status(thread))
      assert.is_true(descriptors() > before)
      coroutine.close(thread)
      until_true(function() return descriptors() == before end)
    end)
  end
end)
