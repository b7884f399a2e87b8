-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The actions of administrators of a token semaphore, as far as a plan (token_plan_spec) and the stories with faults
-- (token_admin_trouble_spec) do not show them.
local Peer = require "spec.support.peer"
local scene = require "spec.unit.tokens.token_admin_scene"

local PERMITS, MARKS = scene.PERMITS, scene.MARKS
local begin, leaves = scene.begin, scene.leaves

describe("an administrator of permits", function ()
  -- An action of a session of its own, that has the mutex and knows what there is. Returns peer, op, mutex.
  local function begins(action, amount, options, seen)
    local peer = scene.open()
    return peer, begin(peer, action, amount, options, seen)
  end

  -- The same, as it collects permits, with room for so many. Returns peer, op, mutex, permits.
  local function collects(room, ...)
    local peer, op, mutex = begins(...)
    return peer, op, mutex, scene.collects(peer, PERMITS, room):consumes()
  end

  local function gives(peer, op, mutex, result, permits)
    leaves(peer, mutex, permits)
    assert.equal(result, peer:result(op))
  end

  it("reads count, free and held in one round trip, without the mutex; others' permits are a conflict", function ()
    for _, row in ipairs{
      { { permits = 2, marks = 5 }, { 5, 2, 3 } },
      { { permits = 4, marks = 3 }, { 3, 4, 0 } }, -- more are free than there should be
      { { marks = 3 }, { 0, 0, 0 } }, -- another administrator left them
      { { permits = 2 } },
    } do
      local peer = scene.open()
      local op = peer.session:administer_tokens("slots", "images", {})
      scene.looks(peer, row[1])
      peer.holder:silent()
      if row[2] then
        assert.same(row[2], { op:result() })
      else
        peer:failed(op, "conflict", '"images.semaphore"', "resize(n)")
      end
    end
  end)

  it("names the queue whose node is down", function ()
    local peer = scene.open()
    local op = peer.session:administer_tokens("slots", "images", {})
    peer.holder:ignore()
    peer.holder:send{ channel = 1, method = "queue.declare-ok", message_count = 3 }
    peer.holder:send{ channel = 2, method = "channel.close", reply_code = 404, class_id = 50, method_id = 10,
      reply_text = "NOT_FOUND - home node 'rabbit@other' of durable queue 'Q' in vhost '/' is down" }
    peer:failed(op, "unavailable", ('"%s"'):format(MARKS), "is down")
  end)

  local TEN_YEARS = 315360000000
  for _, case in ipairs{
    { "3.11.28", "classic" }, { "3.12.0", "classic", timeout = TEN_YEARS }, { "4.3.0", "classic" },
    { "3.10.8", "quorum" }, { "3.12.0", "quorum", timeout = TEN_YEARS },
    { "4.0.5", "quorum", limit = -1, timeout = TEN_YEARS }, { "4.3.6", "quorum", limit = -1, timeout = TEN_YEARS },
  } do
    it(("creates %s queues by what RabbitMQ %s knows"):format(case[2], case[1]), function ()
      local peer = scene.open(case[1])
      local op, mutex = begin(peer, "create", 1, { queue_type = case[2] }, {})
      scene.tries(peer)
      local declared, arguments = scene.declares(peer, mutex, MARKS)
      assert.same({ ["x-queue-type"] = case[2], ["x-delivery-limit"] = case.limit }, arguments)
      declared()
      peer.prober:barrier()
      scene.publishes_marks(peer, 1)()
      assert.same({ ["x-queue-type"] = case[2], ["x-delivery-limit"] = case.limit,
        ["x-consumer-timeout"] = case.timeout }, select(2, scene.declares(peer, mutex, PERMITS)))
      op:drop()
    end)
  end

  it("removing does not take the pulse's answer for its own, where they share a channel", function ()
    local peer = Peer.open({ heartbeat = 10 }, { channel_max = 3 })
    local lock, claim = peer:acquire("films")
    local op = peer.session:administer_tokens("remove", "images", { wait = 60 }, 1)
    local mutex = peer.holder:claim(scene.MUTEX)
    local release = lock:release()
    peer.holder:delete("films-1-B", claim.channel)
    assert.is_true(peer:result(release))
    peer.holder:grant(mutex)
    scene.looks(peer, { permits = 0, marks = 5, consumers = 1, order = { 2, 1 } })
    local permits = scene.collects(peer, PERMITS, 1):consumes()
    assert.equal(1, permits.channel)
    permits:looks(0, 1)
    local other = peer:acquire "songs"
    permits:keeps_looking(6, 0, 1)
    peer.holder:expect("basic.qos", { channel = 1, prefetch_count = 1 })
    permits:deliver_some(1)
    permits:goes_on(MARKS):consumes()
    permits:asks()
    permits:deliver_some(1)
    local settled = permits:acknowledges(2)
    permits:say{ method = "queue.declare-ok", queue = MARKS, message_count = 0, consumer_count = 1 }
    permits:say{ method = "basic.qos-ok" } -- the pulse's
    peer:pass(0.2)
    peer.holder:silent()
    settled()
    peer.prober:ignore() -- heartbeats
    gives(peer, op, mutex, 4, permits)
    assert.is_true(other:held())
  end)

  it("creating changes nothing where there is a semaphore", function ()
    local peer, op, mutex = begins("create", 5, {}, { permits = 1, marks = 3 })
    leaves(peer, mutex)
    peer:failed(op, "exists", '"images" has 3 permits', "resize(5)")
  end)

  it("removing all deletes both queues while the permits are in hand, and is told so before the answer", function ()
    local peer, op, mutex, permits = collects(2, "remove", 7, {}, { permits = 2, marks = 2, consumers = 1 })
    permits:deliver_some(2)
    permits:asks()
    local deleted = scene.deletes(peer, mutex, PERMITS)
    permits:say{ method = "basic.cancel", consumer_tag = permits.tag, no_wait = true }
    peer.holder:expect("channel.close", { channel = permits.channel })
    deleted()
    scene.deletes(peer, mutex, MARKS)()
    gives(peer, op, mutex, 0)
  end)

  it("resizing says so when permits are missing that nobody is seen to hold", function ()
    local peer, op, mutex = begins("resize", 2, {}, { permits = 0, marks = 2, consumers = 2 })
    gives(peer, op, mutex, 2)
    assert.same({}, peer:news "lacks")
    op, mutex = begin(peer, "resize", 3, {}, { permits = 1, marks = 3 })
    gives(peer, op, mutex, 3)
    assert.equal(1, #peer:news '"images" lacks 2 of 3 permits')
  end)

  -- RabbitMQ says of a quorum queue that does not answer that it is empty and not consumed.
  it("resizing asks a silent count again, for the session's timeout; then it waits until nobody can hold",
    function ()
      local silent = { permits = 0, marks = 0 }
      local peer, op, mutex = begins("resize", 3, {}, silent)
      peer:pass(0.3)
      scene.looks(peer, { permits = 0, marks = 3, consumers = 3 })
      gives(peer, op, mutex, 3)
      op = begin(peer, "resize", 3, {}, silent)
      for _, seconds in ipairs{ 4, 1 } do
        peer:pass(seconds)
        scene.looks(peer, silent)
      end
      scene.tries(peer)
      local permits = scene.collects(peer, PERMITS, 65535):consumes()
      permits:looks(0, -1)
      assert.is_true(permits:keeps_looking(2, 0, -1) > 0)
      op:drop()
    end)

  it("destroying waits for all there are, if some are lost and nobody else consumes", function ()
    local peer, op, mutex, permits = collects(65535, "destroy", nil, { wait = 60 },
      { permits = 1, marks = 2, consumers = 1 })
    permits:deliver_some(1)
    permits:looks(0, 1)
    permits:looks_again(0, 1)
    permits:looks_again(1, 0)
    permits:looks_again(0, 0)
    scene.deletes(peer, mutex, PERMITS)()
    peer.holder:expect("channel.close", { channel = permits.channel })
    scene.deletes(peer, mutex, MARKS)()
    gives(peer, op, mutex, true)
  end)

  describe("repairing", function ()
    local BASE = 2251799813685248 -- in the year 2041

    -- A repair that has begun to collect.
    local function repair(seen) return collects(seen.marks + 1, "repair", nil, {}, seen) end

    local function ends(peer, op, mutex, permits, count)
      permits:returns()()
      gives(peer, op, mutex, count, permits)
    end

    it("takes only ids of ours for ids", function ()
      local same = { { message_id = ("%016x"):format(7) }, { type = "amqplocks.permit" },
        { type = "amqplocks.permit", message_id = "7" }, { type = "amqplocks.permit", message_id = ("A"):rep(16) },
        { type = "amqplocks.permit", message_id = ("0"):rep(16) }, { message_id = "permit" }, {} }
      for _, properties in ipairs(same) do
        local peer, op, mutex, permits = repair{ permits = 2, marks = 2 }
        permits:deliver(properties)
        permits:deliver(properties)
        permits:looks(0, 3)
        ends(peer, op, mutex, permits, 2)
      end
    end)

    -- A holder that gives one back stops consuming first: in between it is neither ready nor is a consumer there.
    it("takes for lost only what stays away though nobody else consumes", function ()
      local peer, op, mutex, permits = repair{ permits = 1, marks = 3 }
      permits:deliver_some(1)
      permits:looks(0, 0)
      permits:keeps_looking(0.45, 0, 0)
      permits:deliver_some(1)
      permits:looks(0, 0)
      local since, looks = peer.now, permits:keeps_looking(3, 0, 0)
      assert.is_true(looks > 0 and peer.now - since >= 0.5 and peer.now - since < 1.5)
      scene.makes_another(peer)
      ends(peer, op, mutex, permits, 3)
    end)

    it("does not believe that there is no surplus while the queue is silent: then not even it is counted", function ()
      local peer, op, mutex, permits = repair{ permits = 1, marks = 1 }
      permits:deliver_some(1)
      permits:looks(0, -1)
      permits:keeps_looking(2, 0, -1)
      peer.holder:silent()
      permits:looks_again(0, 0)
      ends(peer, op, mutex, permits, 1)
    end)

    it("knows nothing of the time that an answer took: a later question must say the same", function ()
      local peer, _, _, permits = repair{ permits = 1, marks = 3 }
      permits:deliver_some(1)
      permits:looks(0, 0)
      peer:live(1, function () return peer.holder:next() ~= "nothing" end)
      peer:pass(0.6) -- longer than it must be alone
      permits:looks(0, 0)
      peer.prober:silent()
      assert.is_true(permits:keeps_looking(3, 0, 0) > 0)
      scene.tries(peer)
    end)

    it("makes one whose numbers are larger than those it has seen, though a clock went back", function ()
      local peer, op, mutex, permits = repair{ permits = 2, marks = 3 }
      permits:deliver(scene.permit(1, { ["x-amqplocks-base"] = BASE, ["x-delivery-count"] = 7 }))
      permits:deliver(scene.permit(2, { ["x-amqplocks-base"] = BASE - 1 }))
      permits:looks(0, 0)
      permits:keeps_looking(3, 0, 0)
      scene.makes_another(peer, BASE + 8)
      ends(peer, op, mutex, permits, 3)
    end)

    it("throws away what comes back while it makes another", function ()
      local peer, op, mutex, permits = repair{ permits = 0, marks = 1 }
      permits:looks(0, 0)
      permits:keeps_looking(2, 0, 0)
      scene.tries(peer)
      peer.prober:barrier()
      local confirm = scene.publishes_permits(peer, 1)
      permits:deliver_some(1)
      permits:deliver_some(1)
      permits:throws(2)
      confirm()
      ends(peer, op, mutex, permits, 1)
    end)

    -- An ack of all would have the broker throw away what it has delivered meanwhile.
    it("acknowledges nothing where it has found nothing", function ()
      local peer, _, _, permits = collects(2, "repair", nil, { queue_type = "quorum" }, { permits = 0, marks = 1 })
      permits:looks(0, 0)
      permits:keeps_looking(2, 0, 0)
      scene.tries(peer)
      peer.prober:barrier()
      peer.holder:expect("basic.cancel", { channel = permits.channel })
      peer.holder:expect("basic.qos", { channel = permits.channel })
    end)

    it("the most permits there can be, without room to see one too many", function ()
      local peer = begins("repair", nil, {}, { permits = 65535, marks = 65535 })
      scene.collects(peer, PERMITS, 65535)
    end)
  end)
end)
