-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- docs/specification.md, 8: the actions of an administrator, seen through a raw connection. Faults are in
-- admin_bad_days_spec.
local facts = require "spec.broker.facts.scene"
local process = require "spec.support.process"
local scene = require "spec.broker.admin_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local slot, holder, row, names, connect, failed =
  scene.slot, scene.holder, scene.row, scene.names, stage.connect, stage.fails

stage.tidy()

describe("an administrator", function ()
  local name, admin, raw

  -- The slots that exist, and that no administrator is at work any more.
  local function standing(last)
    assert.is_false(raw:exists(scene.mutex()))
    return scene.standing(last)
  end

  -- The broker gives declare-ok for a queue that is there if and only if everything about it is the same.
  local function is_like(queue, options)
    local same, reason = raw:declare(queue, options)
    assert(same or reason.code == 406, reason and reason.text)
    return same ~= nil
  end

  local function make_slots(...)
    for _, i in ipairs{ ... } do assert(raw:declare(slot(i), facts.slot())) end
  end

  before_each(function ()
    name, raw = scene.begin()
    admin = connect():admin(name)
  end)

  describe("creates", function ()
    for _, queue_type in ipairs{ "classic", "quorum" } do
      it("durable " .. queue_type .. " queues that keep no message, and a bell that is a classic queue", function ()
        assert.equal(2, admin:create(2, { queue_type = queue_type }))
        assert.same({ 1, 2 }, standing())
        for i = 1, 2 do assert.is_true(is_like(slot(i), facts.slot(queue_type))) end
        assert.is_false(is_like(slot(1), { durable = true }))
        assert.is_false(is_like(slot(1), facts.slot(queue_type, "reject-publish")))
        assert.is_false(is_like(slot(1), facts.slot(queue_type == "quorum" and "classic" or "quorum")))
        assert.is_true(is_like(stage.bell(name), { durable = true, arguments = { ["x-queue-type"] = "classic" } }))
      end)
    end

    it("classic queues unless told otherwise, by default or in the call", function ()
      local quorum = connect():admin(name, { queue_type = "quorum" })
      assert.equal(1, admin:create(1))
      assert.equal(2, quorum:add(1))
      assert.equal(3, quorum:add(1, { queue_type = "classic" }))
      for i, kind in ipairs{ "classic", "quorum", "classic" } do assert.is_true(is_like(slot(i), facts.slot(kind))) end
    end)

    it("a semaphore with the longest name there can be, of any characters", function ()
      -- From 4.0 on a broker fails where it says that a long one, which is not all ASCII, is absent or another's.
      local any = raw:since(4, 0) and "locks {*}#.%s' \"\\" or "schlösser/锁 {*}#.%s' \"\\"
      name, raw = scene.use(name .. any .. ("n"):rep(230 - #name - #any))
      local longest = connect():admin(name)
      assert.equal(2, longest:create(2))
      names(failed("exists", longest:create(5)), name, "2 slots", "resize(5)")
      assert.same({ 1, 2 }, standing(3))
      local lock = stage.take(connect():semaphore(name))
      assert.is_true(raw:locked(holder(1)))
      assert(lock:release())
      assert.is_true(longest:destroy())
      assert.same({}, standing(3))
    end)
  end)

  it("adds and removes slots at the end, no more than there are, and resizes from nothing, up, down, to nothing",
    function ()
      for _, step in ipairs{ { "create", 2, 2 }, { "add", 3, 5 }, { "remove", 2, 3 }, { "remove", 2, 1, true },
        { "remove", 7, 0 }, { "resize", 0, 0 }, { "resize", 3, 3 }, { "resize", 6, 6 }, { "resize", 6, 6 },
        { "resize", 2, 2, true }, { "resize", 0, 0 } } do
        local action, amount, count = step[1], step[2], step[3]
        assert.equal(count, admin[action](admin, amount, { ascending = step[4] }))
        assert.same(row(1, count), standing())
        assert.equal(count, admin:slots())
        assert.equal(count, #admin:status())
      end
    end)

  it("destroys, and names what is not there then", function ()
    assert.equal(4, admin:create(4))
    assert.is_true(admin:destroy{ ascending = true })
    assert.same({}, standing())
    for _, action in ipairs{ "add", "remove", "repair", "destroy" } do
      local amount = (action == "add" or action == "remove") and 1 or nil
      names(failed("not_found", admin[action](admin, amount)), name)
    end
    assert.same({}, standing())
  end)

  it("looks at who holds what, slots that were removed included, beside another administrator at work", function ()
    assert.equal(4, admin:create(4))
    local channel = raw:channel()
    for _, i in ipairs{ 1, 4 } do facts.hold(channel, holder(i)) end
    local function look(...)
      local status = {}
      for i, what in ipairs{ ... } do status[i] = { exists = not what:find "gone", held = what:find "held" ~= nil } end
      assert.same(status, admin:status())
    end
    look("held", "free", "free", "held")
    assert.equal(2, admin:remove(2))
    local working = raw:channel()
    facts.hold(working, scene.mutex())
    assert.equal(2, admin:slots())
    look("held", "free", "gone", "gone, held")
    working:close()
    channel:close()
    until_true(function () return not raw:exists(holder(1)) and not raw:exists(holder(4)) end)
    look("free", "free")
  end)

  -- "Overshooting": between C and C + T, no further. Slots past the end are made by somebody else's hand.
  describe("overshoots", function ()
    for action, case in pairs{
      remove = { 4, { 6, 9 }, 1, 5, 3 }, add = { 2, { 4, 7 }, 2, 5, 4 }, create = { 0, { 3, 8 }, 4, 8, 4 },
    } do
      it("when asked to " .. action, function ()
        local before, strays, amount, overshoot, after = (table.unpack or unpack)(case)
        assert.equal(before, admin:resize(before))
        make_slots((table.unpack or unpack)(strays))
        local one = action == "add" and connect():admin(name, { overshoot = overshoot }) or admin
        assert.equal(after, one[action](one, amount, one == admin and { overshoot = overshoot } or nil))
        assert.same(row(1, after), standing())
      end)
    end
  end)

  describe("meets a gap", function ()
    before_each(function () assert.equal(5, admin:create(5)) end)

    it("wider than its first look", function ()
      make_slots(40)
      names(failed("conflict", admin:slots()), slot(6), slot(40))
      names(failed("conflict", admin:remove(1)), slot(6), slot(40))
      assert.equal(3, admin:resize(3))
      assert.is_false(raw:exists(slot(40)))
      assert.same({ 1, 2, 3 }, standing())
    end)

    it("and repairs it, with what is there left as it is", function ()
      local kept = stage.take(connect():semaphore(name))
      raw:delete(slot(2))
      raw:delete(slot(4))
      assert.equal(5, admin:repair())
      assert.same(row(1, 5), standing())
      for i = 1, 5 do assert.is_true(is_like(slot(i), facts.slot())) end
      assert.is_true(kept:verify())
      for i = 1, 4 do raw:delete(slot(i)) end
      assert.equal(5, admin:repair())
      assert.same(row(1, 5), standing())
    end)

    it("and settles on as many slots as it is told, or destroys all of it", function ()
      for _, count in ipairs{ 7, 3, 1, 0 } do
        assert.equal(5, admin:resize(5))
        raw:delete(slot(2))
        assert.equal(count, admin:resize(count))
        assert.same(row(1, count), standing())
      end
      assert.equal(5, admin:create(5))
      raw:delete(slot(1))
      raw:delete(slot(3))
      assert.is_true(admin:destroy())
      assert.same({}, standing())
    end)
  end)

  it("meets slots so far past the end that only what it is about to declare leads there", function ()
    scene.sweep(45)
    make_slots(31, 32)
    names(failed("conflict", admin:create(30)), slot(31))
    assert.is_false(raw:exists(slot(1)))
    assert.equal(30, admin:resize(30))
    assert.is_false(raw:exists(slot(31)))
    assert(raw:declare(slot(44), facts.slot "quorum"))
    assert.equal(45, admin:resize(45)) -- which builds on it, however it was made
    assert.equal(45, admin:slots())
  end)

  -- docs/specification.md, 8.5. The holder is another process that hears every look at its queue, lets go after a few,
  -- and never while the slot exists: a client that does not wait finds it holding still.
  describe("removes slots that are held", function ()
    before_each(function () assert.equal(3, admin:create(3)) end)

    for action, act in pairs{
      remove = function () return admin:remove(1, { wait = 60 }) end,
      wait_released = function ()
        assert.equal(2, admin:remove(1))
        assert.is_true(raw:locked(holder(3)))
        return admin:wait_released({ 3 }, { timeout = 60 })
      end,
    } do
      it("and waits for them to let go: " .. action, function ()
        local holding = process.start()
        holding:run([[
          local client, facts = require "spec.support.client", require "spec.broker.facts.scene"
          raw = client.connect()
          channel = raw:channel()
          facts.hold(channel, ...)
        ]], holder(3))
        holding:begin([[
          local slot = ...
          require "spec.support.until"(function () return not raw:exists(slot) end)
          for _ = 1, 3 do assert(channel:await "basic.deliver") end
          raw:close()
        ]], slot(3))
        assert.truthy(act())
        assert.is_false(raw:exists(holder(3)))
        assert.is_false(raw:exists(slot(3)))
        holding:finish()
        assert.is_true(admin:wait_released{}) -- nobody holds, nobody is waited for
        assert.is_true(admin:wait_released{ 1, 3, 65535 })
      end)
    end

    it("and names those who do not, when the time is over; the slots are removed none the less", function ()
      local channel = stage.client():channel()
      facts.hold(channel, holder(2))
      facts.hold(channel, holder(3))
      local function names_them(slots, act) -- once it has looked: until then any of them may hold
        names(stage.times_out(act, function (message) return message:match("slot " .. slots .. "%f[^%d ]") end), name)
      end
      names_them("3 2", function (seconds)
        assert.equal(3, admin:resize(3))
        return admin:remove(3, { wait = seconds })
      end)
      assert.same({}, standing(3))
      assert.is_true(raw:locked(holder(2)) and raw:locked(holder(3)))
      names_them("2 3", function (seconds) return admin:wait_released({ 1, 2, 3 }, { timeout = seconds }) end)
      channel:close()
      assert.is_true(admin:wait_released{ 1, 2, 3 })
      assert.is_false(raw:exists(holder(3)))
    end)
  end)
end)
