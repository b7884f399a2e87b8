-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Waiting that yields, as in event loops, under every Lua, and answers that a coroutine gets late, as others have
-- computed meanwhile. The connections are those of a world of amqplocks.testing; a call that waits yields to the test.
-- There verify and downgrade wait, acquire for other clients only, and release does not.
-- spec/broker/loops_spec.lua and spec/broker/cut_off_spec.lua have real brokers.
local failing_close = require "spec.support.failing_close"
local protected = require "amqplocks.compat.pcall"
local testing = require "amqplocks.testing"

local closing_it = coroutine.close and it or pending

-- A coroutine, at the point where it yields for the first time. It must yield `said`.
local function begin(said, fn, ...)
  local thread = coroutine.create(fn)
  assert.same({ true, said }, { coroutine.resume(thread, ...) })
  return thread
end

-- Has it go on until it yields again.
local function goes_on(thread, said, ...)
  assert.same({ true, said }, { coroutine.resume(thread, ...) })
  assert.equal("suspended", coroutine.status(thread))
end

-- Has it go on to its end. Returns whether it ended well, and its results.
local function ends(thread, ...)
  local results = { coroutine.resume(thread, ...) }
  assert.equal("dead", coroutine.status(thread))
  return results
end

describe("in a coroutine", function()
  local world, conn, rival, interrupt

  -- How many of the next answers come late: the lock is then suspect again.
  local late

  before_each(function()
    world, interrupt, late = testing.new(), nil, 0
    world:resize("slots", 1)
    conn, rival = world:connect(), world:connect()
    local driver = conn._driver
    local wait = driver.wait
    function driver.wait(operation, ...)
      coroutine.yield "waits"
      if interrupt then error(interrupt, 0) end
      wait(operation, ...)
      for _, lock in ipairs(late > 0 and driver.losses:watched() or {}) do
        late = late - 1
        lock._core.state.is_suspect = true
      end
    end
    collectgarbage "stop"
  end)

  after_each(function() collectgarbage "restart" end)

  local function is_free() return assert(rival:semaphore("slots"):try_acquire()):release() end

  describe("who comes late to a lock that was acquired", function()
    local called, told, thread, state

    before_each(function()
      called, told = false, 0
      conn:on_lost(function() told = told + 1 end)
      local expect = conn._driver.losses.expect
      function conn._driver.losses:expect(lock)
        state = lock._core.state
        state.is_suspect = true
        expect(self, lock)
      end
      local sem = conn:semaphore "slots"
      thread = begin("waits", sem.with, sem, { timeout = 0 }, function()
        called = true
        return "worked"
      end)
      assert.is_false(called) -- it asks for what it has acquired
      assert.equal(1, #conn._driver.losses:watched()) -- were its coroutine thrown away, somebody has it
    end)

    for times = 0, 3 do
      it(("gets it if the broker says so, and he comes late to %d of 3 answers"):format(times), function()
        late = times
        for _ = 1, math.min(times, 2) do goes_on(thread, "waits") end
        local results = ends(thread)
        assert.equal(times < 3, called)
        assert.same(times < 3 and { true, true, "worked" } or { true, nil, results[3], "suspect" }, results)
        is_free()
      end)
    end

    for code, happens in pairs{
      lost = function() state:lose "its queue was deleted" end,
      unreachable = function() world:fail "unreachable" end,
      closed = function() state:release() end, -- as conn:close() does
    } do
      it("does not get it, and leaves nothing of it: " .. code, function()
        happens()
        local results = ends(thread)
        assert.same({ true, nil, code }, { results[1], results[2], results[4] })
        assert.equal(code .. ": ", results[3]:sub(1, #code + 2))
        assert.same({ false, 0 }, { called, told })
        assert.same({}, conn._driver.losses:watched())
        local log = world:log()
        assert.equal(code == "unreachable" and "verify" or "release", log[#log].what) -- then nothing is waited for
        is_free()
      end)
    end

    for how, ends_it in pairs{
      ["is interrupted"] = function()
        interrupt = { "enough" }
        local results = ends(thread)
        assert.same({ false, true }, { results[1], results[2] == interrupt })
      end,
      ["is closed"] = function() assert(coroutine.close(thread)) end,
      ["is closed, also if the log throws then"] = function()
        state:revoke() -- is logged
        conn._driver.log = failing_close(function() coroutine.yield "logs" end, "it throws")
        goes_on(thread, "logs")
        assert.same({ false, "it throws" }, { coroutine.close(thread) })
      end,
    } do
      local this_it = how == "is interrupted" and it or closing_it
      this_it("leaves nothing of it if his coroutine " .. how .. " while he asks", function()
        ends_it()
        assert.same({ false, {} }, { called, conn._driver.losses:watched() })
        is_free()
      end)
    end
  end)

  for times = 0, 3 do
    it(("to verify's answer, %d of 3 times late, is told that it is held only if it is"):format(times), function()
      for _, slots in ipairs{ 1, 0 } do
        local thread = begin("waits", function()
          local lock = assert(conn:semaphore("slots"):try_acquire())
          world:resize("slots", slots)
          local verified, _, why = lock:verify()
          local held = lock:held()
          lock:release()
          return verified or why, held
        end)
        late = times
        for _ = 1, math.min(times, 2) do goes_on(thread, "waits") end
        local results = ends(thread)
        local had = slots == 1 or "removed"
        assert.same({ true, times < 3 and had or "suspect", times < 3 }, results)
        world:resize("slots", 1)
      end
    end)

    it(("to a downgrade, and to %d of 3 answers after it, reads only if it does"):format(times), function()
      local thread = begin("waits", function()
        local lock = assert(conn:rwlock("db"):try_write())
        local done, _, why = lock:downgrade()
        return done or why, (lock:held()), lock.kind
      end)
      late = times + 1
      for _ = 1, math.min(times + 1, 3) do goes_on(thread, "waits") end
      assert.same({ true, times < 3 or "suspect", times < 3, "read" }, ends(thread))
    end)
  end

  describe("with's function", function()
    it("may yield; what it returns or throws comes out, after the release", function()
      local sem = conn:semaphore "slots"
      local thread = begin("works", sem.with, sem, function(lock, word)
        return lock.slot, word, coroutine.yield "works", nil
      end, "word")
      assert.is_nil((rival:semaphore("slots"):try_acquire()))
      assert.same({ true, true, 1, "word", "answer" }, ends(thread, "answer"))
      is_free()
      for _, problem in ipairs{ { "a table" }, "text" } do
        local results = ends(begin("works", sem.with, sem, function()
          coroutine.yield "works"
          error(problem, 0)
        end))
        assert.same({ false, true }, { results[1], results[2] == problem })
        is_free()
      end
    end)

    it("is in the coroutine that a loop would resume, also in another with", function()
      local inside, sem = nil, conn:semaphore "slots"
      local thread = begin("works", sem.with, sem, function()
        return conn:mutex("b"):with(function()
          inside = protected.running()
          return coroutine.yield "works"
        end)
      end)
      assert.equal(thread, inside)
      assert.same({ true, true, true, "done" }, ends(thread, "done"))
    end)
  end)

  it("an error while it waits comes out unchanged, and nothing is left", function()
    local sem, held = conn:semaphore "slots", assert(rival:semaphore("slots"):try_acquire())
    local thread = begin("waits", sem.acquire, sem)
    interrupt = { "a table" }
    local results = ends(thread)
    assert.same({ false, true }, { results[1], results[2] == interrupt })
    held:release()
    is_free()
  end)

  closing_it("that is closed while it waits beside others, they go on", function()
    local held = assert(rival:semaphore("slots"):try_acquire())
    local function take() return assert(conn:semaphore("slots"):acquire()).name end
    local one, other = begin("waits", take), begin("waits", take)
    assert(coroutine.close(one))
    held:release()
    assert.same({ true, "slots" }, ends(other))
  end)
end)

describe("the pcall that may be yielded across", function()
  it("keeps no coroutine that is thrown away inside it", function()
    local left = setmetatable({}, { __mode = "k" })
    local function throw_away()
      local thread = coroutine.create(function()
        protected.pcall(function()
          local inside = {}
          left[inside] = true
          coroutine.yield(inside)
        end)
      end)
      left[thread] = true
      assert(coroutine.resume(thread))
    end
    throw_away()
    for _ = 1, 2 do collectgarbage() end
    assert.is_nil(next(left))
  end)

  it("is Lua's own wherever that can be yielded across, or there is no other", function()
    local loaded, preload = package.loaded.coxpcall, package.preload.coxpcall
    package.loaded["amqplocks.compat.pcall"], package.loaded.coxpcall = nil, nil
    package.preload.coxpcall = function() error("not installed", 0) end
    local own = require "amqplocks.compat.pcall"
    package.loaded["amqplocks.compat.pcall"], package.loaded.coxpcall = protected, loaded
    package.preload.coxpcall = preload
    assert.equal(pcall, own.pcall)
    assert.equal(coroutine.running, own.running)
    local needs_other = _VERSION == "Lua 5.1" and not rawget(_G, "jit")
    assert.equal(needs_other, protected.pcall ~= pcall)
  end)
end)
