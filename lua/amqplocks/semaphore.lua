-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The persistent semaphore, for lock clients.
local acquiring = require "amqplocks.acquiring"
local methods = require "amqplocks.methods"
local options = require "amqplocks.options"

local schema = options.merge(acquiring.resource_schema, {
  strategy = options.checks.one_of("ascending", "random", "last"),
})

---@class amqplocks.SemaphoreOptions
---@field strategy? "ascending"|"random"|"last" the order in which slots are looked at ("ascending")
---@field max_attempts? integer 1 to 1000: claims that may be lost to other clients before "contended" (8)
---@field probe? "auto"|"publish"|"passive" how the broker is asked which queues exist ("auto")
---@field fenced? boolean acquire with a fencing token, which is the lock's field `fence` (false)

---@class amqplocks.Semaphore
---@field name string
local Semaphore = { _kind = "slot", _method = "acquire", _schema = acquiring.slots_schema }
local metatable = { __index = Semaphore, __name = "amqplocks.semaphore" }

function metatable.__tostring(self) return ('amqplocks.semaphore ("%s")'):format(self.name) end

--- Takes a free slot, without waiting for one (docs/specification.md, 2.3).
---@param opts? {} there are none: any option raises an error
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "busy", "contended", "not_found", "refused",
---  "unreachable", "unavailable", "blocked", "squatted", "limit", "closed", "lost" or "suspect" (before the caller
---  got it)
function Semaphore:try_acquire(opts) return acquiring.try(self, "acquire", opts) end

--- Takes a free slot, and waits for one. When a slot comes free, one waiter is woken: in the order of arrival, those
-- with a higher priority first. A client that has just come may be faster, unless it acquires with `fair`.
---@param opts? amqplocks.SlotsOptions
---@return amqplocks.Lock|amqplocks.Locks|nil, string? message, amqplocks.Code? code "timeout", "deadlock", and those of
---  try_acquire
function Semaphore:acquire(opts) return acquiring.acquire(self, "acquire", opts) end

--- Calls fn(lock, …) while holding a slot, and returns true and then fn's results, also if those are nil or nothing. If
-- no slot was acquired, fn is not called, and it returns nil, message, code. An error in fn is raised again unchanged,
-- after the release. If the lock was lost before fn returned, fn's results are dropped, and it returns nil, message,
-- "lost".
--
--     local had, result, why = sem:with({ timeout = 5 }, function(lock, path) return resize(path) end, "/srv/a.png")
--     if not had then print(result) elseif not result then print("not resized: " .. why) end
---@overload fun(self: amqplocks.Semaphore, opts: amqplocks.SlotsOptions, fn: amqplocks.Work, ...): true?, ...any
---@overload fun(self: amqplocks.Semaphore, fn: amqplocks.Work, ...): true?, ...any
---@param ... any an optional table of amqplocks.SlotsOptions, the function, and further arguments for it
---@return true|nil had, any ... after true the results of fn; after nil a message and an amqplocks.Code: "lost", or one
---  of acquire
function Semaphore:with(...) return acquiring.with(self, "acquire", "with", ...) end

methods.check(Semaphore, "semaphore", methods.ADMINISTERED)

local semaphore = {}

function semaphore.new(connection, name, opts)
  opts = options.check(opts or {}, schema, "semaphore")
  return setmetatable({
    name = name,
    _connection = connection,
    _core = connection._session:resource("semaphore", name, opts),
  }, metatable)
end

return semaphore
