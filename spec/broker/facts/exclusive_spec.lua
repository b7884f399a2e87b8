-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Exclusive queues: which connection owns them, for how long, and how the broker refuses other connections.
local client = require "spec.support.client"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

describe("an exclusive queue", function ()
  after_each(scene.clear)

  -- Every queue here has the same owner and dies with it; the test is what the end of a channel does.
  describe("when a channel closes", function ()
    local owner, other, there
    before_each(function ()
      owner, other = scene.connect(), scene.connect()
      there = owner:channel()
    end)

    local function declared(auto_delete)
      local name = scene.name()
      assert(there:call{ method = "queue.declare", queue = name, exclusive = true, auto_delete = auto_delete })
      return name
    end
    local function consume(channel, name)
      assert(channel:call{ method = "basic.consume", queue = name, no_ack = true })
    end
    local function gone(name)
      return until_true(function () return not other:exists(name) end)
    end

    it("goes with its consumer if it is auto-delete", function ()
      local name = declared(true)
      consume(there, name)
      assert.is_true(other:locked(name))
      there:close()
      assert.is_true(gone(name))
    end)

    it("stays without auto-delete, without a consumer, and with its consumer elsewhere", function ()
      local witness, plain, unconsumed, elsewhere = declared(true), declared(false), declared(true), declared(true)
      consume(there, witness)
      consume(there, plain)
      local channel = owner:channel()
      consume(channel, elsewhere)
      there:close()
      gone(witness)  -- so the broker is done with the channel
      assert.is_true(other:locked(plain))
      assert.is_true(other:locked(unconsumed))
      assert.is_true(other:locked(elsewhere))
      channel:close()
      gone(elsewhere)
    end)

    it("goes likewise when the broker closed the channel", function ()
      local name = scene.hold(there, scene.name())
      local _, reason = there:call{ method = "queue.declare", queue = scene.name(), passive = true }
      assert.equal(404, reason.code)
      assert.is_true(gone(name))
    end)
  end)

  it("can be declared again by its connection, from any channel, with another ticket, consumed or not", function ()
    local owner, name = scene.connect(), scene.name()
    local first, second = owner:channel(), owner:channel()
    assert(first:call(scene.holder(name, "one")))
    assert.is_table(first:call(scene.holder(name, "one")))
    assert.is_table(second:call(scene.holder(name, "two")))
    assert(first:call{ method = "basic.consume", queue = name, no_ack = true })
    assert.equal(1, second:call(scene.holder(name, "two")).consumer_count)
  end)

  local foreign = {
    { method = "queue.declare", exclusive = true, auto_delete = true },
    { method = "queue.declare" },
    { method = "queue.declare", passive = true },
    { method = "queue.delete" },
    { method = "queue.purge" },
    { method = "queue.bind", exchange = "amq.direct", routing_key = "key" },
    { method = "basic.consume" },
    { method = "basic.get" },
  }
  it("gives other connections 405 for everything but a publish, with the ids of what was asked", function ()
    local name, other = scene.hold(scene.channel(), scene.name()), scene.connect()
    for _, asked in ipairs(foreign) do
      local frame = { queue = name }
      for key, value in pairs(asked) do frame[key] = value end
      local answer, reason = other:channel():call(frame)
      assert.is_nil(answer)
      assert.equal(405, reason.code)
      assert.equal(asked.method:find("^queue") and 50 or 60, reason.class_id)
      assert.is_nil(reason.connection)
    end
    assert.is_true(other:locked(name))
    assert.equal("present", other:probe(name))
  end)

  it("cannot be declared over a queue that is not exclusive: 405 too, but a passive declare tells", function ()
    local name, other = scene.queue(scene.slot()), scene.connect()
    local answer, reason = other:declare(name, { exclusive = true, auto_delete = true })
    assert.is_nil(answer)
    assert.equal(405, reason.code)
    assert.is_table(other:channel():call{ method = "queue.declare", queue = name, passive = true })
    assert.is_false(other:locked(name))
  end)

  it("is there for its owner's passive declare, and 404 once it is gone", function ()
    local owner = scene.connect()
    local channel = owner:channel()
    local name = scene.hold(channel, scene.name())
    assert.is_table(channel:call{ method = "queue.declare", queue = name, passive = true })
    assert(owner:delete(name))
    local _, reason = channel:call{ method = "queue.declare", queue = name, passive = true }
    assert.equal(404, reason.code)
  end)

  it("is gone when its owner has the answer to the deletion", function ()
    local channel, other, name = scene.channel(), scene.connect(), scene.name()
    for _ = 1, 20 do
      scene.hold(channel, name)
      assert.is_true(other:locked(name))
      assert.equal("present", other:probe(name))
      assert(channel:call{ method = "queue.delete", queue = name })
      assert.is_false(other:exists(name))
      assert.equal("absent", other:probe(name))
    end
  end)

  it("goes when its owner dies without a word, and the next claim gets through", function ()
    local owner, other = scene.connect(), scene.connect()
    local name = scene.hold(owner:channel(), scene.name())
    owner:abort()
    until_true(function ()
      local claimed, reason = other:declare(name, { exclusive = true, auto_delete = true })
      if not claimed then assert.equal(405, reason.code) end  -- the dead owner's ghost, and nothing else
      return claimed
    end)
    assert.is_true(scene.connect():locked(name))
  end)
end)

