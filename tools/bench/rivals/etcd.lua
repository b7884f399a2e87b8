-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A lock in etcd, by its own lock service (v3lockpb, over gRPC). A session keeps a lease alive, and each lock is a key
-- with that lease; the server notifies waiters. This file implements only the part of HTTP/2 and Protocol Buffers that
-- this needs.
local socket = require "socket"
local process = require "spec.support.process"
local server = require "spec.support.servers.server"
local until_true = require "spec.support.until"

local etcd = {}
local client = {}
client.__index = client

local DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 4, 6, 7, 8
local END_STREAM, ACK, END_HEADERS = 1, 1, 4

local function is_well(port)
  local try = socket.connect("127.0.0.1", port)
  if not try then return false end
  try:send("GET /health HTTP/1.0\r\n\r\n")
  local answer = try:receive("*a")
  try:close()
  return answer and answer:find('"health":"true"', 1, true) ~= nil
end

--- Starts a cluster of so many servers, with default settings; nil: etcd is not installed. Its address is the first's.
function etcd.start(count)
  local program = server.find "etcd"
  if not program then return nil, "no etcd here" end
  local ports, peers, words, servers = {}, {}, {}, {}
  for i = 1, count or 1 do
    ports[i], peers[i] = server.free_port(), server.free_port()
    words[i] = ("node-%d=http://127.0.0.1:%d"):format(i, peers[i])
  end
  for i, port in ipairs(ports) do
    local here, there = "http://127.0.0.1:" .. port, "http://127.0.0.1:" .. peers[i]
    servers[i] = server.start(function(directory)
      return { program, "--name", "node-" .. i, "--data-dir", directory .. "/data", "--listen-client-urls", here,
        "--advertise-client-urls", here, "--listen-peer-urls", there, "--initial-advertise-peer-urls", there,
        "--initial-cluster", table.concat(words, ","), "--logger", "zap" },
        function() return server.listens(peers[i]) end
    end)
  end
  until_true(function() return is_well(ports[1]) end, 60)
  local version = process.shell(program, "--version"):match("Version: (%S+)")
  return { address = ports[1], version = "etcd " .. version, stop = function()
    for _, one in ipairs(servers) do one:stop() end
  end }
end

-- Protocol Buffers: fields with numbers below 16, of numbers or strings ----------------------------------------------

local function varint(value)
  local bytes = ""
  while value >= 128 do
    bytes, value = bytes .. string.char(value % 128 + 128), math.floor(value / 128)
  end
  return bytes .. string.char(value)
end

-- A number is given as its encoded bytes: a lease id is too large for some versions of Lua.
local function number_field(number, bytes) return string.char(number * 8) .. bytes end

local function text_field(number, text) return string.char(number * 8 + 2) .. varint(#text) .. text end

local function varint_at(message, at)
  local last = at
  while message:byte(last) >= 128 do last = last + 1 end
  local value = 0
  for i = last, at, -1 do value = value * 128 + message:byte(i) % 128 end
  return last + 1, value
end

-- The field of this number, as a string of bytes.
local function field(message, wanted)
  local at = 1
  while at <= #message do
    local tag = message:byte(at)
    local from, value = varint_at(message, at + 1)
    local bytes = message:sub(at + 1, from - 1)
    if tag % 8 == 2 then
      bytes = message:sub(from, from + value - 1)
      from = from + value
    end
    if math.floor(tag / 8) == wanted then return bytes end
    at = from
  end
end

-- HTTP/2 and gRPC ----------------------------------------------------------------------------------------------------

local function big_endian(value, bytes)
  local text = ""
  for _ = 1, bytes do
    text, value = string.char(value % 256) .. text, math.floor(value / 256)
  end
  return text
end

local function number(text)
  local value = 0
  for i = 1, #text do value = value * 256 + text:byte(i) end
  return value
end

local function frame(kind, flags, stream, payload)
  return big_endian(#payload, 3) .. string.char(kind, flags) .. big_endian(stream, 4) .. payload
end

local function header(name, value) return "\0" .. varint(#name) .. name .. varint(#value) .. value end

local POST_HTTP = "\131\134" -- indices of the static table: ":method: POST", ":scheme: http"
local LARGE = 2 ^ 31 - 1 - 65535

-- Begins a call; returns its stream's number.
local function begin(self, path, message)
  self.stream = self.stream + 2
  local headers = POST_HTTP .. header(":path", path) .. header(":authority", "127.0.0.1")
    .. header("content-type", "application/grpc") .. header("te", "trailers")
  assert(self.socket:send(frame(HEADERS, END_HEADERS, self.stream, headers)
    .. frame(DATA, END_STREAM, self.stream, "\0" .. big_endian(#message, 4) .. message)))
  return self.stream
end

local function keep_lease(self)
  self.kept = socket.gettime()
  begin(self, "/etcdserverpb.Lease/LeaseKeepAlive", number_field(1, self.lease))
end

-- A waiting or working client renews the lease, at every third of its time.
local function await_bytes(self)
  while true do
    local left = self.lease and self.kept + self.seconds / 3 - socket.gettime()
    if left and left <= 0 then keep_lease(self) end
    if socket.select({ self.socket }, nil, left and math.max(left, 0))[self.socket] then return end
  end
end

local function finish(self, stream)
  local answer = ""
  while true do
    await_bytes(self)
    local head = assert(self.socket:receive(9))
    local length, kind, flags, of = number(head:sub(1, 3)), head:byte(4), head:byte(5), number(head:sub(6, 9))
    local payload = length > 0 and assert(self.socket:receive(length)) or ""
    if kind == SETTINGS and flags ~= ACK then assert(self.socket:send(frame(SETTINGS, ACK, 0, ""))) end
    if kind == PING and flags ~= ACK then assert(self.socket:send(frame(PING, ACK, 0, payload))) end
    if kind == GOAWAY then error("etcd goes away: " .. payload:sub(9)) end
    if kind == DATA and of == stream then answer = answer .. payload end
    if (kind == DATA or kind == HEADERS) and of == stream and flags % 2 == END_STREAM then break end
  end
  assert(answer ~= "", "etcd refused a call")
  return answer:sub(6)
end

local function call(self, path, message) return finish(self, begin(self, path, message)) end

-- The lock -----------------------------------------------------------------------------------------------------------

--- A lock's object in a client: `seconds` is its lease's time to live.
function etcd.open(port, name, seconds)
  local self = setmetatable({ socket = assert(socket.connect("127.0.0.1", port)), name = name, seconds = seconds,
    stream = -1 }, client)
  self.socket:setoption("tcp-nodelay", true)
  assert(self.socket:send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" .. frame(SETTINGS, 0, 0, "")
    .. frame(WINDOW, 0, 0, big_endian(LARGE, 4))))
  self.lease = assert(field(call(self, "/etcdserverpb.Lease/LeaseGrant", number_field(1, varint(seconds))), 2))
  self.kept = socket.gettime()
  return self
end

function client:acquire()
  local answer = call(self, "/v3lockpb.Lock/Lock", text_field(1, self.name) .. number_field(2, self.lease))
  self.key = assert(field(answer, 2))
end

function client:release() call(self, "/v3lockpb.Lock/Unlock", text_field(1, self.key)) end

--- Ends the session, and releases its locks.
function client:close()
  call(self, "/etcdserverpb.Lease/LeaseRevoke", number_field(1, self.lease))
  self.socket:close()
end

return etcd
