-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A broker with a memory or disk alarm stops reading from connections that publish, and does not notice when one of
-- them dies. Locks are held on connections that never publish.
local broker = require "spec.support.broker"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"
local process = require "spec.support.process"
local witness = require "spec.support.witness"

local operated_it = broker.operated_it(it, pending)

local HEARTBEAT = 1
local SECONDS = HEARTBEAT * (os.getenv "AMQPLOCKS_SOAK" and 60 or 4) -- a broker drops who misses two to three

setup(witness.build)
teardown(process.remove_modules)
stage.tidy()

describe("an alarm", function()
  -- A process with the lock on slot 1, which has published before.
  local function holder(name)
    local new = witness.start()
    new:run([[
      conn = assert(require("amqplocks").connect(nil, { heartbeat = select(2, ...) }))
      sem = conn:semaphore((...))
      locks = { assert(sem:try_acquire()) }
    ]], name, HEARTBEAT)
    return new
  end

  for _, resource in ipairs{ "memory", "disk" } do
    operated_it("about the " .. resource .. " does not touch locks; new ones are taken without publishing", function()
      local name = stage.semaphore(2)
      local conn, fresh = stage.connect(nil, { timeout = 5 }), stage.connect(nil, { timeout = 5 })
      local sem = conn:semaphore(name)
      local lock = stage.take(sem)
      stage.alarm(resource)
      assert.is_true(lock:held() and lock:verify() and stage.held(name, 1))
      for _, one in ipairs{ sem, fresh:semaphore(name) } do
        local second = assert(one:try_acquire())
        assert.equal(2, second.slot)
        assert.is_true(second:verify() and stage.held(name, 2))
        stage.fails("busy", sem:try_acquire())
        assert.is_true(second:release())
      end
      stage.fails("not_found", fresh:semaphore(stage.name()):acquire{ timeout = 60 })
      -- The broker says "blocked" once. A publisher that comes later is not told, but is told so here.
      local told = stage.connect(nil, { timeout = 5 })
      stage.block(told)
      local blocked = told:semaphore(name, { probe = "publish" })
      for _ = 1, 3 do stage.fails("blocked", blocked:try_acquire()) end
      assert.is_true(lock:release())
      assert.is_true(stage.free(name, 1))
      broker.suite:alarm(false, resource)
      assert(until_true(function() return blocked:try_acquire() end):release())
    end)
  end

  operated_it("may last for many heartbeats: locks are kept, and certain, though who holds them is blocked", function()
    local name = stage.semaphore(1)
    local one = holder(name)
    stage.alarm()
    stage.fails("busy", one:run("return sem:try_acquire()")) -- it has published, and is not read any more
    one:begin("return witness.is_certain(locks[1], ...)", SECONDS)
    assert.is_true(one:finish(3 * SECONDS + 20))
    assert.is_true(one:run("return locks[1]:verify()"))
    assert.is_true(stage.held(name, 1))
    assert.is_true(one:run("return locks[1]:release()"))
    assert.is_true(stage.free(name, 1))
  end)
end)
