-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories about the slots of a semaphore: any of them, one for each.
local Semaphore = {}
Semaphore.__index = Semaphore

local NAME = "images"
local TOKEN = { type = "amqplocks.token", delivery_mode = 2 }

function Semaphore.new(crowd)
  return setmetatable({ crowd = crowd, broker = crowd.broker, bell = NAME .. "-bell", seats = {}, was_there = {} },
    Semaphore)
end

-- For the story -----------------------------------------------------------------------------------------------------

function Semaphore:create(admin)
  return admin.session:administer("create", NAME, {}, self.crowd.slots)
end

function Semaphore.resize(_, admin, slots)
  return admin.session:administer("resize", NAME, {}, slots)
end

function Semaphore.repair(_, admin)
  return admin.session:administer("repair", NAME, {})
end

function Semaphore:ask(process, _, ...)
  local random = self.crowd.random
  local is_deaf = random:chance(self.crowd.options.deaf or 0)
  local strategy = random:pick{ "ascending", "ascending", "random", "last" }
  return process.peer:semaphore(NAME, { bell = not is_deaf, strategy = strategy }):acquire(...)
end

function Semaphore.wish() return "slot" end

--- A stranger has a slot. Gives what ends it.
function Semaphore:intrude()
  return self.broker:intrude(("%s-%d-B"):format(NAME, self.crowd.random:below(self.crowd.slots)))
end

function Semaphore:make_bell()
  self.broker:declare(self.bell, { durable = true, arguments = { ["x-queue-type"] = "classic" } })
  self:ring(self.crowd.random:below(self.crowd.slots + 1) - 1)
end

function Semaphore:ring(count)
  self.broker:put(self.bell, count, TOKEN)
end

function Semaphore:stays(queue)
  return queue:find("^" .. NAME .. "%-%d+%-A$") or queue == self.bell
end

--- What is wrong in the end, if anything.
function Semaphore:flaw()
  local tokens = self.broker:count(self.bell)
  if tokens < self.crowd.slots and not self.crowd.options.loses_tokens then
    return ("%d tokens are left of %d"):format(tokens, self.crowd.slots)
  end
end

-- For the watch -----------------------------------------------------------------------------------------------------

local function new_seat(self, slot)
  local queues, slot_queue, holder_queue = self.broker.queues, NAME .. "-" .. slot .. "-A", NAME .. "-" .. slot .. "-B"
  return { name = "slot " .. slot, queue = holder_queue, slot_queue = slot_queue, is_free = function ()
    return queues[slot_queue] ~= nil and not queues[holder_queue]
  end }
end

function Semaphore:changed(queue)
  local slot, letter = queue.name:match("^" .. NAME .. "%-(%d+)%-([AB])$")
  slot = tonumber(slot)
  if not slot then return end
  for i = #self.seats + 1, slot do self.seats[i] = new_seat(self, i) end
  if self.broker.is_down then return end
  -- Whether A was there at any moment since B was made.
  local is_there = self.broker.queues[self.seats[slot].slot_queue] ~= nil
  if letter == "B" or is_there then self.was_there[slot] = is_there end
end

function Semaphore.group_of(_, lock) return (lock:info()) end

function Semaphore:queue_of(lock) return self.seats[lock:info()].queue end

function Semaphore.wish_of() return "slot" end

function Semaphore:refuses(belief)
  if not self.was_there[belief.group] then return "slot " .. belief.group .. ", which had been taken away" end
end

function Semaphore.clash(_, beliefs)
  if #beliefs < 2 then return nil end
  return ("slot %d is held by %s and by %s"):format(beliefs[1].group, beliefs[1].process.name, beliefs[2].process.name)
end

function Semaphore:held_by(connection)
  for _, seat in ipairs(self.seats) do
    local queue = self.broker.queues[seat.queue]
    if queue and queue.owner == connection then return seat.name end
  end
end

return Semaphore
