-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Locks in event loops (cqueues, luv and the test double): while one coroutine waits, the others run. What a driver's
-- sockets, conditions and coroutines decide is tested in each loop, the code that all share in the test double.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local kinds = require "spec.support.kinds"
local leftovers = require "spec.support.leftovers"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local unpack = table.unpack or unpack

stage.tidy()
teardown(process.remove_modules)

-- A function that connects in the loop. The test closes the connection, unless it fails.
local function connector(loop)
  return function(options, url)
    options = options or {}
    options.driver = loop.option
    return assert(amqplocks.connect(url, options))
  end
end

-- Runs `code` in the loop of another process, with a connection `conn` and what it is given.
local function start(loop, code, ...)
  local other = process.start()
  other:run('loop, amqplocks = require("spec.support.loops")[...], require "amqplocks"', loop.name)
  return other:begin([[
    local function main(...) ]] .. code .. [[ end
    local arguments = { ... }
    return loop.run(function()
      conn = assert(amqplocks.connect(nil, { driver = loop.option }))
      return main((table.unpack or unpack)(arguments))
    end, 120)
  ]], ...)
end

-- Runs fn in a coroutine of the loop: a function that closes it. cqueues does not let its own coroutines be closed:
-- there it is in one of those, as by a library that has coroutines within.
local function closable(loop, fn)
  local thread = coroutine.create(fn)
  loop.driver.spawn(function()
    if loop.name == "cqueues" then return require("cqueues.auxlib").resume(thread) end
    thread = coroutine.running()
    fn()
  end)
  return function() assert(coroutine.close(thread)) end
end

-- ---- in each loop ---------------------------------------------------------------------------------------------------

