-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- db-locks on a throw-away H2 in Oracle mode: see stores/README.md.
local over_sql = require "spec.dblocks.support.over_sql"

local oracle = {}

over_sql.complete(oracle, "oracle", "h2")

--- The server ends all connections.
function oracle.cut(server)
  local one = oracle.connect(server)
  one:execute "SELECT ABORT_SESSION(session_id) FROM information_schema.sessions WHERE session_id <> SESSION_ID()"
  one:close()
end

return oracle
