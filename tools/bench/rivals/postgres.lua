-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A lock in PostgreSQL: an advisory lock of a session, whose number is a hash of the name.
local sql = require "tools.bench.rivals.sql"

return sql.rival(require "spec.support.servers.postgres", function(connection, name, bound)
  assert(connection:execute(("SET idle_session_timeout = '%ds'"):format(bound)))
  local key = sql.value(connection, ("SELECT hashtextextended('%s', 0)"):format(name))
  return ("SELECT pg_advisory_lock(%s)"):format(key), ("SELECT pg_advisory_unlock(%s)"):format(key)
end)
