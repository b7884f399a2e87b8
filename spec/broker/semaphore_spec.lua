-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local amqplocks = require "amqplocks"
local stage = require "spec.support.stage"

local function semaphore(name, options) return stage.connect():semaphore(name, options) end

-- That a lock whose scope has ended says so, whatever it is asked.
local function assert_over(lock)
  stage.fails("not_held", lock:held())
  stage.fails("not_held", lock:verify())
  stage.fails("not_held", lock:release())
  assert.is_false(lock:revoked())
  assert.matches("not_held", tostring(lock), 1, true)
end

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
    assert.same({ 1, 2 }, { one.slot, two.slot })
    assert.same({ name, name }, { one.name, two.name })
    assert.matches("^%x+$", one.ticket)
    assert.equal(16, #one.ticket)
    assert.not_equal(one.ticket, two.ticket)
    assert.is_true(stage.is_since(before, one.acquired_at) and stage.is_since(before, two.acquired_at))
    assert.is_true(one.acquired_at <= two.acquired_at)
  end)

  for _, slots in ipairs{ 15, 16, 17, 50 } do
    it("finds the only free one of " .. slots .. " slots, and none when that is held", function()
      local name, holder = stage.semaphore(slots), stage.client()
      for i = 1, slots - 1 do assert(holder:declare(stage.holder(name, i), { exclusive = true })) end
      local sem, rival = semaphore(name), semaphore(name)
      assert.equal(slots, stage.take(sem).slot)
      assert.is_true(stage.held(name, slots))
      stage.fails("busy", sem:try_acquire())
      stage.fails("busy", rival:try_acquire())
    end)
  end

  it("says which queue squats on a slot, until that is deleted", function()
    local name, squatter = stage.semaphore(1), stage.client()
    assert(squatter:declare(stage.holder(name, 1), { durable = true }))
    stage.undo(function() stage.delete(stage.holder(name, 1)) end)
    local message = stage.fails("squatted", semaphore(name):try_acquire())
    assert.matches(stage.holder(name, 1), message, 1, true)
    stage.delete(stage.holder(name, 1))
    assert.equal(1, stage.take(semaphore(name)).slot)
  end)
end)

describe("acquire", function()
  it("takes what is free at once, with a timeout, without, and with none to wait", function()
    local name = stage.semaphore(4)
    local sem = semaphore(name)
    local locks = { assert(sem:acquire{ timeout = 5 }), assert(sem:acquire()), assert(sem:acquire{}),
      assert(sem:acquire{ timeout = 0 }) }
    for slot, lock in ipairs(locks) do
      assert.equal(slot, lock.slot)
      assert.is_true(lock:held() and stage.held(name, slot))
    end
  end)

  it("times out, and says after how long and how many were held", function()
    local name = stage.semaphore(2)
    stage.occupy(name, 1)
    stage.occupy(name, 2)
    local sem = semaphore(name)
    local message, seconds = stage.times_out(function(seconds) return sem:acquire{ timeout = seconds } end,
      function(message) return message:find("(2 of 2 held)", 1, true) end)
    assert.equal(('timeout: no slot of "%s" came free within %g s (2 of 2 held)'):format(name, seconds), message)
  end)

  for how, options in pairs{ ["with a timeout"] = "{ timeout = 15 }", ["for ever"] = "" } do
    it("waits " .. how .. " and takes the slot that another process releases", function()
      local name = stage.semaphore(2)
      local one, two = stage.occupy(name, 1), stage.occupy(name, 2)
      local waiter = stage.process(name)
      waiter:begin("lock = assert(sem:acquire(" .. options .. ")) return lock.slot")
      one:await_looks(3)
      two:release()
      assert.equal(2, waiter:finish())
      assert.is_true(stage.held(name, 2))
      stage.fails("busy", semaphore(name):try_acquire())
      assert.is_true(waiter:run("return lock:release()"))
      assert.is_true(stage.free(name, 2))
    end)
  end

  it("takes a slot that is added while it waits", function()
    local name = stage.semaphore(1)
    local occupant, waiter = stage.occupy(name, 1), stage.process(name)
    waiter:begin("return assert(sem:acquire{ timeout = 15 }).slot")
    occupant:await_looks(2)
    stage.add(name, 2, 2)
    assert.equal(2, waiter:finish())
  end)

  it("ends when the semaphore is destroyed while it waits", function()
    local name = stage.semaphore(1)
    local occupant, waiter = stage.occupy(name, 1), stage.process(name)
    waiter:begin("return sem:acquire()")
    occupant:await_looks(2)
    stage.remove(name, 1)
    stage.fails("not_found", waiter:finish())
  end)
end)

