-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"
local scene = require "spec.unit.admin.admin_scene"

local unpack = table.unpack or unpack

local slots, begin, deletes, declares, leaves = scene.slots, scene.begin, scene.deletes, scene.declares, scene.leaves

describe("an administrator", function ()
  local peer

  local function open(settings) peer = Peer.open(nil, settings) end

  before_each(function () open() end)

  local function news()
    local list = {}
    for _, text in function () return peer.session:news() end do table.insert(list, text) end
    return table.concat(list, "\n")
  end

  local function gives(...) scene.gives(peer, ...) end
  local function fails(...) return scene.fails(peer, ...) end

  it("takes the mutex, then passes the barrier, then counts, then acts, then gives the mutex back", function ()
    local op, mutex = scene.starts(peer, "create", 2)
    peer.prober:silent()
    peer.holder:declared(mutex.channel, "images-admin")
    peer.prober:silent()
    peer.holder:consumed(mutex)
    local channel = peer.prober:opened()
    local scratch = peer.prober:expect("queue.declare", { channel = channel, exclusive = true }).queue
    assert.matches("^images%-scratch%-%x+$", scratch)
    peer.prober:expect("queue.delete", { channel = channel, queue = scratch })
    peer.prober:silent()
    peer.prober:declared(channel, scratch)
    peer.prober:silent()
    peer.prober:deleted(channel)
    local names = peer.prober:look{}
    assert.same(scene.row(1, 16), names)
    peer.holder:silent()
    assert.same(scene.row(17, 48), peer.prober:look{})
    peer.prober:silent()
    peer.holder:again{ "images-1-A" }
    declares(peer, mutex, slots(1, 2), false)
    assert.is_false(op:done())
    gives(op, mutex, 2)
  end)

  describe("creating", function ()
    local function declared_as(options)
      open()
      begin(peer, "create", 1, options, {})
      scene.finds_bell(peer, 0)
      return peer.holder:expect("queue.declare", { queue = "images-1-A", durable = true, exclusive = false,
        auto_delete = false, no_wait = false }).arguments
    end

    it("declares durable classic queues that keep nothing", function ()
      assert.same({ ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head" },
        declared_as{})
    end)

    it("declares quorum queues if told to", function ()
      assert.equal("quorum", declared_as{ queue_type = "quorum" }["x-queue-type"])
    end)

    it("goes upwards, no more than sixteen ahead of their answers", function ()
      local op, mutex = begin(peer, "create", 20, {}, {})
      scene.finds_bell(peer, 0)
      for slot = 1, 16 do peer.holder:expect("queue.declare", { queue = slots(slot)[1] }) end
      peer.holder:silent()
      for slot = 17, 20 do
        peer.holder:declared(mutex.channel, slots(slot - 16)[1])
        peer.holder:expect("queue.declare", { queue = slots(slot)[1], channel = mutex.channel })
        peer.holder:silent()
      end
      for slot = 5, 20 do peer.holder:declared(mutex.channel, slots(slot)[1]) end
      scene.rings(peer, 20)
      gives(op, mutex, 20)
    end)

    it("changes nothing where there is a semaphore", function ()
      local op, mutex = begin(peer, "create", 5, {}, slots(1, 2, 3))
      fails(op, mutex, "exists", '"images" has 3 slots', "resize(5)")
    end)
  end)

  describe("with a row of three", function ()
    local function done(action, amount, options, act)
      open()
      local op, mutex = begin(peer, action, amount, options, slots(1, 2, 3))
      act(mutex)
      leaves(peer, mutex)
      return peer:result(op)
    end
    local function makes(names, ...)
      local more = { ... }
      return function (mutex) declares(peer, mutex, names, unpack(more)) end
    end
    local function takes(names, ready) return function (mutex)
      deletes(peer, mutex, names)
      declares(peer, mutex, {}, ready)
    end end
    local function takes_all(names) return function (mutex) deletes(peer, mutex, names, true) end end

    it("adds at the end", function () assert.equal(5, done("add", 2, {}, makes(slots(4, 5)))) end)
    it("removes from the end, one answer after the other", function ()
      assert.equal(1, done("remove", 2, {}, takes(slots(3, 2))))
    end)
    it("removes from the lowest if told to", function ()
      assert.equal(1, done("remove", 2, { ascending = true }, takes(slots(2, 3))))
    end)
    it("removes no more than there are", function ()
      assert.equal(0, done("remove", 9, {}, takes_all(slots(3, 2, 1))))
    end)
    it("resizes to more", function () assert.equal(4, done("resize", 4, {}, makes(slots(4), 3, 1))) end)
    it("resizes to fewer", function () assert.equal(2, done("resize", 2, {}, takes(slots(3), 3))) end)
    it("resizes to as many", function () assert.equal(3, done("resize", 3, {}, makes({}, 3))) end)
    it("destroys", function () assert.is_true(done("destroy", nil, {}, takes_all(slots(3, 2, 1)))) end)
    it("finishes what another began: resizes a bell that lacks tokens", function ()
      assert.equal(3, done("resize", 3, {}, makes({}, 1, 2)))
    end)
    it("finds nothing to repair", function () assert.equal(3, done("repair", nil, {}, makes({}, 3, 0))) end)
    it("repairs a bell that has lost tokens", function ()
      assert.equal(3, done("repair", nil, {}, makes({}, 1, 2)))
    end)
    it("repairs a bell that is gone", function ()
      assert.equal(3, done("repair", nil, {}, makes({}, false, 3)))
    end)
  end)

  describe("where there is none", function ()
    it("resizes by creating", function ()
      local op, mutex = begin(peer, "resize", 1, {}, {})
      declares(peer, mutex, slots(1), false)
      gives(op, mutex, 1)
    end)

    for action, amount in pairs{ add = 1, remove = 1, destroy = 0, repair = 0 } do
      it("does not " .. action, function ()
        local op, mutex = begin(peer, action, amount, {}, {})
        fails(op, mutex, "not_found", '"images"')
      end)
    end
  end)

  it("makes no more slots than there can be", function ()
    local op, mutex = begin(peer, "add", 65535, {}, slots(1))
    fails(op, mutex, "limit", "65536", "65535")
  end)

  describe("where the row has a gap", function ()
    for action, amount in pairs{ create = 3, add = 1, remove = 1 } do
      it("does not " .. action, function ()
        local exists = action == "create" and slots(2, 3) or slots(1, 3)
        local op, mutex = begin(peer, action, amount, {}, exists)
        fails(op, mutex, "conflict", ("%q exists"):format(action == "create" and "images-2-A" or "images-3-A"),
          ("%q does not"):format(action == "create" and "images-1-A" or "images-2-A"), "repair()")
      end)
    end

    it("sees strays behind an empty stretch", function ()
      local op, mutex = begin(peer, "add", 1, {}, slots(1, 40))
      fails(op, mutex, "conflict", '"images-40-A" exists')
    end)

    it("repairs it by making what is missing", function ()
      local op, mutex = begin(peer, "repair", nil, {}, slots(1, 4, 6))
      declares(peer, mutex, slots(2, 3, 5), 2, 4)
      gives(op, mutex, 6)
    end)

    it("resizes over it, both ways at once", function ()
      local op, mutex = begin(peer, "resize", 4, {}, slots(1, 3, 6, 7))
      deletes(peer, mutex, slots(7, 6))
      declares(peer, mutex, slots(2, 4), 2)
      gives(op, mutex, 4)
    end)

    it("destroys what there is", function ()
      local op, mutex = begin(peer, "destroy", nil, {}, slots(2, 5))
      deletes(peer, mutex, slots(5, 2), true)
      gives(op, mutex, true)
    end)
  end)

  describe("overshooting", function ()
    it("deletes strays past the end, as far as told", function ()
      local op, mutex = begin(peer, "remove", 1, { overshoot = 2 }, slots(1, 2, 3, 5))
      deletes(peer, mutex, slots(5, 3))
      declares(peer, mutex, {})
      gives(op, mutex, 2)
    end)

    it("deletes strays before it makes them anew", function ()
      local op, mutex = begin(peer, "add", 2, { overshoot = 3 }, slots(1, 3))
      deletes(peer, mutex, slots(3))
      declares(peer, mutex, slots(2, 3))
      gives(op, mutex, 3)
    end)

    it("goes no farther than told", function ()
      local op, mutex = begin(peer, "remove", 1, { overshoot = 2 }, slots(1, 2, 5))
      fails(op, mutex, "conflict", '"images-5-A" exists')
    end)

    it("looks as far as told, past empty windows", function ()
      local op, mutex = begin(peer, "remove", 1, { overshoot = 100 }, slots(1, 100))
      deletes(peer, mutex, slots(100, 1), true)
      gives(op, mutex, 0)
    end)
  end)

  describe("about to delete", function ()
    it("finds an exclusive queue by a slot's name, and deletes nothing", function ()
      local op, mutex = begin(peer, "resize", 1, {}, slots(1, 2, 3))
      local channel = peer.holder:opened()
      peer.holder:expect("queue.declare", { queue = "images-3-A", passive = true, channel = channel })
      peer.holder:expect("queue.declare", { queue = "images-2-A", passive = true, channel = channel })
      peer.holder:declared(channel, "images-3-A")
      peer.holder:refuse(channel, 405, "RESOURCE_LOCKED", "queue.declare")
      fails(op, mutex, "squatted", '"images-2-A"')
    end)

    it("deletes what is gone already, too", function ()
      local op, mutex = begin(peer, "resize", 1, {}, slots(1, 2))
      local channel = peer.holder:opened()
      peer.holder:expect("queue.declare", { queue = "images-2-A", passive = true })
      peer.holder:refuse(channel, 404, "NOT_FOUND - no queue 'images-2-A' in vhost '/'", "queue.declare")
      peer.holder:delete("images-2-A", mutex.channel)
      declares(peer, mutex, {}, 1)
      gives(op, mutex, 1)
    end)
  end)

  describe("where a slot's node is down", function ()
    local WITH_THIRD = { "images-1-A", "images-2-A", ["images-3-A"] = "down" }

    it("does not shrink by what it has not removed", function ()
      local op, mutex = begin(peer, "remove", 1, {}, WITH_THIRD)
      peer.holder:again(slots(3), WITH_THIRD)
      peer.holder:expect("queue.delete", { queue = "images-3-A", channel = mutex.channel })
      peer.holder:refuse(mutex.channel, 404, "NOT_FOUND - home node 'rabbit@other' of durable queue 'images-3-A' in "
        .. "vhost '/' is down or inaccessible", "queue.delete")
      peer:failed(op, "unavailable", '"images-3-A"', "is down", "resize(2) finishes")
    end)

    it("adds behind it", function ()
      local op, mutex = begin(peer, "add", 1, {}, WITH_THIRD)
      declares(peer, mutex, slots(4))
      gives(op, mutex, 4)
    end)

    it("creates nothing, as there is a semaphore", function ()
      local op, mutex = begin(peer, "create", 5, {}, { ["images-1-A"] = "down" })
      fails(op, mutex, "exists", "has 1 slots already")
    end)
  end)

  it("waits for the holders of removed slots if told to", function ()
    local op, mutex = begin(peer, "remove", 1, { wait = 3 }, slots(1, 2))
    deletes(peer, mutex, slots(2))
    declares(peer, mutex, {})
    peer.holder:delete("images-admin", mutex.channel)
    assert.is_false(op:done())
    assert.same({ "images-2-B" }, peer.prober:look{ "images-2-B" })
    peer:pass(1)
    peer.prober:look{}
    peer.prober:barrier()
    peer.prober:look{}
    assert.equal(1, peer:result(op))
  end)

  it("tells of holders that do not let go, and leaves the slots removed", function ()
    local op, mutex = begin(peer, "remove", 2, { wait = 3 }, slots(1, 2, 3))
    deletes(peer, mutex, slots(3, 2))
    declares(peer, mutex, {})
    peer.holder:delete("images-admin", mutex.channel)
    peer.prober:look{ "images-2-B" }
    peer:pass(3)
    peer:failed(op, "timeout", "still held", "after 3 s: slot 2")
  end)

  it("asks on the holder while the broker reads no publishers", function ()
    peer.prober:send{ channel = 0, method = "connection.blocked", reason = "low on memory" }
    local op, mutex = scene.starts(peer, "create", 1)
    peer.holder:grant(mutex)
    peer.holder:barrier()
    local asked = 0
    while asked < 48 or peer.holder:next() == "channel.close-ok" do
      local method = peer.holder:next()
      if method == "channel.open" then
        peer.holder:opened()
      elseif method == "channel.close-ok" then
        peer.holder:expect(method)
      else
        local channel = peer.holder:expect("queue.declare", { passive = true }).channel
        peer.holder:send{ channel = channel, method = "channel.close", reply_code = 404,
          reply_text = "NOT_FOUND - no queue", class_id = 50, method_id = 10 }
        asked = asked + 1
      end
    end
    declares(peer, mutex, slots(1), 0, 0)
    gives(op, mutex, 1)
    assert.is_truthy(news():find('"images-bell" lacks tokens', 1, true))
  end)

  describe("keeping the doorbell", function ()
    -- How the bell is declared, by a broker of this version.
    local function declared_as(version, options)
      peer = Peer.open(nil, nil, { version = version })
      begin(peer, "create", 1, options, {})
      scene.finds_bell(peer)
      return peer.holder:expect("queue.declare", { queue = "images-bell", durable = true, exclusive = false,
        auto_delete = false }).arguments
    end

    it("declares a classic queue that keeps its tokens", function ()
      assert.same({ ["x-queue-type"] = "classic" }, declared_as("4.3.6", {}))
    end)

    it("declares a classic queue beside quorum slots, too: one without a majority would end connections", function ()
      local quorum = { queue_type = "quorum" }
      assert.same({ ["x-queue-type"] = "classic" }, declared_as("4.0.5", quorum))
      assert.same({ ["x-queue-type"] = "classic" }, declared_as("3.10.8", quorum))
    end)

    local QUORUM = "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'images-bell' in vhost '/': "
      .. "received 'classic' but current is 'quorum'"

    describe("of an older version, a quorum queue", function ()
      it("repairs by making it anew while no slot is held: with a token for each slot", function ()
        local op, mutex = begin(peer, "repair", nil, { queue_type = "quorum" }, slots(1, 2, 4))
        assert.are_not.equal(mutex.channel, scene.finds_bell(peer, 1, 0, QUORUM))
        peer.holder:expect("queue.delete", { queue = "images-bell", channel = mutex.channel, if_unused = false,
          if_empty = false })
        peer.holder:silent()
        peer.holder:deleted(mutex.channel)
        local bell = peer.holder:expect("queue.declare", { queue = "images-bell", passive = false, durable = true,
          channel = mutex.channel })
        assert.same({ ["x-queue-type"] = "classic" }, bell.arguments)
        peer.holder:expect("queue.declare", { queue = "images-3-A", channel = mutex.channel })
        peer.holder:declared(mutex.channel, "images-bell")
        peer.holder:declared(mutex.channel, "images-3-A")
        scene.rings(peer, 4)
        gives(op, mutex, 4)
      end)

      for _, case in ipairs{ { "a slot is held", { "images-1-A", "images-1-B", "images-3-A" }, 0, 1, "1 slots held" },
        { "the slot of a holder was removed", { "images-1-A", "images-3-A", "images-5-B" }, 0, 1, "1 slots held" },
        { "somebody waits at it", slots(1, 3), 2, 2, "2 consumers" } } do
        it("leaves it alone while " .. case[1] .. ": busy, with the slots in order", function ()
          local op, mutex = begin(peer, "repair", nil, {}, case[2])
          scene.finds_bell(peer, 1, case[3], QUORUM)
          peer.holder:expect("queue.declare", { queue = "images-2-A", channel = mutex.channel })
          peer.holder:declared(mutex.channel, "images-2-A")
          scene.rings(peer, case[4])
          fails(op, mutex, "busy", case[5], "run repair() again while no slot is held")
        end)
      end

      it("is used as it is by every other action", function ()
        local op, mutex = begin(peer, "resize", 2, {}, slots(1))
        declares(peer, mutex, slots(2), 1, 1)
        gives(op, mutex, 2)
      end)

      it("names the bell when it may not be deleted, and what finishes the repair", function ()
        local op, mutex = begin(peer, "repair", nil, {}, slots(1, 2))
        scene.finds_bell(peer, 2, 0, QUORUM)
        peer.holder:expect("queue.delete", { queue = "images-bell" })
        peer.holder:refuse(mutex.channel, 403, "ACCESS_REFUSED", "queue.delete")
        peer:failed(op, "refused", '"images-bell"', "resize(2) finishes")
      end)

      it("is not known to be one when the broker says nothing, or the connection goes", function ()
        for _, ends in ipairs{ "silence", "reset" } do
          open()
          local op = begin(peer, "repair", nil, {}, slots(1))
          peer.repairs = false
          scene.finds_bell(peer, 1)
          local channel = peer.holder:expect("queue.declare", { queue = "images-bell", passive = false }).channel
          if ends == "reset" then
            peer.holder:down("reset")
            peer:failed(op, "lost", "reset")
          else
            peer:pass(5)
            peer:failed(op, "unreachable", "did not answer")
            peer.holder:closes(channel)
          end
        end
      end)
    end)

    it("is repaired as it is where it differs in other things, or may not be declared: others made it", function ()
      for _, text in ipairs{
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'images-bell' in vhost '/'",
        "ACCESS_REFUSED - configure access to queue 'images-bell' refused",
      } do
        open()
        local op, mutex = begin(peer, "repair", nil, {}, slots(1, 2))
        scene.finds_bell(peer, 1, 0, text)
        scene.rings(peer, 1)
        gives(op, mutex, 2)
      end
    end)

    it("counts on the tokens that are left of a semaphore that is gone", function ()
      local op, mutex = begin(peer, "create", 3, {}, {})
      declares(peer, mutex, slots(1, 2, 3), 2, 1)
      gives(op, mutex, 3)
    end)

    it("repairs with as many tokens as slots are free", function ()
      local op, mutex = begin(peer, "repair", nil, {}, { "images-1-A", "images-1-B", "images-2-A", "images-3-A" })
      declares(peer, mutex, {}, 1, 1)
      gives(op, mutex, 3)
    end)

    it("publishes hundreds of tokens, no more than 512 ahead of their answers", function ()
      local op, mutex = begin(peer, "repair", nil, {}, scene.row(1, 600))
      scene.finds_bell(peer, 0)
      scene.rings(peer, 512)
      scene.rings(peer, 88)
      gives(op, mutex, 600)
    end)

    it("finds another's exclusive queue in its place: squatted, and names it", function ()
      local op, mutex = begin(peer, "add", 1, {}, slots(1))
      local channel = peer.holder:opened()
      peer.holder:expect("queue.declare", { queue = "images-bell", passive = true })
      peer.holder:refuse(channel, 405, "RESOURCE_LOCKED", "queue.declare")
      peer:failed(op, "squatted", '"images-bell"', "resize(2) finishes")
      leaves(peer, mutex)
    end)

    it("does without tokens that the broker does not take, and says so", function ()
      local op, mutex = begin(peer, "add", 1, {}, slots(1))
      scene.finds_bell(peer, 1)
      peer.holder:expect("queue.declare", { queue = "images-2-A" })
      peer.holder:declared(mutex.channel, "images-2-A")
      local probes = peer.prober:probes()
      peer.prober:answer(probes, {})
      gives(op, mutex, 2)
      assert.is_truthy(news():find('"images-bell" lacks tokens', 1, true))
    end)

    it("does not declare one whose node is down, which would cost the mutex", function ()
      local op, mutex = begin(peer, "add", 1, {}, slots(1))
      peer.holder:opened()
      local look = peer.holder:expect("queue.declare", { queue = "images-bell", passive = true })
      peer.holder:refuse(look.channel, 404, "NOT_FOUND - home node 'rabbit@other' of durable queue 'images-bell' "
        .. "in vhost '/' is down or inaccessible", "queue.declare")
      peer.holder:expect("queue.declare", { queue = "images-2-A" })
      peer.holder:declared(mutex.channel, "images-2-A")
      peer.prober:answer(peer.prober:probes(), {})
      gives(op, mutex, 2)
    end)

    it("does without tokens for which the connection was lost, before or while they are published", function ()
      for _, is_ringing in ipairs{ false, true } do
        open()
        local op, mutex = begin(peer, "add", 1, {}, slots(1))
        scene.finds_bell(peer, 1)
        peer.holder:expect("queue.declare", { queue = "images-2-A" })
        if not is_ringing then peer.prober:down() end
        peer.holder:declared(mutex.channel, "images-2-A")
        if is_ringing then
          peer.prober:probes()
          peer.prober:down()
        end
        gives(op, mutex, 2)
        assert.is_truthy(news():find('"images-bell" lacks tokens', 1, true))
      end
    end)

    it("can be abandoned while it looks for it, and while it rings", function ()
      for _, is_ringing in ipairs{ false, true } do
        open()
        local op, mutex = begin(peer, "add", 1, {}, slots(1))
        if is_ringing then
          scene.finds_bell(peer, 1)
          peer.holder:expect("queue.declare", { queue = "images-2-A" })
          peer.holder:declared(mutex.channel, "images-2-A")
          peer.prober:probes()
        else
          peer.holder:opened()
          peer.holder:expect("queue.declare", { queue = "images-bell", passive = true })
        end
        op:drop()
        if not is_ringing then peer.holder:expect("channel.close") end
        leaves(peer, mutex)
      end
    end)
  end)
end)
