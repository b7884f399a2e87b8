-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqplocks.testing: the world's clock, its plans and its bad days. The answers of operations are in the conformance
-- table.
local testing = require "amqplocks.testing"

describe("a world", function()
  local world, conn, rival, kept

  -- Takes a lock that must stay held: one that is collected is free.
  local function keep(lock, ...)
    table.insert(kept, (assert(lock, ...)))
    return lock
  end

  before_each(function()
    kept = {}
    world = testing.new()
    conn, rival = world:connect { name = "own" }, world:connect { name = "rival" }
  end)

  local function fails(code, result, message, its)
    assert.is_nil(result)
    assert.equal(code, its)
    assert.equal(code .. ": ", message:sub(1, #code + 2))
  end

  local function raises(words, fn, ...)
    local fine, problem = pcall(fn, ...)
    assert.is_false(fine)
    assert.equal(words, problem)
  end

  describe("'s clock", function()
    it("moves to what is planned, in order, and no further; each plan passes once, also one of a plan", function()
      local lock, seen = assert(rival:mutex("db"):try_acquire()), {}
      local function note(what) table.insert(seen, what .. " " .. world.now) end
      world:after(3, function()
        note "third"
        world:after(1, function() note "fourth" end)
      end)
      world:after(2, function()
        note "second"
        lock:release()
      end)
      world:after(2, function() note "also" end)
      assert(conn:mutex("db"):acquire { timeout = 5 })
      assert.same({ "second 2", "also 2" }, seen)
      assert.equal(2, world.now)
      world:advance(10)
      assert.same({ "second 2", "also 2", "third 3", "fourth 4" }, seen)
      assert.equal(12, world.now)
    end)

    it("calls on_wait at once and each second, and events tell the times", function()
      local lock, waits, heard = assert(rival:mutex("db"):try_acquire()), {}, {}
      world:after(2.5, function() lock:release() end)
      conn:on_event(function(event) table.insert(heard, event) end)
      local got = assert(conn:mutex("db"):acquire {
        on_wait = function(seconds, reason) table.insert(waits, seconds .. " " .. reason) end,
      })
      world:advance(4)
      assert.is_true(got:release())
      assert.equal("0 it is held by rival", (waits[1]:gsub("^0%.0", "0")))
      assert.equal(3, #waits)
      assert.same({ "waiting", "acquired", "released" }, { heard[1].what, heard[2].what, heard[3].what })
      assert.same({ 2.5, 4, 6.5 }, { heard[2].waited, heard[3].held, heard[3].at })
    end)
  end)

  it("does not wait for ever, but says which acquire would: at once, after the last plan, or an hour of on_wait",
    function()
      local lock = assert(rival:mutex("db"):try_acquire()) -- kept: a lock that is collected is free
      raises('acquire mutex "db" would wait for ever: it is held by rival, and nothing is planned that could change it',
        function() conn:mutex("db"):acquire() end)
      assert.equal(0, conn:stats().waiting)
      world:after(1, function() end)
      assert.is_false(pcall(function() conn:mutex("db"):acquire() end))
      assert.equal(1, world.now)
      local waits = 0
      local function count()
        waits = waits + 1
        return waits > 4000
      end
      assert.is_false(pcall(function() conn:mutex("db"):acquire { on_wait = count } end))
      assert.is_true(waits > 3000)
      assert.is_true(lock:held())
    end)

  describe("has bad days:", function()
    it("a connection is cut, and loses all its locks", function()
      local heard = {}
      conn:on_event(function(event) table.insert(heard, event.what .. " " .. (event.link or event.name)) end)
      local one, other = assert(conn:mutex("a"):try_acquire()), assert(conn:rwlock("b"):try_read())
      world:lose(conn)
      assert.is_false(one:held())
      assert.is_false(other:held())
      assert(conn:mutex("a"):try_acquire())
      table.sort(heard)
      assert.same({
        "acquired a", "acquired a", "acquired b", "down holder", "down prober", "lost a", "lost b", "up holder",
        "up prober",
      }, heard)
    end)

    it("a lock is suspect until its holder asks; it is asked for, and lost", function()
      local lock = assert(conn:mutex("db"):try_acquire())
      world:suspect(lock)
      fails("suspect", nil, select(2, lock:held()))
      assert.is_true(conn:stats().silence > 10)
      assert.equal(0, lock:certain_for())
      assert.is_true(lock:verify())
      assert.is_true(lock:held())
      world:revoke(lock)
      assert.is_true(lock:revoked() and lock:held())
      world:suspect(lock)
      world:lose(lock)
      fails("lost", lock:verify())
    end)

    it("operations fail, and a patient one goes on", function()
      world:fail("unreachable", 2)
      fails("unreachable", conn:mutex("db"):try_acquire())
      fails("unreachable", world:connect())
      local lock = assert(conn:mutex("db"):try_acquire())
      world:fail("unreachable", 2)
      fails("unreachable", lock:verify())
      fails("unreachable", lock:release())
      keep(rival:mutex("db"):try_acquire()) -- it was released nevertheless
      world:fail "refused"
      fails("refused", conn:admin("s"):resize(3))
      assert.equal(0, conn:admin("s"):slots())
      world:fail("unreachable", 3)
      local reasons = {}
      assert(conn:mutex("other"):acquire { patient = true, timeout = 10, on_wait = function(_, reason)
        table.insert(reasons, reason)
      end })
      assert.equal(3, world.now)
      assert.equal("unreachable: world:fail() wants it", reasons[1])
      world:fail("unreachable", 100)
      fails("timeout", conn:mutex("third"):acquire { patient = true, timeout = 10 })
    end)
  end)

  it("logs and reports as connect's options say, a loss in the next call that may wait", function()
    local notes, lost = {}, {}
    local other = assert(world:connect {
      log = function(level, note) table.insert(notes, level .. " " .. note) end,
      on_lost = function(_, code, message) table.insert(lost, code .. " " .. message) end,
    })
    local lock = assert(other:mutex("db"):try_acquire())
    world:revoke(lock)
    world:lose(lock, "a reason")
    assert.same({}, lost)
    fails("lost", lock:verify())
    assert.same({ 'lost lost: mutex of "db": a reason' }, lost)
    assert.equal(1, other:stats().lost)
    local log = world:log()
    assert.same({ at = 0, connection = "own", what = "connect", result = "ok" }, log[1])
    assert.same({ "acquire", "mutex", "db", "ok" }, { log[4].what, log[4].kind, log[4].name, log[4].result })
    assert.same({ 'info mutex of "db" was asked for', 'warning mutex of "db" was lost: a reason' }, notes)
  end)

  it("frees what is collected", function()
    assert(conn:mutex("db"):try_acquire())
    for _ = 1, 2 do collectgarbage() end
    keep(rival:mutex("db"):try_acquire())
  end)

  it("names wrong arguments", function()
    assert(conn:token_semaphore("p"):resize(2))
    keep(rival:token_semaphore("p"):try_acquire())
    for words, call in pairs{
      ["after: the time must be a number of seconds, finite and not negative, not -1"] = { world.after, world, -1 },
      ["fail: nonsense is no code of an operation"] = { world.fail, world, "nonsense" },
      ["lose: a lock of this world must be given, not nil"] = { world.lose, world },
      ["pollfd: a connection of amqplocks.testing has no descriptor"] = { conn.pollfd, conn },
      ["permits: more than that are held"] = { world.permits, world, "p", 0 },
    } do
      raises(words, (table.unpack or unpack)(call, 1, 4))
    end
    for _, call in ipairs{ { world.after, 1 }, { world.resize, "s", -1 }, { world.connect, { nmae = "x" } } } do
      assert.has_error(function() call[1](world, (table.unpack or unpack)(call, 2)) end)
    end
  end)

  it("is refused inside nginx", function()
    rawset(_G, "ngx", {})
    local fine, problem = pcall(testing.new)
    rawset(_G, "ngx", nil)
    assert.same({ false, "amqplocks.testing: not inside nginx: tests run in a Lua of their own" }, { fine, problem })
  end)
end)
