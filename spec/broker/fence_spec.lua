-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Fencing tokens: numbers that grow from one holder of a lock to the next, drawn from a quorum queue, the fence. See
-- spec/broker/facts/fence_spec.lua for what that queue does.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local movers = require "spec.support.movers"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local FENCED = { fenced = true }

stage.tidy()

local FENCES = { mutex = "-mutexfence", slot = "-fence", write = "-rwfence", read = "-rwfence" }
local TAKES = { mutex = "acquire", slot = "acquire", write = "write", read = "read" }
local MAKES = { mutex = "mutex", slot = "semaphore", write = "rwlock", read = "rwlock" }

-- A name, whose fence is deleted at the end of the test.
local function named(kind)
  local name = kind == "slot" and stage.semaphore(1) or kind == "mutex" and stage.mutex() or gate.name()
  stage.undo(function ()
    for _, suffix in ipairs{ "", "-unfinished" } do client.shared():delete(name .. FENCES[kind] .. suffix) end
  end)
  return name, name .. FENCES[kind]
end

local function lockable(conn, kind, name, options) return conn[MAKES[kind]](conn, name, options or FENCED) end

-- Acquires it, on a connection of its own unless one is given.
local function take(kind, name, conn, timeout)
  local from = lockable(conn or stage.connect(), kind, name)
  return from[TAKES[kind]](from, { timeout = timeout or 60 })
end

local function free(kind, name)
  if kind == "slot" then return stage.free(name, 1) end
  return not gate.held(kind, name)
end

-- Fails with this code, and nothing stays held. Returns the message.
local function fails(kind, name, code, conn, timeout)
  local message = stage.fails(code, take(kind, name, conn, timeout))
  until_true(function () return free(kind, name) end)
  return message
end

local function grows(lock, last)
  assert.is_true(lock.fence > last and lock.fence < 2 ^ 53, ("%s after %s"):format(lock.fence, last))
  return lock.fence
end

