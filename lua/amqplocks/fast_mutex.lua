-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The fast mutex: mutual exclusion by a queue that stays when nobody holds the mutex. An acquire is one round trip,
-- and a release is none. The client that comes first makes the queue. It excludes no plain mutex of its name. With
-- `queue_type = "quorum"` it stays exclusive when a cluster is partitioned, and an acquire is four round trips.
local acquiring = require "amqplocks.acquiring"
local methods = require "amqplocks.methods"
local options = require "amqplocks.options"

local OPTIONS = { queue_type = options.checks.one_of("classic", "quorum") }

---@class amqplocks.FastMutexOptions
---@field queue_type? "classic"|"quorum" of its queue ("classic"); all clients of a name use the same

---@class amqplocks.FastMutex
---@field name string
local FastMutex = { _kind = "fast_mutex", _method = "acquire", _schema = acquiring.settling_schema }
local metatable = { __index = FastMutex, __name = "amqplocks.fast_mutex" }

function metatable.__tostring(self) return ('amqplocks.fast_mutex ("%s")'):format(self.name) end

--- Takes the mutex, without waiting for it.
---@param opts? {} there are none: any option raises an error
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "busy", "conflict" (its queue has another shape,
---  or is made while the plain mutex of this name is held), "refused", "unreachable", "unavailable" (its queue is on a
---  node that is down), "blocked" (the mutex was not in use, and the broker has an alarm), "squatted", "limit",
---  "closed", "lost" or "suspect" (before the caller got it)
function FastMutex:try_acquire(opts) return acquiring.try(self, "acquire", opts) end

--- Takes the mutex, and waits for it. Waiters are served in the order of arrival, those with a higher priority first.
-- No client can overtake them, so the option `fair` has no effect.
---@param opts? amqplocks.SettlingOptions
---@return amqplocks.Lock|nil, string? message, amqplocks.Code? code "timeout", "deadlock" (this connection holds it),
---  and those of try_acquire but "busy"
function FastMutex:acquire(opts) return acquiring.acquire(self, "acquire", opts) end

--- Calls fn(lock, …) while holding the mutex, and returns true and then its results; see semaphore:with.
---@overload fun(self: amqplocks.FastMutex, opts: amqplocks.SettlingOptions, fn: amqplocks.Work, ...): true?, ...any
---@overload fun(self: amqplocks.FastMutex, fn: amqplocks.Work, ...): true?, ...any
---@param ... any an optional table of amqplocks.SettlingOptions, the function, and further arguments for it
---@return true|nil had, any ... after true the results of fn; after nil a message and an amqplocks.Code: "lost", or one
---  of acquire
function FastMutex:with(...) return acquiring.with(self, "acquire", "with", ...) end

--- Raises an error: no message of this library reaches the holder.
---@return nil
function FastMutex:revoke()
  error(('revoke: the holder of fast mutex "%s" cannot be asked to release; that of a plain mutex can')
    :format(self.name), 0)
end

--- Raises an error: a fast mutex has no fencing tokens.
---@return nil
function FastMutex:forget_fence()
  error(('forget_fence: fast mutex "%s" has no fencing tokens; other kinds of locks have'):format(self.name), 0)
end

methods.check(FastMutex, "fast_mutex", methods.ONE_SIDED)

local fast_mutex = {}

function fast_mutex.new(connection, name, opts)
  if type(opts) == "table" and opts.fenced then
    error('fast_mutex: there is no option fenced; a permit of conn:token_semaphore(name, { queue_type = "quorum", '
      .. 'fenced = true }) with one permit has a fencing token', 0)
  end
  options.check(opts or {}, OPTIONS, "fast_mutex")
  return setmetatable({
    name = name,
    _connection = connection,
    _core = connection._session:resource("fast_mutex", name, opts or {}),
  }, metatable)
end

return fast_mutex
