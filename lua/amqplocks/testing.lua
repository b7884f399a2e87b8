-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A broker in the program, for the tests of programs that use locks. Nothing sleeps: a wait moves the world's clock.
--
--     local world = require("amqplocks.testing").new()
--     local conn, rival = world:connect(), world:connect{ name = "rival" }
--     local lock = assert(rival:mutex("report"):try_acquire())
--     world:after(2, function() lock:release() end)
--     assert(conn:mutex("report"):acquire{ timeout = 5 })      -- at once; world.now is 2
--
-- It tests what a program does with the locks and codes that it gets. It does not test that locks exclude each other.
-- Limits: one thread; connections as with driver = "native"; no races; no permissions.
local broker = require "amqplocks.testing.broker"
local connection = require "amqplocks.connection"
local core = require "amqplocks.core"
local losses = require "amqplocks.waiting.losses"
local methods = require "amqplocks.methods"
local options = require "amqplocks.options"
local session = require "amqplocks.testing.session"

local checks = options.checks

---@class amqplocks.WorldEntry
---@field at number seconds since the world began
---@field connection string its name
---@field what string "connect", "acquire", "verify", "release", "downgrade", "close", or an action of an administrator
---@field kind string|nil of the lock, as lock.kind
---@field name string|nil of the lock
---@field count integer|nil of an acquire of several
---@field result string|nil "ok", or the code; nil: it has not ended

---@class amqplocks.World
---@field now number seconds since the world began
local World = {}

local metatable = { __index = World, __name = "amqplocks.testing.world" }

function metatable.__tostring(self) return ("amqplocks.testing.world (at %g s)"):format(self.now) end

-- ---- connections ----------------------------------------------------------------------------------------------------

local schema = { name = checks.string, log = checks.callable, on_lost = checks.callable }

local function driver_of(its)
  local timeline = its.broker.timeline
  local function now() return timeline.now end
  return {
    wait = function(operation, pause) timeline:await(operation, pause) end,
    news = function() return its:news() end,
    clock = { now = now, wall = now },
    losses = losses.new(function() return its:alerts() end),
  }
end

--- Connects to the world, as amqplocks.connect does to a broker.
---@param opts? { name?: string, log?: fun(level: string, message: string), on_lost?: amqplocks.OnLost }
---@return amqplocks.Connection|nil, string? message, amqplocks.Code? code as world:fail() has planned it
function World:connect(opts)
  opts = options.check(opts or {}, schema, "connect")
  self._connected = self._connected + 1
  local its = session.new(self._broker, opts.name or ("client %d"):format(self._connected))
  local driver = driver_of(its)
  driver.log = opts.log
  driver.losses:on(opts.on_lost)
  local conn, message, code = connection.open(its, driver)
  if conn then self._sessions[conn] = its end
  return conn, message, code
end

-- ---- semaphores -----------------------------------------------------------------------------------------------------

--- Sets the number of slots of a semaphore, as admin:resize does.
---@param name string
---@param count integer 0 or more
---@return nil
function World:resize(name, count)
  self._broker:slots(options.name(name, "resize")).count = options.slots(count, 0, "resize")
  self._broker.timeline:settle()
end

--- Sets the number of permits of a token semaphore, as token_semaphore:resize does.
---@param name string
---@param count integer 0 or more; not fewer than are held
---@param queue_type? "classic"|"quorum" ("classic")
---@return nil
function World:permits(name, count, queue_type)
  options.argument(count, checks.whole(0, core.slots_max), "the number of permits", "permits")
  if queue_type ~= nil then
    options.argument(queue_type, checks.one_of("classic", "quorum"), "the queue type", "permits")
  end
  local resource = self._broker:token_semaphore(options.name(name, "permits"))
  if resource.count == 0 then resource.is_quorum = queue_type == "quorum" end
  resource:grow(self._broker, count)
  if not resource:shrink(count) then error("permits: more than that are held", 0) end
  self._broker.timeline:settle()
end

