-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- A worker of the demo: imports a file under a mutex, as often as it is told to.
--   worker.lua PORT NAME TIMES
local dblocks = require "dblocks"
local redis = require "spec.support.servers.redis"
local socket = require "socket"

local port, name, times = tonumber(arg[1]), arg[2], tonumber(arg[3])
local locks = dblocks.redis(function() return redis.connect(port) end, { name = name })
local mutex = locks:mutex("import", "orders")

io.stdout:setvbuf "line"
for _ = 1, times do
  local lock = assert(mutex:acquire { timeout = 60, poll = 0.1 })
  print(name .. " begins " .. lock.ticket)
  socket.sleep(0.3)
  print(name .. " is done")
  assert(lock:release())
end
