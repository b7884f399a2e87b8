-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A standing classic queue with a single active consumer and one token: who is active, who has the token, and what
-- passes them on. What an operator can do to it: single_active_operator_spec.lua.
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"
local until_true = require "spec.support.until"

local join, served, asleep, release = single.join, single.served, single.asleep, single.release

local SECONDS = 20
local TOKEN = { delivery_mode = 2 }

-- Whether a channel and its connection are open.
local function works(channel)
  return channel:call({ method = "basic.qos", prefetch_count = 1 }, SECONDS) ~= nil
end

-- Asserts that the broker closes the channel with this code for this frame, and not the connection.
local function assert_refused(code, channel, frame)
  local answer, reason = channel:call(frame, SECONDS)
  assert.is_nil(answer)
  assert.equal(code, reason.code)
  assert.is_nil(reason.connection)
end

describe("the queue of a lock", function ()
  after_each(scene.clear)

  it("may be declared by many at once, each with a token: one of them is served, then each of the others", function ()
    local queue, left = scene.name(), {}
    for i = 1, 10 do left[i] = { channel = scene.channel(), queue = queue, tag = ("one of ten, %d"):format(i) } end
    for _, one in ipairs(left) do
      one.channel:send{ method = "basic.qos", prefetch_count = 1 }
      one.channel:send(single.declaration(queue))
      one.channel:send{ method = "basic.consume", queue = queue, consumer_tag = one.tag }
      one.channel:publish{ routing_key = queue, properties = TOKEN }
      one.channel.client:flush()
    end
    for _, one in ipairs(left) do
      assert(one.channel:await("queue.declare-ok", SECONDS))
      assert(one.channel:await("basic.consume-ok", SECONDS))
      assert(one.channel:await("basic.qos-ok", SECONDS))
    end
    while #left > 0 do
      local holder = until_true(function ()
        for i, one in ipairs(left) do
          one.delivery = one.channel:delivered()
          if one.delivery then return table.remove(left, i) end
        end
      end, SECONDS)
      for _, one in ipairs(left) do assert.is_true(asleep(one)) end
      release(holder)
    end
    assert.same({ 1, 0 }, single.counts(queue))
  end)

  it("declared with another argument is refused with 406, which closes no channel but the asking one", function ()
    local queue = single.queue()
    local holder = served(join(queue))
    for name, value in pairs{ ["x-single-active-consumer"] = false, ["x-max-length"] = 2, ["x-expires"] = 600001,
        ["x-queue-type"] = "quorum", ["x-message-ttl"] = 600000 } do
      local channel = holder.channel.client:channel()
      assert_refused(406, channel, single.declaration(queue, { [name] = value }))
    end
    assert.is_true(asleep(holder))
    release(holder)
    assert.same({ 1, 0 }, single.counts(queue))
  end)

  it("keeps one token, however many are published", function ()
    local queue = single.queue(true)
    for _ = 1, 5 do
      scene.ring(queue)
      assert.same({ 1, 0 }, single.counts(queue))
    end
  end)

  it("tells, when declared passively, how many tokens are ready and how many consume, active or not", function ()
    local queue = single.queue()
    assert.same({ 1, 0 }, single.counts(queue))
    local holder = served(join(queue))
    assert.same({ 0, 1 }, single.counts(queue))
    local _, _ = join(queue), join(queue)
    assert.same({ 0, 3 }, single.counts(queue))
    scene.ring(queue)
    assert.same({ 1, 3 }, single.counts(queue))
    assert(single.cancel(holder).channel:await("basic.cancel-ok", SECONDS))
    assert.same(2, single.counts(queue)[2])
  end)

  it("cannot be consumed exclusively, held or free: 403 closes the asking channel", function ()
    local queue, other = single.queue(), scene.connect()
    local exclusively = { method = "basic.consume", queue = queue, exclusive = true }
    assert_refused(403, other:channel(), exclusively)
    local holder = served(join(queue))
    assert_refused(403, other:channel(), exclusively)
    assert.is_true(works(other:channel()))
    assert.is_true(asleep(holder))
  end)

  it("gives a ready token to any basic.get, also while it is held; one more wakes who waits in vain", function ()
    local queue, thief = single.queue(), scene.channel()
    local get = { method = "basic.get", queue = queue }
    assert.equal("basic.get-ok", assert(thief:call(get, SECONDS)).method)
    local one = join(queue)
    assert.is_true(asleep(one))
    scene.ring(queue)
    served(one)
    scene.ring(queue)
    assert.equal("basic.get-ok", assert(thief:call(get, SECONDS)).method)
    assert.equal("basic.get-empty", assert(thief:call(get, SECONDS)).method)
  end)
end)

