-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Permits, for clients that lock: each test is proved by another client's view of the queue, or by what another process
-- gets. Administrators are in token_admin_spec.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local lfs = require "lfs"
local line = require "spec.support.line"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local fails = stage.fails
local SECONDS = 20
local SOAK = os.getenv "AMQPLOCKS_SOAK"

after_each(stage.clear)
teardown(stage.check)

-- Whether the broker is of this version or a later one.
local function since(major, minor) return stage.client():since(major, minor) end

-- So many are free, and so many consume: wait for one or hold one.
local function until_at(name, free, consumers) line.until_at(name, free, consumers, scene.permits(name)) end

-- A semaphore, which the test may do anything to.
local function frail(permits, queue_type)
  local name = scene.name()
  assert.equal(permits, stage.connect():token_semaphore(name):create(permits, { queue_type = queue_type }))
  return name
end

-- A semaphore. At the end of the test, when all who took part are gone, all its permits are free and nobody consumes.
local function semaphore(permits, queue_type)
  local name = frail(permits, queue_type)
  stage.undo(function() until_at(name, permits, 0) end)
  return name
end

-- A queue as other software makes it, with these permits, if any.
local function foreign_queue(ids)
  local name, raw = scene.name(), stage.client()
  assert(raw:declare(scene.permits(name), { durable = true }))
  for _, id in ipairs(ids or {}) do scene.publish(raw, scene.permits(name), { message_id = id }, "resource") end
  return name, raw
end

local function hold(name, options, conn) return stage.take((conn or stage.connect()):token_semaphore(name), options) end

-- A second process with `take`, see line.process. Options of its connection are Lua source.
local function worker(name, options, url, queue_type)
  local new = line.process(name, options, url)
  new:run("local name, kind = ... sem = conn:token_semaphore(name, { queue_type = kind })", name, queue_type)
  new.bell = scene.permits(name)
  return new
end

local function took(one)
  local got, message = one:finish()
  assert.is_true(got, message)
  return one
end

-- Has a process stand in line: returns when it does, behind all others.
local function join(one, options) return line.join(one, options, true) end

