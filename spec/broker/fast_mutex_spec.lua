-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The fast mutex: each test is proved by another client's view of the queue, or by what another process gets. Waiters
-- here ring only every ten minutes unless stated otherwise, so one that gets the mutex was served by the broker.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local line = require "spec.support.line"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local fails = stage.fails
local SECONDS = 60
local SOAK = os.getenv "AMQPLOCKS_SOAK"

after_each(stage.clear)
teardown(stage.check)

local function queue(name) return name .. "-fastmutex" end

-- So many tokens lie ready, and so many consume: the holder and those who wait.
local function until_at(name, tokens, consumers) line.until_at(name, tokens, consumers, queue(name)) end

-- A name, with something at its end. Its queue is gone at the end of the test.
local function new_name(suffix)
  local name = stage.name(suffix)
  stage.undo(function() stage.delete(queue(name)) end)
  return name
end

-- The same. At the end of the test, when all who took part are gone, nobody consumes, and a token or a few lie ready:
-- one more for each ring that came between the cancel and the nack of a release.
local function settling_name(suffix)
  local name = new_name(suffix)
  stage.undo(function()
    until_true(function()
      local tokens, consumers = line.at(name, queue(name))
      return consumers == 0 and tokens >= 1 and tokens <= 5, ("%s tokens, %s consumers"):format(tokens, consumers)
    end, SECONDS)
  end)
  return name
end

local function mutex_of(name, conn) return (conn or stage.connect()):fast_mutex(name) end

local function hold(name, options, conn) return stage.take(mutex_of(name, conn), options) end

-- A second process with `take`, see line.process. Options of its connection are Lua source.
local function worker(name, options, url)
  local new = line.process(name, options, url)
  new:run("sem = conn:fast_mutex(...)", name)
  new.bell = queue(name)
  return new
end

-- Has a process stand in line: returns when it does, behind all others.
local function join(one, options) return line.join(one, options, true) end

local function took(one)
  local got, message = one:finish()
  assert.is_true(got, message)
  return one
end

-- Publishes tokens as foreign software, one after another, and returns how many the queue accepted.
local function ring(name, count)
  local channel, accepted = stage.client():channel():confirm(), 0
  for _ = 1, count do
    channel:publish{ routing_key = queue(name), mandatory = true, body = "wake up" }
    if assert(channel:next()).method == "basic.ack" then accepted = accepted + 1 end
  end
  channel:close()
  return accepted
end

local function purge(name)
  local channel = stage.client():channel()
  local answer = assert(channel:call{ method = "queue.purge", queue = queue(name) })
  channel:close()
  return answer.message_count
end