local function specs(loop)
  local loop_it = loop.it(it, pending)
  local closing_it = coroutine.close and loop_it or pending
  local program_it = loop.driver and it or pending
  local connect = connector(loop)

  loop_it("has thirty coroutines wait at once on one connection, and serves each once, and alone", function()
    local name, busy, served = stage.semaphore(1), stage.semaphore(1), 0
    stage.occupy(busy, 1)
    local conn, inside, begun, told = connect(), 0, 0, nil
    local sem, rival = conn:semaphore(name), stage.connect():semaphore(name)
    local theirs, all = stage.take(rival), {}
    local function on_wait(_, why)
      loop.sleep(0)
      told = why
    end
    for i = 1, 30 do
      all[i] = function()
        begun = begun + 1
        assert(sem:with({ timeout = 100, on_wait = on_wait }, function(lock)
          inside = inside + 1
          assert.equal(1, inside)
          loop.sleep(0)
          assert.is_true(lock:held())
          if i == 15 then
            assert.is_true(lock:verify())
            stage.fails("busy", rival:try_acquire())
          end
          inside, served = inside - 1, served + 1
        end))
      end
    end
    table.insert(all, function()
      loop.until_true(function() return begun == 30 and told end)
      stage.fails("timeout", conn:semaphore(busy):acquire{ timeout = 0.2 }) -- they wait, each for itself
      assert.equal(0, served)
      assert.is_true(theirs:release())
    end)
    loop.together(all)
    assert.equal(30, served)
    assert.is_true(stage.free(name, 1))
    conn:close()
  end)

  loop_it("leaves its parent what it holds in the child of a fork, also one that closes or collects", function()
    local name = stage.semaphore(1)
    local other = start(loop, [[
      local cpath, name = ...
      package.cpath = cpath .. package.cpath
      local fork = require "fork"
      local lock = assert(conn:semaphore(name):acquire())
      for _, ending in ipairs { function() conn:close() end, function() conn, lock = nil, nil end } do
        local pid = fork.fork()
        if pid == 0 then
          local fine = select(3, lock:held()) == "forked" and select(3, lock:verify()) == "forked"
          ending()
          for _ = 1, 2 do collectgarbage() end
          fork.exit(fine and 0 or 1)
        end
        assert(fork.wait(pid) == 0)
        assert(lock:verify() and lock:held())
      end
      assert(lock:release())
      conn:close()
      return true
    ]], process.c_module("fork"), name)
    loop.until_true(function() return other:finished(), other:output() end)
    assert.is_true(other:finish())
    assert.is_true(stage.free(name, 1))
  end)

  -- The loop must end by itself after this: no timer is left of who has waited for ten minutes.
  closing_it("serves others when a coroutine is closed that waits or holds", function()
    local name, conn, inside = kinds.all.mutex.name(), connect(), loop.driver.condition()
    local own, rival, reason, works = conn:mutex(name), kinds.rival("mutex", name), nil, nil
    local function take()
      return loop.until_true(function() return (rival:try_acquire()) end)
    end
    local theirs = take()
    finally(function() collectgarbage "restart" end)
    collectgarbage "stop"
    local close_untold = closable(loop, function() own:acquire{ timeout = 600, poll = 300 } end)
    local close = closable(loop, function()
      own:acquire{ timeout = 600, poll = 300, on_wait = function(_, why) reason = why end }
    end)
    loop.until_true(function() return reason end)
    loop.sleep(0.05)
    close_untold()
    close()
    assert.is_true(theirs:release())
    assert.is_true(take():release())
    close = closable(loop, function()
      own:with({ timeout = 600, poll = 300 }, function()
        works = true
        inside:wait()
      end)
    end)
    loop.until_true(function() return works end)
    stage.fails("busy", rival:try_acquire())
    close()
    inside:signal() -- the coroutine that waited there is the program's
    assert.is_true(take():release())
    assert.is_true(assert(own:acquire{ timeout = 60 }):release())
    conn:close()
  end)

  closing_it("leaves no connection of a coroutine that is closed while it connects", function()
    local peer, port = process.listener()
    finally(function() collectgarbage "restart" end)
    collectgarbage "stop"
    local close = closable(loop, function()
      amqplocks.connect(("amqp://127.0.0.1:%d"):format(port), { driver = loop.option, timeout = 600 })
    end)
    peer:begin "guest = assert(server:accept())"
    loop.until_true(function() return peer:finished() end) -- the loop must run for that
    peer:finish()
    close()
    peer:begin "guest:settimeout(10) local why repeat why = select(2, guest:receive(1)) until why return why"
    loop.until_true(function() return peer:finished() end)
    assert.equal("closed", peer:finish())
  end)

  loop_it("has a connection that ends when everybody has forgotten it", function()
    local name, seen = stage.semaphore(1), setmetatable({}, { __mode = "k" })
    loop.together { function()
      local conn = connect()
      seen[conn] = true
      assert(conn:semaphore(name):acquire())
    end }
    assert.is_true(stage.held(name, 1))
    loop.until_true(function()
      collectgarbage()
      return stage.free(name, 1) and not next(seen)
    end)
  end) -- and the loop has nothing left to do

  program_it("minds nothing of a loop that was left, or emptied, with a connection open; waits in it alone", function()
    stage.fails("phase", amqplocks.connect(nil, { driver = loop.option }))
    local name = stage.semaphore(1)
    for _, keeps in ipairs { true, false } do
      local conn, lock
      loop.spawn(function()
        conn = connect()
        lock = assert(conn:semaphore(name):acquire())
        loop.stop()
        loop.driver.condition():wait()
      end)
      assert.is_false(loop.turn(60))
      stage.fails("phase", conn:semaphore(name):try_acquire())
      stage.fails("phase", lock:verify())
      assert.is_true(lock:held() and stage.held(name, 1))
      if not keeps then conn, lock = nil, nil end -- luacheck: ignore
      loop.clear()
      conn, lock = nil, nil -- luacheck: ignore
      loop.run(function()
        for _ = 1, 3 do collectgarbage() end
        loop.sleep(0.01)
        local again = connect()
        assert.is_true(assert(again:semaphore(name):acquire{ timeout = 60 }):release())
        again:close()
      end)
    end
  end)

  -- What is run inside of the loop, and then. A coroutine that ends the program was resumed by the loop, which still
  -- turns while Lua is closed.
  local LATER = "assert(not ended and lock:held())"
  for what, code in pairs {
    ["leaves its connection open"] = { "loop.stop()", LATER },
    ["forgets its connection"] = { "loop.stop()", LATER .. "conn, sem, lock = nil collectgarbage() collectgarbage()" },
    ["ends in a coroutine that holds a lock"] = { "os.exit(0, true)", "os.exit(1)" },
    ["ends in a coroutine that has closed the connection"] = { "conn:close() os.exit(0, true)", "os.exit(1)" },
    ["ends in a coroutine that gave up waiting"] = { "sem:acquire{ timeout = 0.01 } os.exit(0, true)", "os.exit(1)" },
  } do
    program_it("lets a program end well that " .. what, function()
      local name = stage.semaphore(1)
      process.shell("timeout", "120", os.getenv "LUA" or "lua5.4", "-e", ([[
        local name, loop = %q, require("spec.support.loops").%s
        loop.spawn(function()
          conn = assert(require("amqplocks").connect(nil, { driver = loop.option }))
          sem = conn:semaphore(name)
          lock = assert(sem:acquire())
          %s
        end)
        local ended = loop.turn(60)
        %s
      ]]):format(name, loop.name, unpack(code)))
      stage.until_free(name, 1)
    end)
  end
