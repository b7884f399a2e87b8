-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Administering while other clients interfere, the broker refuses, or the administrator dies. The rules: no action
-- waits beyond its timeout, the administrators' mutex is never left behind, the resulting state can be read and
-- finished, and no holder is affected.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local relay = require "spec.support.relay"
local scene = require "spec.broker.facts.scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it, operated_describe = broker.operated_it(it, pending), broker.operated_it(describe, pending)

local function new_relay()
  local between = relay.new()
  scene.undo(function () between:close() end)
  return between
end

-- Other processes ---------------------------------------------------------------------------------------------------

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local process = {}
process.__index = process

--- Runs a script in another process. What it prints is read with :line().
local function start(script, url)
  local lua = quote(os.getenv "LUA" or "lua5.4")
  local command = ("AMQP_URL=%s; export AMQP_URL; echo $$; exec %s -e %s 2>&1"):format(
    quote(url or os.getenv "AMQP_URL"), lua, quote(script))
  local pipe = assert(io.popen(("exec timeout -s KILL 200 sh -c %s"):format(quote(command))))
  local self = setmetatable({ pipe = pipe, pid = pipe:read("*l") }, process)
  scene.undo(function () self:kill() end)
  return self
end

function process:line() return self.pipe:read("*l") end

function process:kill()
  if not self.pipe then return end
  os.execute("kill -KILL " .. self.pid .. " 2>/dev/null")
  self.pipe:close()
  self.pipe = nil
end

-- One act of administration, the result of which it prints: a number, or a code and a message. It is patient with the
-- broker, as it hears nothing while a test has an operator called.
local ACT = [[
  local amqplocks = require "amqplocks"
  local conn = assert(amqplocks.connect(nil, { timeout = %g, heartbeat = 300 }))
  local result, message, code = conn:admin(%q, { timeout = 150 }):%s
  print(result or code)
  print(message)
]]

