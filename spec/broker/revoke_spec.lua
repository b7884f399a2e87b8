-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- An administrator asks for a lock back (revoke). The holder releases it, or does not. First slots, then mutexes,
-- readers and writers.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local REVOKE = "amqplocks.revoke"
local operated_it = broker.operated_it(it, pending)

stage.tidy()

-- Has a process compute, calling nothing that waits, until it is asked; then it releases.
local function obeys(one) one:begin("while not lock:revoked() do end return lock:held(), lock:release()") end
local function has_obeyed(one) assert.same({ true, true }, { one:finish() }) end

it("a holder that is asked by a message knows it without calling anything that waits, and holds on", function()
  local name = stage.semaphore(2)
  local sem = stage.connect():semaphore(name)
  local lock, other = stage.take(sem), stage.take(sem)
  local asking = stage.client()
  for _ = 1, 10 do assert.equal("present", asking:probe(stage.holder(name, 1))) end
  assert.equal("present", asking:probe(stage.holder(name, 1), { type = "amqplocks.token" }))
  assert.equal("present", asking:probe(stage.holder(name, 2), { type = REVOKE }))
  until_true(function() return other:revoked() end)
  assert.is_true(lock:verify()) -- its answer comes behind what the queue had for it
  assert.is_false(lock:revoked())
  assert.is_true(other:held() and other:verify() and stage.held(name, 2))
  assert.equal("present", asking:probe(stage.holder(name, 1), { type = REVOKE, delivery_mode = 2 }))
  until_true(function() return lock:revoked() end)
  assert.is_true(lock:release() and other:release())
  assert.is_true(lock:revoked() and other:revoked())
end)

describe("an administrator", function()
  local name, conn, admin

  before_each(function()
    name = stage.semaphore(3)
    conn = stage.connect()
    admin = conn:admin(name)
  end)

  -- A second process that holds the next free slot.
  local function holder()
    local holding = stage.process(name)
    return holding, holding:run("lock = assert(sem:try_acquire()) return lock.slot")
  end

  it("who asks for a slot back is told that its holder was asked, which it then is, and nobody else", function()
    local holding, bystander = holder(), holder()
    assert.is_true(admin:revoke(1))
    obeys(holding)
    has_obeyed(holding)
    assert.is_true(stage.free(name, 1))
    assert.is_true(bystander:run("return lock:verify() and not lock:revoked()"))
    assert.is_true(stage.held(name, 2))
  end)

  it("waits until the holder has let go, as long as the call or its own options say, also of a slot that is no more",
    function()
      local first, second, third = holder(), holder(), (holder())
      assert.equal(2, admin:remove(1))
      obeys(third)
      assert.is_true(admin:revoke(3, { wait = 60 }))
      obeys(second)
      assert.is_true(conn:admin(name, { wait = 60 }):revoke(2))
      for i, one in pairs{ [2] = second, [3] = third } do
        assert.is_true(stage.free(name, i))
        has_obeyed(one)
      end
      assert.is_true(first:run("return lock:verify() and not lock:revoked()"))
    end)

  it("asks again and again, by an empty message of its type, until the holder lets go or is killed", function()
    for _, leave in ipairs{ "release", "abort" } do
      local occupant, asking = stage.occupy(name, 1), stage.process(name)
      asking:begin("return conn:admin(...):revoke(1, { wait = 60 })", name)
      for _ = 1, 3 do
        local message = assert(occupant.channel:await "basic.deliver")
        assert.same({ REVOKE, "" }, { message.properties.type, message.body })
      end
      occupant[leave](occupant)
      assert.is_true(asking:finish())
      assert.is_true(stage.free(name, 1))
    end
  end)

  describe("who removes slots", function()
    local first, second, third

    before_each(function()
      first, second, third = holder(), holder(), (holder())
      obeys(second)
    end)

    it("asks their holders once, or until they have let go", function()
      assert.equal(2, admin:remove(1, { revoke = true }))
      obeys(third)
      has_obeyed(third)
      assert.equal(1, admin:remove(1, { revoke = true, wait = 60 }))
      assert.is_true(stage.free(name, 2) and stage.free(name, 3) and stage.held(name, 1))
      has_obeyed(second)
      assert.is_true(first:run("return lock:verify() and not lock:revoked()"))
      assert.equal(1, admin:resize(1, { revoke = true, wait = 60 })) -- nobody is asked
    end)

    it("is told who does not care, when the slots are removed; may leave the asking to wait_released", function()
      local message, seconds = stage.times_out(function(seconds)
        assert.equal(3, admin:resize(3))
        return admin:remove(2, { revoke = true, wait = seconds })
      end, function(why) return why:find("s: slot 3; holders were asked to release them;", 1, true) end)
      assert.matches(("after %g s: "):format(seconds), message, 1, true)
      assert.matches("; the slots to remove are removed", message, 1, true)
      has_obeyed(second)
      assert.equal(1, admin:slots())
      assert.is_true(stage.held(name, 3))
      obeys(third)
      assert.is_true(admin:wait_released({ 2, 3 }, { revoke = true, timeout = 60 }))
      has_obeyed(third)
    end)
  end)

  operated_it("without the permission to publish is refused, asks nobody, and may when it is permitted", function()
    local other, user = stage.connect_as(".*", "", ".*")
    local theirs, lock = other:admin(name), stage.take(conn:semaphore(name))
    assert.matches(name, stage.fails("refused", theirs:revoke(1)), 1, true)
    stage.fails("refused", theirs:revoke(1, { wait = 60 }))
    assert.equal(3, theirs:slots()) -- asked by other means
    assert.is_false(lock:revoked())
    broker.suite:permit(user, ".*", ".*", ".*")
    until_true(function() return theirs:revoke(1) end) -- the broker's channels remember for a moment
    until_true(function() return lock:revoked() end)
  end)

  operated_it("under a memory alarm cannot ask, sees who lets go, and asks when it is over", function()
    local first, second = stage.take(conn:semaphore(name)), stage.take(conn:semaphore(name))
    assert.equal(3, admin:slots()) -- the connection that asks has published
    stage.alarm("memory", conn)
    local message = stage.fails("blocked", admin:revoke(1))
    assert.matches("memory or disk alarm", message, 1, true)
    message = stage.times_out(function(seconds) return admin:revoke(2, { wait = seconds }) end,
      function(why) return why:find("slot 2; no holder is known to have been asked", 1, true) end)
    assert.matches("memory or disk alarm", message, 1, true)
    stage.fails("not_held", admin:revoke(3))
    assert.is_true(first:release())
    assert.is_true(admin:revoke(1, { wait = 60 }))
    assert.is_true(second:held())
    broker.suite:alarm(false)
    until_true(function() return admin:revoke(2) end)
    until_true(function() return second:revoked() end)
  end)
end)

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

