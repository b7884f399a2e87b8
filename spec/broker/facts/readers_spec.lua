-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A reader's queue, a writer's door (the queue that excludes readers), and how the broker guarantees that each sees the
-- other.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

-- Looks at a door: for what is not there, delete-ok; for what is somebody's own, 405.
local function look(door)
  return { method = "queue.delete", queue = door, if_unused = true, if_empty = true }
end

local function bind(queue, key, exchange)
  return { method = "queue.bind", queue = queue, exchange = exchange or "amq.direct", routing_key = key }
end

local function consume(queue)
  return { method = "basic.consume", queue = queue, no_ack = true }
end

-- A reader's whole entry, queued to go out in one write; gives the name of its queue.
local function send_entry(channel, key, door)
  local name = scene.name()
  channel:send(scene.holder(name)):send(consume(name)):send(bind(name, key))
  if door then channel:send(look(door)) end
  return name
end

-- Reads the answers to an entry, and any probe that comes meanwhile. Gives true when all answers are there; nil and the
-- reason when the channel was closed.
local function entered(channel, answers)
  local came = {}
  while answers > 0 do
    local frame, reason = channel:next()
    if not frame then return nil, reason, came end
    if frame.method ~= "basic.deliver" then came[frame.method], answers = true, answers - 1 end
  end
  return true, nil, came
end

local function enter(channel, key)
  local name = send_entry(channel, key)
  assert(entered(channel, 3))
  return name
end

-- Whether a probe says that there is no reader. One that is dying may make the broker say neither yes nor no (nack).
local function no_reader(prober, key)
  local how, returned = scene.publish(prober, { exchange = "amq.direct", routing_key = key, mandatory = true })
  return how == "basic.ack" and returned ~= nil
end

local function refused(code, class_id, method_id, channel, frame)
  scene.refused(code, channel, frame, class_id, method_id)
end

describe("a look at the door (queue.delete, if unused and if empty)", function ()
  after_each(scene.clear)

  it("of no door is answered by delete-ok, and the channel stays open", function ()
    local channel = scene.channel()
    for _ = 1, 10 do
      assert.equal(0, assert(channel:call(look(scene.name()))).message_count)
    end
    assert.is_true(channel:silent())
  end)

  it("of a door that is another connection's gives 405, consumed or not, and leaves it alone", function ()
    local looking, door, writer = scene.connect(), scene.name(), scene.channel()
    assert(writer:call(scene.holder(door)))
    refused(405, 50, 40, looking:channel(), look(door))
    assert(writer:call(consume(door)))
    refused(405, 50, 40, looking:channel(), look(door))
    assert.is_true(looking:locked(door))
    scene.barrier(writer, door)
  end)

  it("of the connection's own door, consumed, gives 406 and leaves it alone", function ()
    local connection = scene.connect()
    local door = scene.hold(connection:channel(), scene.name())
    refused(406, 50, 40, connection:channel(), look(door))
    assert.is_true(scene.connect():locked(door))
  end)

  -- The price: what has no business under that name, and nothing in it, does not survive being looked at.
  it("deletes a plain queue in the door's place, unless it is consumed or has a message", function ()
    local looking, consumer = scene.connect(), scene.channel()
    local empty, full, consumed = scene.queue(), scene.queue(), scene.queue()
    scene.ring(full)
    assert(consumer:call(consume(consumed)))
    assert.is_table(looking:channel():call(look(empty)))
    assert.is_false(looking:exists(empty))
    for _, queue in ipairs{ full, consumed } do
      refused(406, 50, 40, looking:channel(), look(queue))
      assert.is_true(looking:exists(queue))
    end
  end)
end)

