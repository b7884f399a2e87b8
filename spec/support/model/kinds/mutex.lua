-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories about a mutex: there is one, and it is nobody's until somebody wants it.
local Mutex = {}
Mutex.__index = Mutex

local NAME, QUEUE, BOLT = "db", "db-mutex", "db-mutex-bolt"
local BELL = { durable = true, arguments = { ["x-queue-type"] = "classic", ["x-expires"] = 60000, ["x-max-length"] = 1,
  ["x-overflow"] = "drop-head" } }
local TOKEN = { type = "amqplocks.token", delivery_mode = 2 }

function Mutex.new(crowd)
  local broker = crowd.broker
  local self = setmetatable({ crowd = crowd, broker = broker, bell = NAME .. "-mutexbell",
    fence = NAME .. "-mutexfence", gate = QUEUE, seats = {
    { name = "the mutex", is_free = function () return not broker.queues[QUEUE] and not broker:is_shut(BOLT) end },
  } }, Mutex)
  if crowd.options.is_used then
    self:make_bell()
    self:ring(1)
  end
  return self
end

-- For the story -----------------------------------------------------------------------------------------------------

function Mutex:ask(process, _, ...)
  local mutex = self.crowd.options.same_object and process.mutex
  mutex = mutex or process:keep(process.session:mutex(NAME, 8, "auto", self.crowd.options.fenced))
  process.mutex = mutex
  return mutex:acquire(...)
end

function Mutex.wish() return "mutex" end

--- A stranger has the lock. Gives what ends it.
function Mutex:intrude() return self.broker:intrude(QUEUE) end

function Mutex:make_bell() self.broker:declare(self.bell, BELL) end

function Mutex:ring(count) self.broker:put(self.bell, count, TOKEN) end

function Mutex:stays(queue)
  return queue == self.bell or queue == self.fence or queue == self.fence .. "-unfinished"
end

function Mutex.flaw() return nil end

-- For the watch -----------------------------------------------------------------------------------------------------

function Mutex.changed() end

function Mutex.group_of() return 1 end

function Mutex.queue_of() return QUEUE end

function Mutex.wish_of() return "mutex" end

function Mutex.refuses() return nil end

function Mutex.clash(_, beliefs)
  if #beliefs < 2 then return nil end
  return ("the mutex is held by %s and by %s"):format(beliefs[1].process.name, beliefs[2].process.name)
end

function Mutex:held_by(connection)
  local queue = self.broker.queues[QUEUE]
  if queue and queue.owner == connection then return "the mutex" end
end

return Mutex
