-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Processes that end or stall while they hold a lock or wait for one; and their children.
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

after_each(stage.clear)
teardown(stage.check)

describe("a process that holds a lock", function()
  local function holder(slots, options)
    local name = stage.semaphore(slots or 1)
    local new = stage.process(name, options)
    assert.equal(1, new:run("lock = assert(sem:acquire{ timeout = 20 }) return lock.slot"))
    assert.is_true(stage.held(name, 1))
    return new, name
  end

  it("and is killed leaves it to one that waits", function()
    local held, name = holder()
    local waiter = stage.process(name)
    assert.equal("busy", waiter:run("return select(3, sem:try_acquire())"))
    waiter:begin("lock = assert(sem:acquire{ timeout = 20 }) return lock.slot")
    held:kill()
    assert.equal(1, waiter:finish())
    assert.is_true(stage.held(name, 1))
    assert.is_true(waiter:run("return lock:verify()"))
  end)

  it("and is killed with forty of them leaves them all", function()
    local held, name = holder(40)
    held:run("locks = {} for i = 2, 40 do locks[i] = assert(sem:try_acquire()) end")
    assert.is_true(stage.held(name, 40))
    held:kill()
    local sem, slots = stage.connect():semaphore(name), {}
    for i = 1, 40 do slots[i] = stage.take(sem, { timeout = 20 }).slot end
    table.sort(slots)
    for i = 1, 40 do assert.equal(i, slots[i]) end
  end)

  for how, code in pairs{ ["ends"] = "os.exit(0)", ["closes Lua and ends"] = "os.exit(0, true)",
    ["fails"] = "error('oh')" } do
    it("and " .. how .. " leaves it", function()
      local held, name = holder()
      held:begin(code)
      held:await_end()
      stage.until_free(name, 1)
      assert.equal(1, stage.take(stage.connect():semaphore(name)).slot)
    end)
  end

  it("and is killed does not leave it to the programs it started", function()
    local held, name = holder()
    local started = { held:run([[
      pipe = io.popen("echo $$; exec sleep 100")
      local other = io.popen("sleep 100 >/dev/null & echo $!")
      return pipe:read("*n"), other:read("*n")
    ]]) }
    stage.undo(function() for _, pid in ipairs(started) do os.execute("kill -s KILL " .. pid) end end)
    held:kill()
    stage.until_free(name, 1)
    assert.equal(1, stage.take(stage.connect():semaphore(name)).slot)
    for _, pid in ipairs(started) do process.shell("kill", "-s", "0", tostring(pid)) end
  end)

  it("and was stopped until the broker gave it to another knows that at the first look", function()
    local held, name = holder(1, "{ heartbeat = 1 }")
    held:signal("STOP")
    stage.until_free(name, 1)
    local rival = stage.take(stage.connect():semaphore(name))
    held:signal("CONT")
    local still, _, code = held:run("return lock:held()")
    assert.is_false(still)
    assert.is_true(code == "suspect" or code == "lost", code)
    stage.fails("lost", held:run("return lock:verify()"))
    stage.fails("lost", held:run("return lock:held()"))
    assert.is_true(rival:verify() and stage.held(name, 1))
    assert(rival:release())
    assert.equal(1, held:run("lock = assert(sem:acquire{ timeout = 20 }) return lock.slot"))
    assert.is_true(stage.held(name, 1))
  end)

  it("keeps it while it waits for another, well past two heartbeats", function()
    local held, name = holder(1, "{ heartbeat = 1 }")
    local busy = stage.semaphore(1)
    stage.occupy(busy, 1)
    stage.fails("timeout", held:run("return conn:semaphore(...):acquire{ timeout = 4 }", busy))
    until_true(function() return held:run("return lock:held()") end) -- never again, had it been lost
    assert.is_true(stage.held(name, 1))
  end)
end)

describe("a process that waits for a lock", function()
  local function waiting(code)
    local name = stage.semaphore(1)
    local occupant, waiter = stage.occupy(name, 1), stage.process(name)
    waiter:begin(code)
    occupant:await_looks(2)
    return waiter, name, occupant
  end

  it("ends when it is interrupted", function()
    local waiter, name, occupant = waiting("sem:acquire()")
    waiter:signal("INT")
    waiter:await_end()
    assert.matches("interrupted!", waiter:output(), 1, true)
    occupant:release()
    assert.equal(1, stage.take(stage.connect():semaphore(name)).slot)
  end)

  it("may catch the interrupt, and acquire again", function()
    local waiter, name, occupant = waiting("return pcall(sem.acquire, sem)")
    waiter:signal("INT")
    local fine, problem = waiter:finish()
    assert.is_false(fine)
    assert.matches("interrupted!", problem, 1, true)
    stage.fails("busy", waiter:run("return sem:try_acquire()"))
    occupant:release()
    assert.is_true(stage.free(name, 1))
    assert.equal(1, waiter:run("lock = assert(sem:try_acquire()) return lock.slot"))
    assert.is_true(stage.held(name, 1))
    assert.is_true(waiter:run("return lock:release()"))
    assert.is_true(stage.free(name, 1))
  end)
end)