end

for _, loop in ipairs(loops) do
  describe("in " .. loop.name, function() specs(loop) end)
end

-- ---- in the test double ---------------------------------------------------------------------------------------------

describe("sessions in any loop", function()
  local loop = loops.select
  local loop_it, operated_loop_it = loop.it(it, pending), loop.it(operated_it, pending)
  local connect = connector(loop)

  for _, case in ipairs(leftovers) do
    loop_it("leave nothing behind when a call returns, " .. case.title, function()
      local name, admin = stage.name(), stage.connect()
      local s = { conn = connect(), rival = connect(), connect = connect, name = name,
        slots = function(count) assert(admin:admin(name):resize(count)) end,
        permits = function(count, queue_type)
          assert(admin:token_semaphore(name):resize(count, { queue_type = queue_type }))
        end }
      local code, busy = case.run(s)
      assert.same({ code = case.code, busy = 0 }, { code = code, busy = busy })
      for _, conn in ipairs{ s.conn, s.rival, s.third } do conn:close() end
      stage.destroy(admin, name)
    end)
  end

  for kind, makes in pairs(kinds.all) do
    loop_it("have each kind of lock: " .. kind, function()
      local name, conn = makes.name(), connect()
      local own, rival = makes.over(conn, name), kinds.rival(kind, name)
      local theirs
      local function until_theirs()
        theirs = loop.until_true(function() return (rival:try_acquire()) end)
      end
      until_theirs()
      stage.fails("busy", own:try_acquire())
      stage.fails("timeout", own:acquire{ timeout = 0.1 })
      assert.is_true(theirs:release())
      local lock = assert(own:acquire{ timeout = 60 })
      assert.is_true(lock:held() and lock:verify() and lock:release())
      stage.fails("not_held", lock:release())
      until_theirs()
      assert.is_true(theirs:release())
      conn:close()
    end)
  end

  operated_loop_it("tell once of a lock that release, or close, finds lost", function()
    local name, told = stage.semaphore(2), 0
    local conn = connect { name = name, on_lost = function(lock)
      told = told + 1
      assert.is_nil((lock:release())) -- neither hangs nor tells again
      loop.sleep(0.01)
    end }
    local sem = conn:semaphore(name)
    for _, close in ipairs { false, true } do
      local locks = { assert(sem:acquire{ timeout = 60 }), assert(sem:acquire{ timeout = 60 }) }
      told = 0
      broker.suite:close_connection(name .. " holder")
      loop.until_true(function() return not locks[1]:held() end) -- a coroutine tells of it, or the call that is faster
      if close then conn:close() else locks[1]:release() end
      loop.until_true(function() return told == 2 end)
      loop.sleep(0.05)
      assert.equal(2, told)
    end
  end)

  loop_it("fail within their timeout when the broker is silent, are in doubt, and work on when it answers", function()
    local between, name = proxy.start(), stage.semaphore(2)
    local conn = connect({ timeout = 5, heartbeat = 3 }, between.url)
    local sem = conn:semaphore(name)
    local held = assert(sem:acquire())
    between:switch("down", "hold")
    stage.fails("unreachable", sem:acquire())
    loop.until_true(function() return select(3, held:held()) == "suspect" end)
    between:switch("down", "pass")
    loop.until_true(function() return held:held() or select(3, held:held()) == "lost" end)
    loop.until_true(function() return (sem:try_acquire()) end)
    conn:close()
  end)

  loop_it("tell who waits that the connection was closed", function()
    local name = stage.semaphore(1)
    stage.occupy(name, 1)
    local conn, waits, results = connect(), 0, {}
    local all = { function()
      loop.until_true(function() return waits == 3 end)
      conn:close()
      stage.fails("closed", conn:mutex(name):try_acquire())
    end }
    for i = 1, 3 do
      table.insert(all, function()
        local function count() waits, count = waits + 1, function() end end
        results[i] = { conn:semaphore(name):acquire{ on_wait = function() count() end } }
      end)
    end
    loop.together(all)
    for i = 1, 3 do stage.fails("closed", unpack(results[i], 1, 3)) end
  end)
end)

