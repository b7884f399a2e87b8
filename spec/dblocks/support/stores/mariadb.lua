-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- db-locks on a throw-away MariaDB: see stores/README.md.
local over_sql = require "spec.dblocks.support.over_sql"

local mariadb = {}

over_sql.complete(mariadb, "mariadb", "mariadb")

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
