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

local floor = math.floor

local World = {}
World.__index = World

function World.new(seed, traced)
  return setmetatable({ now = 1000, random = Random.new(seed), heap = {}, size = 0, made = 0, soon = {}, last = 0,
    steps = 0, trace = traced and {} or nil }, World)
end

--- One line of the trace, if there is one.
function World:note(who, ...)
  if not self.trace then return end
  table.insert(self.trace, ("%10.4f ms  %-12s %s"):format((self.now - 1000) * 1e3, who, string.format(...)))
end

-- A binary heap of events, by time, and by age among those of one time. An event is a list, as there are so many.
local TIME, AGE, FN, A, B = 1, 2, 3, 4, 5

local function earlier(a, b)
  return a[TIME] < b[TIME] or (a[TIME] == b[TIME] and a[AGE] < b[AGE])
end

local function push(self, event)
  local heap, at = self.heap, self.size + 1
  self.size = at
  while at > 1 do
    local parent = floor(at / 2)
    if not earlier(event, heap[parent]) then break end
    heap[at], at = heap[parent], parent
  end
  heap[at] = event
end

local function pop(self)
  local heap, size = self.heap, self.size
  local first, last = heap[1], heap[size]
  heap[size] = nil
  size = size - 1
  self.size = size
  if size == 0 then return first end
  local at = 1
  while true do
    local child = at * 2
    if child > size then break end
    if child < size and earlier(heap[child + 1], heap[child]) then child = child + 1 end
    if not earlier(heap[child], last) then break end
    heap[at], at = heap[child], child
  end
  heap[at] = last
  return first
end

--- Has fn(a, b) called at a time, or as soon as that is over. Gives the event.
function World:at(time, fn, a, b)
  self.made = self.made + 1
  local event = { time > self.now and time or self.now, self.made, fn, a, b }
  push(self, event)
  return event
end

--- It shall not happen.
function World.cancel(_, event)
  event[FN], event[A], event[B] = false, nil, nil
end

--- When it is to happen.
function World.time_of(_, event) return event[TIME] end

function World:after(seconds, fn, a, b)
  return self:at(self.now + seconds, fn, a, b)
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

--- The next thing happens, unless it is later than `stop`. False: there was none.
function World:step(stop)
  self:settle()
  local event = self.heap[1]
  if not event or event[TIME] > stop then return false end
  pop(self)
  self.now, self.steps = event[TIME], self.steps + 1
  local fn = event[FN]
  if fn then
    fn(event[A], event[B])
    self:settle()
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
