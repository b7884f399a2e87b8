-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The callback on_lost: which function is called, when, and how often, with ordinary connections over a scripted
-- broker. The broker's frames during a waiting call are scripted before the call.
local Peer = require "spec.support.peer"
local amqplocks = require "amqplocks"
local connection = require "amqplocks.connection"
local losses = require "amqplocks.waiting.losses"

local closing_it = coroutine.close and it or pending

describe("on_lost", function()
  local peer, conn, script, told, log

  -- What happens at the next times anything waits, one after the other, before anything said earlier.
  local function happen(...)
    for i, step in ipairs{ ... } do table.insert(script, i, step) end
  end

  local function tell(lock, code, message) table.insert(told, { lock = lock, code = code, message = message }) end

  local function open()
    peer, script, told, log = Peer.open("whole"), {}, {}, nil
    local session = peer.session
    local semaphore = session.semaphore
    session.semaphore = function(self, name, strategy, attempts, probe) -- without a doorbell
      return semaphore(self, name, strategy, attempts, probe, true)
    end
    conn = assert(connection.open(session, {
      wait = function() assert(table.remove(script, 1), "waits for nothing")() end,
      news = function() return session:news() end,
      is_quiet = function(alerts) return session:is_quiet(alerts) end,
      losses = losses.new(function() return session:alerts() end),
      log = function(...) if log then log(...) end end,
    }))
    conn:on_lost(tell)
  end

  before_each(open)

  local claims

  before_each(function() claims = {} end)

  local function grant(name)
    peer.prober:look{ name .. "-1-A", ["other-1-A"] = "nack" }
    claims[name] = peer.holder:claim(name .. "-1-B", name .. "-1-A")
    peer.holder:grant(claims[name])
  end

  local function take(name)
    happen(function() grant(name) end)
    return assert(conn:semaphore(name):try_acquire())
  end

  -- Somebody deletes the lock's queue.
  local function lose(name)
    local claim = claims[name]
    peer.holder:send{ channel = claim.channel, method = "basic.cancel", consumer_tag = claim.tag }
    peer.holder:expect("channel.close", { channel = claim.channel })
    peer.holder:send{ channel = claim.channel, method = "channel.close-ok" }
  end

  local function nothing() end

  local function refused() peer.prober:look{ ["other-1-A"] = "nack" } end

  -- Any call that waits, and has nothing to do with the locks; something happens meanwhile.
  local function wait(meanwhile)
    happen(meanwhile or nothing, refused)
    assert.equal("unavailable", select(3, conn:semaphore("other"):try_acquire()))
  end

  it("is called for each lock that is lost while a call waits, with what held() says", function()
    local a, b, c = take "a", take "b", take "c"
    wait(function() lose "a" lose "c" end)
    assert.equal(2, #told)
    for _, one in ipairs(told) do
      local held, message, code = one.lock:held()
      assert.same({ false, "lost", one.code, one.message }, { held, code, code, message })
      assert.matches("deleted, but not by this client", message)
    end
    assert.is_true(told[1].lock == a and told[2].lock == c or told[1].lock == c and told[2].lock == a)
    assert.is_true(b:held())
    wait()
    assert.equal(2, #told)
  end)

  it("is called by the next call that may wait when it was lost before, before that waits", function()
    local lock, other = take "a", take "b"
    lose "a"
    assert.is_false(lock:held())
    assert.same({}, told)
    wait(function() assert.equal(lock, told[1].lock) end)
    assert.equal(1, #told)
    assert.is_true(other:held())
  end)

  -- Drivers of event loops fetch the number of alerts, too.
  it("is called by the next call that waits if the log raised an error when the loss was to be told", function()
    local lock = take "a"
    lose "a"
    peer.session:alerts()
    log = function() error "the disk is full" end
    assert.is_false(pcall(conn.semaphore(conn, "other").try_acquire, conn:semaphore "other"))
    assert.same({}, told)
    log = nil
    wait()
    assert.equal(lock, told[1].lock)
  end)

  it("is called by a call that need not wait", function()
    local a, b = take "a", take "b"
    lose "a"
    lose "b"
    assert.equal("lost", select(3, a:verify()))
    assert.equal(2, #told)
    assert.equal("lost", select(3, b:release()))
    assert.equal(2, #told)
  end)

  -- Ends the scope of a lock that finds it lost, and gives what is said of it.
  local FINDERS = {
    ["release"] = function(lock) return lock:release() end,
    ["the end of a block"] = function(lock)
      getmetatable(lock).__close(lock)
      return nil, nil, "lost"
    end,
    ["close"] = function()
      happen(function() peer.holder:down() end, function() peer.prober:down() end)
      conn:close()
      return nil, nil, "lost"
    end,
  }

  for what, find in pairs(FINDERS) do
    it("is called once when it is found by " .. what .. ", with what held() said before", function()
      local lock = take "a"
      lose "a"
      local _, message = lock:held()
      assert.equal("lost", select(3, find(lock)))
      assert.same({ { lock = lock, code = "lost", message = message } }, told)
      if what ~= "close" then wait() end
      lock:release()
      conn:close()
      assert.equal(1, #told)
    end)
  end

  it("is called once when it is found by with's release", function()
    local lock
    happen(function() grant "a" end)
    local had, message, code = conn:semaphore("a"):with(function(mine)
      lock = mine
      lose "a"
    end)
    assert.same({ nil, 'lost: slot 1 of "a": its queue was deleted, but not by this client', "lost" },
      { had, message, code })
    assert.same({ { lock = lock, code = code, message = message } }, told)
    wait()
    assert.equal(1, #told)
  end)

  it("is called when with says lost as nobody can say that it was not", function()
    local lock
    happen(function() grant "a" end, function() peer.holder:down() end)
    local had, message, code = conn:semaphore("a"):with(function(mine)
      lock = mine
      peer:pass(60)
      peer:pass(60)
      assert.equal("suspect", select(3, lock:held()))
    end)
    assert.same({ nil, "lost" }, { had, code })
    assert.same({ { lock = lock, code = code, message = message } }, told)
    conn:close()
    assert.equal(1, #told)
  end)

  it("is not called for a lock that was lost before its owner had it: it is not handed over", function()
    happen(function()
      grant "a"
      lose "a"
    end)
    local lock, message, code = conn:semaphore("a"):try_acquire()
    assert.same({ nil, 'lost: slot 1 of "a": its queue was deleted, but not by this client', "lost" },
      { lock, message, code })
    wait()
    assert.same({}, told)
  end)

  it("is called for all of them when the connection goes", function()
    local locks = {}
    for i = 1, 20 do locks[i] = take("x" .. i) end
    wait(function() peer.holder:down() end)
    assert.equal(20, #told)
    for _, lock in ipairs(locks) do
      local count = 0
      for _, one in ipairs(told) do count = count + (one.lock == lock and 1 or 0) end
      assert.equal(1, count)
    end
  end)

  it("is not called for locks that were let go of, nor for one that is being released", function()
    local a, b = take "a", take "b"
    happen(function() peer.holder:delete "a-1-B" end)
    assert.is_true(a:release())
    happen(function() peer.holder:down() end)
    assert.equal("unreachable", select(3, b:release()))
    assert.same({}, told)
  end)

  it("is not called once more for a lock that is let go of when its loss was told", function()
    local lock = take "a"
    wait(function() lose "a" end)
    assert.equal(1, #told)
    assert.equal("lost", select(3, lock:release()))
    assert.equal("not_held", select(3, lock:release()))
    conn:close()
    assert.equal(1, #told)
  end)

  it("is not called for a lock that was lost and released while there was no function", function()
    local lock = take "a"
    conn:on_lost(nil)
    lose "a"
    assert.equal("lost", select(3, lock:release()))
    conn:on_lost(tell)
    wait()
    assert.same({}, told)
  end)

  it("is called by close for each of many, also where it throws or nobody can wait", function()
    for _, is_elsewhere in ipairs{ false, true } do
      told = {}
      local locks = { take "a", take "b", take "c" }
      conn:on_lost(function(...)
        tell(...)
        error "and throws"
      end)
      lose "a"
      lose "b"
      conn._driver.check = is_elsewhere and function() return "nobody may wait here", "phase" end or nil
      happen(function() peer.holder:delete "c-1-B" end, function() peer.holder:down() end,
        function() peer.prober:down() end)
      assert.is_true(conn:close())
      assert.same({ 2, true }, { #told, told[1].lock ~= told[2].lock and told[1].lock ~= locks[3]
        and told[2].lock ~= locks[3] })
      assert.equal("down", peer.holder:state())
      if not is_elsewhere then open() end
    end
  end)

  it("is not called for a lock that nobody has any more", function()
    local function lose_one(name)
      local _ = take(name)
      lose(name)
    end
    lose_one "a"
    collectgarbage()
    collectgarbage()
    wait()
    assert.same({}, told)
  end)

  it("is not called for what closing does, however it ends", function()
    local held = take "a"
    happen(function() peer.holder:down() end, function() peer.prober:down() end)
    conn:close()
    assert.is_false(held:held())
    assert.same({}, told)
  end)

  it("is called by close for what was lost before", function()
    local lock = take "a"
    local _ = take "b"
    lose "a"
    happen(function() peer.holder:down() end, function() peer.prober:down() end)
    conn:close()
    assert.equal(1, #told)
    assert.equal(lock, told[1].lock)
  end)

  it("may close the connection: the call it was made from says so, and what else was lost is told of", function()
    local locks = { take "a", take "b", take "c" }
    conn:on_lost(function(lock, ...)
      tell(lock, ...)
      happen(function() peer.holder:down() end, function() peer.prober:down() end)
      conn:close()
    end)
    happen(function()
      lose "a"
      lose "b"
    end)
    assert.equal("closed", select(3, conn:semaphore("other"):acquire()))
    assert.equal(2, #told)
    assert.is_false(locks[3]:held())
    assert.equal("closed", select(3, conn:semaphore("other"):acquire()))
    assert.equal(2, #told)
  end)

  it("may lose more and then close the connection, and what closing lets go is not lost", function()
    local locks = { take "a", take "b", take "c" }
    conn:on_lost(function(lock, ...)
      tell(lock, ...)
      if #told > 1 then return end
      wait(function() lose "b" end)
      happen(function() peer.holder:down() end, function() peer.prober:down() end)
      conn:close()
    end)
    happen(function() lose "a" end)
    assert.is_nil((conn:semaphore("other"):acquire()))
    assert.same({ 2, locks[1], locks[2] }, { #told, told[1].lock, told[2].lock })
  end)

  it("may wait for its connection, and lose more meanwhile: each is told of once, one after the other", function()
    local locks, depth = { take "a", take "b", take "c" }, 0
    conn:on_lost(function(lock, ...)
      assert.equal(0, depth)
      depth = depth + 1
      tell(lock, ...)
      if #told < 3 then wait(function() lose(#told == 1 and "b" or "a") end) end
      depth = depth - 1
    end)
    wait(function() lose "c" end)
    for i = 1, 3 do assert.equal(locks[4 - i], told[i].lock) end
    wait()
    assert.equal(3, #told)
  end)

  it("may take the lost lock again, under the same name", function()
    local _, again = take "a", nil
    conn:on_lost(function(lock, ...)
      tell(lock, ...)
      again = take "a"
    end)
    wait(function() lose "a" end)
    assert.equal(1, #told)
    assert.is_true(again:held())
    wait(function() lose "a" end)
    assert.equal(2, #told)
    assert.equal(told[2].lock ~= told[1].lock, true)
  end)

  it("may release the lock, and another that is lost as well: each is told of once, one after the other", function()
    local locks, depth = { take "a", take "b" }, 0
    conn:on_lost(function(lock, ...)
      assert.equal(0, depth)
      depth = depth + 1
      tell(lock, ...)
      for _, one in ipairs(locks) do
        assert.equal(#told == 1 and "lost" or "not_held", select(3, one:release()))
      end
      depth = depth - 1
    end)
    wait(function()
      lose "a"
      lose "b"
    end)
    assert.equal(2, #told)
    assert.is_true(told[1].lock ~= told[2].lock)
    wait()
    assert.equal(2, #told)
  end)

  it("may take itself away; another is told of what is left, and of what comes", function()
    local locks = { take "a", take "b", take "c" }
    conn:on_lost(function(...)
      tell(...)
      conn:on_lost()
    end)
    wait(function()
      lose "a"
      lose "b"
    end)
    assert.equal(1, #told)
    wait()
    assert.equal(1, #told)
    conn:on_lost(tell)
    wait()
    assert.equal(2, #told)
    conn:on_lost(false)
    wait(function() lose "c" end)
    assert.equal(2, #told)
    assert.is_false(locks[3]:held())
  end)

  it("is not called for what was lost and forgotten while there was none", function()
    local locks = { take "a", take "b" }
    conn:on_lost(function(...)
      tell(...)
      conn:on_lost()
    end)
    wait(function()
      lose "a"
      lose "b"
    end)
    assert.equal(2, #locks)
    locks = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    conn:on_lost(tell)
    wait()
    assert.equal(1, #told)
  end)

  it("does not mind locks whose scope has ended", function()
    local lock, other = take "a", take "b"
    happen(function() peer.holder:delete "a-1-B" end)
    getmetatable(lock).__close(lock)
    wait(function() lose "b" end)
    assert.same({ 1, other }, { #told, told[1].lock })
  end)

  describe("that throws", function()
    local problem

    before_each(function()
      problem = {}
      conn:on_lost(function(...)
        tell(...)
        if problem then error(problem, 0) end
      end)
    end)

    local function throws(fn, ...)
      local fine, what = pcall(fn, ...)
      assert.is_false(fine)
      assert.equal(problem, what)
    end

    it("ends the call it was made from, with its own error, and what that was about to get is let go", function()
      local _ = take "a"
      happen(function()
        grant "b"
        lose "a"
      end)
      local sem = conn:semaphore "b"
      throws(sem.try_acquire, sem)
      peer.holder:delete "b-1-B"
      assert.equal(1, #told)
    end)

    it("leaves a claim under way to be undone", function()
      local _ = take "a"
      happen(function()
        peer.prober:look{ "b-1-A" }
        claims.b = peer.holder:claim("b-1-B", "b-1-A")
        lose "a"
      end)
      local sem = conn:semaphore "b"
      throws(sem.try_acquire, sem)
      peer.holder:expect("queue.delete", { queue = "b-1-B" })
    end)

    it("leaves a release under way to end by itself", function()
      local _, b = take "a", take "b"
      lose "a"
      throws(b.release, b)
      peer.holder:delete "b-1-B"
      assert.equal("not_held", select(3, b:held()))
    end)

    it("comes out of the release that found the loss, and the lock is let go of", function()
      local lock = take "a"
      lose "a"
      throws(lock.release, lock)
      assert.equal("not_held", select(3, lock:release()))
      assert.equal(1, #told)
    end)

    it("comes out of with, but not instead of the error of its function", function()
      local sem, own = conn:semaphore "a", {}
      happen(function() grant "a" end)
      throws(sem.with, sem, function() lose "a" end)
      happen(function() grant "a" end)
      local fine, what = pcall(sem.with, sem, function()
        lose "a"
        error(own, 0)
      end)
      assert.same({ false, true }, { fine, what == own })
      assert.equal(2, #told)
    end)

    it("is called for the rest by the next call that waits", function()
      local _ = { take "a", take "b", take "c" }
      happen(function()
        lose "a"
        lose "b"
        lose "c"
      end)
      local sem = conn:semaphore "other"
      throws(sem.try_acquire, sem)
      assert.equal(1, #told)
      throws(sem.try_acquire, sem)
      assert.equal(2, #told)
      problem = nil
      peer.prober:look{}
      wait()
      assert.equal(3, #told)
    end)

    it("does not keep close from closing", function()
      local _ = take "a"
      lose "a"
      assert.is_true(conn:close())
      assert.equal("down", peer.holder:state())
      assert.equal(1, #told)
    end)
  end)

  describe("that yields", function()
    local locks, depth

    before_each(function()
      locks, depth = {}, 0
      for _, name in ipairs{ "a", "b", "c", "d" } do locks[name] = take(name) end
      conn:on_lost(function(...)
        assert.equal(0, depth)
        depth = depth + 1
        tell(...)
        coroutine.yield "is told"
        depth = depth - 1
      end)
    end)

    -- A coroutine whose call finds that "a" was lost, and that is told so.
    local function teller()
      lose "a"
      local thread = coroutine.create(function() return locks.a:verify() end)
      assert.same({ true, "is told" }, { coroutine.resume(thread) })
      assert.equal(1, #told)
      return thread
    end

    local function goes_on(thread, times)
      assert.same({ true, "is told" }, { coroutine.resume(thread) })
      assert.equal(times, #told)
    end

    -- Another call may tell as well: what it finds is told, and the function does not yield.
    local function others_tell()
      local before = #told
      depth = 0
      conn:on_lost(tell)
      assert.equal("lost", select(3, locks.d:release()))
      assert.equal(before + 1, #told)
    end

    it("is not called by others until it has returned: its caller tells what they have found", function()
      local thread = teller()
      lose "b"
      assert.equal("lost", select(3, locks.b:release()))
      lose "c"
      wait(function() lose "d" end)
      assert.equal(1, #told)
      for times = 2, 4 do goes_on(thread, times) end
      assert.is_true(coroutine.resume(thread))
      assert.equal("dead", coroutine.status(thread))
      for i, one in ipairs(told) do
        for j = 1, i - 1 do assert.is_not.equal(one.lock, told[j].lock) end
      end
      wait()
      assert.equal(4, #told)
    end)

    it("may wait for its connection; what is lost then is told when it has returned", function()
      conn:on_lost(function(...)
        assert.equal(0, depth)
        depth = depth + 1
        tell(...)
        coroutine.yield "is told"
        if #told < 3 then wait(function() lose(#told == 1 and "c" or "d") end) end
        depth = depth - 1
      end)
      local thread = teller()
      goes_on(thread, 2)
      goes_on(thread, 3)
      assert.is_true(coroutine.resume(thread))
      assert.equal(3, #told)
    end)

    it("is called by others again when it has thrown", function()
      local problem = {}
      conn:on_lost(function(...)
        tell(...)
        coroutine.yield "is told"
        error(problem, 0)
      end)
      local thread = teller()
      local fine, what = coroutine.resume(thread)
      assert.same({ false, true }, { fine, what == problem })
      lose "d"
      others_tell()
    end)

    it("is called by others again when its coroutine was thrown away and collected", function()
      teller()
      collectgarbage()
      collectgarbage()
      lose "d"
      others_tell()
    end)

    closing_it("is called by others again when its coroutine was closed", function()
      local thread = teller()
      assert(coroutine.close(thread))
      lose "d"
      others_tell()
    end)

    it("is not called by close before it has returned; then its caller tells what is left, also where it throws",
      function()
        conn:on_lost(function(...)
          tell(...)
          coroutine.yield "is told"
          error "and throws"
        end)
        local thread = teller()
        lose "c"
        happen(function() peer.holder:delete "b-1-B" end, function() peer.holder:delete "d-1-B" end,
          function() peer.holder:down() end, function() peer.prober:down() end)
        assert.is_true(conn:close())
        assert.equal(1, #told)
        goes_on(thread, 2)
        assert.equal(locks.c, told[2].lock)
        assert.is_false((coroutine.resume(thread)))
        assert.equal("dead", coroutine.status(thread))
        assert.equal(2, #told)
      end)
  end)

  it("is a function, or nothing", function()
    for _, wrong in ipairs{ "print", 1, {}, true } do
      assert.error_matches(function() conn:on_lost(wrong) end, "on_lost: the callback must be a function")
      assert.error_matches(function() amqplocks.connect(nil, { on_lost = wrong }) end,
        "connect: option on_lost must be a function or false")
    end
    conn:on_lost(nil)
    conn:on_lost(false)
  end)
end)
