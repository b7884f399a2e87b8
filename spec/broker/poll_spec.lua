-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Waiting for a connection together with other descriptors, in the caller's own loop.
local broker = require "spec.support.broker"
local process = require "spec.support.process"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local has_cqueues, cqueues = pcall(require, "cqueues")

local operated_it = broker.operated_it(it, pending)
local cqueues_it = has_cqueues and operated_it or pending

after_each(stage.clear)
teardown(stage.check)

local function lose(name, slot) broker.suite:delete_queue(stage.holder(name, slot or 1)) end

-- Whether its descriptor becomes readable within so many seconds.
local function is_readable(conn, seconds)
  local fd = assert(conn:pollfd())
  return socket.select({ { getfd = function() return fd end } }, nil, seconds or 0)[1] ~= nil
end

describe("a connection's descriptor", function()
  local name, conn, sem

  before_each(function()
    name = stage.semaphore(2)
    conn = stage.connect()
    sem = conn:semaphore(name)
  end)

  it("is one for the connection, not inherited by programs, and never waits", function()
    local fd = conn:pollfd()
    assert.equal(fd, conn:pollfd())
    assert.equal("r", conn:events())
    local flags
    for line in io.lines("/proc/self/fdinfo/" .. math.floor(fd)) do flags = flags or line:match("^flags:%s*0*(%d+)") end
    assert.equal("2004002", flags) -- octal: O_CLOEXEC, O_NONBLOCK, O_RDWR
  end)

  it("is silent while locks are taken, kept, verified and released", function()
    conn:pollfd()
    local lock = stage.take(sem)
    assert.is_nil(conn:timeout()) -- its thread keeps time
    assert.is_false(is_readable(conn))
    assert.is_true(lock:verify())
    assert.is_true(lock:release())
    assert.is_false(is_readable(conn, 0.3))
  end)

  operated_it("is readable when a lock is lost, until the next call that may wait", function()
    local lock, other = stage.take(sem), stage.take(sem)
    assert.is_false(is_readable(conn))
    lose(name)
    assert.is_true(is_readable(conn, 20))
    stage.fails("lost", lock:held())
    assert.is_true(is_readable(conn))
    assert.is_true(other:verify())
    assert.is_false(is_readable(conn))
    lose(name, 2)
    assert.is_true(is_readable(conn, 20))
    stage.fails("lost", other:release())
    assert.is_false(is_readable(conn, 0.3))
  end)

  it("is readable when a lock is asked back, until the next call that may wait", function()
    local lock = stage.take(sem)
    assert.is_false(is_readable(conn))
    assert(stage.connect():admin(name):revoke(1))
    assert.is_true(is_readable(conn, 20))
    assert.is_true(lock:revoked())
    assert.is_true(lock:release())
    assert.is_false(is_readable(conn))
  end)

  operated_it("is readable at once when it is made after the loss", function()
    local lock = stage.take(sem)
    lose(name)
    until_true(function() return not lock:held() end)
    assert.is_true(is_readable(conn))
    stage.fails("lost", lock:verify())
    assert.is_false(is_readable(conn))
  end)

  it("is gone when the connection is closed", function()
    local lock, fd = stage.take(sem), conn:pollfd()
    conn:close()
    assert.is_nil(conn:pollfd())
    assert.is_nil(conn:timeout())
    assert.is_nil(io.open("/proc/self/fdinfo/" .. math.floor(fd)))
    assert.is_false(lock:held())
  end)
end)

describe("a connection's timeout", function()
  it("is when the connection wants a call, where no thread could be started; until one can", function()
    local name = stage.semaphore(1)
    local occupant, other = stage.occupy(name, 1), stage.process(name, "{ heartbeat = 4 }")
    local function allow(files)
      process.shell("prlimit", "--nofile=" .. files .. ":", "--pid", ("%d"):format(other.pid))
    end
    stage.fails("busy", other:run("return sem:try_acquire()")) -- both connections are open
    occupant:release()
    allow(3)
    other:run("lock = assert(sem:try_acquire())")
    local timeout, fd = other:run("return conn:timeout(), conn:pollfd()")
    assert.is_nil(fd)
    assert.is_true(timeout >= 0 and timeout <= 2, tostring(timeout))
    assert.is_true(other:run("return lock:verify()"))
    allow(1000)
    fd = other:run("return conn:pollfd()")
    assert.is_number(fd)
    assert.is_nil(other:run("return conn:timeout()"))
    assert.is_true(other:run("return lock:held() and lock:release()"))
  end)
end)

describe("cqueues", function()
  cqueues_it("waits for a connection beside others; each wakes for its own loss, and once", function()
    local loop, woken = cqueues.new(), {}
    local function watch(label, conn, lock)
      loop:wrap(function()
        assert.equal(conn, cqueues.poll(conn, 20))
        table.insert(woken, label)
        assert.is_false(lock:held())
        stage.fails("lost", lock:release())
        assert.is_not.equal(conn, cqueues.poll(conn, 0.2))
        cqueues.cancel(conn)
      end)
    end
    local names = { stage.semaphore(1), stage.semaphore(1) }
    for i = 1, 2 do
      local conn = stage.connect()
      watch(i, conn, stage.take(conn:semaphore(names[i])))
    end
    loop:wrap(function()
      lose(names[2])
      while #woken == 0 do cqueues.sleep(0.01) end
      assert.same({ 2 }, woken)
      lose(names[1])
    end)
    assert(loop:loop(60))
    assert.same({ 2, 1 }, woken)
  end)
end)

describe("the child of a fork", function()
  local cpath

  setup(function() cpath = process.c_module("fork") end)
  teardown(process.remove_modules)

  operated_it("has no descriptor, is told nothing, and takes no news from its parent", function()
    local name = stage.semaphore(1)
    local parent = process.start{ ASAN_OPTIONS = (os.getenv "ASAN_OPTIONS" or "") .. ":detect_leaks=0" }
    parent:run([[
      local cpath, name = ...
      package.cpath = cpath .. package.cpath
      fork, socket, told = require "fork", require "socket", 0
      conn = assert(require("amqplocks").connect(nil, { on_lost = function() told = told + 1 end }))
      lock = assert(conn:semaphore(name):try_acquire())
      fd = conn:pollfd()
      function is_readable(seconds)
        return socket.select({ { getfd = function() return fd end } }, nil, seconds)[1] ~= nil
      end
    ]], cpath, name)
    lose(name)
    assert.is_true(parent:run("return is_readable(20)"))
    assert.equal(0, parent:run([[
      local pid = fork.fork()
      if pid > 0 then return fork.wait(pid) end
      local fine = conn:pollfd() == nil and conn:timeout() == nil and select(3, lock:held()) == "forked"
        and select(3, lock:verify()) == "forked" and told == 0
      conn:close()
      fork.exit(fine and told == 0 and 0 or 1)
    ]]))
    assert.is_true(parent:run("return is_readable(0)"))
    stage.fails("lost", parent:run("return lock:verify()"))
    assert.is_false(parent:run("return is_readable(0)"))
    assert.equal(1, parent:run("return told"))
  end)
end)
