-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories about a readers-writer lock: readers together, a writer alone. A door that is shut keeps everybody out; who
-- has shut it gets in when the last reader has left.
local Kind = require "spec.support.model.kind"

local NAME, DOOR, BOLT, KEY = "catalog", "catalog-writer", "catalog-writer-bolt", "catalog-readers"

local RWLock = Kind.extend{ bell = NAME .. "-rwbell", fence = NAME .. "-rwfence" }

function RWLock.new(crowd)
  local self = setmetatable({ crowd = crowd, broker = crowd.broker, reader_count = 0 }, RWLock)
  local queues = self.broker.queues
  local function is_anybody_in()
    for _, belief in ipairs(crowd.watch.beliefs) do
      if belief.wish == "write" then return true end
    end
  end
  local function is_open() return not queues[DOOR] and not self.broker:is_shut(BOLT) end
  local function has_shut_it(wait)
    if crowd.options.programs then return false end  -- it may be the other one who has, or is in already
    local connection = wait.process:connection()
    return wait.wish == "write" and connection and self.shut_by == connection
  end
  self.seats = {
    { name = "the door", is_free = is_open,
      tells = function (wish) return wish == "read" end },
    { name = "the room behind the door", wakes = has_shut_it, tells = function () return false end,
      is_free = function () return queues[DOOR] and self.reader_count == 0 and not is_anybody_in() end },
    { name = "everything", wakes = function () return false end, tells = function (wish) return wish == "write" end,
      is_free = function () return is_open() and self.reader_count == 0 end },
  }
  return self
end

-- For the story -----------------------------------------------------------------------------------------------------

function RWLock:ask(process, wish, ...)
  local lock = self:object(process, "rwlock", NAME)
  return lock[wish](lock, ...)
end

function RWLock:wish()
  return self.crowd.random:chance(self.crowd.options.writers or 0.3) and "write" or "read"
end

--- A stranger writes, or reads. Returns what ends it.
function RWLock:intrude()
  if self.crowd.random:chance(0.5) then return self.broker:intrude(DOOR) end
  return self.broker:intrude(self.broker:unique(NAME .. "-reader-"), KEY)
end

-- For the watch -----------------------------------------------------------------------------------------------------

function RWLock:changed(queue)
  if queue.name == DOOR then self.shut_by = queue.owner end
  if not queue.name:find("^" .. NAME .. "%-reader%-") then return end
  self.reader_count = self.reader_count + (self.broker.queues[queue.name] and 1 or -1)
end

function RWLock:queue_of(lock)
  local _, _, ticket = lock:info()
  return self:wish_of(lock) == "write" and DOOR or NAME .. "-reader-" .. ticket
end

function RWLock.wish_of(_, lock) return (select(5, lock:info())) end

function RWLock.clash(_, beliefs)
  for i, belief in ipairs(beliefs) do
    local other = beliefs[i == 1 and 2 or 1]
    if belief.wish == "write" and other then
      return ("%s writes while %s may %s"):format(belief.process.name, other.process.name, other.wish)
    end
  end
end

return RWLock