describe("a reader's entry in one write", function ()
  after_each(scene.clear)

  it("is answered in full while there is no door, and the reader is seen", function ()
    local connection, prober, key, door = scene.connect(), scene.channel():confirm(), scene.name(), scene.name()
    for _ = 1, 30 do
      local channel = connection:channel()
      local name = send_entry(channel, key, door)
      local inside, _, came = entered(channel, 4)
      assert.is_true(inside)
      assert.same({ ["queue.declare-ok"] = true, ["basic.consume-ok"] = true, ["queue.bind-ok"] = true,
        ["queue.delete-ok"] = true }, came)
      assert.is_false(no_reader(prober, key))
      assert(channel:call{ method = "queue.delete", queue = name })
      assert.is_true(no_reader(prober, key))
      channel:close()
    end
  end)

  it("ends at a shut door with the ids of the look, after bind-ok, and leaves nothing", function ()
    local connection, prober, other = scene.connect(), scene.channel():confirm(), scene.connect()
    local key, door = scene.name(), scene.hold(scene.channel(), scene.name())
    for _ = 1, 30 do
      local channel = connection:channel()
      local name = send_entry(channel, key, door)
      local inside, reason, came = entered(channel, 4)
      assert.is_nil(inside)
      assert.same({ 405, 50, 40 }, { reason.code, reason.class_id, reason.method_id })
      assert.is_true(came["queue.bind-ok"])
      until_true(function () return no_reader(prober, key) end)
      until_true(function () return not other:exists(name) end)
    end
    assert.is_true(other:locked(door))
  end)

  -- Why it consumes before it binds.
  it("leaves nothing when the binding is refused, but its queue if the consume comes later", function ()
    local connection, other = scene.connect(), scene.connect()
    local exchange, before, after = scene.name(), scene.name(), scene.name()
    local steps = {
      [before] = { consume(before), bind(before, "key", exchange) },
      [after] = { bind(after, "key", exchange), consume(after) },
    }
    for name, asked in pairs(steps) do
      local channel = connection:channel():send(scene.holder(name))
      for _, frame in ipairs(asked) do channel:send(frame) end
      local inside, reason = entered(channel, 3)
      assert.is_nil(inside)
      assert.same({ 404, 50, 20 }, { reason.code, reason.class_id, reason.method_id })
    end
    until_true(function () return not other:exists(before) end)
    assert.is_true(other:locked(after))
    connection:close()
    until_true(function () return not other:exists(after) end)
  end)

  it("is refused with 405 or 404 for a queue that is somebody's or nobody's", function ()
    local others = scene.hold(scene.channel(), scene.name())
    refused(405, 50, 20, scene.channel(), bind(others, "key"))
    refused(404, 50, 20, scene.channel(), bind(scene.name(), "key"))
  end)

  operated_it("needs write on its queue and read on amq.direct: 403 with the ids of the bind", function ()
    local others_only, all = "^(?!amq\\.direct$)", ".*"
    for _, rights in ipairs{ { write = others_only, read = all, enough = true }, { write = "", read = all },
      { write = all, read = others_only } } do
      local user, other = client.unique("user"), scene.connect()
      scene.undo(function () broker.suite:delete_user(user) end)
      broker.suite:add_user(user, all, rights.write, rights.read)
      local channel = scene.connect({ user = user, password = "password" }):channel()
      local name = send_entry(channel, scene.name())
      local inside, reason = entered(channel, 3)
      assert.equal(rights.enough, inside)
      if not inside then
        assert.same({ 403, 50, 20 }, { reason.code, reason.class_id, reason.method_id })
        until_true(function () return not other:exists(name) end)
      end
    end
  end)
end)

describe("a reader", function ()
  after_each(scene.clear)

  it("gets every probe of amq.direct, and the writer one confirm for all readers", function ()
    local key, prober, readers = scene.name(), scene.channel():confirm(), {}
    for i = 1, 5 do
      readers[i] = scene.channel()
      enter(readers[i], key)
    end
    for id = 1, 20 do
      assert.equal("basic.ack", (scene.publish(prober, { exchange = "amq.direct", routing_key = key, mandatory = true,
        properties = { message_id = tostring(id) } })))
      for i = 1, 5 do
        assert.equal(tostring(id), assert(readers[i]:await("basic.deliver")).properties.message_id)
      end
    end
    assert.is_true(prober:silent())
  end)

  it("is not seen any more once its delete-ok is there, and soon after its channel or connection ended", function ()
    local key, prober, one = scene.name(), scene.channel():confirm(), scene.connect()
    local channel = one:channel()
    for _ = 1, 20 do
      assert(channel:call{ method = "queue.delete", queue = enter(channel, key) })
      assert.is_true(no_reader(prober, key))
    end
    local endings = {
      function (reader) reader:close() end,
      function (reader) reader.client:close() end,
      function (reader) reader.client:abort() end,
    }
    for _, finish in ipairs(endings) do
      for _ = 1, 10 do
        local reader = scene.channel()
        enter(reader, key)
        assert.is_false(no_reader(prober, key))
        finish(reader)
        until_true(function () return no_reader(prober, key) end)
      end
    end
  end)

  it("is one of many on its connection, and all of them go with it", function ()
    local key, prober, connection = scene.name(), scene.channel():confirm(), scene.connect()
    for _ = 1, 50 do enter(connection:channel(), key) end
    assert.is_false(no_reader(prober, key))
    connection:abort()
    -- A publish may meet a reader's queue on its way out: from 4.2 that can end the publisher's connection (506).
    until_true(function ()
      if prober.client.closed then
        assert.equal(506, prober.client.closed.code)
        prober = scene.channel():confirm()
      end
      return no_reader(prober, key)
    end)
  end)
end)

