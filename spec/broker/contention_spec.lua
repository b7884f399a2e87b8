-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Many processes, few slots. The file system, which is independent of this library, proves mutual exclusion: a holder
-- creates a directory for its slot, which fails if it exists, and appends to a log.
local broker = require "spec.support.broker"
local lfs = require "lfs"
local process = require "spec.support.process"
local stage = require "spec.support.stage"

local FIGHT = [[
  local lfs, socket = require "lfs", require "socket"
  local directory, rounds, timeout = ...
  local log = assert(io.open(directory .. "/log", "a"))
  local function note(what, slot)
    log:write(("%s %d %d\n"):format(what, slot, pid))
    log:flush()
  end
  local function inside(lock)
    local marker = directory .. "/" .. lock.slot
    assert(lfs.mkdir(marker))
    note("enter", lock.slot)
    socket.sleep(0.002)
    assert(lock:held())
    note("leave", lock.slot)
    assert(lfs.rmdir(marker))
  end
  local entered, refused = 0, 0
  for _ = 1, rounds do
    local done, message, code = sem:with({ timeout = timeout }, inside)
    if done then entered = entered + 1 else refused = refused + 1 end
    if not done and code ~= "busy" and code ~= "contended" then error(message) end
  end
  return entered, refused
]]

local function fighters(name, count)
  local all = {}
  for i = 1, count do
    all[i] = process.start()
    all[i]:run([[
      local name, strategy, probe
      name, strategy, probe, pid = ...
      sem = assert(require("amqplocks").connect()):semaphore(name, { strategy = strategy, probe = probe })
    ]], name, ({ "ascending", "random", "last" })[i % 3 + 1], ({ "publish", "auto", "passive", "auto" })[i % 4 + 1],
      all[i].pid)
  end
  return all
end

-- Reads the log: who entered a slot left it before the next one entered, and never were more inside than there are
-- slots. Gives how often somebody entered, and the most that were inside together.
local function read_log(path, slots)
  local inside, holder, entered, most = 0, {}, 0, 0
  for line in io.lines(path) do
    local what, slot, pid = line:match("^(%a+) (%d+) (%d+)$")
    assert.is_true(tonumber(slot) >= 1 and tonumber(slot) <= slots)
    if what == "enter" then
      assert.is_nil(holder[slot], "two were in slot " .. slot)
      holder[slot], inside, entered = pid, inside + 1, entered + 1
    else
      assert.equal(pid, holder[slot])
      holder[slot], inside = nil, inside - 1
    end
    most = math.max(most, inside)
  end
  assert.equal(0, inside)
  assert.is_true(most <= slots)
  return entered, most
end

local function fight(slots, count, rounds, timeout)
  local name, directory = stage.semaphore(slots), process.directory()
  stage.undo(function() process.shell("rm", "-rf", directory) end)
  local all, entered, refused = fighters(name, count), 0, 0
  for _, one in ipairs(all) do one:begin(FIGHT, directory, rounds, timeout) end
  for _, one in ipairs(all) do
    local e, r = one:finish(60)
    entered, refused = entered + e, refused + r
  end
  for slot = 1, slots do
    assert.is_nil(lfs.attributes(directory .. "/" .. slot))
    assert.is_true(stage.free(name, slot))
  end
  local noted, most = read_log(directory .. "/log", slots)
  assert.equal(entered, noted)
  return entered, refused, most
end

local operated_it = broker.operated_it(it, pending)

-- The most channels that one connection has.
local function most_channels()
  local most = 0
  for number in broker.suite:ctl("list_connections", "--no-table-headers", "channels"):gmatch "%d+" do
    most = math.max(most, tonumber(number))
  end
  return most
end

after_each(stage.clear)
teardown(stage.check)

describe("sixteen processes", function()
  it("fighting for three slots are never more than three inside, and all have their turns", function()
    local entered, refused, most = fight(3, 16, 13, 60)
    assert.same({ 16 * 13, 0 }, { entered, refused })
    assert.is_true(most > 1)
  end)
end)

describe("sixty-four processes", function()
  -- Most claims are answered by 405, which costs a channel each time.
  operated_it("storming one slot are let in one at a time, or refused, and open no more channels than a few", function()
    local entered, refused = fight(1, 64, 5, 0)
    assert.equal(64 * 5, entered + refused)
    assert.is_true(entered > 0 and refused > 0)
    local most = most_channels()
    assert.is_true(most > 0 and most <= 6, most .. " channels")
  end)
end)
