-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- db-locks in SQLite.
local conformance = require "spec.dblocks.support.conformance"
local dblocks = require "dblocks"
local process = require "spec.support.process"
local sql = require "spec.dblocks.support.sql"

local fails = sql.fails
local directory, path

local function connect(file) return require("luasql.sqlite3").sqlite3():connect(file or path) end

setup(function()
  directory = process.directory()
  path = directory .. "/locks.db"
  assert(dblocks.sql(connect, { dialect = "sqlite" }):setup())
  local one = connect()
  assert(one:execute "CREATE TABLE counters (n INTEGER)")
  one:close()
end)

teardown(function() process.shell("rm", "-rf", directory) end)

local function code() return ("return require('luasql.sqlite3').sqlite3():connect(%q)"):format(path) end

local function options(opts)
  local all = { dialect = "sqlite" }
  for key, value in pairs(opts or {}) do all[key] = value end
  return all
end

conformance {
  connect = function(opts) return dblocks.sql(function() return connect() end, options(opts)) end,
  code = function()
    return ([[
      local opts = ...
      opts.dialect = "sqlite"
      return require("dblocks").sql(function() %s end, opts)
    ]]):format(code())
  end,
}

sql.days {
  dialect = "sqlite", connect = function() return connect() end, code = code, begin = "BEGIN",
  trips = { acquire = 2, release = 1, read = 2, leave = 2 },
}
