-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- db-locks on a throw-away PostgreSQL: see stores/README.md.
local over_sql = require "spec.dblocks.support.over_sql"

local postgres = {}

over_sql.complete(postgres, "postgres", "postgres")

--- An advisory lock, which ends with its connection.
function postgres.rival(server)
  local one = postgres.connect(server)
  local function ask(text)
    local cursor = assert(one:execute(text))
    local result = cursor:fetch()
    cursor:close()
    assert(result == "t")
  end
  return "advisory lock: try + unlock", function()
    ask "SELECT pg_try_advisory_lock(7)"
    ask "SELECT pg_advisory_unlock(7)"
  end
end

--- The server ends all connections.
function postgres.cut(server)
  local one = postgres.connect(server)
  one:execute "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
  one:close()
end

return postgres
