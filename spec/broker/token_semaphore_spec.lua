-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Permits and fast mutexes, for clients that lock: the broker alone serves them. Each test is proved by another
-- client's view of the queue, or by what another process gets. Administrators are in token_admin_spec, what is special
-- about fast mutexes in fast_mutex_spec.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local line = require "spec.support.line"
local proxy = require "spec.support.proxy"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local fails, took, join = stage.fails, scene.took, scene.join
local SECONDS = 60
local SOAK = os.getenv "AMQPLOCKS_SOAK"
local QUORUM = { queue_type = "quorum" }

stage.tidy()

-- Whether the broker is of this version or a later one.
local function since(major, minor) return stage.client():since(major, minor) end

-- So many are free, and so many consume: wait for one or hold one.
local function until_at(name, free, consumers) line.until_at(name, free, consumers, scene.permits(name)) end

-- A semaphore. At the end of the test, when all who took part are gone, all its permits are free and nobody consumes,
-- unless the test may do anything to it.
local function semaphore(permits, queue_type, is_frail)
  local name = scene.name()
  assert.equal(permits, stage.connect():token_semaphore(name):create(permits, { queue_type = queue_type }))
  if not is_frail then stage.undo(function() until_at(name, permits, 0) end) end
  return name
end

local function hold(name, options, conn) return stage.take((conn or stage.connect()):token_semaphore(name), options) end

for what, kind in pairs{
  ["a classic token semaphore"] = { new = function() return semaphore(1, "classic") end, object = scene.classic },
  ["a quorum token semaphore"] = { new = function() return semaphore(1, "quorum") end, object = scene.quorum },
  ["a fast mutex"] = { new = scene.fast_name, object = scene.fast },
} do
  describe(what, function()
    local object = kind.object
    local name, queue

    before_each(function()
      name = kind.new()
      queue = object.queue(name)
    end)

    local function mine(conn) return object.over(conn or stage.connect(), name) end
    local function worker() return scene.worker(object, name) end
    local function at(free, consumers) line.until_at(name, free, consumers, queue) end

    it("serves those who wait by priority, and in the order of their arrival", function()
      local lock, waiting = stage.take(mine()), {}
      for i, priority in ipairs{ 0, 5, -3, 5 } do waiting[i] = join(worker(), { priority = priority }) end
      assert.is_true(lock:verify()) -- a higher priority takes nothing from the holder
      assert(lock:release())
      assert.same({ 2, 4, 1, 3 }, line.serve(waiting))
    end)

    it("goes past those who are killed while they wait, or are being served, and is the next one's", function()
      local lock, waiting = stage.take(mine()), {}
      for i = 1, 4 do waiting[i] = join(worker()) end
      table.remove(waiting, 2):kill()
      at(0, 4)
      local first = table.remove(waiting, 1)
      first:signal "STOP"
      first:await_state "T"
      assert(lock:release()) -- it is sent to who will never read it
      at(0, 3)
      assert.is_true(line.all_wait(waiting))
      first:kill()
      for _ = 1, 2 do
        local holder = took(table.remove(waiting, 1))
        assert.is_true(holder:run("return lock:verify()"))
        fails("busy", mine():try_acquire())
        holder:kill()
      end
      assert(stage.take(mine(), { timeout = SECONDS }):release())
    end)

    -- What arrives when nobody waits for it any more goes back.
    it("loses nothing, and doubles nothing, where many try, wait briefly and give up at once", function()
      local all = {}
      for i = 1, 4 do all[i] = worker() end
      assert.is_true(line.try_and_give_up(all) > 0)
      local one = mine()
      stage.take(one, { timeout = SECONDS })
      fails("busy", one:try_acquire())
    end)

    it("is never busy for who has just let go", function()
      local one = mine()
      for _ = 1, SOAK and 5000 or 200 do assert.is_true(stage.take(one):release()) end
      at(1, 0)
    end)

    it("leaves nothing behind of those who try in vain, give up, throw, or are collected", function()
      local lock, one = stage.take(mine()), mine()
      for _ = 1, 20 do fails("busy", one:try_acquire()) end
      for _ = 1, 5 do fails("timeout", one:acquire{ timeout = 0.005 }) end
      assert.is_false(pcall(one.acquire, one, { on_wait = function() error "enough" end }))
      one._core:acquire{ timeout = 30 }
      for _ = 1, 2 do collectgarbage() end
      at(0, 1)
      assert(lock:release())
      at(1, 0)
      assert(one:try_acquire())
      for _ = 1, 2 do collectgarbage() end
      at(1, 0)
    end)

    operated_it("is the next one's when an operator closes the holder's channel or connection", function()
      local label = client.unique "conn"
      local conn = stage.connect(nil, { name = label })
      for _, close in ipairs{ function() broker.suite:close_channel(queue) end,
        function() broker.suite:close_connection(label .. (object == scene.quorum and " quorum" or " holder")) end } do
        local lock, other = stage.take(mine(conn), { timeout = SECONDS }), worker()
        close()
        assert.is_true(other:run("return take(60)"))
        until_true(function() return not lock:held() end)
        fails("lost", lock:verify())
        line.leave(other)
      end
      assert.is_true(stage.take(mine(conn), { timeout = SECONDS }):verify())
    end)
  end)
