-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A standing quorum queue with a single active consumer and one token, which the holder gives back and gets again, over
-- and over: each of these pulses proves that it was still the active consumer after the nack was sent. What one node can
-- show of it. RabbitMQ before 4.3 does not keep the role for a consumer whose node is unreachable.
local broker = require "spec.support.broker"
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"
local until_true = require "spec.support.until"

local join, served, asleep, pulse, nack, cancel = single.join, single.served, single.asleep, single.pulse, single.nack,
  single.cancel

local operated_it = broker.operated_it(it, pending)

after_each(scene.clear)

local asked

local function since(major, minor)
  asked = asked or scene.connect()
  return asked:since(major, minor)
end

-- -1 is no limit from 4.0 on; before, it is the strictest one.
local function declaration(changes)
  local frame = single.declaration(nil, changes, single.QUORUM)
  if not since(4, 0) and frame.arguments["x-delivery-limit"] == -1 then frame.arguments["x-delivery-limit"] = nil end
  return frame
end

-- A holder with its token, and some who wait, in order.
local function line(waiters, changes)
  local queue = scene.queue(declaration(changes))
  scene.ring(queue)
  local all = { served(join(queue)) }
  for i = 1, waiters do all[i + 1] = join(queue) end
  return all[1], all[2], all[3]
end

-- How often the token was given out before, and how often it came back otherwise than by a nack (before 4.3: at all).
local function counts(self)
  local headers = self.delivery.properties.headers or {}
  return headers["x-acquired-count"] or 0, headers["x-delivery-count"] or 0
end

describe("the queue of a quorum mutex", function ()
  -- Two clients that mean different promises must not share a queue. A broker takes arguments that it does not know, and
  -- says nothing: so its version must be asked for.
  it("is refused to whoever declares it otherwise, once its arguments are known", function ()
    local queue, asking = scene.queue(declaration()), scene.connect()
    local is_new = { ["x-consumer-disconnected-timeout"] = not asking:since(4, 3),
      ["x-consumer-timeout"] = not asking:since(3, 12) }
    assert.is_table(asking:declare(queue, declaration()))
    for name, value in pairs{ ["x-queue-type"] = "classic", ["x-single-active-consumer"] = false, ["x-max-length"] = 2,
      ["x-delivery-limit"] = 5, ["x-consumer-disconnected-timeout"] = 19999, ["x-consumer-timeout"] = 99999999999 } do
      local answer, reason = asking:declare(queue, declaration{ [name] = value })
      assert.same({ name, is_new[name] and 0 or 406 }, { name, answer and 0 or reason.code })
    end
  end)

  -- So the counts of a passive declare do not tell whether somebody waits, nor whether one's own consumer is alone.
  it("counts, when declared passively, the active consumer only; and gives nothing to basic.get", function ()
    local holder = line(2)
    assert.same({ 0, 1 }, single.counts(holder.queue))
    for _, connection in ipairs{ scene.connect(), holder.channel.client } do
      scene.refused(405, connection:channel(), { method = "basic.get", queue = holder.queue }, 60, 70)
    end
  end)
end)

describe("a pulse", function ()
  it("brings the same token back to the holder, a hundred times in a row, and nobody else anything", function ()
    local holder, waiter, third = line(2)
    for round = 1, 100 do
      assert.is_true(pulse(holder).delivery.redelivered)
      assert.same(since(4, 3) and { round, 0 } or { 0, round }, { counts(holder) })
    end
    assert.is_true(asleep(waiter) and asleep(third) and asleep(holder))
  end)

  it("is not counted against a limit from 4.3 on, but deaths are; before 4.3 all returns are", function ()
    local holder, waiter, third = line(2, { ["x-delivery-limit"] = 1 })
    if since(4, 3) then
      for _ = 1, 30 do pulse(holder) end
      holder.channel:close()
      holder = served(waiter)
    end
    pulse(holder).channel:close()
    until_true(function () return single.counts(holder.queue)[2] <= 1 end)
    assert.is_true(asleep(third))
  end)

  -- What has come late is not believed. It says nothing of the time since the nack was sent.
  operated_it("is answered when the queue can do it again, however late, and the connection stays open", function ()
    local holder = line(0)
    scene.undo(function () pcall(broker.suite.resume_queue, broker.suite, holder.queue) end)
    broker.suite:suspend_queue(holder.queue)
    assert(nack(holder).channel:call{ method = "basic.qos", prefetch_count = 1 })
    assert.is_true(holder.channel:silent())
    broker.suite:resume_queue(holder.queue)
    served(holder)
  end)
end)

describe("the end of a hold", function ()
  local ENDS = {
    { 1, "abort", function (self) self.channel.client:abort() end },
    { 1, "connection.close", function (self) self.channel.client:close() end },
    { 1, "channel.close", function (self) self.channel:close() end },
    { 0, "cancel, nack", function (self) nack(cancel(self)) end },
    { 1, "nack, channel.close", function (self) nack(self).channel:close() end },
    { 1, "nack, abort", function (self)
      nack(self).channel.client:flush()
      self.channel.client:abort()
    end },
    { 1, "cancel, reject", function (self)
      cancel(self).channel:send{ method = "basic.reject", delivery_tag = self.delivery.delivery_tag, requeue = true }
    end },
  }
  -- Numbers of a fence that are made of x-acquired-count grow. Only a hold that died, or rejected, counts as a delivery.
  it("passes role and token to the first in line, and counts", function ()
    for _, row in ipairs(ENDS) do
      local holder, waiter, third = line(2)
      local acquired, returned = counts(pulse(holder))
      row[3](holder)
      holder.channel.client:flush()
      local now, deaths = counts(served(waiter))
      assert.is_true(now + deaths > acquired + returned, row[2])
      if since(4, 3) then assert.same({ row[2], row[1] }, { row[2], deaths }) end
      assert.is_true(asleep(third))
    end
  end)
end)
