-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A standing queue with a single active consumer and one token (see single_active_spec.lua): what policies and
-- the consumer timeout do to it. Alarms and restarts: fast_mutex_spec.lua.
local broker = require "spec.support.broker"
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"
local until_true = require "spec.support.until"

local join, served, asleep, release = single.join, single.served, single.asleep, single.release

local node, operated_it = broker.suite, broker.operated_it(it, pending)

after_each(scene.clear)

describe("a policy", function ()
  -- Applies a policy to one queue, and waits until the queue has it.
  local function apply(queue, definition)
    scene.undo(function () node:clear_policy("/", queue) end)
    node:set_policy("/", queue, "^" .. queue .. "$", definition)
    until_true(function ()
      return node:ask('{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, $1)), '
        .. "[{policy, $1}] =:= rabbit_amqqueue:info(Q, [policy]).", queue) == "true"
    end)
    return queue
  end

  local function until_empty(queue) until_true(function () return single.counts(queue)[1] == 0 end) end

  local function gone(asking, queue)
    until_true(function () return asking:probe(queue) == "absent" end)
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

  operated_it("with a message-ttl ends ready tokens; one that is held ends when given back; one more wakes", function ()
    local queue = apply(single.queue(true), '{"message-ttl":100}')
    scene.ring(queue)
    until_empty(queue)
    local holder, waiter = join(queue), join(queue)
    scene.ring(queue)
    served(holder)
    for _ = 1, 2 do  -- younger tokens come and go
      scene.ring(queue)
      until_empty(queue)
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
  operated_it("is the next one's, up to 4.2: the holder's channel is closed with 406, who waits is not", function ()
    if scene.connect():since(4, 3) then pending "of brokers before 4.3" end
    scene.impatient(node)
    local queue = single.queue()
    local holder, waiter = served(join(queue)), join(queue)
    scene.closed(holder.channel, 406, 0, 0)
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
      assert.equal(late.tag, assert(late.channel:await("basic.cancel")).consumer_tag)
      late.channel.client:close()
      assert(scene.channel():call{ method = "queue.purge", queue = control })
    end
    assert.is_true(asleep(holder) and asleep(waiter))
    release(holder)
    served(waiter)
  end)
end)