end

describe("a permit", function()
  it("that is waited for is served from another queue, if there is one by the time its client asks", function()
    local name, between = semaphore(1, "classic", true), proxy.start()
    local lock, waiter = hold(name), join(scene.worker(scene.classic, name, nil, between.url))
    local sem = stage.connect():token_semaphore(name)
    between:switch("up", "hold")
    assert.is_true(sem:destroy())
    until_true(function() return not lock:held() end)
    assert.equal(1, sem:create(1))
    assert.is_false(waiter:finished())
    between:switch("up", "pass")
    took(waiter)
    assert.is_true(waiter:run("return lock:verify()"))
    until_at(name, 0, 1)
  end)

  it("that was lost is let go of by who does not know, and nobody else loses anything", function()
    local name, raw, between = semaphore(1, "classic", true), stage.client(), proxy.start()
    local lock = hold(name, nil, stage.connect(between.url))
    between:switch("down", "hold")
    stage.delete(scene.permits(name))
    assert(raw:declare(scene.permits(name), { durable = true }))
    scene.publish(raw, scene.permits(name), { delivery_mode = 2 })
    local other = hold(name, { timeout = SECONDS })
    assert.is_true(lock:release()) -- it cannot know
    between:switch("down", "pass")
    assert.is_true(other:verify())
    fails("busy", stage.connect():token_semaphore(name):try_acquire())
    assert.is_true(other:release())
    until_at(name, 1, 0)
  end)

  operated_it("is waited for although the channel is closed; an operator sees its holder's ticket", function()
    local name = semaphore(1)
    local lock = hold(name)
    local function tags() return broker.suite:consumer_tags(scene.permits(name)) end
    assert.same({ lock.ticket }, tags())
    assert(lock:release())
    local channel = stage.client():channel()
    local got = until_true(function()
      local got = assert(channel:call{ method = "basic.get", queue = scene.permits(name) })
      return got.method == "basic.get-ok" and got
    end)
    local waiting = join(scene.worker(scene.classic, name))
    local before = until_true(function() return tags()[1] end)
    broker.suite:close_channel(scene.permits(name))
    until_true(function()
      local now = tags()[1]
      return now and now ~= before
    end)
    assert.is_false(waiting:finished())
    channel:send{ method = "basic.nack", delivery_tag = got.delivery_tag, requeue = true }
    channel.client:flush()
    took(waiting)
  end)

  operated_it("is taken and given back during an alarm", function()
    local name = semaphore(1)
    local lock = hold(name, nil, stage.connect(nil, { timeout = 5 }))
    stage.alarm()
    assert.is_true(lock:verify() and lock:release())
    for _ = 1, 3 do assert.is_true(hold(name, { timeout = SECONDS }):release()) end
  end)

  -- RabbitMQ counts a close as one more delivery, and without a queue of marks beside it nobody says that there is no
  -- limit to them; from 4.3 on, unlike before, it does not count a nack.
  it("of a quorum queue goes back again and again beside a mutex, whoever made the queue", function()
    local raw = stage.client()
    for _, is_ours in ipairs{ true, false } do
      local of, conn = scene.name(), stage.connect()
      if is_ours then
        assert(conn:token_semaphore(of, QUORUM):create(1))
      else
        assert(raw:declare(scene.permits(of), { durable = true, arguments = { ["x-queue-type"] = "quorum" } }))
        scene.publish(raw, scene.permits(of), { delivery_mode = 2 })
      end
      local mutex = stage.take(conn:mutex(stage.mutex()))
      local counts_nacks = raw:since(4, 0) and not raw:since(4, 3)
      for _ = 1, is_ours and 50 or counts_nacks and 5 or 50 do
        local lock = stage.take(conn:token_semaphore(of, QUORUM), { timeout = SECONDS })
        assert.is_true(lock:verify()) -- whose queue it is is known by then
        assert.is_true(lock:release())
      end
      until_at(of, 1, 0)
      assert.is_true(mutex:verify())
    end
  end)

  it("of a quorum queue, which is waited for in vain beside a mutex, is the next one's", function()
    local name, conn = semaphore(1, "quorum"), stage.connect()
    local mutex, sem = stage.take(conn:mutex(stage.mutex())), conn:token_semaphore(name, QUORUM)
    local lock = stage.take(scene.quorum.over(stage.connect(), name), { timeout = SECONDS })
    for _ = 1, 5 do
      fails("busy", sem:try_acquire())
      fails("timeout", sem:acquire{ timeout = 0.1 })
    end
    until_at(name, 0, 1)
    assert.is_true(lock:release())
    assert.is_true(stage.take(sem, { timeout = SECONDS }):release())
    assert.is_true(mutex:verify())
  end)

  -- The broker ends the connection of a client that consumes from it before its process runs.
  it("is asked for again, of a quorum queue that another client is just declaring", function()
    local conn, raw = stage.connect(), stage.client()
    local channel = raw:channel()
    for _ = 1, 5 do
      local of = scene.name()
      local quorum = conn:token_semaphore(of, QUORUM)
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
  it("is not to be had from a stream, beside a lock that is kept", function()
    local name, raw, conn = scene.name(), stage.client(), stage.connect()
    local mutex = stage.take(conn:mutex(stage.mutex()))
    assert(raw:declare(scene.permits(name), { durable = true, arguments = { ["x-queue-type"] = "stream" } }))
    scene.publish(raw, scene.permits(name), { delivery_mode = 2 })
    for _, queue_type in ipairs{ "classic", "quorum" } do
      fails("conflict", conn:token_semaphore(name, { queue_type = queue_type }):acquire{ timeout = SECONDS })
    end
    assert.is_true(mutex:verify() and mutex:release())
    assert(raw:delete(scene.permits(name)))
  end)

  it("is waited for in one line with clients of other software, and their priorities count as ours", function()
    local name = semaphore(1)
    local lock = hold(name)
    local one, two = join(scene.worker(scene.classic, name)), scene.taker(name)
    local three = join(scene.worker(scene.classic, name))
    local first = scene.taker(name, 5)
    assert(lock:release())
    assert.equal("amqplocks.permit", first:served().properties.type)
    first:release()
    line.leave(took(one))
    two:served():release()
    took(three)
  end)

  -- Silent for longer than two heartbeats, the client cannot know by the time the permit comes that it is connected.
  it("is held by who has waited for long, and has asked for nothing meanwhile", function()
    local name, between = semaphore(1), proxy.start()
    local lock, waiter = hold(name), scene.worker(scene.classic, name, "{ heartbeat = 2 }", between.url)
    waiter:run [[
      local plain = sem
      sem = { acquire = function(_, options)
        local got, message, code = plain:acquire(options)
        held = got and got:held()
        return got, message, code
      end }
    ]]
    join(waiter)
    local function frames_after(more) -- heartbeats
      local _, beats = between:frames()
      until_true(function() return select(2, between:frames()) >= beats + more end, SECONDS)
      return (between:frames())
    end
    local frames
    until_true(function() -- all that came with its arrival has passed
      local before = frames
      frames = frames_after(10)
      return frames == before
    end)
    assert.is_false(waiter:finished())
    assert(lock:release())
    took(waiter)
    assert.is_true(waiter:run("return held and lock:verify()"))
  end)
end)

describe("a user of permits", function()
  operated_it("who may not read is refused, and leaves nothing standing", function()
    local name = semaphore(1)
    local sem = stage.connect_as(".*", ".*", "", { timeout = 5 }):token_semaphore(name)
    assert.matches(scene.permits(name), fails("refused", sem:try_acquire()), 1, true)
    fails("refused", sem:acquire{ timeout = SECONDS })
    until_at(name, 1, 0)
  end)
end)

describe("a permit that is held for longer than the broker's consumer timeout", function()
  for _, queue_type in ipairs{ "classic", "quorum" } do
    operated_it("is lost at once, and the next one's; not of a queue we made, where the broker can be told: "
      .. queue_type, function()
      if queue_type == "classic" and since(4, 3) then pending "of brokers before 4.3" end
      stage.undo(function() broker.suite:limit_consumers() end)
      broker.suite:limit_consumers(2000)
      local name, raw, told = scene.name(), stage.client(), {}
      assert(raw:declare(scene.permits(name), { durable = true, arguments = { ["x-queue-type"] = queue_type } }))
      scene.publish(raw, scene.permits(name), { delivery_mode = 2 })
      local conn = stage.connect(nil, { on_lost = function(lock) table.insert(told, lock) end })
      local kept = since(3, 12) and hold(semaphore(1, queue_type), nil, conn)
      local slot = stage.take(conn:semaphore(stage.semaphore(1)))
      local lock, their = hold(name, { timeout = SECONDS }, conn), scene.taker(name)
      their:served():acknowledge()
      until_true(function() return not lock:held() end)
      fails("lost", lock:verify())
      assert.same({ lock }, told)
      assert.is_true(slot:verify())
      assert.is_true(not kept or kept:verify())
    end)
  end
end)

describe("when the broker ends", function()
  -- A killed one with classic queues: RabbitMQ 3.10 may leave a quorum queue without a leader then.
  for how, objects in pairs{ stop = { scene.classic, scene.quorum, scene.fast }, kill = { scene.classic } } do
    operated_it("holders have lost what they had, it is there again later, waiters are told: " .. how, function()
      local held, told, all = {}, {}, {}
      local conn = stage.connect(nil, { on_lost = function(lock) table.insert(told, lock) end })
      for i, object in ipairs(objects) do
        local name = object == scene.fast and scene.fast_name() or scene.name()
        all[i] = object.over(conn, name)
        if object ~= scene.fast then assert.equal(1, all[i]:create(1)) end
        held[i] = stage.take(all[i])
      end
      local waiter = scene.worker(objects[#objects], held[#objects].name)
      line.begin(waiter)
      until_true(function() return line.waits(waiter) end, SECONDS)
      broker.suite[how](broker.suite)
      local served, message, code = waiter:finish()
      -- The broker may close the holder's connection first. It may then serve a waiter before it closes the waiter's
      -- connection, and that may hear of both at once.
      if not served then fails(code == "lost" and code or "unreachable", served, message, code) end
      for _, lock in ipairs(held) do
        until_true(function() return not lock:held() end)
        fails("lost", lock:verify())
      end
      assert.equal(#held, #told)
      broker.suite:restart()
      for _, one in ipairs(all) do
        local lock = until_true(function() return (one:acquire{ timeout = SECONDS, patient = true }) end)
        fails("busy", one:try_acquire())
        assert.is_true(lock:verify())
      end
    end)
  end
end)
