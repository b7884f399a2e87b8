-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Administering a token semaphore, seen through a connection without this library. Faults are in
-- token_admin_bad_days_spec.
local broker = require "spec.support.broker"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

stage.tidy()

local fails = stage.fails

for _, queue_type in ipairs{ "classic", "quorum" } do
  describe("an administrator of " .. queue_type .. " permits", function ()
    local name, tokens, raw

    before_each(function ()
      name = scene.name()
      tokens = stage.connect():token_semaphore(name, { queue_type = queue_type })
      raw = stage.client()
    end)

    local function stands(count) scene.stands(raw, name, count) end

    -- Another client that takes a permit, and holds it.
    local function holder(priority) return scene.taker(name, priority) end

    -- A queue of quorum permits that does not answer at once is counted as 0 and 0.
    local function until_slots(...)
      local expected = ("%d of %d, %d held"):format(...)
      until_true(function ()
        local now = ("%d of %d, %d held"):format(tokens:slots())
        return now == expected, now
      end)
    end

    it("creates as many permits as marks, all of them persistent, in durable queues", function ()
      until_slots(0, 0, 0)
      assert.equal(3, tokens:create(3))
      until_slots(3, 3, 0)
      stands(3)
      for _, queue in ipairs{ scene.permits(name), scene.marks(name) } do
        local other = queue_type == "quorum" and "classic" or "quorum"
        local _, reason = raw:declare(queue, { durable = true, arguments = { ["x-queue-type"] = other } })
        assert.equal(406, reason.code)
        assert.is_truthy(reason.text:find(queue_type, 1, true))
        _, reason = raw:declare(queue, { arguments = { ["x-queue-type"] = "classic" } })
        assert.equal(406, reason.code)
      end
      local ids = {}
      for _ = 1, 3 do
        local properties = assert(holder():served()).properties
        assert.same({ "amqplocks.permit", 2 }, { properties.type, properties.delivery_mode })
        assert.matches("^%x+$", properties.message_id)
        assert.is_nil(ids[properties.message_id])
        ids[properties.message_id] = true
      end
      until_slots(3, 0, 3)
      local mark = scene.taker(name, 0, scene.marks(name)):served()
      assert.same({ "amqplocks.mark", 2 }, { mark.properties.type, mark.properties.delivery_mode })
    end)

    it("adds for those who wait, and removes what is free before them, while others hold", function ()
      assert.equal(1, tokens:create(1))
      local one, two = holder():served(), holder()
      assert.equal(2, tokens:add(1))
      two:served()
      assert.equal(4, tokens:resize(4))
      until_slots(4, 2, 2)
      assert.equal(3, tokens:remove(1))
      assert.equal(2, tokens:resize(2))
      until_slots(2, 0, 2)
      assert.is_true(one:holds() and two:holds())
      one:release()
      two:release()
      until_slots(2, 2, 0)
      stands(2)
    end)

    it("removes all or nothing", function ()
      assert.equal(3, tokens:create(3))
      local one, two = holder():served(), holder():served()
      local message = fails("busy", tokens:remove(2))
      assert.is_truthy(message:find("1 of 2", 1, true))
      until_slots(3, 1, 2)
      fails("timeout", tokens:remove(2, { wait = 0.2 }))
      until_slots(3, 1, 2)
      assert.is_true(one:holds() and two:holds())
      one:release()
      until_slots(3, 2, 1)
      assert.equal(1, tokens:remove(2))
      two:release()
      stands(1)
    end)

    it("waits for holders, takes no more than it removes, and nobody overtakes it", function ()
      assert.equal(4, tokens:create(4))
      local holders = {}
      for i = 1, 4 do holders[i] = holder():served() end
      local other = stage.process(name)
      other:begin("return conn:token_semaphore((...)):remove(2, { wait = 60 })", name)
      scene.until_consumers(raw, name, 5)
      local waiters = { holder(100), holder(100) }
      holders[1]:release()
      holders[2]:holds()
      assert.is_false(other:finished())
      assert.is_false(waiters[1]:has() or waiters[2]:has())
      holders[2]:release()
      assert.equal(2, other:finish())
      assert.is_false(waiters[1]:has() or waiters[2]:has())
      holders[3]:release()
      waiters[1]:served()
      holders[4]:release()
      waiters[2]:served()
      until_slots(2, 0, 2)
      for _, waiter in ipairs(waiters) do waiter:release() end
      stands(2)
    end)

    it("removes hundreds", function ()
      assert.equal(600, tokens:create(600))
      stands(600)
      assert.equal(1, tokens:remove(599))
      stands(1)
    end)

    if queue_type == "quorum" then
      broker.operated_it(it, pending)("adds nothing while queues are silent, which say that they are empty", function ()
        local locks, other = {}, stage.connect(nil, { timeout = 2 })
        assert.equal(3, tokens:create(3))
        for i = 1, 3 do locks[i] = stage.take(tokens) end
        for _, queue in ipairs{ scene.permits(name), scene.marks(name) } do broker.suite:suspend_queue(queue) end
        assert.is_nil((other:token_semaphore(name, { queue_type = "quorum" }):resize(3, { timeout = 10 })))
        for _, queue in ipairs{ scene.permits(name), scene.marks(name) } do broker.suite:resume_queue(queue) end
        until_slots(3, 0, 3)
        for i = 1, 3 do locks[i]:release() end
        until_slots(3, 3, 0)
      end)
    end

    it("destroys: both queues are gone, holders know, those who wait find none", function ()
      assert.equal(1, tokens:create(1))
      local conn = stage.connect()
      local lock = stage.take(conn:token_semaphore(name, { queue_type = queue_type }))
      local waiter = stage.process(name)
      waiter:begin("return conn:token_semaphore(...):acquire{ timeout = 60 }", name)
      scene.until_consumers(raw, name, 2)
      assert.is_true(tokens:destroy())
      assert.is_false(raw:exists(scene.permits(name)) or raw:exists(scene.marks(name)))
      until_true(function ()
        conn:timeout()
        return not lock:held()
      end)
      fails("lost", lock:held())
      fails("not_found", waiter:finish())
      fails("not_found", tokens:destroy())
      until_slots(0, 0, 0)
    end)

    describe("repairing", function ()
      it("throws away a permit that somebody doubled", function ()
        assert.equal(3, tokens:create(3))
        local one = holder():served()
        scene.publish(raw, scene.permits(name), one.permit.properties)
        one:release()
        until_slots(3, 4, 0)
        assert.equal(3, tokens:repair())
        stands(3)
        local ids = {}
        for _ = 1, 3 do
          local id = holder():served().properties.message_id
          assert.is_nil(ids[id])
          ids[id] = true
        end
      end)

      it("makes all anew that somebody purged, and throws away what came from elsewhere", function ()
        assert.equal(3, tokens:create(3))
        assert(raw:channel():call{ method = "queue.purge", queue = scene.permits(name) })
        assert.equal(3, tokens:repair())
        stands(3)
        for _ = 1, 5 do scene.publish(raw, scene.permits(name), { message_id = "foreign" }, "body") end
        assert.equal(3, tokens:repair())
        stands(3)
      end)

      it("does not take for lost what others may hold", function ()
        assert.equal(2, tokens:create(2))
        local one, two = holder():served(), holder():served()
        one:acknowledge()
        local message = fails("busy", tokens:repair())
        assert.is_truthy(message:find("2 of 2", 1, true))
        assert.is_truthy(message:find("1 other consumer", 1, true))
        fails("timeout", tokens:repair{ wait = 0.2 })
        assert.is_true(two:holds())
        until_slots(2, 0, 2)
        local other = stage.process(name)
        other:begin("return conn:token_semaphore(...):repair{ wait = 60 }", name)
        scene.until_consumers(raw, name, 2)
        two:release()
        assert.equal(2, other:finish())
        stands(2)
      end)
    end)

    it("adopts what other software has made, once nobody else consumes", function ()
      local queue = scene.permits(name)
      assert(raw:declare(queue, { durable = true, arguments = { ["x-queue-type"] = queue_type } }))
      for _ = 1, 3 do scene.publish(raw, queue, {}, "resource") end
      assert.is_truthy(fails("conflict", tokens:slots()):find(queue, 1, true))
      for _, action in ipairs{ "create", "add", "remove" } do fails("conflict", tokens[action](tokens, 1)) end
      fails("conflict", tokens:repair())
      local one = holder():served()
      assert.equal("resource", one.permit.body)
      fails("busy", tokens:resize(2))
      until_true(function () return raw:message_count(queue) == 2 end)
      assert.is_true(one:holds())
      one:release()
      until_true(function () return raw:message_count(queue) == 3 end)
      assert.equal(2, tokens:resize(2))
      stands(2)
      one = holder():served()
      until_slots(2, 1, 1)
      local lock = stage.take(tokens)
      until_slots(2, 0, 2)
      local waiter = holder()
      assert.is_true(lock:release())
      waiter:served()
      one:release()
      assert(until_true(function () return tokens:try_acquire() end):release())
    end)
  end)
end

it("an administrator of permits finds another connection's own queue by one of its names: squatted", function ()
  for _, queue in ipairs{ scene.permits, scene.marks } do
    local name, squatter = scene.name(), stage.client()
    local tokens = stage.connect():token_semaphore(name)
    assert(squatter:channel():call{ method = "queue.declare", queue = queue(name), exclusive = true })
    for _, action in ipairs{ "create", "add", "remove", "resize" } do
      assert.is_truthy(fails("squatted", tokens[action](tokens, 1)):find(queue(name), 1, true))
    end
    for _, action in ipairs{ "slots", "repair", "destroy" } do fails("squatted", tokens[action](tokens)) end
    assert(squatter:delete(queue(name))) -- it may outlive the connection by a moment
    assert.equal(1, tokens:create(1))
  end
end)
