-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- A worker of the demo: imports a file under a mutex, as often as it is told to.
--   worker.lua PORT NAME TIMES LOG
-- All workers append to one file, so its lines are in the order of events.
local dblocks = require "dblocks"
local redis = require "spec.support.servers.redis"
local socket = require "socket"

local port, name, times, log = tonumber(arg[1]), arg[2], tonumber(arg[3]), assert(io.open(arg[4], "a"))
local locks = dblocks.redis(function() return redis.connect(port) end, { name = name })
local mutex = locks:mutex("import", "orders")

log:setvbuf "line"
for _ = 1, times do
  local lock = assert(mutex:acquire { timeout = 60, poll = 0.1 })
  log:write(name, " begins ", lock.ticket, "\n")
  socket.sleep(0.3)
  log:write(name, " is done\n")
  assert(lock:release())
end
