-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Permits of a token semaphore, with faults that token_semaphore_spec does not have: a permit that was taken from its
-- holder is lost at once, and no other holder loses anything.
local broker = require "spec.support.broker"
local proxy = require "spec.support.proxy"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

after_each(stage.clear)
teardown(stage.check)

local fails = stage.fails

describe("a permit of a token semaphore", function ()
  local name, raw

  local function tokens(...) return stage.connect(...):token_semaphore(name) end

  local function create(permits, options)
    assert(stage.connect():token_semaphore(name, options):create(permits))
  end

  -- All permits are free, and nobody consumes.
  local function rests(permits)
    scene.until_consumers(raw, name, 0)
    scene.stands(raw, name, permits)
  end

  before_each(function ()
    name, raw = scene.name(), stage.client()
  end)

  it("that was lost is let go of by who does not know, and nobody else loses anything", function ()
    create(1)
    local between = proxy.start()
    local lock = stage.take(tokens(between.url))
    between:switch("down", "hold")
    stage.delete(scene.permits(name))
    assert(raw:declare(scene.permits(name), { durable = true }))
    scene.publish(raw, scene.permits(name), { delivery_mode = 2 })
    local other = stage.take(tokens(), { timeout = 20 })
    assert.is_true(lock:release()) -- it cannot know
    between:switch("down", "pass")
    assert.is_true(other:verify())
    fails("busy", tokens():try_acquire())
    assert.is_true(other:release())
    rests(1)
  end)

  operated_it("is waited for although the channel is closed", function ()
    create(1)
    local channel = raw:channel()
    local got = assert(channel:call{ method = "basic.get", queue = scene.permits(name) })
    local waiting = stage.process(name)
    waiting:begin("lock = assert(conn:token_semaphore(...):acquire()) return lock:held()", name)
    scene.until_consumers(raw, name, 1)
    local function tag() return broker.suite:consumer_tags(scene.permits(name))[1] end
    local before = until_true(tag)
    broker.suite:close_channel(scene.permits(name))
    until_true(function ()
      local now = tag()
      return now and now ~= before
    end)
    assert.is_false(waiting:finished())
    channel:send{ method = "basic.nack", delivery_tag = got.delivery_tag, requeue = true }
    raw:flush()
    assert.is_true(waiting:finish())
  end)

  operated_it("is taken and given back during an alarm", function ()
    create(1)
    local conn = stage.connect(nil, { timeout = 5 })
    local lock = stage.take(conn:token_semaphore(name))
    stage.alarm()
    assert.is_true(lock:verify() and lock:release())
    for _ = 1, 3 do assert.is_true(stage.take(tokens(), { timeout = 20 }):release()) end
  end)

  -- RabbitMQ counts a close as one more delivery, and without a queue of marks beside it nobody says that there is no
  -- limit to them; from 4.3 on, unlike before, it does not count a nack.
  it("of a quorum queue goes back again and again beside a mutex, whoever made the queue", function ()
    local quorum = { queue_type = "quorum" }
    for _, is_ours in ipairs{ true, false } do
      local of, conn = scene.name(), stage.connect()
      if is_ours then
        assert(conn:token_semaphore(of, quorum):create(1))
      else
        assert(raw:declare(scene.permits(of), { durable = true, arguments = { ["x-queue-type"] = "quorum" } }))
        scene.publish(raw, scene.permits(of), { delivery_mode = 2 })
      end
      local mutex = stage.take(conn:mutex(stage.mutex()))
      local counts_nacks = raw:since(4, 0) and not raw:since(4, 3)
      for _ = 1, is_ours and 50 or counts_nacks and 5 or 50 do
        local lock = stage.take(conn:token_semaphore(of, quorum), { timeout = 20 })
        assert.is_true(lock:verify()) -- whose queue it is is known by then
        assert.is_true(lock:release())
      end
      scene.until_consumers(raw, of, 0)
      until_true(function () return raw:message_count(scene.permits(of)) == 1 end)
      assert.is_true(mutex:verify())
    end
  end)

  it("of a quorum queue, which is waited for in vain beside a mutex, is the next one's", function ()
    local quorum = { queue_type = "quorum" }
    local conn, other = stage.connect(), stage.connect()
    assert(conn:token_semaphore(name, quorum):create(1))
    local mutex = stage.take(conn:mutex(stage.mutex()))
    local lock = stage.take(other:token_semaphore(name, quorum), { timeout = 20 })
    for _ = 1, 5 do
      fails("busy", conn:token_semaphore(name, quorum):try_acquire())
      fails("timeout", conn:token_semaphore(name, quorum):acquire{ timeout = 0.1 })
    end
    scene.until_consumers(raw, name, 1)
    assert.is_true(lock:release())
    assert.is_true(stage.take(conn:token_semaphore(name, quorum), { timeout = 20 }):release())
    assert.is_true(mutex:verify())
    rests(1)
  end)

  -- The broker ends the connection of a client that consumes from it before its process runs.
  it("is asked for again, of a quorum queue that another client is just declaring", function ()
    local conn, channel = stage.connect(), raw:channel()
    for _ = 1, 5 do
      local of = scene.name()
      local quorum = conn:token_semaphore(of, { queue_type = "quorum" })
      channel:send{ method = "queue.declare", queue = scene.permits(of), durable = true,
        arguments = { ["x-queue-type"] = "quorum" } }
      raw:flush()
      local code
      repeat code = select(3, quorum:try_acquire()) until code ~= "not_found"
      assert.equal("busy", code)
      assert(channel:await("queue.declare-ok"))
    end
  end)

  -- It gives one message to everybody, and ends the connection that gives one back.
  it("is not to be had from a stream, beside a lock that is kept", function ()
    local conn = stage.connect()
    local mutex = stage.take(conn:mutex(stage.mutex()))
    assert(raw:declare(scene.permits(name), { durable = true, arguments = { ["x-queue-type"] = "stream" } }))
    scene.publish(raw, scene.permits(name), { delivery_mode = 2 })
    for _, queue_type in ipairs{ "classic", "quorum" } do
      fails("conflict", conn:token_semaphore(name, { queue_type = queue_type }):acquire{ timeout = 20 })
    end
    assert.is_true(mutex:verify() and mutex:release())
    assert(raw:delete(scene.permits(name)))
  end)
end)
