-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A lock in PostgreSQL: an advisory lock of a session, whose number is a hash of the name. The server queues waiters,
-- and releases the locks of a session when its connection ends. There is no time to live.
local server = require "spec.support.servers.postgres"

local postgres = {}
local client = {}
client.__index = client

postgres.start = server.start

-- The single value that a query returns.
local function value(connection, query)
  local cursor = assert(connection:execute(query))
  local result = cursor:fetch()
  cursor:close()
  return result
end

--- A lock's object in a client. It has no time to live.
function postgres.open(port, name)
  local connection = assert(server.connect(port))
  local key = value(connection, ("SELECT hashtextextended('%s', 0)"):format(connection:escape(name)))
  return setmetatable({ connection = connection, lock = ("SELECT pg_advisory_lock(%s)"):format(key),
    unlock = ("SELECT pg_advisory_unlock(%s)"):format(key) }, client)
end

function client:acquire() value(self.connection, self.lock) end

function client:release() assert(value(self.connection, self.unlock) == "t", "it was not held") end

function client:close() self.connection:close() end

return postgres
