-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The mutex: held by one process, as other clients see it, and gone after the release. Unless stated otherwise, waiters
-- here recheck only every ten minutes, so a waiter that gets the mutex was woken.
local broker = require "spec.support.broker"
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local function hold(name, options, conn) return gate.take("mutex", name, options, conn) end

local function held(name) return gate.held("mutex", name) end

local function queue(name) return gate.queue("mutex", name) end

stage.tidy()

describe("a mutex", function()
  operated_it("is one queue while it is held, and nothing before and after but the bell of those who waited", function()
    local name = gate.name()
    local mutex = stage.connect():mutex(name)
    for _ = 1, 2 do
      assert.same({}, gate.queues(name))
      local lock = stage.take(mutex)
      assert.same({ queue(name) }, gate.queues(name))
      assert.is_true(lock:release())
    end
    local lock = stage.take(mutex)
    gate.make_bell("mutex", name)
    assert.same({ queue(name), gate.bell("mutex", name) }, gate.queues(name))
    assert(lock:release())
    assert.same({ gate.bell("mutex", name) }, gate.queues(name))
  end)

  it("is created and destroyed only if it is persistent", function()
    local mutex = stage.connect():mutex "x"
    for _, action in ipairs{ "create", "destroy" } do
      assert.error_matches(function() mutex[action](mutex) end, "only a persistent mutex")
    end
  end)
end)

describe("those who wait for a mutex", function()
  it("are served in the order of their arrival, fair or not", function()
    local name, waiting = gate.name(), {}
    local lock = hold(name)
    for i, one in ipairs(gate.processes("mutex", name, 4)) do waiting[i] = line.join(one, { fair = i % 2 == 0 }) end
    assert(lock:release())
    assert.same({ 1, 2, 3, 4 }, line.serve(waiting))
  end)

  it("are woken by who leaves, also where they look without publishing, so that nobody knows of them", function()
    local name = gate.name()
    local lock, one = hold(name), gate.process("mutex", name)
    one:run("sem = conn:mutex(..., { probe = 'passive' })", name)
    line.join(one, nil, true)
    gate.until_at("mutex", name, 0, 1)
    assert(lock:release())
    gate.served(one)
  end)

  it("look for themselves where a bell of other arguments stands in the way", function()
    local name = gate.name()
    assert(stage.client():declare(gate.bell("mutex", name), { durable = true }))
    local lock, one = hold(name), gate.process("mutex", name)
    line.begin(one, { poll = 0.1 })
    until_true(function() return line.waits(one) end)
    assert(lock:release())
    gate.served(one)
  end)
end)

operated_it("nobody can release a mutex with the lock of an earlier holding, released or lost", function()
  local name, conn = gate.name(), stage.connect()
  local released = hold(name, nil, conn)
  assert(released:release())
  local lost = hold(name, nil, conn)
  broker.suite:delete_queue(queue(name))
  until_true(function() return not lost:held() end)
  local later = hold(name, { timeout = 60 }, conn)
  stage.fails("not_held", released:release())
  stage.fails("lost", lost:release())
  stage.fails("not_held", lost:release())
  released._core:drop() -- as the collector would
  lost._core:drop()
  stage.fails("not_found", conn:semaphore("spec.nothing"):try_acquire()) -- whatever it wrote is written
  assert.is_true(held(name) and later:held() and later:verify())
end)

for kind, queue_of in pairs{ mutex = "mutex", read = "write", write = "write" } do
  it("an operator finds out what squats on a lock, and until it is deleted nobody holds it: " .. kind, function()
    local name, squatter = gate.name(), stage.client()
    local there = gate.queue(queue_of, name)
    assert(squatter:declare(there, { durable = true }))
    local message = stage.fails("squatted", gate.new(stage.connect(), kind, name):try_acquire())
    assert.matches('"' .. there .. '" is not exclusive', message, 1, true)
    stage.fails("squatted", gate.new(stage.connect(), kind, name, { probe = "passive" }):acquire{ timeout = 60 })
    assert.equal(0, squatter:message_count(there))
    assert(squatter:delete(there))
    assert.is_true(gate.take(kind, name, { timeout = 60 }):verify())
  end)
end

operated_it("a user who may not touch the bell waits by looking", function()
  local name = gate.name()
  local permitted = "^" .. queue(name) .. "$"
  local conn = stage.connect_as(permitted, "^amq\\.default$", permitted, { timeout = 5 })
  local lock = hold(name)
  stage.fails("timeout", conn:mutex(name):acquire{ timeout = 0.3, poll = 0.1 })
  assert(lock:release())
  assert.is_true(hold(name, { timeout = 60, poll = 0.1 }, conn):release())
end)

it("a persistent mutex is not found before it is created, and is asked back from its holder", function()
  local name = stage.name()
  local mutex = stage.connect():mutex(name, { persistent = true })
  stage.undo(function() stage.connect():mutex(name, { persistent = true }):destroy() end)
  stage.fails("not_found", mutex:acquire{ timeout = 60 })
  assert.is_true(mutex:create())
  stage.fails("not_held", mutex:revoke())
  local one = line.process(name)
  assert.equal(1, one:run("return take(60)"))
  one:begin("while not lock:revoked() do end return lock:release()")
  assert.is_true(mutex:revoke{ wait = 60 })
  assert.is_true(one:finish())
  assert.is_true(stage.take(mutex):release())
end)