loops.cqueues.it(it, pending)("in cqueues a coroutine that is left while it waits leaves nothing behind", function()
  local loop, name, controller = loops.cqueues, stage.semaphore(1), require "cqueues".new()
  local occupant, conn, waits = stage.occupy(name, 1), connector(loop)(), false
  controller:wrap(function() conn:semaphore(name):acquire{ on_wait = function() waits = true end } end)
  loop.until_true(function()
    assert(controller:step(0))
    return waits
  end)
  controller = nil -- luacheck: ignore
  loop.sleep(0.01) -- until then cqueues itself knows whom we had waited for
  for _ = 1, 2 do collectgarbage() end
  occupant:release()
  assert(conn:semaphore(name):acquire{ timeout = 60, poll = 600 }):release()
  loop.until_true(function() return stage.free(name, 1) end)
  conn:close()
end)

-- ---- what is not the same everywhere --------------------------------------------------------------------------------

describe("TLS in cqueues", function()
  local loop = loops.cqueues
  local url, directory = os.getenv "AMQPS_URL", os.getenv "BROKER_TLS" or ""
  local loop_it = loop.it(url and it or pending, pending)

  local function pem(name) return directory .. "/" .. name .. ".pem" end

  local function connect(tls, address)
    return amqplocks.connect(address or url, { driver = "cqueues", tls = tls, timeout = 60 })
  end

  loop_it("carries locks, and much in both directions, with the certificate verified", function()
    local name = stage.semaphore(1)
    local conn, all = assert(connect{ ca = pem "ca" }), {}
    local lock = assert(conn:semaphore(name):try_acquire())
    assert.is_true(lock:verify() and stage.held(name, 1))
    local long = stage.name(("-long"):rep(40))
    for i = 1, 250 do
      all[i] = function() assert.equal(0, conn:admin(long .. i):slots()) end
    end
    loop.together(all)
    assert.is_true(lock:release())
    conn:close()
  end)

  loop_it("is verified by name or address, unless that is not wanted, and shows its own certificate", function()
    local by_address = url:gsub("localhost", "127.0.0.1")
    for _, case in ipairs {
      { { ca = pem "ca" }, by_address }, { { ca = pem "ca", server_name = "localhost" }, by_address },
      { { verify = false, ca = pem "unknown-ca", server_name = "elsewhere.invalid" } },
      { { ca = pem "ca", cert = pem "client", key = directory .. "/client.key" } },
    } do
      assert.is_true(assert(connect(unpack(case))):close())
    end
  end)

  for what, case in pairs {
    ["an authority that did not sign"] = { "certificate", { ca = pem "unknown-ca" } },
    ["the system's own authorities"] = { "certificate", {} },
    ["another name"] = { "[Nn]ame", { ca = pem "ca", server_name = "elsewhere.invalid" } },
    ["another address"] = { "", { ca = pem "ca", server_name = "127.0.0.2" } },
    ["a file that cannot be read"] = { "/none.pem", { ca = pem "none" } },
    ["another certificate's key"] = { "", { ca = pem "ca", cert = pem "client", key = directory .. "/server.key" } },
    ["a certificate that is not there"] = { "", { ca = pem "ca", cert = pem "none", key = directory .. "/none.key" } },
    ["a certificate that is a key"] = { "",
      { ca = pem "ca", cert = directory .. "/client.key", key = directory .. "/client.key" } },
  } do
    loop_it("is refused with " .. what, function() assert.matches(case[1], stage.fails("tls", connect(case[2]))) end)
  end

  loop_it("is told from a plain port, and gives up on who does not answer", function()
    stage.fails("tls", connect({ ca = pem "ca" }, (os.getenv "AMQP_URL":gsub("^amqp:", "amqps:"))))
    local _, port = process.listener()
    stage.fails("unreachable", amqplocks.connect(("amqps://127.0.0.1:%d"):format(port),
      { driver = "cqueues", timeout = 0.2 }))
  end)
end)

loops.luv.it(it, pending)("TLS in luv is not there, and it says what to use instead", function()
  local message = stage.fails("tls", amqplocks.connect("amqps://localhost:1", { driver = "luv" }))
  assert.matches("cqueues", message, 1, true)
end)

