-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Messages as permits: which client has one, how many are free, how they are given back, and what else can take one
-- away.
local broker = require "spec.support.broker"
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local TEN_YEARS = 315360000000 -- in milliseconds

-- A queue for permits. From 4.0 a quorum queue drops a message that came back too often, unless told otherwise; before,
-- it may not be told (below).
local function queue_of(queue_type, arguments)
  local all = { ["x-queue-type"] = queue_type }
  if queue_type == "quorum" and scene.connect():since(4, 0) then all["x-delivery-limit"] = -1 end
  for name, value in pairs(arguments or {}) do all[name] = value end
  return scene.queue{ durable = true, arguments = all }
end

-- Puts permits number 1 to `count` in a queue, and returns when all are confirmed.
local function fill(queue, count)
  local channel = scene.channel():confirm()
  for id = 1, count do
    assert.equal("basic.ack", (scene.publish(channel, { routing_key = queue, properties = {
      delivery_mode = 2, type = "amqplocks.permit", message_id = tostring(id),
    } })))
  end
  return queue
end

local served, asleep, nack = single.served, single.asleep, single.nack

-- One that stands in line for a permit, on a connection of its own.
local function taker(queue, priority, arguments)
  if not arguments then return single.join(queue, priority) end
  local channel = scene.channel()
  local answer = assert(channel:call{ method = "basic.consume", queue = queue, arguments = arguments })
  return { channel = channel, queue = queue, tag = answer.consumer_tag }
end

-- The way a permit is released: out of the line, the permit back, in one write, and nothing is waited for.
local function give_back(self)
  self.channel:send{ method = "basic.cancel", consumer_tag = self.tag, no_wait = true }
  nack(self)
  self.channel.client:flush()
end

-- The way a permit is taken out of the world. First out of the line: who stays there gets another.
local function remove(self)
  self.channel:send{ method = "basic.cancel", consumer_tag = self.tag, no_wait = true }
  self.channel:send{ method = "basic.ack", delivery_tag = self.delivery.delivery_tag }
  self.channel.client:flush()
end

-- What is given back is counted in a moment, not at once: the question may overtake it on its way into the queue.
local function until_free(asking, queue, count)
  until_true(function ()
    local free = asking:message_count(queue)
    return free == count, free .. " free, not " .. count
  end)
end

