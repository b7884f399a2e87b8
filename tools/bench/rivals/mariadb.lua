-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A lock in MariaDB: GET_LOCK, a lock of a session. No wait here is as long as its limit.
local sql = require "tools.bench.rivals.sql"

local LIMIT = 3600 -- seconds

return sql.rival(require "spec.support.servers.mariadb", function(connection, name, bound)
  assert(connection:execute(("SET SESSION wait_timeout = %d"):format(bound)))
  return ("SELECT GET_LOCK('%s', %d)"):format(name, LIMIT), ("SELECT RELEASE_LOCK('%s')"):format(name)
end)
