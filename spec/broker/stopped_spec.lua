-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Processes that are stopped (SIGSTOP, and the keeper's thread with the rest) while they hold a lock. They cannot know
-- what happened meanwhile; but the very first thing they are told afterwards is not a lie.
local process = require "spec.support.process"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"
local witness = require "spec.support.witness"

local soak = os.getenv "AMQPLOCKS_SOAK"

local PROCESSES = 10 -- at once

setup(witness.build)
teardown(process.remove_modules)
after_each(stage.clear)
teardown(stage.check)

-- Processes with a lock each, the i-th that of slot i.
local function holders(name)
  local all = {}
  for i = 1, PROCESSES do
    all[i] = witness.start()
    assert.equal(i, all[i]:run([[
      conn = assert(require("amqplocks").connect(nil, { heartbeat = 1 }))
      locks = { assert(conn:semaphore((...)):try_acquire()) }
      return locks[1].slot
    ]], name))
  end
  return all
end

-- Stops it; gives a moment since which it has been.
local function stop(holder)
  holder:signal("STOP")
  until_true(function() return holder:state() == "T" end)
  return witness.now()
end

-- Runs a test's body once, or many times in soak; each leaves no process behind.
local function repeatedly(fn)
  for _ = 1, soak and 10 or 1 do
    fn(stage.semaphore(PROCESSES))
    process.clear()
  end
end

describe("a process that is stopped while it holds a lock", function()
  -- The odd ones look all the time, so that they do before any other thread of theirs can have found out; the even ones
  -- are asked meanwhile.
  it("until another has it, is told so by the very first look", function()
    repeatedly(function(name)
      local all, rival, stopped = holders(name), witness.start(), {}
      witness.take(rival, name, PROCESSES)
      for i, holder in ipairs(all) do
        if i % 2 == 1 then witness.watch(holder) end
        stopped[i] = stop(holder)
        if i % 2 == 0 then holder:begin("return locks[1]:held()") end
      end
      witness.taken(rival)
      for i, holder in ipairs(all) do
        local continued, held, seen, _ = witness.now(), false, {}, nil
        holder:signal("CONT")
        if i % 2 == 1 then seen = witness.seen(holder)[1] else held, _, seen.code = holder:finish() end
        assert.is_false(held)
        assert.is_true(seen.code == "suspect" or seen.code == "lost", seen.code)
        if i % 2 == 1 then assert.is_true(seen.held < stopped[i] and seen.denied > continued) end
        stage.fails("lost", holder:run("return locks[1]:verify()"))
      end
    end)
  end)

  -- Some shorter than the broker's patience, some longer, most about as long.
  it("for any time, is not told that it holds what another has, and is certain again of what it kept", function()
    repeatedly(function(name)
      local all, rival, stopped = holders(name), witness.start(), {}
      witness.take(rival, name)
      for i, holder in ipairs(all) do
        witness.watch(holder)
        stopped[i] = stop(holder)
      end
      for i, holder in ipairs(all) do
        local seconds = 1.5 + 1.5 * i / PROCESSES
        socket.sleep(math.max(0, stopped[i] + seconds - witness.now()))
        holder:signal("CONT")
      end
      local seen = {}
      for i, holder in ipairs(all) do
        seen[i] = witness.seen(holder)[1]
        seen[i].kept = holder:run("return (locks[1]:verify())")
        assert.equal(seen[i].kept or false, holder:run("return (locks[1]:held())"))
        stage.until_held(name, i) -- by whomever
      end
      local taken = witness.taken(rival)
      for i = 1, PROCESSES do
        assert.equal(not seen[i].kept, taken[i] ~= nil)
        if taken[i] then assert.not_equal("after", (witness.verdict(seen[i], taken[i]))) end
      end
    end)
  end)
end)
