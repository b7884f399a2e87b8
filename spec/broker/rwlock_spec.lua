-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The readers–writer lock: readers share it, a writer is alone, as other clients see them. Unless stated otherwise,
-- waiters here recheck only every ten minutes; a writer behind the door rechecks about every second.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local function read(name, options, conn) return gate.take("read", name, options, conn) end

local function write(name, options, conn) return gate.take("write", name, options, conn) end

local function is_read(name) return gate.held("read", name) end

local function is_shut(name) return gate.held("write", name) end

local function door(name) return gate.queue("write", name) end

local function try(kind, name, conn) return gate.new(conn or stage.connect(), kind, name):try_acquire() end

-- A writer that finds readers has shut the door, and lets go of it in the background.
local function is_busy(kind, name, conn)
  local message = stage.fails("busy", try(kind, name, conn))
  if message:find("a reader holds the lock", 1, true) then gate.until_free("write", name) end
  return message
end

-- Everybody can come in who would if nobody were there.
local function assert_open(name, conn)
  for kind, take in pairs{ write = write, read = read } do
    local lock = take(name, { timeout = 60 }, conn)
    assert.is_true(gate.held(kind, name))
    assert(lock:verify())
    assert(lock:release())
  end
  assert.is_false(is_shut(name) or is_read(name))
end

stage.tidy()

