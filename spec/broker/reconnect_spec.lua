-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A broker that goes down and comes back: spec/unit/wire/reconnect_spec tests the pauses between attempts.
local broker = require "spec.support.broker"
local proxy = require "spec.support.proxy"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

after_each(stage.clear)

describe("a connection to a broker that is gone", function()
  local node = broker.suite

  operated_it("tries seldom however often it is used, works when it is back, and has lost all it had", function()
    local told, waits = {}, 0
    local conn = stage.connect(node.url, { on_lost = function(lock) table.insert(told, lock) end })
    local sem = conn:semaphore(stage.semaphore(2))
    local lock = stage.take(sem)
    node:stop()
    until_true(function() return not lock:held() end) -- without having asked
    stage.wait_by(conn, function(wait, operation)
      waits = waits + 1
      return wait(operation)
    end)
    local asked, stop = 0, socket.gettime() + 3
    while socket.gettime() < stop do -- each call fails by an attempt of its own
      stage.fails("unreachable", sem:try_acquire())
      asked = asked + 1
    end
    assert.is_true(asked <= 12, asked .. " attempts in three seconds")
    assert.is_true(waits < 100, waits .. " waits in three seconds")
    local _, _, code = sem:acquire{ timeout = 0.001 }
    assert.is_true(code == "timeout" or code == "unreachable", code)
    assert.same({ lock }, told)

    node:restart()
    local again = stage.take(sem, { timeout = 60 })
    assert.is_true(again:held() and again:verify())
    assert.equal(1, again.slot)
    stage.fails("lost", lock:held())
    stage.fails("lost", lock:verify())
    stage.fails("lost", lock:release())
    assert.is_true(again:verify() and again:release())
    assert.equal(1, #told)
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
    assert.is_true(stage.take(sem, { timeout = 60 }):verify())
  end)
end)
