-- SPDX-FileCopyrightText: the amqp-locks authors
-- SPDX-License-Identifier: MIT

rockspec_format = "3.0"
package = "db-locks"
version = "scm-1"
source = {
  url = ".",
}
description = {
  summary = "Mutexes and readers-writer locks in Redis, SQL databases and Cassandra, which a crash does not free",
  license = "MIT",
  labels = { "lock", "mutex", "redis", "sql", "cassandra" },
}
dependencies = {
  "lua >= 5.1, ~= 5.2",
}
build = {
  type = "builtin",
  modules = {
    -- begin: modules db-locks dblocks (`make rockspec` writes what stands here)
    ["dblocks.acquiring"] = "dblocks/acquiring.lua",
    ["dblocks.cassandra"] = "dblocks/cassandra.lua",
    ["dblocks.client"] = "dblocks/client.lua",
    ["dblocks.clock"] = "dblocks/clock.lua",
    ["dblocks.dialects"] = "dblocks/dialects.lua",
    ["dblocks.doorman"] = "dblocks/doorman.lua",
    ["dblocks"] = "dblocks/init.lua",
    ["dblocks.late"] = "dblocks/late.lua",
    ["dblocks.lock"] = "dblocks/lock.lua",
    ["dblocks.options"] = "dblocks/options.lua",
    ["dblocks.redis"] = "dblocks/redis.lua",
    ["dblocks.sql"] = "dblocks/sql.lua",
    ["dblocks.sql_connection"] = "dblocks/sql_connection.lua",
    ["dblocks.sql_rows"] = "dblocks/sql_rows.lua",
    ["dblocks.swapping"] = "dblocks/swapping.lua",
    ["dblocks.ticket"] = "dblocks/ticket.lua",
    -- end: modules
  },
}
