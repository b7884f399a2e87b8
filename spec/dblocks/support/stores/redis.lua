-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- db-locks on a throw-away Redis: see stores/README.md.
local process = require "spec.support.process"
local server = require "spec.support.servers.redis"

local redis = {}

function redis.start() return server.start("--save", "") end

--- The server closes all connections.
function redis.cut(self)
  process.shell("redis-cli", "-p", tostring(self.address), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
end

function redis.code(self)
  return ([[
    local redis = require "spec.support.servers.redis"
    return require("dblocks").redis(function() return redis.connect(%d) end, ...)
  ]]):format(self.address)
end

function redis.pair(self)
  local one = server.connect(self.address)
  return function()
    assert(one:set("bare", "a ticket", "NX"))
    one:del "bare"
  end
end

return redis
