-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Administering a token semaphore when the broker refuses, or an operator intervenes. The rules: there are never more
-- permits than marks, and all collected permits go back. (In sim/crowd_spec administrators are killed.)
local broker = require "spec.support.broker"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

stage.tidy()

local fails = stage.fails

local function names(message, ...)
  for _, part in ipairs{ ... } do
    assert.truthy(message:find(part, 1, true), ("%q is not in: %s"):format(part, message))
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

  local function mutex_is_free()
    return until_true(function () return not raw:exists(name .. "-tokenadmin") end)
  end

  -- An administrator in another process that has collected one of two permits to remove, and waits for the holder of
  -- the other. Returns the process and the holder.
  local function removes_two()
    assert.equal(2, tokens:create(2))
    local one, other = scene.taker(name):served(), stage.process(name)
    other:begin("return conn:token_semaphore(...):remove(2, { wait = 60 })", name)
    scene.until_consumers(raw, name, 2)
    return other, one
  end

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
  local function as_user(...) return stage.connect_as(...):token_semaphore(name) end

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
