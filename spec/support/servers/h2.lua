-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A throw-away H2 in Oracle mode, on which the statements for Oracle are tried. It speaks PostgreSQL's protocol, so
-- LuaSQL for PostgreSQL connects to it.
local process = require "spec.support.process"
local server = require "spec.support.servers.server"

local h2 = {}

local JAR = "/usr/share/java/h2.jar"

local OURS, THEIRS = "DBMS_TRANSACTION%.LOCAL_TRANSACTION_ID%(%)", "TRANSACTION_ID()"

local function connected(port)
  return require("luasql.postgres").postgres():connect("locks", "sa", "sa", "127.0.0.1", ("%d"):format(port))
end

local oracle = {}
oracle.__index = oracle

function oracle:execute(text) return self.connection:execute((text:gsub(OURS, THEIRS))) end

for _, name in ipairs{ "close", "commit", "rollback", "setautocommit" } do
  oracle[name] = function(self, ...) return self.connection[name](self.connection, ...) end
end

--- A connection; nil, message: there is none. H2 lacks one function of Oracle: its own takes its place.
--
-- Each new connection sets the mode of the whole server to that of PostgreSQL, so that a connection may fail while
-- another process sets it back. The statements of dblocks are the same in both modes; only CREATE TABLE is not.
function h2.connect(port)
  local connection, message
  for _ = 1, 10 do
    connection, message = connected(port)
    if connection then break end
    if not server.listens(port) then break end
  end
  if not connection then return nil, message end
  assert(connection:execute "SET MODE Oracle")
  assert(connection:execute "SET WRITE_DELAY 0") -- otherwise it loses what it has committed last when it is killed
  return setmetatable({ connection = connection }, oracle)
end

--- Starts a server; nil: H2, Java or LuaSQL is not installed. `options`: port; data, a directory that outlives the
-- server, for another one.
function h2.start(options)
  options = options or {}
  local java = server.find "java"
  if not java or not process.contents(JAR) then return nil, "no H2 here" end
  if not pcall(require, "luasql.postgres") then return nil, "no LuaSQL for PostgreSQL here" end
  local port = options.port or server.free_port()
  local self = server.start(function(directory)
    return { java, "-Xmx256m", "-cp", JAR, "org.h2.tools.Server", "-pg", "-pgPort", ("%d"):format(port), "-ifNotExists",
      "-baseDir", options.data or directory }, function()
      local try = connected(port)
      if try then try:close() end
      return try ~= nil
    end
  end)
  self.address = port
  return self
end

return h2
