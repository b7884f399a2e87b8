-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The persistent semaphore, for those who lock.
local await = require "amqplocks.await"
local lock = require "amqplocks.lock"
local options = require "amqplocks.options"
local scope = require "amqplocks.scope"

local checks = options.checks

local schema = {
  strategy = checks.one_of("ascending", "random", "last"),
  max_attempts = checks.whole(1, 1000),
  probe = checks.one_of("auto", "publish", "passive"),
}

local acquire_schema = {
  timeout = checks.seconds,
  fair = checks.boolean,
  priority = checks.whole(-32768, 32767),
  poll = checks.timeout,
  on_wait = checks.callable,
}

---@class amqplocks.Semaphore
---@field name string
local Semaphore = {}
local metatable = { __index = Semaphore, __name = "amqplocks.semaphore" }

function metatable.__tostring(self) return ('amqplocks.semaphore ("%s")'):format(self.name) end

local NONE = {}
local ONCE = { timeout = 0 }

local function acquire(self, opts)
  local operation = self._core:acquire(opts.timeout, opts.fair, opts.priority, opts.poll)
  local core_lock, message, code = await(self._connection._driver, operation, opts.on_wait)
  if not core_lock then return nil, message, code end
  return lock.new(self._connection, core_lock)
end

--- Takes a free slot, or returns at once ("Acquiring a Lock").
---@return amqplocks.Lock|nil, string? message, string? code "busy", "contended", "not_found", "refused", "unreachable",
---  "unavailable", "blocked", "squatted", "limit", "closed"
function Semaphore:try_acquire() return acquire(self, ONCE) end

--- Takes a free slot, waiting for one. Whoever waits is woken when a slot comes free: in the order of arrival, those of
-- a higher priority first; but who has just come may be faster, unless it is `fair`.
---@param opts? { timeout?: number, fair?: boolean, priority?: integer, poll?: number,
---  on_wait?: fun(seconds: number, reason: string) }
---  `timeout`: seconds; none: until a slot is free or the broker is lost; 0: looks once, as try_acquire does.
---  `fair`: never before those who wait already (false). `priority`: -32768 to 32767 (0). `poll`: seconds between looks
---  of its own, for slots that come free without a sign (5). `on_wait` is called when waiting starts and about every
---  second, with the seconds waited and how things stand, such as "3 of 3 held".
---@return amqplocks.Lock|nil, string? message, string? code "timeout", "deadlock", and those of try_acquire
function Semaphore:acquire(opts)
  if opts ~= nil then options.check(opts, acquire_schema, "acquire") end
  return acquire(self, opts or NONE)
end

--- Calls fn(lock, …) while holding a slot, and returns its results.
-- Not acquired: nil, message, code, and fn is not called. An error in fn is rethrown unchanged, after the release. The
-- lock was lost before fn returned: nil, message, "lost".
--     sem:with({ timeout = 5 }, function(lock, path) … end, "/srv/images")
---@param ... any an optional table of acquire's options, the function, and further arguments for it
function Semaphore:with(...)
  return scope.with("with", function(opts) return self:acquire(opts) end, ...)
end

local semaphore = {}

function semaphore.new(connection, name, opts)
  opts = opts or {}
  options.check(opts, schema, "semaphore")
  return setmetatable({
    name = name,
    _connection = connection,
    _core = connection._session:semaphore(name, opts.strategy or "ascending", opts.max_attempts or 8,
      opts.probe or "auto"),
  }, metatable)
end

return semaphore
