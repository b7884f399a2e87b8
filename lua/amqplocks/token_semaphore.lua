-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The token semaphore: one message for every permit, in the queue `name.semaphore`. It is fast, has priorities, and
-- can be shared with other software that takes messages from that queue.
local acquiring = require "amqplocks.acquiring"
local await = require "amqplocks.waiting.await"
local core = require "amqplocks.core"
local methods = require "amqplocks.methods"
local options = require "amqplocks.options"

local checks = options.checks

local schema = {
  queue_type = checks.one_of("classic", "quorum"),
  fenced = checks.boolean,
}

local admin_schema = {
  queue_type = checks.one_of("classic", "quorum"),
  timeout = checks.timeout,
  wait = checks.seconds,
}

---@class amqplocks.TokenSemaphoreOptions
---@field queue_type? "classic"|"quorum" of its queue, which is created with it ("classic"). A permit of a quorum
--- queue has `lock.fence` and `lock.permit`
---@field fenced? boolean an acquire fails with "conflict" where a permit has no fencing token; needs "quorum" (false)

---@class amqplocks.TokenAdminOptions
---@field queue_type? "classic"|"quorum" of queues that are created (that of conn:token_semaphore, "classic")
---@field timeout? number seconds for the whole action, including the wait for another administrator (30), but for a
---  tenth of a second where permits are taken away
---@field wait? number seconds to wait, in addition, until holders release their permits (0: do not wait)

---@class amqplocks.TokenSemaphore
---@field name string
local TokenSemaphore = { _kind = "permit", _method = "acquire", _schema = acquiring.slots_schema }
local metatable = { __index = TokenSemaphore, __name = "amqplocks.token_semaphore" }

function metatable.__tostring(self) return ('amqplocks.token_semaphore ("%s")'):format(self.name) end

-- For lock clients ---------------------------------------------------------------------------------------------------

--- Takes a permit, without waiting for one.
---@param opts? {} there are none: any option raises an error
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "busy", "not_found", "refused", "unreachable",
---  "unavailable", "squatted", "conflict" (its queue is not of the `queue_type`; with `fenced`: the permit has no
---  fencing token), "limit", "closed",
---  "lost" or "suspect" (before the caller got it)
function TokenSemaphore:try_acquire(opts) return acquiring.try(self, "acquire", opts) end

--- Takes a permit, and waits for one. Waiters are served in the order of arrival, those with a higher priority first.
-- No client can overtake them and no client rechecks, so the options `fair` and `poll` have no effect.
---@param opts? amqplocks.SlotsOptions
---@return amqplocks.Lock|amqplocks.Locks|nil, string? message, amqplocks.Code? code "timeout", and those of try_acquire
---  but "busy"
function TokenSemaphore:acquire(opts) return acquiring.acquire(self, "acquire", opts) end

--- Calls fn(lock, …) while holding a permit, and returns true and then its results; see semaphore:with.
---@overload fun(self: amqplocks.TokenSemaphore, opts: amqplocks.SlotsOptions, fn: amqplocks.Work, ...): true?, ...any
---@overload fun(self: amqplocks.TokenSemaphore, fn: amqplocks.Work, ...): true?, ...any
---@param ... any an optional table of amqplocks.SlotsOptions, the function, and further arguments for it
---@return true|nil had, any ... after true the results of fn; after nil a message and an amqplocks.Code: "lost", or one
---  of acquire
function TokenSemaphore:with(...) return acquiring.with(self, "acquire", "with", ...) end

-- For administrators -------------------------------------------------------------------------------------------------

local function administer(self, action, opts, permits)
  if opts ~= nil then opts = options.check(opts, admin_schema, action) end
  local driver, session = self._connection._driver, self._connection._session
  local merged = options.merge(self._options, opts)
  return await(driver, nil, session.administer_tokens, session, action, self.name, merged, permits)
end

local function whole(permits, least, where)
  return options.argument(permits, checks.whole(least, core.slots_max), "the number of permits", where)
end

--- Creates the semaphore.
---@param permits integer at least 1
---@param opts? amqplocks.TokenAdminOptions
---@return integer|nil permits, string? message, amqplocks.Code? code "exists", "conflict" (the queue exists, made by
---  other software), "timeout", "refused", "blocked" (an alarm), "lost" (the administration mutex), "limit", …
function TokenSemaphore:create(permits, opts) return administer(self, "create", opts, whole(permits, 1, "create")) end

