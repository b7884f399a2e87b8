-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"
local scene = require "spec.unit.admin.admin_scene"

local unpack = table.unpack or unpack

local slots, begin, deletes, declares, leaves = scene.slots, scene.begin, scene.deletes, scene.declares, scene.leaves

-- The broker tells that the queue of a claim was deleted by somebody else.
local function cancel(peer, claim)
  peer.holder:send{ channel = claim.channel, method = "basic.cancel", consumer_tag = claim.tag, no_wait = true }
end

describe("an administrator in trouble", function ()
  local peer

  local function open(settings) peer = Peer.open(nil, settings) end

  before_each(function () open() end)

  local function fails(...) return scene.fails(peer, ...) end

  -- Loses the mutex now: the channel is closed, nothing else is written, and both links are silent from then on.
  local function loses(op, mutex, ...)
    cancel(peer, mutex)
    peer.holder:expect("channel.close", { channel = mutex.channel })
    local message = peer:failed(op, "lost", 'the administration mutex of "images"', "but not by this client", ...)
    peer.holder:ignore()
    peer.prober:ignore()
    peer.holder:send{ channel = mutex.channel, method = "channel.close-ok" }
    peer:pass(1)
    peer.holder:silent()
    peer.prober:silent()
    return message
  end

  describe("losing the mutex", function ()
    it("while passing the barrier", function ()
      local op, mutex = scene.starts(peer, "create", 2)
      peer.holder:grant(mutex)
      assert.is_nil(loses(op, mutex):find("resize", 1, true))
    end)

    it("or the prober, while passing the barrier", function ()
      local op, mutex = scene.starts(peer, "create", 2)
      peer.holder:grant(mutex)
      peer.prober:down("timed out")
      peer:failed(op, "unreachable", "timed out")
      leaves(peer, mutex)
    end)

    it("or the prober, before the barrier", function ()
      local op, mutex = scene.starts(peer, "create", 2)
      peer.prober:down("timed out")
      peer.holder:grant(mutex)
      peer:failed(op, "unreachable", "timed out")
      leaves(peer, mutex)
    end)

    it("while counting", function ()
      local op, mutex = scene.starts(peer, "create", 2)
      peer.holder:grant(mutex)
      peer.prober:barrier()
      assert.is_nil(loses(op, mutex):find("resize", 1, true))
    end)

    it("while looking at what is to be deleted", function ()
      local op, mutex = begin(peer, "remove", 1, {}, slots(1, 2, 3))
      peer.holder:opened()
      peer.holder:expect("queue.declare", { queue = "images-3-A", passive = true })
      loses(op, mutex, "resize(2) finishes")
    end)

    it("between two deletes", function ()
      local op, mutex = begin(peer, "remove", 2, {}, slots(1, 2, 3))
      scene.checked(peer, slots(3, 2))
      peer.holder:delete("images-3-A")
      peer.holder:expect("queue.delete", { queue = "images-2-A" })
      loses(op, mutex, "resize(1) finishes")
    end)

    it("between declares", function ()
      local op, mutex = begin(peer, "create", 20, {}, {})
      scene.finds_bell(peer, 0)
      for _ = 1, 16 do peer.holder:expect("queue.declare") end
      loses(op, mutex, "resize(20) finishes")
    end)

    it("with the connection", function ()
      local op = begin(peer, "create", 2, {}, {})
      peer.holder:down()
      peer:failed(op, "lost", "connection reset by peer", "resize(2) finishes")
      peer.prober:silent()
    end)
  end)

  describe("refused", function ()
    local cases = {
      { 406, "PRECONDITION_FAILED - inequivalent arg 'x-max-length'", "conflict" },
      { 406, "PRECONDITION_FAILED - cannot declare queue: queue limit in vhost '/' (1) is reached", "limit" },
      { 403, "ACCESS_REFUSED - configure access refused", "refused" },
      { 405, "RESOURCE_LOCKED - cannot obtain exclusive access", "squatted" },
      { 541, "INTERNAL_ERROR", "unreachable" },
    }
    for _, case in ipairs(cases) do
      local reply, text, code = unpack(case)
      it(("a declare with %d as %s, the queue named, the mutex's name freed"):format(reply, code), function ()
        local op, mutex = begin(peer, "create", 2, {}, {})
        scene.finds_bell(peer, 0)
        peer.holder:expect("queue.declare", { queue = "images-1-A" })
        peer.holder:expect("queue.declare", { queue = "images-2-A" })
        peer.holder:declared(mutex.channel, "images-1-A")
        peer.holder:refuse(mutex.channel, reply, text, "queue.declare")
        peer:failed(op, code, 'queue "images-2-A": ' .. text, "resize(2) finishes")
        peer.holder:delete("images-admin")
        peer.session:administer("resize", "images", {}, 2)
        peer.holder:claim("images-admin")
      end)

      it(("a delete with %d as %s, the queue named"):format(reply, code), function ()
        local op, mutex = begin(peer, "remove", 2, {}, slots(1, 2, 3))
        scene.checked(peer, slots(3, 2))
        peer.holder:delete("images-3-A")
        peer.holder:expect("queue.delete", { queue = "images-2-A" })
        peer.holder:refuse(mutex.channel, reply, text, "queue.delete")
        peer:failed(op, code, 'queue "images-2-A": ' .. text, "resize(1) finishes")
      end)
    end

    it("a declare in a gap, and names that queue", function ()
      local op, mutex = begin(peer, "repair", nil, {}, slots(1, 3, 4, 5))
      scene.finds_bell(peer, 0)
      peer.holder:expect("queue.declare", { queue = "images-2-A" })
      peer.holder:refuse(mutex.channel, 403, "ACCESS_REFUSED", "queue.declare")
      peer:failed(op, "refused", 'queue "images-2-A"')
    end)

    it("the mutex itself", function ()
      local op, mutex = scene.starts(peer, "create", 2)
      peer.holder:refuse(mutex.channel, 403, "ACCESS_REFUSED - configure access refused", "queue.declare")
      peer:failed(op, "refused", "ACCESS_REFUSED")
      peer.holder:silent()
    end)

    it("the barrier, and gives the mutex back", function ()
      local op, mutex = scene.starts(peer, "create", 2)
      peer.holder:grant(mutex)
      local channel = peer.prober:opened()
      peer.prober:expect("queue.declare")
      peer.prober:expect("queue.delete")
      peer.prober:refuse(channel, 403, "ACCESS_REFUSED", "queue.declare")
      peer:failed(op, "refused", "ACCESS_REFUSED")
      leaves(peer, mutex)
    end)
  end)

  describe("finding another administrator", function ()
    -- The mutex is another's; returns op after the first try.
    local function late(options)
      local op = peer.session:administer("create", "images", options or {}, 1)
      local mutex = peer.holder:claim("images-admin")
      peer.holder:refuse(mutex.channel, 405, "RESOURCE_LOCKED", "queue.declare")
      local channel = peer.holder:opened() -- is it a lock at all?
      peer.holder:expect("queue.declare", { queue = "images-admin", passive = true, channel = channel })
      peer.holder:refuse(channel, 405, "RESOURCE_LOCKED", "queue.declare")
      peer.holder:silent()
      return op
    end

    it("tries again after a few milliseconds, and again", function ()
      local op = late()
      peer:pass(0.005)
      local mutex = peer.holder:claim("images-admin")
      peer.holder:refuse(mutex.channel, 405, "RESOURCE_LOCKED", "queue.declare")
      peer:pass(0.01)
      peer.holder:grant(peer.holder:claim("images-admin"))
      peer.prober:barrier()
      assert.is_false(op:done())
    end)

    it("looks seldom in the end, and gives up at its deadline", function ()
      local op, looks = late({ timeout = 3 }), 0
      peer:live(3, function ()
        if peer.holder:next() ~= "channel.open" then return end
        local mutex = peer.holder:claim("images-admin")
        peer.holder:refuse(mutex.channel, 405, "RESOURCE_LOCKED", "queue.declare")
        looks = looks + 1
      end)
      assert.is_true(looks >= 15 and looks <= 40, looks .. " looks")
      peer:failed(op, "timeout", 'another administrator was at work on "images" for all of 3 s')
      assert.same({ "nothing", "nothing" }, { peer.holder:next(), peer.prober:next() })
    end)

    it("does not blame one that nobody has seen, when the broker says nothing", function ()
      local op = peer.session:administer("create", "images", { timeout = 2 }, 1)
      peer.holder:claim("images-admin")
      peer:live(2)
      peer:failed(op, "timeout", 'create of "images" took longer than 2 s')
    end)

    it("is told when the holder is lost while it waits", function ()
      local op = late()
      peer.holder:down("timed out")
      peer:failed(op, "unreachable", "timed out")
    end)

    it("in its own session, waits without asking the broker", function ()
      local op, mutex = begin(peer, "create", 1, {}, {})
      local second = peer.session:administer("add", "images", {}, 1)
      declares(peer, mutex, slots(1), false)
      peer:pass(1)
      peer.holder:expect("queue.delete", { queue = "images-admin" })
      peer:pass(1)
      peer.holder:silent()
      peer.holder:deleted(mutex.channel)
      assert.equal(1, peer:result(op))
      peer:pass(1)
      local again = peer.holder:claim("images-admin")
      assert.are_not.equal(mutex.tag, again.tag)
      assert.is_false(second:done())
    end)
  end)

  describe("out of time", function ()
    it("in the middle of deleting, says so, and gives the mutex back", function ()
      local op = begin(peer, "remove", 2, { timeout = 2 }, slots(1, 2, 3))
      scene.checked(peer, slots(3, 2))
      peer.holder:expect("queue.delete", { queue = "images-3-A" })
      peer:pass(2)
      peer:failed(op, "timeout", 'remove of "images" took longer than 2 s', "resize(1) finishes")
      peer.holder:expect("queue.delete", { queue = "images-admin" })
      peer.holder:silent()
    end)

    it("because the broker does not answer", function ()
      local op, mutex = scene.starts(peer, "create", 1)
      peer:pass(4.9)
      assert.is_false(op:done())
      peer:pass(0.1)
      peer:failed(op, "unreachable", "did not answer within 5 s")
      peer.holder:expect("queue.delete", { queue = "images-admin", channel = mutex.channel })
    end)
  end)

  describe("abandoned", function ()
    it("while deleting, gives the mutex back and deletes no more", function ()
      local op, mutex = begin(peer, "remove", 2, {}, slots(1, 2, 3))
      scene.checked(peer, slots(3, 2))
      peer.holder:expect("queue.delete", { queue = "images-3-A" })
      op:drop()
      peer.holder:expect("queue.delete", { queue = "images-admin", channel = mutex.channel })
      peer.holder:silent()
    end)

    it("while deleting, keeps the mutex's name until the mutex itself is gone", function ()
      local op, mutex = begin(peer, "remove", 2, {}, slots(1, 2, 3))
      scene.checked(peer, slots(3, 2))
      peer.holder:expect("queue.delete", { queue = "images-3-A" })
      op:drop()
      peer.holder:expect("queue.delete", { queue = "images-admin", channel = mutex.channel })
      peer.session:administer("resize", "images", {}, 1)
      peer.holder:deleted(mutex.channel)
      peer:pass(1)
      peer.holder:silent()
      peer.holder:deleted(mutex.channel)
      peer:pass(1)
      peer.holder:claim("images-admin")
    end)

    it("while declaring, lets late answers come", function ()
      local op, mutex = begin(peer, "create", 2, {}, {})
      scene.finds_bell(peer, 0)
      peer.holder:expect("queue.declare")
      peer.holder:expect("queue.declare")
      op:drop()
      peer.holder:declared(mutex.channel, "images-1-A")
      peer.holder:declared(mutex.channel, "images-2-A")
      leaves(peer, mutex)
      peer.session:administer("resize", "images", {}, 1)
      peer.holder:claim("images-admin")
    end)

    it("before it has the mutex, gives it back as soon as it comes", function ()
      local op, mutex = scene.starts(peer, "create", 2)
      op:drop()
      peer.holder:expect("queue.delete", { queue = "images-admin", channel = mutex.channel })
      peer.holder:grant(mutex)
      peer.holder:silent()
      peer.holder:deleted(mutex.channel)
      peer.prober:silent()
    end)
  end)

  it("is not shaken by answers to what it did not ask", function ()
    for _, exists in ipairs{ {}, slots(1, 2, 3) } do
      open()
      local op, mutex = scene.starts(peer, "resize", 1)
      peer.holder:grant(mutex)
      peer.holder:declared(mutex.channel, "images-1-A")
      peer.holder:deleted(mutex.channel)
      peer.prober:barrier()
      scene.survey(peer, exists)
      peer.holder:declared(mutex.channel, "images-1-A")
      peer.holder:declared(mutex.channel, "images-1-A")
      peer.holder:deleted(mutex.channel)
      peer.holder:deleted(mutex.channel)
      op:drop()
    end
  end)

  it("has no channel left for the mutex", function ()
    peer = Peer.open(nil, nil, { channel_max = 1 })
    local _ = peer:acquire("other")
    local op = peer.session:administer("create", "images", {}, 2)
    peer:failed(op, "limit", "all 1 channels")
    peer.holder:silent()
  end)

  it("has no channel left to ask for the end of the row", function ()
    peer = Peer.open(nil, nil, { channel_max = 2 })
    local _ = peer:acquire("other")
    local op, mutex = scene.starts(peer, "remove", 1)
    peer.holder:grant(mutex)
    peer.prober:barrier()
    peer.prober:look(slots(1, 2))
    peer.prober:look{}
    fails(op, mutex, "limit", "no channel is left")
  end)

  it("can act again at once after a refusal", function ()
    local op, mutex = begin(peer, "create", 1, {}, slots(1))
    fails(op, mutex, "exists")
    op = peer.session:administer("remove", "images", {}, 1)
    local again = peer.holder:claim("images-admin")
    assert.equal(mutex.channel, again.channel)
    peer.holder:grant(again)
    peer.prober:barrier()
    scene.survey(peer, slots(1))
    deletes(peer, again, slots(1), true)
    leaves(peer, again)
    assert.equal(0, peer:result(op))
  end)
end)
