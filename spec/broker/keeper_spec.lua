-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- While Lua computes without calling a function of this library that waits, a thread of the session keeps it alive.
local lfs = require "lfs"
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local process = require "spec.support.process"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"
local witness = require "spec.support.witness"

local operated_it = broker.operated_it(it, pending)

local SOAK = os.getenv "AMQPLOCKS_SOAK"
-- A broker drops a silent client after two to three heartbeats.
local HEARTBEAT = SOAK and 2 or 1
local SECONDS = HEARTBEAT * (SOAK and 150 or 5)

setup(witness.build)
teardown(process.remove_modules)
stage.tidy()

-- A process that holds slot i, with the number of the thread that came with the lock as `keeper`; and the connection's
-- name. There is another lock and another thread before, because the thread sanitizer's own comes with the first.
local function holder(name, i)
  local new, label = witness.start(), client.unique("conn")
  assert.equal(i, new:run([[
    local name, label, heartbeat = ...
    local connect, before = require("amqplocks").connect, nil
    for _, try in ipairs{ "first", label } do
      if conn then conn:close() end
      before = witness.threads()
      conn = assert(connect(nil, { heartbeat = heartbeat, name = try }))
      lock = assert(conn:semaphore(name):try_acquire())
    end
    for thread in pairs(witness.threads()) do
      if not before[thread] then assert(not keeper) keeper = thread end
    end
    return lock.slot
  ]], name, label, HEARTBEAT))
  until_true(function() return new:run("return witness.switches(keeper) > 0") end) -- it has begun, and waits
  return new, label
end

describe("a process that computes", function()
  -- Two of them at once. One asks all the time whether it still holds its lock. The other does not even that: Lua's
  -- thread waits for nothing, and nobody allocates in its Lua. Its keeper has to send twice a heartbeat on each of two
  -- connections, something comes there as often, and for nothing else does it wake.
  it("keeps its lock over many missed heartbeats, is certain all the while, and its keeper seldom wakes", function()
    local name = stage.semaphore(2)
    local asking, computing = holder(name, 1), holder(name, 2)
    asking:begin("return witness.is_certain(lock, ...)", SECONDS)
    computing:begin([[
      local count = ...
      if jit then jit.off() end -- the compiler allocates too
      local own, keepers = witness.switches(), witness.switches(keeper)
      collectgarbage("stop")
      local start, memory = clock.now(), collectgarbage("count")
      while clock.now() - start < count do end
      local stop, grown = clock.now(), collectgarbage("count") - memory
      return witness.switches() - own, grown, (witness.switches(keeper) - keepers) / (stop - start)
    ]], SECONDS)
    local was_certain = asking:finish(3 * SECONDS + 20)
    local waited, grown, woken = computing:finish(SECONDS + 20)
    assert.is_true(was_certain)
    assert.equal(0, waited)
    assert.equal(0, grown)
    assert.is_true(woken > 0 and woken * HEARTBEAT <= 10, woken * HEARTBEAT .. " times a heartbeat")
    for i, one in ipairs{ asking, computing } do
      assert.is_true(stage.held(name, i))
      assert.is_true(one:run("assert(lock:verify()) return lock:held() and lock:release()"))
      assert.is_true(stage.free(name, i))
    end
  end)

  operated_it("learns of its loss without asking the broker: of its connection, its queue, its channel", function()
    local name = stage.semaphore(1)
    for how = 1, 3 do
      local one, label = holder(name, 1)
      one:begin("repeat until select(3, lock:held()) == 'lost' return lock:held()") -- it may be in doubt before
      if how == 1 then broker.suite:close_connection(label .. " holder") end
      if how == 2 then broker.suite:delete_queue(stage.holder(name, 1)) end
      if how == 3 then broker.suite:close_channel(stage.holder(name, 1)) end
      stage.fails("lost", one:finish())
      stage.until_free(name, 1)
      stage.fails("lost", one:run("return lock:held()"))
    end
  end)
end)

describe("the keeper", function()
  local function threads()
    local all = {}
    for thread in lfs.dir("/proc/self/task") do all[thread] = true end
    return all
  end

  -- How many there are that were not there before. One that has ended may still be seen for a moment.
  local function new_since(before)
    local count = 0
    for thread in pairs(threads()) do count = count + (before[thread] and 0 or 1) end
    return count
  end

  local function take_and_release(conn, name) assert(assert(conn:semaphore(name):acquire{ timeout = 60 }):release()) end

  it("is one thread from the first lock until the connection is closed, or collected", function()
    local name, conn = stage.semaphore(1), stage.connect()
    take_and_release(conn, name) -- as above: the sanitizer's thread has come
    conn:close()
    for _, closes in ipairs{ true, false } do
      local before = threads()
      conn = assert(amqplocks.connect())
      assert.equal(0, new_since(before))
      for _ = 1, 3 do take_and_release(conn, name) end
      assert.equal(1, new_since(before))
      if closes then conn:close() end
      conn = nil -- luacheck: ignore 311
      for _ = 1, 2 do collectgarbage() end
      until_true(function() return new_since(before) == 0 end)
    end
  end)

  -- On a connection that never held anything. It gets what comes free meanwhile.
  it("is there for who waits for a mutex, and computes when told so", function()
    local name, first, conn, told = stage.mutex(), stage.connect(), stage.connect(nil, { heartbeat = 1 }), 0
    local held = stage.take(first:mutex(name))
    local lock = stage.take(conn:mutex(name), { timeout = 60, on_wait = function()
      told = told + 1
      if told > 1 then return end
      socket.sleep(4) -- two to three heartbeats would be the end of it
      assert(held:release())
      until_true(function()
        local mine, _, code = first:mutex(name):try_acquire()
        if mine then assert(mine:release()) end
        return code == "busy"
      end)
    end })
    until_true(function() return lock:held() end) -- it may be in doubt, once lost it would stay so
  end)

  -- But SIGKILL and SIGSTOP, which nobody can block, and 32 and 33 (some have 34), which are the C library's own.
  it("leaves every signal to the program", function()
    local one = holder(stage.semaphore(1), 1)
    local keepers, own = one:run("return witness.blocked(keeper), witness.blocked()")
    assert.matches("^fffffff[8-f][7f]ffbfeff$", keepers)
    local inherited = witness.start():run("return witness.blocked()") -- from the process that runs the specs
    assert.equal(inherited, own)
  end)
end)
