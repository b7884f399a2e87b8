-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Acquires a lock, or several slots or permits. A resource tells by claim(op) whether there is one:
--
--     a lock | nil, "busy", words: wait for others | nil, code, words: the end
local held = require "amqplocks.testing.held"
local operation = require "amqplocks.testing.operation"

local RETRIED = { unreachable = true, unavailable = true, blocked = true } -- by a patient acquire
local PAUSE = 1 -- second: between the attempts of a patient acquire

local function refuse(op, code, words)
  if not op.is_patient or not RETRIED[code] then return op:fail(code, words) end
  local now = op.broker.timeline.now
  op.wakes_at, op.reason, op.waits_since = now + PAUSE, code .. ": " .. words, op.waits_since or now
end

-- Begins an attempt; returns false if the test has planned that it fails.
local function attempt(op)
  op.wakes_at = nil
  local code = op.broker:next_failure()
  if code then refuse(op, code, "world:fail() wants it") end
  return code == nil
end

local function got(op, result)
  for _, state in ipairs(op.count and result or { result }) do
    state.is_counted = true
    state:expire_in(op.at_most)
    state.settles = op.settles
    op.session:count "acquired"
  end
  if not op.count then return op:finish(held.box(result)) end
  local boxes = {}
  for i, state in ipairs(result) do boxes[i] = held.box(state) end
  op:finish(boxes)
end

local function step(op)
  local now = op.broker.timeline.now
  if op.wakes_at and now < op.wakes_at then return end
  if (not op.has_begun or op.wakes_at) and not attempt(op) then return end
  op.has_begun = true
  local result, code, words = op.claim()
  if result then return got(op, result) end
  op.reason = words
  for _, state in ipairs(op.asks_back and op.resource:locks() or {}) do state:revoke() end
  if code ~= "busy" then return refuse(op, code, words) end
  if op.is_single then return op:fail("busy", words) end
  op.waits_since = op.waits_since or now
end

-- ---- several at once ------------------------------------------------------------------------------------------------

local function holds_one(op, resource)
  for state in pairs(op.session.locks) do
    if state.resource == resource then return true end
  end
  return false
end

-- Clients that want several wait at the gate for each other, and keep what they have while they wait for more.
local function claim_several(resource, op)
  if not op.taken and holds_one(op, resource) then
    return nil, "deadlock", ('this connection holds a lock of "%s" already'):format(resource.name)
  end
  op.taken = op.taken or {}
  resource.gatherer = resource.gatherer or op
  if resource.gatherer ~= op then return nil, "busy", "others take several" end
  local size = resource:size()
  if size == 0 then return nil, "not_found", ('there is no semaphore "%s"'):format(resource.name) end
  if size < op.count then
    return nil, "limit", ('%d of "%s" are wanted at once, and there are %d'):format(op.count, resource.name, size)
  end
  while #op.taken < op.count do
    local state, code, words = resource:claim(op)
    if not state then return nil, code, words end
    table.insert(op.taken, state)
  end
  for _, state in ipairs(op.taken) do
    local code, words = state:trouble()
    if code == "lost" then return nil, code, words end
  end
  return op.taken
end

local function end_several(resource, op)
  if resource.gatherer == op then resource.gatherer = nil end
  for _, state in ipairs(op.code and op.taken or {}) do state:release() end
  op.broker.timeline:settle()
end

-- ---- a mutex that was not released ----------------------------------------------------------------------------------

-- The acquire has the mutex, and keeps it until it has settled.
local function claim_settled(resource, op)
  local now = op.broker.timeline.now
  if not op.settling then
    local settled_at = resource.settled_at
    local state, code, words = resource:claim(op)
    if not state or not op.settles or not settled_at then return state, code, words end
    op.settling, op.settled_at = state, math.min(settled_at, now + op.settles)
    op.broker.timeline:plan(op.settled_at - now, function() end) -- the time stops there, and the operation looks
  end
  if now < op.settled_at then return nil, "busy", "its last lock did not end by a release, so it settles" end
  local state = op.settling
  op.settling = nil
  return state
end

-- ---- beginning ------------------------------------------------------------------------------------------------------

--- Begins to acquire. `resource` has claim(op), size() if it has slots or permits, and ended(op) or nil. `claims`: what
-- its claim(op) reads in the operation. `how`: the options of acquire.
return function(session, resource, claims, how)
  local timeout, count = how.timeout, how.count
  local entry = { what = "acquire", kind = resource.kind, name = resource.name, words = resource:words() }
  entry.count = count
  local op = operation.new(session, entry, step)
  op.is_single, op.is_patient, op.count = timeout == 0, how.patient and timeout ~= 0, count
  op.priority, op.at_most, op.asks_back, op.resource = how.priority or 0, how.at_most, how.revoke, resource
  op.settles = how.settle
  op.deadline = timeout and timeout > 0 and session.broker.timeline.now + timeout or nil
  op.is_acquire, op.most, op.is_fenced, op.queue_type = true, claims.most, claims.is_fenced, claims.queue_type
  if count then
    op.claim = function() return claim_several(resource, op) end
  else
    op.claim = function() return claim_settled(resource, op) end
  end
  function op.on_end()
    if op.code then session:count_failure(op.code) end
    if op.settling then op.settling:release() end
    if count then end_several(resource, op) end
    if resource.ended then resource:ended(op) end
  end
  op:look()
  return op
end