-- ---- time -----------------------------------------------------------------------------------------------------------

--- Plans a call of fn() in so many seconds of the world's clock: during an advance(), or during a call that waits.
---@param seconds number
---@param fn fun()
---@return nil
function World:after(seconds, fn)
  options.argument(seconds, checks.seconds, "the time", "after")
  options.argument(fn, checks.callable, "the second argument", "after")
  self._broker.timeline:plan(seconds, fn)
end

--- Moves the clock, through all that is planned.
---@param seconds number
---@return nil
function World:advance(seconds)
  options.argument(seconds, checks.seconds, "the time", "advance")
  self._broker.timeline:pass_to(self.now + seconds)
end

-- ---- bad days -------------------------------------------------------------------------------------------------------

-- The state of a lock object; of an entry of a reentrant mutex: that of its lock.
local function state_of(lock, where)
  local one = type(lock) == "table" and lock._hold and lock._hold.lock or lock
  local state = type(one) == "table" and type(one._core) == "table" and one._core.state
  if not state then error(where .. ": a lock of this world must be given, not " .. tostring(lock), 0) end
  return state
end

--- Takes a lock from its holder, as a broker does that was restarted; or, of a connection, all its locks.
---@param lock amqplocks.Lock|amqplocks.Connection
---@param why? string for the message
---@return nil
function World:lose(lock, why)
  if why ~= nil then options.argument(why, checks.string, "the reason", "lose") end
  why = why or "world:lose() wants it"
  local its = self._sessions[lock]
  if its then its:cut(why) else state_of(lock, "lose"):lose(why) end
end

--- The broker falls silent: held() returns false and "suspect" until lock:verify() has asked, or the lock is lost.
---@param lock amqplocks.Lock
---@return nil
function World:suspect(lock) -- luacheck: no self
  state_of(lock, "suspect").is_suspect = true
end

--- Asks the holder to release, as admin:revoke does: lock:revoked() returns true.
---@param lock amqplocks.Lock
---@return nil
function World:revoke(lock) -- luacheck: no self
  local state = state_of(lock, "revoke")
  if state.kind == "permit" or state.kind == "fast_mutex" then
    error(("revoke: the holder of a %s cannot be asked to release"):format(state.kind:gsub("_", " ")), 0)
  end
  state:revoke()
end

local CODES = {}
for code in ([[timeout busy contended not_found exists lost suspect removed not_held refused auth vhost unreachable
  unavailable tls blocked conflict squatted limit protocol no_memory]]):gmatch "%S+" do
  CODES[code] = true
end

--- The next operations fail with this code: connect, acquire (each attempt of a patient one), verify, release, and what
-- administrators do. A release that fails has released nevertheless.
---@param code amqplocks.Code
---@param times? integer how many operations (1)
---@return nil
function World:fail(code, times)
  if not CODES[code] then error(("fail: %s is no code of an operation"):format(tostring(code)), 0) end
  if times ~= nil then options.argument(times, checks.whole(1, 1000000), "the number of times", "fail") end
  for _ = 1, times or 1 do self._broker:plan_failure(code) end
end

-- ---- looking back ---------------------------------------------------------------------------------------------------

--- Returns what was asked of the world, in order.
---@return amqplocks.WorldEntry[]
function World:log()
  local list = {}
  for i, entry in ipairs(self._broker.entries) do
    list[i] = {
      at = entry.at, connection = entry.connection, what = entry.what, kind = entry.kind, name = entry.name,
      count = entry.count, result = entry.result,
    }
  end
  return list
end

methods.check(World, "world")

local testing = {}

--- A world without semaphores, at 0 s.
---@return amqplocks.World
function testing.new()
  if rawget(_G, "ngx") then error("amqplocks.testing: not inside nginx: tests run in a Lua of their own", 0) end
  local self = { now = 0, _connected = 0, _sessions = setmetatable({}, { __mode = "k" }) }
  self._broker = broker.new(function(now) self.now = now end)
  return setmetatable(self, metatable)
end

return testing