describe("the child of a fork", function()
  local cpath

  setup(function() cpath = process.c_module("fork") end)
  teardown(process.remove_modules)
  -- A process that holds a lock and can call in_child(fn): what fn returns in a child, then the child's status. It is
  -- the address sanitizer's business that a child does not give back what its parent allocated.
  local function forking(url, options)
    local name = stage.semaphore(2)
    local new = process.start{ ASAN_OPTIONS = (os.getenv "ASAN_OPTIONS" or "") .. ":detect_leaks=0" }
    new:run([[
      local cpath, file, url, name = ...
      package.cpath = cpath .. package.cpath
      local fork, values = require "fork", require "spec.support.programs.values"
      function in_child(fn)
        local pid = fork.fork()
        if pid == 0 then
          local text, results = values.encode(fn()), assert(io.open(file, "w"))
          results:write(text)
          results:close()
          fork.exit(0)
        end
        local status, written = fork.wait(pid), io.open(file)
        if not written then return status end
        local results = values.decode(written:read("*a"))
        written:close()
        os.remove(file)
        results[results.n + 1] = status
        return values.unpack(results, 1, results.n + 1)
      end
      function connect() return assert(require("amqplocks").connect(url, ]] .. (options or "nil") .. [[)) end
      conn = connect()
      sem, admin = conn:semaphore(name), conn:admin(name)
      lock = assert(sem:acquire{ timeout = 20 })
    ]], cpath, os.tmpname(), url, name)
    return new, name
  end

  local function assert_untouched(parent, name)
    assert.is_true(stage.held(name, 1))
    assert.is_true(parent:run("return lock:held()"))
    assert.is_true(parent:run("return lock:verify()"))
    assert.equal(2, parent:run("another = assert(sem:try_acquire()) return another.slot"))
    assert.is_true(parent:run("return another:release() and lock:release()"))
    assert.is_true(stage.free(name, 1))
  end

  local secure = "{ tls = { ca = os.getenv 'BROKER_TLS' .. '/ca.pem' } }"
  local ways = { ["plain"] = { it, nil, nil } }
  ways["over TLS"] = { os.getenv "BROKER_TLS" and it or pending, os.getenv "AMQPS_URL", secure }

  for how, way in pairs(ways) do
    local test, url, options = way[1], way[2], way[3]

    test("may not use what its parent opened, " .. how, function()
      local parent, name = forking(url, options)
      for _, use in ipairs{ "lock:held()", "lock:verify()", "lock:release()", "sem:try_acquire()", "sem:acquire()",
        "sem:with(print)", "conn:semaphore('x'):try_acquire()", "admin:slots()", "admin:resize(3)" } do
        local result, message, code, status = parent:run("return in_child(function() return " .. use .. " end)")
        assert.equal(0, status, use)
        stage.fails("forked", result, message, code)
      end
      assert_untouched(parent, name)
    end)

    test("may collect and close what its parent opened, and end, and Lua with it, " .. how, function()
      local parent, name = forking(url, options)
      for _, act in ipairs{ "lock = nil collectgarbage() collectgarbage()",
        "lock, sem, admin, conn = nil, nil, nil, nil collectgarbage() collectgarbage()", "os.exit(0)",
        "os.exit(0, true)" } do
        assert.equal(0, parent:run("return in_child(function() " .. act .. " end)"), act)
      end
      assert.same({ true, 0 }, { parent:run("return in_child(function() return conn:close() end)") })
      assert_untouched(parent, name)
    end)

    test("may open a connection of its own, " .. how, function()
      local parent, name = forking(url, options)
      assert.same({ 2, true, 0 }, { parent:run([[
        return in_child(function()
          local own = connect()
          local mine = assert(own:semaphore(lock.name):try_acquire())
          return mine.slot, own:close()
        end)
      ]]) })
      assert_untouched(parent, name)
    end)
  end
end)
