-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Waiting at the doorbell (the queue whose messages wake waiters), with faults: a process dies, the bell is gone,
-- operators intervene. Unless stated otherwise, a waiter rechecks only every ten minutes, so one that gets a
-- slot was woken.
local broker = require "spec.support.broker"
local line = require "spec.support.line"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local SOAK = os.getenv "AMQPLOCKS_SOAK"
local operated_it = broker.operated_it(it, pending)

local function soak(short, long) return SOAK and long or short end

local function hold(name) return stage.take(stage.connect():semaphore(name)) end

-- Waits until one is served; gives its slot.
local function served(one)
  local slot, message = one:finish()
  assert.is_truthy(slot, message)
  return slot
end

stage.tidy()

-- It would give one token to everybody, and end the connection that gives one back.
it("a bell that is a stream wakes nobody, and costs no lock: a waiter looks by itself", function()
  local name, conn = stage.semaphore(1), stage.connect()
  local mutex, held = stage.take(conn:mutex(stage.mutex())), hold(name)
  local channel = stage.client():channel()
  assert(channel:call{ method = "queue.delete", queue = stage.bell(name) })
  assert(channel:call{ method = "queue.declare", queue = stage.bell(name), durable = true,
    arguments = { ["x-queue-type"] = "stream" } })
  local got, message = conn:semaphore(name):acquire{ timeout = 60, poll = 1, on_wait = function()
    channel:publish{ routing_key = stage.bell(name), properties = { type = "amqplocks.token" } }
    channel.client:flush()
    held = held and not held:release()
  end }
  assert.is_truthy(got, message)
  assert.is_true(got:release() and mutex:verify() and mutex:release())
end)

describe("when somebody is killed", function()
  it("that holds hundreds of slots on one connection, all who wait get one, and no token is wasted", function()
    local slots = soak(120, 300)
    local name, waiting = stage.name(), {}
    stage.connect():admin(name):create(slots)
    stage.undo(function()
      line.settled(name, slots)
      assert.is_true(stage.connect():admin(name):destroy())
    end)
    local held = stage.process(name)
    held:begin([[ -- a search that begins at slot 1 looks at all that are held
      sem, locks = conn:semaphore(..., { strategy = "last" }), {}
      for i = 1, select(2, ...) do locks[i] = assert(sem:acquire{ timeout = 60 }) end]], name, slots):finish(120)
    line.until_at(name, 0, slots)
    for i, one in ipairs(line.processes(name, 10)) do waiting[i] = line.join(one) end
    held:kill()
    local taken = {}
    for _, one in ipairs(waiting) do
      local slot = served(one)
      assert.is_nil(taken[slot])
      taken[slot] = true
    end
    line.until_at(name, slots - 10, 10)
  end)
end)

describe("when the bell", function()
  it("is deleted, a waiter looks at once, then by itself, the holder is unharmed, and a repair helps", function()
    local name = line.semaphore(2, 9)
    local held, far, near = hold(name), line.process(name), line.process(name)
    local occupant = stage.occupy(name, 2)
    line.join(far)
    line.join(near, { poll = 3 })
    until_true(function() return not occupant:asked() end)
    near:signal "STOP"
    near:await_state "T"
    stage.delete(stage.bell(name))
    occupant:await_looks(1) -- far's: a later one would find what the holder releases
    near:signal "CONT"
    occupant:await_looks(2) -- near's
    assert.is_true(held:held() and held:verify())
    assert.is_true(line.all_wait{ far, near })
    assert.is_true(held:release())
    assert.equal(1, served(near))
    assert.is_nil(line.at(name))
    assert.equal(2, stage.connect():admin(name):repair())
    local fresh = line.join(line.process(name))
    line.leave(near)
    assert.equal(1, served(fresh))
    far:kill()
    occupant:release()
    line.leave(fresh)
    local last = hold(name) -- there was a token for nobody's slot, and one was rung for
    assert(last:release())
  end)
end)

describe("when an operator", function()
  operated_it("lets tokens be kept for a short time only, the lock is untouched and rings in the end", function()
    if stage.client():since(4, 3) then return pending "tokens may be kept for ever" end
    stage.undo(function() broker.suite:limit_consumers() end)
    broker.suite:limit_consumers(5000)
    local name, told = line.semaphore(1, 4), {}
    local conn = stage.connect(nil, { on_lost = function(_, code) table.insert(told, code) end })
    local held = stage.take(conn:semaphore(name))
    line.until_at(name, 0, 1)
    line.settled(name, 1) -- the broker took its token back
    broker.suite:limit_consumers(200)
    assert.is_true(held:held() and held:verify() and stage.held(name, 1))
    local waiter, second = line.process(name), line.process(name)
    line.begin(waiter) -- which is woken by that token, in vain: it is taken back once more
    line.begin(second)
    assert.is_true(held:verify())
    assert.is_true(held:release())
    local list = { waiter, second }
    line.serve(list)
    assert.same({}, told)
  end)
end)
