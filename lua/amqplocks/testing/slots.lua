-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Semaphores, and persistent mutexes: slots, of which each has one holder. A holder keeps a slot that was removed.
local held = require "amqplocks.testing.held"

local slots = {}
slots.__index = slots
slots.kind = "slot"

function slots.new(name) return setmetatable({ name = name, count = 0, holders = {} }, slots) end

function slots:words() return ('semaphore "%s"'):format(self.name) end

function slots:size() return self.count end

local function take(self, op, slot)
  local fence = op.is_fenced and op.broker:draw("semaphore", self.name) or nil
  self.holders[slot] = held.new(op.session, self, { kind = "slot", slot = slot, fence = fence })
  return self.holders[slot]
end

--- `op.most`: take no slot above this one; nil: take any.
function slots:claim(op)
  if self.count == 0 then return nil, "not_found", "it does not exist" end
  local last, own = math.min(self.count, op.most or self.count), 0
  for slot = 1, last do
    local holder = self.holders[slot]
    if not holder then return take(self, op, slot) end
    if holder.session == op.session then own = own + 1 end
  end
  if own == last and not op.is_single and not op.count then
    return nil, "deadlock", "this connection holds every slot"
  end
  return nil, "busy", ("%d of %d held"):format(last, last)
end

function slots:leave(state) self.holders[state.slot] = nil end

function slots:is_removed(state) return state.slot > self.count end

--- Returns the locks of slots that are in this list; nil: of all.
function slots:locks(list)
  local found = {}
  for slot, holder in pairs(self.holders) do
    local is_wanted = not list
    for _, one in ipairs(list or {}) do is_wanted = is_wanted or one == slot end
    if is_wanted then table.insert(found, holder) end
  end
  return found
end

--- Returns the state of each slot, up to the last that exists or is held.
function slots:status()
  local last = self.count
  for slot in pairs(self.holders) do if slot > last then last = slot end end
  local list = {}
  for slot = 1, last do list[slot] = { exists = slot <= self.count, held = self.holders[slot] ~= nil } end
  return list
end

return slots
