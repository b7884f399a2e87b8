-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The administration of a persistent semaphore. Every change is made under the semaphore's administration mutex; a
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
}

---@class amqplocks.AdminOptions
---@field queue_type? "classic"|"quorum" of slots that are created ("classic")
---@field overshoot? integer strays deleted in this many places past the last slot (0)
---@field timeout? number seconds for the whole action, waiting for another administrator included (30)
---@field wait? number seconds to wait, after a removal or in revoke, for the holders (0: do not wait)
---@field revoke? boolean after a removal, and in wait_released: ask the holders to let go (false)
---@field ascending? boolean delete from the lowest slot upwards (false; "Swiss Cheese Semaphores")

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

--- "Creating the Semaphore".
---@param slots integer at least 1
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots, string? message, string? code "exists", "conflict", "timeout", "refused", "lost", …
function Admin:create(slots, opts) return administer(self, "create", opts, options.slots(slots, 1, "create")) end

--- "Adding Slots".
---@param slots integer how many more, at least 1
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots the new number, string? message, string? code "not_found", "conflict", …
function Admin:add(slots, opts) return administer(self, "add", opts, options.slots(slots, 1, "add")) end

--- "Removing Slots", down to none. Who holds them keeps them: with `revoke = true` the holders are asked to let go,
-- once, or with `wait` again and again until they have. The slots are removed even if that ends with "timeout",
-- "blocked" (an alarm: somebody could not be asked) or "refused" (no permission to publish). So for resize and destroy.
--
--     assert(admin:remove(2, { revoke = true, wait = 60 }))
---@param slots integer how many fewer, at least 1
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots the new number, string? message, string? code "not_found", "conflict", "squatted", …
function Admin:remove(slots, opts) return administer(self, "remove", opts, options.slots(slots, 1, "remove")) end

--- Makes it this many slots, whatever there was: creates, adds, removes, fills gaps, clears strays.
---@param slots integer 0 or more
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots, string? message, string? code
function Admin:resize(slots, opts) return administer(self, "resize", opts, options.slots(slots, 0, "resize")) end

--- "Destroying the Semaphore", strays included.
---@param opts? amqplocks.AdminOptions
---@return true|nil, string? message, string? code "not_found", …
function Admin:destroy(opts) return administer(self, "destroy", opts) end

--- Declares what is missing between the first slot and the last, and makes up for tokens that the doorbell has lost. A
-- doorbell that version 0.1.0 made as a quorum queue is replaced while no slot is held.
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots, string? message, string? code "not_found", "busy" (the slots are in order, but the
---  doorbell is a quorum queue, and a slot is held or a client waits: repair again when none is), …
function Admin:repair(opts) return administer(self, "repair", opts) end

--- "Determining the Maximum Number of Slots".
---@param opts? amqplocks.AdminOptions
---@return integer|nil slots 0 if there is no semaphore, string? message, string? code "conflict" (one is missing), …
function Admin:slots(opts) return administer(self, "slots", opts) end

--- Every slot up to the last that exists or is held: { { exists = true, held = false }, … }
---@param opts? amqplocks.AdminOptions
---@return { exists: boolean, held: boolean }[]|nil, string? message, string? code
function Admin:status(opts) return administer(self, "status", opts) end

--- "Waiting on Lock Holders": waits until none of these slots is held. With `revoke = true` every look asks the holders
-- to let go.
---@param slots integer[]
---@param opts? amqplocks.AdminOptions
---@return true|nil, string? message, string? code "timeout" (the message names who is still held), …
function Admin:wait_released(slots, opts)
  slots = options.argument(slots, checks.list, "slots", "wait_released")
  for _, slot in ipairs(slots) do
    options.argument(slot, checks.whole(1, core.slots_max), "a slot", "wait_released")
  end
  if opts ~= nil then opts = options.check(opts, schema, "wait_released") end
  if #slots == 0 then return true end
  return begin(self, "wait_released", self.name, options.merge(self._options, opts), slots)
end

--- Asks whoever holds a slot to let go; its lock:revoked() is then true. Nothing is taken away, and nobody has to obey.
-- Without `wait` it asks once. With `wait`, of this call or of conn:admin, it asks again and again until the slot is
-- not held, for so many seconds. On a slot that exists, whoever takes it meanwhile is asked as well: to free one for
-- good, remove it with `revoke`. A slot that was removed, and is still held, can be revoked too.
--
--     local asked, err, code = admin:revoke(3)     -- true: somebody was asked. code "not_held": nobody holds it
--     local free, err, code = admin:revoke(3, { wait = 60 })
---@param slot integer
---@param opts? amqplocks.AdminOptions
---@return true|nil, string? message, string? code without `wait`: "not_held", "blocked" (held, and an alarm keeps the
--- holder from being asked), "unavailable"; with it "timeout"; "refused" (no permission to publish), "unreachable", …
function Admin:revoke(slot, opts)
  options.argument(slot, checks.whole(1, core.slots_max), "the slot", "revoke")
  if opts ~= nil then opts = options.check(opts, schema, "revoke") end
  return begin(self, "revoke", self.name, options.merge(self._options, opts), slot)
end

methods.check(Admin, "admin")

local admin = {}

function admin.new(connection, name, opts)
  opts = options.check(opts or {}, schema, "admin")
  return setmetatable({ name = name, _connection = connection, _options = options.merge(opts) }, metatable)
end

return admin
