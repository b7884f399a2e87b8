-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Servers other than RabbitMQ, for the bench and for db-locks: each in a directory of its own, on free loopback ports.
-- Each is ended by its process id, also when the program that has started it dies first.
local socket = require "socket"
local process = require "spec.support.process"
local until_true = require "spec.support.until"

local server = {}
server.__index = server

-- Debian has the programs of each PostgreSQL version in a directory of their own; the newest is used.
local FIND = [[
  PATH=$PATH:/usr/sbin:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
  command -v "$1"
]]

--- The path of a program; nil: it is not installed.
function server.find(program)
  local fine, path = pcall(process.shell, "sh", "-c", FIND, "sh", program)
  return fine and path:match("%S+") or nil
end

--- A free port.
function server.free_port()
  local listener = assert(socket.bind("127.0.0.1", 0))
  local _, port = listener:getsockname()
  listener:close()
  return port
end

--- Whether something listens on this port, of 127.0.0.1 unless another address is given.
function server.listens(port, address)
  local try = socket.connect(address or "127.0.0.1", port)
  if try then try:close() end
  return try ~= nil
end

-- Its keeper ends it and removes its directory as soon as that program or the server has ended.
local START = [[
  cd "$1" && starter=$2 signal=$3 && shift 3
  setsid "$@" </dev/null >log 2>&1 &
  pid=$!
  setsid sh -c 'tail -f /dev/null --pid="$1"; kill -s "$4" "$2" 2>/dev/null; tail -f /dev/null --pid="$2"
    rm -rf "$3"' keeper "$starter" "$pid" "$PWD" "$signal" </dev/null >/dev/null 2>&1 &
  echo "$pid"
]]

--- Starts a server. describe(directory) returns the words of its command, a function that tells whether it serves, and
-- the signal for a clean shutdown (TERM by default).
function server.start(describe)
  local self = setmetatable({ directory = process.directory() }, server)
  local words, serves, signal = describe(self.directory)
  self.signal = signal or "TERM"
  self.pid = tonumber(process.shell("bash", "-c", process.LAUNCH, "launch", "sh", "-c", START, "sh", self.directory,
    tostring(process.id()), self.signal, (table.unpack or unpack)(words)):match("%d+"))
  until_true(function() return serves(), words[1] .. " does not serve" end)
  return self
end

local function finish(self, signal)
  process.shell("sh", "-c", 'kill -s "$2" "$1" && tail -f /dev/null --pid="$1"', "sh", tostring(self.pid), signal)
end

--- Stops it cleanly.
function server:stop() finish(self, self.signal) end

--- Ends it as a crash does.
function server:kill() finish(self, self.crash or "KILL") end

return server
