-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A throw-away Redis.
local socket = require "socket"
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
    return words, function()
      local try = socket.connect("127.0.0.1", port)
      if try then try:close() end
      return try ~= nil
    end
  end)
  self.address = port
  self.version = "Redis " .. process.shell(program, "--version"):match("v=(%S+)")
  return self
end

return redis
