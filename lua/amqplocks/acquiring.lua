-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Acquiring a lock of any kind: the same options, the same waiting, the same lock object, the same `with`. `self` is
-- an object with a `_connection` and a `_core`. `method` is the method of the core object that begins the operation,
-- and the name of the public method.
local await = require "amqplocks.waiting.await"
local core = require "amqplocks.core"
local guard = require "amqplocks.waiting.guard"
local lock = require "amqplocks.lock"
local locks = require "amqplocks.locks"
local news = require "amqplocks.waiting.notify"
local options = require "amqplocks.options"
local pcall = require("amqplocks.compat.pcall").pcall
local release = require "amqplocks.waiting.release"
local scope = require "amqplocks.scope"

local checks = options.checks

local schema = {
  timeout = checks.seconds,
  fair = checks.boolean,
  priority = checks.whole(-32768, 32767),
  poll = checks.timeout,
  patient = checks.boolean,
  on_wait = checks.callable,
  at_most = checks.timeout,
}

---@class amqplocks.AcquireOptions
---@field timeout? number seconds; none: until it is acquired or the broker is lost; 0: try once, do not wait
---@field fair? boolean do not overtake clients that already wait (false)
---@field priority? integer -32768 to 32767; waiters with a higher priority are served first (0)
---@field poll? number seconds between rechecks, which find locks released without a notice (5)
---@field patient? boolean the codes "unreachable", "unavailable" and "blocked" do not end the acquire: it begins again,
---  until `timeout` has passed (false)
---@field on_wait? fun(seconds: number, reason: string) called when waiting starts and about every second, with the
---  seconds waited and the reason, such as "3 of 3 held"
---@field at_most? number seconds after the acquire at which the connection releases the lock, also if the program hangs
---  (in an event loop, if the loop runs); it is then "lost", and the message says "expired". In `conn:all` each lock
---  has its own time (none)

---@class amqplocks.SlotsOptions: amqplocks.AcquireOptions
---@field count? integer acquire so many slots or permits, or none of them; above 1 the result is amqplocks.Locks (1)

---@class amqplocks.SettlingOptions: amqplocks.AcquireOptions
---@field settle? number seconds for which the acquire waits if the last lock that had this option did not end by a
---  release: its holder may not know yet; not of a persistent mutex (0)

---@class amqplocks.MutexAcquireOptions: amqplocks.SettlingOptions
---@field revoke? boolean ask the holder to release, as mutex:revoke does; not of a persistent mutex (false)

local NONE = {}
local ONCE = { timeout = 0 }

-- Passes locks to the caller of acquire, as `result`, or gives them back: of several, one may be lost, and the others
-- be held. A call that is interrupted, and one that the broker did not answer, does not wait for that.
local function pass(list, result)
  local fine, are_his, message, code = pcall(guard.unless_closed, release.leave, locks.hand_over, list)
  if fine and are_his then return result end
  local may_wait = fine and code ~= "unreachable"
  release[may_wait and "close" or "leave"](list)
  if not fine then error(are_his, 0) end
  return nil, message, code
end

local function hand_over(connection, core_lock)
  local held = lock.new(connection, core_lock)
  if lock.hand_over_at_once(held) then return held end
  return pass({ held }, held)
end

local function hand_over_all(connection, core_locks)
  local list, slots = {}, {}
  for i, core_lock in ipairs(core_locks) do
    list[i] = lock.new(connection, core_lock)
    slots[i] = list[i].slot
  end
  return pass(list, locks.new(list, list, slots[1] and slots))
end

local function drop(result, count)
  if not count then return result:drop() end
  for _, core_lock in ipairs(result) do core_lock:drop() end
end

local function acquire_anew(self, method, opts)
  local core_object, connection, driver = self._core, self._connection, self._connection._driver
  local count = opts.count ~= 1 and opts.count or nil
  local settled = not opts.on_wait and news.settled(driver) or nil
  local core_lock, message, code = await(driver, opts.on_wait, core_object[method], core_object, opts, settled)
  if not core_lock then return nil, message, code end
  local fine, held
  fine, held, message, code = pcall(count and hand_over_all or hand_over, connection, core_lock)
  if fine and held then return held end
  drop(core_lock, count) -- otherwise it would be held until it is collected
  if driver.mind then pcall(driver.mind) end
  if fine then return nil, message, code end
  error(held, 0)