describe("the strategy", function()
  local function visits(sem, times)
    local slots = {}
    for i = 1, times do
      local lock = stage.take(sem)
      slots[i] = lock.slot
      assert(lock:release())
    end
    return slots
  end

  it("ascending begins with slot 1 every time", function()
    local name = stage.semaphore(3)
    assert.same({ 1, 1, 1 }, visits(semaphore(name, { strategy = "ascending" }), 3))
    assert.same({ 1, 1, 1 }, visits(semaphore(name), 3))
  end)

  it("last begins where it was before, and goes round", function()
    local name = stage.semaphore(3)
    local one, two = stage.occupy(name, 1), stage.occupy(name, 2)
    local sem = semaphore(name, { strategy = "last" })
    assert.same({ 3 }, visits(sem, 1))
    one:release()
    two:release()
    assert.same({ 3, 3 }, visits(sem, 2))
    stage.occupy(name, 3)
    assert.same({ 1, 1 }, visits(sem, 2))
  end)

  it("random comes to every slot", function()
    local seen = {}
    for _, slot in ipairs(visits(semaphore(stage.semaphore(3), { strategy = "random" }), 60)) do seen[slot] = true end
    assert.same({ true, true, true }, seen)
  end)
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
  it("never get the same slot, whoever asks", function()
    local name = stage.semaphore(3)
    local conn = stage.connect()
    local one, two = conn:semaphore(name), conn:semaphore(name, { probe = "passive", strategy = "random" })
    local slots = {}
    for i, sem in ipairs{ one, two, one } do slots[i] = stage.take(sem).slot end
    table.sort(slots)
    assert.same({ 1, 2, 3 }, slots)
    stage.fails("busy", one:try_acquire())
    stage.fails("busy", two:try_acquire())
  end)

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

  if coroutine.close then
    it("releases when the coroutine it yields in is closed", function()
      local name = stage.semaphore(1)
      local sem = stage.connect():semaphore(name)
      local co = coroutine.create(function() sem:with(function() coroutine.yield() end) end)
      assert(coroutine.resume(co))
      assert.is_true(stage.held(name, 1))
      assert.is_true(coroutine.close(co))
      assert.is_true(stage.free(name, 1))
    end)
  end

  it("rethrows an error with its place, and an error that is nil, after the release", function()
    local name = stage.semaphore(1)
    local sem = semaphore(name)
    local _, problem = pcall(sem.with, sem, function() error("with a place") end)
    assert.matches("_spec%.lua:%d+: with a place$", problem)
    assert.is_true(stage.free(name, 1))
    -- Lua 5.5 puts a text in place of nil.
    assert.same(results(pcall(error, nil, 0)), results(pcall(sem.with, sem, function() error(nil, 0) end)))
    assert.is_true(stage.free(name, 1))
  end)

  it("leaves a lock that says it is not held, to those who still have it", function()
    local name, kept = stage.semaphore(1)
    assert(semaphore(name):with(function(lock) kept = lock end))
    assert_over(kept)
    assert.is_true(stage.free(name, 1))
  end)

  it("nests", function()
    local name = stage.semaphore(2)
    local sem = semaphore(name)
    assert.same({ true, 1, true, 2 }, { sem:with(function(outer)
      return outer.slot, sem:with(function(inner) return inner.slot end)
    end) })
    assert.is_true(stage.free(name, 1) and stage.free(name, 2))
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

  close_it("at the end of a <close> block says that it is not held, to those who still have it", function()
    local name, kept = stage.semaphore(1)
    local block = assert(load_text("local sem, inside = ... local lock <close> = assert(sem:acquire()) inside(lock)"))
    block(semaphore(name), function(lock) kept = lock end)
    assert_over(kept)
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

  local not_a_number = 0 / 0

  -- What is called, and words of the error.
  local cases = {
    { function() conn:semaphore() end, "semaphore: the name must be a string, not nil" },
    { function() conn:semaphore("") end, "semaphore: the name is empty" },
    { function() conn:semaphore("amq.lock") end, "semaphore: the name starts with \"amq.\"" },
    { function() conn:semaphore("two\nlines") end, "semaphore: the name holds a control character" },
    { function() conn:semaphore("zero\0") end, "semaphore: the name holds a control character" },
    { function() conn:semaphore("\255\254") end, "semaphore: the name is not UTF-8" },
    { function() conn:semaphore(("x"):rep(231)) end, "semaphore: the name is too long" },
    { function() conn:semaphore("x", "fast") end, "semaphore: options must be a table, not \"fast\"" },
    { function() conn:semaphore("x", { timeout = 5 }) end, "semaphore: unknown option \"timeout\"" },
    { function() conn:semaphore("x", { strategy = "luck" }) end, "semaphore: option strategy must be one of" },
    { function() conn:semaphore("x", { probe = true }) end, "semaphore: option probe must be one of" },
    { function() conn:semaphore("x", { max_attempts = 0 }) end, "option max_attempts must be a whole number" },
    { function() sem:acquire(5) end, "acquire: options must be a table, not 5" },
    { function() sem:acquire{ timeout = "5" } end, "acquire: option timeout must be a number of seconds" },
    { function() sem:acquire{ timeout = -1 } end, "acquire: option timeout must be a number of seconds" },
    { function() sem:acquire{ timeout = math.huge } end, "acquire: option timeout must be a number of seconds" },
    { function() sem:acquire{ time_out = 5 } end, "acquire: unknown option \"time_out\"" },
    { function() sem:with() end, "with: a function must be given, not nil" },
    { function() sem:with({}, "work") end, "with: a function must be given, not string" },
    { function() amqplocks.connect(5672) end, "connect: the URL must be a string, a list of strings without holes, " ..
      "or a function that returns either, not 5672" },
    { function() amqplocks.connect(nil, { heartbeat = 0 }) end, "connect: option heartbeat must be a whole number" },
    { function() amqplocks.connect(nil, { timeout = 0 }) end, "connect: option timeout must be more than 0 seconds" },
    { function() amqplocks.connect(nil, { timeout = not_a_number }) end, "connect: option timeout must be a number" },
    { function() amqplocks.connect(nil, { name = "a\255" }) end, "bytes of UTF-8 without control characters, not" },
    { function() amqplocks.connect(nil, { driver = "magic" }) end, "connect: option driver must be one of \"native\"" },
    { function() amqplocks.connect(nil, { on_lost = "print" }) end, "option on_lost must be a function or false" },
    { function() amqplocks.connect(nil, { tls = true }) end, "connect: option tls must be a table" },
    { function() amqplocks.connect(nil, { tls = { verify = "no" } }) end, "connect.tls: option verify must be true" },
    { function() amqplocks.connect("amqp://localhost", { tls = {} }) end, "option tls needs an amqps:// URL" },
  }

  for option, wanted in pairs{ fair = "true or false", on_wait = "a function", poll = "more than 0 seconds",
    priority = "a whole number from -32768 to 32767" } do
    local wrong = option == "priority" and 0.5 or 0
    table.insert(cases, { function() sem:acquire{ [option] = wrong } end,
      ("acquire: option %s must be %s"):format(option, wanted) })
  end
  for _, option in ipairs{ "exclusive", "priority" } do
    table.insert(cases, { function() amqplocks.connect(nil, { [option] = print }) end,
      ('connect: unknown option "%s"'):format(option) })
  end

  for _, case in ipairs(cases) do
    it("throws: " .. case[2], function()
      local fine, problem = pcall(case[1])
      assert.is_false(fine)
      assert.matches(case[2], problem, 1, true)
    end)
  end

  it("never shows the password of a URL", function()
    local problem = stage.fails("url", amqplocks.connect "amqp://guest:s3cret@localhost:notaport/")
    assert.is_nil(problem:find("s3cret", 1, true))
  end)
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
