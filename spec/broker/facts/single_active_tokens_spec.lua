-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A standing classic queue with a single active consumer (see single_active_spec.lua): tokens too many,
-- whether a token is ready, and what a token does while the role passes on.
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"
local until_true = require "spec.support.until"

local join, served, asleep, release = single.join, single.served, single.asleep, single.release

local TOKEN = { delivery_mode = 2 }

after_each(scene.clear)

describe("tokens", function ()
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
    until_true(function () return single.counts(queue)[1] == 1 end)
  end)

  -- Why the prefetch is set before the consumer comes, also by those who ask with a qos after it.
  it("that are too many are the holder's as well, if it consumes without a prefetch", function ()
    local queue, channel = single.queue(), scene.channel()
    assert(channel:call{ method = "basic.consume", queue = queue })
    assert(channel:call{ method = "basic.qos", prefetch_count = 1 })
    for number = 1, 3 do
      assert.equal(number, assert(channel:await("basic.deliver")).delivery_tag)
      scene.ring(queue)
    end
  end)
end)

it("whether a lock is free is known at qos-ok, if asked for after consume-ok: the delivery comes first, or it is held",
  function ()
    local queue, one, other = single.queue(), scene.channel(), scene.channel()
    -- The first frame after consume-ok and a question.
    local function asked(channel)
      local tag = assert(channel:call{ method = "basic.consume", queue = queue }).consumer_tag
      channel:send{ method = "basic.qos", prefetch_count = 1 }
      return { channel = channel, tag = tag, queue = queue }, assert(channel:next())
    end
    for _ = 1, 50 do
      local holder, answer = asked(one)
      assert.equal("basic.deliver", answer.method)
      assert.equal("basic.qos-ok", assert(one:next()).method)
      holder.delivery = answer
      local second, refusal = asked(other)
      assert.equal("basic.qos-ok", refusal.method)
      single.cancel(second)
      assert.equal("basic.cancel-ok", assert(other:next()).method)
      release(holder)
    end
  end)

-- RabbitMQ 3.10 does not look at the ready tokens when the role passes on by a cancel: the next consumer is active, and
-- asleep though a token is ready. A token that is published then crashes the queue, which starts again without its
-- consumers; after six crashes in ten seconds it does not start again. The moment between the cancel and the nack of a
-- release is long enough for that.
describe("a role that passes on by a cancel while a token is ready", function ()
  -- One that has cancelled and still has its token, and one that is active since; a token is ready.
  local function passed_on(changes)
    local queue = single.queue(false, changes)
    local holder, waiter = served(join(queue)), join(queue)
    scene.ring(queue)
    assert(single.cancel(holder).channel:await("basic.cancel-ok"))
    return queue, holder, waiter, holder.channel.client:since(4, 0)
  end

  it("bears one more token from 4.0 on; before, that may crash the queue: its consumers get basic.cancel", function ()
    local queue, _, waiter, bears = passed_on()
    if bears then
      scene.ring(queue)
      served(waiter)
      assert.same({ 1, 1 }, single.counts(queue))
      return
    end
    local answer = scene.publish(scene.channel():confirm(), { routing_key = queue, properties = TOKEN })
    local frame = assert(waiter.channel:next())
    if frame.method == "basic.deliver" then return end -- a busy broker has looked at the ready token in time
    assert.same({ "basic.nack", "basic.cancel" }, { answer, frame.method })
    until_true(function () return pcall(single.counts, queue) end)
    assert.same({ 1, 0 }, single.counts(queue))
    served(join(queue))
  end)

  it("bears it always if x-overflow is reject-publish: a token is refused while one is ready", function ()
    local queue, holder, waiter, wakes = passed_on{ ["x-overflow"] = "reject-publish" }
    local ringer = scene.channel():confirm()
    local function ring() return (scene.publish(ringer, { routing_key = queue, properties = TOKEN })) end
    if wakes or not asleep(waiter) then wakes = served(waiter) end -- a busy broker has looked at the ready token
    assert.equal(wakes and "basic.ack" or "basic.nack", ring())
    assert.equal("basic.nack", ring())
    single.nack(holder).channel.client:flush()
    if not wakes then served(waiter) end
    assert.equal("basic.nack", ring())
    for _ = 1, 20 do  -- tokens that are given back are kept, beyond the length
      local after = join(queue)
      assert.is_true(asleep(after))
      release(waiter)
      assert.equal("basic.nack", ring())
      waiter = served(after)
    end
  end)
end)
