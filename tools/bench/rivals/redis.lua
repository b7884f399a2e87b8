-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A lock in Redis as its documentation describes it: SET with NX, PX and a random value; a script deletes the key if
-- it still has that value. A waiter retries every 200 ms, give or take 100 (`redis`). Or the releasing client notifies
-- it, as in Redisson, and otherwise it retries when the key has expired (`redis-told`).
local socket = require "socket"
local server = require "spec.support.servers.redis"

local redis = {}
local client = {}
client.__index = client

local RETRY, JITTER = 0.2, 0.1

local RELEASE = [[
  if redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 end
  redis.call("del", KEYS[1])
  if ARGV[2] then redis.call("publish", KEYS[1], "free") end
  return 1
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

-- The lock ------------------------------------------------------------------------------------------------------------

--- A lock's object in a client: `seconds` is the key's time to live.
function redis.open(port, name, seconds, told)
  local self = setmetatable({ connection = connect(port), name = name, milliseconds = seconds * 1000, told = told,
    port = port }, client)
  self.release_script = call(self.connection, "SCRIPT", "LOAD", RELEASE)
  local random = assert(io.open("/dev/urandom", "rb"))
  self.who = random:read(16):gsub(".", function(char) return ("%02x"):format(char:byte()) end)
  math.randomseed(tonumber(self.who:sub(1, 7), 16))
  random:close()
  self.count = 0
  return self
end

function client:try()
  self.count = self.count + 1
  self.value = self.who .. self.count
  return call(self.connection, "SET", self.name, self.value, "NX", "PX", self.milliseconds) == "OK"
end

-- Waits for the notice of the releasing client, at most as long as the key lives.
local function listen(self)
  local left = call(self.connection, "PTTL", self.name)
  if left < 0 then return end -- the key does not exist any more
  self.ear:settimeout(left / 1000)
  read(self.ear)
end

function client:acquire()
  if self:try() then return end
  if self.told and not self.ear then
    self.ear = connect(self.port)
    call(self.ear, "SUBSCRIBE", self.name)
  end
  while not self:try() do
    if self.told then listen(self) else socket.sleep(RETRY + (math.random() * 2 - 1) * JITTER) end
  end
  if self.ear then -- the next wait must not read notices of this one
    self.ear:close()
    self.ear = nil
  end
end

function client:release()
  local done = self.told and call(self.connection, "EVALSHA", self.release_script, 1, self.name, self.value, "told")
    or not self.told and call(self.connection, "EVALSHA", self.release_script, 1, self.name, self.value)
  assert(done == 1, "it had run out")
end

function client:close() self.connection:close() end

return redis
