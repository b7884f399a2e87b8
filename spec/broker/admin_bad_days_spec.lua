-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Administering while other clients interfere, or the broker refuses. The rules: no action waits beyond its timeout,
-- the administrators' mutex is never left behind, the resulting state can be read and finished, no holder is affected.
-- (In sim/crowd_spec administrators are killed.)
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local facts = require "spec.broker.facts.scene"
local process = require "spec.support.process"
local relay = require "spec.support.relay"
local scene = require "spec.broker.admin_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local nth = relay.nth
local operated_it, operated_describe = broker.operated_it(it, pending), broker.operated_it(describe, pending)
local slot, holder, mutex, standing, row, mutex_is_free, names, connect, failed = scene.slot, scene.holder, scene.mutex,
  scene.standing, scene.row, scene.mutex_is_free, scene.names, stage.connect, stage.fails

-- One act of administration, of which other:finish() gives the result; the connection is collected then. It is patient
-- with the broker, as it hears nothing while a test has an operator called.
local ACT = [[
  local function act(url)
    local conn = assert(require("amqplocks").connect(url, { timeout = %g, heartbeat = 300 }))
    return conn:admin(%q, { timeout = 150 }):%s
  end
  local result, message, code = act(...)
  for _ = 1, 2 do collectgarbage() end
  return result, message, code
]]

stage.tidy()

