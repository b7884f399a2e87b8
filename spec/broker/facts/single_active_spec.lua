-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A standing classic queue with a single active consumer and one token: who is active, who has the token, and what
-- passes them on. Tokens too many: single_active_tokens_spec.lua.
local broker = require "spec.support.broker"
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"
local until_true = require "spec.support.until"

local join, served, asleep, release = single.join, single.served, single.asleep, single.release

local operated_it = broker.operated_it(it, pending)

after_each(scene.clear)

describe("the queue of a lock", function ()
  it("tells, when declared passively, how many tokens are ready and how many consume, active or not", function ()
    local queue = single.queue()
    assert.same({ 1, 0 }, single.counts(queue))
    local holder = served(join(queue))
    assert.same({ 0, 1 }, single.counts(queue))
    local _, _ = join(queue), join(queue)
    scene.ring(queue)
    assert.same({ 1, 3 }, single.counts(queue))
    assert(single.cancel(holder).channel:await("basic.cancel-ok"))
    assert.same(2, single.counts(queue)[2])
  end)
end)

describe("the active consumer", function ()
  it("alone is served, and stays active; after it who has the highest x-priority, among equals the first", function ()
    local queue = single.queue()
    local holder = served(join(queue))
    local none, high, low, equal = join(queue), join(queue, 5), join(queue, 1), join(queue, 5)
    served(single.nack(holder))
    local line = { high, equal, low, none }
    for i = 1, #line do
      for later = i, #line do assert.is_true(asleep(line[later])) end
      release(holder)
      holder = served(line[i])
    end
    high = join(queue, 5)
    holder.channel:send{ method = "basic.ack", delivery_tag = holder.delivery.delivery_tag }
    assert.is_true(asleep(holder) and asleep(high))
    scene.ring(queue)
    served(holder)
    assert.is_true(asleep(high))
  end)

  it("that cancels, then nacks, in one write, passes role and token on, and gets nothing any more", function ()
    local queue = single.queue()
    local before = served(join(queue))
    for _ = 1, 20 do
      local after = join(queue)
      release(before)
      served(after)
      assert.is_true(asleep(before))
      before = after
    end
    release(before)
    until_true(function () return single.counts(queue)[1] == 1 end)
  end)

  it("that nacks, then cancels, in one write, gets the token again before cancel-ok; the next has to wait", function ()
    local queue = single.queue()
    local holder = served(join(queue))
    for _ = 1, 10 do
      local waiter = join(queue)
      single.cancel(single.nack(holder))
      local again = assert(holder.channel:next())
      assert.same({ "basic.deliver", true }, { again.method, again.redelivered })
      assert.equal("basic.cancel-ok", assert(holder.channel:next()).method)
      assert.is_true(asleep(waiter))
      holder.delivery = again
      single.nack(holder).channel.client:flush()
      holder = served(waiter)
    end
  end)

  it("that cancels and never nacks makes the next one active, and does not wake it; one more token does", function ()
    local queue = single.queue()
    local holder, waiter, third = served(join(queue)), join(queue), join(queue)
    assert(single.cancel(holder).channel:await("basic.cancel-ok"))
    assert.is_true(asleep(waiter) and asleep(third))
    scene.ring(queue)
    served(waiter)
    single.nack(holder)  -- too late: a token too many
    assert.is_true(asleep(holder) and asleep(waiter) and asleep(third))
    assert.same({ 1, 2 }, single.counts(queue))
  end)

  it("whose connection is cut passes role and token on, the token marked as redelivered", function ()
    local queue = single.queue()
    local holder = served(join(queue))
    for _ = 1, 10 do
      local waiter, third = join(queue), join(queue, -1)
      holder.channel.client:abort()
      served(waiter)
      assert.is_true(waiter.delivery.redelivered)
      assert.is_true(asleep(third))
      third.channel.client:close()
      holder = waiter
    end
  end)

  it("without a token, acked or never had, may be cut, or cancel: the next token wakes the next one", function ()
    local queue = single.queue()
    local first, second, third, fourth = served(join(queue)), join(queue), join(queue), join(queue)
    first.channel:send{ method = "basic.ack", delivery_tag = first.delivery.delivery_tag }
    scene.barrier(first.channel, queue)
    first.channel.client:abort()
    until_true(function () return single.counts(queue)[2] == 3 end)
    second.channel.client:abort()
    assert(single.cancel(third).channel:await("basic.cancel-ok"))
    until_true(function () return single.counts(queue)[2] == 1 end)
    assert.is_true(asleep(fourth))
    scene.ring(queue)
    served(fourth)
    assert.is_true(asleep(third))
  end)
end)

describe("a lock held for longer than the broker's consumer timeout", function ()
  local function impatient()
    scene.undo(function () broker.suite:limit_consumers() end)
    broker.suite:limit_consumers(1000)
  end

  operated_it("is the next one's, up to 4.2: the holder's channel is closed with 406, a waiter's is not", function ()
    if scene.connect():since(4, 3) then pending "of brokers before 4.3" end
    impatient()
    local queue = single.queue()
    local holder, waiter = served(join(queue)), join(queue)
    scene.closed(holder.channel, 406, 0, 0)
    served(waiter)
  end)

  operated_it("is kept from 4.3 on: a quorum queue's consumer is cancelled at the timeout, this one is not", function ()
    if not scene.connect():since(4, 3) then pending "of brokers from 4.3" end
    impatient()
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
