-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A standing quorum queue with a single active consumer and one token, which the holder gives back and gets again, over
-- and over, by nacks.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"
local until_true = require "spec.support.until"

local join, served, asleep, pulse, nack, cancel = single.join, single.served, single.asleep, single.pulse, single.nack,
  single.cancel

local operated_it, suite = broker.operated_it(it, pending), broker.suite

after_each(scene.clear)

local function since(major, minor) return scene.connect():since(major, minor) end

-- -1 is no limit from 4.0 on; before, it is the strictest one.
local function declaration(changes)
  local frame = single.declaration(nil, changes, single.QUORUM)
  if not since(4, 0) and frame.arguments["x-delivery-limit"] == -1 then frame.arguments["x-delivery-limit"] = nil end
  return frame
end

-- A holder with its token, and some who wait, in order.
local function line(waiters, changes)
  local queue, all = scene.queue(declaration(changes)), {}
  for i = 0, waiters do all[i] = join(queue) end
  scene.ring(queue)
  return served(all[0]), all[1], all[2]
end

-- How often the token came back, and how often of these by a failure (before 4.3: at all).
local function counts(self)
  local headers = self.delivery.properties.headers or {}
  return headers["x-acquired-count"] or 0, headers["x-delivery-count"] or 0
end

local function flush(self) self.channel.client:flush() end

-- True if a nack brings nothing: another consumer that comes after it is in line.
local function is_in_vain(self) return asleep(nack(self)) and join(self.queue) and asleep(self) end

