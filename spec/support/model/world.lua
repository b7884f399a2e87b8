-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Simulated time: events happen one after another, in the order of their times, and nothing really waits.
--
--     local world = World.new(seed)
--     world:after(0.5, function () … end)
--     world:run(10)                                  -- ten seconds, or less if no event is left
--
-- Everything in a story depends on the seed, so that a failed story can be repeated, with a trace.
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

-- Events are in a sorted list, the next one last; events of one time are in the order of their requests. Most are due
-- very soon, and have few to go past. An event is a list, { fn, a, b, c }, mostly a recycled one, since there are so
-- many.
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
  if spares == 0 then return { fn, a, b, c } end
  local event = self.spare[spares]
  self.spares = spares - 1
  event[1], event[2], event[3], event[4] = fn, a, b, c
  return event
end

--- Calls fn(a, b, c) at a time, or as soon as possible if that is past.
function World:at(time, fn, a, b, c)
  insert(self, new_event(self, fn, a, b, c), time > self.now and time or self.now)
end

function World:after(seconds, fn, a, b, c)
  self:at(self.now + seconds, fn, a, b, c)
end

--- Calls thing:flush() when the current event has been handled.
function World:flush_soon(thing)
  self.last = self.last + 1
  self.soon[self.last] = thing
end

--- Does what was put off until now. Code that changes something outside of events calls this after it.
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

--- Handles the next event, unless it is later than `stop`. False: there was none.
function World:step(stop)
  if self.last > 0 then self:settle() end
  local size = self.size
  local time, event = self.times[size], self.events[size]
  if size == 0 or time > stop then return false end
  self.size, self.now, self.steps = size - 1, time, self.steps + 1
  local fn, a, b, c = event[1], event[2], event[3], event[4]
  event[2], event[3], event[4] = nil, nil, nil
  self.spares = self.spares + 1
  self.spare[self.spares] = event
  fn(a, b, c)
  if self.last > 0 then self:settle() end
  return true
end

--- Lets `seconds` pass, or less if done() returns true. True if it did.
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
