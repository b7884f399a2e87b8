-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A client of Cassandra as lua-cassandra is, by way of cassandra_bridge.py: Debian has no such client for Lua.
--
--     local client = cassandra_client.connect(port) -- of the bridge
--     client:execute(cql, args, opts)               -- rows, with meta | nil, message, code
--     client.statements                             -- the texts of those that were executed
local json = require "dkjson"
local socket = require "socket"

local client = {}
client.__index = client

local SECONDS = 30

function client.connect(port)
  local connection = assert(socket.connect("127.0.0.1", port))
  connection:setoption("tcp-nodelay", true)
  connection:settimeout(SECONDS)
  return setmetatable({ _socket = connection, statements = {} }, client)
end

--- Executes a statement. `statements` keeps the texts.
function client:execute(cql, args, opts)
  assert(args == nil, "the bridge has no arguments")
  table.insert(self.statements, cql)
  opts = opts or {}
  local sent, reason = self._socket:send(json.encode {
    cql = cql, consistency = opts.consistency, serial_consistency = opts.serial_consistency, page_size = opts.page_size,
    paging_state = opts.paging_state,
  } .. "\n")
  if not sent then return nil, reason end
  local line, why = self._socket:receive "*l"
  if not line then return nil, why end
  local answer = assert(json.decode(line))
  if not answer.rows then return nil, answer.message, answer.code end
  answer.rows.meta = { has_more_pages = answer.paging_state ~= nil, paging_state = answer.paging_state }
  return answer.rows
end

function client:close() self._socket:close() end

return client
