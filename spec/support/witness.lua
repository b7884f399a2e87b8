-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Did the old holder know before the next one had the slot? Asked of two processes that write down, by one clock, what
-- they see. Neither can see the moment itself: the holder's knowledge came between two looks, the slot changed hands
-- during an attempt. So there are three answers: "before" and "after" are certain, "unknown" is a process that was not
-- scheduled for longer than what is to be told apart.
--
--     setup(witness.build)
--     teardown(process.remove_modules)
--     local holder, rival = witness.start(), witness.start()
--     holder:run("locks = …")
--     witness.watch(holder)                          -- in a loop, from now on
--     witness.take(rival, name, 3)                   -- the next three slots to come free
--     … something bad happens …
--     local taken = witness.taken(rival)             -- waits until it has them: { [slot] = { began =, ended = } }
--     local seen = witness.seen(holder)              -- { [lock] = { held =, denied =, code = } }
--     witness.verdict(seen[1], taken[1])             -- "before", and by how many seconds at least
local process = require "spec.support.process"

local witness = {}

local cpath, clock

--- To be called before the file's tests.
function witness.build()
  cpath = process.c_module("clock")
  clock = assert(package.loadlib((cpath:gsub("%?%.so;$", "clock.so")), "luaopen_clock"))()
end

--- What the clock says now.
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

--- Has a process look at its `locks` until it is asked what it saw. `pause`: seconds after each round of looks.
function witness.watch(holder, pause) holder:run("return witness.watch(locks, spec, ...)", pause or 0) end

function witness.seen(holder)
  holder:begin("return #locks") -- which ends the watch
  local seen, list = {}, { holder:finish() }
  for i = 1, holder:finish() do seen[i] = { held = list[i * 3 - 2], denied = list[i * 3 - 1], code = list[i * 3] } end
  return seen
end

--- Has a process take so many slots of a semaphore as they come free, or, without a number, all that do.
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

--- Whether it has taken this slot by now.
function witness.has(rival, slot) return rival:output():find(("took %d\n"):format(slot), 1, true) ~= nil end

--- What it took: waits until it has as many as it should; all that it has by now, when it was not told how many.
function witness.taken(rival)
  if rival.takes_all then rival:begin("return true") end
  local list, taken = { rival:finish(30) }, {}
  if rival.takes_all then rival:finish() end
  for i = 1, #list, 3 do taken[list[i]] = { began = list[i + 1], ended = list[i + 2] } end
  return taken
end

--- "before": not held had been said before the attempt began that got the slot; "after": held was still said when
-- asked after that attempt had succeeded. And the seconds between.
function witness.verdict(seen, taken)
  if seen.denied and seen.denied < taken.began then return "before", taken.began - seen.denied end
  if seen.held and seen.held > taken.ended then return "after", seen.held - taken.ended end
  return "unknown", 0
end

return witness
