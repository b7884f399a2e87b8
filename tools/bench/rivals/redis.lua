-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Locks in Redis, of three kinds.
--   again    as its documentation describes it: SET with NX, PX and a random value; a script deletes the key if it
--            still has that value. A waiter tries again every 200 ms, give or take 100.
--   told     the same, but the releasing client notifies the waiters, as in Redisson. A process subscribes when it
--            first waits, once for all. Without a notice a waiter tries again when the key has expired.
--   tokens   a list of one token: BLPOP takes it, LPUSH gives it back. The server hands it to the first waiter. There
--            is no time to live: a token is lost with the process that has taken it.
local socket = require "socket"
local server = require "spec.support.servers.redis"

local redis = {}
local client = {}
client.__index = client

local RETRY, JITTER = 0.2, 0.1

-- The key's time to live in ms, if another has it.
local TRY = [[
  if not redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return redis.call("pttl", KEYS[1]) end
]]

local RELEASE = [[
  if redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 end
  redis.call("del", KEYS[1])
  if ARGV[2] == "told" then redis.call("publish", KEYS[1], "free") end
  return 1
]]

local CREATE = [[
  if redis.call("setnx", KEYS[1] .. ":created", 1) == 1 then redis.call("lpush", KEYS[1], "token") end
]]

redis.start = server.start

-- The protocol --------------------------------------------------------------------------------------------------------

local function write(connection, ...)
  local words = { ("*%d\r\n"):format(select("#", ...)) }
  for i = 1, select("#", ...) do
    local word = tostring((select(i, ...)))
    words[i + 1] = ("$%d\r\n%s\r\n"):format(#word, word)
  end
  assert(connection:send(table.concat(words)))
end

local function read(connection)
  local line, problem = connection:receive("*l")
  if not line then return nil, problem end
  local kind, rest = line:sub(1, 1), line:sub(2)
  if kind == "-" then error(rest) end
  if kind == "+" then return rest end
  if kind == ":" then return tonumber(rest) end
  if rest == "-1" then return nil end
  if kind == "$" then return (assert(connection:receive(tonumber(rest) + 2)):sub(1, -3)) end
  local list = {}
  for i = 1, tonumber(rest) do list[i] = read(connection) end
  return list
end

local function call(connection, ...)
  write(connection, ...)
  return read(connection)
end

local function connect(port)
  local connection = assert(socket.connect("127.0.0.1", port))
  connection:setoption("tcp-nodelay", true)
  return connection
end

-- The locks -----------------------------------------------------------------------------------------------------------

--- A lock's object in a client: `seconds` is the key's time to live.
function redis.open(port, name, seconds, kind)
  local self = setmetatable({ connection = connect(port), name = name, milliseconds = seconds * 1000, kind = kind,
    port = port, count = 0 }, client)
  if kind == "tokens" then call(self.connection, "EVAL", CREATE, 1, name) end
  self.try_script = call(self.connection, "SCRIPT", "LOAD", TRY)
  self.release_script = call(self.connection, "SCRIPT", "LOAD", RELEASE)
  local random = assert(io.open("/dev/urandom", "rb"))
  self.who = random:read(16):gsub(".", function(char) return ("%02x"):format(char:byte()) end)
  math.randomseed(tonumber(self.who:sub(1, 7), 16))
  random:close()
  return self
end

local acquire = {}

function acquire.again(self)
  while call(self.connection, "SET", self.name, self.value, "NX", "PX", self.milliseconds) ~= "OK" do
    socket.sleep(RETRY + (math.random() * 2 - 1) * JITTER)
  end
end

local function has_notice(self, seconds) return socket.select({ self.ear }, nil, seconds)[self.ear] end

-- Notices from before a try say nothing about the time after it.
function acquire.told(self)
  while true do
    while self.ear and has_notice(self, 0) do read(self.ear) end
    local left = call(self.connection, "EVALSHA", self.try_script, 1, self.name, self.value, self.milliseconds)
    if not left then return end
    if self.ear then
      has_notice(self, left / 1000)
    else
      self.ear = connect(self.port)
      call(self.ear, "SUBSCRIBE", self.name)
    end
  end
end

function acquire.tokens(self) call(self.connection, "BLPOP", self.name, 0) end

function client:acquire()
  self.count = self.count + 1
  self.value = self.who .. self.count
  acquire[self.kind](self)
end

function client:release()
  if self.kind == "tokens" then return call(self.connection, "LPUSH", self.name, "token") end
  local done = call(self.connection, "EVALSHA", self.release_script, 1, self.name, self.value, self.kind)
  assert(done == 1, "it had run out")
end

function client:close()
  self.connection:close()
  if self.ear then self.ear:close() end
end

return redis
