-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Where coroutines of an event loop wait for operations, each for its own: nobody is woken by what others wait for.
local guard = require "amqplocks.waiting.guard"

local waiting = {}
waiting.__index = waiting

--- `is_called(operation, begins)` tells whether somebody is to be woken; `begins`: also when the operation begins to
-- wait for others.
function waiting.new(events, is_called)
  local asleep = setmetatable({}, { __mode = "k" }) -- an operation that nobody waits for any more is to be collected
  return setmetatable({ _condition = events.condition, _is_called = is_called, _asleep = asleep }, waiting)
end

--- The smaller of two times, of which nil is never.
function waiting.least(a, b)
  if not a or not b then return a or b end
  return math.min(a, b)
end

--- Until called, or one of these times (seconds, nil for none) is over. With `most`, also until the operation begins
-- to wait for others. A coroutine that is closed meanwhile waits no longer, and the loop is told so.
function waiting:wait(operation, left, most)
  local condition = self._condition()
  self._asleep[operation] = { condition = condition, begins = most and not operation:waiting() }
  guard.unless_closed(condition.signal, condition.wait, condition, waiting.least(left, most))
  self._asleep[operation] = nil
end

--- Whoever waited for it is gone.
function waiting:forget(operation) self._asleep[operation] = nil end

-- Who waited for what was given back was thrown away, by the collector or before.
function waiting:call()
  local called = {} -- whoever is woken may go on at once
  for operation, sleeper in pairs(self._asleep) do
    if not operation:is_given_back() and self._is_called(operation, sleeper.begins) then
      table.insert(called, sleeper.condition)
    end
  end
  for _, condition in ipairs(called) do condition:signal() end
end

return waiting
