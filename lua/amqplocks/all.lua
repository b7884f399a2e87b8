-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Several locks as one: all are acquired, or none. All clients acquire them in one order, whatever order they name
-- them in, so no two clients wait for each other.
local acquiring = require "amqplocks.acquiring"
local await = require "amqplocks.waiting.await"
local core = require "amqplocks.core"
local guard = require "amqplocks.waiting.guard"
local locks = require "amqplocks.locks"
local methods = require "amqplocks.methods"
local options = require "amqplocks.options"
local pcall = require("amqplocks.compat.pcall").pcall
local release = require "amqplocks.waiting.release"
local scope = require "amqplocks.scope"

local LEAST = 0.001 -- seconds: what the last locks are given when the time is over, so that the code is "timeout"

---@alias amqplocks.Lockable amqplocks.Mutex|amqplocks.FastMutex|amqplocks.Semaphore|amqplocks.TokenSemaphore
---| amqplocks.Side

---@class amqplocks.All
local All = {}
local metatable = { __index = All, __name = "amqplocks.all" }

local function words(object) return ('%s "%s"'):format(object._kind, object.name) end

function metatable.__tostring(self)
  local list = {}
  for i, object in ipairs(self._objects) do list[i] = words(object) end
  return "amqplocks.all (" .. table.concat(list, ", ") .. ")"
end

-- ---- the order ------------------------------------------------------------------------------------------------------

-- Locks on connections to two clusters are told apart by the names of the clusters, which a broker tells when a
-- connection is opened.
local function open(self)
  local first, needs_names = self._objects[1]._connection, false
  for _, object in ipairs(self._objects) do needs_names = needs_names or object._connection ~= first end
  for _, object in ipairs(needs_names and self._objects or {}) do
    local connection = object._connection
    if connection._session:place() == "" then
      local opened, message, code = await(connection._driver, nil, connection._session.open, connection._session)
      if not opened then return nil, message, code end
    end
  end
  return true
end

local function place_of(object)
  local cluster, vhost = object._connection._session:place()
  return { cluster, vhost, core.lock_order(object._kind, object.name) }
end

local function compare(a, b)
  for i = 1, 3 do
    if a[i] ~= b[i] then return core.compare(a[i], b[i]) end
  end
  return 0
end

-- Returns the numbers of the objects, in the order in which they are to be acquired.
local function order(self)
  local opened, message, code = open(self)
  if not opened then return nil, message, code end
  local places, numbers = {}, {}
  for i, object in ipairs(self._objects) do places[i], numbers[i] = place_of(object), i end
  table.sort(numbers, function(a, b) return compare(places[a], places[b]) < 0 end)
  for i = 2, #numbers do
    if compare(places[numbers[i - 1]], places[numbers[i]]) == 0 then
      local one, other = self._objects[numbers[i - 1]], self._objects[numbers[i]]
      return nil, ("deadlock: %s and %s are one lock"):format(words(one), words(other)), "deadlock"
    end
  end
  return numbers
end

-- ---- acquiring ------------------------------------------------------------------------------------------------------

-- The options for the next lock: what is left of the time.
local function what_is_left(opts, now, begun)
  local rest = options.merge(opts)
  if opts.timeout and opts.timeout > 0 then rest.timeout = math.max(LEAST, opts.timeout - (now() - begun)) end
  if opts.on_wait then rest.on_wait = function(_, reason) opts.on_wait(now() - begun, reason) end end
  return rest
end

local function acquire_each(taken, self, numbers, opts)
  local now = self._objects[1]._connection._driver.clock.now
  local begun = now()
  for i, number in ipairs(numbers) do
    local object = self._objects[number]
    local one, message, code = acquiring.take(object, object._method, what_is_left(opts, now, begun))
    if not one then return nil, message, code end
    taken[i] = one
    one:_withhold()
  end
  local are_held, message, code = locks.hand_over(taken) -- one may be lost while another one was waited for
  if not are_held then return nil, message, code end
  local list = {}
  for i, number in ipairs(numbers) do list[number] = taken[i] end
  return locks.new(list, taken)
end

-- However it ends without the locks, none of them stays held.
local function acquire(self, opts)
  local numbers, message, code = order(self)
  if not numbers then return nil, message, code end
  local taken = {}
  local fine, result
  fine, result, message, code = pcall(guard.unless_closed, release.close, acquire_each, taken, self, numbers, opts)
  if fine and result then return result end
  release.close(taken)
  if fine then return nil, message, code end
  error(result, 0)
end

local NONE, ONCE = {}, { timeout = 0 }

local function acquire_with(self, _, opts, where)
  if opts ~= nil then opts = options.check(opts, acquiring.schema, where) end
  return acquire(self, opts or NONE)
end

--- Takes all locks, without waiting for one.
---@param opts? {} there are none: any option raises an error
---@return amqplocks.Locks|nil, string? message, amqplocks.Code? code "deadlock" (two of them are one lock), and those
---  of the lock that was not acquired; none of the others stays held
function All:try_acquire(opts)
  if opts ~= nil then options.check(opts, NONE, "try_acquire") end
  return acquire(self, ONCE)
end

--- Takes all locks, one after the other, and waits for each. `timeout` is the time for all of them, and the other
-- options are those of each. While it waits for one it holds those before.
---@param opts? amqplocks.AcquireOptions
---@return amqplocks.Locks|nil, string? message, amqplocks.Code? code "timeout", "lost" (one, while another one was
---  waited for), and those of try_acquire but "busy"
function All:acquire(opts) return acquire_with(self, nil, opts, "acquire") end

--- Calls fn(locks, …) while holding all of them, and returns true and then its results; see semaphore:with.
---@overload fun(self: amqplocks.All, opts: amqplocks.AcquireOptions, fn: amqplocks.Work, ...): true?, ...any
---@overload fun(self: amqplocks.All, fn: amqplocks.Work, ...): true?, ...any
---@param ... any an optional table of acquire's options, the function, and further arguments for it
---@return true|nil had, any ... after true the results of fn; after nil a message and an amqplocks.Code: "lost", or one
---  of acquire
function All:with(...) return scope.with("with", acquiring.schema, acquire_with, self, nil, ...) end

methods.check(All, "all", methods.ONE_SIDED)

local all = {}

local function check(object, number)
  local is_lock = type(object) == "table" and type(object._connection) == "table" and object._core
  if is_lock and object._kind then return end
  local hint = is_lock and object._class and "; use its reader() or writer()" or ""
  error(("all: lock %d must be a mutex or another kind of lock, not %s%s"):format(number, tostring(object), hint), 0)
end

--- The locks of a list, as one.
function all.new(list)
  if type(list) ~= "table" then error("all: a list of locks must be given, not " .. tostring(list), 0) end
  local objects, count = {}, 0
  for i, object in ipairs(list) do
    check(object, i)
    objects[i] = object
  end
  for _ in pairs(list) do count = count + 1 end
  if #objects == 0 or count ~= #objects then
    error("all: a list of locks must be given, without holes or other keys, of at least one", 0)
  end
  return setmetatable({ _objects = objects }, metatable)
end

return all
