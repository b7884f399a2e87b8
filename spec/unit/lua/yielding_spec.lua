-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Waiting that yields, as in event loops, under every Lua: every waiting call, and everything that callbacks of the
-- user may do while the library calls them. Ordinary connections over a scripted broker; a waiting call yields to the
-- test.
local Peer = require "spec.support.peer"
local connection = require "amqplocks.connection"
local failing_close = require "spec.support.failing_close"
local rwlock_scene = require "spec.unit.locks.rwlock_scene"
local losses = require "amqplocks.waiting.losses"
local protected = require "amqplocks.compat.pcall"
local values = require "spec.support.programs.values"

local closing_it = coroutine.close and it or pending

-- A coroutine, at the point where it yields for the first time. It must yield `said`.
local function begin(said, fn, ...)
  local thread = coroutine.create(fn)
  assert.same({ true, said }, { coroutine.resume(thread, ...) })
  assert.equal("suspended", coroutine.status(thread))
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
  local peer, conn

  local interrupt

  local function open(settings)
    peer, interrupt = Peer.open("whole", settings), nil
    local session = peer.session
    local semaphore = session.semaphore
    session.semaphore = function(self, name, strategy, attempts, probe) -- without a doorbell
      return semaphore(self, name, strategy, attempts, probe, true)
    end
    conn = assert(connection.open(session, {
      wait = function()
        coroutine.yield "waits"
        if interrupt then error(interrupt, 0) end
      end,
      news = function() return session:news() end,
      losses = losses.new(function() return session:alerts() end),
    }))
  end

  before_each(function() open() end)

  local function grant(name)
    peer.prober:look{ name .. "-1-A" }
    local claim = peer.holder:claim(name .. "-1-B", name .. "-1-A")
    peer.holder:grant(claim)
    return claim
  end

  -- Somebody writes, behind a door of his own.
  local function shuts_door()
    rwlock_scene.looks(peer, "db-writer", "free")
    local door = rwlock_scene.claim(peer, "db-writer")
    rwlock_scene.replies(peer, door)
    rwlock_scene.makes_sure(peer, door)
    return door
  end

  -- Somebody deletes the queue.
  local function lose(claim)
    peer.holder:send{ channel = claim.channel, method = "basic.cancel", consumer_tag = claim.tag }
    peer.holder:expect("channel.close", { channel = claim.channel })
    peer.holder:send{ channel = claim.channel, method = "channel.close-ok" }
  end

  it("a lock can be taken, verified and released", function()
    local thread = begin("waits", function()
      local lock = assert(conn:semaphore("a"):acquire())
      return lock.slot, lock:verify(), (lock:release())
    end)
    goes_on(thread, "waits") -- nothing has come
    local claim = grant "a"
    goes_on(thread, "waits")
    peer.holder:expect("queue.declare", { channel = claim.channel, queue = "a-1-B", passive = true })
    peer.holder:declared(claim.channel, "a-1-B")
    peer.prober:look{ "a-1-A" }
    goes_on(thread, "waits")
    peer.holder:delete "a-1-B"
    assert.same({ true, 1, true, true }, ends(thread))
  end)

  it("two wait beside each other, and each gets what it waits for", function()
    local function take(name) return assert(conn:semaphore(name):try_acquire()).name end
    local one = begin("waits", take, "a")
    peer.prober:look{ "a-1-A" }
    local claim = peer.holder:claim("a-1-B", "a-1-A")
    local other = begin("waits", take, "b")
    grant "b"
    assert.same({ true, "b" }, ends(other))
    goes_on(one, "waits")
    peer.holder:grant(claim)
    assert.same({ true, "a" }, ends(one))
  end)

  -- As others have computed meanwhile.
  describe("who comes late", function()
    before_each(function() open{ heartbeat = 10, timeout = 30 } end)

    -- The broker sends heartbeats, and answers nothing.
    local function pass(times, seconds)
      for _ = 1, times do
        peer.holder:send{ channel = 0, heartbeat = true }
        peer.prober:send{ channel = 0, heartbeat = true }
        peer:pass(seconds)
      end
      peer.holder:ignore()
      peer.prober:ignore()
    end

    -- Until it is not certain any more.
    local function compute() pass(2, 9.8) end

    -- What the broker answers of slot 1 to who verifies.
    local function is_there(channel, name)
      peer.holder:declared(channel, name .. "-1-B")
      peer.prober:look{ name .. "-1-A" }
    end

    local function is_removed(channel, name)
      peer.holder:declared(channel, name .. "-1-B")
      peer.prober:look{ [name .. "-1-A"] = "absent" }
      peer.holder:again{ name .. "-1-A" }
    end

    describe("to what was got looks at it again:", function()
      local called, told, thread, claim

      local function expected() return conn._driver.losses:watched() end

      before_each(function()
        called, told = false, 0
        conn:on_lost(function() told = told + 1 end)
        local sem = conn:semaphore "a"
        thread = begin("waits", sem.with, sem, { timeout = 0 }, function()
          called = true
          return "worked"
        end)
        claim = grant "a"
      end)

      -- It goes on only then.
      local function comes_late()
        compute()
        goes_on(thread, "waits")
        assert.is_false(called)
        assert.equal(1, #expected()) -- were its coroutine thrown away, somebody has it
        peer.holder:expect("queue.declare", { channel = claim.channel, queue = "a-1-B", passive = true })
      end

      local function is_worked_with()
        goes_on(thread, "waits")
        peer.holder:delete "a-1-B"
        assert.same({ true, true, "worked" }, ends(thread))
      end

      for words, answers in pairs{
        ["is his if the broker says so"] = is_there,
        ["is his, too, if an administrator has taken the slot away: as from any holder"] = is_removed,
      } do
        it(words, function()
          comes_late()
          answers(claim.channel, "a")
          is_worked_with()
        end)

        it(words .. "; also if he comes late to that, and it says so again", function()
          for _ = 1, 2 do
            comes_late()
            answers(claim.channel, "a")
          end
          is_worked_with()
        end)
      end

      -- Asked for, and answered otherwise: what is left of it goes, and nothing was done with it.
      local function is_not_his(code, channel)
        local results = ends(thread)
        assert.same({ true, nil, code }, { results[1], results[2], results[4] })
        assert.equal(code .. ": ", results[3]:sub(1, #code + 2))
        assert.same({ false, 0 }, { called, told })
        assert.same({}, expected())
        if channel then peer.holder:delete("a-1-B", channel) end
      end

      it("is not if somebody has deleted its queue", function()
        comes_late()
        peer.holder:refuse(claim.channel, 404, "NOT_FOUND - no queue 'a-1-B' in vhost '/'", "queue.declare")
        is_not_his("lost", peer.holder:opened())
      end)

      it("is not if nobody answers", function()
        comes_late()
        pass(4, 7.5)
        is_not_his("unreachable", claim.channel)
      end)

      it("is not if he comes late to every answer", function()
        for _ = 1, 3 do
          comes_late()
          is_there(claim.channel, "a")
        end
        compute()
        goes_on(thread, "waits") -- until the broker has it back
        peer.holder:delete("a-1-B", claim.channel)
        is_not_his "suspect"
      end)

      it("is not if the connection is closed meanwhile", function()
        local close = begin("waits", conn.close, conn)
        is_not_his "closed"
        peer.holder:delete("a-1-B", claim.channel)
        assert.equal("suspended", coroutine.status(close))
      end)

      it("is not if the connection goes", function()
        comes_late()
        peer.holder:down "reset"
        is_not_his "lost"
      end)

      it("is given back if he is interrupted while he asks", function()
        comes_late()
        interrupt = "enough"
        assert.same({ false, "enough" }, ends(thread))
        peer:tick()
        peer.holder:delete("a-1-B", claim.channel)
      end)

      closing_it("is given back if his coroutine is closed while he asks", function()
        finally(function() collectgarbage "restart" end)
        collectgarbage "stop"
        comes_late()
        assert(coroutine.close(thread))
        peer:tick()
        peer.holder:delete("a-1-B", claim.channel)
        assert.same({}, expected())
        assert.is_false(called)
      end)

      closing_it("is given back if his coroutine is closed while he asks, also if the log throws at that", function()
        finally(function() collectgarbage "restart" end)
        collectgarbage "stop"
        comes_late()
        local news = { "something" }
        conn._driver.news = function() return table.remove(news) end
        conn._driver.log = failing_close(function() coroutine.yield "logs" end, "it throws")
        goes_on(thread, "logs")
        assert.same({ false, "it throws" }, { coroutine.close(thread) })
        peer:tick()
        peer.holder:delete("a-1-B", claim.channel)
        assert.same({}, expected())
        assert.is_false(called)
      end)
    end)

    for answer, says in pairs{ ["that it is held"] = is_there, ["that its slot is removed"] = is_removed } do
      for late = 0, 3 do
        it(("to verify's answer %s, %d of 3 times, is told so only if it is"):format(answer, late), function()
          local thread = begin("waits", function()
            local lock = assert(conn:semaphore("b"):try_acquire())
            coroutine.yield "holds"
            local verified, _, why = lock:verify()
            return verified or why, (lock:held())
          end)
          local claim = grant "b"
          goes_on(thread, "holds")
          for round = 1, math.min(late + 1, 3) do
            goes_on(thread, "waits")
            peer.holder:expect("queue.declare", { channel = claim.channel, queue = "b-1-B", passive = true })
            says(claim.channel, "b")
            if round <= late then compute() end
          end
          local had = says == is_there or "removed"
          assert.same({ true, late < 3 and had or "suspect", late < 3 }, ends(thread))
        end)
      end
    end

    for late = 0, 3 do
      it(("to a downgrade, and to %d answers of 3, reads only if he does"):format(late), function()
        local thread = begin("waits", function()
          local lock = assert(conn:rwlock("db"):try_write())
          local done, _, why = lock:downgrade()
          return done or why, (lock:held())
        end)
        local door = shuts_door()
        goes_on(thread, "waits")
        local reader = rwlock_scene.reader(peer, true)
        rwlock_scene.replies(peer, reader)
        peer.holder:expect("queue.declare", { queue = "db-writer", passive = true, channel = door.channel })
        peer.holder:declared(door.channel, "db-writer")
        peer.holder:expect("queue.delete", { queue = "db-writer", channel = door.channel })
        peer.holder:deleted(door.channel)
        compute()
        for round = 1, math.min(late + 1, 3) do
          goes_on(thread, "waits")
          peer.holder:expect("queue.declare", { queue = reader.queue, passive = true, channel = reader.channel })
          peer.holder:declared(reader.channel, reader.queue)
          if round <= late then compute() end
        end
        assert.same({ true, late < 3 or "suspect", late < 3 }, ends(thread))
      end)
    end
  end)

  describe("with's function", function()
    local function with(fn, ...)
      local sem = conn:semaphore "a"
      local thread = begin("waits", sem.with, sem, fn, ...)
      grant "a"
      return thread
    end

    it("may yield; what it returns comes out, after the release", function()
      local thread = with(function(lock, word)
        local answer = coroutine.yield "works"
        return lock.slot, word, answer, nil
      end, "word")
      goes_on(thread, "works")
      peer.holder:silent()
      goes_on(thread, "waits", "answer")
      peer.holder:delete "a-1-B"
      local results = ends(thread)
      assert.same({ true, true, 1, "word", "answer" }, results)
    end)

    it("may throw when it has yielded: its error comes out unchanged, after the release", function()
      for _, problem in ipairs{ { "a table" }, "text" } do
        local thread = with(function()
          coroutine.yield "works"
          error(problem, 0)
        end)
        goes_on(thread, "works")
        goes_on(thread, "waits")
        peer.holder:delete "a-1-B"
        local results = ends(thread)
        assert.equal(false, results[1])
        assert.equal(problem, results[2])
      end
    end)

    it("is in the coroutine that a loop would resume", function()
      local inside
      local thread = with(function() inside = protected.running() end)
      goes_on(thread, "waits")
      assert.equal(thread, inside)
      peer.holder:delete "a-1-B"
      assert.same({ true, true }, ends(thread))
    end)

    it("may lock on, in another with", function()
      local thread = with(function(outer)
        return conn:semaphore("b"):with(function(inner)
          coroutine.yield "works"
          return outer.name .. inner.name
        end)
      end)
      goes_on(thread, "waits")
      grant "b"
      goes_on(thread, "works")
      goes_on(thread, "waits")
      peer.holder:delete "b-1-B"
      goes_on(thread, "waits")
      peer.holder:delete "a-1-B"
      assert.same({ true, true, true, "ab" }, ends(thread))
    end)
  end)

  it("an error while it waits comes out unchanged, and what was claimed is undone", function()
    local problem, fails = {}, false
    conn._driver.wait = function()
      coroutine.yield "waits"
      if fails then error(problem, 0) end
    end
    local sem = conn:semaphore "a"
    local thread = begin("waits", sem.acquire, sem)
    peer.prober:look{ "a-1-A" }
    local claim = peer.holder:claim("a-1-B", "a-1-A")
    goes_on(thread, "waits")
    fails = true
    local results = ends(thread)
    assert.equal(false, results[1])
    assert.equal(problem, results[2])
    peer.holder:grant(claim)
    peer.holder:expect("queue.delete", { queue = "a-1-B" })
  end)

  describe("that is closed", function()
    before_each(function() collectgarbage "stop" end)
    after_each(function() collectgarbage "restart" end)

    closing_it("while it waits for its claim, that is undone", function()
      local sem = conn:semaphore "a"
      local thread = begin("waits", sem.acquire, sem)
      peer.prober:look{ "a-1-A" }
      local claim = peer.holder:claim("a-1-B", "a-1-A")
      goes_on(thread, "waits")
      assert(coroutine.close(thread))
      peer.holder:expect("queue.delete", { queue = "a-1-B", channel = claim.channel })
    end)

    closing_it("while others wait beside it, they go on", function()
      local function take(name) return assert(conn:semaphore(name):try_acquire()).name end
      local one = begin("waits", take, "a")
      peer.prober:look{ "a-1-A" }
      local claim = peer.holder:claim("a-1-B", "a-1-A")
      local other = begin("waits", take, "b")
      assert(coroutine.close(one))
      peer.holder:expect("queue.delete", { queue = "a-1-B", channel = claim.channel })
      grant "b"
      assert.same({ true, "b" }, ends(other))
    end)

    closing_it("in with's function, the lock is let go of; without an answer, as nothing can wait there", function()
      local sem = conn:semaphore "a"
      local thread = begin("waits", sem.with, sem, function() coroutine.yield "works" end)
      grant "a"
      goes_on(thread, "works")
      assert(coroutine.close(thread))
      peer.holder:delete "a-1-B"
      assert.same({}, conn._driver.losses:watched())
    end)

    closing_it("while it is told of a loss, others are told of the next", function()
      local told = {}
      conn:on_lost(function(lock)
        table.insert(told, lock.name)
        coroutine.yield "is told"
      end)
      local locks = {}
      local function take(name)
        locks[name] = assert(conn:semaphore(name):try_acquire())
        return true
      end
      local claims = {}
      for _, name in ipairs{ "a", "b" } do
        local thread = begin("waits", take, name)
        claims[name] = grant(name)
        assert.same({ true, true }, ends(thread))
      end
      lose(claims.a)
      local thread = begin("is told", locks.b.verify, locks.b)
      assert(coroutine.close(thread))
      peer.holder:ignore()
      lose(claims.b)
      thread = begin("is told", take, "c")
      assert(coroutine.close(thread))
      assert.same({ "a", "b" }, told)
    end)

    closing_it("while it closes the connection, that is closed", function()
      local thread = begin("waits", conn.close, conn)
      assert.equal("closing", peer.holder:state())
      assert(coroutine.close(thread))
      assert.equal("down", peer.holder:state())
    end)
  end)

  it("who is told of waiting may yield", function()
    local mutex = conn:mutex "db"
    local thread = begin("waits", mutex.acquire, mutex, { on_wait = function(seconds, why)
      coroutine.yield { seconds, why }
    end })
    rwlock_scene.looks(peer, "db-mutex", "held")
    rwlock_scene.is_no_squatter(peer, "db-mutex")
    rwlock_scene.welcome(peer, rwlock_scene.makes_bell(peer, "db-mutexbell"))
    rwlock_scene.looks(peer, "db-mutex", "held", true)
    local told = select(2, coroutine.resume(thread))
    assert.same({ 0, "string" }, { told[1], type(told[2]) })
    goes_on(thread, "waits")
  end)

  it("who is told of a loss may yield; others are served meanwhile", function()
    local told = {}
    conn:on_lost(function(lock, code)
      coroutine.yield "is told"
      table.insert(told, { lock.name, code })
    end)
    local locks = {}
    local function take(name) locks[name] = assert(conn:semaphore(name):try_acquire()) end
    local thread = begin("waits", take, "a")
    local claim = grant "a"
    assert.same({ true }, ends(thread))
    lose(claim)
    thread = begin("is told", take, "b")
    grant "b"
    local other = begin("waits", take, "c")
    grant "c"
    assert.same({ true }, ends(other))
    assert.same({}, told)
    assert.same({ true }, ends(thread))
    assert.same({ { "a", "lost" } }, told)
    assert.is_true(locks.b:held() and locks.c:held())
    assert.equal(1, #told)
  end)

  it("a writer can become a reader", function()
    local thread = begin("waits", function()
      local lock = assert(conn:rwlock("db"):write())
      local done = lock:downgrade()
      return done, lock.kind
    end)
    local door = shuts_door()
    goes_on(thread, "waits")
    rwlock_scene.replies(peer, rwlock_scene.reader(peer, true))
    goes_on(thread, "waits")
    peer.holder:expect("queue.declare", { queue = "db-writer", passive = true, channel = door.channel })
    peer.holder:declared(door.channel, "db-writer")
    goes_on(thread, "waits")
    peer.holder:delete("db-writer", door.channel)
    rwlock_scene.rings(peer, "db-rwbell")
    assert.same({ true, true, "read" }, ends(thread))
  end)

  it("a connection can be closed", function()
    local thread = begin("waits", conn.close, conn)
    goes_on(thread, "waits")
    peer.holder:down()
    peer.prober:down()
    assert.same({ true, true }, ends(thread))
  end)
end)

describe("the pcall that may be yielded across", function()
  local function in_coroutine(fn, ...)
    local thread = coroutine.create(fn)
    local results
    repeat results = values.pack(coroutine.resume(thread, ...)) until coroutine.status(thread) == "dead"
    assert.is_true(results[1], results[2])
    return values.unpack(results, 2, results.n)
  end

  it("gives results and errors as they are, in a coroutine and outside", function()
    local problem = {}
    local function try(...)
      assert.same({ true, 1, nil, 3 }, { protected.pcall(function(...) return ... end, ...) })
      assert.same({ true, "2" }, { protected.pcall(tostring, 2) })
      local fine, what = protected.pcall(error, problem, 0)
      assert.is_false(fine)
      assert.equal(problem, what)
      assert.same({ pcall(error) }, { protected.pcall(error) }) -- Lua 5.5 puts a text in place of nil
      return true
    end
    assert.is_true(try(1, nil, 3))
    assert.is_true(in_coroutine(try, 1, nil, 3))
  end)

  it("lets nothing of its own be seen by who asks which coroutine runs, at any depth", function()
    local expected, seen = nil, {}
    local function look(depth)
      coroutine.yield()
      table.insert(seen, protected.running() == expected)
      if depth > 0 then assert(protected.pcall(look, depth - 1)) end
    end
    in_coroutine(function()
      expected = coroutine.running()
      look(3)
    end)
    assert.same({ true, true, true, true }, seen)
  end)

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
    collectgarbage()
    collectgarbage()
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
