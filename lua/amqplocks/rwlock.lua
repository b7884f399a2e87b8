-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The readers–writer lock: any number of readers, or one writer. Nobody has to create it. A writer that waits keeps
-- new readers out, so that those inside are all it waits for; readers who wait stand in one line with the writers.
--
-- Whoever reads or writes a lock cannot read or write it once more on the same connection before it has let go:
-- "deadlock". (A reader that waited to read again, behind a writer that waits for that reader, would wait for ever.)
local acquiring = require "amqplocks.acquiring"
local methods = require "amqplocks.methods"
local options = require "amqplocks.options"

---@class amqplocks.RWLock
---@field name string
local RWLock = {}
local metatable = { __index = RWLock, __name = "amqplocks.rwlock" }

function metatable.__tostring(self) return ('amqplocks.rwlock ("%s")'):format(self.name) end

--- Reads, or returns at once.
---@param opts? {} there are none: one that is given throws
---@return amqplocks.Lock|nil, string? message, string? code "busy" (somebody writes, or waits to), "deadlock",
---  "contended", "refused", "unreachable", "conflict", "squatted", "limit", "closed", "lost" or "suspect" (before it
---  could be handed over)
function RWLock:try_read(opts) return acquiring.try(self, "read", opts) end

--- Reads, waiting until nobody writes or waits to write. Readers do not wait for one another, so `fair` and `priority`
-- matter only while somebody writes.
---@param opts? amqplocks.AcquireOptions
---@return amqplocks.Lock|nil, string? message, string? code "timeout", and those of try_read but "busy"
function RWLock:read(opts) return acquiring.acquire(self, "read", opts) end

--- Writes, or returns at once.
---@param opts? {} there are none: one that is given throws
---@return amqplocks.Lock|nil, string? message, string? code "busy" (somebody reads, writes or waits to), "blocked" (the
---  broker reads no publishers, so nobody can tell who reads), and those of try_read
function RWLock:try_write(opts) return acquiring.try(self, "write", opts) end

--- Writes, waiting for whoever writes, and then, with the door shut to others, for whoever reads. `lock:downgrade()`
-- turns it into reading.
---@param opts? amqplocks.AcquireOptions
---@return amqplocks.Lock|nil, string? message, string? code "timeout", and those of try_write but "busy"
function RWLock:write(opts) return acquiring.acquire(self, "write", opts) end

--- Calls fn(lock, …) while reading, and returns true and then its results; see semaphore:with.
---@param ... any an optional table of read's options, the function, and further arguments for it
---@return true|nil had, any ... true: fn's results; nil: string message, string code "lost", and those of read
function RWLock:with_read(...) return acquiring.with(self, "read", "with_read", ...) end

--- Calls fn(lock, …) while writing, and returns true and then its results; see semaphore:with.
---@param ... any an optional table of write's options, the function, and further arguments for it
---@return true|nil had, any ... true: fn's results; nil: string message, string code "lost", and those of write
function RWLock:with_write(...) return acquiring.with(self, "write", "with_write", ...) end

methods.check(RWLock, "rwlock")

local rwlock = {}

function rwlock.new(connection, name, opts)
  opts = options.check(opts or {}, acquiring.resource_schema, "rwlock")
  return setmetatable({
    name = name,
    _connection = connection,
    _core = connection._session:rwlock(name, opts.max_attempts or 8, opts.probe or "auto"),
  }, metatable)
end

return rwlock