for _, queue_type in ipairs{ "classic", "quorum" } do
  describe("a token semaphore, " .. queue_type .. ",", function()
    local function made(permits) return semaphore(permits, queue_type) end
    local function process_of(name, options, url) return worker(name, options, url, queue_type) end
    local function sem_of(name, conn)
      return (conn or stage.connect()):token_semaphore(name, { queue_type = queue_type })
    end

    it("lets in as many as it has permits: of one connection, of several, of other processes", function()
      local name = made(3)
      local sem, other, raw = sem_of(name), process_of(name), stage.client()
      local one, two = stage.take(sem), stage.take(sem_of(name))
      assert.is_true(other:run("return take(20)"))
      assert.equal(0, raw:message_count(scene.permits(name)))
      local busy = ('busy: every permit of "%s" is taken'):format(name)
      assert.equal(busy, fails("busy", sem:try_acquire()))
      assert.equal(busy, fails("busy", sem_of(name):try_acquire()))
      assert.equal(busy, fails("busy", other:run("return sem:acquire{ timeout = 0 }")))
      assert.is_true(one:release())
      assert.is_true(process_of(name):run("return take(20)"))
      fails("busy", sem:try_acquire())
      assert.is_true(two:held() and two:verify())
    end)

    -- Proved by the file system: there are as many places as permits, and whoever is inside has one.
    it("has never more inside than it has permits, and all get their turns", function()
      local name, directory = made(3), process.directory()
      stage.undo(function() process.shell("rm", "-rf", directory) end)
      local all = {}
      for i = 1, 7 do
        all[i] = process_of(name)
        all[i]:begin([[
          local lfs, socket = require "lfs", require "socket"
          local directory, rounds = ...
          local function enter()
            for place = 1, 3 do
              if lfs.mkdir(directory .. "/" .. place) then return directory .. "/" .. place end
            end
            error("one too many is inside")
          end
          for i = 1, rounds do
            local _, done = assert(sem:with({ timeout = 60, priority = i % 2 }, function(lock)
              local place = enter()
              socket.sleep(0.001)
              assert(lock:held())
              assert(lfs.rmdir(place))
              return "done"
            end))
            assert(done == "done")
          end
          return true
        ]], directory, 20)
      end
      for _, one in ipairs(all) do assert.is_true(one:finish(60)) end
      for place = 1, 3 do assert.is_nil(lfs.attributes(directory .. "/" .. place)) end
    end)

    it("serves those who wait by priority, and in the order of their arrival", function()
      local name, waiting = made(1), {}
      local lock, priorities = stage.take(sem_of(name)), { 0, 5, -3, 5, 0, 9 }
      for i, priority in ipairs(priorities) do waiting[i] = join(process_of(name), { priority = priority }) end
      assert(lock:release())
      assert.same({ 6, 2, 4, 1, 5, 3 }, line.serve(waiting))
    end)

    it("gives the next one what somebody held who is killed, again and again", function()
      local name = made(1)
      local held = process_of(name)
      assert.is_true(held:run("return take(20)"))
      for _ = 1, 5 do
        local next_one = join(process_of(name))
        held:kill()
        held = took(next_one)
        assert.is_true(held:run("return lock:verify()"))
        fails("busy", sem_of(name):try_acquire())
      end
    end)

    it("goes past those who are killed while they wait, or are being served", function()
      local name, waiting = made(1), {}
      local lock = stage.take(sem_of(name))
      for i = 1, 4 do waiting[i] = join(process_of(name)) end
      table.remove(waiting, 2):kill()
      until_at(name, 0, 4)
      local first = table.remove(waiting, 1)
      first:signal "STOP"
      until_true(function() return first:state() == "T" end)
      assert(lock:release()) -- the permit is sent to who will never read it
      until_at(name, 0, 3)
      assert.is_true(line.all_wait(waiting))
      first:kill()
      assert.same({ 1, 2 }, line.serve(waiting))
    end)

    -- What arrives when nobody waits for it any more goes back.
    it("loses no permit, and doubles none, where many try, wait briefly and give up at once", function()
      local name, all = made(2), {}
      for i = 1, 4 do all[i] = process_of(name) end
      assert.is_true(line.try_and_give_up(all) > 0)
      until_at(name, 2, 0)
      local sem = sem_of(name)
      stage.take(sem)
      stage.take(sem)
      fails("busy", sem:try_acquire())
    end)

    it("is never busy for who has just let go, nor where one was just made", function()
      local name = made(1)
      local sem = sem_of(name)
      for _ = 1, SOAK and 5000 or 200 do assert.is_true(stage.take(sem):release()) end
      until_at(name, 1, 0)
      stage.take(sem_of(made(1)))
    end)

    it("leaves nothing behind of those who try in vain, give up, throw, or are collected", function()
      local name = made(2)
      local one, two, sem = stage.take(sem_of(name)), stage.take(sem_of(name)), sem_of(name)
      for _ = 1, 20 do fails("busy", sem:try_acquire()) end
      for _ = 1, 5 do fails("timeout", sem:acquire{ timeout = 0.005 }) end
      assert.is_false(pcall(sem.acquire, sem, { on_wait = function() error "enough" end }))
      sem._core:acquire(30)
      collectgarbage()
      collectgarbage()
      until_at(name, 0, 2)
      assert(one:release() and two:release())
      assert(sem:try_acquire())
      collectgarbage()
      collectgarbage()
      until_at(name, 2, 0)
    end)

    it("tells at once who holds a permit when the queue is deleted, and who waits that there is none", function()
      local name, told = frail(1, queue_type), {}
      local conn = stage.connect(nil, { on_lost = function(...) table.insert(told, { ... }) end })
      local lock, waiter = stage.take(sem_of(name, conn)), join(process_of(name))
      stage.delete(scene.permits(name))
      fails("not_found", waiter:finish())
      until_true(function() return not lock:held() end)
      fails("lost", lock:held())
      fails("lost", lock:verify())
      fails("lost", lock:release())
      assert.equal(1, #told)
      assert.same({ lock, "lost" }, { told[1][1], told[1][2] })
      fails("not_found", sem_of(name):try_acquire())
    end)

    it("serves who waits from another queue, if there is one by the time it asks", function()
      local name, between = frail(1, queue_type), proxy.start()
      local lock, waiter = stage.take(sem_of(name)), join(process_of(name, nil, between.url))
      between:switch("up", "hold")
      assert.is_true(sem_of(name):destroy())
      until_true(function() return not lock:held() end)
      assert.equal(1, sem_of(name):create(1))
      assert.is_false(waiter:finished())
      between:switch("up", "pass")
      took(waiter)
      assert.is_true(waiter:run("return lock:verify()"))
      until_at(name, 0, 1)
    end)
  end)
end

describe("a permit", function()
  it("is a lock as any other", function()
    local name, before = semaphore(2), os.time()
    local lock = hold(name)
    assert.same({ "permit", name, nil }, { lock.kind, lock.name, lock.slot })
    assert.matches("^%x+$", lock.ticket)
    assert.equal(16, #lock.ticket)
    assert.is_true(stage.is_since(before, lock.acquired_at))
    assert.is_true(lock:held() and lock:verify())
    assert.not_equal(lock.ticket, hold(name).ticket)
    assert.is_true(lock:release())
    fails("not_held", lock:held())
    fails("not_held", lock:verify())
    fails("not_held", lock:release())
    until_at(name, 1, 1)
  end)

  it("is verified by asking whether its queue is there, and whether anybody answers", function()
    local name = frail(2)
    local between = proxy.start()
    local lock = hold(name, nil, stage.connect(between.url, { timeout = 5 }))
    assert.is_true(lock:verify())
    between:switch("down", "hold")
    local answer, message, code = lock:verify()
    assert.is_true(code == "timeout" or code == "unreachable", message)
    assert.is_nil(answer or nil)
    between:switch("down", "pass")
    assert.is_true(lock:verify())
    stage.delete(scene.permits(name))
    fails("lost", lock:verify())
  end)

  it("is whatever message lies in a queue that somebody made by hand, of any size", function()
    local name, raw = foreign_queue()
    local sem = stage.connect():token_semaphore(name)
    fails("busy", sem:try_acquire())
    local bodies, locks = { "resource", ("x"):rep(100000), "" }, {}
    raw:channel():publish{ routing_key = scene.permits(name), body = bodies[1] } -- transient, and of no type
    for i = 2, 3 do
      scene.publish(raw, scene.permits(name), { type = "a job", message_id = ("m"):rep(250) }, bodies[i])
    end
    for i = 1, 3 do locks[i] = stage.take(sem, { timeout = SECONDS }) end
    fails("busy", stage.connect():token_semaphore(name):try_acquire())
    for _, lock in ipairs(locks) do assert.is_true(lock:verify() and lock:release()) end
    for _, body in ipairs(bodies) do assert.equal(#body, #scene.taker(name):served().permit.body) end
  end)

  it("is taken and given back in a handful of frames, on a channel that is used again", function()
    local name, between, cycles = semaphore(2), proxy.start(), 200
    local sem = stage.connect(between.url):token_semaphore(name)
    assert.is_true(stage.take(sem):release())
    local before = between:frames()
    for _ = 1, cycles do assert.is_true(stage.take(sem):release()) end
    local each = (between:frames() - before) / cycles
    -- consume and its answer, the message in two frames, cancel and nack; seldom a question more
    assert.is_true(each < 7, each .. " frames each")
  end)

  it("is made with a name, and a type of queue that can hold it", function()
    local conn = stage.connect()
    assert.equal('amqplocks.token_semaphore ("x")', tostring(conn:token_semaphore "x"))
    assert.error_matches(function() conn:token_semaphore("x", { queue_type = "stream" }) end,
      "token_semaphore: option queue_type")
    assert.error_matches(function() conn:token_semaphore "" end, "token_semaphore: the name is empty")
  end)

  it("goes back to its place in the queue", function()
    local name = foreign_queue{ "1", "2", "3" }
    local lock = hold(name)
    assert.equal("2", scene.taker(name):served().properties.message_id)
    assert(lock:release())
    until_at(name, 2, 1)
    assert.equal("1", scene.taker(name):served().properties.message_id)
    assert.equal("3", scene.taker(name):served().properties.message_id)
  end)

  it("that was lost is let go of by who does not know, and nobody else loses anything", function()
    local name, raw, between = frail(1), stage.client(), proxy.start()
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

  operated_it("is waited for although the channel is closed", function()
    local name, raw = semaphore(1), stage.client()
    local channel = raw:channel()
    local got = assert(channel:call{ method = "basic.get", queue = scene.permits(name) })
    local waiting = join(worker(name))
    local function tag() return broker.suite:consumer_tags(scene.permits(name))[1] end
    local before = until_true(tag)
    broker.suite:close_channel(scene.permits(name))
    until_true(function()
      local now = tag()
      return now and now ~= before
    end)
    assert.is_false(waiting:finished())
    channel:send{ method = "basic.nack", delivery_tag = got.delivery_tag, requeue = true }
    raw:flush()
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
    local quorum, raw = { queue_type = "quorum" }, stage.client()
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
        local lock = stage.take(conn:token_semaphore(of, quorum), { timeout = SECONDS })
        assert.is_true(lock:verify()) -- whose queue it is is known by then
        assert.is_true(lock:release())
      end
      until_at(of, 1, 0)
      assert.is_true(mutex:verify())
    end
  end)

  it("of a quorum queue, which is waited for in vain beside a mutex, is the next one's", function()
    local quorum = { queue_type = "quorum" }
    local name, conn, other = semaphore(1, "quorum"), stage.connect(), stage.connect()
    local mutex = stage.take(conn:mutex(stage.mutex()))
    local lock = stage.take(other:token_semaphore(name, quorum), { timeout = SECONDS })
    for _ = 1, 5 do
      fails("busy", conn:token_semaphore(name, quorum):try_acquire())
      fails("timeout", conn:token_semaphore(name, quorum):acquire{ timeout = 0.1 })
    end
    until_at(name, 0, 1)
    assert.is_true(lock:release())
    assert.is_true(stage.take(conn:token_semaphore(name, quorum), { timeout = SECONDS }):release())
    assert.is_true(mutex:verify())
  end)

  -- The broker ends the connection of a client that consumes from it before its process runs.
  it("is asked for again, of a quorum queue that another client is just declaring", function()
    local conn, raw = stage.connect(), stage.client()
    local channel = raw:channel()
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
end)

it("beside clients of other software all stand in one line, and their priorities count as ours", function()
  local name = semaphore(1)
  local lock = hold(name)
  local one, two = join(worker(name)), scene.taker(name)
  local three = join(worker(name))
  local first = scene.taker(name, 5)
  assert(lock:release())
  assert.equal("amqplocks.permit", first:served().properties.type)
  first:release()
  line.leave(took(one))
  two:served():release()
  took(three)
end)

describe("who waits for a permit", function()
  -- Silent for longer than two heartbeats, it cannot know by the time the permit comes that it is still connected.
  it("asks for nothing meanwhile; heartbeats are all that passes. It holds what it gets then", function()
    local name, between = semaphore(1), proxy.start()
    local lock, waiter = hold(name), worker(name, "{ heartbeat = 1 }", between.url)
    waiter:run([[
      local plain = take
      function take(...)
        local got, message, code = plain(...)
        if got then held = lock:held() end
        return got, message, code
      end
    ]])
    join(waiter)
    local function frames_after(more) -- heartbeats
      local _, beats = between:frames()
      until_true(function() return select(2, between:frames()) >= beats + more end, SECONDS)
      return (between:frames())
    end
    local frames = frames_after(10) -- all that came with its arrival has passed
    assert.equal(frames, frames_after(10))
    assert.is_false(waiter:finished())
    assert(lock:release())
    took(waiter)
    assert.is_true(waiter:run("return held"))
    assert.is_true(waiter:run("return lock:verify()"))
  end)

  it("is told so, and for how long", function()
    local name = semaphore(1)
    stage.take_told(stage.connect():token_semaphore(name), hold(name), 3, "every permit is taken")
  end)

  it("is told that none came free, when the time is over", function()
    local name = semaphore(1)
    local lock, waiting = hold(name), stage.connect():token_semaphore(name)
    local message, seconds = stage.times_out(function(seconds) return waiting:acquire{ timeout = seconds } end,
      function(why) return why:find "came free within [%d.]+ s$" end) -- and not: (the broker had not answered yet)
    assert.equal(('timeout: no permit of "%s" came free within %g s'):format(name, seconds), message)
    assert.is_true(lock:verify())
  end)
end)

describe("an operator", function()
  operated_it("sees whose ticket holds a permit: it is its consumer's tag", function()
    local name = semaphore(1)
    local lock = hold(name)
    assert.same({ lock.ticket }, broker.suite:consumer_tags(scene.permits(name)))
  end)

  operated_it("who closes a holder's channel or connection gives its permit to the next", function()
    local name, label = semaphore(1), client.unique "conn"
    local conn = stage.connect(nil, { name = label })
    local lock = hold(name, nil, conn)
    broker.suite:close_channel(scene.permits(name))
    local their = scene.taker(name):served()
    until_true(function() return not lock:held() end)
    fails("lost", lock:verify())
    their:release()
    lock = hold(name, { timeout = SECONDS }, conn)
    their = scene.taker(name)
    broker.suite:close_connection(label .. " holder")
    their:served()
    fails("lost", lock:verify())
    assert.is_true(their:holds())
    their:release()
    assert.is_true(hold(name, { timeout = SECONDS }, conn):verify())
  end)
end)

describe("a user", function()
  local function connect_as(configure, write, read, options)
    local label = client.unique "user"
    stage.undo(function() broker.suite:delete_user(label) end)
    return stage.connect(broker.suite:add_user(label, configure, write, read), options)
  end

  operated_it("who may not read is refused, and leaves nothing standing", function()
    local name = semaphore(1)
    local sem = connect_as(".*", ".*", "", { timeout = 5 }):token_semaphore(name)
    for _ = 1, 3 do
      assert.matches(scene.permits(name), fails("refused", sem:try_acquire()), 1, true)
      fails("refused", sem:acquire{ timeout = SECONDS })
      until_at(name, 1, 0)
    end
  end)

  operated_it("who may only read takes permits all the same", function()
    local name = semaphore(1)
    local lock = hold(name, nil, connect_as("", "", "^" .. scene.permits(name):gsub("%.", "\\.") .. "$"))
    assert.is_true(lock:verify())
    fails("busy", stage.connect():token_semaphore(name):try_acquire())
    assert.is_true(lock:release())
  end)
end)

describe("a permit that is held for longer than the broker's consumer timeout", function()
  -- Of channels that are opened from now on. The broker looks for those who keep a message at the channel's next tick.
  local function impatient()
    local set = "application:set_env(rabbit, consumer_timeout, %d), "
      .. "application:set_env(rabbit, channel_tick_interval, %d), ok."
    stage.undo(function() broker.suite:tell(set:format(1800000, 60000)) end)
    broker.suite:tell(set:format(2000, 50))
  end

  for _, queue_type in ipairs{ "classic", "quorum" } do
    operated_it("is lost at once, and the next one's; not of a queue we made, where the broker can be told: "
      .. queue_type, function()
      if queue_type == "classic" and since(4, 3) then pending "of brokers before 4.3" end
      impatient()
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
      fails("lost", lock:release())
      assert.same({ lock }, told)
      assert.is_true(slot:verify())
      assert.is_true(not kept or kept:verify())
    end)
  end
end)

describe("when the broker ends", function()
  local node = broker.suite

  -- A killed one with classic queues: RabbitMQ 3.10 may leave a quorum queue without a leader then.
  for how, queue_types in pairs{ stop = { "classic", "quorum" }, kill = { "classic" } } do
    operated_it("who held a permit has lost it, all are there again later, who waited is told: " .. how, function()
      local held, told, semaphores = {}, {}, {}
      local conn = stage.connect(nil, { on_lost = function(lock) table.insert(told, lock) end })
      for i, queue_type in ipairs(queue_types) do
        local sem = conn:token_semaphore(scene.name(), { queue_type = queue_type })
        semaphores[i] = sem
        assert.equal(2, sem:create(2))
        for _ = 1, 2 do table.insert(held, stage.take(sem)) end
      end
      local waiter = worker(held[1].name)
      line.begin(waiter)
      until_true(function() return line.waits(waiter) end, SECONDS)
      node[how](node)
      local served, message, code = waiter:finish()
      -- The broker may close the holder's connection first, and serve who waits before it closes theirs, who may hear
      -- of both at once.
      if not served then fails(code == "lost" and code or "unreachable", served, message, code) end
      for _, lock in ipairs(held) do
        until_true(function() return not lock:held() end)
        fails("lost", lock:verify())
      end
      assert.equal(#held, #told)
      node:restart()
      for _, sem in ipairs(semaphores) do
        local locks = {}
        for i = 1, 2 do locks[i] = until_true(function() return (sem:acquire{ timeout = SECONDS }) end) end
        fails("busy", sem:try_acquire())
        assert.is_true(locks[1]:verify() and locks[2]:verify())
        assert.same({ 2, 0, 2 }, { sem:slots() })
      end
      for _, lock in ipairs(held) do fails("lost", lock:release()) end
    end)
  end
end)
