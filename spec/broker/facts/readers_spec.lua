-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A reader's queue, a writer's door (the queue that excludes readers), and how the broker guarantees that each sees the
-- other.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

after_each(scene.clear)

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

-- Reads the answers to an entry, and any probe that comes meanwhile. True: all came; nil and the reason: the channel
-- was closed.
local function entered(channel, answers)
  while answers > 0 do
    local frame, reason = channel:next()
    if not frame then return nil, reason end
    if frame.method ~= "basic.deliver" then answers = answers - 1 end
  end
  return true
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

local function until_no_reader(prober, key) until_true(function () return no_reader(prober, key) end) end

local function until_gone(other, name) until_true(function () return not other:exists(name) end) end

describe("a look at the door (queue.delete, if unused and if empty)", function ()
  it("of no door is answered by delete-ok, and the channel stays open", function ()
    local channel = scene.channel()
    for _ = 1, 10 do assert.equal(0, assert(channel:call(look(scene.name()))).message_count) end
    assert.is_true(channel:silent())
  end)

  it("of a door gives 405, consumed or not, or 406 if it is the connection's own, and leaves it alone", function ()
    local looking, door, writer = scene.connect(), scene.name(), scene.channel()
    assert(writer:call(scene.holder(door)))
    scene.refused(405, looking:channel(), look(door), 50, 40)
    assert(writer:call(consume(door)))
    scene.refused(405, looking:channel(), look(door), 50, 40)
    scene.refused(406, writer.client:channel(), look(door), 50, 40)
    assert.is_true(looking:locked(door))
    scene.barrier(writer, door)
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
      scene.refused(406, looking:channel(), look(queue), 50, 40)
      assert.is_true(looking:exists(queue))
    end
  end)
end)

describe("a reader's entry in one write", function ()
  it("is answered in full while there is no door, and the reader is seen until delete-ok", function ()
    local connection, prober, key, door = scene.connect(), scene.channel():confirm(), scene.name(), scene.name()
    for _ = 1, 30 do
      local channel = connection:channel()
      local name = send_entry(channel, key, door)
      assert.is_true(entered(channel, 4))
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
      assert.is_true(scene.closed(channel, 405, 50, 40)["queue.bind-ok"])
      until_no_reader(prober, key)
      until_gone(other, name)
    end
    assert.is_true(other:locked(door))
  end)

  -- Why it consumes before it binds.
  it("leaves nothing when the binding is refused, but its queue if the consume comes later", function ()
    local connection, other = scene.connect(), scene.connect()
    local exchange, before, after = scene.name(), scene.name(), scene.name()
    for name, asked in pairs{
      [before] = { consume(before), bind(before, "key", exchange) },
      [after] = { bind(after, "key", exchange), consume(after) },
    } do
      scene.closed(connection:channel():send(scene.holder(name)):send(asked[1]):send(asked[2]), 404, 50, 20)
    end
    until_gone(other, before)
    assert.is_true(other:locked(after))
    connection:close()
    until_gone(other, after)
  end)

  operated_it("needs write on its queue and read on amq.direct: 403 with the ids of the bind", function ()
    local others_only, all, other = "^(?!amq\\.direct$)", ".*", scene.connect()
    for _, rights in ipairs{ { write = others_only, read = all, enough = true }, { write = "", read = all },
      { write = all, read = others_only } } do
      local user = client.unique("user")
      scene.undo(function () broker.suite:delete_user(user) end)
      broker.suite:add_user(user, all, rights.write, rights.read)
      local channel = scene.connect({ user = user, password = "password" }):channel()
      local name = send_entry(channel, scene.name())
      if rights.enough then
        assert.is_true(entered(channel, 3))
      else
        scene.closed(channel, 403, 50, 20)
        until_gone(other, name)
      end
    end
  end)
end)

