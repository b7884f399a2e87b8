-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The actions of administrators on semaphores and token semaphores, and their requests to holders. A change is made at
-- once. Then the operation may wait for holders.
local operation = require "amqplocks.testing.operation"

local administer = {}

local unpack = table.unpack or rawget(_G, "unpack")

local function begin(session, what, resource, act)
  local entry = { what = what, kind = resource.kind, name = resource.name, words = resource:words() }
  local op
  op = operation.new(session, entry, function(self)
    if self.awaits then self.awaits() end
  end)
  op:look()
  if not op.is_done and not op:is_spoilt() then act(op) end
  return op
end

-- Looks at once, and whenever something has changed, for so many seconds.
local function wait_for(op, seconds, look)
  op.awaits, op.deadline = look, op.broker.timeline.now + seconds
  op:look()
end

-- Ends the operation when `locks()` returns none. It asks the holders to release meanwhile if that is wanted.
local function await(op, opts, locks, ...)
  local results = { n = select("#", ...), ... }
  wait_for(op, opts.wait, function()
    local list = locks()
    for _, state in ipairs(opts.revoke and list or {}) do state:revoke() end
    op.reason = #list .. " are still held"
    if #list == 0 then op:finish(unpack(results, 1, results.n)) end
  end)
end

-- ---- semaphores -----------------------------------------------------------------------------------------------------

local function missing(op, resource)
  if resource.count > 0 then return false end
  op:fail("not_found", resource:words() .. " does not exist")
  return true
end

-- Sets the number of slots, and waits for the holders of those that were removed.
local function set(op, resource, opts, count, result)
  local removed = {}
  for slot = count + 1, resource.count do table.insert(removed, slot) end
  resource.count = count
  op.broker.timeline:settle()
  local function locks() return #removed > 0 and resource:locks(removed) or {} end
  if opts.revoke then
    for _, state in ipairs(locks()) do state:revoke() end
  end
  if (opts.wait or 0) > 0 then return await(op, opts, locks, result) end
  op:finish(result)
end

local slots = {}

function slots.create(op, resource, opts, count)
  if resource.count > 0 then return op:fail("exists", resource:words() .. " exists") end
  set(op, resource, opts, count, count)
end

function slots.add(op, resource, opts, count)
  if not missing(op, resource) then set(op, resource, opts, resource.count + count, resource.count + count) end
end

function slots.remove(op, resource, opts, count)
  if missing(op, resource) then return end
  local left = math.max(0, resource.count - count)
  set(op, resource, opts, left, left)
end

function slots.resize(op, resource, opts, count) set(op, resource, opts, count, count) end

function slots.destroy(op, resource, opts)
  if not missing(op, resource) then set(op, resource, opts, 0, true) end
end

function slots.repair(op, resource)
  if not missing(op, resource) then op:finish(resource.count) end
end

function slots.slots(op, resource) op:finish(resource.count) end

function slots.status(op, resource) op:finish(resource:status()) end

--- session:administer(action, name, opts, slots)
function administer.slots(session, resource, action, opts, count)
  return begin(session, action, resource, function(op) slots[action](op, resource, opts, count) end)
end

--- session:wait_released(name, opts, slots)
function administer.wait_released(session, resource, opts, list)
  return begin(session, "wait_released", resource, function(op)
    local waits = { revoke = opts.revoke, wait = opts.timeout or 30 }
    await(op, waits, function() return resource:locks(list) end, true)
  end)
end

--- Asks the holders that `locks()` returns.
function administer.revoke(session, resource, opts, locks)
  return begin(session, "revoke", resource, function(op)
    if (opts.wait or 0) > 0 then return await(op, { revoke = true, wait = opts.wait }, locks, true) end
    local list = locks()
    for _, state in ipairs(list) do state:revoke() end
    if #list == 0 then return op:fail("not_held", resource:words() .. " is not held") end
    op:finish(true)
  end)
end

-- ---- token semaphores -----------------------------------------------------------------------------------------------

local function set_permits(op, resource, opts, count)
  resource:grow(op.broker, count)
  op.broker.timeline:settle()
  wait_for(op, opts.wait or 0, function()
    op.reason = ("%d permits are held"):format(#resource:locks())
    if resource:shrink(count) then return op:finish(count) end
    if (opts.wait or 0) == 0 then op:fail("busy", op.reason) end
  end)
end

local permits = {}

function permits.create(op, resource, opts, count)
  if resource.count > 0 then return op:fail("exists", resource:words() .. " exists") end
  resource.is_quorum = opts.queue_type == "quorum"
  set_permits(op, resource, opts, count)
end

function permits.resize(op, resource, opts, count)
  if resource.count == 0 then resource.is_quorum = opts.queue_type == "quorum" end
  set_permits(op, resource, opts, count)
end

function permits.add(op, resource, opts, count)
  if not missing(op, resource) then set_permits(op, resource, opts, resource.count + count) end
end

function permits.remove(op, resource, opts, count)
  if not missing(op, resource) then set_permits(op, resource, opts, math.max(0, resource.count - count)) end
end

permits.repair = slots.repair

function permits.slots(op, resource) op:finish(resource.count, #resource.free, resource.count - #resource.free) end

local function destroy(op, resource)
  resource:destroy()
  op:finish(true)
end

function permits.destroy(op, resource, opts)
  if missing(op, resource) then return end
  if (opts.wait or 0) == 0 then return destroy(op, resource) end
  wait_for(op, opts.wait, function()
    op.reason = ("%d permits are held"):format(#resource:locks())
    if #resource:locks() == 0 then destroy(op, resource) end
  end)
end

--- session:administer_tokens(action, name, opts, permits)
function administer.permits(session, resource, action, opts, count)
  return begin(session, action, resource, function(op) permits[action](op, resource, opts, count) end)
end

return administer
