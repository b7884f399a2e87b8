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
}
dependencies = {
  "lua >= 5.1",
}
build = {
  type = "builtin",
  modules = {
    -- begin: modules dblocks (`make rockspec` writes what stands here)
    ["dblocks.acquiring"] = "lua/dblocks/acquiring.lua",
    ["dblocks.cassandra"] = "lua/dblocks/cassandra.lua",
    ["dblocks.client"] = "lua/dblocks/client.lua",
    ["dblocks.clock"] = "lua/dblocks/clock.lua",
    ["dblocks.dialects"] = "lua/dblocks/dialects.lua",
    ["dblocks.doorman"] = "lua/dblocks/doorman.lua",
    ["dblocks"] = "lua/dblocks/init.lua",
    ["dblocks.lock"] = "lua/dblocks/lock.lua",
    ["dblocks.options"] = "lua/dblocks/options.lua",
    ["dblocks.redis"] = "lua/dblocks/redis.lua",
    ["dblocks.sql"] = "lua/dblocks/sql.lua",
    ["dblocks.sql_connection"] = "lua/dblocks/sql_connection.lua",
    ["dblocks.sql_rows"] = "lua/dblocks/sql_rows.lua",
    ["dblocks.swapping"] = "lua/dblocks/swapping.lua",
    ["dblocks.ticket"] = "lua/dblocks/ticket.lua",
    -- end: modules
  },
}
