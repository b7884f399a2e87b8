-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A node that is being stopped, and has not closed its connections yet. From 4.0 on it regards the processes of its own
-- queues as dead then. It confirms a deletion and removes the queue's record, but the queue's process goes on until its
-- last consumer leaves. Then that process deletes whatever its connection has declared under that name since.
local broker = require "spec.support.broker"
local gate = require "spec.support.gate"
local scene = require "spec.broker.facts.scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local node, operated_it = broker.suite, broker.operated_it(it, pending)

if node then
  before_each(function() node:tell "rabbit_boot_state:set(stopping), ok." end)
  after_each(function() node:tell "rabbit_boot_state:set(ready), ok." end)
end
after_each(stage.clear)

describe("while a node is being stopped", function()
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
    -- Each refusal closes a channel, and who consumed there does so no more.
    for _ = 1, 5 do stage.fails("busy", conn:mutex(name .. ".theirs"):try_acquire()) end
    for _ = 1, 50 do assert.is_true(witness:locked(gate.queue("mutex", name))) end
    assert.is_true(lock:verify())
    lock:release()
    theirs:release()
  end)
end)
