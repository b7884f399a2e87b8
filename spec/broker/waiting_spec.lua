-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Waiting at the doorbell (the queue whose messages wake waiters), without faults: which waiter is woken, in which
-- order, and that nothing is left behind there. Waiters here recheck only every ten minutes, so one that gets a slot
-- was woken.
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

-- A lock on a connection of its own.
local function hold(name) return stage.take(stage.connect():semaphore(name)) end

-- Waits until an operation of the core is done.
local function complete(conn, operation)
  until_true(function()
    if not operation:done() then conn._session:wait(operation) end
    return operation:done()
  end)
end

stage.tidy()

describe("those who wait", function()
  for fair, how in pairs{ [false] = "", [true] = ", if they are fair" } do
    it("are served in the order of their arrival, one after the other" .. how, function()
      local name = line.semaphore(1)
      local held, waiting = hold(name), {}
      for i, one in ipairs(line.processes(name, 10)) do waiting[i] = line.join(one, { fair = fair }) end
      line.until_at(name, 0, 11)
      assert.is_true(line.all_wait(waiting))
      assert(held:release())
      assert.same({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }, line.serve(waiting))
      line.settled(name, 1)
    end)
  end

  it("are served by priority, and in the order of their arrival within one", function()
    local name, waiting = line.semaphore(1), {}
    local held, priorities = hold(name), { 0, 5, -3, 5, 0, 32767, -32768, 5 }
    for i, one in ipairs(line.processes(name, #priorities)) do
      waiting[i] = line.join(one, { priority = priorities[i] })
    end
    assert(held:release())
    assert.same({ 6, 2, 4, 8, 1, 5, 3, 7 }, line.serve(waiting))
  end)

  -- At a semaphore's bell nobody knows to be first: a slot that is left with no sign may be meant for others.
  for _, kind in ipairs{ "slot", "mutex" } do
    it("are told how things stand, up to the lock, and of no others where there are none: " .. kind, function()
      local name, conn, reasons = kind == "slot" and line.semaphore(1) or gate.name(), stage.connect(), {}
      local function new(on) return kind == "slot" and on:semaphore(name) or on:mutex(name) end
      local held, operation = stage.take(new(stage.connect())), new(conn)._core:acquire{ timeout = 60, poll = 600 }
      until_true(function()
        conn._session:wait(operation)
        local seconds, reason = operation:waiting()
        if reason then reasons[reason] = true end
        if seconds and held then held = not held:release() end
        return operation:done()
      end)
      assert.is_truthy(next(reasons))
      for reason in pairs(reasons) do
        assert.is_nil(reason:find "left to waiters" or reason:find "other waiters", reason)
      end
      assert.is_true(stage.finish(conn, operation):held())
    end)
  end
end)

it("a newcomer that is fair leaves a free slot to those who came before; one that is not may be faster", function()
  local name = stage.semaphore(1)
  local sem, world = stage.connect():semaphore(name), stage.client():channel()
  -- It takes every token there is or will be, as those at the head of an endless line.
  assert(world:call{ method = "basic.consume", queue = stage.bell(name), arguments = { ["x-priority"] = 100 } })
  assert(world:await("basic.deliver"))
  local message = stage.times_out(function(seconds)
    return sem:acquire{ timeout = seconds, fair = true, poll = 600 }
  end, function() return world:delivered() end) -- it rang for them
  assert.matches("a slot is free, and left to waiters that may have come first", message, 1, true)
  stage.fails("busy", sem:acquire{ timeout = 0, fair = true })
  assert.equal(0, line.at(name))
  assert(stage.take(sem, { timeout = 60, poll = 600 }):release())
  assert(stage.take(sem):release())
  stage.fails("timeout", sem:acquire{ timeout = 0.3, fair = true })
end)

describe("an administrator", function()
  -- By an administrator, who has to get the books right as well.
  local function create()
    local name, conn = stage.name(), stage.connect()
    assert.equal(1, conn:admin(name):create(1))
    stage.undo(function()
      for i = 2, 4 do stage.delete(stage.slot(name, i)) end
    end)
    return name, conn:admin(name)
  end

  it("gives each slot a token, and wakes as many as it adds slots", function()
    local name, admin = create()
    local waiting = {}
    line.settled(name, 1)
    local held = hold(name)
    for i, one in ipairs(line.processes(name, 4)) do waiting[i] = line.join(one) end
    assert.equal(3, admin:add(2))
    local first, second = waiting[1], waiting[2]
    local slots = { [first] = 0, [second] = 0 }
    for _ = 1, 2 do
      local one, _, slot = line.next(waiting)
      slots[one] = slots[one] + slot
    end
    assert.same({ 2, 3 }, { math.min(slots[first], slots[second]), math.max(slots[first], slots[second]) })
    line.until_at(name, 0, 5)
    assert.is_true(line.all_wait(waiting))
    assert.equal(4, admin:resize(4))
    assert.equal(4, select(3, line.next(waiting)))
    assert(held:release())
    assert.equal(1, select(3, line.next(waiting)))
    stage.undo(function() line.settled(name, 4) end)
  end)

  it("that destroys the semaphore wakes all who wait: not found", function()
    local name, admin = create()
    local held, waiting = hold(name), {}
    for i, one in ipairs(line.processes(name, 4)) do waiting[i] = line.join(one, { fair = i % 2 == 0 }) end
    assert.is_true(admin:destroy())
    for _ = 1, 4 do
      local _, _, slot, message, code = line.next(waiting)
      stage.fails("not_found", slot, message, code)
    end
    assert.is_nil(line.at(name))
    assert.is_true(held:held())
    stage.fails("removed", held:verify())
    assert.is_true(held:release())
  end)
end)

it("waiting that SIGINT ends leaves nothing behind in a process that lives on: a token on its way is given back",
  function()
    local name, between = line.semaphore(1), proxy.start()
    local held, hasty, heir = hold(name), line.process(name, nil, between.url), line.process(name)
    hasty:run("plain = take function take(...) return pcall(plain, ...) end")
    line.join(hasty)
    line.join(heir)
    between:switch("down", "hold")
    assert(held:release())
    line.until_at(name, 0, 2) -- it is sent, and does not arrive
    hasty:signal("INT")
    assert.is_false((hasty:finish()))
    between:switch("down", "pass")
    stage.fails("not_found", hasty:run("return conn:semaphore('spec.nothing'):try_acquire()"))
    assert.equal(1, (heir:finish()))
    line.leave(heir)
    line.settled(name, 1)
  end)

describe("a waiter is told that it waits", function()
  it("at once and then at most every second, and how things stand", function()
    local name, told = line.semaphore(1), 0
    local held = hold(name)
    stage.take(stage.connect():semaphore(name), { timeout = 60, poll = 600, on_wait = function(seconds, why)
      if told == 3 then return end -- later reports depend on timing
      assert.is_true(seconds >= told)
      assert.equal("1 of 1 held", why)
      told = told + 1
      if told == 3 then assert(held:release()) end
    end })
    assert.equal(3, told)
  end)

  it("but not who finds a free slot", function()
    local sem = stage.connect():semaphore(line.semaphore(1))
    for _ = 1, 5 do
      local lock = assert(sem:acquire{ timeout = 60, on_wait = function() error("nobody waits", 0) end })
      assert(lock:release())
    end
  end)
end)

describe("without tokens", function()
  it("waiting works by looking: a semaphore of other software, which has no bell", function()
    local name = stage.name()
    stage.add(name, 1, 1)
    local occupant, other = stage.occupy(name, 1), line.process(name)
    line.begin(other, { poll = 0.1 })
    occupant:await_looks(4)
    occupant:release()
    assert.equal(1, (other:finish()))
    local third = line.process(name)
    line.begin(third, { poll = 0.1 })
    line.leave(other)
    assert.equal(1, (third:finish()))
    assert.is_nil(line.at(name))
  end)

  it("waiting works by looking: a holder that knows nothing of the bell", function()
    local name = stage.name()
    stage.hang(name, 0)
    stage.add(name, 1, 1)
    local occupant, other = stage.occupy(name, 1), line.process(name)
    line.join(other, { poll = 3 })
    occupant:await_looks(2)
    occupant:release()
    assert.equal(1, (other:finish()))
    local third = line.join(line.process(name)) -- which looks in ten minutes
    line.leave(other)                           -- but is rung for
    assert.equal(1, (third:finish()))
    line.until_at(name, 0, 1)
    line.leave(third)
    line.settled(name, 1)
  end)
end)

it("several that wait on one connection are each woken for its own", function()
  local conn, names, held, waiting = stage.connect(), {}, {}, {}
  for i = 1, 3 do
    names[i] = line.semaphore(1)
    held[i] = line.process(names[i])
    held[i]:run("assert(take(60))")
    waiting[i] = conn:semaphore(names[i])._core:acquire{ fair = i % 2 == 0, poll = 600 }
  end
  for i = 1, 3 do
    until_true(function()
      if not waiting[i]:waiting() then conn._session:wait(waiting[i]) end
      return waiting[i]:waiting()
    end)
    line.until_at(names[i], 0, 2)
  end
  for _, i in ipairs{ 2, 3, 1 } do
    held[i]:begin("lock:release()")
    complete(conn, waiting[i])
    for j = 1, 3 do
      if waiting[j] and j ~= i then assert.is_false(waiting[j]:done()) end
    end
    local lock = assert(waiting[i]:result())
    assert.is_true(lock:held() and stage.held(names[i], 1))
    complete(conn, lock:release())
    waiting[i] = false
    line.settled(names[i], 1)
  end
end)
