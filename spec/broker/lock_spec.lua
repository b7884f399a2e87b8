-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local broker = require "spec.support.broker"
local client = require "spec.support.client"
local kinds = require "spec.support.kinds"
local line = require "spec.support.line"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

-- A lock on slot 1 of a new semaphore, the name of that, and the connection and semaphore it was taken on.
local function locked(slots, url, options)
  local name = stage.semaphore(slots or 1)
  local conn = stage.connect(url, options)
  local sem = conn:semaphore(name)
  return stage.take(sem), name, conn, sem
end

-- The lock is gone for good, and says so whatever it is asked.
local function assert_lost(lock)
  stage.fails("lost", lock:held())
  stage.fails("lost", lock:verify())
  stage.fails("lost", lock:release())
end

after_each(stage.clear)
teardown(stage.check)

describe("a lock", function()
  it("is released once", function()
    local lock, name = locked()
    assert.is_true(lock:release())
    stage.take(stage.connect():semaphore(name))
    assert.matches(name, stage.fails("not_held", lock:release()), 1, true)
    stage.fails("not_held", lock:release())
    assert.is_true(stage.held(name, 1))
  end)

  it("is not the next one, though its connection and its slot are the same", function()
    local first, name, _, sem = locked()
    assert(first:release())
    local second = stage.take(sem)
    stage.fails("not_held", first:held())
    stage.fails("not_held", first:release())
    assert.is_true(second:verify() and stage.held(name, 1))
  end)

  it("is released with its connection, and with all the others on it", function()
    local first, name, conn, sem = locked(3)
    local locks = { first, stage.take(sem), stage.take(sem) }
    assert.is_true(conn:close())
    for slot, lock in ipairs(locks) do
      assert.is_true(stage.free(name, slot))
      stage.fails("not_held", lock:held())
      stage.fails("not_held", lock:release())
    end
  end)

  it("stays held while its connection takes and releases others", function()
    local lock, name, conn, sem = locked(3)
    for _ = 1, 20 do
      local second, third = assert(sem:try_acquire()), assert(sem:try_acquire())
      stage.fails("busy", sem:try_acquire())
      stage.fails("not_found", conn:semaphore(name .. "-none"):try_acquire())
      assert(second:release() and third:release())
    end
    assert.is_true(lock:held() and lock:verify() and stage.held(name, 1))
  end)

  it("is kept when its slot is removed, and says so when it is verified", function()
    local lock, name, _, sem = locked()
    stage.remove(name, 1)
    assert.is_true(lock:held())
    assert.matches(name, stage.fails("removed", lock:verify()), 1, true)
    assert.is_true(lock:held() and stage.held(name, 1))
    stage.add(name, 1, 1)
    stage.fails("busy", stage.connect():semaphore(name):try_acquire())
    stage.remove(name, 1)
    assert.is_true(lock:release())
    assert.is_true(stage.free(name, 1))
    stage.fails("not_found", sem:try_acquire())
  end)

  it("does not mind messages that others send to its queue", function()
    local lock, name = locked()
    local channel = stage.client():channel():confirm()
    local bodies = { "", "a few words", ("x"):rep(300000) }
    for i = 1, 60 do
      channel:publish{ routing_key = stage.holder(name, 1), body = bodies[i % 3 + 1],
        properties = { message_id = tostring(i), type = "spec", delivery_mode = 2 } }
    end
    assert.is_true(lock:verify())
    for _ = 1, 60 do assert.is_true(lock:held()) end
    assert.is_true(stage.held(name, 1))
    assert.is_true(lock:verify())
    assert.is_true(lock:release())
    assert.is_true(stage.free(name, 1))
  end)
end)

