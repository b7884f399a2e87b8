-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A relay between a client in another process and the broker. It passes the client's frames on one by one, so that a
-- test can stop after any of them.
--
--     local relay = require "spec.support.relay"
--     local between = relay.new()                         -- in front of $AMQP_URL
--     -- a process connects to between.url, then:
--     local came_so_far = between:run(function (frame) return frame.method == "queue.delete" end)
--     between:close()
--
-- It runs only inside of its methods: nothing passes between the calls.
local frames = require "spec.support.frames"
local socket = require "socket"

local relay = {}
relay.__index = relay

--- A new relay. The caller closes it.
function relay.new()
  local self = setmetatable({ listener = assert(socket.bind("127.0.0.1", 0)), links = {} }, relay)
  local _, port = self.listener:getsockname()
  self.url = os.getenv "AMQP_URL":gsub(":%d+$", ":" .. port)
  return self
end

function relay:accept()
  local link = { client = assert(self.listener:accept()), broker = assert(socket.tcp()), bytes = "",
    asking = frames.decoder() }
  assert(link.broker:connect("127.0.0.1", assert(tonumber(os.getenv "AMQP_URL":match ":(%d+)$"))))
  self.links[link] = true
end

local function receive(from)
  from:settimeout(0)
  local bytes, err, partial = from:receive(65536)
  return bytes or partial, err == "closed"
end

local function send(to, bytes)
  to:settimeout(5)
  to:send(bytes)
end

function relay:drop(link)
  link.client:close()
  link.broker:close()
  self.links[link] = nil
end

-- Passes on one frame, and returns it; nil if no whole frame has arrived.
local function hand_on(link)
  local _, _, after = frames.look(link.bytes, 1)
  if not after then return nil end
  local bytes = link.bytes:sub(1, after - 1)
  link.bytes = link.bytes:sub(after)
  send(link.broker, bytes)
  return link.asking:feed(bytes)[1]
end

function relay:read(link, stop)
  local bytes, closed = receive(link.client)
  link.bytes = link.bytes .. bytes
  while stop do
    local frame = hand_on(link)
    if not frame then break end
    if stop(frame) then return true end
  end
  if closed then self:drop(link) end
end

function relay:answer(link)
  local bytes, closed = receive(link.broker)
  send(link.client, bytes)
  if closed then self:drop(link) end
end

-- One round of select. True if `stop` returned true, as for run().
local function turn(self, stop)
  local sockets = { self.listener }
  for link in pairs(self.links) do
    table.insert(sockets, link.client)
    table.insert(sockets, link.broker)
  end
  local readable = socket.select(sockets, nil, 0.05)
  if readable[self.listener] then self:accept() end
  for link in pairs(self.links) do
    if readable[link.broker] then self:answer(link) end
    if self.links[link] and (readable[link.client] or link.bytes ~= "") and self:read(link, stop) then return true end
  end
end

--- A stop for run(), at the n-th frame that is wanted.
function relay.nth(n, wanted)
  local seen = 0
  return function (frame)
    if wanted(frame) then seen = seen + 1 end
    return seen == n
  end
end

--- Passes frames on until `stop` returns true for a passed frame (true), or the administrator has disconnected (false).
-- Without `stop` the administrator's frames are kept, and only answers pass.
function relay:run(stop)
  local deadline, was_there = socket.gettime() + 100, false
  while not turn(self, stop) do
    was_there = was_there or next(self.links) ~= nil
    if was_there and next(self.links) == nil then return false end
    if socket.gettime() > deadline then error("the administrator behind the relay neither came so far nor went", 2) end
  end
  return true
end

function relay:close()
  self.listener:close()
  for link in pairs(self.links) do self:drop(link) end
end

return relay
