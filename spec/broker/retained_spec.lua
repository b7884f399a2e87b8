-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A mutex that its session keeps after the release, as others see it. unit/locks/retained_spec.lua shows that its own
-- next acquire sends nothing.
local broker = require "spec.support.broker"
local gate = require "spec.support.gate"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local stage = require "spec.support.stage"

local operated_it = broker.operated_it(it, pending)

-- A second process with `mutex`, which it retains for so long.
local function start(name, seconds)
  local one = process.start()
  one:run([[
    local name, retain = ...
    conn = assert(require("amqplocks").connect(nil, { heartbeat = 600 }))
    mutex = conn:mutex(name, { retain = retain })
    function enter(poll) return assert(mutex:acquire{ timeout = 60, poll = poll }):release() end
  ]], name, seconds)
  return one
end

-- The same, and it keeps the mutex.
local function keeper(name, seconds)
  local one = start(name, seconds or 600)
  one:run "enter()"
  assert.is_true(gate.held("mutex", name))
  return one
end

describe("a retained mutex", function()
  stage.tidy()

  it("goes to those who ask, waiting or not, and comes back", function()
    local name = gate.name()
    local one, two = keeper(name), start(name, 600)
    local other = stage.connect():mutex(name)
    for _ = 1, 5 do
      assert.is_true(two:run "return enter()")
      assert.is_true(one:run "return enter()")
      assert.is_true(one:run "return enter() and enter()")
      assert(stage.take(other, { poll = 600 }):release())
      assert.is_true(one:run "return enter()")
      assert.is_true(two:run "return assert(mutex:try_acquire()):release()")
      assert.is_true(one:run "return enter()")
    end
    assert.equal(10, one:run "return conn:stats().retained")
  end)

  it("is free for others after its time, also without its object", function()
    for _, ends in ipairs{ "", "mutex = nil collectgarbage()" } do
      local name = gate.name()
      keeper(name, 0.5):run(ends)
      gate.until_free("mutex", name)
    end
    local name = gate.name()
    start(name, 1):run "local lock = assert(mutex:acquire()) require('socket').sleep(0.3) lock:release()"
    gate.until_free("mutex", name)
  end)

  it("is free for others when its session is closed, collected or killed", function()
    for _, ends in ipairs{ "conn:close()", "conn, mutex = nil collectgarbage() collectgarbage()", false } do
      local name = gate.name()
      local one = keeper(name)
      if ends then one:run(ends) else one:kill() end
      gate.until_free("mutex", name)
    end
  end)

  it("is held while it is held: others wait for the release, in their order", function()
    local name = gate.name()
    local one = keeper(name)
    one:run "lock = assert(mutex:acquire())"
    local two = start(name)
    two:begin "lock = assert(mutex:acquire{ poll = 600 }) return lock:held()"
    gate.until_at("mutex", name, 0, 2) -- its holder, which keeps its token, and a waiter
    assert.is_false(two:finished())
    one:begin "lock:release() return assert(mutex:acquire{ timeout = 60, fair = true }):release()"
    assert.is_true(two:finish())
    assert.is_false(one:finished())
    two:run "lock:release()"
    assert.is_true(one:finish())
  end)

  it("goes on to all that wait in line, whether they would retain it or not, and however they let it go", function()
    local collected = [[
      local lock = assert(mutex:acquire{ timeout = 60, poll = 600 })
      require("socket").sleep(0.3) -- its thread watches the connection by now
      lock = nil
      return collectgarbage() and collectgarbage()
    ]]
    for seconds, enters in pairs{ [600] = collected, [false] = "return enter(600)" } do
      local name = gate.name()
      local one, waiters = start(name), { start(name, 600), start(name, seconds or nil), start(name, 600) }
      one:run "lock = assert(mutex:acquire())"
      for i, each in ipairs(waiters) do
        each:begin(enters)
        gate.until_at("mutex", name, 0, 1 + i) -- its holder, which keeps its token, and the waiters
      end
      one:run "lock:release()"
      for _, each in ipairs(waiters) do assert.is_truthy(each:finish()) end
    end
  end)

  it("is handed over by a program that acquires and releases it all the time", function()
    local name = gate.name()
    local one, two = keeper(name), start(name)
    one:begin [[
      local socket = require "socket"
      while not socket.select({ spec }, nil, 0)[spec] do
        for _ = 1, 100 do enter() end
      end
    ]]
    for _ = 1, 10 do assert.is_true(two:run "return enter()") end
    one:begin "return true"
    one:finish()
  end)

  operated_it("that an operator deletes is no loss, and asked for again", function()
    local name = gate.name()
    local one = keeper(name)
    one:run "lost = 0 conn:events(function(event) if event.what == 'lost' then lost = lost + 1 end end)"
    broker.suite:delete_queue(gate.queue("mutex", name))
    -- Until the news is read an acquire takes what is gone, as a holder has what is gone: each such lock may be lost.
    assert.is_true(one:run [[
      local first, before = conn:stats().retained
      repeat
        before = conn:stats().retained
        enter()
      until conn:stats().retained == before
      return lost <= before - first
    ]])
    assert.is_true(gate.held("mutex", name))
  end)

  for _, which in ipairs{ "cqueues", "luv" } do
    loops[which].it(it, pending)("lets the other coroutines of " .. which .. " run", function()
      local loop, name = loops[which], gate.name()
      local conn = stage.connect(nil, { driver = loop.driver })
      local mutex, turns, is_over = conn:mutex(name, { retain = 600 }), 0, false
      local two = start(name)
      loop.together{ function()
        while not is_over do assert(assert(mutex:acquire()):release()) end
      end, function()
        for _ = 1, 5 do
          two:begin "return enter()"
          loop.until_true(function()
            turns = turns + 1
            return two:finished()
          end)
          assert.is_true(two:finish())
        end
        is_over = true
      end }
      assert.is_true(turns > 5)
      conn:close()
    end)
  end
end)
