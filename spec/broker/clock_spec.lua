-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Clocks that jump, in a process of its own: the wall clock, on which nothing may depend, and the clock that counts
-- while the machine sleeps, which tells how long the broker has been silent.
local process = require "spec.support.process"
local stage = require "spec.support.stage"

local DAY = 86400

local cpath

setup(function() cpath = process.c_module("jump") end)
teardown(process.remove_modules)
stage.tidy()

-- A process whose clocks can be told to jump, and that holds a lock.
local function holder(name)
  local new = process.start{ LD_PRELOAD = cpath:match("^(.*)%?%.so;") .. "jump.so" }
  new:run([[
    local cpath, name = ...
    package.cpath = cpath .. package.cpath
    jump = require "jump"
    conn = assert(require("amqplocks").connect(nil, { heartbeat = 5 }))
    sem = conn:semaphore(name)
    lock = assert(sem:try_acquire())
    before = lock.acquired_at
  ]], cpath, name)
  return new
end

describe("when the wall clock is set", function()
  for how, seconds in pairs{ ["a day back"] = -DAY, ["a day on"] = DAY } do
    it(how .. ", locks are held, waited for and given back as before", function()
      local name = stage.semaphore(1)
      local one = holder(name)
      one:run("jump.set(...)", seconds)
      assert.same({ true }, { one:run("return lock:held()") })
      assert.same({ true }, { one:run("return lock:verify()") })
      local waiter = stage.connect():semaphore(name)
      stage.fails("timeout", waiter:acquire{ timeout = 0.2 })
      assert.same({ true }, { one:run("return lock:release()") })
      local other = stage.take(waiter, { timeout = 60 })
      assert.equal("timeout", select(3, one:run("return sem:acquire{ timeout = 0.2 }")))
      one:begin("lock = assert(sem:acquire{ timeout = 60 }) return lock.acquired_at - before")
      assert(other:release())
      assert.is_true(math.abs(one:finish() - seconds) < DAY / 2) -- it did jump, and is no more than words
      assert.same({ true }, { one:run("return lock:held()") })
    end)
  end
end)

describe("when the machine has slept", function()
  -- The broker was awake, and would have let go. Here it had no reason to, and yet nobody believes in the lock.
  it("for longer than the broker waits, the first look says so, and another lock can be had", function()
    local name = stage.semaphore(1)
    local one = holder(name)
    assert.same({ true }, { one:run("jump.sleep(1) return lock:held()") }) -- less than that
    local held, _, code = one:run("jump.sleep(...) return lock:held()", DAY)
    assert.is_false(held)
    assert.is_true(code == "suspect" or code == "lost", code) -- the keeper may have been faster
    one:run("lock:verify()")
    assert.same({ false, "lost" }, { one:run("local held, _, code = lock:held() return held, code") })
    assert.same({ true }, { one:run("lock = assert(sem:acquire{ timeout = 60 }) return lock:held()") })
  end)
end)
