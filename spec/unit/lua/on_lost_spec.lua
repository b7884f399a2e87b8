-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The callback on_lost: which function is called, when, and how often, with connections to a world of
-- amqplocks.testing. spec/broker/on_lost_spec.lua has losses at a real broker.
local testing = require "amqplocks.testing"

describe("on_lost", function()
  local world, conn, told, occupant

  local function tell(lock, code, message) table.insert(told, { lock = lock, code = code, message = message }) end

  before_each(function()
    world, told = testing.new(), {}
    conn = world:connect{ on_lost = tell }
    occupant = assert(world:connect():mutex("other"):try_acquire())
  end)

  local function take(name) return assert(conn:mutex(name):try_acquire()) end

  local function lose(...)
    for _, lock in ipairs{ ... } do world:lose(lock) end
  end

  -- A call that waits, and has nothing to do with the locks; something may happen meanwhile.
  local function wait(meanwhile)
    if meanwhile then world:after(1, meanwhile) end
    assert.equal("timeout", select(3, conn:mutex("other"):acquire{ timeout = 2 }))
    assert.is_true(occupant:held())
  end

  -- Exactly these losses were told, in any order.
  local function were_told(...)
    local counts, expected = {}, {}
    for _, lock in ipairs{ ... } do expected[lock] = 1 end
    for _, one in ipairs(told) do counts[one.lock] = (counts[one.lock] or 0) + 1 end
    assert.same(expected, counts)
  end

  it("is called for each lock that is lost while a call waits, with what held() says", function()
    local a, b, c = take "a", take "b", take "c"
    wait(function() lose(a, c) end)
    were_told(a, c)
    for _, one in ipairs(told) do
      local held, message, code = one.lock:held()
      assert.same({ false, "lost", one.code, one.message }, { held, code, code, message })
    end
    assert.is_true(b:held())
    wait()
    were_told(a, c)
  end)

  for what, find in pairs{
    release = function(lock) assert.equal("lost", select(3, lock:release())) end,
    ["the end of a block"] = function(lock) getmetatable(lock).__close(lock) end,
    close = function() conn:close() end,
  } do
    it("is called once by " .. what .. ", if that finds it lost", function()
      local lock = take "a"
      lose(lock)
      find(lock)
      were_told(lock)
      assert.matches("^lost: mutex of ", told[1].message)
      lock:release()
      conn:close()
      were_told(lock)
    end)
  end

  it("is called once by with's release; also where that cannot say that the lock was not lost", function()
    for i, problem in ipairs{ lose, function(lock)
      world:suspect(lock)
      world:fail "unreachable"
    end } do
      local lock
      local had, message, code = conn:mutex("a"):with(function(mine)
        lock = mine
        problem(mine)
      end)
      assert.same({ nil, "lost", i }, { had, code, #told })
      assert.same({ lock = lock, code = code, message = message }, told[i])
    end
    wait()
    assert.equal(2, #told)
  end)

  it("is not called for locks that were released, nor for one that is being released, nor once more", function()
    local released, cut, lost = take "a", take "b", take "c"
    released:release()
    world:fail "unreachable"
    assert.equal("unreachable", select(3, cut:release()))
    wait(function() lose(lost) end)
    were_told(lost)
    assert.equal("lost", select(3, lost:release()))
    assert.equal("not_held", select(3, lost:release()))
    conn:close()
    were_told(lost)
  end)

  it("is called by close for each of many, also where it throws or nobody can wait; not for what close lets go of",
    function()
      local a, b, c = take "a", take "b", take "c"
      conn:on_lost(function(...)
        tell(...)
        error "and throws"
      end)
      lose(a, b)
      conn._driver.check = function() return "nobody may wait here", "phase" end
      assert.is_true(conn:close())
      were_told(a, b)
      assert.is_false(c:held())
      assert.equal("closed", conn._session:state())
    end)

  it("may close the connection: the call it was made from says so, and what else was lost is told of", function()
    local a, b, c = take "a", take "b", take "c"
    conn:on_lost(function(...)
      tell(...)
      if #told == 1 then wait(function() lose(b) end) end
      conn:close()
    end)
    world:after(1, function() lose(a) end)
    assert.equal("closed", select(3, conn:mutex("other"):acquire()))
    were_told(a, b)
    assert.is_false(c:held())
    assert.equal("closed", select(3, conn:mutex("other"):acquire()))
    were_told(a, b)
  end)

  it("may take itself away; another is told of what is left", function()
    local a, b = take "a", take "b"
    conn:on_lost(function(...)
      tell(...)
      conn:on_lost()
    end)
    wait(function() lose(a, b) end)
    assert.equal(1, #told)
    conn:on_lost(tell)
    wait()
    were_told(a, b)
  end)

  it("that throws ends the call it was made from, and the next call tells the rest", function()
    local problem, other = {}, conn:mutex "other"
    local a, b, c = take "a", take "b", take "c"
    conn:on_lost(function(...)
      tell(...)
      if problem then error(problem, 0) end
    end)
    world:after(1, function() lose(a, b, c) end)
    for times = 1, 2 do
      local fine, what = pcall(other.acquire, other, { timeout = 2 })
      assert.same({ false, true, times }, { fine, what == problem, #told })
    end
    problem = nil
    wait()
    were_told(a, b, c)
    assert.equal(0, conn:stats().waiting)
  end)

  it("that throws ends the release, or with, that found the loss, but replaces no error of with's function", function()
    local mutex, lock = conn:mutex "a", take "b"
    conn:on_lost(function(...)
      tell(...)
      error("of on_lost", 0)
    end)
    lose(lock)
    assert.same({ false, "of on_lost" }, { pcall(lock.release, lock) })
    assert.equal("not_held", select(3, lock:release()))
    assert.same({ false, "of on_lost" }, { pcall(mutex.with, mutex, lose) })
    assert.same({ false, "its own" }, { pcall(mutex.with, mutex, function(mine)
      lose(mine)
      error("its own", 0)
    end) })
    assert.equal(3, #told)
  end)

  describe("that yields", function()
    local locks, depth, problem

    before_each(function()
      locks, depth, problem = {}, 0, nil
      for _, name in ipairs{ "a", "b", "c", "d" } do locks[name] = take(name) end
      conn:on_lost(function(...)
        assert.equal(0, depth)
        depth = depth + 1
        tell(...)
        coroutine.yield "is told"
        depth = depth - 1
        if problem then error(problem, 0) end
      end)
    end)

    local function goes_on(thread, times)
      assert.same({ true, "is told" }, { coroutine.resume(thread) })
      assert.equal(times, #told)
    end

    -- A coroutine whose call finds that "a" was lost, and that is told so.
    local function teller()
      lose(locks.a)
      local thread = coroutine.create(function() return locks.a:verify() end)
      goes_on(thread, 1)
      return thread
    end

    it("is not called by others until it has returned: its caller tells what they have found", function()
      local thread = teller()
      lose(locks.b)
      assert.equal("lost", select(3, locks.b:release()))
      lose(locks.c)
      wait(function() lose(locks.d) end)
      assert.equal(1, #told)
      for times = 2, 4 do goes_on(thread, times) end
      assert.is_true(coroutine.resume(thread))
      assert.equal("dead", coroutine.status(thread))
      wait()
      were_told(locks.a, locks.b, locks.c, locks.d)
    end)

    it("is called by others again when its coroutine was thrown away and collected", function()
      teller()
      for _ = 1, 2 do collectgarbage() end
      conn:on_lost(tell)
      lose(locks.d)
      assert.equal("lost", select(3, locks.d:release()))
      were_told(locks.a, locks.d)
    end)

    it("is not called by close before it has returned; then its caller tells what is left, also where it throws",
      function()
        local thread = teller()
        lose(locks.c)
        assert.is_true(conn:close())
        assert.equal(1, #told)
        problem = "and throws"
        goes_on(thread, 2)
        assert.equal(locks.c, told[2].lock)
        assert.is_false((coroutine.resume(thread)))
        assert.equal(2, #told)
      end)
  end)
end)
