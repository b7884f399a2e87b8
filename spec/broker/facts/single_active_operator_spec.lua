-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A standing queue with a single active consumer and one token (see single_active_spec.lua): what alarms, restarts,
-- policies and the consumer timeout do to it.
local broker = require "spec.support.broker"
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"
local until_true = require "spec.support.until"

local join, served, asleep, release = single.join, single.served, single.asleep, single.release

local node, operated_it = broker.suite, broker.operated_it(it, pending)

local SECONDS = 20
local TOKEN = { delivery_mode = 2 }

local function until_ready(queue, count)
  until_true(function () return single.counts(queue)[1] == count end, SECONDS)
end

describe("a memory alarm", function ()
  after_each(scene.clear)

  -- The broker accepts messages that a connection publishes before the alarm has reached it.
  local function be_blocked(publisher)
    until_true(function ()
      publisher:publish{ routing_key = scene.name() }
      return publisher.client:find(function (frame) return frame.method == "connection.blocked" end, 0.05)
    end, SECONDS)
  end

  operated_it("lets those who never published declare, consume, cancel and nack; a token gets in after it", function ()
    local queue, empty = single.queue(), single.queue(true)
    local holder, waiter, sleeper = served(join(queue)), join(queue), join(empty)
    local publisher = scene.channel()
    scene.undo(function () node:alarm(false) end)
    node:alarm(true)
    be_blocked(publisher)
    publisher:publish{ routing_key = empty, properties = TOKEN }
    publisher.client:flush()
    for _ = 1, 5 do
      release(holder)
      holder = served(waiter)
      waiter = { channel = scene.channel(), queue = queue }
      assert(waiter.channel:call(single.declaration(queue), SECONDS))
      waiter.tag = scene.wait_for_token(waiter.channel, queue)
      assert.is_true(asleep(waiter))
    end
    holder.channel.client:abort()
    release(served(waiter))
    assert.same({ 1, 0 }, single.counts(queue))
    assert.is_true(asleep(sleeper))
    node:alarm(false)
    served(sleeper)
  end)
end)

describe("a restart", function ()
  after_each(scene.clear)

  operated_it("closes connections with 320; the queue stays, and its token is ready, held before or not", function ()
    local free, held = single.queue(), single.queue()
    local holder, waiter = served(join(held)), join(held)
    node:restart()
    for _, one in ipairs{ holder, waiter } do assert.equal(320, one.channel.client:await_end(SECONDS).code) end
    for _, queue in ipairs{ free, held } do
      assert.same({ 1, 0 }, single.counts(queue))
      assert(scene.channel():call(single.declaration(queue), SECONDS))
      local next_one, other = served(join(queue)), join(queue)
      assert.is_true(asleep(other))
      release(next_one)
      served(other)
    end
  end)

  operated_it("loses a token that is not persistent, and one more wakes", function ()
    local queue, ringer = single.queue(true), scene.channel():confirm()
    assert.equal("basic.ack", (scene.publish(ringer, { routing_key = queue })))
    assert.same({ 1, 0 }, single.counts(queue))
    node:restart()
    assert.same({ 0, 0 }, single.counts(queue))
    local one = join(queue)
    assert.is_true(asleep(one))
    scene.ring(queue)
    served(one)
  end)
end)

describe("a policy", function ()
  after_each(scene.clear)

  -- Applies a policy to one queue, and waits until the queue has it.
  local function apply(queue, definition)
    scene.undo(function () node:clear_policy("/", queue) end)
    node:set_policy("/", queue, "^" .. queue .. "$", definition)
    until_true(function ()
      return node:ask('{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, $1)), '
        .. "[{policy, $1}] =:= rabbit_amqqueue:info(Q, [policy]).", queue) == "true"
    end, SECONDS)
    return queue
  end

  local function gone(asking, queue)
    until_true(function () return asking:probe(queue) == "absent" end, SECONDS)
  end

  operated_it("that lets queues expire does not end one that is consumed, held or not", function ()
    local held, waited, asking = single.queue(), single.queue(true), scene.connect()
    local holder, waiter = served(join(held)), join(waited)
    for _, queue in ipairs{ held, waited } do apply(queue, '{"expires":300}') end
    for _ = 1, 2 do gone(asking, apply(single.queue(), '{"expires":300}')) end
    assert.is_true(asleep(holder) and asleep(waiter))
    release(holder)
    gone(asking, held)
  end)

  operated_it("of length 0 keeps no token: the next one is active, and a token published then wakes it", function ()
    local queue = single.queue()
    local holder, waiter = served(join(queue)), join(queue)
    apply(queue, '{"max-length":0}')
    scene.ring(queue)
    assert.same({ 0, 2 }, single.counts(queue))
    release(holder)
    assert.is_true(asleep(waiter))
    scene.ring(queue)
    release(served(waiter))
    assert.same({ 0, 0 }, single.counts(queue))
    local one, other = join(queue), join(queue)
    assert.is_true(asleep(one))
    scene.ring(queue)
    served(one)
    assert.is_true(asleep(other))
  end)

  operated_it("with a message-ttl ends ready tokens; one that is held ends when given back; one more wakes", function ()
    local queue = apply(single.queue(true), '{"message-ttl":100}')
    scene.ring(queue)
    until_ready(queue, 0)
    local holder, waiter = join(queue), join(queue)
    scene.ring(queue)
    served(holder)
    for _ = 1, 2 do  -- younger tokens come and go
      scene.ring(queue)
      until_ready(queue, 0)
    end
    assert.is_true(asleep(holder) and asleep(waiter))
    release(holder)
    assert.is_true(asleep(waiter))
    assert.same({ 0, 1 }, single.counts(queue))
    scene.ring(queue)
    served(waiter)
  end)
end)

describe("a lock held for longer than the broker's consumer timeout", function ()
  after_each(scene.clear)

  operated_it("is the next one's, up to 4.2: the holder's channel is closed with 406, who waits is not", function ()
    if scene.connect():since(4, 3) then pending "of brokers before 4.3" end
    scene.impatient(node)
    local queue = single.queue()
    local holder, waiter = served(join(queue)), join(queue)
    local answer, reason = holder.channel:next(SECONDS)
    assert.is_nil(answer)
    assert.same({ 406, 0, 0 }, { reason.code, reason.class_id, reason.method_id })
    assert.is_nil(reason.connection)
    served(waiter)
  end)

  operated_it("is kept from 4.3 on: a quorum queue's consumer is cancelled at the timeout, this one is not", function ()
    if not scene.connect():since(4, 3) then pending "of brokers from 4.3" end
    scene.impatient(node)
    local queue, control = single.queue(), scene.queue{ durable = true, arguments = { ["x-queue-type"] = "quorum" } }
    local holder, waiter = served(join(queue)), join(queue)
    for _ = 1, 2 do
      scene.ring(control)
      local late = served(join(control))
      assert.equal(late.tag, assert(late.channel:await("basic.cancel", SECONDS)).consumer_tag)
      late.channel.client:close()
      assert(scene.channel():call{ method = "queue.purge", queue = control })
    end
    assert.is_true(asleep(holder) and asleep(waiter))
    release(holder)
    served(waiter)
  end)
end)
