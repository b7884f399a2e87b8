-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A standing classic queue with a single active consumer and one token: who is active, who has the token, and what
-- passes them on. Tokens too many or missing: single_active_tokens_spec.lua. What an operator can do to it:
-- single_active_operator_spec.lua.
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
      scene.refused(406, channel, single.declaration(queue, { [name] = value }))
    end
    assert.is_true(asleep(holder))
    release(holder)
    assert.same({ 1, 0 }, single.counts(queue))
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
    scene.refused(403, other:channel(), exclusively)
    local holder = served(join(queue))
    scene.refused(403, other:channel(), exclusively)
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