describe("a fast mutex", function()
  it("keeps out everybody else: of its connection, of another, of another process", function()
    local name = settling_name()
    local conn, other = stage.connect(), worker(name)
    local lock = hold(name, nil, conn)
    local busy = ('busy: fast mutex "%s" is held'):format(name)
    assert.equal(busy, fails("busy", mutex_of(name, conn):try_acquire()))
    assert.equal(busy, fails("busy", mutex_of(name):try_acquire()))
    assert.equal(busy, fails("busy", other:run("return sem:acquire{ timeout = 0 }")))
    assert.is_true(lock:verify())
    assert.is_true(lock:release())
    assert.is_true(other:run("return take(20)"))
    fails("busy", mutex_of(name, conn):try_acquire())
  end)

  it("is a lock as any other", function()
    local name, before = settling_name(), os.time()
    local lock = hold(name)
    assert.same({ "fast_mutex", name, nil, nil }, { lock.kind, lock.name, lock.slot, lock.fence })
    assert.matches("^%x+$", lock.ticket)
    assert.is_true(stage.is_since(before, lock.acquired_at))
    assert.equal(('amqplocks.lock ("%s", fast_mutex, held)'):format(name), tostring(lock))
    assert.is_true(lock:held() and lock:verify() and lock:certain_for() > 0)
    assert.is_true(lock:release())
    assert.equal(('not_held: fast mutex "%s" was released before'):format(name), fails("not_held", lock:release()))
    fails("not_held", lock:verify())
    assert.same({ true, "done" }, { mutex_of(name):with(function(held) return held:held() and "done" end) })
  end)

  it("held by this connection is a deadlock for a caller that would wait on the same one", function()
    local name, conn = settling_name(), stage.connect()
    hold(name, nil, conn)
    local message = fails("deadlock", mutex_of(name, conn):acquire())
    assert.equal(('deadlock: fast mutex "%s" is already held by this connection'):format(name), message)
    until_at(name, 0, 1)
  end)

  it("tells what it does not know: fences, and revoking", function()
    local conn = stage.connect()
    local mutex = conn:fast_mutex "x"
    for text, call in pairs{
      ['conn:token_semaphore(name, { queue_type = "quorum", fenced = true })'] =
        function() conn:fast_mutex("x", { fenced = true }) end,
      ["revoke: the holder of fast mutex"] = function() mutex:revoke() end,
      ["forget_fence: fast mutex"] = function() mutex:forget_fence() end,
    } do
      local fine, problem = pcall(call)
      assert.is_false(fine)
      assert.matches(text, problem, 1, true)
    end
  end)

  -- Proved by the kernel: a process that is inside has the only lock on a file. The file is opened before the
  -- connection, so that the kernel has unlocked it before the broker sees that the process died.
  it("has never two inside, and all get their turns, while strangers ring and holders are killed", function()
    local name, directory, all, victims = settling_name(), process.directory(), {}, {}
    stage.undo(function() process.shell("rm", "-rf", directory) end)
    local function contender(rounds)
      local new = process.start()
      new:run("lfs, file = require 'lfs', assert(io.open(..., 'w'))", directory .. "/inside")
      new:run("sem = assert(require('amqplocks').connect()):fast_mutex(...)", name)
      new:begin([[
        local socket = require "socket"
        for i = 1, ... do
          local _, done = assert(sem:with({ timeout = 60, priority = i % 2 }, function(lock)
            assert(lfs.lock(file, "w"))
            io.stdout:write("inside\n")
            io.stdout:flush()
            socket.sleep(0.001)
            assert(lock:held())
            assert(lfs.unlock(file))
            return "done"
          end))
          assert(done == "done")
        end
        return true
      ]], rounds)
      return new
    end
    local function turns(one) return select(2, one:output():gsub("inside\n", "")) end
    for i = 1, 5 do all[i] = contender(40) end
    for i = 1, 5 do victims[i] = contender(1e6) end
    for i, victim in ipairs(victims) do
      until_true(function() return turns(victim) >= 3 * i end, SECONDS)
      ring(name, 3)
      victim:kill()
    end
    for _, one in ipairs(all) do assert.is_true(one:finish(60)) end
    for _, one in ipairs(all) do assert.equal(40, turns(one)) end
  end)

  it("serves those who wait by priority, and those of one priority in the order of their arrival", function()
    local name, waiting = settling_name(), {}
    local lock, priorities = hold(name), { 0, 5, -3, 5, 0, 9 }
    for i, priority in ipairs(priorities) do waiting[i] = join(worker(name), { priority = priority }) end
    assert.is_true(lock:verify()) -- a higher priority takes nothing from the holder
    assert(lock:release())
    assert.same({ 6, 2, 4, 1, 5, 3 }, line.serve(waiting))
  end)

  it("is the next one's when its holder is killed, again and again", function()
    local name = settling_name()
    local held = worker(name)
    assert.is_true(held:run("return take(20)"))
    for _ = 1, 3 do
      local next_one = join(worker(name))
      held:kill()
      held = took(next_one)
      assert.is_true(held:run("return lock:verify()"))
      fails("busy", mutex_of(name):try_acquire())
    end
  end)

  it("goes past those who are killed while they wait, or are being served", function()
    local name, waiting = settling_name(), {}
    local lock = hold(name)
    for i = 1, 4 do waiting[i] = join(worker(name)) end
    table.remove(waiting, 2):kill()
    until_at(name, 0, 4)
    local first = table.remove(waiting, 1)
    first:signal "STOP"
    until_true(function() return first:state() == "T" end)
    assert(lock:release()) -- the token is sent to a process that will never read it
    until_at(name, 0, 3)
    assert.is_true(line.all_wait(waiting))
    first:kill()
    assert.same({ 1, 2 }, line.serve(waiting))
  end)

  it("is left as it was by those who try in vain, give up, throw, or are collected", function()
    local name = settling_name()
    local lock, mutex = hold(name), mutex_of(name)
    for _ = 1, 20 do fails("busy", mutex:try_acquire()) end
    for _ = 1, 5 do fails("timeout", mutex:acquire{ timeout = 0.005 }) end
    assert.is_false(pcall(mutex.acquire, mutex, { on_wait = function() error "enough" end }))
    mutex._core:acquire(30)
    collectgarbage()
    collectgarbage()
    until_at(name, 0, 1)
    assert(lock:release())
    until_at(name, 1, 0)
    assert(mutex:try_acquire())
    collectgarbage()
    collectgarbage()
    until_at(name, 1, 0)
  end)

  it("is never lost, and never two, where many try, wait briefly and give up at once", function()
    local name, all = settling_name(), {}
    for i = 1, 4 do all[i] = worker(name) end
    assert.is_true(line.try_and_give_up(all) > 0)
    hold(name)
    fails("busy", mutex_of(name):try_acquire())
  end)

  it("is never busy for the client that has just released it", function()
    local name = settling_name()
    local mutex = mutex_of(name)
    for _ = 1, SOAK and 5000 or 200 do assert.is_true(stage.take(mutex):release()) end
    until_at(name, 1, 0)
  end)

  it("is told to a waiter, and for how long", function()
    local name = settling_name()
    local lock = hold(name)
    local message, seconds = stage.times_out(function(time) return mutex_of(name):acquire{ timeout = time } end,
      function(why) return why:find "come free within [%d.]+ s$" end)
    assert.equal(('timeout: fast mutex "%s" did not come free within %g s'):format(name, seconds), message)
    stage.take_told(mutex_of(name), lock, 3, "it is held")
  end)

  it("that is granted to a process stopped past its heartbeats is not used by it when another has it", function()
    local name = settling_name()
    local lock, stopped = hold(name), worker(name, "{ heartbeat = 2 }")
    stopped:begin([[
      called = false
      return sem:with({ timeout = 60 }, function() called = true end)
    ]])
    until_at(name, 0, 2)
    stopped:signal "STOP"
    until_true(function() return stopped:state() == "T" end)
    local rival = join(worker(name))
    assert(lock:release())
    took(rival)
    stopped:signal "CONT"
    local result, message, code = stopped:finish()
    assert.is_nil(result)
    assert.is_truthy(({ unreachable = true, lost = true })[code], message)
    assert.is_false(stopped:run("return called"))
    assert.is_true(rival:run("return lock:verify()"))
  end)
end)

