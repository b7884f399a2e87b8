-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A connection to a broker, on which locks live.
local admin = require "amqplocks.admin"
local await = require "amqplocks.await"
local options = require "amqplocks.options"
local semaphore = require "amqplocks.semaphore"

---@class amqplocks.Connection
local Connection = {}
local metatable = { __index = Connection, __name = "amqplocks.connection" }

function metatable.__tostring(self)
  return ("amqplocks.connection (%s, %s)"):format(self._session:name(), (self._session:state("holder")))
end

--- Releases every lock of this connection and closes it; waits for the broker at most the connection's `timeout`.
-- Idempotent, and never throws.
---@return true
function Connection:close()
  if not self._closed then
    self._closed = true
    pcall(function() await(self._driver, self._session:close()) end)
    self._session:abort()
  end
  return true
end

function metatable.__close(self) self:close() end

--- A semaphore that an administrator has created ("Lock Clients"). Asks the broker nothing.
---@param name string up to 230 bytes of UTF-8, no control characters, not starting with "amq."
---@param opts? { strategy?: "ascending"|"random"|"last", max_attempts?: integer, probe?: "auto"|"publish"|"passive" }
---@return amqplocks.Semaphore
function Connection:semaphore(name, opts) return semaphore.new(self, options.name(name, "semaphore"), opts) end

--- The administration of a semaphore ("Lock Administration"). Asks the broker nothing.
---@param name string
---@param opts? { queue_type?: "classic"|"quorum", overshoot?: integer, timeout?: number, wait?: number,
---  ascending?: boolean } defaults for each of its calls
---@return amqplocks.Admin
function Connection:admin(name, opts) return admin.new(self, options.name(name, "admin"), opts) end

local connection = {}

--- Opens a session's holder connection.
---@return amqplocks.Connection|nil, string? message, string? code
function connection.open(session, driver)
  local self = setmetatable({ _session = session, _driver = driver }, metatable)
  local opened, message, code = await(driver, session:open())
  if not opened then
    session:abort()
    return nil, message, code
  end
  return self
end

return connection
