-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A distant broker: a relay in a process of its own that passes all bytes on after a fixed delay.
--
--     local distant = require "tools.bench.parts.distant"
--     local url = distant.start(0.05)           -- 50 ms each way, in front of $AMQP_URL
--
-- An operation of n round trips then takes n times 100 ms and a little more, over any connections. It ends with
-- process.clear().
local socket = require "socket"
local socket_url = require "socket.url"
local process = require "spec.support.process"
local values = require "spec.support.programs.values"

local distant = {}

function distant.start(seconds)
  local parts = socket_url.parse(os.getenv "AMQP_URL")
  local relay = process.start()
  relay:begin("require('tools.bench.parts.distant').serve(spec, ...)", parts.host, tonumber(parts.port), seconds)
  parts.host, parts.port, parts.authority = "127.0.0.1", ("%d"):format(relay:finish()), nil
  return socket_url.build(parts)
end

-- In its process -----------------------------------------------------------------------------------------------------

local function accept(self)
  local client, broker = assert(self.server:accept()), assert(socket.connect(self.host, self.port))
  for _, one in ipairs{ client, broker } do
    one:settimeout(0)
    one:setoption("tcp-nodelay", true)
  end
  self.peer[client], self.peer[broker] = broker, client
  table.insert(self.sockets, client)
  table.insert(self.sockets, broker)
end

local function forget(self, ended)
  for i = #self.sockets, 1, -1 do
    local one = self.sockets[i]
    if one == ended or one == self.peer[ended] then
      one:close()
      table.remove(self.sockets, i)
    end
  end
end

local function take(self, from)
  local bytes, err, part = from:receive(65536)
  table.insert(self.under_way, { due = socket.gettime() + self.seconds, to = self.peer[from], bytes = bytes or part,
    last = err == "closed" })
  if err ~= "closed" then return end
  for i, one in ipairs(self.sockets) do -- the socket stays readable from now on
    if one == from then return table.remove(self.sockets, i) end
  end
end

local function send(to, bytes)
  to:settimeout(5)
  to:send(bytes)
  to:settimeout(0)
end

-- All bytes have the same delay, so bytes that came first are due first.
local function deliver(self)
  local now = socket.gettime()
  while self.under_way[1] and self.under_way[1].due <= now do
    local one = table.remove(self.under_way, 1)
    if one.to:getfd() >= 0 then send(one.to, one.bytes) end
    if one.last then forget(self, one.to) end
  end
end

--- Sends its port to the bench, then runs until the bench closes its connection.
function distant.serve(bench, host, port, seconds)
  local self = { server = assert(socket.bind("127.0.0.1", 0)), host = host, port = port, seconds = seconds,
    sockets = {}, peer = {}, under_way = {} }
  self.sockets[1], self.sockets[2] = bench, self.server
  bench:send(values.message((select(2, self.server:getsockname()))))
  while true do
    local first = self.under_way[1]
    local readable = socket.select(self.sockets, nil, first and math.max(0, first.due - socket.gettime()))
    if readable[bench] then return end
    for _, one in ipairs(readable) do
      if one == self.server then accept(self) else take(self, one) end
    end
    deliver(self)
  end
end

return distant
