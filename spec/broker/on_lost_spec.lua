-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- on_lost, the callback for lost locks, with losses caused by other clients at the broker; spec/unit/lua/on_lost_spec
-- has every order of events, and functions that throw, wait or close the connection.
local broker = require "spec.support.broker"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

stage.tidy()

describe("on_lost", function()
  local told

  before_each(function() told = {} end)

  local function connect(fn, options)
    options = options or {}
    function options.on_lost(lock, code, message)
      table.insert(told, { lock = lock, code = code, message = message })
      if fn then fn(lock) end
    end
    return stage.connect(nil, options)
  end

  operated_it("is not called while Lua computes, but by the next call that may wait", function()
    local name = stage.semaphore(2)
    local sem = connect():semaphore(name)
    local lock, other = stage.take(sem), stage.take(sem)
    broker.suite:delete_queue(stage.holder(name, 1))
    until_true(function() return not lock:held() end) -- the connection's thread has read it
    assert.same({}, told)
    assert.is_true(other:verify())
    assert.equal(1, #told)
    assert.equal(lock, told[1].lock)
    assert.equal(select(2, lock:held()), told[1].message)
    assert.is_true(other:release())
    assert.equal(1, #told)
  end)

  -- openresty_worker_spec has a light thread of nginx that is killed.
  local closing_it = coroutine.close and operated_it or pending
  closing_it("is called by others again when the coroutine in which it yields is closed", function()
    local name = stage.semaphore(2)
    local sem = connect(function() if #told == 1 then coroutine.yield() end end):semaphore(name)
    local locks = { stage.take(sem), stage.take(sem) }
    local thread = coroutine.create(function() locks[1]:verify() end)
    for i, lock in ipairs(locks) do
      broker.suite:delete_queue(stage.holder(name, i))
      until_true(function() return not lock:held() end)
      if i == 1 then assert(coroutine.resume(thread)) else stage.fails("lost", lock:verify()) end
      assert.equal(1, #told)
    end
    assert(coroutine.close(thread))
    assert.is_true(stage.take(sem):release())
    assert.equal(locks[2], told[2].lock)
  end)

  operated_it("may take new locks for the lost ones on the same connection, each once", function()
    local name, again = stage.semaphore(20), {}
    local sem
    local conn = connect(function() table.insert(again, stage.take(sem, { timeout = 60 })) end,
      { name = name })
    sem = conn:semaphore(name)
    local locks = {}
    for i = 1, 20 do locks[i] = stage.take(sem) end
    broker.suite:close_connection(name .. " holder")
    until_true(function() return not locks[1]:held() end)
    assert.equal("lost", select(3, locks[20]:verify()))
    assert.same({ 20, 20 }, { #told, #again })
    for _, lock in ipairs(again) do assert.is_true(lock:verify() and stage.held(name, lock.slot)) end
    assert.equal(20, #told)
    conn:close()
    assert.equal(20, #told)
  end)
end)

-- While `on_wait` is called others move the connection: here it does so itself.
describe("a lock that is lost before its owner comes to it", function()
  operated_it("is not handed over, and told of only by what acquire returns", function()
    local name, told, was_called, waited = stage.semaphore(1), 0, false, false
    local occupant, rival = stage.occupy(name, 1), stage.connect()
    local conn = stage.connect(nil, { on_lost = function() told = told + 1 end })
    local other = stage.take(conn:mutex(stage.name()))

    -- Until the connection has read that something was asked back, or lost.
    local function until_alerted(times)
      until_true(function() return other:verify() and conn._session:alerts() == times end)
    end

    stage.fails("lost", conn:semaphore(name):with({ timeout = 60, on_wait = function()
      if waited then return end
      waited = true
      occupant:release()
      until_true(function() return other:verify() and stage.held(name, 1) end)
      assert.is_true(rival:admin(name):revoke(1))
      until_alerted(1) -- so it has the lock
      broker.suite:delete_queue(stage.holder(name, 1))
      until_alerted(2)
      rival = stage.take(rival:semaphore(name), { timeout = 60 })
    end }, function() was_called = true end))
    assert.same({ false, 0 }, { was_called, told })
    assert.is_true(other:verify())
    assert.is_true(rival:verify())
  end)
end)