describe("the queue of a quorum mutex", function ()
  -- A broker says nothing of arguments that it does not know: so its version must be asked for.
  it("is refused to a client that declares it otherwise, once its arguments are known", function ()
    local queue, asking = scene.queue(declaration()), scene.connect()
    local unknown = since(4, 3) and "none" or "timeout"
    assert.is_table(asking:declare(queue, declaration()))
    for name, value in pairs{ ["x-queue-type"] = "classic", ["x-single-active-consumer"] = false, ["x-max-length"] = 2,
      ["x-delivery-limit"] = 5, ["x-consumer-disconnected-timeout"] = 19999, ["x-consumer-timeout"] = 99999999999 } do
      local answer, reason = asking:declare(queue, declaration{ [name] = value })
      assert.same({ name, name:find(unknown) and 0 or 406 }, { name, answer and 0 or reason.code })
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

  it("sends consume-ok before the first delivery", function ()
    local connection, queue = scene.connect(), single.queue(false, declaration().arguments)
    for _ = 1, 40 do
      local channel = connection:channel():send{ method = "basic.consume", queue = queue, consumer_tag = "new" }
      for _, method in ipairs{ "basic.consume-ok", "basic.deliver" } do assert.equal(method, channel:next().method) end
      channel:close()
    end
  end)
end)

describe("a pulse", function ()
  it("brings the same token back to the holder, a hundred times in a row, and nobody else anything", function ()
    local holder, waiter, third = line(2)
    local is_4_3 = since(4, 3)
    for round = 1, 100 do
      assert.is_true(pulse(holder).delivery.redelivered)
      assert.same(is_4_3 and { round, 0 } or { 0, round }, { counts(holder) })
    end
    assert.is_true(asleep(waiter) and asleep(third) and asleep(holder))
  end)

  -- What comes late says nothing of the time since the nack was sent.
  operated_it("is answered when the queue can do it again, however late, and the connection stays open", function ()
    local holder = line(0)
    scene.undo(function () pcall(suite.resume_queue, suite, holder.queue) end)
    suite:suspend_queue(holder.queue)
    assert(nack(holder).channel:call{ method = "basic.qos", prefetch_count = 1 })
    assert.is_true(holder.channel:silent())
    assert.same({ 0, 0 }, single.counts(holder.queue))  -- so counts prove nothing
    suite:resume_queue(holder.queue)
    served(holder)
  end)

  -- Why a connection with such a lock publishes nothing.
  operated_it("goes on during alarms, as do consume and release, unless its connection has published", function ()
    for _, resource in ipairs{ "memory", "disk" } do
      local holder, waiter = line(1)
      local publisher = line(0)
      scene.undo(function () suite:alarm(false, resource) end)
      suite:alarm(true, resource)
      until_true(function ()
        publisher.channel:publish{ routing_key = "nowhere" }
        return publisher.channel.client:find(function (frame) return frame.method == "connection.blocked" end, 0.05)
      end)
      flush(nack(publisher))
      for _ = 1, 20 do pulse(holder) end
      join(holder.queue)
      single.release(holder)
      pulse(served(waiter))
      assert.is_nil(publisher.channel:delivered())
      suite:alarm(false, resource)
      served(publisher)
    end
  end)

  -- All consumers of such a queue must have one priority, and one prefetch count.
  it("gives the role to a higher priority, and tells nobody; a larger prefetch goes first in line, on 4.3", function ()
    if since(4, 0) and not since(4, 3) then pending "on 4.0.5 nobody is served then" end
    local holder, waiter = line(1)
    local higher, greedy = join(holder.queue, 1), { channel = scene.channel(), queue = holder.queue }
    greedy.tag = assert(greedy.channel:call{ method = "basic.consume", queue = holder.queue }).consumer_tag
    flush(nack(holder))
    local active = served(since(4, 3) and higher or holder)
    assert.is_true(asleep(holder) and asleep(waiter) and asleep(higher) and asleep(greedy))
    single.release(active)
    served(since(4, 3) and greedy or waiter)
  end)

  -- On 4.3.6 the timeout of a consumer that has pulsed for 2 s and then stops is never noticed.
  it("renews the consumer timeout; without any the holder gets basic.cancel, and the next the token", function ()
    if not since(4, 3) then pending "of brokers from 4.3" end
    local function is_cancel(frame) return frame.method == "basic.cancel" end
    local idle, waiter = line(1, { ["x-consumer-timeout"] = 9000 })
    local holder = line(0, { ["x-consumer-timeout"] = 4000 })
    repeat pulse(holder) until idle.channel.client:find(is_cancel, 0.02)
    served(waiter)
    assert.is_true(is_in_vain(idle) and asleep(pulse(waiter)))
    pulse(holder)
  end)

  it("may be answered by another token, not marked as redelivered, if a time to live has ended its own", function ()
    local holder = line(0, { ["x-message-ttl"] = 0 })
    local waiter = join(holder.queue)  -- and the time is over
    assert.is_true(is_in_vain(holder))
    scene.ring(holder.queue)
    assert.is_false(served(holder).delivery.redelivered)
    assert.is_true(asleep(waiter))
  end)

  -- No declare tells a client of a policy, and no argument prevails over it.
  operated_it("goes on under policies, but not under delayed retries or, before 4.3, a delivery limit", function ()
    local CONFIG = broker.LOOKUP
      .. "{ok, {_, All}, _} = ra:local_query(amqqueue:get_pid(Q), fun rabbit_fifo:overview/1), maps:get(config, All)."
    local policies = {
      ['{"max-length":0}'] = "max_length => 0", ['{"message-ttl":0}'] = "msg_ttl => 0",
      ['{"expires":60000}'] = "expires => 60000", ['{"delivery-limit":0}'] = "delivery_limit => 0",
    }
    if since(4, 3) then
      policies['{"consumer-disconnected-timeout":1000}'] = "disconnected_timeout => 1000" -- lowers it
      policies['{"delayed-retry-type":"returned","delayed-retry-min":600000}'] = "{returned"
    end
    for definition, shown in pairs(policies) do
      local name, holder, waiter = client.unique "policy", line(1, { ["x-delayed-retry-type"] = "disabled" })
      scene.undo(function () suite:clear_policy("/", name) end)
      suite:set_policy("/", name, "^" .. holder.queue:gsub("%p", "[%0]") .. "$", definition)
      until_true(function () return suite:ask(CONFIG, holder.queue):gsub("%s+", " "):find(shown, 1, true) end)
      local stops = definition:find(since(4, 3) and "retry" or "delivery")
      if stops then assert.is_true(is_in_vain(holder)) else pulse(pulse(holder)) end
      assert.is_true(asleep(waiter))
    end
  end)
end)

describe("the end of a hold", function ()
  local ENDS = { -- with what is added to x-delivery-count from 4.3 on: a limit counts deaths and rejects, and no nacks
    { "abort", 1, function (self) self.channel.client:abort() end },
    { "channel.close", 1, function (self) self.channel:close() end },
    { "cancel, nack", 0, function (self) nack(cancel(self)) end },
    { "cancel, reject", 1, function (self)
      cancel(self).channel:send{ method = "basic.reject", delivery_tag = self.delivery.delivery_tag, requeue = true }
    end },
    { "nack, channel.close", 1, function (self) nack(self).channel:close() end },
  }
  it("passes role and token to the first in line", function ()
    for _, row in ipairs(ENDS) do
      local holder, waiter, third = line(2)
      local acquired, returned = counts(pulse(holder))
      row[3](holder)
      flush(holder)
      local now, deaths = counts(served(waiter))
      assert.is_true(now + deaths > acquired + returned, row[1])
      if since(4, 3) then assert.same({ row[1], row[2] }, { row[1], deaths }) end
      assert.is_true(asleep(third))
    end
  end)

  -- A release during a pulse must give back what comes before cancel-ok. What comes later goes back by itself.
  it("by nack, then cancel, may bring the holder its token again before cancel-ok, and never after", function ()
    local holder = line(0)
    for round = 1, 40 do
      local waiter = join(holder.queue)
      nack(holder)
      if round % 2 == 0 then flush(holder) end
      local answer = assert(cancel(holder).channel:next())
      if answer.method == "basic.deliver" then
        holder.delivery = answer
        flush(nack(holder))
        answer = assert(holder.channel:next())
      end
      assert.equal("basic.cancel-ok", answer.method)
      served(waiter)
      assert.is_true(asleep(holder))
      holder = waiter
    end
  end)

  it("by a cancel alone passes the role and no token; a token that is published is the next one's", function ()
    local holder, waiter = line(1)
    assert(cancel(holder).channel:await("basic.cancel-ok"))
    assert.is_true(asleep(waiter))
    scene.ring(holder.queue)
    pulse(served(waiter))
  end)

  -- The role passes at the cancel, before the nack that follows it: so a count of the token is no fence.
  it("with a second token passes on that one, which counts from 0, though pulses brought the first", function ()
    local holder, waiter = line(1)
    for _ = 1, 2 do scene.ring(holder.queue) end
    assert.same({ 1, 1 }, single.counts(holder.queue))
    for round = 1, since(4, 3) and 5 or 0 do assert.equal(round, (counts(pulse(holder)))) end
    assert.is_true(asleep(waiter) and asleep(holder))
    single.release(holder)
    assert.same({ 0, 0 }, { counts(served(waiter)) })
  end)

  operated_it("by an operator is told, and a queue that is made anew knows nobody; a purge does nothing", function ()
    local holder = line(0)
    assert(scene.channel():call{ method = "queue.purge", queue = holder.queue })
    suite:close_channel(pulse(holder).queue)
    scene.closed(holder.channel, 404)
    holder = served(join(holder.queue))
    suite:delete_queue(holder.queue)
    if not since(4, 3) then return end -- before, the old consumer may be in the new queue, with its token, and not know
    assert(scene.connect():declare(holder.queue, declaration()))
    assert(holder.channel:await("basic.cancel"))
    scene.ring(holder.queue)
    flush(nack(holder))
    assert.is_true(asleep(pulse(served(join(holder.queue)))) and asleep(holder))
  end)
end)
