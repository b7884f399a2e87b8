-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A broker that goes down and comes back: spec/unit/wire/reconnect_spec tests the pauses between attempts.
local broker = require "spec.support.broker"
local proxy = require "spec.support.proxy"
local socket = require "socket"
local stage = require "spec.support.stage"

local operated_it = broker.operated_it(it, pending)

after_each(stage.clear)

describe("a connection to a broker that is gone", function()
  local node, conn, sem, told = broker.suite, nil, nil, nil

  before_each(function()
    if not node then return end
    told = {}
    conn = stage.connect(node.url, { on_lost = function(lock) table.insert(told, lock) end })
    sem = conn:semaphore(stage.semaphore(2))
  end)

  -- Counts how often the library is entered to wait.
  local function count_waits()
    local count = 0
    stage.wait_by(conn, function(wait, operation)
      count = count + 1
      return wait(operation)
    end)
    return function() return count end
  end

  operated_it("tries seldom however often it is used, works when it is back, and has lost all it had", function()
    local lock = stage.take(sem)
    node:stop()
    local asked, stop, waits = 0, socket.gettime() + 3, count_waits()
    while socket.gettime() < stop do -- each call fails by an attempt of its own
      stage.fails("unreachable", sem:try_acquire())
      asked = asked + 1
    end
    assert.is_true(asked <= 12, asked .. " attempts in three seconds")
    assert.is_true(waits() < 100, waits() .. " waits in three seconds")
    local _, _, code = sem:acquire{ timeout = 0.001 }
    assert.is_true(code == "timeout" or code == "unreachable", code)
    assert.same({ lock }, told)

    node:restart()
    local again = stage.take(sem)
    assert.is_true(again:held() and again:verify())
    assert.equal(1, again.slot)
    stage.fails("lost", lock:held())
    stage.fails("lost", lock:verify())
    stage.fails("lost", lock:release())
    assert.is_true(again:verify() and again:release())
    assert.equal(1, #told)
  end)

  operated_it("waits for its moment without its own time for the slot running out first", function()
    node:stop()
    for _ = 1, 6 do stage.fails("unreachable", sem:try_acquire()) end
    node:restart()
    assert.is_true(stage.take(sem, { timeout = 30 }):verify())
  end)
end)

describe("a connection over TLS to a broker that does not answer", function()
  local tls_it = os.getenv "BROKER_TLS" and it or pending

  tls_it("tries seldom, however short the patience of those who use it", function()
    local between = proxy.start(os.getenv "AMQPS_URL")
    local conn = stage.connect(between.url, { tls = { ca = os.getenv "BROKER_TLS" .. "/ca.pem" } })
    local sem = conn:semaphore(stage.semaphore(1))
    between:switch("down", "hold")
    between:cut(1)
    local stop = socket.gettime() + 2
    while socket.gettime() < stop do
      local lock, _, code = sem:acquire{ timeout = 0.005 }
      assert.is_nil(lock)
      assert.is_true(code == "timeout" or code == "unreachable", code)
    end
    assert.is_true(between:count() <= 12, between:count() .. " connections in two seconds")
    between:switch("down", "pass")
    assert.is_true(stage.take(sem, { timeout = 30 }):verify())
  end)
end)
