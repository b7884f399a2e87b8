-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The actions of administrators of a token semaphore without faults. Faults are in token_admin_trouble_spec.
local Peer = require "spec.support.peer"
local scene = require "spec.unit.tokens.token_admin_scene"

local PERMITS, MARKS, MUTEX = scene.PERMITS, scene.MARKS, scene.MUTEX
local begin, leaves = scene.begin, scene.leaves

local function news(peer)
  local list = {}
  for _, text in function () return peer.session:news() end do table.insert(list, text) end
  return table.concat(list, "\n")
end

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

  it("takes the mutex, then looks at both queues at once, then acts, then gives the mutex back", function ()
    local peer = scene.open()
    local op = peer.session:administer_tokens("add", "images", {}, 2)
    local mutex = peer.holder:claim(MUTEX)
    peer.prober:silent()
    peer.holder:declared(mutex.channel, MUTEX)
    peer.holder:silent()
    peer.holder:consumed(mutex)
    peer.prober:silent()
    scene.looks(peer, { permits = 1, marks = 3 })
    scene.tries(peer)
    peer.prober:barrier()
    scene.adds(peer, 2)
    assert.is_false(op:done())
    leaves(peer, mutex)
    assert.equal(5, peer:result(op))
  end)

  describe("reading the slots", function ()
    local function read(seen)
      local peer = scene.open()
      local op = peer.session:administer_tokens("slots", "images", {})
      scene.looks(peer, seen)
      peer.holder:silent()
      peer.prober:silent()
      return peer, op
    end

    it("gives count, free and held, in one round trip, without the mutex", function ()
      local _, op = read{ permits = 2, marks = 5 }
      assert.same({ 5, 2, 3 }, { op:result() })
    end)

    it("says that none is held where more are free than there should be", function ()
      local _, op = read{ permits = 4, marks = 3 }
      assert.same({ 3, 4, 0 }, { op:result() })
    end)

    it("gives nought where there is none, though another administrator left marks", function ()
      for _, seen in ipairs{ {}, { marks = 3 } } do
        local _, op = read(seen)
        assert.same({ 0, 0, 0 }, { op:result() })
      end
    end)

    it("finds the permits of other software: conflict", function ()
      local peer, op = read{ permits = 2 }
      peer:failed(op, "conflict", '"images.semaphore"', "resize(n)")
    end)

    it("finds a queue whose node is down: unavailable", function ()
      local peer = scene.open()
      local op = peer.session:administer_tokens("slots", "images", {})
      local one = peer.holder:opened()
      peer.holder:expect("queue.declare", { channel = one })
      local two = peer.holder:opened()
      peer.holder:expect("queue.declare", { channel = two })
      peer.holder:refuse(one, 404, "NOT_FOUND - home node 'rabbit@other' of durable queue 'images.semaphore' "
        .. "in vhost '/' is down or inaccessible", "queue.declare")
      peer.holder:send{ channel = two, method = "queue.declare-ok", queue = MARKS, message_count = 3 }
      peer:failed(op, "unavailable", '"images.semaphore"')
    end)

    it("finds another connection's own queue: squatted; or is refused", function ()
      for code, reply in pairs{ squatted = { 405, "RESOURCE_LOCKED" }, refused = { 403, "ACCESS_REFUSED" } } do
        local peer = scene.open()
        local op = peer.session:administer_tokens("slots", "images", {})
        local one = peer.holder:opened()
        peer.holder:expect("queue.declare", { channel = one })
        local two = peer.holder:opened()
        peer.holder:expect("queue.declare", { channel = two })
        peer.holder:refuse(two, reply[1], reply[2], "queue.declare")
        peer:failed(op, code, '"images.semaphore-count"', reply[2])
        peer.holder:expect("channel.close", { channel = one })
      end
    end)
  end)

  describe("creating", function ()
    it("publishes the marks before there is a queue for permits", function ()
      local peer, op, mutex = begins("create", 2, {}, {})
      scene.tries(peer)
      local arguments, declared = scene.declares(peer, mutex, MARKS)
      assert.same({ ["x-queue-type"] = "classic" }, arguments)
      peer.prober:silent()
      declared()
      peer.prober:barrier()
      local confirm = scene.publishes_marks(peer, 2)
      peer.holder:silent()
      confirm()
      arguments, declared = scene.declares(peer, mutex, PERMITS)
      assert.same({ ["x-queue-type"] = "classic" }, arguments)
      peer.prober:silent()
      declared()
      peer.prober:barrier()
      confirm = scene.publishes_permits(peer, 2)
      peer.holder:silent()
      confirm()
      leaves(peer, mutex)
      assert.equal(2, peer:result(op))
    end)

    it("publishes hundreds, no more than 512 ahead of their answers", function ()
      local peer, op, mutex = begins("add", 600, {}, { permits = 0, marks = 0 })
      scene.tries(peer)
      peer.prober:barrier()
      scene.publishes_marks(peer, 512)()
      scene.publishes_marks(peer, 88)()
      scene.publishes_permits(peer, 512)()
      scene.publishes_permits(peer, 88)()
      leaves(peer, mutex)
      assert.equal(600, peer:result(op))
    end)

    local TEN_YEARS = 315360000000
    for _, case in ipairs{
      { "3.10.8", "classic" }, { "3.11.28", "classic" }, { "3.12.0", "classic", timeout = TEN_YEARS },
      { "4.2.5", "classic", timeout = TEN_YEARS }, { "4.3.0", "classic" },
      { "3.10.8", "quorum" }, { "3.12.0", "quorum", timeout = TEN_YEARS },
      { "4.0.5", "quorum", limit = -1, timeout = TEN_YEARS }, { "4.3.6", "quorum", limit = -1, timeout = TEN_YEARS },
    } do
      it(("as %s queues, by what RabbitMQ %s knows"):format(case[2], case[1]), function ()
        local peer = scene.open(case[1])
        local op, mutex = begin(peer, "create", 1, { queue_type = case[2] }, {})
        scene.tries(peer)
        local arguments, declared = scene.declares(peer, mutex, MARKS)
        assert.same({ ["x-queue-type"] = case[2], ["x-delivery-limit"] = case.limit }, arguments)
        declared()
        peer.prober:barrier()
        scene.publishes_marks(peer, 1)()
        assert.same({ ["x-queue-type"] = case[2], ["x-delivery-limit"] = case.limit,
          ["x-consumer-timeout"] = case.timeout }, (scene.declares(peer, mutex, PERMITS)))
        op:drop()
      end)
    end

    it("makes the marks anew that another administrator left", function ()
      for _, action in ipairs{ "create", "resize" } do
        local peer, op, mutex = begins(action, 2, {}, { marks = 5 })
        scene.tries(peer)
        scene.deletes(peer, mutex, MARKS)()
        scene.makes(peer, mutex, 2)
        leaves(peer, mutex)
        assert.equal(2, peer:result(op))
      end
    end)

    it("changes nothing where there is a semaphore", function ()
      local peer, op, mutex = begins("create", 5, {}, { permits = 1, marks = 3 })
      leaves(peer, mutex)
      peer:failed(op, "exists", '"images" has 3 permits', "resize(5)")
    end)
  end)

  describe("removing", function ()
    it("takes permits before everybody else, then as many marks, and throws both away by one frame", function ()
      local peer, op, mutex = begins("remove", 2, {}, { permits = 3, marks = 5, consumers = 2 })
      local one = scene.collects(peer, PERMITS, 2):consumes()
      one:asks()
      one:deliver_some(1)
      peer.holder:silent()
      one:deliver_some(1)
      one:goes_on(MARKS)
      one:say{ method = "queue.declare-ok", queue = PERMITS, message_count = 1, consumer_count = 3 }
      peer.holder:silent()
      one:consumes()
      one:deliver_some(1)
      one:looks(1, 0)
      peer.holder:silent()
      one:deliver_some(1)
      one:acknowledges(4)()
      leaves(peer, mutex, one)
      peer.prober:silent()
      assert.equal(3, peer:result(op))
    end)

    it("does not take the pulse's answer for its own, where channels are so short that they share one", function ()
      local peer = Peer.open(nil, { heartbeat = 10 }, { channel_max = 3 })
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
      leaves(peer, mutex, permits)
      assert.equal(4, peer:result(op))
      assert.is_true(other:held())
    end)

    it("waits for those that lie ready and have not come yet", function ()
      local peer, op, mutex, permits = collects(2, "remove", 2, {}, { permits = 2, marks = 5, consumers = 3 })
      permits:looks(2, 3)
      peer.holder:silent()
      permits:deliver_some(1)
      permits:looks(1, 3)
      permits:looks_again(1, 3)
      permits:deliver_some(1)
      permits:takes_marks()
      leaves(peer, mutex, permits)
      assert.equal(3, peer:result(op))
    end)

    it("gives all back if not enough are free: busy", function ()
      local peer, op, mutex, permits = collects(3, "remove", 3, {}, { permits = 2, marks = 5, consumers = 3 })
      permits:deliver_some(2)
      permits:looks(0, 3)
      local settled = permits:returns()
      assert.is_false(op:done())
      settled()
      leaves(peer, mutex)
      local message = peer:failed(op, "busy", "2 of 3 permits", '"images"', "nothing was removed")
      assert.is_nil(message:find("finish", 1, true))
    end)

    it("looks for permits that come by the answer to the look", function ()
      local peer, op, mutex, permits = collects(1, "remove", 1, {}, { permits = 1, marks = 5, consumers = 3 })
      permits:asks()
      permits:say{ method = "queue.declare-ok", queue = PERMITS, message_count = 0, consumer_count = 4 }
      peer.holder:expect("basic.qos")
      permits:deliver_some(1)
      permits:goes_on(MARKS)
      permits:say{ method = "basic.qos-ok" }
      peer.holder:silent()
      permits:consumes()
      permits:asks()
      permits:deliver_some(1)
      local settled = permits:acknowledges(2)
      permits:say{ method = "queue.declare-ok", queue = MARKS, message_count = 0, consumer_count = 1 }
      settled()
      leaves(peer, mutex, permits)
      assert.equal(4, peer:result(op))
    end)

    it("is not late because it leaves what it acknowledged the time to arrive", function ()
      local peer, op, mutex = begins("remove", 2, { timeout = 0.05 }, { permits = 2, marks = 3 })
      leaves(peer, mutex, scene.takes(peer, 2))
      assert.equal(1, peer:result(op))
    end)

    it("waits for holders if told to", function ()
      local peer, op, mutex, permits = collects(2, "remove", 2, { wait = 60 },
        { permits = 1, marks = 2 + 3, consumers = 4 })
      permits:deliver_some(1)
      permits:looks(0, 4)
      permits:keeps_looking(25, 0, 4)
      permits:deliver_some(1)
      permits:takes_marks()
      leaves(peer, mutex, permits)
      assert.equal(3, peer:result(op))
    end)

    it("waits for holders no longer than told, and gives all back: timeout", function ()
      local peer, op, mutex, permits = collects(2, "remove", 2, { wait = 3, timeout = 1 },
        { permits = 1, marks = 5, consumers = 4 })
      permits:deliver_some(1)
      permits:looks(0, 4)
      permits:keeps_looking(2.9, 0, 4)
      peer.holder:silent()
      permits:keeps_looking(1, 0, 4)
      permits:returns()()
      leaves(peer, mutex)
      peer:failed(op, "timeout", "1 of 2 permits", "nothing was removed")
    end)

    it("all of them, deletes both queues once they are in hand", function ()
      for action, amount in pairs{ remove = 7, resize = 0 } do
        local peer, op, mutex, permits = collects(2, action, amount, {}, { permits = 2, marks = 2, consumers = 1 })
        permits:deliver_some(2)
        permits:asks()
        local deleted = scene.deletes(peer, mutex, PERMITS)
        permits:say{ method = "basic.cancel", consumer_tag = permits.tag, no_wait = true }
        peer.holder:expect("channel.close", { channel = permits.channel })
        deleted()
        scene.deletes(peer, mutex, MARKS)()
        leaves(peer, mutex)
        assert.equal(0, peer:result(op))
      end
    end)

    it("all of them, keeps them while it deletes the queue, told of that or not", function ()
      local peer, op, mutex, permits = collects(1, "remove", 1, {}, { permits = 1, marks = 1 })
      permits:deliver_some(1)
      permits:asks()
      permits:deletes_all(mutex)
      leaves(peer, mutex)
      assert.equal(0, peer:result(op))
    end)

    it("all of them, gives all back if one is held", function ()
      local peer, op, mutex, permits = collects(2, "resize", 0, {}, { permits = 1, marks = 2, consumers = 1 })
      permits:deliver_some(1)
      permits:looks(0, 1)
      permits:returns()()
      leaves(peer, mutex)
      peer:failed(op, "busy", "1 of 2 permits")
    end)
  end)

  describe("resizing", function ()
    it("creates", function ()
      local peer, op, mutex = begins("resize", 1, {}, {})
      scene.tries(peer)
      scene.makes(peer, mutex, 1)
      leaves(peer, mutex)
      assert.equal(1, peer:result(op))
    end)

    it("adds, removes, or leaves it as it is", function ()
      local peer, op, mutex = begins("resize", 3, {}, { permits = 0, marks = 2, consumers = 2 })
      scene.tries(peer)
      peer.prober:barrier()
      scene.adds(peer, 1)
      leaves(peer, mutex)
      assert.equal(3, peer:result(op))
      op, mutex = begin(peer, "resize", 2, {}, { permits = 1, marks = 3, consumers = 2 })
      leaves(peer, mutex, scene.takes(peer, 1))
      assert.equal(2, peer:result(op))
      op, mutex = begin(peer, "resize", 2, {}, { permits = 0, marks = 2, consumers = 2 })
      leaves(peer, mutex)
      assert.equal(2, peer:result(op))
      assert.is_nil(news(peer):find("lacks", 1, true))
    end)

    it("says so when permits are missing that nobody is seen to hold", function ()
      local peer, op, mutex = begins("resize", 3, {}, { permits = 1, marks = 3 })
      leaves(peer, mutex)
      assert.equal(3, peer:result(op))
      assert.is_truthy(news(peer):find('"images" lacks 2 of 3 permits', 1, true))
    end)

    it("to nothing, where there is nothing, or only marks", function ()
      local peer, op, mutex = begins("resize", 0, {}, {})
      leaves(peer, mutex)
      assert.equal(0, peer:result(op))
      op, mutex = begin(peer, "resize", 0, {}, { marks = 3 })
      scene.deletes(peer, mutex, MARKS)()
      leaves(peer, mutex)
      assert.equal(0, peer:result(op))
    end)

    it("to more than there can be, is told so", function ()
      for action, case in pairs{ add = { 2, 65534 }, repair = { nil, 65536 } } do
        local peer, op, mutex = begins(action, case[1], {}, { permits = 0, marks = case[2] })
        leaves(peer, mutex)
        peer:failed(op, "limit", "65536", "65535")
      end
    end)
  end)

  it("builds on no count that cannot be true", function ()
    for action, amount in pairs{ add = 1, remove = 1, resize = 3 } do
      local peer, op, mutex = begins(action, amount, {}, { permits = 3, marks = 2 })
      leaves(peer, mutex)
      peer:failed(op, "conflict", '"images" has 3 free permits', "the 2", "repair()")
    end
  end)

  describe("destroying", function ()
    it("deletes both queues, permits first, whoever holds", function ()
      local peer, op, mutex = begins("destroy", nil, {}, { permits = 1, marks = 3, consumers = 2 })
      scene.deletes(peer, mutex, PERMITS)()
      scene.deletes(peer, mutex, MARKS)()
      leaves(peer, mutex)
      assert.is_true(peer:result(op))
    end)

    it("deletes what is there of it", function ()
      for queue, seen in pairs{ [PERMITS] = { permits = 1 }, [MARKS] = { marks = 1 } } do
        local peer, op, mutex = begins("destroy", nil, { wait = seen.marks and 3 or 0 }, seen)
        scene.deletes(peer, mutex, queue)()
        leaves(peer, mutex)
        assert.is_true(peer:result(op))
      end
    end)

    it("waits for all permits if told to", function ()
      local peer, op, mutex, permits = collects(65535, "destroy", nil, { wait = 60 },
        { permits = 1, marks = 2, consumers = 2 })
      permits:deliver_some(1)
      permits:looks(0, 2)
      permits:deliver_some(1)
      permits:looks(0, 2)
      permits:deletes_all(mutex)
      leaves(peer, mutex)
      assert.is_true(peer:result(op))
    end)

    it("waits for all there are, if some are lost and nobody else consumes", function ()
      for _, marks in ipairs{ 2, false } do
        local peer, op, mutex, permits = collects(65535, "destroy", nil, { wait = 60 },
          { permits = 1, marks = marks or nil, consumers = 1 })
        permits:deliver_some(1)
        permits:looks(0, 1)
        permits:looks_again(0, 1)
        permits:looks_again(1, 0)
        permits:looks_again(0, 0)
        permits:deletes_all(mutex, not marks)
        leaves(peer, mutex)
        assert.is_true(peer:result(op))
      end
    end)

    it("deletes nothing if not all came back: timeout", function ()
      local peer, op, mutex, permits = collects(65535, "destroy", nil, { wait = 2 },
        { permits = 1, marks = 2, consumers = 2 })
      permits:deliver_some(1)
      permits:looks(0, 2)
      permits:keeps_looking(1.9, 0, 2)
      peer.holder:silent()
      permits:keeps_looking(1, 0, 2)
      permits:returns()()
      leaves(peer, mutex)
      peer:failed(op, "timeout", "1 of 2 permits", "nothing was removed")
    end)
  end)

  describe("repairing", function ()
    -- A repair that has begun to collect.
    local function repair(seen, options)
      return collects(seen.marks + 1, "repair", nil, options, seen)
    end

    local function ends(peer, op, mutex, permits, count)
      permits:returns()()
      leaves(peer, mutex, permits)
      assert.equal(count, peer:result(op))
    end

    it("finds all permits free, and gives them back", function ()
      local peer, op, mutex, permits = repair{ permits = 3, marks = 3, consumers = 4 }
      permits:deliver_some(3)
      permits:looks(0, 4)
      ends(peer, op, mutex, permits, 3)
    end)

    it("takes more than lie ready at first", function ()
      local peer, op, mutex, permits = repair{ permits = 3, marks = 3, consumers = 4 }
      permits:deliver_some(1)
      permits:looks(2, 4)
      permits:deliver_some(1)
      permits:looks(0, 4)
      permits:returns()()
      leaves(peer, mutex)
      peer:failed(op, "busy", "1 of 3 permits", "4 other consumers")
    end)

    it("throws away what is one too many", function ()
      local peer, op, mutex, permits = repair{ permits = 4, marks = 2, consumers = 1 }
      permits:deliver_some(2)
      permits:asks()
      permits:deliver_some(1)
      permits:throws(3)
      permits:sees(1, 1)
      permits:deliver(nil)
      permits:throws(4)
      permits:looks(0, 1)
      ends(peer, op, mutex, permits, 2)
    end)

    it("throws away all, where there are no marks", function ()
      local peer, op, mutex, permits = repair{ permits = 1, marks = 0 }
      permits:deliver_some(1)
      permits:asks()
      permits:throws(1)
      permits:sees(0, 0)
      ends(peer, op, mutex, permits, 0)
    end)

    it("throws away the second with the same id, and makes another once one is certainly missing", function ()
      local peer, op, mutex, permits = repair{ permits = 3, marks = 3 }
      permits:deliver(scene.permit(7))
      permits:deliver(scene.permit(8))
      permits:deliver(scene.permit(7))
      permits:asks()
      permits:throws(3)
      permits:sees(0, 0)
      permits:keeps_looking(2, 0, 0)
      scene.makes_another(peer)
      ends(peer, op, mutex, permits, 3)
    end)

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

    -- Whoever gives one back stops consuming first: in between it is neither ready nor is a consumer there.
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

    it("makes one whose numbers are larger than those it has seen, though a clock went back", function ()
      local peer, op, mutex, permits = repair{ permits = 2, marks = 3 }
      local base = 2251799813685248 -- in the year 2041
      permits:deliver(scene.permit(1, { ["x-amqplocks-base"] = base, ["x-delivery-count"] = 7 }))
      permits:deliver(scene.permit(2, { ["x-amqplocks-base"] = base - 1 }))
      permits:looks(0, 0)
      permits:keeps_looking(3, 0, 0)
      scene.makes_another(peer, base + 8)
      ends(peer, op, mutex, permits, 3)
    end)

    it("gives all permits of a quorum queue another base, and leaves each its id", function ()
      local peer, op, mutex, permits = repair({ permits = 3, marks = 4 }, { queue_type = "quorum" })
      local base = 2251799813685248 -- in the year 2041
      permits:deliver(scene.permit(7, { ["x-amqplocks-base"] = base, ["x-death"] = "1" })) -- published again
      permits:deliver(scene.permit(8))
      permits:deliver{ message_id = "foreign" }
      permits:looks(0, 0)
      permits:keeps_looking(3, 0, 0)
      scene.tries(peer)
      peer.prober:barrier()
      permits:acknowledges(3)()
      peer.prober:silent()
      permits:lingers()
      local confirm, made = scene.publishes_permits(peer, 4, base + 1)
      local ids = {}
      for _, permit in ipairs(made) do ids[permit.id] = true end
      assert.is_true(ids[("%016x"):format(7)] and ids[("%016x"):format(8)])
      confirm()
      leaves(peer, mutex)
      assert.equal(4, peer:result(op))
    end)

    it("changes nothing at a quorum queue, either, while others hold permits", function ()
      local peer, op, mutex, permits = repair({ permits = 1, marks = 2, consumers = 1 }, { queue_type = "quorum" })
      permits:deliver_some(1)
      permits:looks(0, 1)
      permits:returns()()
      leaves(peer, mutex)
      peer:failed(op, "busy", "1 of 2 permits")
    end)

    it("makes none as long as others consume, and waits for them if told to", function ()
      local peer, op, mutex, permits = repair({ permits = 1, marks = 2, consumers = 1 }, { wait = 10 })
      permits:deliver_some(1)
      permits:looks(0, 1)
      permits:keeps_looking(9.5, 0, 1)
      permits:keeps_looking(2, 0, 0)
      scene.makes_another(peer)
      ends(peer, op, mutex, permits, 2)
    end)

    it("makes none as long as others consume: timeout", function ()
      local peer, op, mutex, permits = repair({ permits = 1, marks = 3, consumers = 1 }, { wait = 10 })
      permits:deliver_some(1)
      permits:looks(0, 1)
      permits:keeps_looking(9.5, 0, 1)
      peer.holder:silent()
      permits:keeps_looking(1, 0, 2)
      permits:returns()()
      leaves(peer, mutex)
      peer.prober:silent()
      peer:failed(op, "timeout", "2 of 3 permits", "2 other consumers")
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

    it("throws away nothing that comes late", function ()
      local peer, op, mutex, permits = repair{ permits = 2, marks = 2 }
      permits:deliver_some(2)
      permits:looks(0, 4)
      local settled = permits:returns()
      permits:deliver_some(1)
      peer.holder:silent()
      settled()
      leaves(peer, mutex)
      assert.equal(2, peer:result(op))
    end)

    it("the most permits there can be, without room to see one too many", function ()
      local peer = begins("repair", nil, {}, { permits = 65535, marks = 65535 })
      scene.collects(peer, PERMITS, 65535)
    end)
  end)

  describe("where other software has made it", function ()
    for action, amount in pairs{ create = 3, add = 1, remove = 1, repair = 0 } do
      it("does not " .. action, function ()
        local peer, op, mutex = begins(action, amount, {}, { permits = 3 })
        leaves(peer, mutex)
        peer:failed(op, "conflict", '"images.semaphore"', "resize(n)")
      end)
    end

    local function adopt(count, options)
      local peer, op, mutex = begins("resize", count, options, { permits = 3, consumers = 1 })
      if count > 0 then scene.tries(peer) end
      local permits = scene.collects(peer, PERMITS, 65535):consumes()
      for _ = 1, 3 do permits:deliver() end
      return peer, op, mutex, permits
    end

    it("resizes by replacing its permits, once nobody else consumes for a while", function ()
      local peer, op, mutex, permits = adopt(2, { wait = 5 })
      permits:looks(0, 1)
      permits:keeps_looking(4, 0, 1)
      peer.holder:silent()
      assert.is_true(permits:keeps_looking(4, 0, 0) > 2)
      permits:acknowledges(3)()
      local _, declared = scene.declares(peer, mutex, MARKS)
      declared()
      peer.prober:barrier()
      scene.adds(peer, 2)
      leaves(peer, mutex, permits)
      assert.equal(2, peer:result(op))
    end)

    it("leaves it as it is while others consume", function ()
      local peer, op, mutex, permits = adopt(2)
      permits:looks(0, 1)
      permits:returns()()
      leaves(peer, mutex)
      peer:failed(op, "busy", '"images.semaphore" has 1 other consumer')
    end)

    it("resizes to nothing by deleting it, once nobody else consumes for a while", function ()
      local peer, op, mutex, permits = adopt(0)
      permits:looks(0, 0)
      permits:keeps_looking(4, 0, 0)
      permits:deletes_all(mutex, true)
      leaves(peer, mutex)
      assert.equal(0, peer:result(op))
    end)
  end)

  describe("where there is none", function ()
    for action, amount in pairs{ add = 1, remove = 1, destroy = 0, repair = 0 } do
      it("does not " .. action, function ()
        for _, seen in ipairs{ {}, action ~= "destroy" and { marks = 2 } or nil } do
          local peer, op, mutex = begins(action, amount, {}, seen)
          leaves(peer, mutex)
          peer:failed(op, "not_found", '"images"')
        end
      end)
    end
  end)
end)
