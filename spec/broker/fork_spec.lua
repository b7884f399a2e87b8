-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Children that do not exec and outlive the process that forked them. They have copies of all its descriptors, and the
-- broker sees the end of a connection only when its last copy is closed. The heartbeat is so long here that no lock can
-- be freed by it within a test.
local process = require "spec.support.process"
local program = require "spec.support.program"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local AT_ONCE = { timeout = 40 } -- of a heartbeat of 60 s, two of which may be missed
local LONG = "heartbeat = 60"
local SECURE = LONG .. ", tls = { ca = os.getenv 'BROKER_TLS' .. '/ca.pem' }"

local tls_it = os.getenv "BROKER_TLS" and it or pending
local cpath

setup(function() cpath = process.c_module "fork" end)
after_each(function()
  program.clear()
  stage.clear()
end)
teardown(process.remove_modules)
teardown(program.remove)
teardown(stage.check)

local function kill_later(pid)
  stage.undo(function() os.execute(("kill -s KILL %d 2>/dev/null"):format(pid)) end)
  return pid
end

local function lives(pid) return (pcall(process.shell, "kill", "-s", "0", tostring(pid))) end

describe("the locks of a killed process whose children live on", function()
  -- A process with two connections: a slot and a mutex are held on one, another slot on the other.
  local function prefork_server(url, options)
    local name, mutex = stage.semaphore(2), stage.mutex()
    -- The sanitizer's threads and leaks are not what is looked at.
    local server = process.start{ ASAN_OPTIONS = (os.getenv "ASAN_OPTIONS" or "") .. ":detect_leaks=0" }
    server:run([[
      local cpath, url, name, mutex = ...
      package.cpath = cpath .. package.cpath
      fork, socket, amqplocks = require "fork", require "socket", require "amqplocks"
      function sockets()
        local pipe, all = io.popen("ls -l /proc/$PPID/fd"), { socket = 0, eventfd = 0 }
        for line in pipe:lines() do
          for kind in pairs(all) do all[kind] = all[kind] + (line:find(kind, 1, true) and 1 or 0) end
        end
        pipe:close()
        return all.socket, all.eventfd
      end
      function connect() return assert(amqplocks.connect(url, { ]] .. options .. [[ })) end
      one, other = connect(), connect()
      first, second = one:semaphore(name), other:semaphore(name)
      locks = { assert(first:acquire()), assert(second:acquire()), assert(one:mutex(mutex):acquire()) }
      assert(one:pollfd() and other:pollfd())
      function child(fn)
        local pid = fork.fork()
        if pid > 0 then return pid end
        fn()
        for _ = 1, 120 do socket.sleep(1) end -- longer than any test; and a child of a child ends, too
        fork.exit(0)
      end
    ]], cpath, url, name, mutex)
    return server, name, mutex
  end

  local function assert_all_come_free(server, name, mutex)
    server:kill()
    local conn = stage.connect()
    stage.take(conn:semaphore(name), AT_ONCE)
    stage.take(conn:semaphore(name), AT_ONCE)
    stage.take(conn:mutex(mutex), AT_ONCE)
  end

  -- The lines of the files that children have opened, by their order.
  local function written(directory, count)
    local all = {}
    for i = 1, count do
      local file = io.open(directory .. "/" .. i)
      all[i] = file and file:read "*a" or ""
      if file then file:close() end
    end
    return all
  end

  -- Of a file that a child is to write.
  local function first_line(path)
    return until_true(function()
      local file = assert(io.open(path))
      local text = file:read "*l"
      file:close()
      return text
    end)
  end

  local FILES, THEIRS = 30, {} -- more than the server has descriptors
  for i = 1, FILES do THEIRS[i] = "grandchild\nchild\n" end

  it("are free at once, and children keep what they open by the same numbers", function()
    local server, name, mutex = prefork_server(nil, LONG)
    local directory = process.directory()
    stage.undo(function() process.shell("rm", "-rf", directory) end)
    local child = kill_later(server:run([[
      local directory, count = ...
      local function write_all(files, line)
        for _, file in ipairs(files) do file:write(line, "\n") file:flush() end
      end
      local function drop_all()
        one, other, first, second, locks = nil
        collectgarbage()
        collectgarbage()
      end
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
    until_true(function()
      local all = written(directory, FILES)
      return pcall(assert.same, THEIRS, all), table.concat(all, ";")
    end)
    assert.is_true(server:run "return locks[1]:verify() and locks[2]:verify() and locks[3]:verify()")
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
        one, other, first, second, locks = nil
        collectgarbage()
        collectgarbage()
        local count = 0
        for i = 1, 5 do count = count + (own[i]:verify() and 1 or 0) end
        local file = assert(io.open(path, "w"))
        file:write(count, "\n")
        file:close()
      end)
    ]], path, stage.mutex()))
    assert.equal("5", first_line(path))
    assert_all_come_free(server, name, mutex)
  end)

  for how, way in pairs{ TCP = { it, nil, LONG }, TLS = { tls_it, os.getenv "AMQPS_URL", SECURE } } do
    way[1]("are free at once, whatever they did with their copies, over " .. how, function()
      local server, name, mutex = prefork_server(way[2], way[3])
      local collects = "one, other, first, second, locks = nil collectgarbage() collectgarbage()"
      local grandchild = "child(function() " .. collects .. " end)"
      local child
      for _, doing in ipairs{ "one:close() other:close()", "locks[1]:release() first:try_acquire()",
        collects, grandchild, "own = connect() assert(own:semaphore('none'):try_acquire() == nil)", "" } do
        child = kill_later(server:run("return child(function() " .. doing .. " end)"))
      end
      assert.is_true(server:run "return locks[1]:verify() and locks[2]:verify() and locks[3]:verify()")
      assert_all_come_free(server, name, mutex)
      assert.is_true(lives(child))
    end)
  end

  it("have neither sockets nor eventfds of its", function()
    local server = prefork_server(nil, LONG)
    local sockets, eventfds = server:run "return sockets()"
    assert.equal(4, eventfds) -- two that poke a keeper, two of pollfd
    local path = os.tmpname()
    stage.undo(function() os.remove(path) end)
    kill_later(server:run([[
      local path = ...
      return child(function()
        local file = assert(io.open(path, "w"))
        file:write(table.concat({ sockets() }, " "), "\n")
        file:close()
      end)
    ]], path))
    assert.equal(("%d 0"):format(sockets - 4), first_line(path)) -- a holder and a prober of either connection
  end)

  -- A server in C that forks in the worst of moments. Its children's ids are killed at the end.
  local function prefork(mode, environment, how)
    local name = stage.semaphore(1)
    local path = program.build("spec/support/programs/prefork.c", "amqplocks", how)
    local all = { URL = os.getenv "AMQP_URL", LD_LIBRARY_PATH = program.LIB }
    for key, value in pairs(environment or {}) do all[key] = value end
    local server = program.start(all, path, mode, name)
    server:await("holds", 60)
    local child
    for pid in server:output():gmatch "child (%d+)" do child = kill_later(pid) end
    return server, name, child
  end

  local function assert_comes_free(server, name, child)
    assert.is_true(stage.held(name, 1))
    server:signal "KILL"
    stage.take(stage.connect():semaphore(name), AT_ONCE)
    assert.is_true(lives(child))
  end

  for mode, when in pairs{ while_connecting = "forked while another thread connected",
    while_closing = "forked while another connection was dropped",
    threads = "with another thread that forked all the time", full = "forked with no descriptor left",
    many = "with hundreds of sessions" } do
    it("are free at once, " .. when, function() assert_comes_free(prefork(mode)) end)
  end

  (program.sanitized and pending or it)("are free at once, with all linked statically", function()
    assert_comes_free(prefork("full", {}, { static = true, flags = "-DSTATIC" }))
  end)

  tls_it("are free at once, forked while another thread connected over TLS", function()
    assert_comes_free(prefork("while_connecting",
      { URL = os.getenv "AMQPS_URL", CA = os.getenv "BROKER_TLS" .. "/ca.pem" }))
  end)
