-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The time of a world. It stands still until an operation waits or the test advances it. Then it moves from one
-- planned thing to the next one.
local timeline = {}
timeline.__index = timeline

local PATIENCE = 3600 -- seconds that an operation waits although nothing is planned, if its caller has `on_wait`

--- `moved(now)` is called when the time has moved.
function timeline.new(moved)
  return setmetatable({ now = 0, _moved = moved, _plan = {}, _pending = {}, _begun = 0 }, timeline)
end

--- Plans a call of fn().
function timeline:plan(seconds, fn)
  local one, place = { at = self.now + seconds, fn = fn }, #self._plan + 1
  while place > 1 and self._plan[place - 1].at > one.at do place = place - 1 end
  table.insert(self._plan, place, one)
end

-- ---- operations that wait -------------------------------------------------------------------------------------------

local function is_before(a, b)
  if a.priority ~= b.priority then return a.priority > b.priority end
  return a.number < b.number
end

--- Adds an operation, which is looked at whenever something has changed. It has look(), `priority`, `deadline` and
-- `wakes_at` (or nil).
function timeline:add(operation)
  self._begun = self._begun + 1
  operation.number = self._begun
  table.insert(self._pending, operation)
  table.sort(self._pending, is_before)
end

function timeline:remove(operation)
  for i, one in ipairs(self._pending) do
    if one == operation then return table.remove(self._pending, i) and nil end
  end
end

--- Returns the operations that wait for others.
function timeline:waiting()
  local list = {}
  for _, operation in ipairs(self._pending) do
    if operation.waits_since then table.insert(list, operation) end
  end
  return list
end

--- Something has changed: each operation that waits looks whether it can end.
function timeline:settle()
  local pending = {}
  for i, operation in ipairs(self._pending) do pending[i] = operation end
  for _, operation in ipairs(pending) do operation:look() end
end

-- ---- passing --------------------------------------------------------------------------------------------------------

-- Returns when the next thing happens; nil: nothing is planned.
local function next_time(self)
  local first = self._plan[1] and self._plan[1].at
  for _, operation in ipairs(self._pending) do
    for _, at in ipairs{ operation.deadline or math.huge, operation.wakes_at or math.huge } do
      if at < (first or math.huge) then first = at end
    end
  end
  return first
end

local function run_planned(self)
  while self._plan[1] and self._plan[1].at <= self.now do
    table.remove(self._plan, 1).fn()
    self:settle()
  end
end

-- Moves the time, not backwards.
local function move(self, target)
  self.now = math.max(self.now, target)
  self._moved(self.now)
end

--- Moves the time to `target`, through all that happens before. A planned function may move it further.
function timeline:pass_to(target)
  run_planned(self)
  local at = next_time(self)
  while at and at <= target do
    move(self, at)
    self:settle()
    run_planned(self)
    at = next_time(self)
  end
  move(self, target)
  self:settle()
end

--- Moves the time until the operation may have ended, at most for `pause` seconds, unless that is nil: then the caller
-- wants to be told at once that it waits.
function timeline:await(operation, pause)
  self:settle()
  local is_told = not pause or operation.is_told
  operation.is_told = true
  if operation:done() or not is_told then return end
  local at = next_time(self)
  local is_hopeless = not at and (not pause or self.now - operation.begun_at >= PATIENCE)
  if is_hopeless then operation:despair() end
  self:pass_to(math.min(at or math.huge, pause and self.now + pause or math.huge))
end

return timeline
