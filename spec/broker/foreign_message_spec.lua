-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Messages that a second user publishes to the queues of locks: large, deeply nested, long. No holder loses a lock by
-- them.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local loops = require "spec.support.loops"
local permits = require "spec.broker.token_scene"
local lua53 = require "spec.support.lua53"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local REVOKE = "amqplocks.revoke"

local function deep(levels)
  local headers = {}
  for _ = 1, levels do headers = { t = headers } end
  return headers
end

-- The largest is as large as the broker lets a publisher send a header: a frame of 131072 bytes.
local MESSAGES = {
  { headers = { x = ("y"):rep(9000) } },
  { headers = { x = ("y"):rep(20000) } },
  { headers = { x = ("y"):rep(131000) } },
  { headers = deep(400) },
  { type = REVOKE .. "s", body = ("b"):rep(5000000) },
  { type = ("t"):rep(255), app_id = ("a"):rep(255), headers = deep(120), body = "b" },
}

-- Another user, with the permission that the guide gives to lock a semaphore: to publish.
local user = client.unique("stranger")

setup(function()
  if not broker.suite then return end
  broker.suite:add_user(user, "^$", "^amq\\.default$", "^$")
end)

teardown(function()
  if broker.suite then broker.suite:delete_user(user) end
end)

local function stranger()
  return stage.client(nil, broker.suite and { user = user, password = "password" } or nil)
end

-- Publishes a message of each kind, and waits until the broker has taken it.
local function strike(queue, delivery_mode)
  local channel = stranger():channel():confirm()
  for _, message in ipairs(MESSAGES) do
    channel:publish{ routing_key = queue, mandatory = true, body = message.body, properties = {
      headers = message.headers, type = message.type, app_id = message.app_id, delivery_mode = delivery_mode } }
    assert.equal("basic.ack", assert(channel:next()).method)
  end
  return channel
end

-- Messages whose flags say that more flags follow: RabbitMQ does not read that bit, and hands them on as they are.
local function strike_with_flags(queue)
  local raw = stranger()
  local channel = raw:channel():confirm()
  for _, properties in ipairs{ "\0\1", "\0\3", "\0\33\1t", "\32\1\0\0\0\0" } do
    channel:send{ method = "basic.publish", routing_key = queue, mandatory = true }
    raw:write(lua53.pack(">I1I2s4I1", 2, channel.number, lua53.pack(">I2I2I8", 60, 0, 0) .. properties, 206))
    assert.equal("basic.ack", assert(channel:next()).method)
  end
end

-- The same, to what a lock is held by. The request behind them is read when all of them were.
local function strike_holder(queue, lock, until_it_is)
  strike_with_flags(queue)
  local channel = strike(queue)
  channel:publish{ routing_key = queue, properties = { type = REVOKE } }
  assert.equal("basic.ack", assert(channel:next()).method)
  until_it_is(function() return lock:revoked() end)
end

-- All kinds of locks on one connection.
local function holders_survive(conn, until_it_is)
  local name = stage.semaphore(1)
  local rwlock = conn:rwlock(name)
  local reader = assert(conn:rwlock(name .. "-b"):try_read())
  local locks = { ["-1-B"] = assert(conn:semaphore(name):try_acquire()), ["-writer"] = assert(rwlock:try_write()),
    ["-mutex"] = assert(conn:mutex(name):try_acquire()), ["-b-reader-" .. reader.ticket] = reader }
  for suffix, lock in pairs(locks) do strike_holder(name .. suffix, lock, until_it_is) end
  for suffix, lock in pairs(locks) do assert.is_true(lock:held() and lock:verify(), suffix) end
  for _, lock in pairs(locks) do assert.is_true(lock:release()) end
end

describe("a foreign message", function()
  stage.tidy()

  it("to a holder costs nobody a lock", function() holders_survive(stage.connect(), until_true) end)

  local tls_it = os.getenv "AMQPS_URL" and it or pending
  tls_it("to a holder costs nobody a lock, over TLS", function()
    local ca = os.getenv "BROKER_TLS" .. "/ca.pem"
    holders_survive(stage.connect(os.getenv "AMQPS_URL", { tls = { ca = ca } }), until_true)
  end)

  for _, loop in ipairs(loops) do
    loop.it(it, pending)("to a holder costs nobody a lock, in " .. loop.name, function()
      local conn = stage.connect(nil, { driver = loop.option })
      holders_survive(conn, loop.until_true)
      conn:close()
    end)
  end

  -- One that waits has another lock on its connection.
  local function waiter_survives(waiting, bell, lock)
    waiting:run("other = assert(conn:mutex(...):try_acquire())", stage.mutex())
    line.join(waiting)
    local _, standing = line.at(nil, bell)
    strike(bell, 2)
    line.until_at(nil, 0, standing, bell) -- a bell of one token has no room for it beside another message
    assert.is_true(lock:release())
    line.next{ waiting }
    assert.is_true(waiting:run("return other:verify() and other:held() and lock:held()"))
    line.leave(waiting)
  end

  for _, kind in ipairs{ "slot", "mutex", "read" } do
    it("to the bell of those who wait costs no waiter a lock: " .. kind, function()
      if kind == "slot" then
        local name = line.semaphore(1)
        return waiter_survives(line.process(name), stage.bell(name), stage.take(stage.connect():semaphore(name)))
      end
      local name = gate.name()
      waiter_survives(gate.process(kind, name), gate.bell(kind, name),
        gate.take(kind == "read" and "write" or kind, name))
    end)
  end

  it("to a bolt costs nobody a lock", function()
    local conn, name = stage.connect(), stage.mutex()
    local lock = stage.take(conn:mutex(name))
    local raw = stage.client()
    if not raw:exists(name .. "-mutex-bolt") then return end -- this broker needs none
    strike(name .. "-mutex-bolt")
    strike_holder(name .. "-mutex", lock, until_true)
    assert.is_true(lock:verify() and lock:held())
  end)

  it("among permits is a permit", function()
    local name, conn = permits.name(), stage.connect()
    local lock = stage.take(conn:mutex(stage.mutex()))
    local tokens = conn:token_semaphore(name)
    assert.equal(1, tokens:create(1))
    local first = stage.take(tokens)
    strike(permits.permits(name), 2)
    for _ = 1, #MESSAGES do stage.take(tokens, { timeout = 60 }) end
    assert.is_nil((tokens:try_acquire()))
    assert.is_true(first:release())
    assert.is_true(assert(tokens:acquire{ timeout = 60 }):release())
    assert.is_true(lock:verify() and lock:held())
  end)
end)

describe("a broker's frame_max", function()
  local operated_it = broker.operated_it(it, pending)
  after_each(stage.clear)

  operated_it("is agreed to as it is offered", function()
    local conn = stage.connect()
    stage.take(conn:mutex(stage.mutex()))
    until_true(function()
      return broker.suite:ask("lists:usort(rabbit_networking:connection_info_all([frame_max]))."):find "131072" ~= nil
    end)
  end)

  operated_it("is refused where there is none", function()
    stage.undo(function() broker.suite:tell "application:set_env(rabbit, frame_max, 131072)." end)
    broker.suite:tell "application:set_env(rabbit, frame_max, 0)."
    assert.matches("frame_max is 0", stage.fails("limit", amqplocks.connect()), 1, true)
  end)
end)
