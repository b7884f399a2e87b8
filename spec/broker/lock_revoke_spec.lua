-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Mutexes, readers and writers that are asked to release. (revoke_spec.lua: slots.)
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local REVOKE = "amqplocks.revoke"

after_each(stage.clear)
teardown(stage.check)

local WORDS = {
  mutex = { not_held = 'mutex "%s" is not held', held = 'mutex "%s" is still held after ', whom = "its holder was" },
  read = { not_held = 'nobody reads "%s"', held = '"%s" has readers still after ', whom = "its readers were" },
  write = { not_held = 'nobody writes "%s"', held = '"%s" has a writer still after ', whom = "its writer was" },
}

local function revoke(conn, kind, name, options)
  if kind == "mutex" then return conn:mutex(name):revoke(options) end
  local rwlock = conn:rwlock(name)
  if kind == "read" then return rwlock:revoke_readers(options) end
  return rwlock:revoke_writer(options)
end

-- Has a process compute, calling nothing that waits, until it is asked; then it releases.
local function obeys(one) one:begin("while not lock:revoked() do end return lock:held(), lock:release()") end
local function has_obeyed(one) assert.same({ true, true }, { one:finish() }) end

for _, kind in ipairs{ "mutex", "read", "write" } do
  describe("revoking, kind " .. kind .. ":", function()
    local name, conn, words

    before_each(function()
      name, conn, words = gate.name(), stage.connect(), WORDS[kind]
    end)

    it("asks the holder, which then knows it, and holds on until it releases", function()
      local one = gate.holder(kind, name)
      assert.is_true(revoke(conn, kind, name))
      local held, verified = one:run("while not lock:revoked() do end return lock:held(), lock:verify()")
      assert.is_true(held and verified and gate.held(kind, name))
      assert.is_true(one:run("return lock:release() and lock:revoked()"))
      gate.until_free(kind, name)
    end)

    it("waits until the holder has released, having computed", function()
      local one = gate.holder(kind, name)
      obeys(one)
      assert.is_true(revoke(conn, kind, name, { wait = 30 }))
      assert.is_false(gate.held(kind, name))
      has_obeyed(one)
    end)

    it("tells who does not release, and takes nothing away", function()
      local one = gate.holder(kind, name)
      local message = stage.times_out(function(seconds) return revoke(conn, kind, name, { wait = seconds }) end,
        function(why) return why:find(words.whom, 1, true) end)
      assert.matches("^timeout: " .. words.held:format(name):gsub("%p", "%%%0"), message)
      assert.matches("; " .. words.whom .. " asked to release it", message, 1, true)
      assert.is_true(one:run("return lock:held() and lock:verify()"))
    end)

    it("finds nobody", function()
      local message = stage.fails("not_held", revoke(conn, kind, name))
      assert.equal("not_held: " .. words.not_held:format(name), message)
      assert.is_true(revoke(conn, kind, name, { wait = 10 }))
      local other = kind == "write" and "read" or kind == "read" and "write" or nil
      local lock = other and gate.take(other, name)
      stage.fails("not_held", revoke(conn, kind, name))
      if lock then assert.is_false(lock:revoked()) end
      if lock then assert(lock:release()) end
    end)

    it("is one message of that type, empty, that expires at once", function()
      local held = gate.occupy(kind, name)
      assert.is_true(revoke(conn, kind, name))
      local message
      repeat message = assert(held:asked(20)) until message.properties.type == REVOKE
      assert.equal("0", message.properties.expiration)
      assert.equal("", message.body)
      held:release()
    end)

    operated_it("in an alarm tells that nobody can be asked", function()
      local lock = gate.take(kind, name, nil, conn)
      stage.alarm("memory", conn)
      stage.fails("blocked", revoke(conn, kind, name))
      broker.suite:alarm(false, "memory")
      assert.is_true(lock:release())
    end)
  end)
end

describe("revoking", function()
  it("reaches all readers, and the writer that waits for them has its turn", function()
    local name, readers = gate.name(), {}
    for i = 1, 3 do readers[i] = gate.holder("read", name) end
    local writing = gate.process("write", name)
    writing:begin("lock = assert(sem:acquire{ timeout = 60 }) return lock:verify()")
    gate.until_held("write", name)
    for _, one in ipairs(readers) do obeys(one) end
    assert.is_true(stage.connect():rwlock(name):revoke_readers{ wait = 30 })
    for _, one in ipairs(readers) do has_obeyed(one) end
    assert.is_true(writing:finish())
    assert.is_false(writing:run("return lock:revoked()"))
    assert.is_true(writing:run("return lock:release()"))
  end)

  it("reaches a writer that waits for readers, which knows it when it writes", function()
    local name = gate.name()
    local reading, writing = gate.take("read", name), gate.process("write", name)
    writing:begin("lock = assert(sem:acquire{ timeout = 60 }) return lock:revoked(), lock:release()")
    gate.until_held("write", name)
    assert.is_true(stage.connect():rwlock(name):revoke_writer())
    assert.is_false(reading:revoked())
    assert.is_true(reading:release())
    assert.same({ true, true }, { writing:finish() })
  end)

  it("a writer that becomes a reader has not asked the reader", function()
    local name, conn = gate.name(), stage.connect()
    local lock = gate.take("write", name, nil, conn)
    assert.is_true(conn:rwlock(name):revoke_writer())
    until_true(function() return lock:revoked() end)
    assert.is_true(lock:downgrade())
    assert.is_false(lock:revoked())
    assert.is_true(conn:rwlock(name):revoke_readers())
    until_true(function() return lock:revoked() end)
    assert.is_true(lock:release())
  end)

  it("a mutex asks no holder of another lock of its name", function()
    local name = stage.semaphore(1)
    local slot, reader = stage.take(stage.connect():semaphore(name)), gate.take("read", name)
    stage.fails("not_held", stage.connect():mutex(name):revoke())
    assert.is_true(slot:verify() and reader:verify())
    assert.is_false(slot:revoked() or reader:revoked())
    assert.is_true(reader:release())
  end)

  operated_it("readers where an alternate exchange hides them says so", function()
    local name, vhost = client.unique "lock", client.unique "vhost"
    stage.undo(function() broker.suite:delete_vhost(vhost) end)
    local url = broker.suite:add_vhost(vhost, { connections = 20 })
    local channel = stage.client(url):channel()
    assert(channel:call{ method = "queue.declare", queue = "everything", durable = true })
    assert(channel:call{ method = "queue.bind", queue = "everything", exchange = "amq.fanout" })
    broker.suite:set_policy(vhost, "catch", "^amq\\.direct$", '{"alternate-exchange":"amq.fanout"}', "exchanges")
    local rwlock = stage.connect(url):rwlock(name)
    for _, options in ipairs{ {}, { wait = 20 } } do
      until_true(function()
        local _, message, code = rwlock:revoke_readers(options)
        return code == "conflict" and message:find("alternate-exchange", 1, true), message
      end)
    end
  end)
end)
