-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Clients of version 0.1.0 and of this version at the same lock: each keeps the other out, is woken by the other's
-- release and death, and hears the other's requests to release.
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local old_version = require "spec.support.old_version"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local old_it = old_version.it(it, pending)

local ENVIRONMENT

-- A process of one of the versions, with a connection.
local function start(version)
  if version == "old" and not ENVIRONMENT then ENVIRONMENT = old_version.environment() end
  local one = process.start(version == "old" and ENVIRONMENT or nil)
  one:run [[
    amqplocks = require "amqplocks"
    conn = assert(amqplocks.connect())
    function told(told_already)
      return function()
        if not told_already then io.stdout:write "waits\n" io.stdout:flush() end
        told_already = true
      end
    end
  ]]
  assert.equal(version == "old" and "amqplocks 0.1.0" or require("amqplocks")._VERSION,
    one:run "return amqplocks._VERSION")
  return one
end

-- Both processes get `it`, the lock, by the same Lua source with the lock's name for `...`.
local function pair(source, name)
  local old, new = start "old", start "new"
  for _, one in ipairs{ old, new } do one:run("it = " .. source, name) end
  return old, new
end

local function waits(one)
  local _, before = one:output():gsub("waits\n", "")
  return function()
    until_true(function() return select(2, one:output():gsub("waits\n", "")) > before, one:output() end)
  end
end

-- It looks by itself only in ten minutes: if it gets the lock before, it was woken.
local function begin_to_wait(one, method)
  local await = waits(one)
  one:begin("lock = assert(it[...](it, { timeout = 30, poll = 600, on_wait = told() })) return lock:held()", method)
  await()
end

local function take(one, method) one:run("lock = assert(it[...](it, { timeout = 30 }))", method) end
local function release(one) assert.is_true(one:run "return lock:release()") end

local function is_refused(one, method)
  local lock, _, code = one:run("local lock, message, code = it[...](it) return lock and true, message, code", method)
  assert.is_nil(lock)
  assert.equal("busy", code)
end

-- Each holds in turn: the other one is refused, waits, and is woken by the release. At last by the holder's death.
local function is_handed_over(old, new, method, try)
  for _, turn in ipairs{ { old, new }, { new, old } } do
    local holder, waiter = turn[1], turn[2]
    take(holder, method)
    is_refused(waiter, try)
    begin_to_wait(waiter, method)
    release(holder)
    assert.is_true(waiter:finish(40))
    is_refused(holder, try)
    release(waiter)
  end
end

local function survives(holder, waiter, method)
  take(holder, method)
  begin_to_wait(waiter, method)
  holder:kill()
  assert.is_true(waiter:finish(40))
  release(waiter)
end

-- The kinds of locks that need a name only, or are created by one of the versions.
local KINDS = {
  { "a mutex", "conn:mutex(...)", stage.mutex },
  { "a semaphore", "conn:semaphore(...)", function() return stage.semaphore(1) end },
  { "a permit", "conn:token_semaphore(...)", stage.name, creator = "it:create(1)" },
  { "a readers–writer lock, writing,", "conn:rwlock(...)", gate.name, method = "write" },
}

