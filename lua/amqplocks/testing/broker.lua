-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The state that all connections of a world share: its time, its locks, the failures that the test has planned, and
-- the log.
local exclusive = require "amqplocks.testing.exclusive"
local permits = require "amqplocks.testing.permits"
local sides = require "amqplocks.testing.sides"
local slots = require "amqplocks.testing.slots"
local timeline = require "amqplocks.testing.timeline"

local broker = {}
broker.__index = broker

--- `moved(now)` is called when the time has moved.
function broker.new(moved)
  return setmetatable({
    timeline = timeline.new(moved), entries = {}, _tickets = 0, _permits = 0,
    _base = 0, _failures = {}, _fences = {}, _kept = {},
  }, broker)
end

--- Adds an entry to the log, and returns it.
function broker:note(session, entry)
  entry.at, entry.connection = self.timeline.now, session:name()
  table.insert(self.entries, entry)
  return entry
end

--- Returns the ticket of another lock.
function broker:ticket()
  self._tickets = self._tickets + 1
  return ("%016x"):format(self._tickets)
end

--- Returns the id of another permit.
function broker:permit()
  self._permits = self._permits + 1
  return ("%016x"):format(self._permits)
end

--- Plans that an operation fails.
function broker:plan_failure(code) table.insert(self._failures, code) end

--- Returns the code with which the next operation fails; nil: it does not.
function broker:next_failure() return table.remove(self._failures, 1) end

--- Returns a number that is larger than each before it.
function broker:draw(kind, name)
  local key = kind .. " " .. name
  self._fences[key] = (self._fences[key] or self._base) + 1
  self._base = math.max(self._base, self._fences[key])
  return self._fences[key]
end

--- Forgets what was drawn. The next numbers are larger nevertheless.
function broker:forget_fence(kind, name) self._fences[kind .. " " .. name] = nil end

-- Returns a method that makes one thing for each name.
local function kept(make)
  local key = {}
  return function(self, name)
    self._kept[key] = self._kept[key] or {}
    self._kept[key][name] = self._kept[key][name] or make(name)
    return self._kept[key][name]
  end
end

broker.mutex = kept(function(name) return exclusive.new(name, "mutex") end)
broker.fast_mutex = kept(function(name) return exclusive.new(name, "fast_mutex") end)
broker.slots = kept(slots.new)
broker.token_semaphore = kept(permits.new)
broker.sides = kept(sides.new)

return broker
