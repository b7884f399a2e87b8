-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Simulated time: things happen one after another, in the order of their times, and nothing waits.
--
--     local world = World.new(seed)
--     world:after(0.5, function () … end)
--     world:run(10)                                  -- ten seconds, or less when nothing is left to happen
--
-- All of a story comes from the seed, so that one that ends badly can be told again, this time with a trace.
local Random = require "spec.support.model.random"

local World = {}
World.__index = World

function World.new(seed, traced)
  return setmetatable({ now = 1000, random = Random.new(seed), events = {}, times = {}, size = 0, spare = {},
    spares = 0, soon = {}, last = 0, steps = 0, trace = traced and {} or nil }, World)
end

--- One line of the trace, if there is one.
function World:note(who, ...)
  if not self.trace then return end
  table.insert(self.trace, ("%10.4f ms  %-12s %s"):format((self.now - 1000) * 1e3, who, string.format(...)))
end

-- Events stand in a row, the next one last, those of one time in the order in which they were asked for. Most are for
-- very soon, and have few to go past. An event is a list, as there are so many, and mostly one that was used before.
local FN, A, B, C, TIME, IS_KEPT = 1, 2, 3, 4, 5, 6

local function insert(self, event, time)
  local events, times, place = self.events, self.times, self.size
  self.size = place + 1
  while place > 0 and times[place] <= time do
    events[place + 1], times[place + 1] = events[place], times[place]
    place = place - 1
  end
  events[place + 1], times[place + 1] = event, time
end

local function new_event(self, fn, a, b, c)
  local spares = self.spares
  if spares == 0 then return { fn, a, b, c, 0, false } end
  local event = self.spare[spares]
  self.spares = spares - 1
  event[FN], event[A], event[B], event[C] = fn, a, b, c
  return event
end

--- Has fn(a, b, c) called at a time, or as soon as that is over.
function World:at(time, fn, a, b, c)
  insert(self, new_event(self, fn, a, b, c), time > self.now and time or self.now)
end

--- The same, for who may want to cancel it. Gives the event.
function World:timer(time, fn, a, b)
  if time < self.now then time = self.now end
  local event = { fn, a, b, nil, time, true }
  insert(self, event, time)
  return event
end

--- It shall not happen.
function World.cancel(_, event)
  event[FN], event[A], event[B] = false, nil, nil
end

--- When it is to happen.
function World.time_of(_, event) return event[TIME] end

function World:after(seconds, fn, a, b, c)
  self:at(self.now + seconds, fn, a, b, c)
end

--- Has thing:flush() called when what happens now has happened.
function World:flush_soon(thing)
  self.last = self.last + 1
  self.soon[self.last] = thing
end

--- What was put off till now. Whoever changes something from outside of events calls this after it.
function World:settle()
  local soon, i = self.soon, 1
  while i <= self.last do
    local thing = soon[i]
    soon[i] = nil
    thing:flush()
    i = i + 1
  end
  self.last = 0
end

local function reuse(self, event)
  event[A], event[B], event[C] = nil, nil, nil
  self.spares = self.spares + 1
  self.spare[self.spares] = event
end

--- The next thing happens, unless it is later than `stop`. False: there was none.
function World:step(stop)
  if self.last > 0 then self:settle() end
  local size = self.size
  local time = self.times[size]
  if size == 0 or time > stop then return false end
  local event = self.events[size]
  self.now, self.steps, self.size = time, self.steps + 1, size - 1
  local fn, a, b, c = event[FN], event[A], event[B], event[C]
  if not event[IS_KEPT] then reuse(self, event) end
  if fn then
    fn(a, b, c)
    if self.last > 0 then self:settle() end
  end
  return true
end

--- Time passes: `seconds`, or until done() says so. True if it did.
function World:run(seconds, done)
  local stop = self.now + seconds
  while not (done and done()) do
    if not self:step(stop) then
      self.now = stop
      return done == nil or done()
    end
  end
  return true
end

return World
