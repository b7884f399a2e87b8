-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local amqplocks = require "amqplocks"
local stage = require "spec.support.stage"

local function semaphore(name, options) return stage.connect():semaphore(name, options) end

after_each(stage.clear)
teardown(stage.check)

describe("try_acquire", function()
  it("takes slots 1, 2 and 3, then is busy", function()
    local name = stage.semaphore(3)
    local sem, rival = semaphore(name), semaphore(name)
    for slot = 1, 3 do
      assert.is_true(stage.free(name, slot))
      assert.equal(slot, stage.take(sem).slot)
      assert.is_true(stage.held(name, slot))
    end
    for _, one in ipairs{ sem, rival } do
      assert.equal(('busy: all 3 slots of "%s" are held'):format(name), stage.fails("busy", one:try_acquire()))
    end
  end)

  it("finds no semaphore where there is none, and takes nothing", function()
    local name = stage.name()
    local message = stage.fails("not_found", semaphore(name):try_acquire())
    assert.matches(name, message, 1, true)
    assert.is_true(stage.free(name, 1))
  end)

  it("gives a lock that knows its slot, name, ticket and time", function()
    local name, before = stage.semaphore(2), os.time()
    local sem = semaphore(name)
    local one, two = stage.take(sem), stage.take(sem)
    assert.same({ 1, 2, name, name }, { one.slot, two.slot, one.name, two.name })
    assert.matches("^%x+$", one.ticket)
    assert.equal(16, #one.ticket)
    assert.not_equal(one.ticket, two.ticket)
    assert.is_true(stage.is_since(before, one.acquired_at))
  end)

  it("finds the only free one of 17 slots, and none when that is held", function()
    local name, holder = stage.semaphore(17), stage.client()
    for i = 1, 16 do assert(holder:declare(stage.holder(name, i), { exclusive = true })) end
    local sem, rival = semaphore(name), semaphore(name)
    assert.equal(17, stage.take(sem).slot)
    assert.is_true(stage.held(name, 17))
    for _, one in ipairs{ sem, rival } do stage.fails("busy", one:try_acquire()) end
  end)
end)

describe("acquire", function()
  it("times out, and says after how long and how many were held", function()
    local name = stage.semaphore(2)
    stage.occupy(name, 1)
    stage.occupy(name, 2)
    local sem = semaphore(name)
    local message, seconds = stage.times_out(function(seconds) return sem:acquire{ timeout = seconds } end,
      function(message) return message:find("(2 of 2 held)", 1, true) end)
    assert.equal(('timeout: no slot of "%s" came free within %g s (2 of 2 held)'):format(name, seconds), message)
  end)

  it("waits and takes the slot that another process releases", function()
    local name = stage.semaphore(2)
    local one, two = stage.occupy(name, 1), stage.occupy(name, 2)
    local waiter = stage.process(name)
    waiter:begin("lock = assert(sem:acquire()) return lock.slot")
    one:await_looks(3)
    two:release()
    assert.equal(2, waiter:finish())
    assert.is_true(stage.held(name, 2))
    stage.fails("busy", semaphore(name):try_acquire())
    assert.is_true(waiter:run("return lock:release()"))
    assert.is_true(stage.free(name, 2))
  end)
end)

it("the strategy last begins where it was before, and goes round", function()
  local name = stage.semaphore(3)
  local sem = semaphore(name, { strategy = "last" })
  local function visit(slot)
    local lock = stage.take(sem)
    assert.equal(slot, lock.slot)
    assert(lock:release())
  end
  local one, two = stage.occupy(name, 1), stage.occupy(name, 2)
  visit(3)
  one:release()
  two:release()
  visit(3)
  stage.occupy(name, 3)
  visit(1)
  visit(1)
end)

describe("probing", function()
  for _, probe in ipairs{ "publish", "passive", "auto" } do
    it(probe .. " finds the free slots, the end of them, and no semaphore", function()
      local name, nothing = stage.semaphore(20), stage.name()
      local conn, holder = stage.connect(), stage.client()
      for i = 1, 18 do assert(holder:declare(stage.holder(name, i), { exclusive = true })) end
      local sem = conn:semaphore(name, { probe = probe })
      assert.equal(19, stage.take(sem).slot)
      assert.equal(20, stage.take(sem, { timeout = 5 }).slot)
      assert.is_true(stage.held(name, 19) and stage.held(name, 20))
      stage.fails("busy", sem:try_acquire())
      stage.fails("timeout", sem:acquire{ timeout = 0.2 })
      stage.fails("not_found", conn:semaphore(nothing, { probe = probe }):try_acquire())
    end)

    it(probe .. " verifies a lock, and sees its slot removed", function()
      local name = stage.semaphore(1)
      local lock = stage.take(semaphore(name, { probe = probe }))
      assert.is_true(lock:verify())
      stage.remove(name, 1)
      stage.fails("removed", lock:verify())
      assert.is_true(stage.held(name, 1))
    end)
  end
end)

describe("two acquires of one connection", function()
  -- A driver with an event loop has many under way at a time; here they are begun before any is waited for.
  it("never get the same slot when they are under way together", function()
    local name = stage.semaphore(3)
    local conn = stage.connect()
    local sem = conn:semaphore(name)
    for _ = 1, 5 do
      local operations, locks, codes = {}, {}, {}
      for i = 1, 5 do operations[i] = sem._core:acquire(0) end
      for _, operation in ipairs(operations) do
        while not operation:done() do conn._session:wait(operation) end
        local lock, _, code = operation:result()
        table.insert(lock and locks or codes, lock or code)
      end
      local slots = {}
      for i, lock in ipairs(locks) do slots[i] = lock:info() end
      table.sort(slots)
      assert.same({ 1, 2, 3 }, slots)
      assert.same({ "busy", "busy" }, codes)
      for slot = 1, 3 do assert.is_true(stage.held(name, slot)) end
      for _, lock in ipairs(locks) do
        local release = lock:release()
        while not release:done() do conn._session:wait(release) end
      end
    end
  end)

  it("would wait for each other for ever: deadlock, at once", function()
    local name = stage.semaphore(2)
    local sem = semaphore(name)
    local locks = { stage.take(sem), stage.take(sem) }
    local message = stage.fails("deadlock", sem:acquire{ timeout = 10 })
    assert.matches(name, message, 1, true)
    stage.fails("deadlock", sem:acquire())
    stage.fails("busy", sem:try_acquire())
    for slot, lock in ipairs(locks) do assert.is_true(lock:verify() and stage.held(name, slot)) end
    assert(locks[1]:release())
    stage.occupy(name, 1)
    stage.fails("timeout", sem:acquire{ timeout = 0.1 }) -- somebody else may release that slot
  end)
end)

describe("with", function()
  local function results(...) return { n = select("#", ...), ... } end

  it("calls the function with the lock and the arguments, and returns true and what it returns", function()
    local name = stage.semaphore(1)
    local sem = semaphore(name)
    local function work(lock, ...)
      assert.is_true(lock:held())
      assert.is_true(stage.held(name, lock.slot))
      return select("#", ...), nil, ...
    end
    assert.same(results(true, 3, nil, "a", nil, "c"), results(sem:with(work, "a", nil, "c")))
    assert.is_true(stage.free(name, 1))
    assert.same(results(true, 1, nil, "b"), results(sem:with({ timeout = 5 }, work, "b")))
    assert.same(results(true, 0, nil), results(sem:with(nil, work)))
    assert.same(results(true), results(sem:with(function() end)))
    assert.is_true(stage.free(name, 1))
  end)

  it("leaves a lock that says it is not held, to those who still have it", function()
    local name, kept = stage.semaphore(1)
    assert(semaphore(name):with(function(lock) kept = lock end))
    for _, what in ipairs{ "held", "verify", "release" } do stage.fails("not_held", kept[what](kept)) end
    assert.is_true(stage.free(name, 1))
  end)
end)

describe("a lock that goes out of scope", function()
  local load_text = loadstring or load -- luacheck: ignore 113
  local has_close = load_text("local x <close> = nil") ~= nil
  local close_it = has_close and it or pending

  close_it("at the end of a <close> block is released, also by an error", function()
    local name = stage.semaphore(1)
    local block = assert(load_text([[
      local sem, inside = ...
      local lock <close> = assert(sem:acquire{ timeout = 5 })
      inside(lock)
    ]]))
    block(semaphore(name), function(lock) assert.is_true(lock:held() and stage.held(name, 1)) end)
    assert.is_true(stage.free(name, 1))
    local fine, problem = pcall(block, semaphore(name), function() error({ "unchanged" }) end)
    assert.is_false(fine)
    assert.same({ "unchanged" }, problem)
    assert.is_true(stage.free(name, 1))
  end)

  close_it("with its connection, at the end of a <close> block, is released", function()
    local name = stage.semaphore(1)
    assert(load_text([[
      local connect, name, inside = ...
      local conn <close> = assert(connect())
      local lock = assert(conn:semaphore(name):acquire())
      inside(lock)
    ]]))(amqplocks.connect, name, function() assert.is_true(stage.held(name, 1)) end)
    assert.is_true(stage.free(name, 1))
  end)

  it("is released when it is collected", function()
    local name = stage.semaphore(1)
    local sem = semaphore(name)
    assert(sem:try_acquire())
    collectgarbage()
    collectgarbage()
    stage.until_free(name, 1)
    assert.matches("open", tostring(sem._connection))
  end)

  it("is not released while only the lock itself is still known", function()
    local name = stage.semaphore(1)
    local lock = assert(assert(amqplocks.connect()):semaphore(name):try_acquire())
    for _ = 1, 3 do collectgarbage() end
    assert.is_true(lock:held() and stage.held(name, 1))
    assert.is_true(lock:verify())
    assert(lock:release())
    assert.is_true(stage.free(name, 1))
  end)

  it("is released when its connection is collected with it", function()
    local name = stage.semaphore(2)
    do
      local conn = assert(amqplocks.connect())
      conn.one = assert(conn:semaphore(name):try_acquire())
      conn.two = assert(conn:semaphore(name):try_acquire())
    end
    for _ = 1, 3 do collectgarbage() end
    stage.until_free(name, 1)
    stage.until_free(name, 2)
  end)
end)

describe("two semaphores", function()
  it("may have any name that is UTF-8 without control characters", function()
    local conn = stage.connect()
    for _, suffix in ipairs{ " with spaces ", " ß漢🔒", "%s%d %n", "\"'`$(x)\\", "#*./:?&=", "-0-A" } do
      local name = stage.semaphore(1, suffix)
      local lock = stage.take(conn:semaphore(name))
      assert.equal(name, lock.name)
      assert.is_true(stage.held(name, 1))
      assert.is_true(lock:verify())
      assert.matches(name, stage.fails("busy", stage.connect():semaphore(name):try_acquire()), 1, true)
      assert(lock:release())
    end
  end)

  it("may have a name of 230 bytes, and messages stay whole", function()
    local name = stage.name()
    local long = stage.semaphore(1, ("x"):rep(230 - #name - 1))
    long = #long <= 230 and long or long:sub(1, 230)
    local conn = stage.connect()
    stage.take(conn:semaphore(long))
    assert.is_true(stage.held(long, 1))
    assert.matches("are held$", stage.fails("busy", conn:semaphore(long):try_acquire()))
  end)
end)

describe("misuse", function()
  local conn, sem

  setup(function()
    conn = assert(amqplocks.connect())
    sem = conn:semaphore("spec.misuse")
  end)

  teardown(function() conn:close() end)

  -- What is called, and words of the error. Wrong values of all options are in spec/unit/lua/options_fuzz_spec.lua.
  local cases = {
    { function() conn:semaphore() end, "semaphore: the name must be a string, not nil" },
    { function() conn:semaphore("two\nlines") end, "semaphore: the name holds a control character" },
    { function() conn:semaphore("x", "fast") end, "semaphore: options must be a table, not \"fast\"" },
    { function() conn:semaphore("x", { timeout = 5 }) end, "semaphore: unknown option \"timeout\"" },
    { function() conn:semaphore("x", { strategy = "luck" }) end, "semaphore: option strategy must be one of" },
    { function() sem:acquire{ timeout = "5" } end, "acquire: option timeout must be a number of seconds" },
    { function() sem:acquire{ priority = 0.5 } end, "option priority must be a whole number from -32768 to 32767" },
    { function() sem:with() end, "with: a function must be given, not nil" },
    { function() sem:with({}, "work") end, "with: a function must be given, not string" },
    { function() amqplocks.connect(5672) end, "connect: the URL must be a string, a list of strings without holes, " ..
      "or a function that returns either, not 5672" },
    { function() amqplocks.connect(nil, { timeout = 0 }) end, "connect: option timeout must be more than 0 seconds" },
    { function() amqplocks.connect(nil, { driver = "magic" }) end, "connect: option driver must be one of \"native\"" },
    { function() amqplocks.connect("amqp://localhost", { tls = {} }) end, "option tls needs an amqps:// URL" },
  }
  for _, case in ipairs(cases) do
    it("throws: " .. case[2], function()
      local fine, problem = pcall(case[1])
      assert.is_false(fine)
      assert.matches(case[2], problem, 1, true)
    end)
  end
end)

describe("every object", function()
  it("has a name of its kind, and a text", function()
    local name = stage.semaphore(1)
    local conn = stage.connect(nil, { name = "the spec" })
    local sem = conn:semaphore(name)
    local lock = stage.take(sem)
    for kind, object in pairs{ connection = conn, semaphore = sem, lock = lock, admin = conn:admin(name) } do
      assert.equal("amqplocks." .. kind, getmetatable(object).__name)
      assert.matches("^amqplocks%." .. kind .. " %(", tostring(object))
    end
    assert.equal("amqplocks.connection (the spec, open)", tostring(conn))
    assert.equal(('amqplocks.semaphore ("%s")'):format(name), tostring(sem))
    assert.equal(('amqplocks.lock ("%s", slot 1, held)'):format(name), tostring(lock))
    assert(lock:release())
    assert.equal(('amqplocks.lock ("%s", slot 1, not_held)'):format(name), tostring(lock))
    conn:close()
    assert.equal("amqplocks.connection (the spec, closed)", tostring(conn))
  end)

  it("tells the version of the module", function() assert.matches("^amqplocks %d+%.%d+%.%d+$", amqplocks._VERSION) end)
end)
