-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The administration of a persistent semaphore. Every change is made under the semaphore's administration mutex. A
-- second administrator waits for the first, within its `timeout`.
local await = require "amqplocks.waiting.await"
local core = require "amqplocks.core"
local methods = require "amqplocks.methods"
local options = require "amqplocks.options"

local checks = options.checks

local schema = {
  queue_type = checks.one_of("classic", "quorum"),
  overshoot = checks.whole(0, core.slots_max),
  timeout = checks.timeout,
  wait = checks.seconds,
  revoke = checks.boolean,
  ascending = checks.boolean,
  fenced = checks.boolean,
  fence = checks.boolean,
}

---@class amqplocks.AdminOptions
---@field queue_type? "classic"|"quorum" of slots that are created ("classic")
---@field overshoot? integer delete strays in this many places past the last slot (0)
---@field timeout? number seconds for the whole action, including the wait for another administrator (30)
---@field wait? number seconds to wait, after a removal or in revoke, for the holders (0: do not wait)
---@field revoke? boolean after a removal, and in wait_released: ask the holders to release (false)
---@field fenced? boolean create, resize and repair: first see that the fence, from which fencing tokens are drawn, is
---  there and works (false)
---@field fence? boolean destroy, in its own options only: delete the fence, too (false)
---@field ascending? boolean delete from the lowest slot upwards (false; docs/specification.md, 8.3)

---@class amqplocks.Admin
---@field name string
local Admin = {}
local metatable = { __index = Admin, __name = "amqplocks.admin" }

function metatable.__tostring(self) return ('amqplocks.admin ("%s")'):format(self.name) end

local function begin(self, method, ...)
  local driver, session = self._connection._driver, self._connection._session
  return await(driver, nil, session[method], session, ...)
end

local function administer(self, action, opts, slots)
  if opts ~= nil then opts = options.check(opts, schema, action) end
  return begin(self, "administer", action, self.name, options.merge(self._options, opts), slots)
end

--- Creates the semaphore (docs/specification.md, 8.2). With `fenced = true` it also makes the fence, unless there is
-- one, before the first slot: then clients of the semaphore need no permission to make it. The same holds for resize.
---@param slots integer at least 1
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots, string? message, amqplocks.Code? code "exists", "conflict", "timeout", "refused", "lost",
---  …;
---  with `fenced` also "blocked" (an alarm, and there is no fence yet), "unavailable", and nothing is changed
function Admin:create(slots, opts) return administer(self, "create", opts, options.slots(slots, 1, "create")) end

--- Adds slots (docs/specification.md, 8.2).
---@param slots integer how many more, at least 1
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots, string? message, amqplocks.Code? code the new number; "not_found", "conflict", …
function Admin:add(slots, opts) return administer(self, "add", opts, options.slots(slots, 1, "add")) end

--- Removes slots, down to none (docs/specification.md, 8.3). Holders keep their locks. With `revoke = true` they are
-- asked once to release; with `wait`, too, they are asked until they have released. The slots are removed even if that
-- ends with "timeout", "blocked" (a holder could not be asked because of an alarm) or "refused" (no permission to
-- publish). The same holds for resize and destroy.
--
--     assert(admin:remove(2, { revoke = true, wait = 60 }))
---@param slots integer how many fewer, at least 1
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots, string? message, amqplocks.Code? code the new number; "not_found", "conflict",
---  "squatted", …
function Admin:remove(slots, opts) return administer(self, "remove", opts, options.slots(slots, 1, "remove")) end

--- Sets the number of slots, whatever exists: creates, adds, removes, fills gaps, deletes strays.
---@param slots integer 0 or more
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots, string? message, amqplocks.Code? code
function Admin:resize(slots, opts) return administer(self, "resize", opts, options.slots(slots, 0, "resize")) end

--- Deletes the semaphore, including strays (docs/specification.md, 8.3). The fence, from which fencing tokens are
-- drawn, is kept unless `fence = true`: a semaphore of this name that is created later goes on with larger tokens.
-- Without the fence its tokens begin with the time in microseconds, and are larger only if the clocks of all machines
-- agree; see mutex:forget_fence.
---@param opts? amqplocks.AdminOptions
---@return true|nil, string? message, amqplocks.Code? code "not_found" (a fence is deleted all the same), …
function Admin:destroy(opts)
  local done, message, code = administer(self, "destroy", opts)
  if not (opts and opts.fence) or not done and code ~= "not_found" then return done, message, code end
  local forgotten, problem, why = begin(self, "forget_fence", "semaphore", self.name)
  if not forgotten then return nil, problem, why end
  return done, message, code