describe("what an operator sees of a lock", function()
  operated_it("is an exclusive queue that keeps nothing, has one consumer and says whose it is, since when", function()
    local lock, name = locked(1, nil, { name = "the spec" })
    local row = broker.suite:row(stage.holder(name, 1), "list_queues", "name", "exclusive", "auto_delete", "durable",
      "consumers", "arguments")
    assert.matches("\ttrue\ttrue\tfalse\t1\t", row, 1, true)
    for _, argument in ipairs{ '"x-queue-type","classic"', '"x-max-length",0', '"x-overflow","drop-head"',
      '"x-amqplocks-ticket","' .. lock.ticket .. '"', '"x-amqplocks-holder","the spec"' } do
      assert.matches(argument, row, 1, true)
    end
    local since = tonumber(row:match('"x%-amqplocks%-acquired%-at",(%d+)'))
    assert.is_true(math.abs(since - lock.acquired_at) <= 2)
  end)

  operated_it("is each client that waits, its name and since when", function()
    local waiting, began = {}, os.time()
    for kind, queue in pairs{ slot = "-bell", mutex = "-mutexbell", read = "-rwbell", write = "-rwbell",
      permit = ".semaphore", fast_mutex = "-fastmutex" } do
      local name = kinds.all[kind].name()
      stage.take(kinds.rival(kind, name))
      local other = line.process(name, "{ name = 'who waits' }")
      other:run("of = require 'spec.support.kinds'.all[...].over", kind)
      other:begin("return of(conn, ...):acquire{ timeout = 600, poll = 600 }", name)
      waiting[name .. queue] = kind
    end
    local rows
    until_true(function() -- rabbitmqctl takes seconds
      rows = {}
      for row in broker.suite:ctl("list_consumers", "queue_name", "arguments"):gmatch "[^\n]+" do
        local kind = row:find('"x-amqplocks-holder","who waits"', 1, true) and waiting[row:match "^%S+"]
        if kind then rows[kind] = row end
      end
      for _, kind in pairs(waiting) do
        if not rows[kind] then return false, kind end
      end
      return true
    end, 300)
    for kind, row in pairs(rows) do
      local since = tonumber(row:match('"x%-amqplocks%-waiting%-since",(%d+)'))
      assert.is_true(since >= began - 2 and since <= os.time() + 2, kind)
    end
  end)

  it("is no message, however often somebody asked for slots that plain queues stand for", function()
    local name, plain = stage.name(), stage.name()
    stage.add(name, 1, 2)
    stage.add(plain, 1, 2, { durable = true })
    stage.occupy(plain, 1)
    local conn = stage.connect()
    local sem = conn:semaphore(plain)
    for _ = 1, 100 do
      assert.same({ true, 2 }, { sem:with(function(lock) return lock:verify() and lock.slot end) })
    end
    for slot = 1, 2 do
      assert.equal(0, stage.client():message_count(stage.slot(plain, slot)))
      assert.equal(0, stage.client():message_count(stage.slot(name, slot)))
    end
  end)
end)

describe("a lock is lost", function()
  operated_it("when an operator deletes its queue", function()
    local lock, name, conn, sem = locked(2)
    local second = stage.take(sem)
    broker.suite:delete_queue(stage.holder(name, 1))
    local rival = stage.connect():semaphore(name)
    stage.take(rival, { timeout = 60 }) -- its bolt is shut until the keeper has read the news
    stage.fails("lost", lock:verify())
    assert_lost(lock)
    assert.is_true(stage.held(name, 1) and stage.held(name, 2))
    assert.is_true(second:held() and second:verify())
    assert.matches("open", tostring(conn))
  end)

  operated_it("and stays lost when its own connection takes the slot again", function()
    local lock, name, _, sem = locked()
    broker.suite:delete_queue(stage.holder(name, 1))
    local again = assert(sem:acquire{ timeout = 60 })
    assert.equal(1, again.slot)
    assert_lost(lock)
    lock = nil -- luacheck: ignore 311
    collectgarbage()
    collectgarbage()
    assert.is_true(again:held() and again:verify() and stage.held(name, 1))
  end)

  operated_it("when the broker closes its channel, and the others of its connection are not", function()
    local lock, name, conn, sem = locked(2)
    local second = stage.take(sem)
    broker.suite:close_channel(stage.holder(name, 1))
    stage.until_free(name, 1)
    stage.fails("lost", lock:verify())
    assert_lost(lock)
    assert.is_true(second:verify() and stage.held(name, 2))
    assert.matches("open", tostring(conn))
    assert.equal(1, assert(sem:acquire{ timeout = 60 }).slot)
  end)

  operated_it("when an operator closes its connection, which opens again for the next", function()
    local label = client.unique("conn")
    local lock, name, _, sem = locked(2, nil, { name = label })
    local second = stage.take(sem)
    broker.suite:close_connection(label .. " holder")
    stage.until_free(name, 1)
    stage.until_free(name, 2)
    assert.matches("the operator wants it", stage.fails("lost", lock:verify()), 1, true)
    assert_lost(lock)
    assert_lost(second)
    local again = assert(sem:acquire{ timeout = 60 })
    assert.is_true(again:verify() and stage.held(name, again.slot))
    stage.fails("not_held", lock:release())
  end)

  operated_it("when its user is deleted, and a new one is refused", function()
    local user = client.unique("user")
    local lock, name, _, sem = locked(1, broker.suite:add_user(user, ".*", ".*", ".*"))
    broker.suite:delete_user(user)
    stage.until_free(name, 1)
    stage.fails("lost", lock:verify())
    stage.fails("auth", sem:try_acquire())
  end)
end)