describe("the active consumer", function ()
  after_each(scene.clear)

  it("alone is served; after it who has the highest x-priority, among equals who came first", function ()
    local queue = single.queue()
    local holder = served(join(queue))
    local none, high, low, equal = join(queue), join(queue, 5), join(queue, 1), join(queue, 5)
    local line = { high, equal, low, none }
    for i = 1, #line do
      for later = i, #line do assert.is_true(asleep(line[later])) end
      release(holder)
      holder = served(line[i])
    end
  end)

  it("stays active when one with a higher priority comes, with the token in hand or without", function ()
    local queue = single.queue()
    local holder = served(join(queue))
    local high = join(queue, 5)
    assert.is_true(asleep(high))
    served(single.nack(holder))
    assert.is_true(asleep(high))
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
    assert.same({ 1, 0 }, single.counts(queue))
  end)

  it("that nacks, then cancels, in one write, gets the token again before cancel-ok; the next has to wait", function ()
    local queue = single.queue()
    local holder = served(join(queue))
    for _ = 1, 10 do
      local waiter = join(queue)
      single.cancel(single.nack(holder))
      local again = assert(holder.channel:next(SECONDS))
      assert.same({ "basic.deliver", true }, { again.method, again.redelivered })
      assert.equal("basic.cancel-ok", assert(holder.channel:next(SECONDS)).method)
      assert.is_true(asleep(waiter))
      holder.delivery = again
      single.nack(holder).channel.client:flush()
      holder = served(waiter)
    end
  end)

  it("that cancels and never nacks makes the next one active, and does not wake it; one more token does", function ()
    local queue = single.queue()
    local holder, waiter, third = served(join(queue)), join(queue), join(queue)
    assert(single.cancel(holder).channel:await("basic.cancel-ok", SECONDS))
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

  it("whose connection is cut after it acked the token passes on the role, and one more token wakes", function ()
    local queue = single.queue()
    local holder, waiter = served(join(queue)), join(queue)
    holder.channel:send{ method = "basic.ack", delivery_tag = holder.delivery.delivery_tag }
    assert.is_true(works(holder.channel))
    holder.channel.client:abort()
    until_true(function () return single.counts(queue)[2] == 1 end, SECONDS)
    assert.is_true(asleep(waiter))
    scene.ring(queue)
    served(waiter)
  end)

  it("that waits without a token may be cut, or cancel: who comes next is woken by the next token", function ()
    local queue = single.queue(true)
    local first, second, third = join(queue), join(queue), join(queue)
    first.channel.client:abort()
    assert(single.cancel(second).channel:await("basic.cancel-ok", SECONDS))
    until_true(function () return single.counts(queue)[2] == 1 end, SECONDS)
    scene.ring(queue)
    served(third)
    assert.is_true(asleep(second))
  end)
end)

describe("tokens", function ()
  after_each(scene.clear)

  it("that are too many let nobody in while one is active and has its own unacknowledged", function ()
    local queue = single.queue()
    local line = { served(join(queue)), join(queue), join(queue), join(queue) }
    for i = 1, 3 do
      for _ = 1, 5 do
        scene.ring(queue)
        for other = i, #line do assert.is_true(asleep(line[other])) end
      end
      assert.equal(1, single.counts(queue)[1])
      release(line[i])
      served(line[i + 1])
    end
    release(line[4])
    assert.same({ 1, 0 }, single.counts(queue))
  end)

  it("that are purged are those ready only: the holder's passes on as ever", function ()
    local queue, operator = single.queue(), scene.channel()
    local holder, waiter = served(join(queue)), join(queue)
    for _, surplus in ipairs{ 0, 1 } do
      if surplus == 1 then scene.ring(queue) end
      assert.equal(surplus, assert(operator:call{ method = "queue.purge", queue = queue }).message_count)
    end
    assert.is_true(asleep(holder) and asleep(waiter))
    release(holder)
    served(waiter)
  end)

  it("that are purged after the release leave who comes next asleep; one more token wakes", function ()
    local queue, operator = single.queue(), scene.channel()
    release(served(join(queue)))
    assert.equal(1, assert(operator:call{ method = "queue.purge", queue = queue }).message_count)
    local one, other = join(queue), join(queue)
    assert.is_true(asleep(one) and asleep(other))
    scene.ring(queue)
    served(one)
    assert.is_true(asleep(other))
  end)
end)

describe("whether a lock is free", function ()
  after_each(scene.clear)

  -- The first frame after consume-ok and a question.
  local function asked(channel, queue)
    local tag = assert(channel:call({ method = "basic.consume", queue = queue }, SECONDS)).consumer_tag
    channel:send{ method = "basic.qos", prefetch_count = 1 }
    return { channel = channel, tag = tag, queue = queue }, assert(channel:next(SECONDS))
  end

  it("is known at qos-ok, if asked for after consume-ok: the delivery comes before it, or the lock is held", function ()
    local queue, one, other = single.queue(), scene.channel(), scene.channel()
    for _ = 1, 50 do
      local holder, answer = asked(one, queue)
      assert.equal("basic.deliver", answer.method)
      assert.equal("basic.qos-ok", assert(one:next(SECONDS)).method)
      holder.delivery = answer
      local second, refusal = asked(other, queue)
      assert.equal("basic.qos-ok", refusal.method)
      single.cancel(second)
      assert.equal("basic.cancel-ok", assert(other:next(SECONDS)).method)
      release(holder)
      scene.barrier(one, queue)  -- the token is back
    end
  end)

  it("is told to one that leaves while it is released: the delivery comes before cancel-ok, or not at all", function ()
    local queue = single.queue()
    local holder = served(join(queue))
    for _ = 1, 30 do
      local leaving, staying = join(queue), join(queue)
      single.nack(single.cancel(holder)).channel.client:flush()
      single.cancel(leaving)
      local frame = assert(leaving.channel:next(SECONDS))
      if frame.method == "basic.deliver" then
        leaving.delivery = frame
        assert.is_true(asleep(staying))
        frame = assert(leaving.channel:next(SECONDS))
        single.nack(leaving)
      end
      assert.equal("basic.cancel-ok", frame.method)
      leaving.channel.client:flush()
      holder = served(staying)
      assert.is_true(asleep(leaving))
    end
  end)
end)

describe("a queue that somebody deletes", function ()
  after_each(scene.clear)

  -- In which order the holder's notice and the next one's delivery come is chance.
  it("ends all consumers with basic.cancel, and the next claim makes it anew; a late nack does no harm", function ()
    for _ = 1, 10 do
      local queue, next_one = single.queue(), scene.channel()
      local holder, waiter = served(join(queue)), join(queue)
      next_one:send{ method = "queue.delete", queue = queue }
      next_one:send(single.declaration(queue))
      local tag = assert(next_one:call({ method = "basic.consume", queue = queue }, SECONDS)).consumer_tag
      next_one:publish{ routing_key = queue, properties = TOKEN }
      assert.equal(tag, assert(next_one:await("basic.deliver", SECONDS)).consumer_tag)
      for _, one in ipairs{ holder, waiter } do
        assert.equal(one.tag, assert(one.channel:await("basic.cancel", SECONDS)).consumer_tag)
      end
      single.nack(holder)
      assert.is_true(asleep(holder) and asleep(waiter))
      assert.same({ 0, 1 }, single.counts(queue))
      for _, channel in ipairs{ holder.channel, waiter.channel, next_one } do channel.client:close() end
    end
  end)
end)
