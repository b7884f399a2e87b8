-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- db-locks on a throw-away H2 in Oracle mode: see stores/README.md.
local over_sql = require "spec.dblocks.support.over_sql"
local servers = require "spec.support.servers.h2"

local oracle = {}

function oracle.connection(server)
  return ('return require("spec.support.servers.h2").connect(%d)'):format(server.address)
end

over_sql.complete(oracle, "oracle")

--- `options`: of spec/support/servers/h2.lua. A directory of data that was used before is prepared.
function oracle.start(options, is_prepared)
  local server, reason = servers.start(options)
  if not server or is_prepared then return server, reason end
  return oracle.prepare(server)
end

--- The server ends all connections.
function oracle.cut(server)
  local one = oracle.connect(server)
  one:execute "SELECT ABORT_SESSION(session_id) FROM information_schema.sessions WHERE session_id <> SESSION_ID()"
  one:close()
end

return oracle
