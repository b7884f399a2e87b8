-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- acquire { at_most = seconds }: the connection releases the lock when its time is over. support/testing_rows.lua has
-- each kind of lock.
local gate = require "spec.support.gate"
local loops = require "spec.support.loops"
local socket = require "socket"
local stage = require "spec.support.stage"
local token_scene = require "spec.broker.token_scene"

local SECONDS = 60

stage.tidy()

-- The lock is lost, and says why.
local function has_expired(lock)
  assert.matches("^lost: .*: expired: ", stage.fails("lost", lock:held()))
  stage.fails("lost", lock:release())
end

local function frees_for_others(mutex_name)
  assert(stage.connect():mutex(mutex_name):acquire{ timeout = SECONDS }:release())
end

describe("a lock whose time is over", function()
  it("is told of as a loss, and `with` fails", function()
    local name, losses, conn = gate.name(), {}, stage.connect()
    conn:on_lost(function(lock, code, message) table.insert(losses, { lock, code, message:match "expired" }) end)
    local lock = assert(conn:mutex(name):acquire{ at_most = 0.2 })
    frees_for_others(name)
    stage.fails("lost", lock:verify())
    assert.same({ { lock, "lost", "expired" } }, losses)
    assert.same({ 0, 1 }, { conn:stats().held, conn:stats().lost })
    stage.fails("lost", conn:mutex(name):with({ timeout = SECONDS, at_most = 0.01 }, function() socket.sleep(0.05) end))
  end)

  it("may be several, or a writer that has become a reader, or one of a patient acquire", function()
    local name, conn = token_scene.name(), stage.connect()
    assert.equal(2, conn:token_semaphore(name):resize(2))
    local both = assert(conn:token_semaphore(name):acquire{ count = 2, at_most = 0.2, timeout = SECONDS })
    local other = stage.connect():token_semaphore(name)
    assert(other:acquire{ count = 2, timeout = SECONDS }:release())
    for _, one in ipairs(both.locks) do has_expired(one) end
    local gate_name = gate.name()
    local writer = assert(conn:rwlock(gate_name):write{ at_most = 3, patient = true, timeout = SECONDS })
    assert(writer:downgrade())
    assert(stage.connect():rwlock(gate_name):write{ timeout = SECONDS }:release())
    has_expired(writer)
  end)

  it("was no lock any more after its release: a retained mutex is taken again as if it had had none", function()
    local name, conn = gate.name(), stage.connect()
    local mutex = conn:mutex(name, { retain = SECONDS })
    assert(assert(mutex:acquire{ at_most = 2 }):release())
    socket.sleep(2.2)
    local again = assert(mutex:acquire())
    assert.same({ 1, 0 }, { conn:stats().retained, conn:stats().lost })
    assert.is_true(again:held() and again:verify())
    assert(again:release())
    local third = assert(mutex:acquire{ at_most = 0.2 })
    assert.equal(2, conn:stats().retained)
    frees_for_others(name)
    has_expired(third)
  end)

  for _, which in ipairs{ "cqueues", "luv" } do
    loops[which].it(it, pending)("is over when the loop runs, and before that for its holder: " .. which, function()
      local loop, name = loops[which], gate.name()
      local conn = stage.connect(nil, { driver = loop.driver })
      loop.together{ function()
        local lock = assert(conn:mutex(name):acquire{ at_most = 0.2 })
        loop.until_true(function() return not gate.held("mutex", name) end)
        has_expired(lock)
        lock = assert(conn:mutex(name):acquire{ timeout = SECONDS, at_most = 0.05 })
        socket.sleep(0.1) -- the loop stands still
        stage.fails("lost", lock:release())
      end }
      conn:close()
    end)
  end
end)
