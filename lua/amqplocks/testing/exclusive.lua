-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Mutexes and fast mutexes: one holder.
local held = require "amqplocks.testing.held"

local exclusive = {}
exclusive.__index = exclusive

--- `kind`: "mutex" or "fast_mutex".
function exclusive.new(name, kind) return setmetatable({ name = name, kind = kind }, exclusive) end

function exclusive:words() return ('%s "%s"'):format(self.kind:gsub("_", " "), self.name) end

function exclusive:claim(op)
  local holder, queue_type = self.holder, op.queue_type or "classic"
  self.queue_type = self.queue_type or queue_type
  if self.queue_type ~= queue_type then return nil, "conflict", "its queue is a " .. self.queue_type .. " queue" end
  if not holder then
    local fence = op.is_fenced and op.broker:draw("mutex", self.name) or nil
    self.holder = held.new(op.session, self, { kind = self.kind, fence = fence })
    return self.holder
  end
  if holder.session == op.session and not op.is_single then
    return nil, "deadlock", "this connection holds it"
  end
  return nil, "busy", ("it is held by %s"):format(holder.session:name())
end

function exclusive:leave(state)
  self.holder = nil
  if not state.is_counted then return end -- it was no lock yet
  local settles = state.status == "lost" and state.settles
  self.settled_at = settles and state.broker.timeline.now + settles or nil
end

--- Its locks, for administrators who ask for them.
function exclusive:locks() return { self.holder } end

return exclusive
