-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A throw-away MariaDB.
local process = require "spec.support.process"
local server = require "spec.support.servers.server"

local mariadb = {}

local DATABASE = "locks"

--- A connection of LuaSQL; nil, message: there is none. `user`: root by default.
function mariadb.connect(port, user)
  return require("luasql.mysql").mysql():connect(DATABASE, user or "root", "", "127.0.0.1", port)
end

-- Makes the database for mariadb.connect; nil: the server does not answer yet.
local function create(port)
  local connection = require("luasql.mysql").mysql():connect("", "root", "", "127.0.0.1", port)
  if not connection then return nil end
  assert(connection:execute("CREATE DATABASE IF NOT EXISTS " .. DATABASE))
  connection:close()
  return true
end

--- Starts a server with default settings; nil: MariaDB or LuaSQL is not installed. `options`: port; data, a directory
-- that outlives the server, for another one.
function mariadb.start(options)
  options = options or {}
  local install, program = server.find "mariadb-install-db", server.find "mariadbd"
  if not install or not program then return nil, "no MariaDB here" end
  if not pcall(require, "luasql.mysql") then return nil, "no LuaSQL for MariaDB here" end
  local port = options.port or server.free_port()
  local user = process.shell("id", "-un"):match "%S+"
  local self = server.start(function(directory)
    local data = (options.data or directory) .. "/data"
    if not process.contents(data .. "/ibdata1") then
      process.shell(install, "--no-defaults", "--datadir=" .. data, "--user=" .. user, "--skip-test-db",
        "--auth-root-authentication-method=normal")
    end
    return { program, "--no-defaults", "--datadir=" .. data, "--user=" .. user, ("--port=%d"):format(port),
      "--bind-address=127.0.0.1", "--socket=" .. directory .. "/socket", "--pid-file=" .. directory .. "/pid" },
      function() return create(port) end
  end)
  self.address = port
  self.version = "MariaDB " .. process.shell(program, "--version"):match "Ver (%d[%d.]*)"
  return self
end

return mariadb