describe("a reader", function ()
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

  it("is not seen any more soon after its channel or connection ended, though it has many", function ()
    local key, prober = scene.name(), scene.channel():confirm()
    for _, finish in ipairs{
      function (readers) for i = 1, #readers do readers[i]:close() end end,
      function (readers) readers[1].client:close() end,
      function (readers) readers[1].client:abort() end,
    } do
      for round = 1, 10 do
        local connection, readers = scene.connect(), {}
        for i = 1, round do
          readers[i] = connection:channel()
          enter(readers[i], key)
        end
        assert.is_false(no_reader(prober, key))
        finish(readers)
        -- A publish may meet a reader's queue on its way out: from 4.2 that can end the publisher's connection (506).
        until_true(function ()
          if prober.client.closed then
            assert.equal(506, prober.client.closed.code)
            prober = scene.channel():confirm()
          end
          return no_reader(prober, key)
        end)
      end
    end
  end)
end)

-- The reader binds, then looks at the door; the writer shuts the door, then looks for readers. Each may see the other
-- and step back, but they never both go in.
it("a reader and a writer that come at the same time are never both inside", function ()
  local reading, writing, prober = scene.connect(), scene.connect(), scene.channel():confirm()
  local key, door = scene.name(), scene.name()
  for round = 1, 100 do
    local reader, writer, name = reading:channel(), writing:channel(), nil
    local starts = {
      function () writer:send(scene.holder(door)):send(consume(door)).client:flush() end,
      function ()
        name = send_entry(reader, key, door)
        reading:flush()
      end,
    }
    starts[round % 2 + 1]()
    local other = round % 2 == 0 and reader or writer
    -- Some time passes, more or less from round to round: no more than an entry takes.
    for _ = 1, round % 30 do assert(other:call{ method = "basic.qos" }) end
    starts[2 - round % 2]()
    assert(writer:await("queue.declare-ok"))
    local write = no_reader(prober, key)
    local read, reason = entered(reader, 4)
    assert.is_false(write and read or false, "both are inside")
    if not read then assert.same({ 405, 50, 40 }, { reason.code, reason.class_id, reason.method_id }) end
    if read then assert(reader:call{ method = "queue.delete", queue = name }) end
    assert(writer:await("basic.consume-ok"))
    assert(writer:call{ method = "queue.delete", queue = door })
    until_no_reader(prober, key)
    reader:close()
    writer:close()
  end
end)

it("a bell that those who wait make themselves serves them all, and melts tokens that are given back into one",
  function ()
    local bell, asking, waiters = scene.name(), scene.connect(), {}
    local declare = { method = "queue.declare", queue = bell, durable = true, arguments = {
      ["x-queue-type"] = "classic", ["x-expires"] = 60000, ["x-max-length"] = 1, ["x-overflow"] = "drop-head",
    } }
    for i = 1, 5 do
      waiters[i] = scene.channel()
      waiters[i]:send(declare):send{ method = "basic.qos", prefetch_count = 1 }
      waiters[i]:send{ method = "basic.consume", queue = bell }
      for _, answer in ipairs{ "queue.declare-ok", "basic.qos-ok", "basic.consume-ok" } do
        assert(waiters[i]:await(answer))
      end
    end
    for i = 1, 5 do
      scene.ring(bell)
      waiters[i].token = assert(waiters[i]:await("basic.deliver"))
      for j = 1, 5 do
        scene.barrier(waiters[j], bell)
        assert.is_true(waiters[j]:silent())
      end
    end
    scene.ring(bell)
    assert.equal(1, asking:message_count(bell))
    waiters[1].client:abort()
    for i = 2, 5 do
      waiters[i]:send{ method = "basic.cancel", consumer_tag = waiters[i].token.consumer_tag, no_wait = true }
      waiters[i]:send{ method = "basic.nack", delivery_tag = waiters[i].token.delivery_tag, requeue = true }
      waiters[i]:close()
    end
    until_true(function ()
      return assert(asking:channel():call(declare)).consumer_count == 0 and asking:message_count(bell) == 1
    end)
  end)
