-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- db-locks in a file of SQLite: see stores/README.md.
local over_sql = require "spec.dblocks.support.over_sql"
local process = require "spec.support.process"

local sqlite = {}

function sqlite.connection(file) return ("return require('luasql.sqlite3').sqlite3():connect(%q)"):format(file.path) end

over_sql.complete(sqlite, "sqlite")

--- A file instead of a server; nil: LuaSQL is not installed.
function sqlite.start()
  if not pcall(require, "luasql.sqlite3") then return nil, "no LuaSQL for SQLite here" end
  local directory = process.directory()
  local file = { path = directory .. "/locks.db" }
  function file.stop() process.shell("rm", "-rf", directory) end
  return sqlite.prepare(file)
end

return sqlite