describe("administering", function ()
  local name, conn, admin, raw

  local function slot(i) return ("%s-%d-A"):format(name, i) end
  local function holder(i) return ("%s-%d-B"):format(name, i) end
  local function mutex() return name .. "-admin" end

  local function connect(url)
    local new = assert(amqplocks.connect(url))
    scene.undo(function () new:close() end)
    return new
  end

  local function administrator(call, url, timeout) return start(ACT:format(timeout or 100, name, call), url) end

  -- By probing, since there may be many.
  local function standing(last)
    local found = {}
    for i = 1, last or 20 do
      if raw:probe(slot(i)) ~= "absent" then table.insert(found, i) end
    end
    return found
  end

  local function row(from, to)
    local numbers = {}
    for i = from, to do table.insert(numbers, i) end
    return numbers
  end

  local function mutex_is_free()
    return until_true(function () return not raw:exists(mutex()) end)
  end

  local function sweep(last, options)
    local sweeper = assert(client.connect(nil, options))
    local channel = sweeper:channel()
    for i = 1, last do channel:send{ method = "queue.delete", queue = slot(i) } end
    channel:send{ method = "queue.delete", queue = name .. "-bell" }
    channel:send{ method = "queue.delete", queue = name .. "-admin-bolt" }
    for _ = 1, last + 2 do assert(channel:await("queue.delete-ok", 20)) end
    sweeper:close()
  end

  local function names(message, ...)
    for _, part in ipairs{ ... } do
      assert.truthy(message:find(part, 1, true), ("%q is not in: %s"):format(part, message))
    end
  end

  local function failed(code, ...)
    local result, message, got = ...
    assert.is_nil(result)
    assert.equal(code, got)
    names(message, code .. ": ")
    return message
  end

  before_each(function ()
    name = client.unique("bad-days")
    raw = scene.connect()
    scene.undo(function () sweep(20) end)
    conn = connect()
    admin = conn:admin(name)
  end)
  after_each(scene.clear)

  -- A stop for the relay, at the n-th frame that is asked for.
  local function nth(n, wanted)
    local seen = 0
    return function (frame)
      if wanted(frame) then seen = seen + 1 end
      return seen == n
    end
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
      local other = raw:channel()
      scene.hold(other, mutex())
      local between = new_relay()
      local second = administrator("add(1)", between.url)
      assert.is_true(between:run(nth(3, wants_mutex)))
      assert.same({ 1, 2 }, standing())
      other:close()
      assert.is_false(between:run(nth(1000, wants_mutex)))
      assert.equal("3", second:line())
      assert.same({ 1, 2, 3 }, standing())
      mutex_is_free()
    end)

    it("gives up in time, says why, and has done nothing", function ()
      scene.hold(raw:channel(), mutex())
      local function gives_up(act)
        local message, seconds = stage.times_out(act, function (why) return why:find "another administrator" end)
        names(message, name, ("%g s"):format(seconds))
      end
      gives_up(function (seconds) return admin:create(2, { timeout = seconds }) end)
      gives_up(function (seconds) return conn:admin(name, { timeout = seconds }):resize(2) end)
      assert.same({}, standing())
      assert.is_true(raw:exists(mutex()))
    end)

    -- Else it says "another administrator" until the time is over, and the one to look for does not exist.
    it("tells it from a plain queue by the mutex's name", function ()
      assert(raw:declare(mutex(), { durable = true }))
      scene.undo(function () raw:delete(mutex()) end)
      names(failed("squatted", admin:create(2, { timeout = 20 })), mutex())
    end)

    it("loses no slot to it, and a third sees no gap that stays", function ()
      assert.equal(3, admin:create(3))
      local script = [[
        local amqplocks, client = require "amqplocks", require "spec.support.client"
        local name, mark = %q, %q
        local raw = client.connect()
        assert(raw:channel():call{ method = "queue.declare", queue = mark, exclusive = true })
        print "begun"
        io.stdout:flush()
        local admin = assert(amqplocks.connect()):admin(name)
        for _ = 1, 8 do
          local more = assert(admin:add(2))
          local fewer = assert(admin:remove(2))
          assert(more > 4 and more < 8 and fewer > 2 and fewer < 6)
        end
        raw:close()
        print "done"
      ]]
      local marks, others = { name .. "-one", name .. "-two" }, {}
      for i, mark in ipairs(marks) do others[i] = start(script:format(name, mark)) end
      for _, other in ipairs(others) do assert.equal("begun", other:line()) end
      repeat
        local count = until_true(function ()
          local count, message, code = admin:slots()
          assert(count or code == "conflict", message)
          return count, message
        end)
        assert.is_true(count >= 3 and count <= 7)
      until not raw:exists(marks[1]) and not raw:exists(marks[2])
      for _, other in ipairs(others) do assert.equal("done", other:line()) end
      assert.equal(3, admin:slots())
      assert.same({ 1, 2, 3 }, standing())
    end)
  end)

  describe("when the administrator is killed", function ()
    local MANY, MORE = 250, 20 -- slots that it makes, and that may be added

    before_each(function () scene.undo(function () sweep(MANY + MORE) end) end)

    -- Starts an administrator and kills it as soon as the condition holds.
    local function kill_when(call, condition)
      local other = administrator(call)
      until_true(condition)
      other:kill()
      mutex_is_free()
      return standing(MANY)
    end

    it("half-way in creating, leaves a shorter semaphore, which resize finishes", function ()
      local stood = kill_when(("create(%d)"):format(MANY), function () return raw:exists(slot(40)) end)
      assert.is_true(#stood >= 40 and #stood < MANY)
      assert.same(row(1, #stood), stood)
      assert.equal(#stood, admin:slots())
      local lock = assert(conn:semaphore(name):try_acquire())
      assert.equal(#stood + MORE, admin:resize(#stood + MORE))
      assert.same(row(1, #stood + MORE), standing(MANY + MORE))
      assert(lock:release())
    end)

    it("half-way in destroying, leaves a shorter semaphore, which can be destroyed", function ()
      assert.equal(MANY, admin:create(MANY))
      local stood = kill_when("destroy()", function () return not raw:exists(slot(MANY - 40)) end)
      assert.is_true(#stood > 0 and #stood < MANY - 40)
      assert.same(row(1, #stood), stood)
      assert.equal(#stood, admin:slots())
      assert.is_true(admin:destroy())
      assert.same({}, standing(MANY))
    end)

    -- After the third of five deletions.
    local function half_removed()
      assert.equal(8, admin:resize(8))
      local between = new_relay()
      local other = administrator("remove(5, { ascending = true })", between.url)
      assert.is_true(between:run(nth(3, is_slot_method "queue.delete")))
      between:swallow()
      other:kill()
      between:close()
      mutex_is_free()
      assert.same({ 1, 2, 3, 7, 8 }, standing())
      names(failed("conflict", admin:slots()), slot(4), slot(8))
      names(failed("conflict", admin:add(1)), slot(4), slot(7))
    end

    it("half-way in removing upwards, leaves a gap, which repair closes", function ()
      half_removed()
      assert.equal(8, admin:repair())
      assert.same(row(1, 8), standing())
    end)

    it("half-way in removing upwards, leaves a gap, which resize settles", function ()
      half_removed()
      assert.equal(3, admin:resize(3))
      assert.same({ 1, 2, 3 }, standing())
      half_removed()
      assert.equal(10, admin:resize(10))
      assert.same(row(1, 10), standing())
    end)


    for _, case in ipairs{
      { before = 0, call = "create(2)", after = 2 },
      { before = 3, call = "resize(1)", after = 1 },
      { before = 4, gap = 2, call = "repair()", after = 4 },
    } do
      -- Each step is a request that the broker does and the administrator sees no answer to.
      it("at any step, can be followed by another: " .. case.call, function ()
        local step, half_way = 0, {}
        repeat
          step = step + 1
          admin:resize(case.before)
          if case.gap then raw:delete(slot(case.gap)) end
          local between = new_relay()
          local other = administrator(case.call, between.url)
          local came_so_far = between:run(nth(step, relay.is_request))
          between:swallow()
          other:kill()
          between:close()
          mutex_is_free()
          local stood = standing()
          half_way[#stood] = true
          if not case.gap then assert.same(row(1, #stood), stood) end
          assert.equal(case.after, admin:resize(case.after))
          assert.same(row(1, case.after), standing())
        until not came_so_far
        for i = math.min(case.before, case.after), math.max(case.before, case.after) do
          assert.is_true(half_way[i] or case.gap ~= nil, i .. " slots were never seen")
        end
      end)
    end
  end)

  it("for longer than it may, lets the mutex go and works on", function ()
    local many = 1000
    scene.undo(function () sweep(many) end)
    names(failed("timeout", admin:create(many, { timeout = 0.2 })), name, "0.2 s")
    mutex_is_free()
    local stood = #standing(many)
    assert.is_true(stood < many)
    assert.equal(stood, admin:slots())
    assert.equal(2, admin:resize(2))
    assert.same({ 1, 2 }, standing())
  end)

  describe("when the broker falls silent half-way", function ()
    -- It gets the mutex and two of ten declares, answers those, and hears no more.
    local function silenced(call, timeout)
      local between = new_relay()
      local other = administrator(call, between.url, timeout)
      assert.is_true(between:run(nth(2, is_slot_method "queue.declare")))
      assert.is_false(between:run())
      local code, message = other:line(), other:line()
      mutex_is_free()
      assert.same({ 1, 2 }, standing())
      return code, message
    end

    it("keeps its own time, and tells how to finish", function ()
      local code, message = silenced "create(10, { timeout = 5 })"
      assert.equal("timeout", code)
      names(message, name, "5 s", "resize(10)")
      assert.equal(10, admin:resize(10))
    end)

    it("keeps the connection's time, and tells how to finish", function ()
      local code, message = silenced("create(10)", 5)
      assert.equal("unreachable", code)
      names(message, "5 s", "resize(10)")
      assert.equal(10, admin:resize(10))
    end)
  end)

  describe("when an operator intervenes", function ()
    -- What this user may do with a semaphore is in the semaphore's name.
    local user, url

    local function allow(write)
      broker.suite:permit(user, "^(?!.*no-configure|.*few-slots.*-[3-9]-A$)", write, "^(?!.*no-read)")
    end

    local function as_user(prefix)
      name = client.unique("bad-days." .. prefix)
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

    operated_it("and closes the connection half-way, tells so, and how to finish", function ()
      local between = new_relay()
      between.url = url:gsub(":%d+$", between.url:match ":%d+$")
      local other = administrator("create(10)", between.url)
      assert.is_true(between:run(nth(2, is_slot_method "queue.declare")))
      until_true(function () return #standing() == 2 end)
      broker.suite:close_connections_of(user, "because")
      assert.is_false(between:run())
      assert.equal("lost", other:line())
      names(other:line(), name, "because", "resize(10)")
      mutex_is_free()
      assert.same({ 1, 2 }, standing())
      assert.equal(10, admin:resize(10))
    end)

    operated_it("and closes the connection while it waits for another administrator, tells so", function ()
      local between = new_relay()
      between.url = url:gsub(":%d+$", between.url:match ":%d+$")
      scene.hold(raw:channel(), mutex())
      local other = administrator("create(10)", between.url)
      assert.is_true(between:run(nth(2, wants_mutex)))
      broker.suite:close_connections_of(user, "because")
      assert.is_false(between:run(nth(1000, wants_mutex)))
      assert.equal("unreachable", other:line())
      names(other:line(), "because")
      assert.same({}, standing())
    end)

    operated_it("and closes the connection between two acts, works on, if not at once", function ()
      local theirs = as_user "all"
      assert.equal(2, theirs:create(2))
      broker.suite:close_connections_of(user, "because")
      local count, message, code = theirs:add(1)
      if not count then names(failed("unreachable", count, message, code), "because") end
      assert.equal(3, theirs:resize(3))
      assert.same({ 1, 2, 3 }, standing())
      mutex_is_free()
    end)

    operated_it("and deletes the mutex's queue half-way, stops and tells how to finish", function ()
      local between = new_relay()
      local other = administrator("create(10)", between.url)
      assert.is_true(between:run(nth(2, is_slot_method "queue.declare")))
      until_true(function () return #standing() == 2 end)
      broker.suite:delete_queue(mutex())
      assert.is_false(between:run())
      assert.equal("lost", other:line())
      names(other:line(), name, "mutex", "deleted", "resize(10)")
      assert.same({ 1, 2 }, standing())
      assert.equal(10, admin:resize(10))
    end)

    -- What is left of a mutex whose declare was allowed and whose consume was not, for one.
    local function nothing_is_left()
      mutex_is_free()
      assert.same({}, standing())
    end

    operated_it("and forbids to configure, is refused and leaves nothing", function ()
      local theirs = as_user "no-configure"
      names(failed("refused", theirs:create(2)), name)
      nothing_is_left()
      assert.equal(2, admin:create(2))
      assert.equal(2, theirs:slots())
      for _, action in ipairs{ "destroy", "repair" } do failed("refused", theirs[action](theirs)) end
      for _, action in ipairs{ "add", "remove", "resize" } do failed("refused", theirs[action](theirs, 1)) end
      assert.same({ 1, 2 }, standing())
    end)

    operated_it("and forbids to read, is refused and leaves nothing", function ()
      local theirs = as_user "no-read"
      names(failed("refused", theirs:create(2)), name)
      nothing_is_left()
      failed("refused", theirs:create(2))  -- the second time as well
      nothing_is_left()
    end)

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
      scene.undo(function () allow(".*") end)
      allow("")
      local theirs = as_user "no-write"
      assert.equal(0, theirs:slots())
      assert.equal(3, theirs:create(3))
      assert.equal(20, theirs:add(17))
      assert.equal(20, theirs:slots())
      assert.same(row(1, 20), standing())
      assert.equal(3, theirs:remove(17))
      local channel = scene.channel()
      scene.hold(channel, holder(2))
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
        raw = scene.connect{ virtual_host = vhost }
        scene.undo(function () sweep(20, { virtual_host = vhost }) end)
        failed("not_found", theirs:destroy()) -- who administers leaves a bolt, where there are any
      end)

      local function leave_room_for(count)
        local fill = scene.connect{ virtual_host = vhost }
        local room = ROOM - (raw:exists(name .. "-admin-bolt") and 1 or 0)
        for i = 1, room - count do assert(fill:declare(("%s-fill-%d"):format(name, i), { exclusive = true })) end
        return function () fill:close() end
      end

      it("to too few, tells so, and finishes when there is room again", function ()
        local lift = leave_room_for(6)
        names(failed("limit", theirs:create(10)), ('limit: queue "%s"'):format(slot(5)), "resize(10)")
        mutex_is_free()
        assert.same({ 1, 2, 3, 4 }, standing())
        assert.equal(4, theirs:slots())
        lift()
        assert.equal(10, theirs:resize(10))
        assert.same(row(1, 10), standing())
      end)

      it("to too few to close a gap, tells which queue was one too many", function ()
        assert.equal(8, theirs:create(8))
        for i = 1, 4 do raw:delete(slot(i)) end
        leave_room_for(8)
        names(failed("limit", theirs:resize(10)), ('limit: queue "%s"'):format(slot(3)), "resize(10)")
        assert.same({ 1, 2, 5, 6, 7, 8 }, standing())
      end)

      it("and leaves no room for the mutex, tells so", function ()
        leave_room_for(0)
        names(failed("limit", theirs:create(1)), name, "mutex")
        nothing_is_left()
      end)

      -- The scratch queue is refused: it says "unreachable", with the broker's words about the limit behind.
      it("and leaves room for the mutex alone, tells so", function ()
        leave_room_for(1)
        names(failed("limit", theirs:create(1)), name)
        nothing_is_left()
      end)
    end)

    operated_it("and there is a memory alarm, works on by other means", function ()
      assert.equal(3, admin:create(3))
      local is_over
      local function over()
        if is_over then return end
        broker.suite:alarm(false)
        is_over = true
      end
      scene.undo(over)
      local watching = scene.connect()
      local publisher = watching:channel()
      broker.suite:alarm(true)
      until_true(function ()
        publisher:publish{ routing_key = name }
        return watching:find(function (frame) return frame.method == "connection.blocked" end, 0.05)
      end)
      assert.equal(3, admin:slots())
      assert.equal(6, admin:add(3))
      assert.equal(4, admin:remove(2))
      assert.is_true(raw:exists(slot(4)))
      assert.is_false(raw:exists(slot(5)))
      assert.equal(4, #admin:status())
      local fresh = connect():admin(name)  -- has never published before
      assert.equal(20, fresh:resize(20))
      assert.equal(20, fresh:slots())
      assert.is_true(raw:exists(slot(20)))
      assert.is_true(fresh:wait_released{ 1, 2 })
      assert.is_true(admin:destroy())
      for i = 1, 20 do assert.is_false(raw:exists(slot(i))) end
      over()
      assert.equal(2, admin:create(2))
      assert.same({ 1, 2 }, standing())
    end)
  end)

  describe("where a slot's name is taken", function ()
    it("by another connection's exclusive queue, names it and deletes nothing", function ()
      assert.equal(3, admin:create(3))
      local squatter = scene.connect()
      assert(squatter:channel():call{ method = "queue.declare", queue = slot(4), exclusive = true })
      assert.equal(4, admin:slots())
      names(failed("squatted", admin:remove(2)), slot(4))
      names(failed("squatted", admin:remove(2, { ascending = true })), slot(4))
      names(failed("squatted", admin:resize(1)), slot(4))
      names(failed("squatted", admin:destroy()), slot(4))
      mutex_is_free()
      assert.same({ 1, 2, 3, 4 }, standing())
      assert.equal(6, admin:add(2))
      assert(squatter:delete(slot(4))) -- it may outlive the connection by a moment
      assert.is_true(admin:destroy())
      assert.same({}, standing())
    end)

    for _, case in ipairs{
      { "without arguments" },
      { "of another type", { ["x-queue-type"] = "quorum", ["x-max-length"] = 0, ["x-overflow"] = "drop-head" } },
      { "that is lazy", { ["x-queue-mode"] = "lazy" } },
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

  -- A client's day while slots come and go: whatever it is told is true, and whoever holds goes on holding.
  for _, case in ipairs{
    { "shrinks and grows", counts = "4, 1, 3, 2", codes = { busy = true, timeout = true } },
    { "comes and goes", counts = "2, 0, 3, 0", codes = { busy = true, timeout = true, not_found = true } },
  } do
    it("while clients come and go, disturbs none: the semaphore " .. case[1], function ()
      assert.equal(2, admin:create(2))
      local kept = assert(conn:semaphore(name):try_acquire())
      assert.equal(1, kept.slot)
      local mark = name .. "-mark"
      local other = start(([[
        local amqplocks, client = require "amqplocks", require "spec.support.client"
        local raw = client.connect()
        assert(raw:channel():call{ method = "queue.declare", queue = %q, exclusive = true })
        print "begun"
        io.stdout:flush()
        local admin = assert(amqplocks.connect()):admin(%q)
        for i = 1, 10 do
          for _, count in ipairs{ %s } do assert(admin:resize(count, { ascending = i %% 2 == 0 }) == count) end
        end
        raw:close()
        print "done"
      ]]):format(mark, name, case.counts))
      assert.equal("begun", other:line())
      local semaphore, got = connect():semaphore(name), 0
      repeat
        for try = 1, 4 do
          local lock, message, code = semaphore:acquire{ timeout = try % 2 * 0.02 }
          if lock then
            got = got + 1
            assert.is_true(lock.slot > 1)
            assert.is_true(raw:locked(holder(lock.slot)))
            assert.is_true(lock:held())
            local fine, _, why = lock:verify()
            assert.is_true(fine or why == "removed")
            assert(lock:release())
          else
            assert.is_true(case.codes[code], message)
          end
        end
        assert.is_true(kept:held())
        local fine, _, why = kept:verify()
        assert.is_true(fine or case.codes.not_found and why == "removed")
      until not raw:exists(mark)
      assert.equal("done", other:line())
      assert.is_true(got > 0)
      assert.is_true(raw:locked(holder(1)))
      for i = 2, 4 do -- what was claimed when the time was over is undone behind it
        until_true(function () return not raw:exists(holder(i)) end)
      end
      assert(kept:release())
    end)
  end

  if broker.suite then
    it("leaves nothing behind", function ()
      broker.suite:assert_none "bad-days."
    end)
  end
end)