describe("the queue of a fast mutex", function()
  it("is durable, has one active consumer, keeps one token, refuses more, and expires unused", function()
    local name = settling_name()
    hold(name)
    until_at(name, 0, 1)
    -- The broker refuses a declare that differs in anything.
    assert(stage.client():declare(queue(name), { durable = true, arguments = { ["x-queue-type"] = "classic",
      ["x-single-active-consumer"] = true, ["x-max-length"] = 1, ["x-overflow"] = "reject-publish",
      ["x-expires"] = 600000 } }))
  end)

  it("lets nobody in by tokens of strangers, of which it keeps one", function()
    local name = settling_name()
    local lock, waiter = hold(name), join(worker(name))
    assert.equal(1, ring(name, 5))
    fails("busy", mutex_of(name):try_acquire())
    until_at(name, 1, 2)
    assert.is_true(lock:verify() and not waiter:finished())
    assert(lock:release())
    took(waiter)
    fails("busy", mutex_of(name):try_acquire())
  end)

  it("that was purged gets a token by the next client; a holder loses nothing", function()
    local name = settling_name()
    local held = hold(name)
    assert.equal(1, ring(name, 1))
    assert.equal(1, purge(name))
    assert.is_true(held:verify() and held:release())
    until_at(name, 1, 0)
    assert.equal(1, purge(name))
    local lock = hold(name)
    fails("busy", mutex_of(name):try_acquire())
    assert.is_true(lock:verify())
  end)

  it("that was purged under those who wait gets a token by them", function()
    local name = settling_name()
    local their = stage.client():channel()
    assert(their:call{ method = "basic.qos", prefetch_count = 1 })
    assert(hold(name):release())
    assert(their:call{ method = "basic.consume", queue = queue(name), consumer_tag = "theirs" })
    assert(their:await("basic.deliver", SECONDS))
    local waiter = join(worker(name), { poll = 0.5 })
    their:send{ method = "basic.ack", delivery_tag = 1 }
    their:send{ method = "basic.cancel", consumer_tag = "theirs" }
    assert(their:await("basic.cancel-ok", SECONDS))
    took(waiter)
  end)

  it("that is deleted is lost for its holder, which is told, and made anew by a waiter", function()
    local name, told = settling_name(), {}
    local conn = stage.connect(nil, { on_lost = function(...) table.insert(told, { ... }) end })
    local lock, waiter = hold(name, nil, conn), join(worker(name))
    stage.delete(queue(name))
    took(waiter)
    until_true(function() return not lock:held() end)
    fails("lost", lock:held())
    fails("lost", lock:verify())
    fails("lost", lock:release())
    assert.same({ lock, "lost" }, { told[1][1], told[1][2] })
    assert.is_true(waiter:run("return lock:verify()"))
    fails("busy", mutex_of(name, conn):try_acquire())
  end)

  it("of another shape is a conflict, and another connection's own is squatted", function()
    local plain, own = new_name(), new_name()
    local raw = stage.client()
    assert(raw:declare(queue(plain), { durable = true }))
    assert.matches("inequivalent arg", fails("conflict", mutex_of(plain):try_acquire()), 1, true)
    assert(raw:declare(queue(own), { exclusive = true }))
    fails("squatted", mutex_of(own):acquire{ timeout = SECONDS })
  end)

  it("is not made beside a held plain mutex of its name; an idle one does not matter", function()
    local name = new_name()
    local plain = stage.take(stage.connect():mutex(name))
    assert.matches("in use as a plain mutex", fails("conflict", mutex_of(name):try_acquire()))
    fails("conflict", mutex_of(name):acquire{ timeout = SECONDS })
    assert.is_true(plain:verify() and plain:release())
    hold(name)
  end)
end)

