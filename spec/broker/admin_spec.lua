-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- "Lock Administration": the actions of an administrator, seen through a connection without this library. Faults are in
-- admin_bad_days_spec.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local scene = require "spec.broker.facts.scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local LOOKED_AT = 20  -- slots whose queues are looked for, and swept away after each test

describe("an administrator", function ()
  local name, admin, raw

  local function slot(i) return ("%s-%d-A"):format(name, i) end
  local function holder(i) return ("%s-%d-B"):format(name, i) end

  local function connect(options)
    local conn = assert(amqplocks.connect(nil, options))
    scene.undo(function () conn:close() end)
    return conn
  end

  -- The slots whose queue exists, and that no administrator is at work any more.
  local function standing(last)
    local found = {}
    for i = 1, last or LOOKED_AT do
      if raw:exists(slot(i)) then table.insert(found, i) end
    end
    assert.is_false(raw:exists(name .. "-admin"))
    return found
  end

  local function row(last)
    local numbers = {}
    for i = 1, last do numbers[i] = i end
    return numbers
  end

  -- The broker gives declare-ok for a queue that is there if and only if everything about it is the same.
  local function is_like(queue, options)
    local same, reason = raw:declare(queue, options)
    assert(same or reason.code == 406, reason and reason.text)
    return same ~= nil
  end

  local function make_slot(i) assert(raw:declare(slot(i), scene.slot())) end

  local function sweep(last)
    local sweeper = assert(client.connect())
    local channel = sweeper:channel()
    for i = 1, last do channel:send{ method = "queue.delete", queue = slot(i) } end
    channel:send{ method = "queue.delete", queue = name .. "-bell" }
    for _ = 1, last + 1 do assert(channel:await("queue.delete-ok", 20)) end
    sweeper:close()
  end

  local function failed(code, ...)
    local result, message, got = ...
    assert.is_nil(result)
    assert.equal(code, got)
    assert.equal(code .. ": ", message:sub(1, #code + 2))
    return message
  end

  local function names(message, ...)
    for _, part in ipairs{ ... } do
      assert.truthy(message:find(part, 1, true), ("%q is not in: %s"):format(part, message))
    end
  end

  before_each(function ()
    name = client.unique("admin")
    raw = scene.connect()
    scene.undo(function () sweep(LOOKED_AT) end)
    admin = connect():admin(name)
  end)
  after_each(scene.clear)

  describe("creates", function ()
    for _, queue_type in ipairs{ "classic", "quorum" } do
      it("durable " .. queue_type .. " queues that keep no message", function ()
        assert.equal(2, admin:create(2, { queue_type = queue_type }))
        assert.same({ 1, 2 }, standing())
        for i = 1, 2 do assert.is_true(is_like(slot(i), scene.slot(queue_type))) end
        assert.is_false(is_like(slot(1), { durable = true }))
        assert.is_false(is_like(slot(1), scene.slot(queue_type, "reject-publish")))
        assert.is_false(is_like(slot(1), scene.slot(queue_type == "quorum" and "classic" or "quorum")))
      end)
    end

    it("classic queues unless told otherwise, by default or in the call", function ()
      local conn = connect()
      assert.equal(1, admin:create(1))
      assert.equal(2, conn:admin(name, { queue_type = "quorum" }):add(1))
      assert.equal(3, conn:admin(name, { queue_type = "quorum" }):add(1, { queue_type = "classic" }))
      assert.is_true(is_like(slot(1), scene.slot("classic")))
      assert.is_true(is_like(slot(2), scene.slot("quorum")))
      assert.is_true(is_like(slot(3), scene.slot("classic")))
    end)

    it("a bell that is a classic queue, also beside quorum slots", function ()
      for _, queue_type in ipairs{ "classic", "quorum" } do
        assert.equal(1, admin:create(1, { queue_type = queue_type }))
        assert.is_true(is_like(name .. "-bell", { durable = true, arguments = { ["x-queue-type"] = "classic" } }))
        assert.is_true(admin:destroy())
      end
    end)

    it("nothing where there is a semaphore already", function ()
      assert.equal(3, admin:create(3))
      names(failed("exists", admin:create(5)), name, "3 slots", "resize(5)")
      assert.same({ 1, 2, 3 }, standing())
    end)

    it("slots that a client takes, and that are all there are", function ()
      assert.equal(2, admin:create(2))
      local semaphore = connect():semaphore(name)
      local first, second = assert(semaphore:try_acquire()), assert(semaphore:try_acquire())
      assert.same({ 1, 2 }, { first.slot, second.slot })
      assert.is_true(raw:locked(holder(1)))
      assert.is_true(raw:locked(holder(2)))
      failed("busy", semaphore:try_acquire())
      assert(first:release())
      assert(second:release())
    end)

    it("a semaphore with the longest name there can be, of any characters", function ()
      -- From 4.0 on a broker fails where it says that a long one, which is not all ASCII, is absent or another's.
      name = client.unique(raw:since(4, 0) and "locks {*}#.%s' \"\\" or "schlösser/锁 {*}#.%s' \"\\")
      name = name .. ("n"):rep(230 - #name)
      local longest = connect():admin(name)
      assert.equal(2, longest:create(2))
      assert.same({ 1, 2 }, standing(3))
      local lock = assert(connect():semaphore(name):try_acquire())
      assert.is_true(raw:locked(holder(1)))
      assert(lock:release())
      assert.is_true(longest:destroy())
      assert.same({}, standing(3))
    end)
  end)

  describe("adds and removes", function ()
    it("slots at the end", function ()
      assert.equal(2, admin:create(2))
      assert.equal(5, admin:add(3))
      assert.same({ 1, 2, 3, 4, 5 }, standing())
      assert.equal(3, admin:remove(2))
      assert.same({ 1, 2, 3 }, standing())
      assert.equal(1, admin:remove(2, { ascending = true }))
      assert.same({ 1 }, standing())
    end)

    it("no more than there are", function ()
      assert.equal(3, admin:create(3))
      assert.equal(0, admin:remove(7))
      assert.same({}, standing())
      assert.equal(0, admin:slots())
    end)

    it("no more than there can be", function ()
      assert.equal(1, admin:create(1))
      names(failed("limit", admin:add(65535)), name, "65536", "65535")
      assert.same({ 1 }, standing())
    end)

    it("nothing where there is no semaphore", function ()
      names(failed("not_found", admin:add(1)), name)
      names(failed("not_found", admin:remove(1)), name)
      assert.same({}, standing())
    end)
  end)

  it("resizes from nothing, up, down, to what there is, and to nothing", function ()
    for _, count in ipairs{ 0, 3, 6, 6, 2, 0 } do
      assert.equal(count, admin:resize(count))
      assert.same(row(count), standing())
      assert.equal(count, admin:slots())
    end
  end)

  it("resizes down from the lowest slot upwards, on request", function ()
    assert.equal(5, admin:create(5))
    assert.equal(2, admin:resize(2, { ascending = true }))
    assert.same({ 1, 2 }, standing())
  end)

  it("destroys, and finds nothing to destroy the second time", function ()
    assert.equal(4, admin:create(4))
    assert.is_true(admin:destroy())
    assert.same({}, standing())
    names(failed("not_found", admin:destroy()), name)
    names(failed("not_found", connect():semaphore(name):try_acquire()), name)
    assert.equal(2, admin:create(2))
    assert.is_true(admin:destroy{ ascending = true })
    assert.same({}, standing())
  end)

  describe("looks", function ()
    it("and finds nothing where there is nothing", function ()
      assert.equal(0, admin:slots())
      assert.same({}, admin:status())
      assert.same({}, standing())
    end)

    it("at what another administrator made", function ()
      for i = 1, 3 do make_slot(i) end
      assert.equal(3, admin:slots())
      local there = { exists = true, held = false }
      assert.same({ there, there, there }, admin:status())
    end)

    it("beside another administrator at work, without waiting", function ()
      assert.equal(1, admin:create(1))
      scene.hold(raw:channel(), name .. "-admin")
      assert.equal(1, admin:slots())
      assert.equal(1, #admin:status())
    end)

    it("at who holds what, slots that were removed included", function ()
      assert.equal(4, admin:create(4))
      local channel = raw:channel()
      for _, i in ipairs{ 1, 4 } do scene.hold(channel, holder(i)) end
      assert.same({
        { exists = true, held = true }, { exists = true, held = false },
        { exists = true, held = false }, { exists = true, held = true },
      }, admin:status())
      assert.equal(2, admin:remove(2))
      assert.equal(2, admin:slots())
      assert.same({
        { exists = true, held = true }, { exists = true, held = false },
        { exists = false, held = false }, { exists = false, held = true },
      }, admin:status())
      channel:close()
      until_true(function () return not raw:exists(holder(1)) and not raw:exists(holder(4)) end)
      assert.same({ { exists = true, held = false }, { exists = true, held = false } }, admin:status())
    end)

    it("past the first windows of probes", function ()
      assert.equal(60, admin:create(60))
      scene.undo(function () sweep(60) end)
      scene.hold(raw:channel(), holder(55))
      assert.equal(60, admin:slots())
      local status = admin:status()
      assert.equal(60, #status)
      for i = 1, 60 do assert.same({ exists = true, held = i == 55 }, status[i]) end
    end)
  end)

  -- "Overshooting": between C and C + T, no further. Slots past the end are made by somebody else's hand.
  describe("overshoots", function ()
    local function strays(...)
      for _, i in ipairs{ ... } do make_slot(i) end
    end

    it("when it removes", function ()
      assert.equal(4, admin:create(4))
      strays(6, 9)
      assert.equal(3, admin:remove(1, { overshoot = 5 }))
      assert.same({ 1, 2, 3 }, standing())
    end)

    it("when it adds, and the slots added are there in the end", function ()
      assert.equal(2, admin:create(2))
      strays(4, 7)
      assert.equal(4, admin:add(2, { overshoot = 5 }))
      assert.same({ 1, 2, 3, 4 }, standing())
      assert.is_true(is_like(slot(4), scene.slot()))
    end)

    it("when it creates", function ()
      strays(3, 8)
      assert.equal(4, admin:create(4, { overshoot = 8 }))
      assert.same({ 1, 2, 3, 4 }, standing())
    end)

    it("by default, if that was asked for when it was made", function ()
      assert.equal(2, admin:create(2))
      strays(5)
      assert.equal(1, connect():admin(name, { overshoot = 3 }):remove(1))
      assert.same({ 1 }, standing())
    end)

    it("not beyond: what stands there is named, and nothing is done", function ()
      assert.equal(4, admin:create(4))
      strays(6, 10)
      for _, action in ipairs{ "add", "remove" } do
        names(failed("conflict", admin[action](admin, 1, { overshoot = 5 })), slot(10), slot(5))
      end
      names(failed("conflict", admin:remove(1)), slot(6), slot(5))
      assert.same({ 1, 2, 3, 4, 6, 10 }, standing())
    end)

    it("not beyond what it looks at, and as far as it is told", function ()
      assert.equal(2, admin:create(2))
      strays(60, 400)
      scene.undo(function () raw:delete(slot(60)) raw:delete(slot(400)) end)
      assert.equal(2, admin:slots())
      assert.is_true(admin:destroy{ overshoot = 58 })
      assert.is_false(raw:exists(slot(60)))
      assert.is_true(raw:exists(slot(400)))
      assert.is_true(admin:destroy{ overshoot = 400 })
      assert.is_false(raw:exists(slot(400)))
    end)
  end)

  describe("meets a gap", function ()
    before_each(function () assert.equal(5, admin:create(5)) end)

    it("in the middle, reports it and changes nothing", function ()
      raw:delete(slot(3))
      names(failed("conflict", admin:slots()), slot(3), slot(5))
      names(failed("conflict", admin:add(1)), slot(3), slot(4), "repair()")
      names(failed("conflict", admin:remove(1)), slot(3), slot(4), "resize(n)")
      assert.same({ 1, 2, 4, 5 }, standing())
      local there, gone = { exists = true, held = false }, { exists = false, held = false }
      assert.same({ there, there, gone, there, there }, admin:status())
    end)

    it("at the beginning, and creates nothing behind which strays would stand", function ()
      raw:delete(slot(1))
      names(failed("conflict", admin:slots()), slot(1), slot(5))
      names(failed("conflict", admin:create(1)), slot(1), slot(2))
      names(failed("conflict", admin:add(1)), slot(1), slot(2))
      names(failed("conflict", admin:remove(1)), slot(1), slot(2))
      assert.same({ 2, 3, 4, 5 }, standing())
    end)

    it("wider than its first look", function ()
      make_slot(40)
      scene.undo(function () raw:delete(slot(40)) end)
      names(failed("conflict", admin:slots()), slot(6), slot(40))
      names(failed("conflict", admin:remove(1)), slot(6), slot(40))
      assert.equal(3, admin:resize(3))
      assert.is_false(raw:exists(slot(40)))
      assert.same({ 1, 2, 3 }, standing())
    end)

    -- It is told of 2 slots where 4 stand; `exists` is right as far as it goes, but hides what repair() is for.
    it("in the middle when it creates, and says so", function ()
      raw:delete(slot(3))
      names(failed("conflict", admin:create(2)), slot(3), slot(4))
    end)

    it("and repairs it, with what is there left as it is", function ()
      local kept = assert(connect():semaphore(name):try_acquire())
      raw:delete(slot(2))
      raw:delete(slot(4))
      assert.equal(5, admin:repair())
      assert.same({ 1, 2, 3, 4, 5 }, standing())
      for i = 1, 5 do assert.is_true(is_like(slot(i), scene.slot())) end
      assert.is_true(kept:verify())
      assert.equal(5, admin:repair())
      assert(kept:release())
    end)

    it("and repairs from the first slot on", function ()
      for i = 1, 4 do raw:delete(slot(i)) end
      assert.equal(5, admin:repair())
      assert.same({ 1, 2, 3, 4, 5 }, standing())
    end)

    for _, count in ipairs{ 0, 1, 3, 7 } do
      it(("and settles on %d slots"):format(count), function ()
        raw:delete(slot(2))
        assert.equal(count, admin:resize(count))
        assert.same(row(count), standing())
        assert.equal(count, admin:slots())
      end)
    end

    it("and destroys all of it", function ()
      raw:delete(slot(1))
      raw:delete(slot(3))
      assert.is_true(admin:destroy())
      assert.same({}, standing())
    end)

    it("nowhere when there is nothing to repair", function ()
      assert.is_true(admin:destroy())
      names(failed("not_found", admin:repair()), name)
    end)
  end)

  describe("meets slots so far past the end that only what it is about to declare leads there", function ()
    local function strays(...)
      for _, i in ipairs{ ... } do make_slot(i) end
      scene.undo(function () sweep(45) end)
    end

    it("and makes as many slots as it is told, no more", function ()
      strays(31, 32, 33)
      assert.equal(30, admin:resize(30))
      assert.equal(30, admin:slots())
      assert.is_false(raw:exists(slot(31)))
    end)

    it("and does not create a semaphore that would have more slots than it is told", function ()
      strays(31, 32, 33)
      names(failed("conflict", admin:create(30)), slot(31))
      assert.is_false(raw:exists(slot(1)))
    end)

    it("and builds on them, however they were made", function ()
      assert(raw:declare(slot(40), scene.slot "quorum"))
      strays()
      assert.equal(45, admin:resize(45))
      assert.equal(45, admin:slots())
    end)
  end)

  -- "Waiting on Lock Holders". The holder is another process that hears every look at its queue, lets go after a few,
  -- and never while the slot exists: whoever does not wait, finds it holding still.
  describe("removes slots that are held", function ()
    local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

    local function hold_elsewhere(i)
      local script = ([[
        local client, until_true = require "spec.support.client", require "spec.support.until"
        local scene = require "spec.broker.facts.scene"
        local raw = client.connect()
        local channel = raw:channel()
        scene.hold(channel, %q)
        print "held"
        io.stdout:flush()
        until_true(function () return not raw:exists(%q) end, 20)
        for _ = 1, 3 do assert(channel:await("basic.deliver", 20)) end
        raw:close()
        print "let go"
      ]]):format(holder(i), slot(i))
      local pipe = assert(io.popen(("exec %s -e %s 2>&1"):format(os.getenv "LUA" or "lua5.4", quote(script))))
      assert.equal("held", pipe:read("*l"))
      return pipe
    end

    local function let_go(pipe)
      assert.equal("let go", pipe:read("*l"))
      assert.is_true(pipe:close())
    end

    before_each(function () assert.equal(3, admin:create(3)) end)

    it("and leaves them to their holders", function ()
      local semaphore = connect():semaphore(name)
      local locks = {}
      for i = 1, 3 do locks[i] = assert(semaphore:try_acquire()) end
      assert.equal(1, admin:remove(2))
      for i = 1, 3 do
        assert.is_true(raw:locked(holder(i)))
        assert.is_true(locks[i]:held())
      end
      assert.is_true(locks[1]:verify())
      failed("removed", locks[3]:verify())
      assert.is_true(locks[3]:held())
      assert(locks[3]:release())
      assert.is_false(raw:exists(holder(3)))
      failed("busy", connect():semaphore(name):try_acquire())  -- the slot that came free is no more
    end)

    it("and waits for them to let go", function ()
      local pipe = hold_elsewhere(3)
      assert.equal(2, admin:remove(1))
      assert.is_true(raw:locked(holder(3)))
      assert.is_true(admin:wait_released({ 3 }, { timeout = 20 }))
      assert.is_false(raw:exists(holder(3)))
      let_go(pipe)
    end)

    for action, act in pairs{
      remove = function (options) return admin:remove(1, options) end,
      resize = function (options) return admin:resize(2, options) end,
      destroy = function (options) return admin:destroy(options) end,
    } do
      it("and waits for them to let go as part of it: " .. action, function ()
        local pipe = hold_elsewhere(3)
        assert.truthy(act{ wait = 20 })
        assert.is_false(raw:exists(holder(3)))
        assert.is_false(raw:exists(slot(3)))
        let_go(pipe)
      end)
    end

    it("and names those who do not, when the time is over; the slots are removed none the less", function ()
      local channel = scene.channel()
      scene.hold(channel, holder(2))
      scene.hold(channel, holder(3))
      local function names_them(slots, act) -- once it has looked: until then any of them may hold
        names(stage.times_out(act, function (message) return message:match("slot " .. slots .. "%f[^%d ]") end), name)
      end
      names_them("3 2", function (seconds)
        assert.equal(3, admin:resize(3))
        return admin:remove(3, { wait = seconds })
      end)
      assert.same({}, standing(3))
      assert.is_true(raw:locked(holder(2)))
      assert.is_true(raw:locked(holder(3)))
      names_them("2 3", function (seconds) return admin:wait_released({ 1, 2, 3 }, { timeout = seconds }) end)
      channel:close()
      assert.is_true(admin:wait_released{ 1, 2, 3 })
      assert.is_false(raw:exists(holder(3)))
    end)

    it("and waits for nobody where nobody holds", function ()
      assert.is_true(admin:wait_released{})
      assert.is_true(admin:wait_released{ 1, 3, 65535 })
      assert.equal(1, admin:remove(2, { wait = 20 }))
      assert.same({ 1 }, standing(3))
    end)
  end)

  describe("is told of its mistakes", function ()
    local nan = 0 / 0

    local function throws(part, fn, ...)
      local fine, message = pcall(fn, ...)
      assert.is_false(fine)
      names(message, part)
    end

    it("in numbers of slots", function ()
      for _, action in ipairs{ "create", "add", "remove", "resize" } do
        local bad = { -1, 1.5, 65536, 2^53, math.huge, -math.huge, nan, "3", true, {} }
        if action ~= "resize" then table.insert(bad, 0) end
        for _, value in ipairs(bad) do throws(action .. ": the number of slots", admin[action], admin, value) end
        throws(action .. ": the number of slots", admin[action], admin)
      end
      assert.same({}, standing())
    end)

    it("in lists of slots", function ()
      for _, bad in ipairs{ 0, -1, 1.5, 65536, nan, "1" } do
        throws("wait_released: a slot", admin.wait_released, admin, { 1, bad })
      end
      throws("wait_released: slots", admin.wait_released, admin, 3)
      throws("wait_released: slots", admin.wait_released, admin, { nil, 2 })
      throws("wait_released: slots", admin.wait_released, admin, { slot = 2 })
      throws("wait_released: slots", admin.wait_released, admin)
    end)

    it("in options, given to it or to one of its calls", function ()
      local conn = connect()
      for option, values in pairs{
        queue_type = { "stream", "", 1, true }, overshoot = { -1, 0.5, 65536, nan, "1" },
        timeout = { 0, -1, nan, math.huge, "1" }, wait = { -1, nan, math.huge, "1" }, ascending = { 1, "yes" },
        revoke = { 1, "yes" }, overshot = { 1 },
      } do
        for _, value in ipairs(values) do
          throws("option", conn.admin, conn, name, { [option] = value })
          for _, action in ipairs{ "create", "add", "remove", "resize" } do
            throws(action .. ": ", admin[action], admin, 1, { [option] = value })
            throws(option, admin[action], admin, 1, { [option] = value })
          end
          for _, action in ipairs{ "destroy", "repair", "slots", "status" } do
            throws(action .. ": ", admin[action], admin, { [option] = value })
            throws(option, admin[action], admin, { [option] = value })
          end
          throws(option, admin.wait_released, admin, { 1 }, { [option] = value })
        end
      end
      throws("options", conn.admin, conn, name, 5)
      throws("options", admin.create, admin, 1, "quorum")
      throws("options", admin.slots, admin, true)
      assert.same({}, standing())
    end)

    it("in names", function ()
      local conn = connect()
      for bad, why in pairs{
        [""] = "empty", [("n"):rep(231)] = "too long", ["amq.lock"] = "amq.",
        ["a\nb"] = "control", ["a\rb"] = "control", ["a\0b"] = "control", ["\127"] = "control",
        ["a\194\133b"] = "control", ["a\255b"] = "UTF-8", ["a\192\128b"] = "UTF-8", ["\237\160\128"] = "UTF-8",
        ["a\195"] = "UTF-8", ["\244\144\128\128"] = "UTF-8", [5] = "a string", [true] = "a string",
      } do
        throws("admin: ", conn.admin, conn, bad)
        throws(why, conn.admin, conn, bad)
        throws(why, conn.semaphore, conn, bad)
      end
      throws("the name", conn.admin, conn)
    end)
  end)

  it("creates, counts and destroys a thousand slots, of which a client finds the only free one", function ()
    local free, all = 777, 1000
    scene.undo(function () sweep(all) end)
    assert.equal(all, admin:create(all))
    assert.equal(all, admin:slots())
    assert.is_true(raw:exists(slot(1)))
    assert.is_true(raw:exists(slot(all)))
    assert.is_false(raw:exists(slot(all + 1)))
    local others = scene.connect()
    local channel = others:channel()
    for i = 1, all do
      if i ~= free then channel:send{ method = "queue.declare", queue = holder(i), exclusive = true } end
    end
    for _ = 2, all do assert(channel:await("queue.declare-ok", 20)) end
    local semaphore = connect():semaphore(name)
    local lock = assert(semaphore:try_acquire())
    assert.equal(free, lock.slot)
    assert.is_true(raw:locked(holder(free)))
    failed("busy", semaphore:try_acquire())
    assert.equal(all, #admin:status())
    assert(lock:release())
    others:close(20)
    assert.is_true(admin:destroy())
    assert.equal(0, admin:slots())
    for _, i in ipairs{ 1, 2, 16, 17, 500, all - 1, all } do assert.is_false(raw:exists(slot(i))) end
  end)

  if broker.suite then
    it("leaves nothing behind", function ()
      broker.suite:assert_none "admin."
    end)
  end
end)

-- A bell made beside quorum slots by version 0.1.0: a quorum queue, with a token for each slot.
describe("an old quorum bell", function ()
  local CLASSIC = { durable = true, arguments = { ["x-queue-type"] = "classic" } }
  local name, admin, raw

  before_each(function ()
    raw = scene.connect()
    name = stage.name()
    admin = stage.connect():admin(name, { queue_type = "quorum" })
    assert.equal(2, admin:create(2))
    assert(raw:delete(stage.bell(name)))
    assert(raw:declare(stage.bell(name), { durable = true, arguments = { ["x-queue-type"] = "quorum",
      ["x-delivery-limit"] = raw:since(4, 0) and -1 or nil } }))
    stage.ring(name, 2)
    stage.undo(function () for i = 1, 2 do stage.delete(stage.slot(name, i)) end end)
  end)

  after_each(function ()
    stage.clear()
    scene.clear()
  end)
  teardown(stage.check)

  local function is_classic()
    local same, reason = raw:declare(stage.bell(name), CLASSIC)
    assert(same or reason.code == 406, reason and reason.text)
    return same ~= nil
  end

  -- Who waits is woken: it would look by itself only in ten minutes. Each time by connections of their own, as RabbitMQ
  -- ends one whose channel remembers the queue of another kind.
  local function hands_over()
    local one = stage.connect():semaphore(name)
    local held = { stage.take(one), stage.take(one) }
    local waiting = stage.process(name)
    waiting:begin("lock = assert(sem:acquire{ timeout = 20, poll = 600 }) return lock.slot")
    until_true(function ()
      local channel = raw:channel()
      local bell = assert(channel:call{ method = "queue.declare", queue = stage.bell(name), passive = true })
      channel:close()
      return bell.consumer_count == 3
    end)
    assert.is_true(held[2]:release())
    assert.equal(held[2].slot, waiting:finish())
    assert.is_true(waiting:run("return lock:release()"))
    return held[1]
  end

  it("wakes those who wait, and is replaced by repair() once no slot is held", function ()
    local held = hands_over()
    stage.fails("busy", admin:repair())
    assert.is_false(is_classic())
    assert.is_true(held:verify())
    assert.is_true(held:release())
    until_true(function ()
      local count, message, code = admin:repair()
      assert(count or code == "busy", message) -- the queue learns of a consumer's end a moment later
      return count == 2, message
    end)
    assert.is_true(is_classic())
    until_true(function () return raw:message_count(stage.bell(name)) == 2 end)
    assert.is_true(hands_over():release())
  end)

  it("is used, and left, by every other action", function ()
    assert.equal(3, admin:resize(3))
    assert.equal(4, admin:add(1))
    assert.equal(2, admin:remove(2))
    assert.is_false(is_classic())
    assert.is_true(hands_over():release())
    assert.is_true(admin:destroy())
    assert.is_false(raw:exists(stage.bell(name)))
    assert.equal(1, admin:create(1))
    assert.is_true(is_classic())
  end)
end)
