-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Clients of version 0.1.0 and of this version at one quorum semaphore, whose bell either version declared: waiters of
-- both are woken. AMQPLOCKS_OLD names a checkout of the old version, commit b4ad7ce, built for this Lua. Without it the
-- tests are pending.
local client = require "spec.support.client"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local OLD = os.getenv "AMQPLOCKS_OLD"
local old_it = OLD and it or pending

local function environment()
  local lua = process.shell("make", "-s", "-C", OLD, "env")
  local path, cpath = lua:match "LUA_PATH='([^']*)'", lua:match "LUA_CPATH='([^']*)'"
  return { LUA_PATH = path .. "./?.lua;;", LUA_CPATH = cpath .. ";" }
end

local function start(version, name)
  local one = process.start(version == "old" and environment() or nil)
  one:run([[
    amqplocks = require "amqplocks"
    conn = assert(amqplocks.connect())
    sem, admin = conn:semaphore(...), conn:admin(..., { queue_type = "quorum" })
    tokens = conn:token_semaphore(..., { queue_type = "quorum" })
  ]], name)
  local path = one:run "return package.searchpath('amqplocks', package.path)"
  assert.equal(version == "old", path:sub(1, #(OLD or "")) == OLD)
  return one
end

-- One holds the only slot, another waits and looks by itself only in ten minutes, and is woken; and by a death, too.
local function hands_over(name, holder, waiter, raw)
  holder, waiter = start(holder, name), start(waiter, name)
  holder:run "lock = assert(sem:acquire{ timeout = 20 })"
  local function await_consumers()
    until_true(function()
      local channel = raw:channel()
      local bell = assert(channel:call{ method = "queue.declare", queue = stage.bell(name), passive = true })
      channel:close()
      return bell.consumer_count == 2
    end)
  end
  waiter:begin "lock = assert(sem:acquire{ timeout = 20, poll = 600 }) return lock:held()"
  await_consumers()
  assert.is_true(holder:run "return lock:release()")
  assert.is_true(waiter:finish())
  holder:begin "lock = assert(sem:acquire{ timeout = 20, poll = 600 }) return lock:held()"
  await_consumers()
  waiter:kill()
  assert.is_true(holder:finish())
  assert.is_true(holder:run "return lock:release()")
  holder:run "conn:close()"
end

describe("a quorum semaphore whose clients are of two versions", function()
  after_each(function()
    process.clear()
    stage.clear()
  end)
  teardown(stage.check)

  for _, maker in ipairs{ "old", "new" } do
    old_it("is handed over, with a bell that the " .. maker .. " version made", function()
      local name, raw = stage.name(), assert(client.connect())
      assert.equal(1, start(maker, name):run "return admin:create(1)")
      hands_over(name, "old", "new", raw)
      hands_over(name, "new", "old", raw)
      for _, version in ipairs{ "old", "new", "old" } do
        local one = start(version, name)
        assert.equal(1, until_true(function() return one:run "return admin:repair()" end))
        assert.equal(3, one:run "return admin:resize(3)")
        assert.equal(1, one:run "return admin:remove(2)")
        one:run "conn:close()"
      end
      hands_over(name, "old", "new", raw)
      hands_over(name, "new", "old", raw)
      assert.is_true(start("old", name):run "return admin:destroy()")
      raw:close()
    end)
  end

  old_it("has fencing tokens, which grow across holders of the old version, on permits of the new one", function()
    local name = stage.name()
    local old, new = start("old", name), start("new", name)
    local function next_number()
      return new:run [[
        permit = assert(tokens:acquire{ timeout = 20 })
        local fence = permit.fence
        assert(permit:release())
        return fence]]
    end
    assert.equal(1, old:run "return tokens:create(1)")
    assert.is_nil(next_number())
    new:run("fenced = conn:token_semaphore(..., { queue_type = 'quorum', fenced = true })", name)
    assert.equal("conflict", new:run "return select(3, fenced:acquire{ timeout = 20 })")
    assert.equal(0, new:run "return tokens:resize(0)")
    assert.equal(1, new:run "return tokens:resize(1)")
    local last = next_number()
    for _ = 1, 5 do
      old:run "permit = assert(tokens:acquire{ timeout = 20 })"
      old:run "assert(permit:verify() and permit:release())"
      local number = next_number()
      assert.is_true(number > last + 1)
      last = number
    end
    assert.equal(1, old:run "return tokens:repair()")
    assert.is_true(next_number() > last)
    assert.is_true(old:run "return tokens:destroy()")
  end)

  old_it("hands on permits, also where one goes back with its channel", function()
    local name, raw = stage.name(), assert(client.connect())
    local old, new = start("old", name), start("new", name)
    assert.equal(1, old:run "return tokens:create(1)")
    new:run("mutex = assert(conn:mutex(...):try_acquire())", name)
    for _ = 1, 10 do
      for _, pair in ipairs{ { old, new }, { new, old } } do
        pair[1]:run "permit = assert(tokens:acquire{ timeout = 20 })"
        pair[2]:begin "permit = assert(tokens:acquire{ timeout = 20 }) return permit:held()"
        pair[1]:run "assert(permit:verify() and permit:release())"
        assert.is_true(pair[2]:finish())
        pair[2]:run "assert(permit:verify() and permit:release())"
      end
    end
    assert.is_true(new:run "return mutex:verify()")
    assert.is_true(old:run "return tokens:destroy()")
    raw:close()
  end)
end)