describe("a client that dies", function ()
  after_each(scene.clear)

  it("gives back all of many tokens and queues", function ()
    local bell, holder, waiter, other = scene.queue(), scene.connect(), scene.channel(), scene.connect()
    local held = {}
    for i = 1, 50 do
      scene.ring(bell)
      held[i] = scene.hold(holder:channel(), scene.name())
      local token = holder:channel()
      scene.wait_for_token(token, bell)
      assert(token:await("basic.deliver"))
    end
    assert(waiter:call{ method = "basic.consume", queue = bell })
    holder:abort()
    for _ = 1, 50 do assert(waiter:await("basic.deliver")) end
    for _, name in ipairs(held) do
      until_true(function () return other:probe(name) == "absent" end)
    end
  end)
end)

describe("a queue that somebody consumes alone", function ()
  after_each(scene.clear)

  local function alone(name, more)
    local frame = { method = "basic.consume", queue = name, consumer_tag = "alone", no_ack = true, exclusive = true }
    for key, value in pairs(more or {}) do frame[key] = value end
    return frame
  end

  local function consumers(name)
    return scene.channel():call{ method = "queue.declare", queue = name, passive = true }.consumer_count
  end

  local function assert_in_use(name, frame)
    local answer, reason = scene.channel():call(frame)
    assert.is_nil(answer)
    assert.equal(403, reason.code)
    assert.equal(("ACCESS_REFUSED - queue '%s' in vhost '/' in exclusive use"):format(name), reason.text)
  end

  it("is refused to everybody else, alone or not, with 403; its consumers are told", function ()
    local name, channel = scene.queue(scene.slot()), scene.channel()
    assert(channel:call(alone(name)))
    assert_in_use(name, alone(name))
    assert_in_use(name, { method = "basic.consume", queue = name })
    assert.equal(1, consumers(name))
    name = scene.queue(scene.slot())
    assert(channel:call{ method = "basic.consume", queue = name })
    assert_in_use(name, alone(name))
  end)

  -- Nobody waits for a consume-ok that never comes: what is cancelled at once is no crash.
  it("unasked for an answer is free when that is taken back, at once or later, or its channel is gone", function ()
    local name, channel = scene.name(), scene.channel()
    local declare = scene.slot()
    declare.method, declare.queue, declare.no_wait = "queue.declare", name, true
    channel:send(declare)
    for _ = 1, 2 do
      channel:send(alone(name, { no_wait = true }))
      channel:send{ method = "basic.cancel", consumer_tag = "alone", no_wait = true }
    end
    channel:send(alone(name, { no_wait = true }))
    scene.barrier(channel, name)
    assert.equal(1, consumers(name))
    channel:send{ method = "basic.cancel", consumer_tag = "alone", no_wait = true }
    channel:send(alone(name, { no_wait = true }))
    scene.barrier(channel, name)
    assert_in_use(name, alone(name))
    channel:close()
    assert.is_true(until_true(function () return consumers(name) == 0 end))
    assert(scene.channel():call(alone(name)))
  end)
end)

describe("the name of a queue", function ()
  after_each(scene.clear)

  -- Why the library refuses control characters: two names would be one.
  it("loses its CR and LF silently", function ()
    local name, channel = scene.name(), scene.channel()
    assert.equal(name .. "ab", channel:call{ method = "queue.declare", queue = name .. "\ra\r\nb\n",
      exclusive = true }.queue)
    assert.is_true(scene.connect():locked(name .. "ab"))
  end)

  it("is refused with 403 if it begins with amq.", function ()
    local answer, reason = scene.connect():declare("amq." .. client.unique(), { exclusive = true })
    assert.is_nil(answer)
    assert.equal(403, reason.code)
  end)

  it("may have 255 bytes, UTF-8 among them", function ()
    local owner, name = scene.connect(), scene.name()
    name = name .. ("é"):rep(math.floor((255 - #name) / 2))
    name = name .. ("x"):rep(255 - #name)
    assert.equal(name, owner:declare(name, { exclusive = true }).queue)
    assert.equal("present", scene.connect():probe(name))
  end)
end)
