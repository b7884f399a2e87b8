-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Operations that are abandoned at each of their steps: no lock stays held, no channel stays in use, and the connection
-- still works. The steps are those of the native driver's waits, seen through the core's own interface.
local kinds = require "spec.support.kinds"
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
  assert(stage.take(rival, { timeout = 60 }):release())
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

after_each(stage.clear)
teardown(stage.check)

describe("an acquire given up at each of its steps leaves nothing held", function()
  for probe, is_new in pairs{ publish = true, passive = false } do
    it(("on a %s connection, probing by %s"):format(is_new and "new" or "used", probe), function()
      at_each_step(function(conn, sem, steps)
        local operation = sem._core:acquire{ timeout = 60 }
        local ended = go(conn, operation, steps)
        if steps % 2 == 0 then operation:drop() end
        operation = nil -- luacheck: ignore 311
        collectgarbage()
        collectgarbage()
        return ended
      end, is_new, { probe = probe })
    end)
  end

  -- As a driver with an event loop would, where coroutines cannot be closed.
  it("by a coroutine that is thrown away", function()
    at_each_step(function(conn, sem, steps)
      local restore = stage.wait_by(conn, function(wait, operation)
        coroutine.yield()
        wait(operation)
      end)
      local thread = coroutine.create(function() assert(sem:acquire{ timeout = 60 }):release() end)
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
      for i = 1, 50 do
        local operation = sem._core:acquire{ timeout = 60 }
        go(conn, operation, i % 8)
        operation:drop()
      end
    end
    stir(conn)
    assert_nothing_held(name, conn:semaphore(name))
  end)
end)

-- When the broker has taken the claim and the library has not yet read so.
it("an acquire given up between its claim and the broker's answer leaves nothing held, and nobody waiting", function()
  local name, conn = stage.semaphore(1), stage.connect()
  local sem = conn:semaphore(name)
  local function drop_claimed()
    while true do
      local operation = sem._core:acquire{ timeout = 60 }
      while not operation:done() do
        conn._session:wait(operation)
        pcall(stage.until_held, name, 1, 0.05)
        if stage.held(name, 1) and not operation:done() then return operation:drop() end
      end
      local release = operation:result():release()
      go(conn, release, MANY)
    end
  end
  drop_claimed()
  stage.until_free(name, 1) -- though the connection is not used
  for _ = 1, 3 do
    drop_claimed()
    stir(conn)
    assert_nothing_held(name, sem)
    drop_claimed() -- what is being undone is no lock of its own, so that is no deadlock
    assert(assert(sem:acquire{ timeout = 60 }):release())
  end
end)

it("a lock that is dropped leaves the slot to its own connection and to another that waits", function()
  local name = stage.semaphore(1)
  local sem, rival = stage.connect():semaphore(name), stage.connect():semaphore(name)
  for i = 1, 10 do
    assert(sem:acquire{ timeout = 60 })
    collectgarbage()
    collectgarbage()
    if i % 2 == 0 then assert(assert(rival:acquire{ timeout = 60 }):release()) end
  end
end)

for kind, makes in pairs(kinds.all) do
  it("a verify given up at each of its steps leaves the lock held: " .. kind, function()
    local name, conn = makes.name(), stage.connect()
    local lock, rival = stage.take(makes.over(conn, name)), kinds.rival(kind, name)
    for steps = 0, MANY do
      local operation = lock._core:verify()
      local ended = go(conn, operation, steps)
      operation:drop()
      assert.is_true(lock:held() and lock:verify())
      stage.fails("busy", rival:try_acquire())
      if ended then return end
    end
  end)
end

-- In another process, as it once was the end of it.
it("a close that is given up releases the lock, and does no harm", function()
  local name = stage.semaphore(1)
  local other = stage.process(name)
  other:run("lock = assert(sem:try_acquire())")
  assert.is_true(stage.held(name, 1))
  other:run("local closing = conn._session:close() closing:drop()")
  stage.until_free(name, 1)
  stage.fails("closed", other:run("return sem:try_acquire()"))
end)
