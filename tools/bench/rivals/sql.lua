-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Locks that an SQL server keeps for a session. The server queues waiters, and releases the locks of a session when
-- its connection ends. A time-out ends the session of a client that asks nothing for so long, but not that of a
-- waiter.
local sql = {}

--- The single value that a query returns; an error if it is false.
function sql.value(connection, query)
  local cursor = assert(connection:execute(query))
  local result = cursor:fetch()
  cursor:close()
  return assert(result ~= "0" and result ~= "f" and result, query .. " gave nothing")
end

--- A module for such locks. `server` starts the server and connects to it. prepare(connection, name, bound) sets the
-- session's time-out, `bound` seconds, and returns the queries that acquire and release a lock.
function sql.rival(server, prepare)
  local client = {}
  client.__index = client

  local function open(port, name, bound)
    local connection = assert(server.connect(port))
    local lock, unlock = prepare(connection, name, bound)
    return setmetatable({ connection = connection, lock = lock, unlock = unlock }, client)
  end

  function client:acquire() sql.value(self.connection, self.lock) end

  function client:release() sql.value(self.connection, self.unlock) end

  function client:close() self.connection:close() end

  return { start = server.start, open = open }
end

return sql
