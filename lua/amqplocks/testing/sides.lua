-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Readers–writer locks. A writer shuts the door first, and then waits for the readers inside.
local held = require "amqplocks.testing.held"

local lock = {}
lock.__index = lock

--- Both sides of a lock share `inside`: its readers, and `door`: the writer, or the operation that waits behind it.
local function new(name, kind, inside)
  return setmetatable({ name = name, kind = kind, inside = inside }, lock)
end

function lock:words() return ('readers–writer lock "%s"'):format(self.name) end

local function is_own(self, op)
  for state in pairs(self.inside.readers) do
    if state.session == op.session then return true end
  end
  local door = self.inside.door
  return door and door ~= op and door.session == op.session
end

local function enter(self, op)
  local fence = op.is_fenced and op.broker:draw("rwlock", self.name) or nil
  local state = held.new(op.session, self, { kind = self.kind, fence = fence })
  if op.is_revoked then state:revoke() end
  return state
end

-- A writer that waits is asked, too: its lock is revoked as soon as it has it.
local function note_revoke(op) op.is_revoked = true end

local function claim_write(self, op)
  local inside = self.inside
  if not next(inside.readers) then
    inside.door = enter(self, op)
    return inside.door
  end
  if not op.is_single then inside.door, op.revoke = op, note_revoke end
  return nil, "busy", "it is read"
end

function lock:claim(op)
  local inside = self.inside
  if is_own(self, op) then return nil, "deadlock", "this connection holds it" end
  if inside.door and inside.door ~= op then return nil, "busy", "a client writes, or waits to write" end
  if self.kind == "write" then return claim_write(self, op) end
  local reader = enter(self, op)
  inside.readers[reader] = true
  return reader
end

--- An acquire has ended.
function lock:ended(op)
  if self.inside.door ~= op then return end
  self.inside.door = nil
  op.broker.timeline:settle()
end

function lock:leave(state)
  local inside = self.inside
  inside.readers[state] = nil
  if inside.door == state then inside.door = nil end
end

--- The writer becomes a reader.
function lock:downgrade(state)
  local broker = state.broker
  state.kind, state.ticket, state.is_revoked = "read", broker:ticket(), nil
  self.inside.door, self.inside.readers[state] = nil, true
  broker.timeline:settle()
end

--- Its readers; or its writer, or the operation that waits behind the door.
function lock:locks()
  if self.kind == "write" then return { self.inside.door } end
  local list = {}
  for state in pairs(self.inside.readers) do table.insert(list, state) end
  return list
end

local sides = {}

--- Returns both sides of a lock: { read =, write = }.
function sides.new(name)
  local inside = { readers = {} }
  return { read = new(name, "read", inside), write = new(name, "write", inside) }
end

return sides