end)

describe("the lock of a killed process with an event loop whose child lives on", function()
  -- Its socket is cqueues', which replaces nothing in children.
  local function serve(heartbeat)
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
    return name, child
  end

  it("is free when the broker misses its heartbeats", function()
    local name, child = serve(1)
    stage.until_free(name, 1, 20)
    assert.is_true(lives(child))
  end)

  it("is free when the child ends", function()
    local name, child = serve(60)
    assert.is_true(stage.held(name, 1))
    process.shell("kill", "-s", "KILL", tostring(child))
    stage.until_free(name, 1)
  end)
end)

describe("a host of Lua that forks", function()
  -- The handler that runs in children is the module's, which is unloaded by then. One with sanitizers is not.
  local unloaded_it = program.sanitized and pending or it
  unloaded_it("after its state is closed has children that run", function()
    local path = program.place() .. "/script.lua"
    local file = assert(io.open(path, "w"))
    file:write(([[
      package.path, package.cpath = %q, %q
      local amqplocks = require "amqplocks"
      local conn = assert(amqplocks.connect(os.getenv "URL"))
      assert(conn:semaphore(os.getenv "NAME"):try_acquire())
    ]]):format(package.path, package.cpath))
    file:close()
    local name = stage.semaphore(1)
    local unload = program.build("spec/support/programs/unload.c", program.lua_package())
    local status, output = program.run({ URL = os.getenv "AMQP_URL", NAME = name }, unload, path)
    assert.same({ 0, "unloaded, forked\n" }, { status, output })
    stage.until_free(name, 1)
  end)
end)
