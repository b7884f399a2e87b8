-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Half-open connections: bytes of one side, or of both, are lost, and neither socket is closed. The holder of a lock on
-- such a connection knows that the lock may be gone before the next holder has it.
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local socket = require "socket"
local stage = require "spec.support.stage"
local witness = require "spec.support.witness"

local soak = os.getenv "AMQPLOCKS_SOAK"

local SILENCES = {
  { up = "drop", down = "pass", words = "what the holder sends gets lost" },
  { up = "drop", down = "endless", words = "what the holder sends gets lost, and that the broker hung up" },
  { up = "pass", down = "drop", words = "what the broker sends gets lost" },
  { up = "drop", down = "drop", words = "what both send gets lost" },
}
local RUNS = 10 * #SILENCES -- at once

local function silence_of(i) return SILENCES[i % #SILENCES + 1] end

setup(witness.build)
teardown(process.remove_modules)
stage.tidy()

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
