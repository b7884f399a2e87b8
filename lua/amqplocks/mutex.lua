-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The mutex: mutual exclusion, one holder. By default it need not be created, and exists in the broker only while it
-- is held. With `persistent = true` it is the first slot of the semaphore that conn:semaphore and conn:admin know by
-- its name, and that should have no other slot. It exists from its creation until it is destroyed.
local acquiring = require "amqplocks.acquiring"
local admin = require "amqplocks.admin"
local await = require "amqplocks.waiting.await"
local methods = require "amqplocks.methods"
local options = require "amqplocks.options"
local reentrant = require "amqplocks.reentrant"

local checks = options.checks

local schema = options.merge(acquiring.resource_schema, {
  persistent = checks.boolean,
  reentrant = checks.boolean,
  retain = checks.timeout,
  owner = function(value) return value ~= value and "another value than NaN" or nil end,
})

---@class amqplocks.MutexOptions
---@field persistent? boolean the mutex must be created, and can be destroyed and revoked (false)
---@field max_attempts? integer as for conn:semaphore (8)
---@field probe? "auto"|"publish"|"passive" as for conn:semaphore ("auto")
---@field fenced? boolean as for conn:semaphore (false)
---@field reentrant? boolean its owner takes it again without asking the broker; the last release releases it (false)
---@field retain? number seconds after the broker was asked for the mutex, for which the session may keep it beyond a
---  release, unless another client asks. Until then the session's next acquire of that name does not ask the broker.
---  Not with `fenced` or `persistent`. (none: it is not kept)
---@field owner? any of a reentrant mutex: who owns what is acquired through this object (the coroutine that acquires)

---@class amqplocks.Mutex
---@field name string
---@field persistent boolean
local Mutex = { _kind = "mutex", _method = "acquire" }
local metatable = { __index = Mutex, __name = "amqplocks.mutex" }

function metatable.__tostring(self)
  return ('amqplocks.mutex ("%s"%s)'):format(self.name, self.persistent and ", persistent" or "")
end

--- Takes the mutex, without waiting for it.
---@param opts? {} there are none: any option raises an error
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "busy", "contended", "refused", "unreachable",
---  "squatted", "limit", "closed", "lost" or "suspect" (before the caller got it); persistent: "not_found",
---  "unavailable"
function Mutex:try_acquire(opts) return acquiring.try(self, "acquire", opts) end

--- Takes the mutex, and waits for it as semaphore:acquire does.
---@param opts? amqplocks.MutexAcquireOptions
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "timeout", "deadlock" (this connection holds it),
---  and those of try_acquire but "busy"
function Mutex:acquire(opts) return acquiring.acquire(self, "acquire", opts) end

--- Calls fn(lock, …) while holding the mutex, and returns true and then its results; see semaphore:with.
---@overload fun(self: amqplocks.Mutex, opts: amqplocks.MutexAcquireOptions, fn: amqplocks.Work, ...): true?, ...any
---@overload fun(self: amqplocks.Mutex, fn: amqplocks.Work, ...): true?, ...any
---@param ... any an optional table (amqplocks.MutexAcquireOptions), the function, and further arguments for it
---@return true|nil had, any ... after true the results of fn; after nil a message and an amqplocks.Code: "lost", or one
---  of acquire
function Mutex:with(...) return acquiring.with(self, "acquire", "with", ...) end

local function administer(self, action, ...)
  if not self.persistent then
    error(action .. ": only a persistent mutex can be administered; this one exists only while it is held", 0)
  end
  local administration = admin.new(self._connection, self.name, { fenced = self._fenced })
  return administration[action](administration, ...)
end

local function one(...)
  if (...) then return true end
  return ...
end

--- Creates a persistent mutex. If it is fenced, its fence is made first, unless there is one; see admin:create.
---@param opts? amqplocks.AdminOptions
---@return true|nil, string? message, amqplocks.Code? code "exists", and those of admin:create
function Mutex:create(opts) return one(administer(self, "create", 1, opts)) end

--- Destroys a persistent mutex. Its holder keeps it until the release. The fence stays, unless `fence = true`; see
-- admin:destroy.
---@param opts? amqplocks.AdminOptions
---@return true|nil, string? message, amqplocks.Code? code "not_found", and those of admin:destroy
function Mutex:destroy(opts) return administer(self, "destroy", opts) end

--- Asks the holder to release; see admin:revoke.
--
--     local asked, err, code = mutex:revoke()      -- true: the holder was asked. code "not_held": there is none
--     local free, err, code = mutex:revoke{ wait = 60 }
---@param opts? amqplocks.RevokeOptions of a persistent mutex, amqplocks.AdminOptions
---@return true|nil, string? message, amqplocks.Code? code "not_held", and those of admin:revoke
function Mutex:revoke(opts)
  if self.persistent then return administer(self, "revoke", 1, opts) end
  return admin.revoke(self._connection, "mutex", self.name, opts, "revoke")
end

--- Deletes the fence, from which fencing tokens are drawn. The next fenced acquire makes another. Its tokens begin with
-- the time in microseconds: they are larger than those before if the clocks of all machines agree. So delete a fence
-- only when its name is not used any more, or after "conflict" because its message is lost.
---@return true|nil, string? message, amqplocks.Code? code "refused", "unreachable", "unavailable"
function Mutex:forget_fence()
  local driver, session = self._connection._driver, self._connection._session
  return await(driver, nil, session.forget_fence, session, self.persistent and "semaphore" or "mutex", self.name)
end

methods.check(Mutex, "mutex", methods.ONE_SIDED)

local mutex = {}

function mutex.new(connection, name, opts)
  opts = options.check(opts or {}, schema, "mutex")
  if opts.owner ~= nil and not opts.reentrant then error("mutex: option owner needs reentrant = true", 0) end
  for _, other in ipairs{ "fenced", "persistent" } do
    if opts.retain and opts[other] then error("mutex: option retain does not go with " .. other, 0) end
  end
  local session = connection._session
  return setmetatable({
    name = name,
    persistent = opts.persistent or false,
    _kind = opts.persistent and "slot" or "mutex",
    _fenced = opts.fenced or false,
    _schema = not opts.persistent and acquiring.mutex_schema or nil,
    _entering = opts.reentrant and reentrant.enter or nil,
    _owner = opts.owner,
    _connection = connection,
    _core = opts.persistent and session:resource("semaphore", name, options.merge(opts, { most = 1 }))
      or session:resource("mutex", name, opts),
  }, metatable)
end

return mutex
