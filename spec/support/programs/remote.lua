-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The other end of spec/support/process.lua:
--   lua remote.lua PORT
-- It connects to the spec, sends its process id, then runs the code that it receives until the spec closes the
-- connection. Errors are not caught. Code that runs for longer finds the connection to the spec in the global `spec`.
local socket = require "socket"
local values = require "spec.support.programs.values"

local load_text = loadstring or load -- luacheck: ignore 113

local function obey(spec)
  local message = values.receive(spec)
  if not message then return false end
  local code = assert(load_text(message[1], "=(the spec)"))
  spec:send(values.message(code(values.unpack(message, 2, message.n))))
  return true
end

local file = assert(io.open("/proc/self/stat"))
local pid = file:read("*n")
file:close()

local spec = assert(socket.connect("127.0.0.1", tonumber(arg[1])))
spec:setoption("tcp-nodelay", true)
spec:send(values.message(pid))
rawset(_G, "spec", spec)
while obey(spec) do end -- luacheck: ignore 542
