-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Connections of which no end knows that they are dead: what one side sends, or both, gets lost on the way, and neither
-- socket is closed. Whoever holds a lock on one knows that it may be gone before the next holder has it.
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
after_each(stage.clear)
teardown(stage.check)

-- A process with a lock on each slot, each on a session of its own through the proxy: that of slot i has the proxy's
-- connections 2i - 1 and 2i.
local function holder_of_all(name, between)
  local holder = witness.start()
  holder:run([[
    local count, url, name = ...
    local amqplocks = require "amqplocks"
    conns, locks = {}, {}
    for i = 1, count do
      conns[i] = assert(amqplocks.connect(url, { heartbeat = 1 }))
      locks[i] = assert(conns[i]:semaphore(name):try_acquire())
      assert(locks[i].slot == i)
    end
  ]], RUNS, between.url, name)
  assert.equal(2 * RUNS, between:count())
  return holder
end

-- One after the other, spread over a heartbeat, that each meets it at another moment.
local function silence_all(between)
  for i = 1, RUNS do
    for index = 2 * i - 1, 2 * i do
      between:switch("up", silence_of(i).up, index)
      between:switch("down", silence_of(i).down, index)
    end
    socket.sleep(1 / RUNS)
  end
end

local function judge(seen, taken, totals)
  for i = 1, RUNS do
    local total, verdict, seconds = totals[silence_of(i)], witness.verdict(seen[i], taken[i])
    total[verdict] = total[verdict] + 1
    if verdict == "before" then
      table.insert(total.margins, seconds * 1000)
      assert.is_true(seen[i].code == "suspect" or seen[i].code == "lost", seen[i].code)
    end
  end
end

local function play(totals)
  local between, name = proxy.start(), stage.semaphore(RUNS)
  local holder, rival = holder_of_all(name, between), witness.start()
  witness.take(rival, name, RUNS)
  witness.watch(holder, 0.001)
  silence_all(between)
  local taken = witness.taken(rival)
  judge(witness.seen(holder), taken, totals)
  assert.is_true(holder:run("for _, lock in ipairs(locks) do assert(not lock:verify()) end return true"))
  assert.is_true(rival:run("for _, lock in ipairs(taken) do assert(lock:verify()) end return true"))
  process.clear()
end

local function report(total, words)
  local margins = total.margins
  table.sort(margins)
  print(("\n  %s: known before in %d, unknown in %d, after in %d; %.0f, %.0f, %.0f ms before (least, median, most)")
    :format(words, total.before, total.unknown, total.after, margins[1], margins[math.ceil(#margins / 2)],
      margins[#margins]))
end

describe("a lock on a half-open connection", function()
  it("is known not to be held before the next holder has the slot, whoever is not heard", function()
    local totals = {}
    for _, silence in ipairs(SILENCES) do totals[silence] = { before = 0, after = 0, unknown = 0, margins = {} } end
    for _ = 1, soak and 10 or 1 do play(totals) end
    for _, silence in ipairs(SILENCES) do
      local total = totals[silence]
      if soak then report(total, silence.words) end
      assert.equal(0, total.after, silence.words)
      assert.is_true(total.unknown <= total.before / 9, silence.words .. ": the holder's process was seldom scheduled")
    end
  end)
end)