--- Makes more permits.
---@param permits integer how many more, at least 1
---@param opts? amqplocks.TokenAdminOptions
---@return integer|nil permits, string? message, amqplocks.Code? code the new number; "not_found", "conflict",
---  "blocked", …
function TokenSemaphore:add(permits, opts) return administer(self, "add", opts, whole(permits, 1, "add")) end

--- Removes permits: all of the number, or none. It takes permits that are free, or come free within `wait`, before all
-- waiters. Holders keep their permits. The semaphore is deleted with the last permit.
--
--     assert(images:remove(2, { wait = 60 }))
---@param permits integer how many fewer, at least 1
---@param opts? amqplocks.TokenAdminOptions
---@return integer|nil permits, string? message, amqplocks.Code? code the new number; "busy" (without `wait`),
---  "timeout", "not_found", "conflict", …
function TokenSemaphore:remove(permits, opts) return administer(self, "remove", opts, whole(permits, 1, "remove")) end

--- Sets the number of permits: creates, adds, removes. A queue that other software has made becomes a semaphore of this
-- many permits once no other client consumes from it. Its messages are replaced. A client that holds one of them by
-- basic.get is not seen.
---@param permits integer 0 or more
---@param opts? amqplocks.TokenAdminOptions
---@return integer|nil permits, string? message, amqplocks.Code? code as for add and remove
function TokenSemaphore:resize(permits, opts) return administer(self, "resize", opts, whole(permits, 0, "resize")) end

--- Returns the number of permits, how many of them are free, and how many are not: held by clients, held by an
-- administrator at work, or lost.
---@param opts? amqplocks.TokenAdminOptions
---@return integer|nil count, (integer|string)? free_or_message, (integer|amqplocks.Code)? held_or_code 0 if there is no
---  semaphore; "conflict" (permits without a count: made by other software, or the count is lost or silent), …
function TokenSemaphore:slots(opts) return administer(self, "slots", opts) end

--- Restores the number of permits. It takes all free permits and throws away the surplus: those beyond the number, and
-- those with an id that another one has. It makes missing permits anew, but only once no other client consumes: until
-- then they may be held. It waits for that for `wait` seconds. A client that holds a permit by basic.get, as some other
-- software does, is not seen: stop such software while a semaphore is repaired. With `queue_type = "quorum"` the
-- next fencing tokens of each permit are larger than all before, though its message was moved away and back.
---@param opts? amqplocks.TokenAdminOptions
---@return integer|nil permits, string? message, amqplocks.Code? code "busy" (permits are missing, and others consume;
---  without `wait`), "timeout", "not_found", "conflict", "blocked", …
function TokenSemaphore:repair(opts) return administer(self, "repair", opts) end

--- Deletes the semaphore. With `wait` it waits until all permits are back; "timeout": they were not, and nothing was
-- deleted. Without `wait` the holders' permits are lost, and the holders are notified.
---@param opts? amqplocks.TokenAdminOptions
---@return true|nil, string? message, amqplocks.Code? code "not_found", "timeout", …
function TokenSemaphore:destroy(opts) return administer(self, "destroy", opts) end

-- What other kinds of locks have -------------------------------------------------------------------------------------

--- Raises an error: no message of this library reaches the holder of a permit.
---@return nil
function TokenSemaphore:revoke()
  error(('revoke: the holder of a permit of "%s" cannot be asked to release; those of slots and persistent mutexes can')
    :format(self.name), 0)
end

--- Raises an error: permits have no fence that could be deleted. A quorum queue counts their tokens.
---@return nil
function TokenSemaphore:forget_fence()
  error(('forget_fence: the permits of "%s" have no fence: a quorum queue counts their tokens'):format(self.name), 0)
end

methods.check(TokenSemaphore, "token_semaphore", methods.ONE_SIDED)

local token_semaphore = {}

function token_semaphore.new(connection, name, opts)
  opts = options.check(opts or {}, schema, "token_semaphore")
  if opts.fenced and opts.queue_type ~= "quorum" then
    error('token_semaphore: option "fenced" needs queue_type = "quorum": only a quorum queue counts holders', 0)
  end
  return setmetatable({
    name = name,
    _connection = connection,
    _options = { queue_type = opts.queue_type },
    _core = connection._session:resource("token_semaphore", name, opts),
  }, metatable)
end

return token_semaphore