describe("a readers–writer lock", function()
  operated_it("is a queue for each reader, or one for the writer, and nothing before and after", function()
    local name = gate.name()
    assert.same({}, gate.queues(name))
    local one, two = read(name), read(name)
    local both = { name .. "-reader-" .. one.ticket, name .. "-reader-" .. two.ticket }
    table.sort(both)
    assert.same(both, gate.queues(name))
    assert(one:release() and two:release())
    assert.same({}, gate.queues(name))
    local lock = write(name)
    assert.same({ door(name) }, gate.queues(name))
    assert(lock:downgrade())
    assert.same({ name .. "-reader-" .. lock.ticket }, gate.queues(name))
    assert(lock:release())
    assert.same({}, gate.queues(name))
  end)

  for _, kind in ipairs{ "read", "write" } do
    operated_it("knows of its loss by all there is to ask: " .. kind, function()
      local name, told = gate.name(), {}
      local conn = stage.connect(nil, { on_lost = function(...) table.insert(told, { ... }) end })
      local lock = gate.take(kind, name, nil, conn)
      broker.suite:delete_queue(kind == "read" and name .. "-reader-" .. lock.ticket or door(name))
      until_true(function() return not lock:held() end)
      for _, what in ipairs{ "verify", "downgrade", "release" } do stage.fails("lost", lock[what](lock)) end
      assert.same({ lock, "lost", 1 }, { told[1][1], told[1][2], #told })
      assert.is_true(write(name, { timeout = 60 }, conn):verify() and is_shut(name))
    end)
  end
end)

describe("a writer that waits for readers", function()
  it("keeps new ones out, enters when the last one has left, and lets those in who waited", function()
    local name = gate.name()
    local one, two = gate.holder("read", name), gate.holder("read", name)
    local writer, late = gate.pend(gate.process("write", name)), gate.process("read", name)
    is_busy("read", name)
    line.join(late)
    line.leave(one)
    is_busy("read", name)
    assert.is_true(line.all_wait{ writer, late })
    line.leave(two)
    gate.served(writer)
    assert.is_true(is_shut(name) and not is_read(name) and writer:run("return lock:verify()"))
    assert.is_true(line.all_wait{ late })
    line.leave(writer)
    gate.served(late)
    assert.is_true(is_read(name) and not is_shut(name))
  end)
end)

it("those who wait are in one line: the readers before a writer first, those behind it after it", function()
  local name = gate.name()
  local lock = write(name)
  local first, second = line.join(gate.process("read", name)), line.join(gate.process("read", name))
  local writer, last = line.join(gate.process("write", name)), line.join(gate.process("read", name))
  assert(lock:release())
  gate.served(first)
  gate.served(second)
  until_true(function() return is_shut(name) end)
  line.leave(first)
  assert.is_true(line.all_wait{ writer, last })
  line.leave(second)
  gate.served(writer)
  assert.is_true(line.all_wait{ last })
  line.leave(writer)
  gate.served(last)
end)

describe("a writer that reads on", function()
  it("lets those in who waited to read, and then those who waited to write", function()
    local name = gate.name()
    local holder, readers = gate.holder("write", name), {}
    for i = 1, 3 do readers[i] = line.join(gate.process("read", name)) end
    local writer = line.join(gate.process("write", name))
    assert.is_true(holder:run("return lock:downgrade()"))
    for _, one in ipairs(readers) do gate.served(one) end
    until_true(function() return is_shut(name) end)
    for _, one in ipairs(readers) do line.leave(one) end
    assert.is_true(line.all_wait{ writer })
    assert.is_true(holder:run("return lock:verify()"))
    line.leave(holder)
    gate.served(writer)
  end)
end)

describe("an operator", function()
  operated_it("who deletes the door of one that waits behind it only makes it shut the door once more", function()
    local name = gate.name()
    local reader = read(name)
    local writer = gate.pend(gate.process("write", name))
    broker.suite:delete_queue(door(name))
    until_true(function() return is_shut(name) end)
    assert.is_true(line.all_wait{ writer })
    assert(reader:release())
    gate.served(writer)
    assert.is_true(writer:run("return lock:verify()"))
  end)

  operated_it("whose policy has whatever is sent to amq.direct arrive somewhere says so to its writers", function()
    local name, url, vhost = client.unique "lock", gate.catching()
    local gated = gate.new(stage.connect(url), "write", name)
    assert.is_true(stage.take(gated):release())
    gate.catch(vhost)
    local other = stage.client(url)
    assert.matches("alternate-exchange", stage.fails("conflict", gated:acquire{ timeout = 60 }), 1, true)
    until_true(function() return not other:exists(door(name)) end)
    assert.is_true(gate.take("read", name, nil, stage.connect(url)):verify()) -- readers do not mind
    broker.suite:clear_policy(vhost, "catch")
    stage.fails("busy", gated:try_acquire())
  end)
end)

operated_it("a memory alarm leaves those inside alone, lets readers in, and fails writers: blocked", function()
  local name, other = gate.name(), gate.name()
  local conn = stage.connect(nil, { timeout = 5 })
  local reading, writing = read(name, nil, conn), write(other, nil, conn)
  local writer, late = gate.pend(gate.process("write", name)), gate.process("read", name)
  line.join(late, { poll = 3 })
  stage.alarm("memory", conn)
  local got, message, code = writer:finish()
  assert.matches("memory or disk alarm", stage.fails("blocked", got, message, code), 1, true)
  gate.served(late) -- as the door is open again
  assert.is_false(is_shut(name))
  assert(read(name, nil, stage.connect(nil, { timeout = 5 })):release())
  assert.is_true(reading:verify() and writing:verify() and is_shut(other))
  assert.is_true(reading:release() and writing:release())
  assert(read(name, nil, conn):release())
  stage.fails("blocked", try("write", other, conn))
  gate.until_free("write", other)
  broker.suite:alarm(false)
  line.leave(late)
  until_true(function()
    local lock = try("write", name, conn)
    return lock and lock:release()
  end)
end)

describe("a user who may not", function()
  local SOON = { timeout = 5 }

  local function refused(conn, kind, name, part)
    local gated = gate.new(conn, kind, name)
    for _, timeout in ipairs{ 0, 20 } do
      assert.matches(part, stage.fails("refused", gated:acquire{ timeout = timeout }), 1, true)
      gate.until_free("write", name)
      gate.until_free("read", name)
    end
    assert_open(name)
  end

  operated_it("publish to amq.direct cannot write; nothing is left, and semaphores are asked for as before", function()
    local name, slots = gate.name(), stage.semaphore(1)
    local occupant = stage.occupy(slots, 1)
    local conn = stage.connect_as(".*", "^(amq\\.default|" .. name .. "-.*)$", ".*", SOON)
    refused(conn, "write", name, "amq.direct")
    stage.fails("busy", conn:semaphore(slots):try_acquire())
    occupant:await_looks(1)
    assert.is_true(read(name, nil, conn):release())
  end)

  operated_it("read from amq.direct cannot read, nor read on, but keeps what it has; nothing is left", function()
    local name = gate.name()
    local conn = stage.connect_as(".*", ".*", "^" .. name .. "-.*$", SOON)
    refused(conn, "read", name, "amq.direct")
    local lock = write(name, nil, conn)
    stage.fails("refused", lock:downgrade())
    assert.equal("write", lock.kind)
    gate.until_free("read", name)
    assert.is_true(lock:held() and lock:verify() and is_shut(name))
    assert.is_true(lock:release())
  end)
end)
