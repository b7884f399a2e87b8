-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Processes that are stopped (SIGSTOP, which also stops the keeper's thread) while they hold a lock, or acquire one.
-- They cannot know what happened meanwhile, but the very first answer of held() after that is true.
local line = require "spec.support.line"
local permits = require "spec.broker.token_scene"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"
local witness = require "spec.support.witness"

local soak = os.getenv "AMQPLOCKS_SOAK"

local PROCESSES = soak and 10 or 6 -- at once

setup(witness.build)
teardown(process.remove_modules)
stage.tidy()

-- Stops it; gives a moment since which it has been.
local function stop(one)
  one:signal("STOP")
  one:await_state "T"
  return witness.now()
end

-- Some shorter than the broker's patience, some longer, the last one until another has it. They look all the time, so
-- that they do before any other thread of theirs can have found out.
it("a process that is stopped for any time is not told that it holds what another has, and is certain again of what it "
  .. "kept", function()
  for _ = 1, soak and 10 or 1 do
    local name, rival, all, stopped = stage.semaphore(PROCESSES), witness.start(), {}, {}
    for i = 1, PROCESSES do
      all[i] = witness.start()
      assert.equal(i, all[i]:run([[
        conn = assert(require("amqplocks").connect(nil, { heartbeat = 2 }))
        locks = { assert(conn:semaphore((...)):try_acquire()) }
        return locks[1].slot
      ]], name))
    end
    witness.take(rival, name)
    for i, holder in ipairs(all) do
      witness.watch(holder)
      stopped[i] = stop(holder)
    end
    for i, holder in ipairs(all) do
      socket.sleep(math.max(0, stopped[i] + 3 + 3 * i / PROCESSES - witness.now()))
      if i == PROCESSES then until_true(function() return witness.has(rival, i) end) end
      holder:signal("CONT")
    end
    local seen = {}
    for i, holder in ipairs(all) do
      seen[i] = witness.seen(holder)[1]
      local kept, held = holder:run("return (locks[1]:verify()), (locks[1]:held())")
      assert.equal(kept or false, held)
      seen[i].kept = kept
      if not kept then until_true(function() return witness.has(rival, i) end) end
      assert.is_true(stage.held(name, i))
    end
    local taken = witness.taken(rival)
    for i = 1, PROCESSES do
      assert.equal(not seen[i].kept, taken[i] ~= nil)
      if taken[i] then assert.not_equal("after", (witness.verdict(seen[i], taken[i]))) end
    end
    local last = seen[PROCESSES]
    assert.is_true(not last.kept and (last.code == "suspect" or last.code == "lost"), last.code)
    process.clear()
  end
end)

describe("a process that is stopped while it takes a lock", function()
  -- Goes on, and never begins to work: by then it is another's.
  local function continue(one)
    one:signal("CONT")
    local result, message, code = one:finish()
    assert.is_nil(result)
    assert.equal("unreachable", code, message)
    assert.is_false(one:run("return called"))
  end

  it("does not work with a slot that it was granted, and that another has by the time it reads so", function()
    local name, between, one = stage.semaphore(1), proxy.start(), process.start()
    one:run([[
      conn = assert(require("amqplocks").connect((...), { heartbeat = 1 }))
      called = false
    ]], between.url)
    between:switch("down", "hold", 1)
    one:begin("return conn:semaphore(...):with({ timeout = 0 }, function() called = true end)", name)
    stage.until_held(name, 1)
    stop(one)
    between:switch("down", "pass", 1)
    local rival = stage.take(stage.connect():semaphore(name), { timeout = 60 })
    continue(one)
    assert.is_true(rival:verify())
  end)

  -- It stops once there is the file of that name, between its look at the clock and its look at the socket, where the
  -- permit lies in the end.
  it("does not work with a permit that another has by the time it reads", function()
    local name, between, file = permits.name(), proxy.start(), os.tmpname()
    os.remove(file)
    assert.equal(1, stage.connect():token_semaphore(name):create(1))
    local lock = stage.take(stage.connect():token_semaphore(name))
    local one = process.start{ STOP_BEFORE_READING = file,
      LD_PRELOAD = process.c_module("stop"):match("^(.*)%?%.so;") .. "stop.so" }
    one:run([[
      conn = assert(require("amqplocks").connect((...), { heartbeat = 1 }))
      called = false
    ]], between.url)
    one:begin("return conn:token_semaphore(...):with({ timeout = 60 }, function() called = true end)", name)
    line.until_at(name, 0, 2, permits.permits(name))
    assert(io.open(file, "w")):close()
    one:await_state "T"
    assert(lock:release())
    local rival = permits.taker(name):served()
    continue(one)
    assert.is_true(rival:holds())
  end)
end)
