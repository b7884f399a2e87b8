-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Waiting at the doorbell (the queue whose messages wake waiters), with faults: a process dies, the bell or the broker
-- is gone, operators intervene. Unless stated otherwise, a waiter rechecks only every ten minutes, so one that gets a
-- slot was woken.
local broker = require "spec.support.broker"
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local SOAK = os.getenv "AMQPLOCKS_SOAK"
local operated_it = broker.operated_it(it, pending)

local function soak(short, long) return SOAK and long or short end

local function hold(name) return stage.take(stage.connect():semaphore(name)) end

local function asker() return stage.client() end

-- A process that holds a slot.
local function holder(name, options)
  local new = line.process(name, options)
  assert(new:run("return take(60)"))
  return new
end

local function empty(name) assert(asker():channel():call{ method = "queue.purge", queue = stage.bell(name) }) end

-- Waits until one is served; gives its slot.
local function served(one)
  local slot, message = one:finish()
  assert.is_truthy(slot, message)
  return slot
end

after_each(stage.clear)
teardown(stage.check)

-- It would give one token to everybody, and end the connection that gives one back.
it("a bell that is a stream wakes nobody, and costs no lock: a waiter looks by itself", function()
  local name, conn = stage.semaphore(1), stage.connect()
  local mutex, held = stage.take(conn:mutex(stage.mutex())), hold(name)
  local channel = asker():channel()
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
  it("that is first in line, before or while its token comes, the others are served", function()
    for _ = 1, soak(1, 40) do
      local name, waiting = line.semaphore(1), {}
      local held = holder(name)
      for i, one in ipairs(line.processes(name, 8)) do waiting[i] = line.join(one) end
      for round = 0, 3 do
        local victim, heir = table.remove(waiting, 1), table.remove(waiting, 1)
        if round == 0 then
          victim:kill()
          held:begin("return lock:release()")
        else
          held:begin("require('socket').sleep(...) return lock:release()", math.random() * 0.006)
          victim:kill() -- which takes a few milliseconds itself
        end
        assert.is_true(held:finish())
        assert.equal(1, served(heir))
        assert.is_true(line.all_wait(waiting))
        held = heir
      end
      line.leave(held)
      stage.clear()
    end
  end)

  it("that holds hundreds of slots on one connection, all who wait get one, and no token is wasted", function()
    local slots = soak(120, 300)
    local name, waiting = stage.name(), {}
    stage.connect():admin(name):create(slots)
    stage.undo(function()
      line.settled(name, slots)
      assert.is_true(stage.connect():admin(name):destroy())
    end)
    local held = stage.process(name)
    held:begin("locks = {} for i = 1, ... do locks[i] = assert(sem:acquire{ timeout = 60 }) end", slots):finish(120)
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
  it("is deleted, who waits looks at once, then by itself, who holds is unharmed, and a repair helps", function()
    local name = line.semaphore(2, 9)
    local held, far, near = hold(name), line.process(name), line.process(name)
    local occupant = stage.occupy(name, 2)
    line.join(far)
    line.join(near, { poll = 3 })
    until_true(function() return not occupant:asked() end)
    stage.delete(stage.bell(name))
    occupant:await_looks(3) -- near's, and far's
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

  operated_it("is flooded with tokens and other messages, waiting heals it", function()
    local name, waiting = line.semaphore(2, 4), {}
    local held, asking = { hold(name), hold(name) }, asker()
    for i, one in ipairs(line.processes(name, 4)) do waiting[i] = line.join(one, { poll = 2 }) end
    for i = 1, 10 do
      stage.ring(name, 2)
      assert.equal("present", asking:probe(stage.bell(name), { type = i % 2 == 0 and "junk" or nil }))
    end
    line.until_tokens(name, 2)
    line.until_at(name, 0, 6)
    assert.is_true(line.all_wait(waiting))
    local far = line.process(name)
    line.join(far)
    for _, lock in ipairs(held) do assert(lock:release()) end
    table.insert(waiting, far)
    line.serve(waiting)
  end)
end)

describe("when a bell that those who wait make answers nothing,", function()
  for _, kind in ipairs{ "mutex", "read" } do
    operated_it(("whoever waits goes on by looking: %s"):format(kind), function()
      local name = gate.name()
      local held = gate.holder(kind == "read" and "write" or kind, name)
      gate.make_bell(kind, name)
      broker.suite:suspend_queue(gate.bell(kind, name))
      stage.undo(function() broker.suite:resume_queue(gate.bell(kind, name)) end)
      local waiter = line.begin(gate.process(kind, name), { timeout = 60, poll = 0.5 })
      until_true(function() return line.waits(waiter) end)
      assert.is_true(held:run("return lock:release()"))
      gate.served(waiter)
      assert.is_true(waiter:run("return lock:held() and lock:release()"))
    end)
  end
end)

describe("when an operator", function()
  operated_it("lets tokens be kept for a short time only, the lock is untouched and rings in the end", function()
    local function limit(milliseconds, tick)
      broker.suite:tell(("application:set_env(rabbit, consumer_timeout, %d), "):format(milliseconds)
        .. ("application:set_env(rabbit, channel_tick_interval, %d), ok."):format(tick))
    end
    if asker():since(4, 3) then return pending "tokens may be kept for ever" end
    stage.undo(function() limit(1800000, 60000) end)
    limit(5000, 50)
    local name, told = line.semaphore(1, 4), {}
    local conn = stage.connect(nil, { on_lost = function(_, code) table.insert(told, code) end })
    local held = stage.take(conn:semaphore(name))
    line.until_at(name, 0, 1)
    line.settled(name, 1) -- the broker took its token back
    limit(200, 50)
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

  operated_it("has too little memory for publishers, tokens are handed over; a ring is not, and found by looking",
    function()
      local name, poor = line.semaphore(1), stage.semaphore(1)
      local held, waiting = hold(name), {}
      for i, one in ipairs(line.processes(name, 3)) do waiting[i] = line.join(one) end
      empty(poor)
      local without, far = holder(poor), line.process(poor)
      line.join(far, { poll = 3 })
      stage.alarm()
      assert(held:release())
      assert.same({ 1, 2, 3 }, line.serve(waiting))
      line.settled(name, 1)
      line.leave(without)
      assert.equal(1, served(far))
      broker.suite:alarm(false)
      line.leave(far)
    end)
end)

describe("when the broker is started again", function()
  local node = broker.suite

  operated_it("who waits is told, locks are lost, and a token for each slot is there for who comes again", function()
    local name, sides = stage.name(), {}
    local conn = stage.connect(node.url)
    assert.equal(2, conn:admin(name):create(2))
    for i = 1, 4 do
      sides[i] = line.process(name, nil, node.url)
      if i <= 2 then assert.equal(i, sides[i]:run("return take(60)")) else line.begin(sides[i]) end
    end
    until_true(function() return line.waits(sides[3]) and line.waits(sides[4]) end)
    node:kill()
    for i = 3, 4 do stage.fails("unreachable", sides[i]:finish()) end
    node:restart()
    for i = 1, 2 do
      until_true(function() return not sides[i]:run("return lock:held()") end) -- without having asked
      stage.fails("lost", sides[i]:run("return lock:verify()"))
    end
    assert.equal(2, line.at(name))
    for i = 1, 2 do assert.equal(i, sides[i]:run("return take(60)")) end
    line.begin(sides[3])
    until_true(function() return line.waits(sides[3], 2) end)
    line.leave(sides[2])
    assert.equal(2, (sides[3]:finish()))
    line.leave(sides[1])
    line.leave(sides[3])
    line.settled(name, 2)
    assert.is_true(conn:admin(name):destroy())
  end)
end)
