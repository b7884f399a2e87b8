-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Administering a token semaphore when the administrator dies, the broker refuses, or an operator intervenes. The
-- rules: there are never more permits than marks, all collected permits go back, and repair restores the right numbers.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local process = require "spec.support.process"
local relay = require "spec.support.relay"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

after_each(stage.clear)
teardown(stage.check)

local fails = stage.fails

local SOAK = os.getenv "AMQPLOCKS_SOAK" -- every frame is a step then

local function names(message, ...)
  for _, part in ipairs{ ... } do
    assert.truthy(message:find(part, 1, true), ("%q is not in: %s"):format(part, message))
  end
end

local function nth(n, wanted)
  local seen = 0
  return function (frame)
    if wanted(frame) then seen = seen + 1 end
    return seen == n
  end
end

describe("administering permits", function ()
  local name, conn, tokens, raw

  before_each(function ()
    name = scene.name()
    conn = stage.connect()
    tokens = conn:token_semaphore(name)
    raw = stage.client()
  end)

  local function stands(count) scene.stands(raw, name, count) end

  local function mutex_is_free(which)
    return until_true(function () return not raw:exists((which or name) .. "-tokenadmin") end)
  end

  -- How many permits lie free, and how many marks there are, in this order or the other; nought where there is no
  -- queue.
  local function count(which, marks_first)
    local function messages(queue) return raw:exists(queue) and raw:message_count(queue) or 0 end
    local marks = marks_first and messages(scene.marks(which))
    local permits = messages(scene.permits(which))
    return permits, marks or messages(scene.marks(which))
  end

  local function never_too_many(which)
    for _, marks_first in ipairs{ false, true } do
      local permits, marks = count(which, marks_first)
      assert.is_true(permits <= marks, ("%d permits and %d marks"):format(permits, marks))
    end
  end

  -- An act of administration in another process, behind a relay.
  local function begin(call, which)
    local between, other = relay.new(), process.start()
    stage.undo(function () between:close() end)
    other:begin([[
      local call, name, url = ...
      local conn = assert(require("amqplocks").connect(url, { heartbeat = 300, timeout = 100, name = name }))
      local tokens = conn:token_semaphore(name)
      local result, message, code = assert((loadstring or load)("return (...):" .. call))(tokens)
      conn:close()
      return result, message, code
    ]], call, which or name, between.url)
    return other, between
  end

  -- An administrator in another process that has collected one of two permits to remove, and waits for the holder of
  -- the other. Returns the process and the holder.
  local function removes_two()
    assert.equal(2, tokens:create(2))
    local one, other = scene.taker(name):served(), stage.process(name)
    other:begin("return conn:token_semaphore(...):remove(2, { wait = 20 })", name)
    scene.until_consumers(raw, name, 2)
    return other, one
  end

  describe("when the administrator is killed", function ()
    local cases = {
      { call = "create(2)", target = 2 },
      { before = 1, call = "add(2)", target = 3 },
      { before = 3, call = "remove(2)", target = 1, loses_none = true },
      { before = 2, call = "resize(0)", target = 0 },
      { before = 2, lacks = 1, call = "repair()", target = 2 },
      { foreign = 2, call = "resize(1)", target = 1 },
    }

    local function prepare(case, which)
      local permits = conn:token_semaphore(which)
      if case.before then assert(permits:create(case.before)) end
      if case.lacks then scene.taker(which):served():acknowledge() end
      if case.foreign then
        assert(raw:declare(scene.permits(which), { durable = true }))
        for _ = 1, case.foreign do scene.publish(raw, scene.permits(which)) end
      end
    end

    -- Not looking, nor opening and closing channels.
    local function is_act(frame)
      return relay.is_step(frame) and not frame.passive and not frame.method:find "^channel"
        and frame.method ~= "basic.qos" and frame.method ~= "confirm.select"
    end

    -- Several at once, each up to another step: one takes half a second to see that permits are lost.
    local function begin_some(case, first_step, last_step)
      local victims = {}
      for step = first_step, last_step do
        local victim = { name = scene.name(), stop = nth(step, SOAK and relay.is_step or is_act) }
        prepare(case, victim.name)
        victim.process, victim.between = begin(case.call, victim.name)
        table.insert(victims, victim)
      end
      return victims
    end

    -- Each has come to its step, or to its end before.
    local function run(victims)
      local left = #victims
      while left > 0 do
        for _, victim in ipairs(victims) do
          if not victim.is_there then
            victim.came_so_far = victim.between:turn(victim.stop, 0.001)
            victim.is_there = victim.came_so_far or victim.between:has_ended()
            if victim.is_there then left = left - 1 end
          end
        end
      end
    end

    local function kill(victims)
      for _, victim in ipairs(victims) do
        if victim.came_so_far then victim.between:swallow() end
        victim.process:kill()
        victim.between:close()
      end
      for _, victim in ipairs(victims) do -- its connections are gone, and what they wrote is done
        mutex_is_free(victim.name)
        until_true(function ()
          return not broker.suite or pcall(broker.suite.tell, broker.suite, [[
            [] = [1 || [{client_properties, All}] <- rabbit_networking:connection_info_all([client_properties]),
              {<<"connection_name">>, longstr, Name} <- All, string:prefix(Name, $1) =/= nomatch], ok.
          ]], victim.name)
        end)
      end
    end

    -- All at once, over one connection.
    local function act_on_all(victims, action, permits)
      local operations = {}
      for i, victim in ipairs(victims) do
        operations[i] = conn._session:administer_tokens(action, victim.name, {}, permits)
      end
      for i, victim in ipairs(victims) do
        victim.result, victim.message, victim.code = stage.finish(conn, operations[i])
      end
    end

    local function mends(case, victims)
      act_on_all(victims, "repair")
      for _, victim in ipairs(victims) do
        if victim.result then
          scene.stands(raw, victim.name, victim.result)
        else
          assert.is_true(victim.code == "not_found" or case.foreign and victim.code == "conflict", victim.message)
        end
      end
      act_on_all(victims, "resize", case.target)
      for _, victim in ipairs(victims) do
        assert.equal(case.target, victim.result, victim.message)
        if case.target > 0 then scene.stands(raw, victim.name, case.target) end
      end
    end

    -- Each step is a frame that the broker gets: it does what that says, and the administrator sees no answer.
    for _, case in ipairs(cases) do
      it("at any step, leaves no more permits than marks, and what can be mended: " .. case.call, function ()
        local step = 1
        repeat
          local victims = begin_some(case, step, step + 7)
          run(victims)
          kill(victims)
          for _, victim in ipairs(victims) do
            local is_adopted = not case.foreign or raw:exists(scene.marks(victim.name))
            if is_adopted then never_too_many(victim.name) end
            if case.loses_none then
              local permits, marks = count(victim.name)
              assert.equal(marks, permits)
            end
          end
          mends(case, victims)
          step = step + 8
        until not victims[8].came_so_far
      end)
    end

    it("with marks in hand, is not forgotten by the next one who counts them", function ()
      assert.equal(3, tokens:create(3))
      local dead = scene.taker(name, 0, scene.marks(name)):served()
      local other, between = begin "resize(4)"
      assert.is_true(between:run(nth(2, function (frame) -- once, and once more
        return frame.method == "queue.declare" and frame.passive and frame.queue == scene.marks(name)
      end)))
      dead:die()
      assert.is_false(between:run(function () end))
      assert.equal(4, other:finish())
      stands(4)
    end)

  end)

  it("waits for another administrator, and gives up in time", function ()
    local other, one = removes_two()
    local message, seconds = stage.times_out(function (seconds)
      return tokens:add(1, { timeout = seconds, wait = 5 })
    end, function (why) return why:find "another administrator" end)
    names(message, ("%g s"):format(seconds))
    local third = stage.process(name)
    third:begin("return conn:token_semaphore(...):resize(1)", name)
    one:release()
    assert.equal(0, other:finish())
    assert.equal(1, third:finish())
    stands(1)
  end)

  operated_it("stops when an operator deletes the mutex, and gives back what it had", function ()
    local other, one = removes_two()
    broker.suite:delete_queue(name .. "-tokenadmin")
    names(fails("lost", other:finish()), "mutex", "deleted")
    assert.is_true(one:holds())
    one:release()
    stands(2)
  end)

  operated_it("under an alarm makes no permits, and says so before it has changed anything; it takes them", function ()
    assert.equal(3, tokens:create(3))
    local fresh = scene.name()
    local other = stage.connect()
    stage.alarm("memory", conn, other)
    for _, one in ipairs{ conn, other } do
      local sem = one:token_semaphore(name)
      for _, action in ipairs{ "add", "resize" } do
        local message = fails("blocked", sem[action](sem, 4))
        assert.is_nil(message:find("finish", 1, true))
      end
      fails("blocked", one:token_semaphore(fresh):create(1))
      assert.same({ 0, 0, 0 }, { one:token_semaphore(fresh):slots() })
      assert.equal(3, sem:repair())
      assert.same({ 3, 3, 0 }, { sem:slots() })
    end
    assert.equal(2, tokens:remove(1))
    assert.is_true(tokens:destroy())
    broker.suite:alarm(false)
    assert.equal(2, until_true(function () return tokens:create(2) end))
    stands(2)
  end)

  -- Tells what a user may do: configure, write, read.
  local function as_user(configure, write, read)
    local user = client.unique "user"
    local url = broker.suite:add_user(user, configure, write, read)
    stage.undo(function () broker.suite:delete_user(user) end)
    return stage.connect(url):token_semaphore(name)
  end

  operated_it("without a permission is refused, and leaves nothing", function ()
    local theirs = as_user("", ".*", ".*")
    names(fails("refused", theirs:create(1)), name)
    assert.equal(2, tokens:create(2))
    for _, action in ipairs{ "add", "remove", "resize" } do fails("refused", theirs[action](theirs, 1)) end
    fails("refused", theirs:destroy())
    stands(2)
    theirs = as_user(".*", "", ".*") -- may not publish
    fails("refused", theirs:add(1))
    assert.equal(2, theirs:repair())
    assert.equal(1, theirs:remove(1))
    stands(1)
    assert.is_true(theirs:destroy())
    fails("refused", theirs:create(2))
    assert.same({ 0, 0, 0 }, { tokens:slots() })
    theirs = as_user(".*", ".*", "-tokenadmin$") -- may not read permits
    assert.equal(2, theirs:create(2))
    names(fails("refused", theirs:remove(1)), scene.permits(name))
    fails("refused", theirs:repair())
    mutex_is_free()
    stands(2)
  end)
end)
