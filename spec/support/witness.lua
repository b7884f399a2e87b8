-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Was the old holder told of its loss before the next one had the slot? Two processes record what they see, by one
-- clock. Neither sees the moment itself: the holder's knowledge changed between two checks, and the slot changed hands
-- during an attempt. So there are three verdicts: "before" and "after" are certain. "unknown" means that a process was
-- not scheduled for longer than the difference.
--
--     setup(witness.build)
--     teardown(process.remove_modules)
--     local holder, rival = witness.start(), witness.start()
--     holder:run("locks = …")
--     witness.watch(holder)                          -- checks in a loop, from now on
--     witness.take(rival, name, 3)                   -- the next three slots that are released
--     … a fault …
--     local taken = witness.taken(rival)             -- waits until it has them: { [slot] = { began =, ended = } }
--     local seen = witness.seen(holder)              -- { [lock] = { held =, denied =, code = } }
--     witness.verdict(seen[1], taken[1])             -- "before", and by how many seconds at least
local process = require "spec.support.process"

local witness = {}

local cpath, clock

--- Call this before the file's tests.
function witness.build()
  cpath = process.c_module("clock")
  clock = assert(package.loadlib((cpath:gsub("%?%.so;$", "clock.so")), "luaopen_clock"))()
end

--- The time by this clock.
function witness.now() return clock.now() end

--- A second process that can be a witness.
function witness.start()
  local new = process.start()
  new:run([[
    package.cpath = (...) .. package.cpath
    witness, clock = require "spec.support.programs.witness", require "clock"
  ]], cpath)
  return new
end

--- A process checks its `locks` until it is asked for its records. `pause`: seconds after each round of checks.
function witness.watch(holder, pause) holder:run("return witness.watch(locks, spec, ...)", pause or 0) end

function witness.seen(holder)
  holder:begin("return #locks") -- this ends the watch
  local seen, list = {}, { holder:finish() }
  for i = 1, holder:finish() do seen[i] = { held = list[i * 3 - 2], denied = list[i * 3 - 1], code = list[i * 3] } end
  return seen
end

--- A process acquires so many slots of a semaphore as they are released, or, without a number, every one that is.
function witness.take(rival, name, count)
  rival.takes_all = not count
  rival:begin([[
    local name, count = ...
    conn = conn or assert(require("amqplocks").connect())
    return (function(got, ...)
      taken = got
      return ...
    end)(witness.take(conn:semaphore(name), spec, count))
  ]], name, count or 1e9)
end

--- Whether it has acquired this slot by now.
function witness.has(rival, slot) return rival:output():find(("took %d\n"):format(slot), 1, true) ~= nil end

--- The slots that it acquired: waits until it has the requested number; without a number, all slots until now.
function witness.taken(rival)
  if rival.takes_all then rival:begin("return true") end
  local list, taken = { rival:finish(60) }, {}
  if rival.takes_all then rival:finish() end
  for i = 1, #list, 3 do taken[list[i]] = { began = list[i + 1], ended = list[i + 2] } end
  return taken
end

--- "before": the holder was told that it does not hold the slot before the attempt began that acquired the slot.
-- "after": it was told that it holds the slot after that attempt had succeeded. Also returns the seconds between.
function witness.verdict(seen, taken)
  if seen.denied and seen.denied < taken.began then return "before", taken.began - seen.denied end
  if seen.held and seen.held > taken.ended then return "after", seen.held - taken.ended end
  return "unknown", 0
end

return witness
