-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Processes that are stopped (SIGSTOP, which also stops the keeper's thread) while they hold a lock, or acquire one.
-- They cannot know what happened meanwhile, but the very first answer of held() after that is true. Then half-open
-- connections, whose holders know that the lock may be gone before the next holder has it.
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

-- ---- half-open connections: bytes of one side, or of both, are lost, and neither socket is closed -------------------

local SILENCES = {
  { up = "drop", down = "pass", words = "what the holder sends gets lost" },
  { up = "drop", down = "endless", words = "what the holder sends gets lost, and that the broker hung up" },
  { up = "pass", down = "drop", words = "what the broker sends gets lost" },
  { up = "drop", down = "drop", words = "what both send gets lost" },
}
local RUNS = 10 * #SILENCES -- at once

local function silence_of(i) return SILENCES[i % #SILENCES + 1] end

-- A process with a lock on each slot, each on a session of its own through the proxy: that of slot i has the proxy's
-- connections 2i - 1 and 2i.
local function holder_of_all(name, between)
  local holder = witness.start()
  holder:begin([[
    local count, url, name = ...
    local amqplocks = require "amqplocks"
    conns, locks = {}, {}
    for i = 1, count do
      conns[i] = assert(amqplocks.connect(url, { heartbeat = 1 }))
      locks[i] = assert(conns[i]:semaphore(name):try_acquire())
      assert(locks[i].slot == i)
    end
  ]], RUNS, between.url, name):finish(120)
  assert.equal(2 * RUNS, between:count())
  return holder
end

local function play(totals)
  local between, name = proxy.start(), stage.semaphore(RUNS)
  local holder, rival = holder_of_all(name, between), witness.start()
  witness.take(rival, name, RUNS)
  witness.watch(holder, 0.001)
  for i = 1, RUNS do -- one after the other, spread over a heartbeat, that each meets it at another moment
    for index = 2 * i - 1, 2 * i do
      between:switch("up", silence_of(i).up, index)
      between:switch("down", silence_of(i).down, index)
    end
    socket.sleep(1 / RUNS)
  end
  local taken = witness.taken(rival)
  for i, seen in ipairs(witness.seen(holder)) do
    local total, verdict = totals[silence_of(i)], (witness.verdict(seen, taken[i]))
    assert.not_equal("after", verdict, silence_of(i).words)
    total[verdict] = total[verdict] + 1
    assert.is_true(verdict == "unknown" or seen.code == "suspect" or seen.code == "lost", seen.code)
  end
  assert.is_true(holder:run("for _, lock in ipairs(locks) do assert(not lock:verify()) end return true"))
  assert.is_true(rival:run("for _, lock in ipairs(taken) do assert(lock:verify()) end return true"))
  process.clear()
end

-- Whether the holder's process was, often enough to be certain.
local function is_scheduled(totals)
  for _, total in pairs(totals) do
    if total.unknown > total.before / 9 then return false end
  end
  return true
end

describe("a lock on a half-open connection", function()
  it("is known not to be held before the next holder has the slot, whoever is not heard", function()
    local totals = {}
    for _, silence in ipairs(SILENCES) do totals[silence] = { before = 0, unknown = 0 } end
    local least = soak and 10 or 1
    for i = 1, least + 4 do
      if i <= least or not is_scheduled(totals) then play(totals) end
    end
  end)
end)
