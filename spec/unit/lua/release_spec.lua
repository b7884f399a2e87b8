-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Several locks, cut off where a broker offers no moment for it. spec/broker/cut_off_spec.lua has the steps at which a
-- call waits.
local testing = require "amqplocks.testing"

local NAMES = { "a", "b", "c" }

describe("several locks", function()
  local world, conn, rival

  before_each(function()
    world = testing.new()
    world:resize("slots", 3)
    conn, rival = world:connect(), world:connect()
    collectgarbage "stop"
    if package.loaded.jit then package.loaded.jit.off() end -- compiled code calls no hooks
  end)

  after_each(function()
    debug.sethook()
    collectgarbage "restart"
    if package.loaded.jit then package.loaded.jit.on() end
  end)

  local function all(of)
    local list = {}
    for i, name in ipairs(NAMES) do list[i] = of:mutex(name, { reentrant = i == 2, owner = i == 2 and "me" or nil }) end
    return of:all(list)
  end

  local function free()
    local count, locks = 0, {}
    for i, name in ipairs(NAMES) do
      locks[i] = rival:mutex(name):try_acquire()
      count = count + (locks[i] and 1 or 0)
    end
    for _, lock in pairs(locks) do lock:release() end
    return count
  end

  -- Whether the world runs. The core, which it stands for, is in C: there no hook is called.
  local function is_in_core()
    local level = 3
    local info = debug.getinfo(level, "S")
    while info and not info.source:find "amqplocks/testing/" do
      level = level + 1
      info = debug.getinfo(level, "S")
    end
    return info ~= nil
  end

  -- Calls fn(...); a debug hook raises an error at the n-th instruction, as that of ^C does, or at the next one outside
  -- of the world. Returns at which it did; nil: fn has ended before.
  local function interrupt(n, fn, ...)
    local at, was_reached, hook = n, false, nil
    function hook()
      if is_in_core() then
        at = at + 1
        return debug.sethook(hook, "", 1)
      end
      debug.sethook()
      was_reached = true
      error("interrupted!", 0)
    end
    pcall(function(...)
      debug.sethook(hook, "", n)
      fn(...)
      debug.sethook()
    end, ...)
    return was_reached and at or nil
  end

  for how, is_scope in pairs{ ["by release, or none of them,"] = false, ["at the end of a scope"] = true } do
    it(("are all released %s at whatever instruction an interrupt comes"):format(how), function()
      local at, count = 0
      repeat
        local locks = assert(all(conn):acquire{ timeout = 0 })
        local release = is_scope and getmetatable(locks).__close or locks.release
        at = interrupt(at + 1, release, locks)
        count = free()
        assert.is_true(count == 3 or count == 0, (at or "end") .. ": " .. count)
        if count == 0 then release(locks) end
        assert.equal(3, free(), at)
      until not at
      assert.equal(3, count)
    end)
  end

  it("are released if on_lost raises errors: the first one is raised, when all are released", function()
    local told = 0
    conn:on_lost(function(lock)
      told = told + 1
      error(lock.name, 0)
    end)
    local locks = assert(all(conn):acquire{ timeout = 0 })
    world:lose(locks.locks[1])
    world:lose(locks.locks[3])
    local fine, problem = pcall(locks.release, locks)
    assert.is_false(fine)
    assert.is_true(problem == "a" or problem == "c")
    assert.equal(3, free())
    assert.equal(2, told)
    assert.equal("not_held", select(3, locks:release()))
  end)

  -- Makes the n-th lock that is expected be lost. Returns a function that tells how many locks were given back, and how
  -- many of these releases were begun before the first result was asked for.
  local function watch(n)
    local losses, count, begun, first = conn._driver.losses, 0, 0, nil
    local expect = losses.expect
    function losses:expect(lock)
      count = count + 1
      if count == n then world:lose(lock) end
      local give_back = getmetatable(lock._core).__index.give_back
      function lock._core.give_back(box)
        local operation = give_back(box)
        local result = operation.result
        begun = begun + 1
        function operation.result(...)
          first = first or begun
          return result(...)
        end
        return operation
      end
      expect(self, lock)
    end
    return function() return { begun, first } end
  end

  -- Of several locks each is expected twice.
  for n, acquire in pairs{
    [6] = function(of)
      local list = {}
      for i, name in ipairs(NAMES) do list[i] = of:mutex(name) end
      return of:all(list):try_acquire()
    end,
    [3] = function(of) return of:semaphore("slots"):acquire{ count = 3, timeout = 0 } end,
  } do
    it(("are given back together if the %dth is not certain when its caller gets them"):format(n), function()
      local told = 0
      conn:on_lost(function() told = told + 1 end)
      local begun = watch(n)
      assert.equal("lost", select(3, acquire(conn)))
      assert.same({ 0, { 3, 3 } }, { told, begun() })
      assert(acquire(rival)):release()
    end)
  end
end)
