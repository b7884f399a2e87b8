-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The readers–writer lock: any number of readers, or one writer. It need not be created. A writer that waits keeps new
-- readers out, so it waits only for the readers that hold the lock. Waiting readers and writers form one line.
--
-- A connection that holds a read or write lock cannot acquire the same lock again before the release: "deadlock". (A
-- reader that waited to read again, behind a writer that waits for that reader, would wait for ever.)
local acquiring = require "amqplocks.acquiring"
local admin = require "amqplocks.admin"
local await = require "amqplocks.waiting.await"
local methods = require "amqplocks.methods"
local options = require "amqplocks.options"
local side = require "amqplocks.side"

---@class amqplocks.RWLockOptions
---@field max_attempts? integer as for conn:semaphore (8)
---@field probe? "auto"|"publish"|"passive" as for conn:semaphore ("auto")
---@field fenced? boolean as for conn:semaphore (false)

---@class amqplocks.RWLock
---@field name string
local RWLock = {}
local metatable = { __index = RWLock, __name = "amqplocks.rwlock" }

function metatable.__tostring(self) return ('amqplocks.rwlock ("%s")'):format(self.name) end

--- Takes a read lock, without waiting for it.
---@param opts? {} there are none: any option raises an error
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "busy" (a writer holds it or waits for it),
---  "deadlock", "contended", "refused", "unreachable", "conflict", "squatted", "limit", "closed", "lost" or "suspect"
---  (before the caller got it)
function RWLock:try_read(opts) return acquiring.try(self, "read", opts) end

--- Takes a read lock, and waits until no writer holds the lock or waits for it. Readers do not wait for one another, so
-- `fair` and `priority` matter only while a writer holds the lock.
---@param opts? amqplocks.AcquireOptions
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "timeout", and those of try_read but "busy"
function RWLock:read(opts) return acquiring.acquire(self, "read", opts) end

--- Takes the write lock, without waiting for it.
---@param opts? {} there are none: any option raises an error
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "busy" (a reader or writer holds it, or a writer
---  waits for it), "blocked" (the broker reads no publishers, so readers cannot be counted), and those of try_read
function RWLock:try_write(opts) return acquiring.try(self, "write", opts) end

--- Takes the write lock. Waits for other writers, then shuts the door (a queue that keeps new readers and writers out)
-- and waits for the readers that hold the lock. `lock:downgrade()` turns it into a read lock.
---@param opts? amqplocks.AcquireOptions
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "timeout", and those of try_write but "busy"
function RWLock:write(opts) return acquiring.acquire(self, "write", opts) end

--- Calls fn(lock, …) while holding a read lock, and returns true and then its results; see semaphore:with.
---@overload fun(self: amqplocks.RWLock, opts: amqplocks.AcquireOptions, fn: amqplocks.Work, ...): true?, ...any
---@overload fun(self: amqplocks.RWLock, fn: amqplocks.Work, ...): true?, ...any
---@param ... any an optional table of read's options, the function, and further arguments for it
---@return true|nil had, any ... after true the results of fn; after nil a message and an amqplocks.Code: "lost", or one
---  of read
function RWLock:with_read(...) return acquiring.with(self, "read", "with_read", ...) end

--- Calls fn(lock, …) while holding the write lock, and returns true and then its results; see semaphore:with.
---@overload fun(self: amqplocks.RWLock, opts: amqplocks.AcquireOptions, fn: amqplocks.Work, ...): true?, ...any
---@overload fun(self: amqplocks.RWLock, fn: amqplocks.Work, ...): true?, ...any
---@param ... any an optional table of write's options, the function, and further arguments for it
---@return true|nil had, any ... after true the results of fn; after nil a message and an amqplocks.Code: "lost", or one
---  of write
function RWLock:with_write(...) return acquiring.with(self, "write", "with_write", ...) end

--- The read side: an object with try_acquire, acquire and `with`, as other kinds of locks have. For conn:all.
---@return amqplocks.Side
function RWLock:reader() return side.new(self, "read") end

--- The write side; see rwlock:reader.
---@return amqplocks.Side
function RWLock:writer() return side.new(self, "write") end

--- Asks all readers to release; see admin:revoke. With `wait` they are asked again, and readers that enter meanwhile
-- are asked as well, until nobody reads.
---@param opts? amqplocks.RevokeOptions
---@return true|nil, string? message, amqplocks.Code? code "not_held" (nobody reads), "conflict" (an alternate
---  exchange hides the readers), "blocked" (an alarm: no reader can be asked, also with `wait`), and those of
---  admin:revoke
function RWLock:revoke_readers(opts)
  return admin.revoke(self._connection, "readers", self.name, opts, "revoke_readers")
end

--- Asks the writer to release; see admin:revoke. A writer that waits for readers is asked, too: its lock:revoked() is
-- true as soon as it has the lock.
---@param opts? amqplocks.RevokeOptions
---@return true|nil, string? message, amqplocks.Code? code "not_held" (nobody writes), and those of admin:revoke
function RWLock:revoke_writer(opts)
  return admin.revoke(self._connection, "writer", self.name, opts, "revoke_writer")
end

--- Deletes the fence, from which fencing tokens are drawn; see mutex:forget_fence.
---@return true|nil, string? message, amqplocks.Code? code "refused", "unreachable", "unavailable"
function RWLock:forget_fence()
  local driver, session = self._connection._driver, self._connection._session
  return await(driver, nil, session.forget_fence, session, "rwlock", self.name)
end

methods.check(RWLock, "rwlock", methods.TWO_SIDED)

local rwlock = {}

function rwlock.new(connection, name, opts)
  opts = options.check(opts or {}, acquiring.resource_schema, "rwlock")
  return setmetatable({
    name = name,
    _connection = connection,
    _core = connection._session:resource("rwlock", name, opts),
  }, metatable)
end

return rwlock
