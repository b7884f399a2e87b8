-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- One side of a readers–writer lock, as a lock of its own: it has the methods that all kinds of locks have.
local acquiring = require "amqplocks.acquiring"
local methods = require "amqplocks.methods"

---@class amqplocks.Side
---@field name string of the readers–writer lock
local Side = {}
local metatable = { __index = Side, __name = "amqplocks.side" }

function metatable.__tostring(self) return ('amqplocks.side ("%s", %s)'):format(self.name, self._kind) end

--- Takes the lock, without waiting for it: rwlock:try_read or rwlock:try_write.
---@param opts? {} there are none: any option raises an error
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "busy", and those of rwlock:try_read and
---  rwlock:try_write
function Side:try_acquire(opts) return acquiring.try(self, self._method, opts, "try_acquire") end

--- Takes the lock, and waits for it: rwlock:read or rwlock:write.
---@param opts? amqplocks.AcquireOptions
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "timeout", and those of try_acquire but "busy"
function Side:acquire(opts) return acquiring.acquire(self, self._method, opts, "acquire") end

--- Calls fn(lock, …) while holding the lock, and returns true and then its results; see semaphore:with.
---@overload fun(self: amqplocks.Side, opts: amqplocks.AcquireOptions, fn: amqplocks.Work, ...): true?, ...any
---@overload fun(self: amqplocks.Side, fn: amqplocks.Work, ...): true?, ...any
---@param ... any an optional table of acquire's options, the function, and further arguments for it
---@return true|nil had, any ... after true the results of fn; after nil a message and an amqplocks.Code: "lost", or one
---  of acquire
function Side:with(...) return acquiring.with(self, self._method, "with", ...) end

methods.check(Side, "side", methods.ONE_SIDED)

local side = {}

--- `kind`: "read" or "write".
function side.new(rwlock, kind)
  return setmetatable({
    name = rwlock.name,
    _kind = kind,
    _method = kind,
    _connection = rwlock._connection,
    _core = rwlock._core,
    _rwlock = rwlock, -- its core object must outlive this
  }, metatable)
end

return side