for _, queue_type in ipairs{ "classic", "quorum" } do
  describe("permits in a " .. queue_type .. " queue", function ()
    after_each(scene.clear)

    it("are counted by a passive declare while they are free, from their confirm to their delivery", function ()
      local queue, asking, takers = queue_of(queue_type), scene.connect(), {}
      for count = 1, 5 do
        fill(queue, 1)
        assert.equal(count, asking:message_count(queue))
      end
      for count = 4, 2, -1 do
        takers[count] = served(taker(queue))
        assert.equal(count, asking:message_count(queue))
      end
      give_back(takers[2])
      until_free(asking, queue, 3)
      remove(takers[3])
      takers[4].channel:close()
      until_free(asking, queue, 4)
    end)

    it("are taken one each by consumers with prefetch 1", function ()
      local queue, ids = fill(queue_of(queue_type), 3), {}
      local takers = {}
      for i = 1, 3 do
        takers[i] = served(taker(queue))
        ids[takers[i].delivery.properties.message_id] = true
      end
      assert.same({ ["1"] = true, ["2"] = true, ["3"] = true }, ids)
      takers[4] = taker(queue)
      for i = 1, 4 do assert.is_true(asleep(takers[i])) end
    end)

    it("keep what they are when they are given back and when their holder dies", function ()
      local queue = fill(queue_of(queue_type), 1)
      local one, two, three = served(taker(queue)), taker(queue), taker(queue)
      local first = one.delivery
      give_back(one)
      served(two)
      two.channel.client:abort()
      served(three)
      for _, again in ipairs{ two.delivery, three.delivery } do
        for _, property in ipairs{ "message_id", "type", "delivery_mode" } do
          assert.equal(first.properties[property], again.properties[property])
        end
        assert.is_true(again.redelivered)
      end
      assert.equal("1", first.properties.message_id)
      assert.equal(2, first.properties.delivery_mode)
    end)

    it("are not lost however often they are given back or their channel is closed", function ()
      local queue, holder, asking = fill(queue_of(queue_type), 1), scene.connect(), scene.connect()
      local self = served(taker(queue))
      for _ = 1, 30 do
        nack(self)
        served(self)
      end
      self.channel:close()
      for _ = 1, 30 do
        local channel = holder:channel()
        scene.wait_for_token(channel, queue)
        assert(channel:await("basic.deliver"))
        channel:close()
      end
      until_free(asking, queue, 1)
    end)

    it("go, when a cancel that has no answer and a nack are in one write, to who waits", function ()
      local queue = fill(queue_of(queue_type), 1)
      local before = served(taker(queue))
      for _ = 1, 20 do
        local after = taker(queue)
        give_back(before)
        served(after)
        assert.is_true(asleep(before))
        before = after
      end
    end)

    it("can be had again on the same channel, with another consumer, after a cancel that has no answer", function ()
      local queue = fill(queue_of(queue_type), 1)
      local self = served(taker(queue))
      for round = 1, 20 do
        self.channel:send{ method = "basic.cancel", consumer_tag = self.tag, no_wait = true }
        nack(self)
        self.tag = "round " .. round
        self.channel:send{ method = "basic.consume", queue = queue, consumer_tag = self.tag }
        assert(self.channel:await("basic.consume-ok"))
        assert.equal(self.tag, served(self).delivery.consumer_tag)
        assert.is_true(asleep(self))
      end
    end)

    it("come before the answer to a passive declare written after consume-ok, if one is free", function ()
      local queue, connection, asking = fill(queue_of(queue_type), 1), scene.connect(), scene.connect()
      for _ = 1, 20 do
        until_free(asking, queue, 1)
        local one, two = connection:channel(), connection:channel()
        scene.wait_for_token(one, queue)
        scene.barrier(one, queue)
        assert.is_false(one:silent())
        scene.wait_for_token(two, queue)
        assert.is_true(asleep({ channel = two, queue = queue }))
        two:close()
        one:close()
      end
    end)

    it("come before cancel-ok or not at all, and are not lost", function ()
      local queue, ringer, asking = queue_of(queue_type), scene.channel(), scene.connect()
      for _ = 1, 30 do
        local self = taker(queue)
        ringer:publish{ routing_key = queue, properties = { delivery_mode = 2 } }
        ringer.client:flush()
        self.channel:send{ method = "basic.cancel", consumer_tag = self.tag }
        local frame, has_one = assert(self.channel:next()), false
        if frame.method == "basic.deliver" then frame, has_one = assert(self.channel:next()), true end
        assert.equal("basic.cancel-ok", frame.method)
        until_free(asking, queue, has_one and 0 or 1)
        assert.is_true(asleep(self))
        self.channel.client:close()
        until_free(asking, queue, 1)
        assert(asking:channel():call{ method = "queue.purge", queue = queue })
      end
    end)

    it("are removed by a consumer of the highest priority, as their holders give them back", function ()
      local queue, asking, holders = fill(queue_of(queue_type), 3), scene.connect(), {}
      for i = 1, 3 do holders[i] = served(taker(queue)) end
      local waiter, admin = taker(queue, 10), scene.channel()
      assert(admin:call{ method = "basic.qos", prefetch_count = 2 })
      local tag = assert(admin:call{
        method = "basic.consume", queue = queue, arguments = { ["x-priority"] = 1000000 },
      }).consumer_tag
      for i = 1, 2 do
        give_back(holders[i])
        local permit = assert(admin:await("basic.deliver"))
        assert.equal(holders[i].delivery.properties.message_id, permit.properties.message_id)
      end
      assert.is_true(asleep(waiter))
      assert(admin:call{ method = "basic.cancel", consumer_tag = tag })
      admin:send{ method = "basic.ack", delivery_tag = 2, multiple = true }
      admin:close()
      give_back(holders[3])
      served(waiter)
      assert.equal(holders[3].delivery.properties.message_id, waiter.delivery.properties.message_id)
      assert.equal(0, asking:message_count(queue))
    end)

    it("are not purged while they are held", function ()
      local queue, asking = fill(queue_of(queue_type), 3), scene.connect()
      local holder = served(taker(queue))
      assert.equal(2, assert(asking:channel():call{ method = "queue.purge", queue = queue }).message_count)
      assert.equal(0, asking:message_count(queue))
      give_back(holder)
      until_free(asking, queue, 1)
    end)

    operated_it("are listed with their holders", function ()
      local queue = fill(queue_of(queue_type), 1)
      served(taker(queue, nil, { ["x-amqplocks-holder"] = "somebody at work" }))
      local listed
      until_true(function ()
        listed = broker.suite:ctl("list_consumers", "queue_name", "arguments")
        return listed:find(queue, 1, true)
      end)
      assert.truthy(listed:match(queue:gsub("%p", "%%%0") .. "[^\n]*"):find("somebody at work", 1, true))
    end)
  end)
end

describe("a queue of permits made by somebody else", function ()
  after_each(scene.clear)

  local PLAIN = { durable = true }
  local CLASSIC = { durable = true, arguments = { ["x-queue-type"] = "classic" } }
  local QUORUM = { durable = true, arguments = { ["x-queue-type"] = "quorum" } }

  it("without arguments is the same as a classic one, whoever comes first", function ()
    local connection = scene.connect()
    assert.is_table(connection:declare(scene.queue(PLAIN), CLASSIC))
    assert.is_table(connection:declare(scene.queue(CLASSIC), PLAIN))
  end)

  it("is refused when it is of another type: 406", function ()
    local connection = scene.connect()
    for _, pair in ipairs{ { QUORUM, PLAIN }, { QUORUM, CLASSIC }, { CLASSIC, QUORUM }, { PLAIN, QUORUM } } do
      local answer, reason = connection:declare(scene.queue(pair[1]), pair[2])
      assert.is_nil(answer)
      assert.equal(406, reason.code)
      assert.is_nil(reason.connection)
    end
  end)
end)

