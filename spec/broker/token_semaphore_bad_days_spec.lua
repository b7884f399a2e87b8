-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Permits of a token semaphore, with faults that token_semaphore_spec does not have: a permit that was taken from its
-- holder is lost at once, and no other holder loses anything.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local proxy = require "spec.support.proxy"
local scene = require "spec.broker.token_scene"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

after_each(stage.clear)
teardown(stage.check)

local fails = stage.fails

-- What the holder of a permit is told, when it looks and when it asks.
local function assert_lost(lock)
  until_true(function () return not lock:held() end)
  fails("lost", lock:held())
  fails("lost", lock:verify())
  fails("lost", lock:release())
end

describe("a permit of a token semaphore", function ()
  local name, raw, told

  local function connect(url, options)
    options = options or {}
    options.on_lost = function (lock, code) table.insert(told, { lock, code }) end
    return stage.connect(url, options)
  end

  local function tokens(...) return connect(...):token_semaphore(name) end

  local function create(permits, options)
    assert(stage.connect():token_semaphore(name, options):create(permits))
  end

  -- All permits are free, and nobody consumes.
  local function rests(permits)
    scene.until_consumers(raw, name, 0)
    scene.stands(raw, name, permits)
  end

  local function process(url, options)
    local new = stage.process(name, options, url)
    new:run("tokens = conn:token_semaphore(...)", name)
    return new
  end

  local function holder()
    local new = process()
    new:run("lock = assert(tokens:try_acquire())")
    return new
  end

  -- A process that waits, the last of so many consumers.
  local function waiter(consumers)
    local new = process()
    new:begin("lock = assert(tokens:acquire()) return lock:held()")
    scene.until_consumers(raw, name, consumers)
    return new
  end

  before_each(function ()
    name, raw, told = scene.name(), stage.client(), {}
  end)

  for how, code in pairs{ ["ends"] = "os.exit(0)", ["closes Lua and ends"] = "os.exit(0, true)",
    ["fails"] = "error('oh')" } do
    it("is free when its holder " .. how, function ()
      create(1)
      local held = holder()
      held:begin(code)
      held:await_end()
      rests(1)
    end)
  end

  it("is free when whoever waits for it is interrupted", function ()
    create(1)
    local lock = stage.take(tokens())
    local waiting = waiter(2)
    waiting:signal("INT")
    waiting:await_end()
    scene.until_consumers(raw, name, 1)
    assert.is_true(lock:release())
    rests(1)
  end)

  it("is suspect to a holder that was stopped for too long, and lost when it looks closer", function ()
    create(1)
    local held = process(nil, "{ heartbeat = 1 }")
    held:run("lock = assert(tokens:try_acquire())")
    held:signal("STOP")
    local rival = stage.take(tokens(), { timeout = 30 })
    held:signal("CONT")
    local still, _, code = held:run("return lock:held()")
    assert.is_false(still)
    assert.is_true(code == "suspect" or code == "lost", code)
    fails("lost", held:run("return lock:verify()"))
    assert.is_true(rival:verify() and rival:release())
  end)

  it("wakes a loop that waits for its connection when it is lost", function ()
    create(1)
    local conn = connect()
    local lock = stage.take(conn:token_semaphore(name))
    local fd = conn:pollfd()
    local readable = { getfd = function () return fd end }
    assert.same({}, { socket.select({ readable }, nil, 0)[1] })
    stage.delete(scene.permits(name))
    assert.equal(readable, socket.select({ readable }, nil, 20)[1])
    fails("lost", lock:held())
    assert.same({}, told)
    fails("lost", lock:verify())
    assert.equal(1, #told)
    assert.same({}, { socket.select({ readable }, nil, 0)[1] })
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

  operated_it("is waited for in vain on a connection that is closed: unreachable", function ()
    create(1)
    local lock = stage.take(tokens())
    local waiting = process(nil, ("{ name = %q }"):format(name))
    waiting:begin("return tokens:acquire()")
    scene.until_consumers(raw, name, 2)
    broker.suite:close_connection(name .. " holder")
    fails("unreachable", waiting:finish())
    scene.until_consumers(raw, name, 1)
    assert.is_true(lock:held() and lock:release())
    rests(1)
  end)

  operated_it("is waited for although the channel is closed", function ()
    create(1)
    local channel = raw:channel()
    local got = assert(channel:call{ method = "basic.get", queue = scene.permits(name) })
    local waiting = waiter(1)
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

  -- The broker looks for those who kept a message for too long at the channel's next tick.
  local function consumer_timeout(milliseconds)
    local erlang = "application:set_env(rabbit, consumer_timeout, %s), "
      .. "application:set_env(rabbit, channel_tick_interval, %s)."
    stage.undo(function () broker.suite:tell(erlang:format("1800000", "60000")) end)
    broker.suite:tell(erlang:format(milliseconds, "100"))
  end

  -- Newer brokers do not, of classic queues.
  local function has_consumer_timeout(queue_type)
    if queue_type == "quorum" then return true end
    local channel = raw:channel()
    local probe = channel:call{ method = "queue.declare", queue = name .. "-probe", exclusive = true,
      arguments = { ["x-queue-type"] = "classic", ["x-consumer-timeout"] = 1 } }
    if probe then channel:close() end
    return probe ~= nil
  end

  for _, queue_type in ipairs{ "classic", "quorum" } do
    operated_it("of a " .. queue_type .. " queue is lost at once when nobody may keep it for so long", function ()
      assert(raw:declare(scene.permits(name), { durable = true, arguments = { ["x-queue-type"] = queue_type } }))
      scene.publish(raw, scene.permits(name), { delivery_mode = 2 })
      if not has_consumer_timeout(queue_type) then return end
      consumer_timeout(2000)
      local lock = stage.take(tokens(), { timeout = 20 })
      local slot = stage.take(lock._connection:semaphore(stage.semaphore(1)))
      local waiting = scene.taker(name)
      waiting:served()
      assert_lost(lock)
      assert.equal(1, #told)
      assert.is_true(slot:verify()) -- the others are not
    end)
  end

  operated_it("is taken and given back during an alarm", function ()
    create(1)
    local conn = connect(nil, { timeout = 5 })
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

  it("is not to be had from a queue that is another connection's own", function ()
    assert(raw:declare(scene.permits(name), { exclusive = true }))
    fails("squatted", tokens():try_acquire())
    fails("squatted", tokens():acquire{ timeout = 20 })
    assert(raw:delete(scene.permits(name))) -- by its owner: it may outlive the connection by a moment
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

  it("is given up in time when the broker says nothing more, and goes back when it is heard again", function ()
    create(1)
    for _, direction in ipairs{ "up", "down" } do
      local between = proxy.start()
      local conn = amqplocks.connect(between.url, { timeout = 3 })
      local one = conn:token_semaphore(name)
      assert.is_true(stage.take(one):release())
      scene.stands(raw, name, 1)
      between:switch(direction, "hold")
      fails("unreachable", one:try_acquire())
      fails("timeout", one:acquire{ timeout = 0.2 })
      between:switch(direction, "pass")
      assert.is_true(stage.take(one, { timeout = 20 }):release())
      rests(1)
      conn:close()
    end
  end)

  it("is never with two, though its holder's news are late", function ()
    create(1)
    local between = proxy.start()
    local one = stage.connect(between.url, { heartbeat = 1 }):token_semaphore(name)
    local lock = stage.take(one)
    between:switch("up", "drop") -- the broker hears nothing of it any more
    local rival = process()
    rival:begin("lock = assert(tokens:acquire()) return lock:held()")
    assert.is_true(rival:finish(30))
    assert.is_false(lock:held())
  end)

  describe("on a broker that is killed", function ()
    local node = broker.suite

    -- Of classic queues: RabbitMQ 3.10 may leave a quorum queue without a leader then, whoever asks for it.
    operated_it("is lost, and there again when the broker is", function ()
      local conn = connect(node.url)
      local one = conn:token_semaphore(name)
      assert(one:create(2))
      local lock = stage.take(one)
      local waiting = process(node.url)
      waiting:run("kept = assert(tokens:acquire{ timeout = 20 })")
      waiting:begin("return tokens:acquire()")
      local looking = assert(client.connect(node.url))
      scene.until_consumers(looking, name, 3)
      looking:close()
      node:kill()
      fails("unreachable", waiting:finish())
      fails("lost", waiting:run("return kept:held()"))
      assert_lost(lock)
      node:restart()
      local again = {}
      for i = 1, 2 do again[i] = assert(until_true(function () return (one:acquire{ timeout = 20 }) end, 60)) end
      fails("busy", one:try_acquire())
      for i = 1, 2 do assert.is_true(again[i]:verify() and again[i]:release()) end
      assert.equal(1, #told)
    end)
  end)
end)
