-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The mutex: held by one process, as other clients see it, and gone after the release. Unless stated otherwise, waiters
-- here recheck only every ten minutes, so a waiter that gets the mutex was woken.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local lfs = require "lfs"
local line = require "spec.support.line"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local function hold(name, options, conn) return gate.take("mutex", name, options, conn) end

local function held(name) return gate.held("mutex", name) end

local function queue(name) return gate.queue("mutex", name) end

after_each(stage.clear)
teardown(stage.check)

describe("a mutex", function()
  operated_it("is one queue while it is held, and nothing before and after but the bell of those who waited", function()
    local name = gate.name()
    local mutex = stage.connect():mutex(name)
    for _ = 1, 2 do
      assert.same({}, gate.queues(name))
      local lock = stage.take(mutex)
      assert.same({ queue(name) }, gate.queues(name))
      assert.is_true(lock:release())
    end
    local lock = stage.take(mutex)
    gate.make_bell("mutex", name)
    assert.same({ queue(name), gate.bell("mutex", name) }, gate.queues(name))
    assert(lock:release())
    assert.same({ gate.bell("mutex", name) }, gate.queues(name))
  end)

  it("keeps out everybody else: of its connection, of another, of another process", function()
    local name = gate.name()
    local conn, other = stage.connect(), gate.process("mutex", name)
    local lock = hold(name, nil, conn)
    local busy = ('busy: mutex "%s" is held'):format(name)
    assert.equal(busy, stage.fails("busy", conn:mutex(name):try_acquire()))
    assert.equal(busy, stage.fails("busy", stage.connect():mutex(name):try_acquire()))
    assert.equal(busy, stage.fails("busy", other:run("return sem:try_acquire()")))
    assert.equal(busy, stage.fails("busy", other:run("return sem:acquire{ timeout = 0 }")))
    assert.is_true(lock:release())
    assert.is_false(held(name))
    assert.is_true(other:run("return take(20)"))
    stage.fails("busy", conn:mutex(name):try_acquire())
  end)

  for kind, what in pairs{ mutex = "mutex", read = "the read lock on", write = "the write lock on" } do
    it("gives a lock as any other, as does a readers–writer lock: " .. kind, function()
      local name, before = gate.name(), os.time()
      local lock = gate.take(kind, name)
      assert.same({ kind, name, nil }, { lock.kind, lock.name, lock.slot })
      assert.matches("^%x+$", lock.ticket)
      assert.equal(16, #lock.ticket)
      assert.is_true(stage.is_since(before, lock.acquired_at))
      assert.equal(('amqplocks.lock ("%s", %s, held)'):format(name, kind), tostring(lock))
      assert.is_true(lock:held() and lock:verify())
      assert.is_false(lock:revoked())
      assert.is_true(lock:release())
      assert.matches(('%s "%s"'):format(what, name), stage.fails("not_held", lock:held()), 1, true)
      stage.fails("not_held", lock:verify())
      stage.fails("not_held", lock:release())
      assert.not_equal(lock.ticket, gate.take(kind, name).ticket)
    end)
  end

  it("throws what is misused, and asks nobody", function()
    local conn = stage.connect()
    assert.is_false(pcall(conn.mutex, conn, "x", { persist = true }))
    assert.is_false(pcall(conn.mutex, conn, "x", { persistent = 1 }))
    local mutex = conn:mutex "x"
    for _, action in ipairs{ "create", "destroy" } do
      local fine, problem = pcall(mutex[action], mutex)
      assert.is_false(fine)
      assert.matches("only a persistent mutex", problem, 1, true)
    end
    assert.is_false(pcall(function() return conn:mutex("x"):acquire{ slots = 1 } end))
  end)
end)

-- Proved by the file system: a process inside makes a directory, which fails if there is one.
it("processes that want the same mutex are inside one at a time, and all have their turns", function()
  local name, directory = gate.name(), process.directory()
  stage.undo(function() process.shell("rm", "-rf", directory) end)
  local all = gate.processes("mutex", name, 8)
  for i, one in ipairs(all) do
    one:begin([[
      local lfs, socket = require "lfs", require "socket"
      local directory, rounds, fair = ...
      for _ = 1, rounds do
        local _, result = assert(sem:with({ timeout = 60, fair = fair }, function(lock)
          assert(lfs.mkdir(directory .. "/inside"))
          socket.sleep(0.001)
          assert(lock:held())
          assert(lfs.rmdir(directory .. "/inside"))
          return "done"
        end))
        assert(result == "done")
      end
      return true
    ]], directory, 25, i % 2 == 0)
  end
  for _, one in ipairs(all) do assert.is_true(one:finish(60)) end
  assert.is_nil(lfs.attributes(directory .. "/inside"))
end)

describe("those who wait for a mutex", function()
  it("are served in the order of their arrival, fair or not", function()
    local name, waiting = gate.name(), {}
    local lock = hold(name)
    for i, one in ipairs(gate.processes("mutex", name, 6)) do waiting[i] = line.join(one, { fair = i % 2 == 0 }) end
    assert(lock:release())
    assert.same({ 1, 2, 3, 4, 5, 6 }, line.serve(waiting))
  end)

  it("are woken by who leaves, also where they look without publishing, so that nobody knows of them", function()
    local name = gate.name()
    local lock, one = hold(name), gate.process("mutex", name)
    one:run("sem = conn:mutex(..., { probe = 'passive' })", name)
    line.join(one, nil, true)
    gate.until_at("mutex", name, 0, 1)
    assert(lock:release())
    gate.served(one)
  end)

  it("leave the bell as they made it: it goes by itself, and keeps one token at most", function()
    local name = gate.name()
    local lock = hold(name)
    gate.make_bell("mutex", name)
    assert(lock:release())
    for _ = 1, 5 do assert(hold(name):release()) end
    gate.until_at("mutex", name, 1, 0)
    local bell = { durable = true, arguments = { ["x-queue-type"] = "classic", ["x-expires"] = 60000,
      ["x-max-length"] = 1, ["x-overflow"] = "drop-head" } }
    assert(stage.client():declare(gate.bell("mutex", name), bell))
    bell.arguments["x-expires"] = 60001
    assert.equal(406, select(2, stage.client():declare(gate.bell("mutex", name), bell)).code)
  end)

  it("look for themselves where a bell of other arguments stands in the way", function()
    local name = gate.name()
    assert(stage.client():declare(gate.bell("mutex", name), { durable = true }))
    local lock, one = hold(name), gate.process("mutex", name)
    line.begin(one, { poll = 0.1 })
    until_true(function() return line.waits(one) end)
    assert(lock:release())
    gate.served(one)
  end)
end)

it("nobody starves beside others who take a mutex again and again", function()
  local name = gate.name()
  local mutex = stage.connect():mutex(name)
  gate.beside("mutex", name, 4, function()
    for _ = 1, 20 do assert.is_true(stage.take(mutex, { timeout = 20 }):release()) end
  end)
end)

describe("when somebody is killed", function()
  operated_it("that took a mutex which nobody waited for then, who waits now is woken", function()
    local name = gate.name()
    local one, two = gate.holder("mutex", name), gate.process("mutex", name)
    line.join(two)
    gate.until_rung("mutex", name)
    one:kill()
    gate.served(two)
    assert.is_true(held(name) and two:run("return lock:verify()"))
  end)

  it("that was woken for it, the next one is woken, again and again", function()
    local name, waiting = gate.name(), {}
    local lock = hold(name)
    for i, one in ipairs(gate.processes("mutex", name, 6)) do waiting[i] = line.join(one) end
    assert(lock:release())
    for i = 1, 6 do
      local one, place, got = line.next(waiting)
      assert.same({ 1, true }, { place, got })
      assert.is_true(held(name) and one:run("return lock:verify()"))
      assert.is_true(i == 6 or line.all_wait(waiting))
      one:kill()
    end
    gate.until_free("mutex", name)
  end)

  it("that waits, before or while it is woken, the others are served", function()
    local name, waiting = gate.name(), {}
    local lock = hold(name)
    for i, one in ipairs(gate.processes("mutex", name, 4)) do waiting[i] = line.join(one) end
    table.remove(waiting, 2):kill()
    gate.until_at("mutex", name, 0, 4)
    local first = table.remove(waiting, 1)
    first:signal("STOP")
    until_true(function() return first:state() == "T" end)
    assert(lock:release()) -- the token is sent to who will never read it
    gate.until_at("mutex", name, 0, 3)
    assert.is_true(line.all_wait(waiting))
    first:kill()
    assert.same({ 1, 2 }, line.serve(waiting))
  end)
end)

for how, same in pairs{ ["of another connection"] = false, ["of the same connection"] = true } do
  operated_it("nobody can release a mutex with the lock of an earlier holding, released or lost, " .. how, function()
    local name, conn = gate.name(), stage.connect()
    local released = hold(name, nil, conn)
    assert(released:release())
    local lost = hold(name, nil, conn)
    broker.suite:delete_queue(queue(name))
    until_true(function() return not lost:held() end)
    local later = hold(name, { timeout = 20 }, same and conn or nil)
    assert.not_equal(released.ticket, later.ticket)
    stage.fails("not_held", released:release())
    stage.fails("lost", lost:release())
    stage.fails("not_held", lost:release())
    released._core:drop() -- as the collector would
    lost._core:drop()
    stage.fails("not_found", conn:semaphore("spec.nothing"):try_acquire()) -- whatever it wrote is written
    assert.is_true(held(name) and later:held() and later:verify())
    stage.fails("busy", stage.connect():mutex(name):try_acquire())
  end)
end

it("no timeout takes a mutex away, of whoever, however long its holder computes", function()
  local name = gate.name()
  local one = gate.holder("mutex", name, "{ heartbeat = 2, timeout = 3 }")
  one:begin("local stop = os.time() + 8 while os.time() < stop do end")
  local mutex, other = stage.connect():mutex(name), gate.process("mutex", name)
  line.begin(other, { timeout = 6, poll = 0.1 })
  repeat
    local got, message, code = mutex:acquire{ timeout = 0.4, poll = 0.1 }
    stage.fails(code == "unreachable" and code or "timeout", got, message, code)
    assert.is_true(held(name))
  until one:finished()
  one:finish()
  until_true(function() return one:run("return lock:held()") end) -- never again, had it been lost
  assert.is_true(held(name) and one:run("return lock:verify()"))
  stage.fails("timeout", other:finish())
  line.leave(one)
end)

it("an operator finds out what squats on a mutex, and until it is deleted nobody holds it", function()
  local name, squatter = gate.name(), stage.client()
  assert(squatter:declare(queue(name), { durable = true }))
  local message = stage.fails("squatted", stage.connect():mutex(name):try_acquire())
  assert.matches('"' .. queue(name) .. '" is not exclusive', message, 1, true)
  stage.fails("squatted", stage.connect():mutex(name):acquire{ timeout = 20 })
  stage.fails("squatted", stage.connect():mutex(name, { probe = "passive" }):acquire{ fair = true })
  assert.equal(0, squatter:message_count(queue(name)))
  assert(squatter:delete(queue(name)))
  assert.is_true(hold(name):verify())
end)

operated_it("a user who may not touch the bell waits by looking", function()
  local name, user = gate.name(), client.unique "user"
  stage.undo(function() broker.suite:delete_user(user) end)
  local permitted = "^" .. queue(name) .. "$"
  local conn = stage.connect(broker.suite:add_user(user, permitted, "^amq\\.default$", permitted), { timeout = 5 })
  local lock = hold(name)
  stage.fails("timeout", conn:mutex(name):acquire{ timeout = 0.3, poll = 0.1 })
  assert(lock:release())
  assert.is_true(hold(name, { timeout = 20, poll = 0.1 }, conn):release())
end)

describe("a persistent mutex", function()
  local name, conn, mutex

  before_each(function()
    name = stage.name()
    stage.undo(function() stage.connect():mutex(name, { persistent = true }):destroy() end)
    conn = stage.connect()
    mutex = conn:mutex(name, { persistent = true })
  end)

  it("is there when it was created, and not when it was destroyed", function()
    stage.fails("not_found", mutex:try_acquire())
    stage.fails("not_found", mutex:destroy())
    assert.is_true(mutex:create())
    stage.fails("exists", mutex:create())
    assert.equal(1, conn:admin(name):slots())
    local lock = stage.take(mutex)
    assert.is_true(lock:verify() and stage.held(name, 1))
    stage.fails("busy", stage.connect():mutex(name, { persistent = true }):try_acquire())
    assert.is_true(mutex:destroy())
    stage.fails("removed", lock:verify())
    assert.is_true(lock:held() and lock:release())
    stage.fails("not_found", mutex:acquire{ timeout = 20 })
  end)

  it("is asked back from its holder", function()
    assert.is_true(mutex:create())
    stage.fails("not_held", mutex:revoke())
    local one = line.process(name)
    assert.equal(1, one:run("return take(20)"))
    one:begin("while not lock:revoked() do end return lock:release()")
    assert.is_true(mutex:revoke{ wait = 20 })
    assert.is_true(one:finish())
    assert.is_true(stage.take(mutex):release())
  end)
end)