describe("the limits of a queue of permits", function ()
  after_each(scene.clear)

  -- 2^53 ms would end the queue on 4.3: its timer takes no more than some centuries.
  it("on quorum queues: every version takes a consumer timeout of ten years, by queue and by consumer", function ()
    served(taker(fill(queue_of("quorum", { ["x-consumer-timeout"] = TEN_YEARS }), 1)))
    served(taker(fill(queue_of "quorum", 1), nil, { ["x-consumer-timeout"] = TEN_YEARS }))
  end)

  it("on classic queues: a consumer timeout is unknown up to 4.2, and refused from 4.3", function ()
    local connection, queue = scene.connect(), queue_of "classic"
    local channel = connection:channel()
    local declared, why_not = connection:declare(scene.name(), { durable = true, arguments = {
      ["x-queue-type"] = "classic", ["x-consumer-timeout"] = TEN_YEARS,
    } })
    local consumed, refusal = channel:call{
      method = "basic.consume", queue = queue, arguments = { ["x-consumer-timeout"] = TEN_YEARS },
    }
    if connection:since(4, 3) then
      assert.equal(406, why_not.code)
      assert.equal(406, refusal.code)
      assert.same({ 60, 20 }, { refusal.class_id, refusal.method_id })
    else
      assert.is_table(declared)
      assert.is_table(consumed)
    end
  end)

  -- The next two are about real brokers only.
  operated_it("on classic queues: a delivery limit is refused: 406", function ()
    local answer, reason = scene.connect():declare(scene.name(), { durable = true, arguments = {
      ["x-queue-type"] = "classic", ["x-delivery-limit"] = -1,
    } })
    assert.is_nil(answer)
    assert.equal(406, reason.code)
    assert.is_nil(reason.connection)
  end)

  operated_it("on quorum queues: a permit is lost by and by without -1, from 4.0; at once with it, before", function ()
    local connection, arguments = scene.connect(), { ["x-queue-type"] = "quorum" }
    local limit = not connection:since(4, 0) and -1 or nil
    arguments["x-delivery-limit"] = limit
    local queue = fill(scene.queue{ durable = true, arguments = arguments }, 1)
    for _ = 1, limit and 1 or 21 do
      local channel = connection:channel()
      scene.wait_for_token(channel, queue)
      assert(channel:await("basic.deliver"))
      channel:close()
    end
    local channel = connection:channel()
    until_true(function ()
      local answer = assert(channel:call{ method = "basic.get", queue = queue })
      if answer.method == "basic.get-empty" then return true end
      error("the permit is still there", 0)
    end)
  end)
end)

describe("a permit that is held for longer than the broker's consumer timeout", function ()
  after_each(scene.clear)

  -- One that holds a permit, and one that waits for it.
  local function pair(queue_type)
    local queue = fill(queue_of(queue_type), 1)
    return served(taker(queue)), taker(queue), queue
  end

  -- It is not kept: on 3.10 a channel that nobody answers for is closed again and again.
  local function goes_to(waiter)
    remove(served(waiter))
    assert(waiter.channel:call{ method = "basic.qos", prefetch_count = 1 })
  end

  local function assert_closed(self)
    local answer, reason = self.channel:next()
    assert.is_nil(answer)
    assert.same({ 406, 0, 0 }, { reason.code, reason.class_id, reason.method_id })
    assert.is_nil(reason.connection)
  end

  operated_it("is the next one's, up to 4.2: its channel is closed with 406", function ()
    if scene.connect():since(4, 3) then pending "of brokers before 4.3" end
    scene.impatient(broker.suite)
    for _, queue_type in ipairs{ "classic", "quorum" } do
      local holder, waiter = pair(queue_type)
      assert_closed(holder)
      goes_to(waiter)
    end
  end)

  operated_it("is the next one's, from 4.3 if quorum: its consumer is cancelled, or the channel closed", function ()
    if not scene.connect():since(4, 3) then pending "of brokers from 4.3" end
    scene.impatient(broker.suite)
    local patient = pair "classic"  -- for which there is no such timeout any more
    local holder, waiter = pair "quorum"
    assert.equal(holder.tag, assert(holder.channel:await("basic.cancel")).consumer_tag)
    goes_to(waiter)
    nack(holder)  -- too late, and no harm done
    assert(holder.channel:call{ method = "basic.qos", prefetch_count = 1 })
    holder, waiter = pair "quorum"
    assert(holder.channel:call{ method = "basic.cancel", consumer_tag = holder.tag })
    assert_closed(holder)
    goes_to(waiter)
    assert.is_true(asleep(patient))
  end)
end)