describe("administering", function ()
  local name, conn, admin, raw

  before_each(function ()
    name, raw = scene.begin()
    conn = connect()
    admin = conn:admin(name)
  end)

  -- Begins an act in another process, behind a relay. `url`: the broker as another user.
  local function administrator(call, url, timeout)
    local between, other = relay.new(), process.start()
    stage.undo(function () between:close() end)
    between.url = url and url:gsub(":%d+$", between.url:match ":%d+$") or between.url
    return other:begin(ACT:format(timeout or 100, name, call), between.url), between
  end

  local function is_slot_method(method)
    return function (frame)
      return frame.method == method and not frame.passive and frame.queue:match "%-%d+%-A$" ~= nil
    end
  end

  local function wants_mutex(frame) return frame.method == "queue.declare" and frame.queue == mutex() end

  describe("when another administrator is at work", function ()
    it("waits for it", function ()
      assert.equal(2, admin:create(2))
      local working = raw:channel()
      facts.hold(working, mutex())
      local second, between = administrator "add(1)"
      assert.is_true(between:run(nth(3, wants_mutex)))
      assert.same({ 1, 2 }, standing())
      working:close()
      assert.is_false(between:run(nth(1000, wants_mutex)))
      assert.equal(3, second:finish())
      assert.same({ 1, 2, 3 }, standing())
      mutex_is_free()
    end)

    it("gives up in time, says why, and has done nothing", function ()
      facts.hold(raw:channel(), mutex())
      local message, seconds = stage.times_out(function (time)
        return conn:admin(name, { timeout = time }):resize(2)
      end, function (why) return why:find "another administrator" end)
      names(message, name, ("%g s"):format(seconds))
      assert.same({}, standing())
      assert.is_true(raw:exists(mutex()))
    end)

    -- Else it says "another administrator" until the time is over, and the one to look for does not exist.
    it("tells it from a plain queue by the mutex's name", function ()
      assert(raw:declare(mutex(), { durable = true }))
      stage.undo(function () stage.delete(name .. "-admin") end)
      names(failed("squatted", admin:create(2, { timeout = 20 })), mutex())
    end)

    it("loses no slot to it, and a third sees no gap that stays", function ()
      assert.equal(3, admin:create(3))
      local others = {}
      for i = 1, 2 do
        others[i] = stage.process(name)
        others[i]:begin([[
          local admin = conn:admin(...)
          for _ = 1, 4 do assert(admin:add(2)) assert(admin:remove(2)) end
          return true
        ]], name)
      end
      repeat
        local count = until_true(function ()
          local count, message, code = admin:slots()
          assert(count or code == "conflict", message)
          return count, message
        end)
        assert.is_true(count >= 3 and count <= 7)
      until others[1]:finished() and others[2]:finished()
      for _, other in ipairs(others) do assert.is_true(other:finish()) end
      assert.same({ 1, 2, 3 }, standing())
    end)
  end)

  -- It gets the mutex and two of ten declares, is answered those, and hears no more.
  for whose, case in pairs{
    ["its own"] = { "timeout", "create(10, { timeout = 5 })", 100 },
    ["the connection's"] = { "unreachable", "create(10)", 5 },
  } do
    it("keeps " .. whose .. " time when the broker falls silent half-way, and tells how to finish", function ()
      local other, between = administrator(case[2], nil, case[3])
      assert.is_true(between:run(nth(2, is_slot_method "queue.declare")))
      assert.is_false(between:run())
      names(failed(case[1], other:finish()), "5 s", "resize(10)")
      mutex_is_free()
      assert.same({ 1, 2 }, standing())
      assert.equal(10, admin:resize(10))
    end)
  end

  describe("when an operator intervenes", function ()
    -- What this user may do with a semaphore is in the semaphore's name.
    local user, url

    local function allow(write)
      broker.suite:permit(user, "^(?!.*no-configure|.*few-slots.*-[3-9]-A$)", write, "^(?!.*no-read)")
    end

    local function as_user(may)
      name, raw = scene.use(name .. "." .. may)
      admin = conn:admin(name)
      return connect(url):admin(name)
    end

    if broker.suite then
      setup(function ()
        user = client.unique("user")
        url = broker.suite:add_user(user)
        allow(".*")
      end)
      teardown(function () broker.suite:delete_user(user) end)
    end

    -- Half-way, the connection is closed or the mutex's queue deleted.
    for what, case in pairs{
      ["closes the connection"] = { "because", function () broker.suite:close_connections_of(user, "because") end },
      ["deletes the mutex's queue"] = { "mutex", function () broker.suite:delete_queue(mutex()) end },
    } do
      operated_it("and " .. what .. " half-way, tells so, and how to finish", function ()
        local other, between = administrator("create(10)", url)
        assert.is_true(between:run(nth(2, is_slot_method "queue.declare")))
        until_true(function () return #standing() == 2 end)
        case[2]()
        assert.is_false(between:run())
        names(failed("lost", other:finish()), name, case[1], "resize(10)")
        mutex_is_free()
        assert.same({ 1, 2 }, standing())
        assert.equal(10, admin:resize(10))
      end)
    end

    -- What is left of a mutex whose declare was allowed and whose consume was not, for one.
    local function nothing_is_left()
      mutex_is_free()
      assert.same({}, standing())
    end

    for _, may in ipairs{ "no-configure", "no-read" } do
      operated_it("and forbids what the mutex needs, is refused and leaves nothing: " .. may, function ()
        local theirs = as_user(may)
        for _ = 1, 2 do
          names(failed("refused", theirs:create(2)), name)
          nothing_is_left()
        end
        assert.equal(2, admin:create(2))
        assert.equal(2, theirs:slots())
        for _, action in ipairs{ "destroy", "repair" } do failed("refused", theirs[action](theirs)) end
        for _, action in ipairs{ "add", "remove", "resize" } do failed("refused", theirs[action](theirs, 1)) end
        mutex_is_free()
        assert.same({ 1, 2 }, standing())
      end)
    end

    operated_it("and forbids to configure some of the slots, is refused half-way and tells how to finish", function ()
      local theirs = as_user "few-slots"
      names(failed("refused", theirs:create(5)), slot(3), "resize(5)")
      mutex_is_free()
      assert.same({ 1, 2 }, standing())
      assert.equal(2, theirs:slots())
      assert.equal(1, theirs:remove(1))
      assert.equal(5, admin:resize(5))
      names(failed("refused", theirs:destroy()), slot(5), "resize(0)")
      assert.same(row(1, 5), standing())
    end)

    operated_it("and forbids to write, asks by other means", function ()
      stage.undo(function () allow(".*") end)
      allow("")
      local theirs = as_user "no-write"
      assert.equal(20, theirs:create(20))
      assert.equal(20, theirs:slots())
      assert.equal(3, theirs:remove(17))
      assert.same({ 1, 2, 3 }, standing())
      local channel = stage.client():channel()
      facts.hold(channel, holder(2))
      assert.same({ { exists = true, held = false }, { exists = true, held = true }, { exists = true, held = false } },
        theirs:status())
      stage.times_out(function (seconds)
        assert.equal(3, theirs:resize(3))
        return theirs:destroy{ wait = seconds }
      end, function (message) return message:find("slot 2;", 1, true) end)
      channel:close()
      assert.is_true(theirs:wait_released{ 1, 2, 3 })
      nothing_is_left()
    end)

    -- There is room for so many queues; whatever it needs more for is taken up, and given back, by a third.
    operated_describe("and limits the queues", function ()
      local ROOM = 13
      local vhost, vhost_url, theirs

      setup(function ()
        vhost = client.unique("limited")
        vhost_url = broker.suite:add_vhost(vhost, { queues = ROOM })
      end)
      teardown(function () broker.suite:delete_vhost(vhost) end)
      before_each(function ()
        theirs = connect(vhost_url):admin(name)
        name, raw = scene.use(name, { virtual_host = vhost })
        failed("not_found", theirs:destroy()) -- an administrator leaves a bolt, where there are any
      end)

      local function leave_room_for(count)
        local fill = stage.client(nil, { virtual_host = vhost })
        local room = ROOM - (raw:exists(name .. "-admin-bolt") and 1 or 0)
        for i = 1, room - count do assert(fill:declare(("%s-fill-%d"):format(name, i), { exclusive = true })) end
        return fill
      end

      it("to too few, tells so, and finishes when there is room again", function ()
        local fill = leave_room_for(6)
        names(failed("limit", theirs:create(10)), ('limit: queue "%s"'):format(slot(5)), "resize(10)")
        mutex_is_free()
        assert.same({ 1, 2, 3, 4 }, standing())
        assert.equal(4, theirs:slots())
        fill:close()
        assert.equal(10, theirs:resize(10))
        assert.same(row(1, 10), standing())
      end)

      it("and leaves no room for the mutex, tells so", function ()
        local fill = leave_room_for(1) -- for the mutex alone
        names(failed("limit", theirs:create(1)), name)
        nothing_is_left()
        assert(fill:declare(name .. "-fill-last", { exclusive = true }))
        names(failed("limit", theirs:create(1)), name, "mutex")
        nothing_is_left()
      end)
    end)

    operated_it("and there is a memory alarm, works on by other means", function ()
      assert.equal(3, admin:create(3))
      stage.alarm()
      assert.equal(3, admin:slots())
      assert.equal(6, admin:add(3))
      assert.equal(4, admin:remove(2))
      assert.is_true(raw:exists(slot(4)) and not raw:exists(slot(5)))
      assert.equal(4, #admin:status())
      local fresh = connect():admin(name)  -- has never published before
      assert.equal(20, fresh:resize(20))
      assert.equal(20, fresh:slots())
      assert.is_true(fresh:wait_released{ 1, 2 })
      assert.is_true(admin:destroy())
      broker.suite:alarm(false)
      assert.equal(2, admin:create(2))
      assert.same({ 1, 2 }, standing())
    end)
  end)

  describe("where a slot's name is taken", function ()
    it("by another connection's exclusive queue, names it and deletes nothing", function ()
      assert.equal(3, admin:create(3))
      local squatter = stage.client()
      assert(squatter:channel():call{ method = "queue.declare", queue = slot(4), exclusive = true })
      assert.equal(4, admin:slots())
      for _, action in ipairs{ "remove", "resize" } do names(failed("squatted", admin[action](admin, 1)), slot(4)) end
      names(failed("squatted", admin:destroy()), slot(4))
      mutex_is_free()
      assert.same({ 1, 2, 3, 4 }, standing())
      assert.equal(6, admin:add(2))
      assert(squatter:delete(slot(4))) -- it may outlive the connection by a moment
      assert.is_true(admin:destroy())
      assert.same({}, standing())
    end)

    for _, case in ipairs{
      { "of another type", { ["x-queue-type"] = "quorum", ["x-max-length"] = 0, ["x-overflow"] = "drop-head" } },
      { "that refuses messages", { ["x-max-length"] = 0, ["x-overflow"] = "reject-publish" }, "unavailable" },
    } do
      it("by a queue " .. case[1] .. ", counts it, builds on it, and removes it like its own", function ()
        assert(raw:declare(slot(1), { durable = true, arguments = case[2] }))
        assert.equal(1, admin:slots())
        assert.same({ { exists = true, held = false } }, admin:status())
        failed("exists", admin:create(2))
        local locking = connect()
        local lock, message, code = locking:semaphore(name):try_acquire()
        if case[3] then
          failed(case[3], lock, message, code)
          lock = assert(locking:semaphore(name, { probe = "passive" }):try_acquire())
        end
        assert(lock, message)
        assert.is_true(raw:locked(holder(1)))
        assert.is_true(lock:verify())
        assert.equal(3, admin:resize(3))
        assert.equal(4, admin:add(1))
        assert.same({ 1, 2, 3, 4 }, standing())
        assert.is_true(admin:destroy())
        assert.same({}, standing())
        assert(lock:release())
      end)
    end
  end)
end)
