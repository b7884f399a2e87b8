-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- acquire { at_most = seconds }: the connection releases the lock when its time is over, whatever its holder does.
local gate = require "spec.support.gate"
local kinds = require "spec.support.kinds"
local loops = require "spec.support.loops"
local socket = require "socket"
local stage = require "spec.support.stage"
local token_scene = require "spec.broker.token_scene"

local SECONDS = 60

stage.tidy()

-- The lock is lost, and says why.
local function has_expired(lock)
  local held, message, code = lock:held()
  assert.same({ false, "lost" }, { held, code })
  assert.matches("^lost: .*: expired: ", message)
  assert.equal(0, lock:certain_for())
  for _, call in ipairs{ "verify", "release" } do
    local done, why, its = lock[call](lock)
    assert.same({ "lost", message }, { done or its, why })
  end
end

describe("a lock with a time", function()
  for kind in pairs(kinds.all) do
    it("is free for others when that is over, although its program hangs, and lost for that: " .. kind, function()
      local name, losses = kinds.all[kind].name(), {}
      local conn = stage.connect()
      conn:on_lost(function(lock, code, message) table.insert(losses, { lock, code, message:match "expired" }) end)
      local mine = kinds.all[kind].over(conn, name)
      local lock = assert(mine:acquire{ timeout = SECONDS, at_most = 0.5 })
      assert.is_true(lock:held() and lock:certain_for() <= 0.5)
      local others = assert(kinds.rival(kind, name):acquire{ timeout = SECONDS }) -- nothing calls `conn` meanwhile
      has_expired(lock)
      assert.same({ { lock, "lost", "expired" } }, losses)
      assert.same({ 0, 1 }, { conn:stats().held, conn:stats().lost })
      assert(others:release())
      local had, _, code = mine:with({ timeout = SECONDS, at_most = 0.01 }, function() socket.sleep(0.05) end)
      assert.equal("lost", had or code)
    end)
  end

  it("may be several, or a writer that has become a reader, or one of a patient acquire", function()
    local name, conn = token_scene.name(), stage.connect()
    assert.equal(2, conn:token_semaphore(name):resize(2))
    local both = assert(conn:token_semaphore(name):acquire{ count = 2, at_most = 0.2, timeout = SECONDS })
    local other = stage.connect():token_semaphore(name)
    assert(other:acquire{ count = 2, timeout = SECONDS }:release())
    for _, one in ipairs(both.locks) do has_expired(one) end
    local gate_name = gate.name()
    local writer = assert(conn:rwlock(gate_name):write{ at_most = 0.2, patient = true, timeout = SECONDS })
    assert(writer:downgrade())
    assert(kinds.rival("read", gate_name):acquire{ timeout = SECONDS }:release())
    has_expired(writer)
  end)

  it("has it once: not after its release, nor when a retained mutex is taken again", function()
    local name, conn = gate.name(), stage.connect()
    local mutex = conn:mutex(name, { retain = SECONDS })
    local lock = assert(mutex:acquire{ at_most = 0.1 })
    assert(lock:release())
    local again = assert(mutex:acquire())
    assert.equal(1, conn:stats().retained)
    socket.sleep(0.2)
    assert.is_true(again:held() and again:verify())
    assert(again:release())
    local third = assert(mutex:acquire{ at_most = 0.1 })
    assert.equal(2, conn:stats().retained)
    assert(stage.connect():mutex(name):acquire{ timeout = SECONDS }:release())
    has_expired(third)
    assert.equal(1, conn:stats().lost)
  end)

  for _, which in ipairs{ "cqueues", "luv" } do
    loops[which].it(it, pending)("is free in time also while its coroutine waits: " .. which, function()
      local loop, name = loops[which], gate.name()
      local conn = stage.connect(nil, { driver = loop.driver })
      loop.together{ function()
        local lock = assert(conn:mutex(name):acquire{ at_most = 0.2 })
        loop.until_true(function() return not gate.held("mutex", name) end)
        has_expired(lock)
      end }
      conn:close()
    end)
  end
end)
