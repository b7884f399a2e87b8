-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Operations that are abandoned at each of their steps: no lock stays held, no channel stays in use, and the connection
-- still works. The steps are those of the native driver's waits, seen through the core's own interface.
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local MANY = 100 -- more steps than any operation has here

-- Waits at most `steps` times; true if it is done.
local function go(conn, operation, steps)
  for _ = 1, steps do
    if operation:done() then return true end
    conn._session:wait(operation)
  end
  return operation:done()
end

local function finish(conn, operation)
  go(conn, operation, MANY)
  return operation:result()
end

-- Something that needs both connections: whatever waited to be written is, whatever came is read. So long as the broker
-- has not closed the channels that were given up, there may be none left.
local function stir(conn)
  until_true(function()
    local _, message, code = conn:semaphore("spec.nothing"):try_acquire()
    if code ~= "limit" then stage.fails("not_found", nil, message, code) end
    return code == "not_found"
  end)
end

local function assert_nothing_held(name, sem)
  stage.until_free(name, 1)
  local rival = stage.connect():semaphore(name)
  assert(stage.take(rival, { timeout = 5 }):release())
  local again = until_true(function() return sem:try_acquire() end)
  assert.is_true(again:verify() and stage.held(name, 1))
  assert.is_true(again:release())
  assert.is_true(stage.free(name, 1))
end

-- Gives up(conn, sem, steps), which says whether it had come to its end, with more steps each time until it does.
local function at_each_step(give_up, new_conn, options)
  local name = stage.semaphore(1)
  local conn = stage.connect()
  for steps = 0, MANY do
    if new_conn then conn = stage.connect() end
    local sem = conn:semaphore(name, options)
    local ended = give_up(conn, sem, steps)
    stir(conn)
    assert_nothing_held(name, sem)
    if ended then return end
  end
  error("it never came to its end")
end

local function dropped(conn, sem, steps)
  local operation = sem._core:acquire(5)
  local ended = go(conn, operation, steps)
  operation:drop()
  return ended
end

after_each(stage.clear)
teardown(stage.check)

describe("an acquire given up at each of its steps leaves nothing held", function()
  for _, probe in ipairs{ "publish", "passive" } do
    it("on a new connection, probing by " .. probe, function() at_each_step(dropped, true, { probe = probe }) end)
    it("on a connection in use, probing by " .. probe, function() at_each_step(dropped, false, { probe = probe }) end)
  end

  it("when it is collected", function()
    at_each_step(function(conn, sem, steps)
      local ended = go(conn, sem._core:acquire(5), steps)
      collectgarbage()
      collectgarbage()
      return ended
    end)
  end)

  it("by an error in whoever waits", function()
    at_each_step(function(conn, sem, steps)
      local left = steps
      local restore = stage.wait_by(conn, function(wait, operation)
        if left == 0 then error("enough", 0) end
        left = left - 1
        wait(operation)
      end)
      local fine, result = pcall(sem.acquire, sem, { timeout = 5 })
      restore()
      if fine then assert(result:release()) else assert.equal("enough", result) end
      return fine
    end)
  end)

  -- Ctrl-C sets a debug hook, which raises an error at the next instruction of a Lua function. During a wait in C that
  -- is in the function that the core calls after each.
  it("by Ctrl-C during the wait", function()
    local name, conn = stage.semaphore(1), stage.connect()
    local sem = conn:semaphore(name)
    local interrupted = 0
    assert(sem:acquire{ timeout = 5 }):release()
    collectgarbage "stop" -- would release what has no owner
    finally(function() collectgarbage "restart" end)
    local function interrupt()
      if debug.getinfo(2, "S").source ~= "=amqplocks.pause" then return end
      debug.sethook()
      interrupted = interrupted + 1
      error("interrupted!", 0)
    end
    for _ = 1, 3 do
      debug.sethook(interrupt, "", 1)
      local fine, problem = pcall(sem.acquire, sem, { timeout = 5 })
      debug.sethook()
      assert.same({ false, "interrupted!" }, { fine, problem })
      stage.until_free(name, 1)
    end
    assert.equal(3, interrupted)
    assert_nothing_held(name, sem)
  end)

  -- As a driver with an event loop would.
  it("by a coroutine that is thrown away", function()
    at_each_step(function(conn, sem, steps)
      local restore = stage.wait_by(conn, function(wait, operation)
        coroutine.yield()
        wait(operation)
      end)
      local thread = coroutine.create(function() assert(sem:acquire{ timeout = 5 }):release() end)
      for _ = 0, steps do
        if coroutine.status(thread) ~= "dead" then assert(coroutine.resume(thread)) end
      end
      local ended = coroutine.status(thread) == "dead"
      restore()
      thread = nil -- luacheck: ignore 311
      collectgarbage()
      collectgarbage()
      return ended
    end)
  end)

  it("and no channel taken, a hundred times over", function()
    local name = stage.semaphore(1)
    local conn = stage.connect(os.getenv "AMQP_URL" .. "?channel_max=20")
    for _, probe in ipairs{ "publish", "passive" } do
      local sem = conn:semaphore(name, { probe = probe })
      for i = 1, 50 do dropped(conn, sem, i % 8) end
    end
    stir(conn)
    assert_nothing_held(name, conn:semaphore(name))
  end)

  it("while it waits for a slot, and the slot goes to another", function()
    local name = stage.semaphore(1)
    local occupant, conn = stage.occupy(name, 1), stage.connect()
    local sem = conn:semaphore(name)
    local operation = sem._core:acquire(60)
    for _ = 1, 2 do
      until_true(function()
        conn._session:wait(operation)
        return occupant:asked()
      end)
    end
    assert.is_false(operation:done())
    operation:drop()
    occupant:release()
    assert_nothing_held(name, sem)
  end)
end)

