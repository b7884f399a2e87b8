-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Processes that end or stall while they hold a lock or wait for one; and their children.
local process = require "spec.support.process"
local stage = require "spec.support.stage"

stage.tidy()

describe("a process that holds a lock", function()
  local function holder()
    local name = stage.semaphore(1)
    local new = stage.process(name)
    assert.equal(1, new:run("lock = assert(sem:acquire{ timeout = 60 }) return lock.slot"))
    assert.is_true(stage.held(name, 1))
    return new, name
  end

  it("and is killed leaves it to one that waits", function()
    local held, name = holder()
    local waiter = stage.process(name)
    assert.equal("busy", waiter:run("return select(3, sem:try_acquire())"))
    waiter:begin("lock = assert(sem:acquire{ timeout = 60 }) return lock.slot")
    held:kill()
    assert.equal(1, waiter:finish())
    assert.is_true(stage.held(name, 1))
    assert.is_true(waiter:run("return lock:verify()"))
  end)

  it("and ends, closes Lua and ends, or fails, leaves it", function()
    for _, code in ipairs{ "os.exit(0)", "os.exit(0, true)", "error('oh')" } do
      local held, name = holder()
      held:begin(code)
      held:await_end()
      stage.until_free(name, 1)
      assert.equal(1, stage.take(stage.connect():semaphore(name)).slot)
    end
  end)

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
end)

it("a process that waits for a lock may catch the interrupt, and acquire again", function()
  local name = stage.semaphore(1)
  local occupant, waiter = stage.occupy(name, 1), stage.process(name)
  waiter:begin "return pcall(sem.acquire, sem)"
  occupant:await_looks(2)
  waiter:signal "INT"
  local fine, problem = waiter:finish()
  assert.is_false(fine)
  assert.matches("interrupted!", problem, 1, true)
  stage.fails("busy", waiter:run "return sem:try_acquire()")
  occupant:release()
  assert.is_true(stage.free(name, 1))
  assert.equal(1, waiter:run "lock = assert(sem:try_acquire()) return lock.slot")
  assert.is_true(stage.held(name, 1) and waiter:run "return lock:release()" and stage.free(name, 1))
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
      lock = assert(sem:acquire{ timeout = 60 })
    ]], cpath, os.tmpname(), url, name)
    return new, name
  end

  for how, way in pairs{ ["plain"] = { it }, ["over TLS"] = { os.getenv "BROKER_TLS" and it or pending,
    os.getenv "AMQPS_URL", "{ tls = { ca = os.getenv 'BROKER_TLS' .. '/ca.pem' } }" } } do
    way[1]("may not use what its parent opened, may collect and close it, and open a connection of its own, " .. how,
      function()
        local parent, name = forking(way[2], way[3])
        for _, use in ipairs{ "lock:held()", "lock:verify()", "lock:release()", "sem:try_acquire()", "sem:acquire()",
          "sem:with(print)", "conn:semaphore('x'):try_acquire()", "admin:slots()", "admin:resize(3)" } do
          local result, message, code, status = parent:run("return in_child(function() return " .. use .. " end)")
          assert.equal(0, status, use)
          stage.fails("forked", result, message, code)
        end
        assert.is_true(parent:run "fd = conn:pollfd() return fd ~= nil")
        assert.same({ true, 0 }, { parent:run [[
          return in_child(function() return not conn:pollfd() and not conn:timeout() end)
        ]] })
        for _, act in ipairs{ "lock = nil collectgarbage() collectgarbage()",
          "lock, sem, admin, conn = nil, nil, nil, nil collectgarbage() collectgarbage()", "os.exit(0)",
          "os.exit(0, true)" } do
          assert.equal(0, parent:run("return in_child(function() " .. act .. " end)"), act)
        end
        assert.same({ true, 0 }, { parent:run "return in_child(function() return conn:close() end)" })
        assert.same({ 2, true, 0 }, { parent:run([[
          return in_child(function()
            local own = connect()
            local mine = assert(own:semaphore(lock.name):try_acquire())
            return mine.slot, own:close()
          end)
        ]]) })
        assert.is_true(stage.held(name, 1))
        assert.is_true(parent:run "return lock:held() and lock:verify()")
        assert.equal(2, parent:run "another = assert(sem:try_acquire()) return another.slot")
        assert.is_true(parent:run "return another:release() and lock:release()")
        assert.is_true(stage.free(name, 1))
      end)
  end
end)
