-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Messages as permits: which client has one, how many are free, how they are given back, and what else can take one
-- away.
local scene = require "spec.broker.facts.scene"
local single = require "spec.broker.facts.single_active"
local until_true = require "spec.support.until"

local TEN_YEARS = 315360000000 -- in milliseconds

local join, served, asleep, nack, give_back = single.join, single.served, single.asleep, single.nack, single.give_back

after_each(scene.clear)

-- A queue for permits. From 4.0 a quorum queue drops a message that came back too often, unless told otherwise; before,
-- it may not be told (fence_limits_spec.lua).
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

-- What is given back is counted in a moment, not at once: the question may overtake it on its way into the queue.
local function until_free(asking, queue, count)
  until_true(function ()
    local free = asking:message_count(queue)
    return free == count, free .. " free, not " .. count
  end)
end

for _, queue_type in ipairs{ "classic", "quorum" } do
  describe("permits in a " .. queue_type .. " queue", function ()
    it("are counted by a passive declare while they are free, and taken one each with prefetch 1", function ()
      local queue, asking, takers, ids = queue_of(queue_type), scene.connect(), {}, {}
      fill(queue, 3)
      for i = 1, 3 do
        assert.equal(4 - i, asking:message_count(queue))
        takers[i] = served(join(queue))
        ids[takers[i].delivery.properties.message_id] = true
      end
      assert.same({ ["1"] = true, ["2"] = true, ["3"] = true }, ids)
      takers[4] = join(queue)
      for i = 1, 4 do assert.is_true(asleep(takers[i])) end
      takers[4].channel:close()
      give_back(takers[2])
      until_free(asking, queue, 1)
      takers[3].channel:send{ method = "basic.ack", delivery_tag = takers[3].delivery.delivery_tag }
      takers[3].channel:close()
      takers[1].channel:close()
      until_free(asking, queue, 2)
    end)

    it("keep what they are, however often they are given back or their holder dies", function ()
      local queue, asking = fill(queue_of(queue_type), 1), scene.connect()
      local self = served(join(queue))
      for round = 1, 45 do
        local again = join(queue)
        if round % 3 == 0 then
          give_back(self)
        elseif round % 3 == 1 then
          self.channel:close()
        else
          self.channel.client:abort()
        end
        self = served(again)
        local properties = self.delivery.properties
        assert.same({ true, "1", "amqplocks.permit", 2 },
          { self.delivery.redelivered, properties.message_id, properties.type, properties.delivery_mode })
      end
      for _ = 1, 30 do served(nack(self)) end
      give_back(self)
      until_free(asking, queue, 1)
    end)

    it("come before cancel-ok or not at all, and are not lost", function ()
      local queue, ringer, asking = queue_of(queue_type), scene.channel(), scene.connect()
      for _ = 1, 30 do
        local self = join(queue)
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
  end)
end

it("a queue of permits made by somebody else without arguments is the same as a classic one; another type is refused",
  function ()
    local PLAIN = { durable = true }
    local CLASSIC = { durable = true, arguments = { ["x-queue-type"] = "classic" } }
    local QUORUM = { durable = true, arguments = { ["x-queue-type"] = "quorum" } }
    local connection = scene.connect()
    assert.is_table(connection:declare(scene.queue(PLAIN), CLASSIC))
    assert.is_table(connection:declare(scene.queue(CLASSIC), PLAIN))
    for _, pair in ipairs{ { QUORUM, PLAIN }, { QUORUM, CLASSIC }, { CLASSIC, QUORUM }, { PLAIN, QUORUM } } do
      scene.refused(406, connection:channel(), { method = "queue.declare", queue = scene.queue(pair[1]),
        durable = true, arguments = pair[2].arguments })
    end
  end)

describe("the limits of a queue of permits", function ()
  -- 2^53 ms would end the queue on 4.3: its timer takes no more than some centuries.
  it("on quorum queues: every version takes a consumer timeout of ten years, by queue and by consumer", function ()
    served(join(fill(queue_of("quorum", { ["x-consumer-timeout"] = TEN_YEARS }), 1)))
    local queue, channel = fill(queue_of "quorum", 1), scene.channel()
    assert(channel:call{ method = "basic.consume", queue = queue, arguments = { ["x-consumer-timeout"] = TEN_YEARS } })
    assert(channel:await("basic.deliver"))
  end)

  it("on classic queues: a consumer timeout is unknown up to 4.2, and refused from 4.3", function ()
    local connection = scene.connect()
    for class_id, frame in pairs{
      [50] = { method = "queue.declare", queue = scene.name(), durable = true,
        arguments = { ["x-queue-type"] = "classic", ["x-consumer-timeout"] = TEN_YEARS } },
      [60] = { method = "basic.consume", queue = queue_of "classic",
        arguments = { ["x-consumer-timeout"] = TEN_YEARS } },
    } do
      local channel = connection:channel()
      if connection:since(4, 3) then scene.refused(406, channel, frame, class_id) else assert(channel:call(frame)) end
    end
  end)
end)
