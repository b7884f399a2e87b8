-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A throw-away Redis.
local process = require "spec.support.process"
local server = require "spec.support.servers.server"

local redis = {}

--- Starts a server with default settings, and further words of its command; nil: Redis is not installed. Its `address`
-- is its port on 127.0.0.1.
function redis.start(...)
  local program = server.find "redis-server"
  if not program then return nil, "no redis-server here" end
  local port = server.free_port()
  local words = { program, "--port", ("%d"):format(port), "--bind", "127.0.0.1", ... }
  local self = server.start(function()
    return words, function() return server.listens(port) end
  end)
  self.address = port
  self.version = "Redis " .. process.shell(program, "--version"):match("v=(%S+)")
  return self
end

-- Debian installs redis-lua for Lua up to 5.3; its file works with 5.4, too.
local function library()
  local found, module = pcall(require, "redis")
  return found and module or dofile "/usr/share/lua/5.3/redis.lua"
end

--- A client of redis-lua.
function redis.connect(port) return library().connect("127.0.0.1", port) end

return redis