describe("clients of version 0.1.0 and of this version", function()
  after_each(function()
    process.clear()
    stage.clear()
  end)
  teardown(stage.check)

  for _, kind in ipairs(KINDS) do
    local method = kind.method or "acquire"

    for _, dies in ipairs{ "old", "new" } do
      local what = "keep each other out of %s, and wake each other; at last the %s one dies"
      old_it(what:format(kind[1], dies), function()
        local name = kind[3]()
        local old, new = pair(kind[2], name)
        if kind.creator then assert.equal(1, (dies == "old" and old or new):run("return " .. kind.creator)) end
        is_handed_over(old, new, method, "try_" .. method)
        if dies == "old" then survives(old, new, method) else survives(new, old, method) end
        if kind.creator then
          assert.is_true((dies == "old" and new or old):run "return it:destroy()")
        end
      end)
    end
  end

  old_it("read a readers–writer lock together, and keep a writer of either version out", function()
    local old, new = pair("conn:rwlock(...)", gate.name())
    take(old, "read")
    take(new, "read")
    for _, version in ipairs{ "old", "new" } do
      local writer, late = start(version), start(version == "old" and "new" or "old")
      for _, one in ipairs{ writer, late } do one:run("it = conn:rwlock(...)", old:run "return it.name") end
      is_refused(writer, "try_write")
      begin_to_wait(writer, "write")
      until_true(function() -- the writer has shut the door
        local code = late:run [[
          local lock, _, code = it:try_read()
          if lock then lock:release() end
          return code
        ]]
        return code == "busy", code
      end)
      release(old)
      release(new)
      assert.is_true(writer:finish(40))
      begin_to_wait(late, "read")
      release(writer)
      assert.is_true(late:finish(40))
      release(late)
      take(old, "read")
      take(new, "read")
    end
    release(old)
    release(new)
  end)

  old_it("let readers of either version in beside a writer that has become a reader", function()
    local old, new = pair("conn:rwlock(...)", gate.name())
    for _, turn in ipairs{ { old, new }, { new, old } } do
      take(turn[1], "write")
      begin_to_wait(turn[2], "read")
      assert.is_true(turn[1]:run "return lock:downgrade()")
      assert.is_true(turn[2]:finish(40))
      assert.is_true(turn[1]:run "return lock:held()")
      release(turn[1])
      release(turn[2])
    end
  end)

  old_it("ask each other for a slot and for a persistent mutex", function()
    for _, made in ipairs{ "conn:semaphore(...)", "conn:mutex(..., { persistent = true })" } do
      local name = stage.semaphore(1)
      local old, new = pair(made, name)
      for _, turn in ipairs{ { old, new }, { new, old } } do
        take(turn[1], "acquire")
        assert.is_false(turn[1]:run "return lock:revoked()")
        assert.is_true(turn[2]:run("return conn:admin(...):revoke(1)", name))
        until_true(function() return turn[1]:run "lock:verify() return lock:revoked()" end)
        assert.is_true(turn[1]:run "return lock:held()")
        release(turn[1])
      end
    end
  end)

  for _, kind in ipairs{
    { "conn:mutex(...)", "acquire", "revoke", stage.mutex },
    { "conn:rwlock(...)", "read", "revoke_readers", gate.name },
    { "conn:rwlock(...)", "write", "revoke_writer", gate.name },
  } do
    old_it("lose nothing by a request that the old one does not know: " .. kind[3], function()
      local old, new = pair(kind[1], kind[4]())
      take(old, kind[2])
      assert.is_true(new:run("return it[...](it)", kind[3]))
      assert.is_true(old:run "return lock:verify()")
      assert.is_true(old:run "return lock:held()")
      release(old)
    end)
  end

  local FENCED = {
    { "conn:mutex", "acquire", stage.mutex, "-mutexfence" },
    { "conn:semaphore", "acquire", function() return stage.semaphore(1) end, "-fence" },
    { "conn:rwlock", "write", gate.name, "-rwfence" },
  }
  for _, kind in ipairs(FENCED) do
    old_it("are alone where the new one is fenced, " .. kind[1], function()
      local name = kind[3]()
      stage.undo(function()
        for _, suffix in ipairs{ "", "-unfinished" } do client.shared():delete(name .. kind[4] .. suffix) end
      end)
      local old, new = start "old", start "new"
      old:run("it = " .. kind[1] .. "(...)", name)
      new:run("it = " .. kind[1] .. "(..., { fenced = true })", name)
      local method, last = kind[2], 0
      for _ = 1, 2 do
        is_handed_over(old, new, method, "try_" .. method)
        take(new, method)
        local fence = new:run "return lock.fence"
        assert.is_true(fence > last, fence)
        last = fence
        begin_to_wait(old, method)
        release(new)
        assert.is_true(old:finish(40))
        release(old)
      end
    end)
  end
end)

-- ---- quorum queues --------------------------------------------------------------------------------------------------

-- One holds the only slot, another waits, and is woken; and by a death, too.
local function hands_over(name, holder, waiter, raw)
  holder, waiter = start(holder), start(waiter)
  for _, one in ipairs{ holder, waiter } do one:run("sem = conn:semaphore(...)", name) end
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

local function administrator(version, name)
  local one = start(version)
  one:run("admin = conn:admin(..., { queue_type = 'quorum' })", name)
  return one
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
      assert.equal(1, administrator(maker, name):run "return admin:create(1)")
      hands_over(name, "old", "new", raw)
      hands_over(name, "new", "old", raw)
      for _, version in ipairs{ "old", "new", "old" } do
        local one = administrator(version, name)
        assert.equal(1, until_true(function() return one:run "return admin:repair()" end))
        assert.equal(3, one:run "return admin:resize(3)")
        assert.equal(1, one:run "return admin:remove(2)")
        one:run "conn:close()"
      end
      hands_over(name, "old", "new", raw)
      hands_over(name, "new", "old", raw)
      assert.is_true(administrator("old", name):run "return admin:destroy()")
      raw:close()
    end)
  end

  old_it("has fencing tokens, which grow across holders of the old version, on permits of the new one", function()
    local name = stage.name()
    local old, new = start "old", start "new"
    for _, one in ipairs{ old, new } do
      one:run("tokens = conn:token_semaphore(..., { queue_type = 'quorum' })", name)
    end
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
    -- the new version's release is on its way
    assert.equal(1, until_true(function() return old:run "return tokens:repair()" end))
    assert.is_true(next_number() > last)
    assert.is_true(old:run "return tokens:destroy()")
  end)

  old_it("hands on permits, also where one goes back with its channel", function()
    local name = stage.name()
    local old, new = pair("conn:token_semaphore(..., { queue_type = 'quorum' })", name)
    assert.equal(1, old:run "return it:create(1)")
    new:run("mutex = assert(conn:mutex(...):try_acquire())", name)
    for _ = 1, 10 do
      for _, turn in ipairs{ { old, new }, { new, old } } do
        take(turn[1], "acquire")
        turn[2]:begin "lock = assert(it:acquire{ timeout = 20 }) return lock:held()"
        turn[1]:run "assert(lock:verify() and lock:release())"
        assert.is_true(turn[2]:finish())
        turn[2]:run "assert(lock:verify() and lock:release())"
      end
    end
    assert.is_true(new:run "return mutex:verify()")
    assert.is_true(old:run "return it:destroy()")
  end)
end)
