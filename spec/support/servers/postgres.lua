-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A throw-away PostgreSQL.
local process = require "spec.support.process"
local server = require "spec.support.servers.server"

local postgres = {}

local DATABASE, USER = "postgres", "bench"

--- A connection of LuaSQL; nil, message: there is none. `user`: one who may do everything by default.
function postgres.connect(port, user)
  return require("luasql.postgres").postgres():connect(DATABASE, user or USER, nil, "127.0.0.1", ("%d"):format(port))
end

-- A prefix for commands: the server refuses to run as root.
local function as_user(...)
  if process.shell("id", "-u"):match "%d+" ~= "0" then return {} end
  process.shell("chown", "postgres:", ...)
  return { "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups" }
end

local function command(prefix, ...)
  local words = {}
  for _, word in ipairs(prefix) do table.insert(words, word) end
  for _, word in ipairs{ ... } do table.insert(words, word) end
  return words
end

--- Starts a server with default settings; nil: PostgreSQL or LuaSQL is not installed. `options`: port; data, a
-- directory that outlives the server, for another one.
function postgres.start(options)
  options = options or {}
  local initdb, program = server.find "initdb", server.find "postgres"
  if not initdb or not program then return nil, "no PostgreSQL here" end
  if not pcall(require, "luasql.postgres") then return nil, "no LuaSQL for PostgreSQL here" end
  local port = options.port or server.free_port()
  local self = server.start(function(directory)
    local prefix = as_user(directory, options.data or directory)
    local data = (options.data or directory) .. "/data"
    if not process.contents(data .. "/PG_VERSION") then
      process.shell((table.unpack or unpack)(command(prefix, initdb, "--pgdata", data, "--username", USER, "--auth",
        "trust")))
    end
    return command(prefix, program, "-D", data, "-p", ("%d"):format(port), "-c", "listen_addresses=127.0.0.1", "-c",
      "unix_socket_directories="), function()
      local try = postgres.connect(port)
      if try then try:close() end
      return try ~= nil
    end, "INT" -- a fast shutdown: SIGTERM would wait for all clients to disconnect
  end)
  self.address = port
  self.crash = "QUIT" -- it kills its own processes; they would keep the directory for a while after SIGKILL
  self.version = "PostgreSQL " .. process.shell(program, "--version"):match "%d[%d.]*"
  return self
end

return postgres
