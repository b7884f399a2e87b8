-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Exclusive queues: which connection owns them, for how long, and how the broker refuses other connections.
local client = require "spec.support.client"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

after_each(scene.clear)

local function gone(other, name) until_true(function () return not other:exists(name) end) end

describe("an exclusive queue", function ()
  it("goes with the channel of its consumer if it is auto-delete, and stays otherwise", function ()
    local owner, other = scene.connect(), scene.connect()
    local there, channel = owner:channel(), owner:channel()
    local function declared(auto_delete, consuming)
      local name = scene.name()
      assert(there:call{ method = "queue.declare", queue = name, exclusive = true, auto_delete = auto_delete })
      if consuming then assert(consuming:call{ method = "basic.consume", queue = name, no_ack = true }) end
      return name
    end
    local goes, plain, unconsumed = declared(true, there), declared(false, there), declared(true)
    local elsewhere = declared(true, channel)
    assert.is_true(other:locked(goes))
    there:close()
    gone(other, goes)  -- so the broker is done with the channel
    for _, name in ipairs{ plain, unconsumed, elsewhere } do assert.is_true(other:locked(name)) end
    scene.refused(404, channel, { method = "queue.declare", queue = scene.name(), passive = true })
    gone(other, elsewhere)
  end)

  it("can be declared again by its connection, from any channel, with another ticket, consumed or not", function ()
    local owner, name = scene.connect(), scene.name()
    local first, second = owner:channel(), owner:channel()
    assert(first:call(scene.holder(name, "one")))
    assert.is_table(second:call(scene.holder(name, "two")))
    assert(first:call{ method = "basic.consume", queue = name, no_ack = true })
    assert.equal(1, second:call(scene.holder(name, "two")).consumer_count)
  end)

  it("gives other connections 405 for everything but a publish, with the ids of what was asked", function ()
    local name, other = scene.hold(scene.channel(), scene.name()), scene.connect()
    for _, asked in ipairs{
      { method = "queue.declare", exclusive = true, auto_delete = true }, { method = "queue.declare" },
      { method = "queue.declare", passive = true }, { method = "queue.delete" }, { method = "queue.purge" },
      { method = "queue.bind", exchange = "amq.direct", routing_key = "key" }, { method = "basic.consume" },
      { method = "basic.get" },
    } do
      asked.queue = name
      scene.refused(405, other:channel(), asked, asked.method:find("^queue") and 50 or 60)
    end
    assert.is_true(other:locked(name))
    assert.equal("present", other:probe(name))
  end)

  it("cannot be declared over a queue that is not exclusive: 405 too, but a passive declare tells", function ()
    local name, other = scene.queue(scene.slot()), scene.connect()
    scene.refused(405, other:channel(), scene.holder(name))
    assert.is_table(other:channel():call{ method = "queue.declare", queue = name, passive = true })
    assert.is_false(other:locked(name))
  end)

  it("is there for its owner's passive declare, and for nobody at the answer to its deletion", function ()
    local owner, other, name = scene.connect(), scene.connect(), scene.name()
    local channel = owner:channel()
    for _ = 1, 20 do
      scene.hold(channel, name)
      scene.barrier(channel, name)
      assert.is_true(other:locked(name))
      assert.equal("present", other:probe(name))
      assert(channel:call{ method = "queue.delete", queue = name })
      assert.is_false(other:exists(name))
      assert.equal("absent", other:probe(name))
    end
    scene.closed(channel:send{ method = "queue.declare", queue = name, passive = true }, 404)
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

describe("a queue that somebody consumes alone", function ()
  local function alone(name, no_wait)
    return { method = "basic.consume", queue = name, consumer_tag = "alone", no_ack = true, exclusive = true,
      no_wait = no_wait }
  end

  local function consumers(name)
    return scene.channel():call{ method = "queue.declare", queue = name, passive = true }.consumer_count
  end

  it("is refused to everybody else, alone or not, with 403; its consumers are told", function ()
    local name, other, channel = scene.queue(scene.slot()), scene.queue(scene.slot()), scene.channel()
    assert(channel:call(alone(name)))
    local answer, reason = scene.channel():call(alone(name))
    assert.is_nil(answer)
    assert.same({ 403, ("ACCESS_REFUSED - queue '%s' in vhost '/' in exclusive use"):format(name) },
      { reason.code, reason.text })
    scene.refused(403, scene.channel(), { method = "basic.consume", queue = name })
    assert.equal(1, consumers(name))
    assert(channel:call{ method = "basic.consume", queue = other })
    scene.refused(403, scene.channel(), alone(other))
  end)

  -- Nobody waits for a consume-ok that never comes: what is cancelled at once is no crash.
  it("unasked for an answer is free when that is taken back, at once or later, or its channel is gone", function ()
    local name, channel = scene.name(), scene.channel()
    local declare = scene.slot()
    declare.method, declare.queue, declare.no_wait = "queue.declare", name, true
    channel:send(declare)
    for _ = 1, 3 do
      channel:send(alone(name, true)):send{ method = "basic.cancel", consumer_tag = "alone", no_wait = true }
    end
    scene.barrier(channel:send(alone(name, true)), name)
    assert.equal(1, consumers(name))
    channel:send{ method = "basic.cancel", consumer_tag = "alone", no_wait = true }
    scene.barrier(channel:send(alone(name, true)), name)
    scene.refused(403, scene.channel(), alone(name))
    channel:close()
    until_true(function () return consumers(name) == 0 end)
    assert(scene.channel():call(alone(name)))
  end)
end)

-- Why the library refuses control characters: two names would be one.
it("the name of a queue loses its CR and LF silently, must not begin with amq., and may have 255 bytes", function ()
  local owner, other, name = scene.connect(), scene.connect(), scene.name()
  local long = name .. ("é"):rep(math.floor((255 - #name) / 2))
  long = long .. ("x"):rep(255 - #long)
  for asked, is in pairs{ [name .. "\ra\r\nb\n"] = name .. "ab", [long] = long } do
    assert.equal(is, owner:declare(asked, { exclusive = true }).queue)
    assert.equal("present", other:probe(is))
  end
  scene.refused(403, other:channel(), { method = "queue.declare", queue = "amq." .. client.unique(), exclusive = true })
end)
