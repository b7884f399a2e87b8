-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The token semaphore: one message for every permit, in the queue `name.semaphore`. Fast, with priorities, and shared
-- with whatever other software takes messages from that queue.
local acquiring = require "amqplocks.acquiring"
local options = require "amqplocks.options"

local checks = options.checks

local schema = {
  queue_type = checks.one_of("classic", "quorum"),
}

---@class amqplocks.TokenSemaphore
---@field name string
local TokenSemaphore = {}
local metatable = { __index = TokenSemaphore, __name = "amqplocks.token_semaphore" }

function metatable.__tostring(self) return ('amqplocks.token_semaphore ("%s")'):format(self.name) end

-- For those who lock ------------------------------------------------------------------------------------------------

--- Takes a permit, or returns at once.
---@return amqplocks.Lock|nil, string? message, string? code "busy", "not_found", "refused", "unreachable",
---  "unavailable", "squatted", "conflict" (its queue is not of the `queue_type`), "limit", "closed"
function TokenSemaphore:try_acquire() return acquiring.try(self, "acquire") end

--- Takes a permit, waiting for one. Those who wait are served in the order of arrival, those of a higher priority
-- first; as nobody can be faster, and nobody looks for anything, the options `fair` and `poll` change nothing here.
---@param opts? amqplocks.AcquireOptions
---@return amqplocks.Lock|nil, string? message, string? code "timeout", and those of try_acquire but "busy"
function TokenSemaphore:acquire(opts) return acquiring.acquire(self, "acquire", opts) end

--- Calls fn(lock, …) while holding a permit, and returns its results; see semaphore:with.
---@param ... any an optional table of acquire's options, the function, and further arguments for it
function TokenSemaphore:with(...) return acquiring.with(self, "acquire", "with", ...) end

local token_semaphore = {}

function token_semaphore.new(connection, name, opts)
  opts = opts or {}
  options.check(opts, schema, "token_semaphore")
  return setmetatable({
    name = name,
    _connection = connection,
    _core = connection._session:token_semaphore(name, opts.queue_type == "quorum"),
  }, metatable)
end

return token_semaphore
