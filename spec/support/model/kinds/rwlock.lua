-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories about a readers-writer lock: readers together, a writer alone. A door that is shut keeps everybody out; who
-- has shut it gets in when the last reader has left.
local RWLock = {}
RWLock.__index = RWLock

local NAME, DOOR, BOLT, KEY = "catalog", "catalog-writer", "catalog-writer-bolt", "catalog-readers"
local BELL = { durable = true, arguments = { ["x-queue-type"] = "classic", ["x-expires"] = 60000, ["x-max-length"] = 1,
  ["x-overflow"] = "drop-head" } }
local TOKEN = { type = "amqplocks.token", delivery_mode = 2 }

function RWLock.new(crowd)
  local self = setmetatable({ crowd = crowd, broker = crowd.broker, bell = NAME .. "-rwbell",
    fence = NAME .. "-rwfence",
    reader_count = 0 }, RWLock)
  local queues = self.broker.queues
  local function is_anybody_in()
    for _, belief in ipairs(crowd.watch.beliefs) do
      if belief.wish == "write" then return true end
    end
  end
  local function is_open() return not queues[DOOR] and not self.broker:is_shut(BOLT) end
  local function has_shut_it(wait)
    if crowd.options.programs then return false end  -- it may be the other one who has, or is in already
    local socket = wait.process.sockets.holder
    return wait.wish == "write" and socket and self.shut_by == socket.connection
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
  local lock = self.crowd.options.same_object and process.rwlock
  lock = lock or process:keep(process.session:rwlock(NAME, 8, "auto", self.crowd.options.fenced))
  process.rwlock = lock
  return lock[wish](lock, ...)
end

function RWLock:wish()
  return self.crowd.random:chance(self.crowd.options.writers or 0.3) and "write" or "read"
end

--- A stranger writes, or reads. Gives what ends it.
function RWLock:intrude()
  if self.crowd.random:chance(0.5) then return self.broker:intrude(DOOR) end
  return self.broker:intrude(self.broker:unique(NAME .. "-reader-"), KEY)
end

function RWLock:make_bell() self.broker:declare(self.bell, BELL) end

function RWLock:ring(count) self.broker:put(self.bell, count, TOKEN) end

function RWLock:stays(queue)
  return queue == self.bell or queue == self.fence or queue == self.fence .. "-unfinished"
end

function RWLock.flaw() return nil end

-- For the watch -----------------------------------------------------------------------------------------------------

function RWLock:changed(queue)
  if queue.name == DOOR then self.shut_by = queue.owner end
  if not queue.name:find("^" .. NAME .. "%-reader%-") then return end
  self.reader_count = self.reader_count + (self.broker.queues[queue.name] and 1 or -1)
end

function RWLock.group_of() return 1 end

function RWLock:queue_of(lock)
  local _, _, ticket = lock:info()
  return self:wish_of(lock) == "write" and DOOR or NAME .. "-reader-" .. ticket
end

function RWLock.wish_of(_, lock) return (select(5, lock:info())) end

function RWLock.refuses() return nil end

function RWLock.clash(_, beliefs)
  for i, belief in ipairs(beliefs) do
    local other = beliefs[i == 1 and 2 or 1]
    if belief.wish == "write" and other then
      return ("%s writes while %s may %s"):format(belief.process.name, other.process.name, other.wish)
    end
  end
end

function RWLock.held_by() return nil end

return RWLock
