-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Consumers as waiters, tokens (messages) that wake them, and the notices that consumers get.
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"
local until_true = require "spec.support.until"

local waiter, woken, asleep, give_back = single.join, single.served, single.asleep, single.release

after_each(scene.clear)

local function rung(bell, one)
  scene.ring(bell)
  return woken(one)
end

for _, queue_type in ipairs{ "classic", "quorum" } do
  describe("waiters on a " .. queue_type .. " bell", function ()
    local bell
    before_each(function ()
      bell = scene.queue{ durable = true, arguments = { ["x-queue-type"] = queue_type } }
    end)

    it("are served by x-priority, the highest first, and within one in the order they came", function ()
      local line = {}
      for i = 2, 7 do line[i] = waiter(bell, 1) end
      line[8], line[1] = waiter(bell), waiter(bell, 5)
      for i = 1, 8 do
        rung(bell, line[i])
        for later = i + 1, 8 do assert.is_true(asleep(line[later])) end
      end
    end)

    it("go last when they ack a useless token and consume again, first when with more priority", function ()
      local first, second = waiter(bell), waiter(bell)
      local function surplus(self, priority)
        self.channel:send{ method = "basic.cancel", consumer_tag = self.tag }
        self.channel:send{ method = "basic.ack", delivery_tag = self.delivery.delivery_tag }
        assert(self.channel:await("basic.cancel-ok"))
        self.tag = scene.wait_for_token(self.channel, bell, priority)
      end
      surplus(rung(bell, first))
      surplus(rung(bell, second), 1)
      rung(bell, second)
      assert.is_true(asleep(first))
    end)

    -- consume-ok itself never tells. (A qos after it nearly always does, but does not ask the queue.) A quorum queue
    -- has answered either question before it delivered, once in some thousand rounds each (3.10.8).
    local classic_it = queue_type == "classic" and it or function () end
    classic_it("know whether a token is ready by the answer to a question after consume-ok", function ()
      local connection = scene.connect()
      scene.ring(bell)
      for round = 1, 18 do -- from 4.0 on a quorum queue drops a message that comes back a 21st time
        local channel = connection:channel()
        channel:send{ method = "basic.consume", queue = bell }
        local tag = assert(channel:next()).consumer_tag
        local questions = { { method = "basic.cancel", consumer_tag = tag },
          { method = "queue.declare", queue = bell, passive = true } }
        channel:send(questions[round % 2 + 1])
        assert.equal("basic.deliver", assert(channel:next()).method)
        assert(channel:next())
        channel:close()  -- and the token is back
        until_true(function () return connection:message_count(bell) == 1 end)
      end
    end)

    it("are told by basic.cancel when the bell is deleted, with a token in hand or without", function ()
      local holder, other = waiter(bell), waiter(bell)
      rung(bell, holder)
      assert(scene.connect():delete(bell))
      for _, one in ipairs{ holder, other } do
        assert.equal(one.tag, assert(one.channel:await("basic.cancel")).consumer_tag)
      end
    end)
  end)
end

-- Why consumer tags are never used again.
it("a holder that deletes its own queue gets basic.cancel as well, before or after delete-ok", function ()
  local connection = scene.connect()
  for _ = 1, 30 do
    local channel = connection:channel()
    local name = scene.hold(channel, scene.name())
    assert(channel:call{ method = "queue.delete", queue = name })
    assert.is_table(channel:await("basic.cancel"))
    channel:close()
  end
end)

it("a holder that releases in order (delete, delete-ok, nack) wakes nobody before its queue is gone", function ()
  local bell, name = scene.queue(), scene.name()
  local before, prober = rung(bell, waiter(bell)), scene.connect()
  for _ = 1, 20 do
    local after, lock = waiter(bell), before.channel.client:channel()
    scene.hold(lock, name)
    assert(lock:call{ method = "queue.delete", queue = name })
    give_back(before)
    woken(after)
    assert.equal("absent", prober:probe(name))
    before = after
  end
end)

-- Why a used channel goes back to the pool clean: the delivery outlives its queue.
it("a delivery can be acked after its queue is deleted, but not twice: that closes the channel with 406", function ()
  local bell = scene.queue()
  local holder = rung(bell, waiter(bell))
  assert(scene.connect():delete(bell))
  assert(holder.channel:await("basic.cancel"))
  local ack = { method = "basic.ack", delivery_tag = holder.delivery.delivery_tag }
  holder.channel:send(ack)
  assert(holder.channel:call{ method = "basic.qos", prefetch_count = 1 })
  scene.refused(406, holder.channel, ack)
end)

-- Why a token is held with its consumer registered.
it("a delivery from basic.get whose bell is deleted and made again goes nowhere, and nobody is told", function ()
  local bell, channel, asking = scene.queue(), scene.channel(), scene.connect()
  scene.ring(bell)
  local token = assert(channel:call{ method = "basic.get", queue = bell })
  assert.equal("basic.get-ok", token.method)
  assert(asking:delete(bell))
  assert(asking:declare(bell, { durable = true }))
  channel:send{ method = "basic.nack", delivery_tag = token.delivery_tag, requeue = true }
  scene.barrier(channel, bell)
  assert.is_true(channel:silent())
  assert.equal(0, asking:message_count(bell))
end)
