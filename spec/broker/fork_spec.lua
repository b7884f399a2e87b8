-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Children that do not exec and outlive the process that forked them. They have copies of all its descriptors, and the
-- broker sees the end of a connection only when its last copy is closed. The heartbeat is so long here that no lock can
-- be freed by it within a test.
local gate = require "spec.support.gate"
local kinds = require "spec.support.kinds"
local process = require "spec.support.process"
local program = require "spec.support.program"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local AT_ONCE = { timeout = 40 } -- of a heartbeat of 60 s, two of which may be missed
local LONG = "heartbeat = 60"
local COLLECT = "one, other, first, second, locks = nil collectgarbage() collectgarbage()"
local ALL_HELD = "for _, lock in ipairs(locks) do assert(lock:verify()) end return true"
local SECURE = LONG .. ", tls = { ca = os.getenv 'BROKER_TLS' .. '/ca.pem' }"

local tls_it = os.getenv "BROKER_TLS" and it or pending
local quorum = kinds.all.quorum_mutex -- needs a connection of its own
local cpath, prefork

setup(function()
  cpath = process.c_module "fork"
  prefork = program.build("spec/support/programs/prefork.c", "amqplocks")
end)
stage.tidy(program.clear)
teardown(process.remove_modules)
teardown(program.remove)

local function kill_later(pid)
  stage.undo(function() os.execute(("kill -s KILL %d 2>/dev/null"):format(pid)) end)
  return pid
end

local function lives(pid) return (pcall(process.shell, "kill", "-s", "0", tostring(pid))) end

describe("the locks of a killed process whose children live on", function()
  -- A process with two connections: a slot and mutexes are held on one, another slot on the other.
  local function prefork_server(url, options)
    local name, mutex = stage.semaphore(2), stage.mutex()
    stage.undo(function()
      for _, queue in ipairs{ "-quorum-fastmutex", "-kept-mutexbell" } do stage.delete(mutex .. queue) end
    end)
    -- The sanitizer's threads and leaks are not what is looked at.
    local server = process.start{ ASAN_OPTIONS = (os.getenv "ASAN_OPTIONS" or "") .. ":detect_leaks=0" }
    server:run([[
      local cpath, url, name, mutex, has_quorum = ...
      package.cpath = cpath .. package.cpath
      fork, socket, amqplocks = require "fork", require "socket", require "amqplocks"
      function connect() return assert(amqplocks.connect(url, { ]] .. options .. [[ })) end
      one, other = connect(), connect()
      first, second = one:semaphore(name), other:semaphore(name)
      locks = { assert(first:acquire()), assert(second:acquire()), assert(one:mutex(mutex):acquire()) }
      assert(assert(one:mutex(mutex .. "-kept", { retain = 600 }):acquire()):release())
      locks[4] = has_quorum and assert(one:fast_mutex(mutex .. "-quorum", { queue_type = "quorum" }):acquire()) or nil
      assert(one:pollfd() and other:pollfd())
      function child(fn)
        local pid = fork.fork()
        if pid > 0 then return pid end
        fn()
        for _ = 1, 120 do socket.sleep(1) end -- longer than any test; and a child of a child ends, too
        fork.exit(0)
      end
    ]], cpath, url, name, mutex, quorum ~= nil)
    return server, name, mutex
  end

  local function assert_all_come_free(server, name, mutex)
    assert.is_true(gate.held("mutex", mutex .. "-kept"))
    server:kill()
    local conn = stage.connect()
    stage.take(conn:mutex(mutex .. "-kept"), AT_ONCE)
    stage.take(conn:semaphore(name), AT_ONCE)
    stage.take(conn:semaphore(name), AT_ONCE)
    stage.take(conn:mutex(mutex), AT_ONCE)
    if quorum then stage.take(quorum.over(conn, mutex .. "-quorum"), AT_ONCE) end
  end

  local FILES = 30 -- more than the server has descriptors

  it("are free at once, and children keep what they open by the same numbers", function()
    local server, name, mutex = prefork_server(nil, LONG)
    local directory = process.directory()
    stage.undo(function() process.shell("rm", "-rf", directory) end)
    local child = kill_later(server:run([[
      local directory, count = ...
      local function write_all(files, line)
        for _, file in ipairs(files) do file:write(line, "\n") file:flush() end
      end
      local function drop_all() ]] .. COLLECT .. [[ end
      return child(function()
        local files = {}
        fork.close_all()
        for i = 1, count do files[i] = assert(io.open(directory .. "/" .. i, "a")) end
        local grandchild = fork.fork()
        if grandchild == 0 then
          drop_all()
          write_all(files, "grandchild")
          fork.exit(0)
        end
        fork.wait(grandchild)
        drop_all()
        write_all(files, "child")
      end)
    ]], directory, FILES))
    for i = 1, FILES do
      until_true(function()
        local text = process.contents(directory .. "/" .. i)
        return text == "grandchild\nchild\n", text
      end)
    end
    assert.is_true(server:run(ALL_HELD))
    assert_all_come_free(server, name, mutex)
    assert.is_true(lives(child))
  end)

  tls_it("are free at once, over TLS, and children keep connections of their own by the same numbers", function()
    local server, name, mutex = prefork_server(os.getenv "AMQPS_URL", SECURE)
    local path = os.tmpname()
    stage.undo(function() os.remove(path) end)
    kill_later(server:run([[
      local path, name = ...
      return child(function()
        fork.close_all()
        local conns, own = {}, {}
        for i = 1, 5 do
          conns[i] = connect()
          own[i] = assert(conns[i]:mutex(name .. i):acquire())
        end
        one:close()
        ]] .. COLLECT .. [[
        local count = 0
        for i = 1, 5 do count = count + (own[i]:verify() and 1 or 0) end
        local file = assert(io.open(path, "w"))
        file:write(count, "\n")
        file:close()
      end)
    ]], path, stage.mutex()))
    until_true(function() return process.contents(path) == "5\n" end)
    assert_all_come_free(server, name, mutex)
  end)

  for how, way in pairs{ TCP = { it, nil, LONG }, TLS = { tls_it, os.getenv "AMQPS_URL", SECURE } } do
    way[1]("are free at once, whatever they did with their copies, over " .. how, function()
      local server, name, mutex = prefork_server(way[2], way[3])
      local child
      for _, doing in ipairs{ "one:close() other:close()", "locks[1]:release() first:try_acquire()",
        COLLECT, "child(function() " .. COLLECT .. " end)",
        "own = connect() assert(own:semaphore('none'):try_acquire() == nil)", "" } do
        child = kill_later(server:run("return child(function() " .. doing .. " end)"))
      end
      local function count(pid, what)
        return select(2, process.shell("ls", "-l", ("/proc/%d/fd"):format(pid)):gsub(what, ""))
      end
      local sockets = quorum and 5 or 4 -- two holders, two probers
      until_true(function() -- fork() may return in the parent first
        return count(child, "socket:") == count(server.pid, "socket:") - sockets and count(child, "eventfd") == 0
      end)
      assert.equal(4, count(server.pid, "eventfd"))
      assert.is_true(server:run(ALL_HELD))
      assert_all_come_free(server, name, mutex)
      assert.is_true(lives(child))
    end)
  end

  -- A server in C that forks in the worst of moments.
  local TLS = tls_it == it and { URL = os.getenv "AMQPS_URL", CA = os.getenv "BROKER_TLS" .. "/ca.pem" } or nil

  for when, case in pairs{
    ["forked while another thread connected"] = { it, "while_connecting" },
    ["forked while another thread connected over TLS"] = { tls_it, "while_connecting", TLS },
    ["forked while another connection was dropped"] = { it, "while_closing" },
    ["forked with no descriptor left"] = { it, "full" },
    ["with hundreds of sessions"] = { it, "many" },
    ["at the end of the one child that keeps them"] = { it, "guard" },
    ["with all linked statically"] = { program.sanitized and pending or it, "full", {},
      { static = true, flags = "-DSTATIC" } },
  } do
    case[1]("are free at once, " .. when, function()
      local name, how, child = stage.semaphore(1), case[4], nil
      local path = how and program.build("spec/support/programs/prefork.c", "amqplocks", how) or prefork
      local environment = { URL = os.getenv "AMQP_URL", LD_LIBRARY_PATH = program.LIB }
      for key, value in pairs(case[3] or {}) do environment[key] = value end
      local server = program.start(environment, path, case[2], name)
      server:await("holds", 60)
      for pid in server:output():gmatch "child (%d+)" do child = kill_later(pid) end
      assert.is_true(stage.held(name, 1))
      server:signal "KILL"
      local sem = stage.connect():semaphore(name)
      if case[2] == "guard" then
        server:wait()
        for _ = 1, 100 do stage.fails("busy", sem:try_acquire()) end
        process.shell("kill", "-s", "KILL", (server:output():match "child (%d+)"))
      end
      stage.take(sem, AT_ONCE)
      assert.is_true(lives(child))
    end)
  end
end)

