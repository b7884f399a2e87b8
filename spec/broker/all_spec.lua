-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Several locks at once: all or none, as other clients see it, in one order for everybody.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local LONG = { timeout = 60, poll = 600 }

local function held(name) return gate.held("mutex", name) end

-- Two names of mutexes. The first is the first in the order.
local function names()
  local a, b = gate.name(), gate.name()
  if b < a then return b, a end
  return a, b
end

stage.tidy()

describe("several locks at once", function()
  -- The order is the same in all locales: unit/lua/locale_spec.
  it("are acquired in one order, so that clients that name them otherwise do not wait for each other", function()
    local a, b = names()
    local code = [[
      local a, b, rounds = ...
      local conn = assert(require("amqplocks").connect())
      local all, done = conn:all{ conn:mutex(a), conn:mutex(b) }, 0
      for _ = 1, rounds do
        local had, why = all:with({ timeout = 30 }, function(locks) done = done + (locks:held() and 1 or 0) end)
        if not had then error(why, 0) end
      end
      return done]]
    local one, other = process.start(), process.start()
    one:begin(code, a, b, 40)
    other:begin(code, b, a, 40)
    assert.equal(40, one:finish(60))
    assert.equal(40, other:finish(60))
  end)

  it("are all held or none; the first one is held while the second one is awaited", function()
    local conn, a, b = stage.connect(), names()
    local occupant, told = gate.occupy("mutex", b), {}
    stage.fails("timeout", conn:all{ conn:mutex(b), conn:mutex(a) }:acquire{ timeout = 0.1 })
    assert.is_false(held(a))
    local locks = assert(conn:all{ conn:mutex(b), conn:mutex(a) }:acquire{ timeout = 60, poll = 0.1,
      on_wait = function(seconds, reason)
        table.insert(told, { seconds, reason })
        assert.is_true(held(a))
        if #told == 1 then occupant:release() end
      end })
    assert.equal(b, locks.locks[1].name)
    assert.is_true(told[1][1] >= 0 and type(told[1][2]) == "string")
    locks:release()
  end)

  operated_it("fail with lost if one is lost while another one is awaited, and its loss is not reported", function()
    local reported, a, b = 0, names()
    local conn, label = stage.connect(), client.unique "loser"
    local other = stage.connect(nil, { name = label, on_lost = function() reported = reported + 1 end })
    local occupant = gate.occupy("mutex", b)
    stage.fails("lost", conn:all{ other:mutex(a), conn:mutex(b) }:acquire{ timeout = 60, poll = 0.1,
      on_wait = function()
        if not held(a) then return end
        broker.suite:close_connection(label .. " holder")
        until_true(function() return other._session:state "holder" ~= "open" end)
        occupant:release()
      end })
    assert.is_false(held(a) or held(b))
    assert(other:mutex(a):try_acquire()):release() -- a call that may report
    assert.equal(0, reported)
  end)

  it("are all free as soon as their holder is killed, also half-way", function()
    local a, b = names()
    local occupant, one = gate.occupy("mutex", b), process.start()
    one:begin([[
      local a, b = ...
      local conn = assert(require("amqplocks").connect())
      return conn:all{ conn:mutex(a), conn:mutex(b) }:acquire() ~= nil]], a, b)
    gate.until_held("mutex", a)
    one:kill()
    gate.until_free("mutex", a)
    occupant:release()
    local conn = stage.connect()
    assert(conn:all{ conn:mutex(a), conn:mutex(b) }:acquire(LONG)):release()
  end)

  operated_it("are lost one by one, and the others stay held until the release", function()
    local lost, a, b = {}, names()
    local conn, label = stage.connect(), client.unique "loser"
    local other = stage.connect(nil, { name = label, on_lost = function(lock) table.insert(lost, lock.name) end })
    local locks = assert(conn:all{ other:mutex(b), conn:mutex(a) }:acquire(LONG))
    broker.suite:close_connection(label .. " holder")
    stage.fails("lost", locks:verify())
    local is_held, message, code = locks:held()
    assert.is_false(is_held)
    assert.matches(b, message, 1, true)
    assert.equal("lost", code)
    assert.is_true(held(a))
    stage.fails("lost", locks:release())
    assert.is_false(held(a))
    assert.same({ b }, lost)
  end)

  operated_it("with a function: its results, its error, and lost if one was lost", function()
    local a, b = names()
    local conn, label = stage.connect(), client.unique "loser"
    local other = stage.connect(nil, { name = label })
    local all = conn:all{ conn:mutex(a), other:mutex(b) }
    assert.same({ true, "x", nil, 3 }, { all:with(function(locks, x) return locks:held() and x, nil, 3 end, "x") })
    assert.error_matches(function() all:with(function() error "mine" end) end, "mine")
    assert.is_false(held(a) or held(b))
    stage.fails("lost", all:with(function() broker.suite:close_connection(label .. " holder") end))
    assert.is_false(held(a))
  end)

  it("that are one lock are a deadlock, and nothing is taken", function()
    local conn, other, a = stage.connect(), stage.connect(), gate.name()
    local semaphore = stage.semaphore(2)
    for _, pair in ipairs{ { conn:mutex(a), conn:mutex(a) }, { conn:mutex(a), other:mutex(a) },
      { conn:rwlock(a):reader(), conn:rwlock(a):writer() },
      { conn:mutex(semaphore, { persistent = true }), conn:semaphore(semaphore) } } do
      assert.matches(pair[1].name or a, stage.fails("deadlock", conn:all(pair):acquire()), 1, true)
    end
    assert.is_false(held(a))
    assert(conn:all{ conn:mutex(a), conn:fast_mutex(semaphore), conn:semaphore(semaphore) }) -- different locks
  end)
end)
