-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Waiting for a connection together with other descriptors, in the caller's own loop.
local broker = require "spec.support.broker"
local kinds = require "spec.support.kinds"
local process = require "spec.support.process"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local has_cqueues, cqueues = pcall(require, "cqueues")

local operated_it = broker.operated_it(it, pending)
local cqueues_it = has_cqueues and operated_it or pending

stage.tidy()

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

  it("is one for the connection, not inherited by programs, silent while nothing is lost, gone with it", function()
    local fd, flags = conn:pollfd(), nil
    assert.same({ fd, "r" }, { conn:pollfd(), conn:events() })
    for text in io.lines("/proc/self/fdinfo/" .. math.floor(fd)) do
      flags = flags or text:match "^flags:%s*0*(%d+)"
    end
    assert.equal("2004002", flags) -- octal: O_CLOEXEC, O_NONBLOCK, O_RDWR
    local lock = stage.take(sem)
    assert.is_nil(conn:timeout()) -- its thread keeps time
    assert.is_true(not is_readable(conn) and lock:verify() and lock:release())
    assert.is_false(is_readable(conn, 0.3))
    lock = stage.take(sem)
    conn:close()
    assert.same({}, { conn:pollfd(), conn:timeout(), (lock:held()) or nil })
    assert.is_nil(io.open("/proc/self/fdinfo/" .. math.floor(fd)))
  end)

  operated_it("is readable when a lock is asked back or lost, until the next call that may wait", function()
    local lock, other = stage.take(sem), stage.take(sem)
    assert.is_false(is_readable(conn))
    assert(stage.connect():admin(name):revoke(1))
    assert.is_true(is_readable(conn, 60) and lock:revoked() and other:verify())
    assert.is_false(is_readable(conn))
    lose(name)
    assert.is_true(is_readable(conn, 60))
    stage.fails("lost", lock:held())
    assert.is_true(is_readable(conn) and other:verify())
    assert.is_false(is_readable(conn))
    lose(name, 2)
    assert.is_true(is_readable(conn, 60))
    stage.fails("lost", other:release())
    assert.is_false(is_readable(conn, 0.3))
  end)

  operated_it("is readable at once when it is made after the loss", function()
    local lock = stage.take(sem)
    lose(name)
    until_true(function() return not lock:held() end)
    assert.is_true(is_readable(conn))
  end)

  operated_it("is readable when a mutex for clusters is lost, which the next call tells on_lost", function()
    local kind, told = kinds.all.quorum_mutex, {}
    if not kind then return pending "from 4.3 on" end
    for i, act in ipairs{ broker.suite.delete_queue, broker.suite.close_connection } do
      name = kind.name()
      conn = stage.connect(nil, { name = name, on_lost = function(...) told[i] = { ... } end })
      local lock = stage.take(kind.over(conn, name))
      assert.is_false(is_readable(conn))
      act(broker.suite, name .. (i == 1 and "-fastmutex" or " quorum"))
      assert.is_true(is_readable(conn, 60) and not told[i])
      stage.fails("lost", lock:verify())
      assert.same({ lock, "lost" }, { told[i][1], told[i][2] })
      assert.is_false(is_readable(conn, 0.3))
    end
  end)
end)

describe("a connection's timeout", function()
  it("is when the connection wants a call, where no thread could be started; until one can", function()
    local name = stage.semaphore(1)
    local occupant, other = stage.occupy(name, 1), stage.process(name)
    local function allow(files)
      process.shell("prlimit", "--nofile=" .. files .. ":", "--pid", ("%d"):format(other.pid))
    end
    stage.fails("busy", other:run("return sem:try_acquire()")) -- both connections are open
    occupant:release()
    allow(3)
    other:run("lock = assert(sem:try_acquire())")
    local timeout, fd = other:run("return conn:timeout(), conn:pollfd()")
    assert.is_nil(fd)
    assert.is_true(timeout >= 0 and timeout <= 5, tostring(timeout))
    assert.is_true(other:run("return lock:verify()"))
    allow(1000)
    fd = other:run("return conn:pollfd()")
    assert.is_number(fd)
    assert.is_nil(other:run("return conn:timeout()"))
    assert.is_true(other:run("return lock:held() and lock:release()"))
  end)
end)

cqueues_it("cqueues waits for a connection beside others; each wakes for its own loss, and once", function()
  local loop, woken = cqueues.new(), {}
  local function watch(label, conn, lock)
    loop:wrap(function()
      assert.equal(conn, cqueues.poll(conn, 60))
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