describe("an acquire given up between its claim and the broker's answer", function()
  -- Stops when the broker has taken the claim and the library has not yet read so.
  local function claimed(name, conn, sem)
    while true do
      local operation = sem._core:acquire(5)
      while not operation:done() do
        conn._session:wait(operation)
        pcall(stage.until_held, name, 1, 0.05)
        if stage.held(name, 1) and not operation:done() then return operation end
      end
      finish(conn, (operation:result()):release())
    end
  end

  it("leaves nothing held once the connection is used again", function()
    local name, conn = stage.semaphore(1), stage.connect()
    local sem = conn:semaphore(name)
    for _ = 1, 5 do
      claimed(name, conn, sem):drop()
      stir(conn)
      assert_nothing_held(name, sem)
    end
  end)

  it("leaves nothing held though the connection is not used any more", function()
    local name, conn = stage.semaphore(1), stage.connect()
    local sem = conn:semaphore(name)
    claimed(name, conn, sem):drop()
    stage.until_free(name, 1)
  end)

  -- What is being undone is no lock of its own, so that is no deadlock.
  it("does not keep the same connection from waiting for the slot", function()
    local name, conn = stage.semaphore(1), stage.connect()
    local sem = conn:semaphore(name)
    for _ = 1, 5 do
      claimed(name, conn, sem):drop()
      assert(assert(sem:acquire{ timeout = 5 }):release())
    end
  end)
end)

describe("a lock that is dropped", function()
  -- Its release is under way: that is no deadlock either.
  it("does not keep its connection from waiting for the slot", function()
    local sem = stage.connect():semaphore(stage.semaphore(1))
    for _ = 1, 10 do
      assert(sem:acquire{ timeout = 5 })
      collectgarbage()
      collectgarbage()
    end
  end)

  it("leaves the slot to another connection that waits", function()
    local name = stage.semaphore(1)
    local sem, rival = stage.connect():semaphore(name), stage.connect():semaphore(name)
    for _ = 1, 5 do
      assert(sem:acquire{ timeout = 5 })
      collectgarbage()
      collectgarbage()
      assert(assert(rival:acquire{ timeout = 5 }):release())
    end
  end)
end)

describe("what is done with a lock and given up", function()
  it("leaves it held, at each step of a verify", function()
    local name, conn = stage.semaphore(1), stage.connect()
    local lock = stage.take(conn:semaphore(name))
    for steps = 0, MANY do
      local operation = lock._core:verify()
      local ended = go(conn, operation, steps)
      operation:drop()
      assert.is_true(lock:held() and lock:verify() and stage.held(name, 1))
      if ended then return end
    end
  end)

  it("leaves it released, at each step of a release", function()
    at_each_step(function(conn, sem, steps)
      local lock = assert(sem:try_acquire())
      local operation = lock._core:release()
      local ended = go(conn, operation, steps)
      operation:drop()
      assert.is_false((lock:held()))
      return ended
    end)
  end)

  -- In another process, as it once was the end of it.
  it("leaves it released when a close is given up, and does no harm", function()
    local name = stage.semaphore(1)
    local other = stage.process(name)
    other:run("lock = assert(sem:try_acquire())")
    assert.is_true(stage.held(name, 1))
    other:run("local closing = conn._session:close() closing:drop()")
    stage.until_free(name, 1)
    stage.fails("closed", other:run("return sem:try_acquire()"))
  end)
end)