end

local function tell(_, driver) driver.events:tell(driver.log) end

-- The coroutine is closed while a listener yields.
local function take_back(got)
  if got then lock.close(got) end
end

-- The same, and tells the listeners of the connection.
local function acquire_told(self, method, opts)
  local driver = self._connection._driver
  local events, now = driver.events, driver.clock.now
  local begun = now()
  local is_in_line
  local function on_wait(...)
    if not is_in_line then events:post{ what = "waiting", kind = self._kind or method, name = self.name } end
    is_in_line = true
    if opts.on_wait then opts.on_wait(...) end
  end
  local function failed(code)
    events:post{ what = "failed", kind = self._kind or method, name = self.name, code = code, in_line = is_in_line,
      waited = now() - begun }
  end
  local fine, got, message, code = pcall(guard.unless_closed, function() failed "abandoned" end, acquire_anew, self,
    method, options.merge(opts, { on_wait = on_wait }))
  if fine and got then
    for _, one in ipairs(got.locks or { got }) do
      events:acquired(one, { waited = now() - begun, in_line = is_in_line })
    end
  else
    failed(fine and code or "abandoned")
  end
  guard.unless_closed(take_back, tell, fine and got or nil, driver)
  if not fine then error(got, 0) end
  return got, message, code
end

local function acquire_fresh(self, method, opts)
  if self._connection._driver.listened then return acquire_told(self, method, opts) end
  return acquire_anew(self, method, opts)
end

-- `_entering` is set for a reentrant mutex.
local function acquire(self, method, opts)
  if self._entering then return self._entering(self, acquire_fresh, method, opts) end
  return acquire_fresh(self, method, opts)
end

local acquiring = {}

--- The options of acquire, for options.check(). An object whose acquire has more has them in `_schema`.
acquiring.schema = schema
acquiring.slots_schema = options.merge(schema, { count = checks.whole(1, core.slots_max) })
acquiring.settling_schema = options.merge(schema, { settle = checks.timeout })
acquiring.mutex_schema = options.merge(acquiring.settling_schema, { revoke = checks.boolean })

local function schema_of(self) return self._schema or schema end

--- Acquires as acquiring.acquire(), with options that were checked.
acquiring.take = acquire

--- Options of locks that are held by an exclusive queue.
acquiring.resource_schema = {
  max_attempts = checks.whole(1, 1000),
  probe = checks.one_of("auto", "publish", "passive"),
  fenced = checks.boolean,
}

---@alias amqplocks.Work fun(lock: amqplocks.Lock, ...: any): any, any, any, any

--- Acquires without waiting.
---@param self table
---@param method string
---@param opts? {} there are none: any option raises an error
---@param where? string the name of the public method, for errors; nil: "try_" and `method`
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code
function acquiring.try(self, method, opts, where)
  if opts ~= nil then options.check(opts, NONE, where or "try_" .. method) end
  return acquire(self, method, ONCE)
end

--- Acquires, and waits for that. `where` is the name of the public method, for errors; nil: `method`.
---@param self table
---@param method string
---@param opts? amqplocks.AcquireOptions
---@param where? string
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code
function acquiring.acquire(self, method, opts, where)
  if opts ~= nil then opts = options.check(opts, schema_of(self), where or method) end
  return acquire(self, method, opts or NONE)
end

--- Acquires, calls the function and releases. `where` is the name of the public method, for errors.
---@param self table
---@param method string
---@param where string
---@param ... any an optional table of options, the function, and further arguments for it
---@return true|nil had, any ... as scope.with
function acquiring.with(self, method, where, ...)
  return scope.with(where, schema_of(self), acquiring.acquire, self, method, ...)
end

return acquiring
