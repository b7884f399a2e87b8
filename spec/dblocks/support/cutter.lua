-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A proxy in front of a database, in a process of its own, which cuts a connection beside a statement.
--
--     local cutter = require "spec.dblocks.support.cutter".start(port)   -- connect to 127.0.0.1, cutter.port
--     cutter:cut("question", 1)     -- the next statement does not reach the server: the connection ends before it
--     cutter:cut("answer", 2)       -- the server executes the next but one, and its answer is lost with the connection
--     cutter:cut("late", 1)         -- the next statement is kept, and the connection to the client ends
--     cutter:deliver()              -- it reaches the server now, which executes it; true, or false: none was kept
--     cutter:cut("nothing", 0)      -- no further statement
--
-- A statement is what a client sends at once: it waits for the answer then. The proxy ends with process.clear().
local process = require "spec.support.process"
local socket = require "socket"
local values = require "spec.support.programs.values"

local cutter = {}
cutter.__index = cutter

function cutter.start(port)
  local self = setmetatable({ process = process.start() }, cutter)
  self.process:begin("require('spec.dblocks.support.cutter').serve(spec, ...)", port)
  self.port = self.process:finish()
  return self
end

function cutter:cut(what, nth)
  assert(self.process.socket:send(values.message(what, nth)))
  return self.process:finish()
end

function cutter:deliver() return self:cut("deliver", 0) end

-- In its process ------------------------------------------------------------------------------------------------------

local function forget(self, ended, kept)
  local other = self.peer[ended]
  for i = #self.sockets, 1, -1 do
    local one = self.sockets[i]
    if one == ended or one == other then
      if one ~= kept then one:close() end
      table.remove(self.sockets, i)
    end
  end
end

local function accept(self)
  local client, server = assert(self.listener:accept()), socket.connect("127.0.0.1", self.server)
  if not server then return client:close() end
  for _, one in ipairs{ client, server } do
    one:settimeout(0)
    one:setoption("tcp-nodelay", true)
    table.insert(self.sockets, one)
  end
  self.peer[client], self.peer[server], self.is_client[client] = server, client, true
end

local function pass(self, from)
  local bytes, err, part = from:receive(65536)
  if err == "closed" then return forget(self, from) end
  if self.is_client[from] and self.left then
    self.left = self.left - 1
    if self.left == 0 then
      self.left = nil
      if self.what == "question" then return forget(self, from) end
      if self.what == "late" then
        self.kept = { self.peer[from], bytes or part }
        return forget(self, from, self.peer[from])
      end
      self.mute = self.peer[from]
    end
  elseif from == self.mute then
    return forget(self, from)
  end
  local to = self.peer[from]
  to:settimeout(5)
  to:send(bytes or part)
  to:settimeout(0)
end

-- Sends what was kept to the server, and waits until that has answered.
local function deliver(self)
  local to, bytes = (table.unpack or unpack)(self.kept or {})
  self.kept = nil
  if not to then return false end
  to:send(bytes)
  local answered = socket.select({ to }, nil, 30)[to] ~= nil
  to:close()
  return answered
end

local function command(self, spec)
  local message = values.receive(spec)
  if not message then return false end
  local result = true
  if message[1] == "deliver" then result = deliver(self) else self.what, self.left = message[1], message[2] end
  if self.left == 0 then self.left = nil end
  spec:send(values.message(result))
  return true
end

--- Sends its port to the spec, then runs until the spec closes its connection.
function cutter.serve(spec, port)
  local self = { listener = assert(socket.bind("127.0.0.1", 0)), server = port, peer = {}, is_client = {} }
  self.sockets = { spec, self.listener }
  spec:send(values.message((select(2, self.listener:getsockname()))))
  while true do
    for _, one in ipairs((socket.select(self.sockets))) do
      if one == spec then
        if not command(self, spec) then return end
      elseif one == self.listener then
        accept(self)
      elseif one:getfd() >= 0 then
        pass(self, one)
      end
    end
  end
end

return cutter
