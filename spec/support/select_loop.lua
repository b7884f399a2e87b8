-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The smallest event loop that can carry sessions over bytes: select() and coroutines. docs/drivers.md refers authors
-- of drivers to it; it shows that a driver needs no more than this. (Its name resolution is the system's, which blocks
-- the loop, and it uses the wall clock; a real driver does better. It has no TLS.)
--
--     local loop = require "spec.support.select_loop"
--     loop.spawn(function() … end)
--     loop.run()                      -- until no coroutine can go on
local running = require "amqplocks.compat.pcall".running
local socket = require "socket"

local loop = {}

-- ---- the loop: each waiting coroutine has an entry, { thread =, at =, reads =, writes = }

local ready, waiting, is_stopped = {}, {}, nil

local function wake(entry)
  if waiting[entry] then table.insert(ready, entry.thread) end
  waiting[entry] = nil
end

-- Returns when the entry was woken, or the time is over.
local function wait(entry, seconds)
  entry.thread, entry.at = running(), seconds and socket.gettime() + seconds
  waiting[entry] = true
  coroutine.yield()
  waiting[entry] = nil -- also if other code resumed this coroutine
end

-- Waits until some coroutines can go on or their time is over, or until `finish`. False: no coroutine can ever go on.
local function look(finish)
  local readers, writers, nearest, is_timed = {}, {}, finish, false
  for entry in pairs(waiting) do
    if entry.reads then table.insert(readers, entry.reads) end
    if entry.writes then table.insert(writers, entry.writes) end
    if entry.at then nearest, is_timed = math.min(nearest or entry.at, entry.at), true end
  end
  local patience = #ready > 0 and 0 or nearest and math.max(0, nearest - socket.gettime())
  if not is_timed and #readers + #writers + #ready == 0 then return false end
  local readable, writable = socket.select(readers, writers, patience)
  local now, woken = socket.gettime(), {}
  for entry in pairs(waiting) do
    if entry.at and entry.at <= now or entry.reads and readable[entry.reads]
      or entry.writes and writable[entry.writes] then table.insert(woken, entry) end
  end
  for _, entry in ipairs(woken) do wake(entry) end
  return true
end

local function resume(thread)
  if coroutine.status(thread) ~= "suspended" then return end
  local fine, problem = coroutine.resume(thread)
  if not fine then error(debug.traceback(thread, problem), 0) end
end

--- Returns true when no coroutine is left, or all that are left wait for one another; false if the loop was stopped, or
-- the time is over.
function loop.run(seconds)
  local finish = seconds and socket.gettime() + seconds
  is_stopped = false
  repeat
    for _ = 1, #ready do resume(table.remove(ready, 1)) end
    if #ready == 0 and not next(waiting) then return true end
    if is_stopped or finish and socket.gettime() >= finish then return false end
  until not look(finish)
  return true
end

function loop.stop() is_stopped = true end

--- Forgets all coroutines.
function loop.clear() ready, waiting = {}, {} end

function loop.sleep(seconds) wait({}, seconds) end

function loop.spawn(fn) table.insert(ready, coroutine.create(fn)) end

function loop.check()
  local thread, is_main = running()
  if not thread or is_main then return "only a coroutine of the loop can wait (loop.spawn(…), loop.run())", "phase" end
end

-- ---- conditions ----------------------------------------------------------------------------------------------------

local Condition = {}
Condition.__index = Condition

function loop.condition() return setmetatable({ entries = {} }, Condition) end

function Condition:wait(seconds)
  local entry = {}
  self.entries[entry] = true
  wait(entry, seconds)
  self.entries[entry] = nil
end

function Condition:signal()
  for entry in pairs(self.entries) do wake(entry) end
end

-- ---- sockets --------------------------------------------------------------------------------------------------------

local Socket = {}
Socket.__index = Socket

-- Waits until the socket is ready in a direction, "reads" or "writes". False: the time is over.
local function await(self, direction, deadline)
  local left = deadline and deadline - socket.gettime()
  if left and left <= 0 then return false end
  local entry = { [direction] = self.raw }
  self.entries[entry] = true
  wait(entry, left)
  self.entries[entry] = nil
  return true
end

function Socket:read(seconds)
  local deadline = seconds and socket.gettime() + seconds
  while not self.closed do
    local bytes, problem, some = self.raw:receive(8192)
    if bytes then await(self, "reads", socket.gettime() + 0.001) end -- more is ready: others run first
    bytes = bytes or some
    if #bytes > 0 then return bytes end
    if problem ~= "timeout" then return nil, problem end
    if not await(self, "reads", deadline) then return nil, "timeout" end
  end
  return nil, "the socket was closed"
end

function Socket:write(bytes, seconds)
  local deadline, sent = seconds and socket.gettime() + seconds, 0
  while not self.closed do
    local last, problem, some = self.raw:send(bytes, sent + 1)
    sent = last or some
    if sent == #bytes then return true end
    if problem ~= "timeout" then return nil, problem end
    if not await(self, "writes", deadline) then return nil, "it takes no more" end
  end
  return nil, "the socket was closed"
end

function Socket:close()
  if self.closed then return end
  self.closed = true
  for entry in pairs(self.entries) do wake(entry) end
  self.raw:close()
end

local function dial(address, port, deadline)
  local self = setmetatable({ raw = socket.tcp(), entries = {} }, Socket)
  self.raw:settimeout(0)
  local connected, problem = self.raw:connect(address, port)
  while not connected and problem == "timeout" do
    if not await(self, "writes", deadline) then break end
    connected, problem = self.raw:connect(address, port) -- a second call returns the result of connecting
    if problem == "already connected" then connected = true end
  end
  if connected then
    self.raw:setoption("tcp-nodelay", true)
    return self
  end
  self:close()
  return nil, problem
end

function loop.connect(host, port, tls, seconds)
  if tls then return nil, "this loop has no TLS", "tls" end
  local deadline = seconds and socket.gettime() + seconds
  local addresses, problem = socket.dns.getaddrinfo(host)
  for _, address in ipairs(addresses or {}) do
    local connected
    connected, problem = dial(address.addr, port, deadline)
    if connected then return connected end
  end
  return nil, problem, "unreachable"
end

return loop