describe("a user of fast mutexes", function()
  operated_it("who may not declare, or not read, is refused, and leaves nothing standing", function()
    local name, label = settling_name(), client.unique "user"
    assert(hold(name):release())
    stage.undo(function() broker.suite:delete_user(label) end)
    local url = broker.suite:add_user(label, ".*", ".*", "")
    fails("refused", mutex_of(name, stage.connect(url)):try_acquire())
    broker.suite:delete_user(label)
    url = broker.suite:add_user(label, "", ".*", ".*")
    fails("refused", mutex_of(name, stage.connect(url)):acquire{ timeout = SECONDS })
    until_at(name, 1, 0)
  end)

  operated_it("who may not publish acquires one that has a token, and is refused where there is none", function()
    local name, label = settling_name(), client.unique "user"
    stage.undo(function() broker.suite:delete_user(label) end)
    local conn = stage.connect(broker.suite:add_user(label, ".*", "", ".*"))
    assert(hold(name):release())
    until_at(name, 1, 0)
    assert.is_true(hold(name, nil, conn):release())
    until_at(name, 1, 0)
    purge(name)
    fails("refused", mutex_of(name, conn):try_acquire())
    assert(hold(name):release())
  end)
end)

describe("an alarm", function()
  operated_it("does not touch a fast mutex that has a token; one that has none says blocked", function()
    local name, other = settling_name(), new_name()
    local lock = hold(name)
    local waiter = join(worker(name), { poll = 0.5 })
    stage.alarm "memory"
    assert.is_true(lock:held() and lock:verify() and lock:release())
    took(waiter)
    line.leave(waiter)
    assert.is_true(hold(name):release())
    until_true(function()
      local _, _, code = mutex_of(other, stage.connect(nil, { timeout = 5 })):try_acquire()
      return code == "blocked" or code == "unreachable", code
    end)
    broker.suite:alarm(false, "memory")
    hold(other, { timeout = SECONDS })
  end)
end)

describe("a restart of the broker", function()
  local node = broker.suite

  operated_it("ends the hold; the token is there again, and the next one has the mutex", function()
    local name, told = settling_name(), {}
    local conn = stage.connect(nil, { on_lost = function(lock) table.insert(told, lock) end })
    local lock, waiter = hold(name, nil, conn), worker(name)
    line.begin(waiter, { timeout = 60 })
    until_true(function() return line.waits(waiter) end, SECONDS)
    node:restart()
    local served, message, code = waiter:finish()
    -- The broker may close the holder's connection first, and serve the waiter before it closes its connection.
    if not served then fails(code == "lost" and code or "unreachable", served, message, code) end
    until_true(function() return not lock:held() end)
    fails("lost", lock:verify())
    assert.same({ lock }, told)
    until_at(name, 1, 0)
    assert.is_true(hold(name, { timeout = SECONDS, patient = true }, conn):verify())
    fails("busy", mutex_of(name):try_acquire())
  end)
end)

describe("an operator", function()
  operated_it("who closes the holder's channel or connection gives the fast mutex to the next", function()
    local name, label = settling_name(), client.unique "conn"
    local conn = stage.connect(nil, { name = label })
    local lock, other = hold(name, nil, conn), worker(name)
    broker.suite:close_channel(queue(name))
    assert.is_true(other:run("return take(20)"))
    until_true(function() return not lock:held() end)
    fails("lost", lock:verify())
    line.leave(other)
    lock, other = hold(name, { timeout = SECONDS }, conn), join(worker(name))
    broker.suite:close_connection(label .. " holder")
    took(other)
    fails("lost", lock:verify())
    line.leave(other)
    assert.is_true(hold(name, { timeout = SECONDS }, conn):verify())
  end)
end)