describe("a reader and a writer that come at the same time", function ()
  after_each(scene.clear)

  -- The reader binds, then looks at the door; the writer shuts the door, then looks for readers. Each may see the other
  -- and step back, but they never both go in.
  -- Lets some time pass, more or less from round to round: no more than an entry takes.
  local function later(channel, round)
    for _ = 1, round % 30 do assert(channel:call{ method = "basic.qos" }) end
  end

  it("are never both inside", function ()
    local reading, writing, prober = scene.connect(), scene.connect(), scene.channel():confirm()
    local key, door, inside = scene.name(), scene.name(), { reader = 0, writer = 0 }
    for round = 1, 100 do
      local reader, writer = reading:channel(), writing:channel()
      local name
      local function start_reader() name = send_entry(reader, key, door) end
      local function start_writer() writer:send(scene.holder(door)):send(consume(door)) end
      if round % 2 == 0 then
        start_writer()
        writing:flush()
        later(reader, round)
        start_reader()
        reading:flush()
      else
        start_reader()
        reading:flush()
        later(writer, round)
        start_writer()
        writing:flush()
      end
      assert(writer:await("queue.declare-ok"))
      local write = no_reader(prober, key)
      local read, reason = entered(reader, 4)
      assert.is_false(write and read or false, "both are inside")
      if not read then assert.same({ 405, 50, 40 }, { reason.code, reason.class_id, reason.method_id }) end
      inside.reader, inside.writer = inside.reader + (read and 1 or 0), inside.writer + (write and 1 or 0)
      if read then assert(reader:call{ method = "queue.delete", queue = name }) end
      assert(writer:await("basic.consume-ok"))
      assert(writer:call{ method = "queue.delete", queue = door })
      until_true(function () return no_reader(prober, key) end)
      reader:close()
      writer:close()
    end
    assert.is_true(inside.reader > 0 and inside.writer > 0, "some never got in")
  end)
end)

describe("a writer that becomes a reader", function ()
  after_each(scene.clear)

  -- Between bind-ok and the door's delete-ok it is both, on two channels of one connection; afterwards a reader.
  it("is seen by other writers before its door opens, and is refused no entry by it", function ()
    local connection, prober, other = scene.connect(), scene.channel():confirm(), scene.connect()
    local key, door = scene.name(), scene.name()
    for _ = 1, 20 do
      local writer, reader = connection:channel(), connection:channel()
      scene.hold(writer, door)
      assert.is_true(no_reader(prober, key))
      local name = enter(reader, key)
      assert.is_false(no_reader(prober, key))
      assert.is_true(other:locked(door))
      assert(writer:call{ method = "queue.delete", queue = door })
      assert.is_false(other:exists(door))
      assert.is_false(no_reader(prober, key))
      assert(reader:call{ method = "queue.delete", queue = name })
      writer:close()
      reader:close()
    end
  end)
end)

describe("a door", function ()
  after_each(scene.clear)

  it("brings its writer what readers that leave send to it, and what is sent to no door is gone", function ()
    local writer, leaving, door = scene.channel(), scene.channel(), scene.name()
    leaving:publish{ routing_key = door, properties = { type = "before" } }
    scene.barrier(leaving, scene.queue())
    scene.hold(writer, door)
    for id = 1, 10 do
      leaving:publish{ routing_key = door, properties = { type = "left", message_id = tostring(id) } }
    end
    leaving.client:flush()
    for id = 1, 10 do
      local message = assert(writer:await("basic.deliver"))
      assert.same({ "left", tostring(id) }, { message.properties.type, message.properties.message_id })
    end
    assert.is_true(writer:silent())
  end)
end)

describe("a bell that those who wait make themselves", function ()
  after_each(scene.clear)

  local ARGUMENTS = { ["x-queue-type"] = "classic", ["x-expires"] = 60000, ["x-max-length"] = 1,
    ["x-overflow"] = "drop-head" }

  local function declare(bell, changed)
    local arguments = {}
    for name, value in pairs(ARGUMENTS) do arguments[name] = value end
    for name, value in pairs(changed or {}) do arguments[name] = value end
    return { method = "queue.declare", queue = bell, durable = true, arguments = arguments }
  end

  local function stand(channel, bell)
    channel:send(declare(bell)):send{ method = "basic.qos", prefetch_count = 1 }
    channel:send{ method = "basic.consume", queue = bell }
    for _, answer in ipairs{ "queue.declare-ok", "basic.qos-ok", "basic.consume-ok" } do
      assert(channel:await(answer))
    end
  end

  it("is declared again by everybody who waits, in one write with the consume, and serves them all", function ()
    local bell, waiters = scene.name(), {}
    for i = 1, 5 do
      waiters[i] = scene.channel()
      stand(waiters[i], bell)
    end
    for i = 1, 5 do
      scene.ring(bell)
      assert(waiters[i]:await("basic.deliver"))
      for j = 1, 5 do
        scene.barrier(waiters[j], bell)
        assert.is_true(waiters[j]:silent())
      end
    end
  end)

  it("melts tokens that are given back, by nack or by death, into one", function ()
    local bell, asking, holders = scene.name(), scene.connect(), {}
    for i = 1, 3 do
      holders[i] = scene.channel()
      stand(holders[i], bell)
      scene.ring(bell)
      holders[i].token = assert(holders[i]:await("basic.deliver"))
    end
    scene.ring(bell)
    assert.equal(1, asking:message_count(bell))
    holders[1].client:abort()
    for i = 2, 3 do
      holders[i]:send{ method = "basic.cancel", consumer_tag = holders[i].token.consumer_tag, no_wait = true }
      holders[i]:send{ method = "basic.nack", delivery_tag = holders[i].token.delivery_tag, requeue = true }
      holders[i]:close()
    end
    until_true(function ()
      return assert(asking:channel():call(declare(bell))).consumer_count == 0 and asking:message_count(bell) == 1
    end)
  end)
end)
