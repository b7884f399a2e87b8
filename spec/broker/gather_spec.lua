-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Several slots or permits at once: all or none, as other clients see it. Unless stated otherwise, waiters here recheck
-- only every ten minutes, so a waiter that goes on was woken.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local line = require "spec.support.line"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

-- What a gather has from the outside: the queue of who takes several, and how many slots are held.
local function is_gathering(name) return client.shared():locked(name .. "-many") end

local function held(name, slots)
  local count = 0
  for i = 1, slots do count = count + (stage.held(name, i) and 1 or 0) end
  return count
end

local function semaphore(slots)
  local name = stage.semaphore(slots)
  stage.undo(function() client.shared():delete(name .. "-manybell") end)
  return name
end

local function permits(count)
  local name = stage.name()
  assert(stage.connect():token_semaphore(name):create(count))
  stage.undo(function()
    assert(stage.connect():token_semaphore(name):destroy())
    client.shared():delete(name .. "-tokenmanybell")
  end)
  return name
end

local function gather(count, more)
  local options = { count = count, timeout = 60, poll = 600 }
  for key, value in pairs(more or {}) do options[key] = value end
  return options
end

local function consumers(queue) return select(2, line.at(nil, queue)) end

-- A process that takes several, and holds them.
local function gatherer(method, name, count)
  local one = process.start()
  one:begin([[
    local method, name, count = ...
    conn = assert(require("amqplocks").connect())
    locks = assert(conn[method](conn, name):acquire{ count = count, poll = 600 })
    return #locks.locks]], method, name, count)
  return one
end

stage.tidy()

describe("several slots at once", function()
  it("are acquired together and released together, with a fencing token each; count = 1 is one lock", function()
    local conn, name = stage.connect(), semaphore(5)
    stage.undo(function() assert(stage.connect():mutex(name, { persistent = true }):forget_fence()) end)
    local fenced, tickets, last = conn:semaphore(name, { fenced = true }), {}, 0
    local locks = assert(fenced:acquire(gather(3)))
    assert.same({ 1, 2, 3 }, locks.slots)
    assert.equal(3, held(name, 5))
    assert.is_false(is_gathering(name))
    assert.is_true(locks:held() and locks:verify())
    assert.is_true(locks:release())
    assert.equal(0, held(name, 5))
    for _, lock in ipairs(locks.locks) do
      assert.is_true(lock.fence > last)
      assert.is_nil(tickets[lock.ticket])
      tickets[lock.ticket], last = true, lock.fence
    end
    assert.same({ true, 1 }, { fenced:with(gather(1), function(lock) return lock.slot end) })
  end)

  it("wait for slots that come free, and hold those that they have meanwhile", function()
    local conn, other, name = stage.connect(), stage.connect(), semaphore(3)
    local single, reasons = assert(other:semaphore(name):try_acquire()), {}
    local locks = assert(conn:semaphore(name):acquire(gather(3, { on_wait = function(_, reason)
      table.insert(reasons, reason)
      assert.is_true(is_gathering(name))
      assert.equal(3, held(name, 3))
      if #reasons == 1 then single:release() end
    end })))
    assert.matches("^2 of 3 taken; 3 of 3 held", reasons[1])
    locks:release()
  end)

  it("are gathered by one client at a time, while clients that take one go on", function()
    local name = semaphore(5)
    local single = assert(stage.connect():semaphore(name):acquire())
    local other = assert(stage.connect():semaphore(name):acquire())
    local one = gatherer("semaphore", name, 4)
    until_true(function() return held(name, 5) == 5 and is_gathering(name) end)
    local two = gatherer("semaphore", name, 2)
    until_true(function() return client.shared():exists(name .. "-manybell") end)
    assert.is_false(two:finished())
    single:release()
    assert.equal(4, one:finish())
    assert.is_false(two:finished())
    one:run "locks:release()"
    assert.equal(2, two:finish())
    assert.equal(3, held(name, 5))
    other:release()
    two:run "locks:release()"
  end)

  operated_it("are free as soon as a client is killed that has some of them", function()
    local name = semaphore(3)
    local single = assert(stage.connect():semaphore(name):acquire())
    local one = gatherer("semaphore", name, 3)
    until_true(function() return held(name, 3) == 3 end)
    local two = gatherer("semaphore", name, 2)
    line.until_tokens(name, 1, name .. "-manybell") -- the holder has rung, and keeps the token that wakes the next one
    one:kill()
    assert.equal(2, two:finish())
    assert.is_true(single:held())
    two:run "locks:release()"
    single:release()
  end)

  it("that are more than there are fail with limit: at once, and after a shrink", function()
    local conn, name = stage.connect(), semaphore(3)
    local message = stage.fails("limit", conn:semaphore(name):acquire(gather(4)))
    assert.matches('4 slots of "' .. name .. '" are wanted at once, and there are 3', message, 1, true)
    local single = assert(stage.connect():semaphore(name):acquire())
    stage.fails("limit", conn:semaphore(name):acquire(gather(4)))
    stage.fails("limit", conn:semaphore(name):acquire(gather(3, { poll = 0.1, on_wait = function()
      if stage.free(name, 3) == false and client.shared():exists(stage.slot(name, 3)) then stage.remove(name, 3) end
    end })))
    until_true(function() return held(name, 3) == 1 and not is_gathering(name) end)
    single:release()
    stage.fails("not_found", conn:semaphore(stage.name()):acquire(gather(2)))
  end)

  it("are given back by an error in on_wait, which is passed on", function()
    local conn, name = stage.connect(), semaphore(2)
    local single = assert(stage.connect():semaphore(name):acquire())
    assert.error_matches(function()
      conn:semaphore(name):acquire(gather(2, { on_wait = function() error("mine", 0) end }))
    end, "^mine$")
    until_true(function() return held(name, 2) == 1 and not is_gathering(name) end)
    single:release()
  end)

  operated_it("that are lost while others are awaited fail, and nothing is kept", function()
    local label, name = client.unique "gatherer", semaphore(2)
    local conn = stage.connect(nil, { name = label })
    local single = assert(stage.connect():semaphore(name):acquire())
    local _, _, code = conn:semaphore(name):acquire(gather(2, { on_wait = function()
      if is_gathering(name) then broker.suite:close_connection(label .. " holder") end
    end }))
    assert.equal("unreachable", code)
    until_true(function() return held(name, 2) == 1 and not is_gathering(name) end)
    -- A patient one begins again.
    local closed = false
    local locks = assert(conn:semaphore(name):acquire(gather(2, { patient = true, poll = 0.2, on_wait = function()
      if is_gathering(name) and not closed then
        closed = true
        broker.suite:close_connection(label .. " holder")
      elseif closed and single:held() then
        single:release()
      end
    end })))
    assert.is_true(locks:held())
    locks:release()
  end)
end)

describe("several permits at once", function()
  it("are not held at all if they are not free in time, or are more than there are", function()
    local conn, name = stage.connect(), permits(3)
    local sem, single = conn:token_semaphore(name), assert(stage.connect():token_semaphore(name):acquire())
    stage.fails("busy", sem:acquire{ count = 3, timeout = 0 })
    stage.fails("timeout", sem:acquire{ count = 3, timeout = 0.2 })
    stage.fails("limit", sem:acquire(gather(4)))
    until_true(function() return select(2, sem:slots()) == 2 end)
    local admin, removes = process.start(), false
    stage.fails("limit", sem:acquire(gather(3, { poll = 0.1, on_wait = function()
      if removes then return end
      removes = true
      local before = consumers(name .. ".semaphore")
      admin:begin([[return assert(require("amqplocks").connect()):token_semaphore(...):remove(1, { wait = 60 })]], name)
      until_true(function() return consumers(name .. ".semaphore") > before end)
      single:release() -- the administrator comes before those who wait
      assert.equal(2, admin:finish())
    end })))
    until_true(function() return select(2, sem:slots()) == 2 end)
    local locks = assert(sem:acquire(gather(2)))
    assert.same({ 2, 0, 2 }, { sem:slots() })
    assert.is_true(locks:held() and locks:verify() and locks:release())
    assert.is_false(client.shared():exists(name .. "-tokenmany"))
  end)

  operated_it("are gathered by one client at a time, and free as soon as it is killed", function()
    local name = permits(3)
    local single = assert(stage.connect():token_semaphore(name):acquire())
    local one = gatherer("token_semaphore", name, 3)
    until_true(function() return select(2, stage.connect():token_semaphore(name):slots()) == 0 end)
    local two = gatherer("token_semaphore", name, 2)
    line.until_tokens(name, 1, name .. "-tokenmanybell") -- the holder has rung
    one:kill()
    assert.equal(2, two:finish())
    single:release()
    two:run "locks:release()"
  end)
end)
