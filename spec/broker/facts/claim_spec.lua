-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The claim of a slot in one round trip, and its undoing.
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

after_each(scene.clear)

describe("declare B, consume B, passive declare A in one write", function ()
  local function send_claim(channel, slot, holder)
    channel:send(scene.holder(holder)):send{ method = "basic.consume", queue = holder, no_ack = true }
    return channel:send{ method = "queue.declare", queue = slot, passive = true }
  end

  -- On one channel consume-ok may come after the later declare-ok, so nothing here depends on their order.
  it("are all answered when A is there, and B is held", function ()
    local slot, holder, connection, other = scene.queue(scene.slot()), scene.name(), scene.connect(), scene.connect()
    for _ = 1, 30 do
      local channel, came = send_claim(connection:channel(), slot, holder), {}
      for _ = 1, 3 do
        local answer = assert(channel:next())
        came[answer.method .. " " .. (answer.queue or "")] = true
      end
      assert.same({ ["queue.declare-ok " .. holder] = true, ["queue.declare-ok " .. slot] = true,
        ["basic.consume-ok "] = true }, came)
      assert.is_true(other:locked(holder))
      assert(channel:call{ method = "queue.delete", queue = holder })
      channel:close()
    end
  end)

  it("end with the channel closed and B gone when A is missing, or when somebody else has B, who keeps it", function ()
    local missing, holder, connection, other = scene.name(), scene.name(), scene.connect(), scene.connect()
    for _ = 1, 30 do
      scene.closed(send_claim(connection:channel(), missing, holder), 404, 50, 10)
      until_true(function () return not other:exists(holder) end)
    end
    scene.hold(scene.channel(), holder)
    scene.closed(send_claim(connection:channel(), scene.queue(scene.slot()), holder), 405, 50, 10)
    assert.is_true(other:locked(holder))
  end)
end)

describe("a claim whose consume is refused", function ()
  local function half_claim(connection, name)
    local channel = connection:channel()
    assert(channel:call(scene.holder(name)))
    scene.refused(nil, channel, { method = "basic.consume", queue = name, no_ack = true,
      arguments = { ["x-priority"] = "none" } }, 60, 20)
  end

  it("leaves B standing until the connection ends", function ()
    local owner, other, name = scene.connect(), scene.connect(), scene.name()
    half_claim(owner, name)
    assert.is_table(owner:channel():call{ method = "queue.declare", queue = name, passive = true })
    assert.is_true(other:locked(name))
    owner:close()
    until_true(function () return not other:exists(name) end)
  end)

  it("is undone by a delete on another channel: free for others at delete-ok", function ()
    local owner, name, other = scene.connect(), scene.name(), scene.channel()
    for _ = 1, 30 do
      half_claim(owner, name)
      assert(owner:delete(name))
      assert.is_table(other:call(scene.holder(name)))
      assert(other:call{ method = "queue.delete", queue = name })
    end
  end)
end)

-- Why a name stays "claiming" until its absence is certain: the old queue may still be on its way out. A declare may
-- then find it, and the consume behind it 404. A consume-ok for a queue that vanishes must never come.
it("the same name claimed again by the same connection, when the old channel ends, gives 404 or is held for good",
  function ()
    local owner, other, name = scene.connect(), scene.connect(), scene.name()
    local endings = {
      function (old) old:close() end,
      function (old) old:send{ method = "queue.declare", queue = scene.name(), passive = true } end, -- in one write
    }
    for round = 1, 60 do
      local old, new = owner:channel(), owner:channel()
      scene.hold(old, name)
      endings[round % 2 + 1](old)
      until_true(function ()
        new:send(scene.holder(name))
        new:send{ method = "basic.consume", queue = name, no_ack = true }
        local held, reason = new:await("basic.consume-ok")
        if held then return true end
        assert.equal(404, reason.code)
        new = owner:channel()
      end)
      scene.barrier(new, name)
      assert.is_true(other:locked(name))
      assert(new:call{ method = "queue.delete", queue = name })
      old:close()
      new:close()
    end
  end)

describe("a consumer that is given up before consume-ok", function ()
  local function consume(channel, queue)
    return channel:send{ method = "basic.consume", queue = queue, consumer_tag = "early" }
  end

  -- Why no basic.cancel is ever written before that consumer's consume-ok. On 4.3 it does harm only if the channel has
  -- another consumer of the queue, and not always.
  it("by basic.cancel costs the whole connection: on 3.10, and beside another consumer", function ()
    for _, queue_type in ipairs{ "classic", "quorum" } do
      local queue, asking = scene.queue(scene.slot(queue_type)), scene.connect()
      local function is_harmless(others)
        local channel = scene.channel()
        for _ = 1, others do assert(channel:call{ method = "basic.consume", queue = queue }) end
        consume(channel, queue):send{ method = "basic.cancel", consumer_tag = "early" }
        local answer, reason = channel:await("basic.cancel-ok")
        if not answer then assert.same({ true, 541 }, { reason.connection, reason.code }) end
        return answer ~= nil
      end
      if asking:since(4, 3) then assert.is_true(is_harmless(0)) end
      until_true(function () return not is_harmless(asking:since(3, 11) and 1 or 0) end)
      assert.is_true(asking:exists(queue))
    end
  end)

  it("by queue.delete, or by channel.close, does no harm", function ()
    local connection = scene.connect()
    for _ = 1, 30 do
      local queue, channel, closing = scene.queue(), connection:channel(), connection:channel()
      consume(closing, queue):close()
      consume(channel, queue):send{ method = "queue.delete", queue = queue }
      assert.is_table(channel:await("queue.delete-ok"))
      channel:close()
    end
    assert.is_table(connection:channel())
  end)
end)
