-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Many processes, few slots. The file system, which is independent of this library, proves mutual exclusion: a holder
-- creates a directory for its place, which fails if it exists. There are as many places as slots.
local broker = require "spec.support.broker"
local lfs = require "lfs"
local process = require "spec.support.process"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"

local operated_it = broker.operated_it(it, pending)

local FIGHT = [[
  local lfs, socket = require "lfs", require "socket"
  local directory, places, rounds, timeout = ...
  local function enter(lock)
    for place = lock.slot or 1, lock.slot or places do
      if lfs.mkdir(directory .. "/" .. place) then return directory .. "/" .. place end
    end
    error "one too many is inside"
  end
  local entered, refused = 0, 0
  for i = 1, rounds do
    local done, message, code = sem:with({ timeout = timeout, priority = i % 2, fair = i % 3 == 0 }, function(lock)
      local place = enter(lock)
      socket.sleep(0.002)
      assert(lock:held())
      assert(lfs.rmdir(place))
    end)
    if done then entered = entered + 1 else refused = refused + 1 end
    if not done and code ~= "busy" and code ~= "contended" then error(message) end
  end
  return entered, refused
]]

-- So many processes compete for what `sem`, by this Lua source, of this name is. Returns how often they had it, and had
-- it not.
local function fight(sem, name, places, count, rounds, timeout)
  local directory, all, entered, refused = process.directory(), {}, 0, 0
  stage.undo(function() process.shell("rm", "-rf", directory) end)
  for i = 1, count do
    all[i] = stage.process(name)
    all[i]:run("i = ... sem = " .. sem, i)
  end
  for _, one in ipairs(all) do one:begin(FIGHT, directory, places, rounds, timeout) end
  for _, one in ipairs(all) do
    local e, r = one:finish(600)
    entered, refused = entered + e, refused + r
  end
  for place = 1, places do assert.is_nil(lfs.attributes(directory .. "/" .. place)) end
  return entered, refused
end

local function permits(queue_type)
  return function()
    local name = scene.name()
    assert.equal(3, stage.connect():token_semaphore(name):create(3, { queue_type = queue_type }))
    return name
  end
end

after_each(stage.clear)
teardown(stage.check)

for what, case in pairs{
  ["three slots"] = { 3, 8, function() return stage.semaphore(3) end, [[conn:semaphore(sem.name, {
    strategy = ({ "ascending", "random", "last" })[i % 3 + 1],
    probe = ({ "publish", "auto", "passive", "auto" })[i % 4 + 1] })]] },
  ["three classic permits"] = { 3, 8, permits "classic", "conn:token_semaphore(sem.name)" },
  ["three quorum permits"] = { 3, 8, permits "quorum", "conn:token_semaphore(sem.name, { queue_type = 'quorum' })" },
  ["a mutex"] = { 1, 5, stage.mutex, "conn:mutex(sem.name)" },
  ["a fast mutex"] = { 1, 5, scene.fast_name, "conn:fast_mutex(sem.name)" },
} do
  it("processes that fight for " .. what .. " are never more inside than may be, and all have their turns", function()
    local places, count, name, sem = (table.unpack or unpack)(case)
    assert.same({ count * 20, 0 }, { fight(sem, name(), places, count, 20, 600) })
  end)
end

-- Most claims are answered by 405, which costs a channel each time.
operated_it("32 processes that storm one slot are let in one at a time, or refused, and open a few channels", function()
  local entered, refused = fight("sem", stage.semaphore(1), 1, 32, 10, 0)
  assert.equal(32 * 10, entered + refused)
  assert.is_true(entered > 0 and refused > 0)
  local most = tonumber(broker.suite:ask( -- of one connection
    "lists:max([N || [{channels, N}] <- rabbit_networking:connection_info_all([channels])])."))
  assert.is_true(most > 0 and most <= 6, most .. " channels")
end)
