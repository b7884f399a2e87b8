-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Servers that a bench compares with: each in a folder of its own, on free loopback ports, ended by its process id;
-- also when the bench dies first.
local socket = require "socket"
local process = require "spec.support.process"
local until_true = require "spec.support.until"

local server = {}
server.__index = server

--- Where a program is; nil: it is not on this machine.
function server.find(program)
  local fine, path = pcall(process.shell, "sh", "-c", 'PATH="$PATH:/usr/sbin" command -v "$1"', "sh", program)
  return fine and path:match("%S+") or nil
end

--- A port that nobody listens on.
function server.free_port()
  local listener = assert(socket.bind("127.0.0.1", 0))
  local _, port = listener:getsockname()
  listener:close()
  return port
end

-- Its keeper ends it, and clears up, as soon as either of us has ended.
local START = [[
  cd "$1" && bench=$2 && shift 2
  setsid "$@" </dev/null >log 2>&1 &
  pid=$!
  setsid sh -c 'tail -f /dev/null --pid="$1"; kill "$2" 2>/dev/null; tail -f /dev/null --pid="$2"; rm -rf "$3"' keeper \
    "$bench" "$pid" "$PWD" </dev/null >/dev/null 2>&1 &
  echo "$pid"
]]

--- Starts one: start(directory) gives the words of its command and a function that tells whether it serves.
function server.start(describe)
  local self = setmetatable({ directory = process.directory() }, server)
  local words, serves = describe(self.directory)
  self.pid = tonumber(process.shell("bash", "-c", process.LAUNCH, "launch", "sh", "-c", START, "sh", self.directory,
    tostring(process.id()), (table.unpack or unpack)(words)):match("%d+"))
  until_true(function() return serves(), words[1] .. " does not serve" end, 20)
  return self
end

--- Ends it in good order.
function server:stop()
  process.shell("sh", "-c", 'kill "$1" && tail -f /dev/null --pid="$1"', "sh", tostring(self.pid))
end

return server
