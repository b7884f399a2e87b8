-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The proxy of spec/support/proxy.lua: the code that runs in its own process.
local socket = require "socket"
local url = require "socket.url"
local values = require "spec.support.programs.values"

local proxy = {}

local HEADER, METHOD, HEARTBEAT = "AMQP", 1, 8
local TRICKLE, TICK = 20, 0.02 -- bytes, each so many seconds

-- The length and the kind of the first frame of some bytes; nil if the frame is not complete.
local function frame_at(bytes)
  if #bytes < 8 then return nil end
  if bytes:sub(1, 4) == HEADER then return 8 end
  local a, b, c, d = bytes:byte(4, 7)
  local size = 8 + ((a * 256 + b) * 256 + c) * 256 + d
  if #bytes >= size then return size, bytes:byte() end
end

local function send(to, bytes)
  if #bytes == 0 then return end
  to:settimeout(5)
  to:send(bytes)
  to:settimeout(0)
end

local function legs(pair, direction)
  if direction == "up" then return pair.client, pair.broker end
  return pair.broker, pair.client
end

local function switch(self, index, direction, mode)
  for i, pair in ipairs(self.pairs) do
    if index == 0 or index == i then
      if mode == "pass" then
        send(select(2, legs(pair, direction)), pair.kept[direction])
        pair.kept[direction] = ""
      end
      pair[direction] = mode
    end
  end
  if index <= 0 then self.modes[direction] = mode end -- below 0: future connections only
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
  if self.refuses then return client:close() end
  local address = self.addresses[#self.pairs % #self.addresses + 1]
  local broker = socket.connect(address.host, address.port or 5672)
  if not broker then return client:close() end -- as if no broker listened
  for _, one in ipairs{ client, broker } do
    one:settimeout(0)
    one:setoption("tcp-nodelay", true)
  end
  table.insert(self.pairs, { client = client, broker = broker, up = self.modes.up, down = self.modes.down,
    rest = { up = "", down = "" }, kept = { up = "", down = "" },
    counts = { up = { frames = 0, heartbeats = 0 }, down = { frames = 0, heartbeats = 0 } } })
end

-- Counts the AMQP frames from one side, and heartbeats separately.
local function count(pair, direction, bytes)
  local counts, rest = pair.counts[direction], pair.rest[direction] .. bytes
  local size, kind = frame_at(rest)
  while size do
    if kind then
      local which = kind == HEARTBEAT and "heartbeats" or "frames"
      counts[which] = counts[which] + 1
    end
    rest = rest:sub(size + 1)
    size, kind = frame_at(rest)
  end
  pair.rest[direction] = rest
end

-- The position of the next frame with this method in these bytes, and of the frame after it.
local function method_at(wanted, bytes)
  local at = 1
  while true do
    local size, kind = frame_at(bytes:sub(at))
    if not size then return nil end
    local _, class, _, method = bytes:byte(at + 7, at + 10)
    if kind == METHOD and class == wanted.class and method == wanted.method
      and (not wanted.matches or wanted.matches(bytes, at + 11)) then
      return at, at + size
    end
    at = at + size
  end
end

-- For a queue.declare whose fields begin here: after a number and the name come the bits passive, durable, exclusive.
local function is_exclusive(bytes, fields)
  local bits = bytes:byte(fields + 3 + bytes:byte(fields + 2))
  return math.floor(bits / 4) % 2 == 1
end

local CLAIMED = { direction = "up", class = 50, method = 10, matches = is_exclusive, arrives = true, cuts = true }

local function trickle(self)
  for _, pair in ipairs(self.pairs) do
    for _, direction in ipairs{ "up", "down" } do
      local _, to = legs(pair, direction)
      if pair[direction] == "trickle" and to:getfd() >= 0 then
        send(to, pair.kept[direction]:sub(1, TRICKLE))
        pair.kept[direction] = pair.kept[direction]:sub(TRICKLE + 1)
      end
    end
  end
end

-- One direction of a connection. If the other direction was cut, or the notice of its end is to be lost, this one stays
-- open and silent. If the peer closed the other one, this one is closed, too.
local function carry(self, pair, direction)
  local from, to = legs(pair, direction)
  if pair[direction] == "hold" then return end -- switched meanwhile: the bytes stay in the socket
  local bytes, err, partial = from:receive(65536)
  bytes = bytes or partial
  local mode = (pair.broker_cut or pair.client_cut) and "drop" or pair[direction]
  local ending = mode == "pass" and self.ending and self.ending.direction == direction and self.ending
  local last -- of the bytes that pass, if they contain the method at which the connection is to end
  if ending then
    local at, behind = method_at(ending, pair.rest[direction] .. bytes)
    last = at and math.max((ending.arrives and behind or at) - #pair.rest[direction] - 1, 0)
  end
  count(pair, direction, bytes)
  if last then
    send(to, bytes:sub(1, last))
    if ending.cuts then
      pair.client:close()
      pair.broker:close()
    end
    pair.up, pair.down, self.ending = "drop", "drop", nil
    return
  end
  if mode == "trickle" then
    pair.kept[direction] = pair.kept[direction] .. bytes
  elseif mode == "pass" or mode == "endless" then
    send(to, bytes)
  end
  if err == "closed" then
    from:close()
    if mode == "pass" or mode == "trickle" then to:close() end
    pair.kept = { up = "", down = "" }
  end
end

local function readable(self, spec)
  local list, jobs, trickles = { spec }, {}, false
  if not self.is_shut then table.insert(list, self.server) end
  for _, pair in ipairs(self.pairs) do
    for _, direction in ipairs{ "up", "down" } do
      local from = legs(pair, direction)
      trickles = trickles or #pair.kept[direction] > 0 and pair[direction] == "trickle"
      if pair[direction] ~= "hold" and from:getfd() >= 0 then
        table.insert(list, from)
        jobs[from] = function() carry(self, pair, direction) end
      end
    end
  end
  return socket.select(list, nil, trickles and TICK or nil), jobs, trickles
end

local acts = {
  switch = switch, cut = cut,
  ["lose nothing"] = function(self) self.ending = nil end,
  ["cut claiming"] = function(self) self.ending = CLAIMED end,
  lose = function(self, class, method, cuts)
    self.ending = { direction = "down", class = class, method = method, cuts = cuts }
  end,
  refuse = function(self, is_on) self.refuses = is_on end,
  open = function(self)
    assert(self.server:listen(32))
    self.is_shut = false
  end,
}

local function obey(self, spec)
  local message = values.receive(spec)
  if not message then return false end
  if acts[message[1]] then acts[message[1]](self, values.unpack(message, 2, 4)) end
  local frames, heartbeats = 0, 0
  for _, pair in ipairs(self.pairs) do
    for _, counts in pairs(pair.counts) do
      frames, heartbeats = frames + counts.frames, heartbeats + counts.heartbeats
    end
  end
  spec:send(values.message(#self.pairs, frames, heartbeats))
  return true
end

--- Listens at the address `host`, and sends its port to the spec. Then runs until the spec closes its connection.
-- Connections lead to these URLs' hosts and ports in turn. `is_shut`: the port is taken, and refuses connections until
-- "open".
function proxy.serve(spec, host, is_shut, ...)
  local self = { server = assert(socket.tcp()), addresses = {}, pairs = {}, is_shut = is_shut,
    modes = { up = "pass", down = "pass" } }
  assert(self.server:bind(host, 0))
  if not is_shut then assert(self.server:listen(32)) end
  for _, address in ipairs{ ... } do table.insert(self.addresses, url.parse(address)) end
  local _, own = self.server:getsockname()
  spec:send(values.message(own))
  while true do
    local ready, jobs, trickles = readable(self, spec)
    if trickles then trickle(self) end
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
