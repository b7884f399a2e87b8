-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"
local scene = require "spec.unit.admin.admin_scene"

local slots, begin, leaves = scene.slots, scene.begin, scene.leaves

describe("an administrator in trouble", function ()
  local peer

  before_each(function () peer = Peer.open() end)

  -- The steps of actions. Each gives op, mutex, what the message says would finish what was begun, and the queue.
  local steps = {}

  steps["counting"] = function ()
    local op, mutex = scene.starts(peer, "create", 2)
    peer.holder:grant(mutex)
    peer.prober:barrier()
    peer.prober:ignore()
    return op, mutex
  end

  steps["between two deletes"] = function ()
    local op, mutex = begin(peer, "remove", 2, {}, slots(1, 2, 3))
    scene.checked(peer, slots(3, 2))
    peer.holder:delete("images-3-A")
    peer.holder:expect("queue.delete", { queue = "images-2-A" })
    return op, mutex, "resize(1) finishes", "images-2-A"
  end

  steps["between declares"] = function ()
    local op, mutex = begin(peer, "create", 2, {}, {})
    scene.finds_bell(peer, 0)
    peer.holder:expect("queue.declare", { queue = "images-1-A" })
    peer.holder:expect("queue.declare", { queue = "images-2-A" })
    peer.holder:declared(mutex.channel, "images-1-A")
    return op, mutex, "resize(2) finishes", "images-2-A"
  end

  local function fails(op, finish, code, ...)
    local message = peer:failed(op, code, finish or "", ...)
    assert.equal(finish ~= nil, message:find("resize", 1, true) ~= nil)
  end

  for step, prepare in pairs(steps) do
    it("writes nothing more when it loses the mutex " .. step, function ()
      local op, mutex, finish = prepare()
      peer.holder:cancelled(mutex)
      peer.holder:expect("channel.close", { channel = mutex.channel })
      fails(op, finish, "lost", 'the administration mutex of "images"', "but not by this client")
      peer.prober:ignore()
      peer.holder:send{ channel = mutex.channel, method = "channel.close-ok" }
      peer:pass(1)
      peer.holder:silent()
      peer.prober:silent()
    end)

    it("that is abandoned " .. step .. " gives the mutex back, and another one waits for that", function ()
      local op, mutex, _, queue = prepare()
      op:drop()
      if step == "between declares" then peer.holder:declared(mutex.channel, queue) end
      peer.holder:expect("queue.delete", { queue = "images-admin", channel = mutex.channel })
      peer.session:administer("resize", "images", {}, 1)
      if step == "between two deletes" then peer.holder:deleted(mutex.channel) end
      peer:pass(1)
      peer.holder:silent()
      peer.holder:deleted(mutex.channel)
      peer:pass(1)
      peer.holder:claim("images-admin")
    end)
  end

  it("is unreachable when it loses the prober before the barrier or while passing it", function ()
    for before = 0, 1 do
      peer = Peer.open()
      local op, mutex = scene.starts(peer, "create", 2)
      if before == 1 then peer.prober:down("timed out") end
      peer.holder:grant(mutex)
      if before == 0 then peer.prober:down("timed out") end
      peer:failed(op, "unreachable", "timed out")
      leaves(peer, mutex)
    end
  end)

  it("out of time, says so, and gives the mutex back", function ()
    local op = begin(peer, "remove", 2, { timeout = 2 }, slots(1, 2, 3))
    scene.checked(peer, slots(3, 2))
    peer.holder:expect("queue.delete", { queue = "images-3-A" })
    peer:pass(2)
    peer:failed(op, "timeout", 'remove of "images" took longer than 2 s', "resize(1) finishes")
    peer.holder:expect("queue.delete", { queue = "images-admin" })
    peer.holder:silent()
  end)

  it("has no channel left to ask for the end of the row", function ()
    peer = Peer.open(nil, { channel_max = 2 })
    peer:acquire("other")
    local op, mutex = scene.starts(peer, "remove", 1)
    peer.holder:grant(mutex)
    peer.prober:barrier()
    peer.prober:look(slots(1, 2))
    peer.prober:look{}
    scene.fails(peer, op, mutex, "limit", "no channel is left")
  end)
end)
