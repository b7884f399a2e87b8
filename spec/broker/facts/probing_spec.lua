-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- How the broker handles a probe, how the probed queue handles it, and the effect of an expiration of zero.
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

after_each(scene.clear)

local function until_empty(asking, name) until_true(function () return asking:message_count(name) == 0 end) end

it("a probe of a queue is acked; of no queue it is returned with its message id, then acked, among two thousand too",
  function ()
    local present, absent, channel = scene.queue(scene.slot()), scene.name(), scene.channel():confirm()
    for id = 1, 2000 do
      channel:publish{ routing_key = id % 3 == 0 and absent or present, mandatory = true,
        properties = { delivery_mode = 1, message_id = tostring(id) } }
    end
    local confirmed, open = {}, 2000
    local returned = {} -- by id: what was returned; it must not be confirmed before
    while open > 0 do
      local frame = assert(channel:next())
      if frame.method == "basic.return" then
        local id = tonumber(frame.properties.message_id)
        assert.same({ 312, absent, nil, nil }, { frame.reply_code, frame.routing_key, returned[id], confirmed[id] })
        returned[id] = true
      else
        assert.equal("basic.ack", frame.method)
        for id = frame.multiple and 1 or frame.delivery_tag, frame.delivery_tag do
          assert.is_true(frame.multiple or not confirmed[id], "confirmed twice")
          if not confirmed[id] then confirmed[id], open = true, open - 1 end
        end
      end
    end
    for id = 1, 2000 do assert.equal(id % 3 == 0, returned[id] == true) end
    assert.is_true(channel:silent())
  end)

for _, queue_type in ipairs{ "classic", "quorum" } do
  it("a " .. queue_type .. " queue of length zero that drops its head acks a probe, keeps nothing, and delivers every "
    .. "message to a consumer without acknowledgements", function ()
    local name, consumer, asking = scene.queue(scene.slot(queue_type)), scene.channel(), scene.connect()
    for _ = 1, 20 do assert.equal("present", asking:probe(name)) end
    until_empty(asking, name)
    assert.equal("basic.get-empty", asking:channel():call{ method = "basic.get", queue = name, no_ack = true }.method)
    assert(consumer:call{ method = "basic.consume", queue = name, no_ack = true })
    for id = 1, 20 do
      assert.equal("present", asking:probe(name, { message_id = tostring(id) }))
      assert.equal(tostring(id), assert(consumer:await("basic.deliver")).properties.message_id)
    end
  end)
end

it("a queue of length zero that rejects nacks a probe, and its consumer never gets it", function ()
  local name, consumer = scene.queue(scene.slot("classic", "reject-publish")), scene.channel()
  assert(consumer:call{ method = "basic.consume", queue = name, no_ack = true })
  local asking = scene.connect()
  for _ = 1, 5 do assert.equal("unavailable", asking:probe(name)) end
  scene.barrier(consumer, name)
  assert.is_true(consumer:silent())
end)

-- Why it is consumed without acknowledgements.
it("a holder queue consumed with prefetch 1 confirms and loses what follows an unacknowledged probe", function ()
  local holder, name, prober = scene.channel(), scene.name(), scene.connect()
  assert(holder:call(scene.holder(name)))
  scene.wait_for_token(holder, name)
  assert.equal("present", prober:probe(name, { message_id = "a foreign probe" }))
  local delivery = assert(holder:await("basic.deliver"))
  assert.equal("present", prober:probe(name, { message_id = "a request" }))
  holder:send{ method = "basic.ack", delivery_tag = delivery.delivery_tag }
  scene.barrier(holder, name)
  assert.is_true(holder:silent())
end)

describe("a probe that expires at once", function ()
  local EXPIRED = { delivery_mode = 1, expiration = "0" }

  it("is acked by any queue and does not stay, is returned by no queue, and nacked by one that rejects", function ()
    local asking = scene.connect()
    for _, options in ipairs{ { durable = true }, { durable = true, arguments = { ["x-queue-type"] = "quorum" } },
      scene.slot(), scene.slot("quorum") } do
      local name = scene.queue(options)
      for _ = 1, 20 do assert.equal("present", asking:probe(name, EXPIRED)) end
      until_empty(asking, name)
    end
    assert.equal("absent", asking:probe(scene.name(), EXPIRED))
    assert.equal("unavailable", asking:probe(scene.queue(scene.slot("classic", "reject-publish")), EXPIRED))
  end)

  -- Expiry works at the head only: it does not make a queue safe to probe that has messages of its own.
  it("stays behind a message that does not expire", function ()
    local name, asking = scene.queue(), scene.connect()
    assert.equal("present", asking:probe(name))
    for _ = 1, 5 do assert.equal("present", asking:probe(name, EXPIRED)) end
    assert.equal(6, asking:message_count(name))
    asking:channel():call{ method = "basic.get", queue = name, no_ack = true }
    until_empty(asking, name)
  end)
end)
