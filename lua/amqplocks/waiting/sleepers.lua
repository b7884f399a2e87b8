-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Coroutines of an event loop that wait for operations. Each waits for its own operation, and is woken only for that.
local guard = require "amqplocks.waiting.guard"

local waiting = {}
waiting.__index = waiting

function waiting.new(events)
  local asleep = setmetatable({}, { __mode = "k" }) -- an operation without a waiting coroutine must be collected
  return setmetatable({ _condition = events.condition, _asleep = asleep }, waiting)
end

-- Returns the smaller of two times; nil means never.
local function least(a, b)
  if not a or not b then return a or b end
  return math.min(a, b)
end

--- Waits until woken, or until one of these times (seconds; nil: none) is over. With `most`, also until the operation
-- begins to wait for other clients. If the coroutine is closed meanwhile, the condition is signalled, so that the loop
-- notices.
function waiting:wait(operation, left, most)
  local condition = self._condition()
  self._asleep[operation] = { condition = condition, begins = most and not operation:waiting() }
  guard.unless_closed(condition.signal, condition.wait, condition, least(left, most))
  self._asleep[operation] = nil
end

--- Forgets the coroutine that waited for the operation.
function waiting:forget(operation) self._asleep[operation] = nil end

local function is_called(operation, begins) return operation:done() or begins and operation:waiting() end

--- Wakes the coroutines whose operations are done, or begin to wait for other clients; or all. If an operation was
-- freed, its coroutine is gone.
function waiting:call(all)
  local called = {} -- a woken coroutine may run at once
  for operation, sleeper in pairs(self._asleep) do
    if not operation:is_given_back() and (all or is_called(operation, sleeper.begins)) then
      table.insert(called, sleeper.condition)
    end
  end
  for _, condition in ipairs(called) do condition:signal() end
end

return waiting