for kind in pairs(FENCES) do
  it("the fencing token is an integer that grows from holder to holder, from a fence that stays: " .. kind, function ()
    local name, fence = named(kind)
    local before = broker.suite and gate.queues(name)
    local plain = lockable(stage.connect(), kind, name, {})
    local lock = assert(plain[TAKES[kind]](plain, { timeout = 60 }))
    assert.is_nil(lock.fence)
    assert.is_false(client.shared():exists(fence))
    assert(lock:release())
    local last, conns = 0, { stage.connect(), stage.connect(), stage.connect() }
    for i = 1, 6 do
      lock = assert(take(kind, name, conns[i % 3 + 1]))
      assert.equal(0, lock.fence % 1)
      if math.type then assert.equal("integer", math.type(lock.fence)) end
      last = grows(lock, last)
      assert(lock:release())
      if i == 1 and before then -- nothing else is left
        table.insert(before, fence)
        table.sort(before)
        until_true(function () return #gate.queues(name) == #before end)
        assert.same(before, gate.queues(name))
      end
    end
  end)
end

-- The kinds share the code, and a mutex stands for all.
describe("the fencing token of a lock", function ()
  it("is not had where a queue of other software has a name of the fence: squatted, and left alone", function ()
    for suffix, queue_type in pairs{ [""] = "quorum", ["-maker"] = "classic" } do
      local name, fence = named "mutex"
      local queue = fence .. suffix
      stage.undo(function () client.shared():delete(queue) end)
      assert(client.shared():declare(queue, { durable = true, arguments = { ["x-queue-type"] = queue_type } }))
      for _ = 1, 3 do client.shared():probe(queue, { delivery_mode = 2 }) end
      fails("mutex", name, "squatted", stage.connect())
      until_true(function () return client.shared():message_count(queue) == 3 end)
    end
  end)

  it("cannot be had where another client keeps the message; is had when that client has gone", function ()
    local name, fence = named "mutex"
    local conn = stage.connect(nil, { timeout = 5 })
    assert(assert(take("mutex", name, conn)):release())
    local keeper = stage.client():channel()
    until_true(function ()
      return keeper:call{ method = "basic.get", queue = fence }.method == "basic.get-ok"
    end)
    fails("mutex", name, "timeout", conn, 0.2)
    keeper.client:abort()
    assert(take("mutex", name, conn))
  end)

  operated_it("is had during an alarm, from a fence that exists; otherwise: blocked", function ()
    local name, conn = named "mutex", stage.connect()
    assert(assert(take("mutex", name, conn)):release())
    stage.alarm()
    assert(take("mutex", name, conn))
    until_true(function () -- the broker still reads the first message of a connection
      local lock, message, code = take("mutex", (named "mutex"), stage.connect())
      return not lock and stage.fails("blocked", lock, message, code)
    end)
  end)

  it("goes on upwards from a fence that was deleted, or whose message was replaced", function ()
    local name, fence = named "mutex"
    local conn, last = stage.connect(), 0
    for _, damage in ipairs{ function () end, function () stage.delete(fence) end, function ()
      client.shared():probe(fence, { delivery_mode = 2, headers = { ["x-amqplocks-base"] = 0 } })
    end } do
      damage()
      local lock = assert(take("mutex", name, conn))
      last = grows(lock, last)
      assert(lock:release())
    end
  end)

  for way, moves in pairs(movers) do
    local moved_it = way == "retry" and operated_it or it
    moved_it("is larger after the fence's message was published again: " .. way, function ()
      local name, fence = named "mutex"
      local last, conn = 0, stage.connect()
      local function takes(from)
        local lock = assert(take("mutex", name, from))
        last = grows(lock, last)
        assert(lock:release())
      end
      for _, next_conn in ipairs{ false, conn } do -- a new connection has seen no number
        takes(conn)
        takes(next_conn or nil)
        moves(fence)
        takes(next_conn or nil)
        takes(conn)
      end
    end)
  end

  it("is had where the last maker was killed before it published the message", function ()
    local name, fence = named "mutex"
    local conn = stage.connect(nil, { timeout = 3 })
    assert(assert(take("mutex", name, conn)):release())
    assert(client.shared():channel():call{ method = "queue.purge", queue = fence })
    assert(client.shared():declare(fence .. "-unfinished", { durable = true,
      arguments = { ["x-queue-type"] = "classic" } }))
    assert.is_true(assert(take("mutex", name, conn)).fence > 0)
    until_true(function () return not client.shared():exists(fence .. "-unfinished") end)
  end)

  it("waits for another client that makes the fence", function ()
    local name, fence = named "mutex"
    local maker = stage.client():channel()
    assert(maker:call{ method = "queue.declare", queue = fence .. "-maker", exclusive = true })
    local conn = stage.connect(nil, { timeout = 3 })
    assert.matches("making it", fails("mutex", name, "unavailable", conn))
    maker.client:abort()
    until_true(function () return not client.shared():locked(fence .. "-maker") end)
    assert(take("mutex", name, conn))
  end)

  for which, case in pairs{ ["write to"] = { "^(?!.*fence)", ".*" }, read = { ".*", "^(?!.*fence)", "refused" } } do
    operated_it("without permission to " .. which .. " the fence: " .. (case[3] or "is had, made as well"), function ()
      local name, conn = named "mutex", (stage.connect_as(".*", case[1], case[2]))
      if case[3] then fails("mutex", name, case[3], conn) else assert(take("mutex", name, conn)) end
    end)
  end

  for key, case in pairs{ ["message-ttl"] = { 1, "a policy may remove it" },
    ["max-length"] = { 0, "a policy may remove it" }, ["delivery-limit"] = { 5, "delivery-limit" } } do
    operated_it("cannot be had where a policy removes the message: conflict, " .. key, function ()
      if key == "delivery-limit" and client.shared():since(4, 3) then pending "of brokers before 4.3" end
      local name, fence = named "mutex"
      local policy = client.unique "policy"
      stage.undo(function () broker.suite:clear_policy("/", policy) end)
      broker.suite:set_policy("/", policy, "^" .. fence:gsub("%p", "[%0]") .. "$", ('{"%s":%d}'):format(key, case[1]))
      local message = fails("mutex", name, "conflict", stage.connect(nil, { timeout = 3 }))
      assert.matches(case[2], message, 1, true)
    end)
  end
end)

describe("a fence", function ()
  it("of a mutex, or a readers-writer lock, is deleted by forget_fence, and then made anew, upwards", function ()
    for _, kind in ipairs{ "mutex", "write" } do
      local name, fence = named(kind)
      local conn = stage.connect()
      local lock = assert(take(kind, name, conn))
      assert(lock:release())
      assert.is_true(lockable(conn, kind, name):forget_fence())
      assert.is_false(client.shared():exists(fence))
      assert.is_true(lockable(conn, kind, name):forget_fence())
      assert.is_true(assert(take(kind, name, stage.connect())).fence > lock.fence)
    end
  end)

  it("of a semaphore that has lost its message is made anew by repair{ fenced = true }, upwards", function ()
    local name, fence = named "slot"
    local conn = stage.connect(nil, { timeout = 3 })
    local last = assert(take("slot", name, conn))
    assert(last:release())
    assert(client.shared():channel():call{ method = "queue.purge", queue = fence })
    assert.matches("policy", fails("slot", name, "conflict", conn))
    assert.equal(1, conn:admin(name):repair())
    fails("slot", name, "conflict", conn)
    assert.equal(1, conn:admin(name):repair(FENCED))
    local lock = assert(take("slot", name, conn))
    assert.is_true(lock.fence > last.fence)
    assert(lock:release())
    assert.equal(1, conn:admin(name):repair(FENCED)) -- it is in order
    assert.is_true(assert(take("slot", name, conn)).fence > lock.fence)
  end)

  it("of a semaphore is made by create and resize, if it is fenced, and by nothing else", function ()
    local name, fence = named "slot"
    local conn = stage.connect()
    local admin, fenced = conn:admin(name), conn:admin(name, FENCED)
    assert.equal(1, admin:repair())
    assert.equal(2, admin:resize(2))
    assert.equal(3, fenced:add(1))
    assert.is_false(client.shared():exists(fence))
    assert.equal(3, fenced:resize(3))
    assert.is_true(client.shared():exists(fence))
    assert.is_true(fenced:destroy{ fence = true })
    assert.is_false(client.shared():exists(fence))
    stage.fails("not_found", fenced:repair())
    assert.is_false(client.shared():exists(fence))
    assert.equal(1, fenced:create(1))
    assert.is_true(client.shared():exists(fence))
    local lock = assert(take("slot", name))
    assert.equal(1, fenced:resize(1)) -- it is there: not made anew
    assert(lock:release())
    local later = assert(take("slot", name))
    assert.is_true(later.fence > lock.fence and later.fence < lock.fence + 10)
  end)

  it("of a persistent mutex is made by its create, kept by destroy, and deleted by destroy{ fence = true }", function ()
    local name = gate.name()
    local fence = name .. "-fence"
    stage.undo(function () client.shared():delete(fence) end)
    local mutex = stage.connect():mutex(name, { persistent = true, fenced = true })
    assert.is_true(mutex:create())
    assert.is_true(client.shared():exists(fence))
    assert.is_true(mutex:destroy())
    assert.is_true(client.shared():exists(fence))
    stage.fails("not_found", mutex:destroy{ fence = true })
    assert.is_false(client.shared():exists(fence))
  end)

  operated_it("that an administrator has made is drawn from without permission to make it", function ()
    local name, fence = named "slot"
    local url = stage.user("^(?!.*fence)", "^(?!.*fence)", ".*")
    fails("slot", name, "refused", stage.connect(url))
    assert.is_false(client.shared():exists(fence))
    local conn = stage.connect()
    assert.equal(1, conn:admin(name, FENCED):resize(1))
    local lock = assert(take("slot", name, stage.connect(url)))
    assert(lock:release())
    assert.is_true(assert(take("slot", name, conn)).fence > lock.fence)
  end)
end)

describe("fencing tokens", function ()
  operated_it("of all locks of a connection are drawn on one connection more, opened by the first of them", function ()
    local label, names = client.unique "session", {}
    for kind in pairs(FENCES) do names[kind] = named(kind) end
    local conn = stage.connect(nil, { name = label })
    assert(assert(conn:mutex(names.mutex):acquire{ timeout = 60 }):release())
    stage.until_connected(label .. " prober", 1)
    stage.until_connected(label .. " fence", 0)
    for kind, name in pairs(names) do
      for _ = 1, 2 do assert(assert(take(kind, name, conn)):release()) end
      stage.until_connected(label .. " fence", 1)
      stage.until_connected(label .. " maker", 0)
    end
    stage.until_connected(label .. " holder", 1)
  end)

  it("of readers are larger than that of the writer before them, and smaller than that of the next", function ()
    local name = named "write"
    local conns = { stage.connect(), stage.connect(), stage.connect() }
    local writer = assert(take("write", name, conns[1]))
    assert(writer:release())
    local readers = { assert(take("read", name, conns[1])), assert(take("read", name, conns[2])) }
    local most = 0
    for _, reader in ipairs(readers) do
      assert.is_true(reader.fence > writer.fence)
      most = math.max(most, reader.fence)
      assert(reader:release())
    end
    local next_one = assert(take("write", name, conns[3]))
    assert.is_true(next_one.fence > most)
    local fence = next_one.fence
    assert(next_one:downgrade())
    assert.equal(fence, next_one.fence)
  end)
end)
