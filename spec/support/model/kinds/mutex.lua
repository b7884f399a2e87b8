-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories about a mutex: there is one, and it is nobody's until somebody wants it.
local Kind = require "spec.support.model.kind"

local NAME, QUEUE, BOLT = "db", "db-mutex", "db-mutex-bolt"

local Mutex = Kind.extend{ noun = "mutex", queue = QUEUE, bell = NAME .. "-mutexbell", fence = NAME .. "-mutexfence",
  gate = QUEUE }

function Mutex.new(crowd)
  local broker = crowd.broker
  local self = setmetatable({ crowd = crowd, broker = broker, seats = {
    { name = "the mutex", is_free = function () return not broker.queues[QUEUE] and not broker:is_shut(BOLT) end },
  } }, Mutex)
  if crowd.options.is_used then self:be_used() end
  return self
end

function Mutex:ask(process, _, ...) return self:object(process, "mutex", NAME):acquire(...) end

--- A stranger has the lock. Returns what ends it.
function Mutex:intrude() return self.broker:intrude(QUEUE) end

function Mutex.clash(_, beliefs)
  if #beliefs < 2 then return nil end
  return ("the mutex is held by %s and by %s"):format(beliefs[1].process.name, beliefs[2].process.name)
end

function Mutex:held_by(connection)
  local queue = self.broker.queues[QUEUE]
  if queue and queue.owner == connection then return "the mutex" end
end

return Mutex
