-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The proxy of spec/support/proxy.lua, as it runs in its own process.
local socket = require "socket"
local values = require "spec.support.programs.values"

local proxy = {}

local function switch(self, index, direction, mode)
  for i, pair in ipairs(self.pairs) do
    if index == 0 or index == i then pair[direction] = mode end
  end
  if index == 0 then self.modes[direction] = mode end
end

local function cut(self, index, side)
  for i, pair in ipairs(self.pairs) do
    if index == 0 or index == i then
      if side ~= "broker" then pair.client:close() end
      if side ~= "client" then pair.broker:close() end
      pair[side .. "_cut"] = true
    end
  end
end

local function open(self)
  local client = assert(self.server:accept())
  local broker = assert(socket.connect(self.host, self.port))
  for _, one in ipairs{ client, broker } do
    one:settimeout(0)
    one:setoption("tcp-nodelay", true)
  end
  table.insert(self.pairs, { client = client, broker = broker, up = self.modes.up, down = self.modes.down,
    rest = { up = "", down = "" },
    counts = { up = { frames = 0, heartbeats = 0 }, down = { frames = 0, heartbeats = 0 } } })
end

local HEADER, HEARTBEAT = "AMQP", 8

-- Counts the AMQP frames that came from one side, heartbeats apart.
local function count(pair, direction, bytes)
  local counts, rest = pair.counts[direction], pair.rest[direction] .. bytes
  while #rest >= 8 do
    local size = 8
    if rest:sub(1, 4) ~= HEADER then
      local a, b, c, d = rest:byte(4, 7)
      size = 8 + ((a * 256 + b) * 256 + c) * 256 + d
      if #rest < size then break end
      local kind = rest:byte() == HEARTBEAT and "heartbeats" or "frames"
      counts[kind] = counts[kind] + 1
    end
    rest = rest:sub(size + 1)
  end
  pair.rest[direction] = rest
end

-- A leg that is still open keeps quiet when the other one was cut, or when the news of its end gets lost; otherwise,
-- when the peer ended it, so ends the other.
local function carry(pair, direction, from, to)
  local bytes, err, partial = from:receive(65536)
  bytes = bytes or partial
  count(pair, direction, bytes)
  local mode = (pair.broker_cut or pair.client_cut) and "drop" or pair[direction]
  if (mode == "pass" or mode == "endless") and #bytes > 0 then
    to:settimeout(5)
    to:send(bytes)
    to:settimeout(0)
  end
  if err == "closed" then
    from:close()
    if mode == "pass" then to:close() end
  end
end

local function readable(self, spec)
  local list, jobs = { self.server, spec }, {}
  for _, pair in ipairs(self.pairs) do
    for direction, ends in pairs{ up = { pair.client, pair.broker }, down = { pair.broker, pair.client } } do
      local from, to = ends[1], ends[2]
      if pair[direction] ~= "hold" and from:getfd() >= 0 then
        table.insert(list, from)
        jobs[from] = function() carry(pair, direction, from, to) end
      end
    end
  end
  return socket.select(list), jobs
end

local function obey(self, spec)
  local message = values.receive(spec)
  if not message then return false end
  if message[1] == "switch" then switch(self, message[2], message[3], message[4]) end
  if message[1] == "cut" then cut(self, message[2], message[3]) end
  local frames, heartbeats = 0, 0
  for _, pair in ipairs(self.pairs) do
    for _, counts in pairs(pair.counts) do
      frames, heartbeats = frames + counts.frames, heartbeats + counts.heartbeats
    end
  end
  spec:send(values.message(#self.pairs, frames, heartbeats))
  return true
end

--- Tells the spec its port, then serves until the spec hangs up.
function proxy.serve(spec, host, port)
  local self = { server = assert(socket.bind("127.0.0.1", 0)), host = host, port = port, pairs = {},
    modes = { up = "pass", down = "pass" } }
  local _, own = self.server:getsockname()
  spec:send(values.message(own))
  while true do
    local ready, jobs = readable(self, spec)
    for _, one in ipairs(ready) do
      if one == self.server then
        open(self)
      elseif one == spec then
        if not obey(self, spec) then return end
      elseif one:getfd() >= 0 then
        jobs[one]()
      end
    end
  end
end

return proxy
