-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A broker that goes down and comes back: spec/unit/wire/reconnect_spec tests the pauses between attempts.
local broker = require "spec.support.broker"
local gate = require "spec.support.gate"
local proxy = require "spec.support.proxy"
local scene = require "spec.broker.facts.scene"
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
    local settling = gate.name()
    stage.undo(function() stage.delete(settling .. "-mutex-seal") end)
    stage.take(stage.connect(node.url):mutex(settling), { settle = 600 })
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
    local _, message = stage.connect(node.url):mutex(settling):acquire{ settle = 600, timeout = 0 }
    assert.matches("settles for 600 s", message)
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

-- A node that is being stopped, and has not closed its connections yet. From 4.0 on it regards the processes of its own
-- queues as dead then. It confirms a deletion and removes the queue's record, but the queue's process goes on until its
-- last consumer leaves. Then that process deletes whatever its connection has declared under that name since.
describe("while a node is being stopped", function()
  local node = broker.suite

  if node then
    before_each(function() node:tell "rabbit_boot_state:set(stopping), ok." end)
    after_each(function() node:tell "rabbit_boot_state:set(ready), ok." end)
  end

  local function connect() return stage.client(node.url) end

  operated_it("an exclusive queue that was deleted and declared again may be another's soon, on RabbitMQ 4", function()
    local name, one, other = scene.name(), connect(), connect()
    local first, second = one:channel(), one:channel()
    scene.hold(first, name)
    assert(first:call{ method = "queue.delete", queue = name })
    scene.hold(second, name)
    assert.is_true(other:locked(name))
    first:close()
    if one:since(4, 0) then
      until_true(function() return not other:exists(name) end)
      scene.hold(other:channel(), name)
    end
    assert(second:call{ method = "basic.qos", prefetch_count = 1 })  -- and whose it was has not been told
  end)

  operated_it("a lock that was released and taken again is nobody else's, whatever its connection does", function()
    local name, witness, conn = stage.name(), connect(), stage.connect(node.url)
    local theirs = assert(stage.connect(node.url):mutex(name .. ".theirs"):try_acquire())
    assert(conn:mutex(name):try_acquire()):release()
    local lock = assert(conn:mutex(name):try_acquire())
    -- Each refusal closes a channel, and its consumers are gone.
    for _ = 1, 5 do stage.fails("busy", conn:mutex(name .. ".theirs"):try_acquire()) end
    for _ = 1, 50 do assert.is_true(witness:locked(gate.queue("mutex", name))) end
    assert.is_true(lock:verify())
    lock:release()
    theirs:release()
  end)
end)
