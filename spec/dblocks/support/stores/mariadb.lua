-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- db-locks on a throw-away MariaDB: see stores/README.md.
local over_sql = require "spec.dblocks.support.over_sql"
local servers = require "spec.support.servers.mariadb"

local mariadb = {}

function mariadb.connection(server)
  return ('return require("spec.support.servers.mariadb").connect(%d)'):format(server.address)
end

over_sql.complete(mariadb, "mariadb")

--- `options`: of spec/support/servers/mariadb.lua. A directory of data that was used before is prepared.
function mariadb.start(options, is_prepared)
  local server, reason = servers.start(options)
  if not server or is_prepared then return server, reason end
  return mariadb.prepare(server)
end

--- The server ends all connections.
function mariadb.cut(server)
  local one = mariadb.connect(server)
  local cursor = one:execute("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()"
    .. " AND user = 'root'")
  local id = cursor:fetch()
  while id do
    one:execute("KILL " .. id)
    id = cursor:fetch()
  end
  one:close()
end

return mariadb