operated_it("in an alarm the holder of a mutex, readers and a writer cannot be asked: blocked", function()
  local conn, locks = stage.connect(), {}
  for kind in pairs(WORDS) do locks[kind] = gate.take(kind, gate.name(), nil, conn) end
  stage.alarm("memory", conn)
  for kind, lock in pairs(locks) do stage.fails("blocked", revoke(conn, kind, lock.name)) end
end)

for kind, words in pairs(WORDS) do
  it("revoking asks the holder, which knows it, tells who does not release, or finds nobody: " .. kind, function()
    local name, conn = gate.name(), stage.connect()
    assert.equal("not_held: " .. words.not_held:format(name), stage.fails("not_held", revoke(conn, kind, name)))
    assert.is_true(revoke(conn, kind, name, { wait = 60 }))
    local one = gate.holder(kind, name)
    assert.is_true(revoke(conn, kind, name))
    local held, verified = one:run("while not lock:revoked() do end return lock:held(), lock:verify()")
    assert.is_true(held and verified and gate.held(kind, name))
    local message = stage.times_out(function(seconds) return revoke(conn, kind, name, { wait = seconds }) end,
      function(why) return why:find(words.whom, 1, true) end)
    assert.matches("timeout: " .. words.held:format(name), message, 1, true)
    assert.matches("; " .. words.whom .. " asked to release it", message, 1, true)
    obeys(one)
    assert.is_true(revoke(conn, kind, name, { wait = 60 }))
    assert.is_false(gate.held(kind, name))
    has_obeyed(one)
  end)

  it("revoking is one message of that type, empty, that expires at once: " .. kind, function()
    local name = gate.name()
    local held = gate.occupy(kind, name)
    assert.is_true(revoke(stage.connect(), kind, name))
    local message
    repeat message = assert(held:asked(20)) until message.properties.type == REVOKE
    assert.same({ "0", "" }, { message.properties.expiration, message.body })
    held:release()
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
    assert.is_true(stage.connect():rwlock(name):revoke_readers{ wait = 60 })
    for _, one in ipairs(readers) do has_obeyed(one) end
    assert.is_true(writing:finish())
    assert.is_false(writing:run("return lock:revoked()"))
    assert.is_true(writing:run("return lock:release()"))
  end)

  it("reaches a writer that waits for readers, which knows it when it writes", function()
    local name = gate.name()
    local reading, writing = gate.take("read", name), gate.process("write", name)
    writing:begin("lock = assert(sem:acquire{ timeout = 60 }) while not lock:revoked() do end return lock:release()")
    gate.until_held("write", name)
    assert.is_true(stage.connect():rwlock(name):revoke_writer())
    assert.is_false(reading:revoked())
    assert.is_true(reading:release())
    assert.is_true(writing:finish())
  end)

  operated_it("readers where an alternate exchange hides them says so", function()
    local name, url, vhost = client.unique "lock", gate.catching()
    gate.catch(vhost)
    local rwlock = stage.connect(url):rwlock(name)
    for _, options in ipairs{ {}, { wait = 60 } } do
      until_true(function()
        local _, message, code = rwlock:revoke_readers(options)
        return code == "conflict" and message:find("alternate-exchange", 1, true), message
      end)
    end
  end)
end)

describe("the example of a long job", function()
  teardown(function()
    local conn = assert(amqplocks.connect())
    conn:admin("long-jobs"):destroy()
    conn:close()
  end)

  local RUN = [[
    local pipe = assert(io.popen("exec " .. os.getenv "LUA" .. " examples/revoke.lua " .. ... .. " 2>&1"))
    return pipe:read "*a"
  ]]

  it("lets go when it is asked, and otherwise comes to its end", function()
    assert.equal("working, in slot 1\nall done\n", process.start():run(RUN, "work 1"))
    local working = process.start():begin(RUN, "work")
    local looking = assert(client.connect())
    until_true(function() return looking:locked "long-jobs-1-B" end)
    looking:close()
    assert.equal("slot 1 is free\n", process.start():run(RUN, "ask 1"))
    assert.matches("^working, in slot 1\nasked to let go after %d+ steps\n$", working:finish())
  end)
end)
