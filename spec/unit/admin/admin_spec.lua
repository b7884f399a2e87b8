-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"
local scene = require "spec.unit.admin.admin_scene"

local slots, begin, deletes, declares = scene.slots, scene.begin, scene.deletes, scene.declares

describe("an administrator", function ()
  local peer

  before_each(function () peer = Peer.open() end)

  local function gives(...) scene.gives(peer, ...) end

  -- The Lua module checks the arguments of Lua callers; callers in C may pass any number.
  it("is refused a number of slots or permits that cannot be, before any traffic", function ()
    for action, least in pairs{ create = 1, add = 1, remove = 1, resize = 0 } do
      for _, method in ipairs{ "administer", "administer_tokens" } do
        for _, amount in ipairs{ least - 1, 65536, 2147483647, -2147483648 } do
          local op = peer.session[method](peer.session, action, "images", {}, amount)
          peer:failed(op, "limit", ("from %d to 65535, not %d"):format(least, amount))
          peer.holder:silent()
        end
      end
    end
  end)

  it("declares slots upwards, and waits for answers before it declares many more", function ()
    local op, mutex = begin(peer, "create", 40, {}, {})
    scene.finds_bell(peer, 0)
    local slot = 0
    for answered = 1, 40 do
      while peer.holder:next() ~= "nothing" do
        slot = slot + 1
        peer.holder:expect("queue.declare", { queue = slots(slot)[1], channel = mutex.channel })
      end
      assert.is_true(slot >= answered and slot <= answered + 31)
      peer.holder:declared(mutex.channel, slots(answered)[1])
    end
    scene.rings(peer, 40)
    gives(op, mutex, 40)
  end)

  -- The rule, the action, its amount, the result, the slots that exist (1 to 3), those deleted and declared,
  -- the tokens in the bell (0; false: there is none), and those published (as many as slots declared).
  for _, row in ipairs{
    { "adds behind a slot that refuses probes", "add", 1, exists = { "images-1-A", ["images-2-A"] = "nack" },
      declares = slots(3), 3 },
    { "removes from the end, one answer after the other", "remove", 2, deletes = slots(3, 2), 1 },
    { "resizes a bell that lacks tokens: finishes what another began", "resize", 3, bell = 1, tokens = 2, 3 },
    { "creates with the tokens that are left of a semaphore that is gone", "create", 3, exists = {},
      declares = slots(1, 2, 3), bell = 2, tokens = 1, 3 },
    { "repairs a bell that has lost tokens, with one for each free slot", "repair", nil, bell = 1, tokens = 1,
      exists = { "images-1-A", "images-1-B", "images-2-A", "images-3-A" }, 3 },
    { "repairs a bell that is gone", "repair", nil, bell = false, tokens = 3, 3 },
  } do
    it(row[1], function ()
      local op, mutex = begin(peer, row[2], row[3], {}, row.exists or slots(1, 2, 3))
      if row.deletes then deletes(peer, mutex, row.deletes) end
      declares(peer, mutex, row.declares or {}, row.bell, row.tokens)
      gives(op, mutex, row[4])
    end)
  end

  it("about to delete does not shrink by a slot that refuses probes", function ()
    local op, mutex = begin(peer, "remove", 1, {}, { "images-1-A", "images-2-A", ["images-3-A"] = "nack" })
    peer.holder:again(slots(3), { ["images-3-A"] = "down" })
    peer.holder:expect("queue.delete", { queue = "images-3-A", channel = mutex.channel })
    peer.holder:refuse(mutex.channel, 404, "NOT_FOUND - home node 'rabbit@other' of durable queue 'images-3-A' in "
      .. "vhost '/' is down or inaccessible", "queue.delete")
    peer:failed(op, "unavailable", '"images-3-A"', "is down", "resize(2) finishes")
  end)

  describe("keeping the doorbell", function ()
    -- An action that adds a slot, and looks for the bell.
    local function adds() return begin(peer, "add", 1, {}, slots(1)) end

    it("finds another's exclusive queue in its place: squatted, and names it", function ()
      local op, mutex = adds()
      local channel = peer.holder:opened()
      peer.holder:expect("queue.declare", { queue = "images-bell", passive = true })
      peer.holder:refuse(channel, 405, "RESOURCE_LOCKED", "queue.declare")
      peer:failed(op, "squatted", '"images-bell"', "resize(2) finishes")
      scene.leaves(peer, mutex)
    end)

    it("does not declare one whose node is down, which would cost the mutex", function ()
      local op, mutex = adds()
      peer.holder:again({ "images-bell" }, { ["images-bell"] = "down" })
      peer.holder:expect("queue.declare", { queue = "images-2-A" })
      peer.holder:declared(mutex.channel, "images-2-A")
      peer.prober:answer(peer.prober:probes(), {})
      gives(op, mutex, 2)
    end)

    for why, rings in pairs{
      ["that the broker does not take"] = function () peer.prober:answer(peer.prober:probes(), {}) end,
      ["for which there is no connection any more"] = false,
    } do
      it("does without tokens " .. why .. ", and says so", function ()
        local op, mutex = adds()
        scene.finds_bell(peer, 1)
        peer.holder:expect("queue.declare", { queue = "images-2-A" })
        if not rings then peer.prober:down() end
        peer.holder:declared(mutex.channel, "images-2-A")
        if rings then rings() end
        gives(op, mutex, 2)
        assert.equal(1, #peer:news '"images-bell" lacks tokens')
      end)
    end
  end)
end)

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
    local op, mutex = begin(peer, "destroy", nil, {}, slots(1, 2))
    scene.checked(peer, slots(2, 1))
    peer.holder:delete("images-2-A")
    peer.holder:expect("queue.delete", { queue = "images-1-A" })
    return op, mutex, "resize(0) finishes", "images-1-A"
  end

  steps["between declares"] = function ()
    local op, mutex = begin(peer, "create", 2, {}, {})
    scene.finds_bell(peer, 0)
    peer.holder:expect("queue.declare", { queue = "images-1-A" })
    peer.holder:expect("queue.declare", { queue = "images-2-A" })
    peer.holder:declared(mutex.channel, "images-1-A")
    return op, mutex, "resize(2) finishes", "images-2-A"
  end

  steps["while it rings"] = function ()
    local op, mutex = begin(peer, "add", 1, {}, slots(1))
    scene.finds_bell(peer, 0)
    peer.holder:expect("queue.declare", { queue = "images-2-A" })
    peer.holder:declared(mutex.channel, "images-2-A")
    return op, mutex, "resize(2) finishes"
  end

  local function fails(op, finish, code, ...)
    local message = peer:failed(op, code, finish or "", ...)
    assert.equal(finish ~= nil, message:find("resize", 1, true) ~= nil)
    assert.is_nil(message:find("removed", 1, true))
  end

  for step, prepare in pairs(steps) do
    it("writes nothing more when it loses the mutex " .. step, function ()
      local op, mutex, finish = prepare()
      peer.holder:cancelled(mutex)
      peer.holder:expect("channel.close", { channel = mutex.channel })
      fails(op, finish, "lost", 'the administration mutex of "images"', "but not by this client")
      if step == "while it rings" then peer.prober:answer(peer.prober:probes(), { "images-bell" }) end
      peer.holder:send{ channel = mutex.channel, method = "channel.close-ok" }
      peer:pass(1)
      peer:silent()
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
      scene.leaves(peer, mutex)
    end
  end)

  it("out of time, says so, and gives the mutex back", function ()
    local op = begin(peer, "remove", 2, { timeout = 2 }, slots(1, 2, 3))
    scene.checked(peer, slots(3, 2))
    peer.holder:expect("queue.delete", { queue = "images-3-A" })
    peer:fails_after(2, op, "timeout", 'remove of "images" took longer than 2 s', "resize(1) finishes")
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
