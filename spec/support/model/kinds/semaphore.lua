-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories about the slots of a semaphore: any of them, one for each.
local Gate = require "spec.support.model.gate"
local History = require "spec.support.model.history"
local Kind = require "spec.support.model.kind"

local NAME = "images"

local Semaphore = Kind.extend{ noun = "slot", bell = NAME .. "-bell", fence = NAME .. "-fence",
  shape = { durable = true, arguments = { ["x-queue-type"] = "classic" } } }

function Semaphore.new(crowd)
  local self = setmetatable({ crowd = crowd, broker = crowd.broker, seats = {}, was_there = {},
    history = History.new(crowd.broker) }, Semaphore)
  self.many = crowd.options.gathers and Gate.new(self, NAME .. "-many")
  return self
end

-- For the story -----------------------------------------------------------------------------------------------------

function Semaphore:create(admin)
  return admin.session:administer("create", NAME, {}, self.crowd.slots)
end

--- Gives the operation, and for how long it may wait for holders.
function Semaphore:resize(admin, slots)
  local wait = self.crowd.random:pick{ 0, 0, 5 }
  return admin.session:administer("resize", NAME, { wait = wait }, slots), wait
end

function Semaphore.repair(_, admin)
  return admin.session:administer("repair", NAME, {}), 0
end

-- What an administrator asks, and what is wrong with what he was told, if anything; `since` is when he asked, as long
-- before as his node's view may be behind.

local function slot_queue(slot) return ("%s-%d-A"):format(NAME, slot) end
local function holder_queue(slot) return ("%s-%d-B"):format(NAME, slot) end
local function bolt(slot) return holder_queue(slot) .. "-bolt" end

local INQUIRIES = {}

-- The one queue of a name was said to be there, or not to be.
local function look_at(self, name, is_there, since)
  local was = is_there and self.history.was_present or self.history.was_absent
  if not was(self.history, name, since) then
    return ("%s is %s, and was not all the time"):format(name, is_there and "there" or "absent")
  end
end

local function look_at_row(self, count, since)
  for slot = 1, count + 1 do
    local flaw = look_at(self, slot_queue(slot), slot <= count, since)
    if flaw then return flaw end
  end
end

function INQUIRIES.slots(admin)
  return admin.session:administer("slots", NAME, {}), look_at_row
end

function INQUIRIES.status(admin)
  return admin.session:administer("status", NAME, {}), function (self, slots, since)
    for slot, state in ipairs(slots) do
      local flaw = look_at(self, slot_queue(slot), state.exists, since)
        or look_at(self, holder_queue(slot), state.held, since)
      if flaw then return flaw end
    end
    return look_at(self, slot_queue(#slots + 1), false, since)
  end
end

-- This one makes sure: whatever the node's view, the slot was free since the question.
local function look_at_holder(self, slot, asked_at)
  local queue = holder_queue(slot)
  local robbed = self.crowd.watch:robbed_holder(queue, asked_at)
  return robbed and ("%s has %s by its bolt"):format(robbed.name, queue) or look_at(self, queue, false, asked_at)
end

INQUIRIES["wait for"] = function (admin, random)
  local slot = random:below(4)
  local op = admin.session:wait_released(NAME, { timeout = 5 }, { slot, slot + 1 })
  return op, function (self, _, _, asked_at)
    return look_at_holder(self, slot, asked_at) or look_at_holder(self, slot + 1, asked_at)
  end
end

-- What is there is not made.
function INQUIRIES.create(admin, random)
  return admin.session:administer("create", NAME, {}, random:below(5)), function (self, _, _, asked_at)
    return look_at(self, slot_queue(1), false, asked_at)
  end
end

local QUESTIONS = { "slots", "status", "status", "wait for", "wait for", "create" }

--- Gives the operation, and a function of what it gave: nil, or what is wrong with that.
function Semaphore:inquire(admin)
  local random, asked_at = self.crowd.random, self.broker.world.now
  local op, look = INQUIRIES[random:pick(QUESTIONS)](admin, random)
  return op, function (result) return look(self, result, asked_at - self.broker.laws.stale, asked_at) end
end

--- What is wrong after a change that was said to be done; begun then, with so many slots before.
function Semaphore:undone(slots, since, waited_for)
  return look_at_row(self, slots, since) or waited_for and look_at_holder(self, waited_for, since)
end

--- What is wrong with having been told that a lock's slot was taken away; asked then.
function Semaphore:kept(lock, since)
  return look_at(self, (self:queue_of(lock):gsub("B$", "A")), false, since)
end

function Semaphore:ask(process, _, ...)
  local random = self.crowd.random
  local is_deaf = random:chance(self.crowd.options.deaf or 0)
  local strategy = random:pick{ "ascending", "ascending", "random", "last" }
  return process.peer:semaphore(NAME, { bell = not is_deaf, strategy = strategy,
    fenced = self.crowd.options.fenced }):acquire(...)
end

function Semaphore:slot_queue() return slot_queue(self.crowd.random:below(self.crowd.slots)) end

--- A stranger has a slot. Gives what ends it.
function Semaphore:intrude()
  return self.broker:intrude(("%s-%d-B"):format(NAME, self.crowd.random:below(self.crowd.slots)))
end

function Semaphore:make_bell()
  Kind.make_bell(self)
  self:ring(self.crowd.random:below(self.crowd.slots + 1) - 1)
end

function Semaphore:stays(queue)
  return queue:find("^" .. NAME .. "%-%d+%-A$") or Kind.stays(self, queue)
end

-- A client that has not been told within `poll` that it consumes from the bell takes the bell for missing, for a
-- minute. It then rings for none of the slots that it holds. Waiters find these slots when they look again.
local function has_missed_bell(self)
  for _, process in ipairs(self.crowd.processes) do
    if process:has_missed_bell() then return true end
  end
end

function Semaphore:flaw()
  local tokens, slots, options = self.broker:count(self.bell), self.crowd.slots, self.crowd.options
  local is_one_lost = tokens < slots and not options.loses_tokens and not has_missed_bell(self)
  if is_one_lost or options.spare and tokens > slots + options.spare then
    return ("%d tokens are left of %d"):format(tokens, slots)
  end
end

-- For the watch -----------------------------------------------------------------------------------------------------

local function new_seat(self, slot)
  local queues, a, b = self.broker.queues, slot_queue(slot), holder_queue(slot)
  local function is_free()
    return queues[a] ~= nil and not queues[a].trouble and not queues[b] and not self.broker:is_shut(bolt(slot))
  end
  return { name = "slot " .. slot, queue = b, slot_queue = a, is_free = is_free,
    wakes = self.many and self.many.wakes }
end

function Semaphore:changed(queue)
  Kind.changed(self, queue)
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

function Semaphore:refuses(belief)
  if not self.was_there[belief.group] then return "slot " .. belief.group .. ", which had been taken away" end
end

function Semaphore.clash(_, beliefs)
  if #beliefs < 2 then return nil end
  return ("slot %d is held by %s and by %s"):format(beliefs[1].group, beliefs[1].process.name, beliefs[2].process.name)
end

local function is_held_by(self, seat, connection)
  local queue = self.broker.queues[seat.queue]
  return queue and queue.owner == connection
end

function Semaphore:held_by(connection)
  for _, seat in ipairs(self.seats) do
    if is_held_by(self, seat, connection) then return seat.name end
  end
end

function Semaphore:count_of(connection)
  local count = 0
  for _, seat in ipairs(self.seats) do
    if is_held_by(self, seat, connection) then count = count + 1 end
  end
  return count
end

return Semaphore
