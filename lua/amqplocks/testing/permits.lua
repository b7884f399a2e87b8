-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Token semaphores: permits. Those of a quorum queue have an id and count their holders.
local held = require "amqplocks.testing.held"

local permits = {}
permits.__index = permits
permits.kind = "permit"

function permits.new(name) return setmetatable({ name = name, count = 0, free = {}, taken = {} }, permits) end

function permits:words() return ('token semaphore "%s"'):format(self.name) end

function permits:size() return self.count end

--- `op.is_fenced`: the client wants permits with a fencing token.
function permits:claim(op)
  if self.count == 0 then return nil, "not_found", "it does not exist" end
  if op.is_fenced and not self.is_quorum then return nil, "conflict", "its permits have no fencing tokens" end
  local permit = table.remove(self.free, 1)
  if not permit then return nil, "busy", ("%d of %d held"):format(self.count, self.count) end
  local fence = self.is_quorum and op.broker:draw("permit", permit) or nil
  local state = held.new(op.session, self, { kind = "permit", fence = fence, permit = fence and permit })
  self.taken[state] = permit
  return state
end

function permits:leave(state)
  local permit = self.taken[state]
  self.taken[state] = nil
  if permit then table.insert(self.free, permit) end
end

--- Its locks.
function permits:locks()
  local list = {}
  for state in pairs(self.taken) do table.insert(list, state) end
  return list
end

--- Makes permits until there are so many.
function permits:grow(broker, count)
  for _ = self.count + 1, count do table.insert(self.free, broker:permit()) end
  self.count = math.max(self.count, count)
end

--- Takes free permits away until there are so many; returns whether there were enough free ones.
function permits:shrink(count)
  if self.count - count > #self.free then return false end
  for _ = count + 1, self.count do table.remove(self.free) end
  self.count = count
  return true
end

--- Deletes it; its holders lose their permits.
function permits:destroy()
  for _, state in ipairs(self:locks()) do
    self.taken[state] = nil
    state:lose "the queue was deleted"
  end
  self.count, self.free = 0, {}
end

return permits