describe("a lock whose broker is silent", function()
  -- Nobody tells the client. What it asks is not answered, and never with yes.
  it("is never verified after the broker has lost the connection", function()
    local between, name = proxy.start(), stage.semaphore(1)
    local conn = stage.connect(between.url, { timeout = 5 })
    local lock = stage.take(conn:semaphore(name))
    between:cut(1, "broker")
    stage.until_free(name, 1)
    stage.take(stage.connect():semaphore(name))
    stage.fails("unreachable", lock:verify())
    stage.fails("unreachable", lock:release())
    assert.is_false((lock:held()))
    assert.is_true(stage.held(name, 1))
  end)

  it("is free when the answer to its release gets lost", function()
    local between, name = proxy.start(), stage.semaphore(1)
    local conn = stage.connect(between.url, { timeout = 5 })
    local lock = stage.take(conn:semaphore(name))
    between:switch("down", "drop", 1)
    stage.fails("unreachable", lock:release())
    stage.until_free(name, 1)
    stage.fails("not_held", lock:held())
    stage.take(stage.connect():semaphore(name))
  end)

  -- The round trip that keeps it certain then goes over a channel that is not its own.
  it("is not suspect because its connection has no channel left", function()
    local name, busy = stage.semaphore(2), stage.semaphore(1)
    local conn = stage.connect(os.getenv "AMQP_URL" .. "?channel_max=4", { heartbeat = 1 })
    local sem = conn:semaphore(name)
    local locks = { stage.take(sem), stage.take(sem) }
    stage.occupy(busy, 1)
    stage.fails("timeout", conn:semaphore(busy):acquire{ timeout = 4 })
    for slot, lock in ipairs(locks) do
      until_true(function() return lock:held() end) -- as it may not be for a moment, where the broker is slow
      assert.is_true(stage.held(name, slot))
    end
  end)
end)

describe("a lock whose user may no longer do what it needs", function()
  local function revoked(slots)
    local user = client.unique("user")
    local lock, name, conn, sem = locked(slots, broker.suite:add_user(user, ".*", ".*", ".*"), { timeout = 5 })
    stage.undo(function() broker.suite:delete_user(user) end)
    broker.suite:permit(user, "", "", "", stage.holder(name, 1))
    return lock, name, conn, sem, user
  end

  operated_it("stays held, and releasing it leaves nothing held", function()
    local lock, name = revoked()
    assert.is_true(lock:held() and stage.held(name, 1))
    if not stage.client():since(4, 3) then assert.is_true(lock:verify()) end
    stage.fails("refused", lock:release())
    stage.until_free(name, 1)
    assert.is_false((lock:held()))
  end)

  operated_it("is lost when it is verified, where the broker asks for a permission to look, and says so", function()
    if not stage.client():since(4, 3) then return pending "of brokers from 4.3 on" end
    local lock, name = revoked()
    assert.matches("ACCESS_REFUSED", stage.fails("lost", lock:verify()))
    stage.until_free(name, 1)
    stage.fails("lost", lock:held())
  end)

  -- The undoing of the claim is refused too; the broker deletes the queue with its consumer's channel.
  operated_it("can be taken again on the same connection once it may", function()
    local lock, name, _, sem, user = revoked()
    lock:release()
    stage.until_free(name, 1)
    broker.suite:permit(user, ".*", ".*", ".*")
    assert.equal(1, stage.take(sem, { timeout = 60 }).slot)
    assert.is_true(stage.held(name, 1))
  end)
end)
