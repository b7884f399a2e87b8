-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Where coroutines of an event loop wait for operations of one session, each for its own: nobody is woken by what others
-- wait for.
local waiting = {}
waiting.__index = waiting

function waiting.new(events, session)
  local asleep = setmetatable({}, { __mode = "k" }) -- an operation that nobody waits for any more is to be collected
  return setmetatable({ _condition = events.condition, _session = session, _asleep = asleep, _changes = 0 }, waiting)
end

local function least(a, b)
  if not a or not b then return a or b end
  return math.min(a, b)
end

--- Until `operation` has ended, or one of these times (seconds, nil for none) is over. With `most`, somebody wants to hear of
-- it when it begins to wait for others.
function waiting:wait(operation, left, most)
  local condition = self._condition()
  self._asleep[operation] = { condition = condition, begins = most and not operation:waiting() }
  condition:wait(least(left, most))
  self._asleep[operation] = nil
end

local function is_called(operation, sleeper)
  return operation:done() or sleeper.begins and operation:waiting()
end

--- Wakes those whose operation has ended, or begun to wait.
function waiting:wake()
  local changes = self._session:op_changes()
  if changes == self._changes then return end
  self._changes = changes
  local called = {} -- whoever is woken may go on at once
  for operation, sleeper in pairs(self._asleep) do
    if is_called(operation, sleeper) then table.insert(called, sleeper.condition) end
  end
  for _, condition in ipairs(called) do condition:signal() end
end

return waiting