describe("a driver", function()
  local loop = loops.select

  it("must be known, or offer what is needed", function()
    for _, driver in ipairs { "copas", 1, {}, { connect = print, condition = print } } do
      local fine, problem = pcall(amqplocks.connect, nil, { driver = driver })
      assert.is_false(fine)
      assert.matches("driver", problem, 1, true)
    end
  end)

  -- The driver of that loop, without what is optional, and with this `connect`.
  local function bare(connect)
    return { connect = connect or loop.driver.connect, condition = loop.driver.condition, spawn = loop.driver.spawn }
  end

  it("that is written by somebody may lack what is optional", function()
    loop.run(function() assert.is_true(assert(amqplocks.connect(nil, { driver = bare() })):close()) end)
  end)

  it("that throws, or gives no code, or an unknown one, makes no connection, and keeps nobody waiting", function()
    for pattern, fails in pairs {
      ["no way"] = function() error("no way", 0) end,
      ["not today"] = function() return nil, "not today" end,
      ["not here"] = function() return nil, "not here", "broken" end,
    } do
      loop.run(function()
        local message = stage.fails("unreachable", amqplocks.connect(nil, { driver = bare(fails) }))
        assert.matches(pattern, message, 1, true)
      end)
    end
  end)

  it("that cannot start a coroutine, as nginx no timer, has a patient acquire try again, and not sleep", function()
    local driver, failed, name = bare(), false, stage.mutex()
    function driver.spawn(fn)
      if failed then return loop.driver.spawn(fn) end
      failed = true
      return nil, "not now"
    end
    loop.run(function()
      local session, common = require("amqplocks.drivers.loop").session(driver, { url = os.getenv "AMQP_URL" })
      common.is_shared = true -- opened at its first use
      local conn = require("amqplocks.connection").open(session, common)
      assert.is_truthy(assert(conn:mutex(name):acquire { patient = true, timeout = 60 }):release())
      assert.is_true(failed and conn:close())
    end)
  end)
end)

-- ---- in all loops at once -------------------------------------------------------------------------------------------

operated_it("every idle loop keeps its locks, and sleeps; a restart of the broker costs them, and nothing else",
  function()
    local all = {}
    for _, loop in ipairs(loops) do
      if loop.driver then
        table.insert(all, start(loop, [[
          local sleeps, condition, told = 0, loop.driver.condition, nil
          local function counted()
            local real = condition()
            return { signal = function() real:signal() end, wait = function(_, seconds)
              sleeps = sleeps + 1
              real:wait(seconds)
            end }
          end
          local driver = setmetatable({ condition = counted }, { __index = loop.driver })
          conn:close()
          conn = assert(amqplocks.connect(nil, { driver = driver, heartbeat = 1,
            on_lost = function(lock, code) told = code end }))
          local mutex = conn:mutex(...)
          local lock = assert(mutex:acquire())
          sleeps = 0
          loop.sleep(4) -- the broker would have closed it after three
          assert(sleeps < 400, sleeps .. " sleeps in four seconds") -- a loop that spins has many thousands
          loop.until_true(function() return lock:held() end) -- it may be in doubt, once lost it would stay so
          assert(lock:verify())
          io.stdout:write "holds\n"
          io.stdout:flush()
          loop.until_true(function() return told end, 60)
          assert(told == "lost" and select(3, lock:held()) == "lost")
          local again = assert(mutex:acquire{ patient = true, timeout = 100 })
          assert(again:verify() and again:release())
          conn:close()
          return true
        ]], "restarted-" .. loop.name))
      end
    end
    for _, one in ipairs(all) do
      until_true(function() return one:output():find("holds\n", 1, true), one:output() end)
    end
    broker.suite:restart()
    for _, one in ipairs(all) do assert.is_true(one:finish(120)) end
  end)

-- ---- the examples ---------------------------------------------------------------------------------------------------

for _, which in ipairs { "cqueues", "luv" } do
  -- Inside `with`, Lua 5.1's programs resume what coxpcall says runs; the example for luv does not.
  local knows_itself = which ~= "luv" or _VERSION ~= "Lua 5.1" or package.loaded.jit
  local example_it = loops[which].driver and knows_itself and it or pending

  example_it("the example for " .. which .. " answers while its jobs wait for one another", function()
    local held = stage.take(stage.connect():mutex "report")
    local pipe = assert(io.popen(("exec timeout 300 %s examples/loops/%s.lua 2>&1"):format(
      os.getenv "LUA" or "lua5.4", which)))
    stage.undo(function() pipe:close() end)
    local port = assert(tonumber(pipe:read "*l":match "^asking on port (%d+)$"))
    local guest = assert(require "socket".connect("127.0.0.1", port))
    guest:settimeout(60)
    assert.equal("3 jobs left", guest:receive())
    guest:close()
    assert.is_true(held:release())
    local lines = {}
    for line in pipe:lines() do table.insert(lines, line) end
    assert.equal("done", table.remove(lines))
    table.sort(lines)
    assert.same({ "job 1 works", "job 2 works", "job 3 works" }, lines)
    stage.delete "report-mutexbell"
  end)
end