-- Its socket is cqueues', which replaces nothing in children.
for how, heartbeat in pairs{ ["when the broker misses its heartbeats"] = 4, ["when the child ends"] = 60 } do
  it("the lock of a killed process with an event loop whose child lives on is free " .. how, function()
    local name = stage.semaphore(1)
    local server = process.start()
    local child = kill_later(server:run([[
      local cpath, name, heartbeat = ...
      package.cpath = cpath .. package.cpath
      local cqueues, fork, socket = require "cqueues", require "fork", require "socket"
      loop, child = cqueues.new(), nil
      loop:wrap(function()
        conn = assert(require("amqplocks").connect(nil, { driver = "cqueues", heartbeat = heartbeat }))
        lock = assert(conn:semaphore(name):try_acquire())
        child = fork.fork()
        while child == 0 do socket.sleep(100) end
      end)
      while not child do assert(loop:step()) end
      return child
    ]], cpath, name, heartbeat))
    assert.is_true(stage.held(name, 1))
    server:kill()
    assert.is_true(stage.held(name, 1) and lives(child))
    if heartbeat == 60 then process.shell("kill", "-s", "KILL", tostring(child)) end
    stage.until_free(name, 1)
  end)
end

-- The handler that runs in children is the module's, which is unloaded by then. One with sanitizers is not.
local unloaded_it = program.sanitized and pending or it
unloaded_it("a host of Lua that forks after its state is closed has children that run", function()
  local name, path = stage.semaphore(1), program.place() .. "/script.lua"
  process.write(path, ([[
    package.path, package.cpath = %q, %q
    local amqplocks = require "amqplocks"
    local conn = assert(amqplocks.connect(os.getenv "URL"))
    assert(conn:semaphore(os.getenv "NAME"):try_acquire())
  ]]):format(package.path, package.cpath))
  local unload = program.build("spec/support/programs/unload.c", program.lua_package())
  local status, output = program.run({ URL = os.getenv "AMQP_URL", NAME = name }, unload, path)
  assert.same({ 0, "unloaded, forked\n" }, { status, output })
  stage.until_free(name, 1)
end)
