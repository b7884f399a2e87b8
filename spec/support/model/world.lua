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
  return setmetatable({ now = 1000, random = Random.new(seed), events = {}, times = {}, size = 0, far = {}, fars = 0,
    asked = 0, spare = {}, spares = 0, soon = {}, last = 0, steps = 0, trace = traced and {} or nil }, World)
end

--- One line of the trace, if there is one.
function World:note(who, ...)
  if not self.trace then return end
  table.insert(self.trace, ("%10.4f ms  %-12s %s"):format((self.now - 1000) * 1e3, who, string.format(...)))
end

-- Events are in a sorted list, the next one last; events of one time are in the order of their requests. Most are due
-- very soon, and have few to go past. An event is a Lua table used as a list, mostly a recycled one, since there are so
-- many.
--
-- An event that would have to go past more than NEAR others goes into a heap instead, the next one first: there may be
-- thousands of timers, most of them cancelled.
local FN, A, B, C, TIME, IS_KEPT, NUMBER = 1, 2, 3, 4, 5, 6, 7
local NEAR = 16

local function is_before(event, other)
  local time, other_time = event[TIME], other[TIME]
  return time < other_time or time == other_time and event[NUMBER] < other[NUMBER]
end

local function insert_far(self, event)
  local far, place = self.far, self.fars + 1
  self.fars = place
  while place > 1 do
    local above = (place - place % 2) / 2
    local other = far[above]
    if is_before(other, event) then break end
    far[place], place = other, above
  end
  far[place] = event
end

local function take_far(self)
  local far, last, place = self.far, self.fars, 1
  local first, event = far[1], far[last]
  far[last], self.fars = nil, last - 1
  if last == 1 then return first end
  while 2 * place < last do
    local below = 2 * place
    if below + 1 < last and is_before(far[below + 1], far[below]) then below = below + 1 end
    if is_before(event, far[below]) then break end
    far[place], place = far[below], below
  end
  far[place] = event
  return first
end

local function insert(self, event, time)
  local events, times, place = self.events, self.times, self.size
  self.asked = self.asked + 1
  event[TIME], event[NUMBER] = time, self.asked
  if place > NEAR and times[place - NEAR] <= time then return insert_far(self, event) end
  self.size = place + 1
  while place > 0 and times[place] <= time do
    events[place + 1], times[place + 1] = events[place], times[place]
    place = place - 1
  end
  events[place + 1], times[place + 1] = event, time
end

-- Removes and returns the next event, unless it is later than `stop`.
local function take(self, stop)
  local size, far = self.size, self.far[1]
  local near = self.events[size]
  if far and (size == 0 or is_before(far, near)) then
    return far[TIME] <= stop and take_far(self) or nil
  end
  if size == 0 or near[TIME] > stop then return nil end
  self.size = size - 1
  return near
end

local function new_event(self, fn, a, b, c)
  local spares = self.spares
  if spares == 0 then return { fn, a, b, c, 0, false, 0 } end
  local event = self.spare[spares]
  self.spares = spares - 1
  event[FN], event[A], event[B], event[C] = fn, a, b, c
  return event
end

--- Calls fn(a, b, c) at a time, or as soon as possible if that is past.
function World:at(time, fn, a, b, c)
  insert(self, new_event(self, fn, a, b, c), time > self.now and time or self.now)
end

--- The same, for callers that may cancel it. Returns the event.
function World:timer(time, fn, a, b)
  if time < self.now then time = self.now end
  local event = { fn, a, b, nil, time, true, 0 }
  insert(self, event, time)
  return event
end

--- Cancels an event.
function World.cancel(_, event)
  event[FN], event[A], event[B] = false, nil, nil
end

--- The time of an event.
function World.time_of(_, event) return event[TIME] end

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

local function reuse(self, event)
  event[A], event[B], event[C] = nil, nil, nil
  self.spares = self.spares + 1
  self.spare[self.spares] = event
end

--- Handles the next event, unless it is later than `stop`. False: there was none.
function World:step(stop)
  if self.last > 0 then self:settle() end
  local event = take(self, stop)
  if not event then return false end
  self.now, self.steps = event[TIME], self.steps + 1
  local fn, a, b, c = event[FN], event[A], event[B], event[C]
  if not event[IS_KEPT] then reuse(self, event) end
  if fn then
    fn(a, b, c)
    if self.last > 0 then self:settle() end
  end
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
