-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A lock that was acquired. The world has its state. Its owner has a box, which has the methods of the core's locks.
-- If the box is collected, the lock is released.
local operation = require "amqplocks.testing.operation"

local HEARTBEATS = 20 -- seconds: how long a lock is certain while the broker answers, with the default heartbeat

-- ---- the state ------------------------------------------------------------------------------------------------------

local held = {}
held.__index = held

--- `resource`: what it is a lock of. It has leave(state), and is_removed(state) or nil.
function held.new(session, resource, fields)
  local broker = session.broker
  local self = setmetatable({
    session = session, broker = broker, resource = resource, name = resource.name, acquired_at = broker.timeline.now,
    ticket = broker:ticket(), status = "held",
  }, held)
  for key, value in pairs(fields) do self[key] = value end
  session.locks[self] = true
  return self
end

function held:words()
  local what = self.kind == "slot" and "slot " .. self.slot or self.kind
  return ('%s of "%s"'):format(what, self.name)
end

-- The lock has ended. Others may have it.
local function finish(self, status)
  self.status = status
  self.session.locks[self] = nil
  self.resource:leave(self)
  self.broker.timeline:settle()
end

--- Releases it. Does nothing if it has ended.
function held:release()
  if self.status == "held" then finish(self, "released") end
end

--- It is lost so many seconds after now, unless it has ended; nil: it is not.
function held:expire_in(seconds)
  if not seconds then return end
  self.expires_at = self.broker.timeline.now + seconds
  self.broker.timeline:plan(seconds, function()
    self:lose "expired: it was held for as long as its acquire allows (at_most)"
  end)
end

--- Takes it from its holder.
function held:lose(why)
  if self.status ~= "held" then return end
  self.why, self.was_lost = why, true
  self.session:alert("warning", ("%s was lost: %s"):format(self:words(), why))
  if self.is_counted then self.session:count("lost") end
  finish(self, "lost")
end

--- Asks its holder for it.
function held:revoke()
  if self.is_revoked then return end
  self.is_revoked = true
  if self.is_counted then self.session:count "revoked" end
  self.session:alert("info", self:words() .. " was asked for")
end

--- Returns nil if it is certainly held, otherwise a code and words.
function held:trouble()
  if self.status == "lost" then return "lost", self.why end
  if self.status == "released" then return "not_held", "it was released before" end
  if self.is_suspect then return "suspect", "the broker has not answered for two heartbeats" end
end

-- ---- the box --------------------------------------------------------------------------------------------------------

local box = {}

local metatable = { __index = box }

-- In Lua 5.1 and LuaJIT only userdata have finalizers.
local newproxy = rawget(_G, "newproxy")

if newproxy then
  function box:_collect()
    local state = self.state
    self._proxy = newproxy(true)
    getmetatable(self._proxy).__gc = function() state:release() end
  end
else
  function metatable:__gc() self.state:release() end

  function box:_collect() end -- luacheck: no self
end

--- The box for a state.
function held.box(state)
  local self = setmetatable({ state = state }, metatable)
  self:_collect()
  return self
end

function box:held()
  local code, words = self.state:trouble()
  if not code then return true end
  return false, ("%s: %s: %s"):format(code, self.state:words(), words), code
end

function box:loss()
  local state = self.state
  if state.was_lost then return ("lost: %s: %s"):format(state:words(), state.why) end
end

function box:revoked() return self.state.is_revoked or false end

function box:certain_for()
  local state = self.state
  local left = (state.expires_at or math.huge) - state.broker.timeline.now
  return state:trouble() and 0 or math.min(left, HEARTBEATS)
end

function box:info()
  local state = self.state
  return state.slot, state.name, state.ticket, state.acquired_at, state.kind, state.fence, state.permit
end

local function begin(state, what, step)
  local entry = { what = what, kind = state.kind, name = state.name, words = state:words() }
  return operation.new(state.session, entry, step)
end

local function fail_as(op, state, code, words) op:fail(code, state:words() .. ": " .. words) end

function box:verify()
  local state = self.state
  return begin(state, "verify", function(op)
    if state.status == "held" and op:is_spoilt() then return end
    if state.status == "held" then state.is_suspect = false end
    local code, words = state:trouble()
    if code then return fail_as(op, state, code, words) end
    if state.resource.is_removed and state.resource:is_removed(state) then
      return fail_as(op, state, "removed", "the slot was removed")
    end
    op:finish(true)
  end)
end

function box:release()
  local state = self.state
  local op = begin(state, "release", function(op)
    local code, words = state:trouble()
    if code and code ~= "suspect" then
      state.status = "released"
      return fail_as(op, state, code, words)
    end
    state:release() -- the broker learns of it later if it does not answer now
    if not op:is_spoilt() then op:finish(true) end
  end)
  op:look() -- it is released also if nobody waits for that
  return op
end

box.give_back = box.release

function box:let_go() self.state:release() end

function box:drop() self.state:release() end

function box:downgrade()
  local state = self.state
  return begin(state, "downgrade", function(op)
    local code, words = state:trouble()
    if code then return fail_as(op, state, code, words) end
    if op:is_spoilt() then return end
    if state.kind == "write" then state.resource:downgrade(state) end
    op:finish(true)
  end)
end

return held