end

--- Declares the slots that are missing between the first and the last. Replaces tokens that the doorbell (the queue
-- whose messages, the tokens, wake waiters) has lost. With `fenced = true` it
-- first makes the fence if there is none, and makes it anew if it is damaged or has lost its message, also where a
-- policy has removed it.
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots, string? message, amqplocks.Code? code "not_found", …
function Admin:repair(opts) return administer(self, "repair", opts) end

--- Counts the slots (docs/specification.md, 2.2).
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots, string? message, amqplocks.Code? code 0 if there is no semaphore; "conflict" (one is
---  missing), …
function Admin:slots(opts) return administer(self, "slots", opts) end

--- Returns every slot up to the last that exists or is held: { { exists = true, held = false }, … }
---@param opts? amqplocks.AdminOptions
---@return { exists: boolean, held: boolean }[]|nil, string? message, amqplocks.Code? code
function Admin:status(opts) return administer(self, "status", opts) end

--- Waits until none of these slots is held (docs/specification.md, 8.5). With `revoke = true` every check asks
-- the holders to release.
---@param slots integer[]
---@param opts? amqplocks.AdminOptions
---@return true|nil, string? message, amqplocks.Code? code "timeout" (the message names the slots still held), …
function Admin:wait_released(slots, opts)
  slots = options.argument(slots, checks.list, "slots", "wait_released")
  for _, slot in ipairs(slots) do
    options.argument(slot, checks.whole(1, core.slots_max), "a slot", "wait_released")
  end
  if opts ~= nil then opts = options.check(opts, schema, "wait_released") end
  if #slots == 0 then return true end
  return begin(self, "wait_released", self.name, options.merge(self._options, opts), slots)
end

--- Asks the holder of a slot to release; its lock:revoked() is then true. The holder keeps the lock until it releases,
-- and need not release. Without `wait` the holder is asked once. With `wait`, of this call or of conn:admin, it is
-- asked again until the slot is not held, for `wait` seconds. A client that takes an existing slot meanwhile is asked
-- as well: to free a slot for good, remove it with `revoke`. A slot that was removed and is still held can be revoked,
-- too.
--
--     local asked, err, code = admin:revoke(3)     -- true: a holder was asked. code "not_held": there is none
--     local free, err, code = admin:revoke(3, { wait = 60 })
---@param slot integer
---@param opts? amqplocks.AdminOptions
---@return true|nil, string? message, amqplocks.Code? code without `wait`: "not_held", "blocked" (held, and an alarm
---  keeps the holder from being asked), "unavailable"; with it "timeout"; "refused" (no permission to publish),
---  "unreachable", …
function Admin:revoke(slot, opts)
  options.argument(slot, checks.whole(1, core.slots_max), "the slot", "revoke")
  if opts ~= nil then opts = options.check(opts, schema, "revoke") end
  return begin(self, "revoke", self.name, options.merge(self._options, opts), slot)
end

methods.check(Admin, "admin", methods.ADMIN)

local admin = {}

local revoke_schema = { timeout = checks.timeout, wait = checks.seconds }

---@class amqplocks.RevokeOptions
---@field wait? number ask again and again, for so many seconds, until the lock is not held (0: ask once)
---@field timeout? number seconds for asking once, or until there is a connection (30)

--- Asks the holder of a lock that is no slot to release. `where` is the name of the public method, for errors.
---@param connection amqplocks.Connection
---@param kind "mutex"|"readers"|"writer"
---@param name string
---@param opts? amqplocks.RevokeOptions
---@param where string
---@return true|nil, string? message, amqplocks.Code? code
function admin.revoke(connection, kind, name, opts, where)
  if opts ~= nil then opts = options.check(opts, revoke_schema, where) end
  local session = connection._session
  return await(connection._driver, nil, session.revoke_lock, session, kind, name, opts)
end

function admin.new(connection, name, opts)
  opts = options.check(opts or {}, schema, "admin")
  return setmetatable({ name = name, _connection = connection, _options = options.merge(opts) }, metatable)
end

return admin
