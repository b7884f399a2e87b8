-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- One of the connections of a session over bytes, on a socket of an event loop. The core tells when it needs one
-- ("due"); this file opens, reads and writes it.
--
-- It runs in two coroutines. One opens the connection, writes for all operations and serves the timers; the other reads
-- for all waiting coroutines. They begin and end with the connection; the next connection has two of its own.
local core = require "amqplocks.core"
local pcall = require("amqplocks.compat.pcall").pcall
local urls = require "amqplocks.urls"

local LONGEST = 1 -- seconds between checks of the time: releases by the collector are written only then

local stream = {}
stream.__index = stream

--- `loop` is the table of functions of a driver (docs/drivers.md). `role` is "holder", "prober", "fence", "maker" or
-- "quorum". `settings` may have a function that returns the URL. The stream's coroutines call `moved()` whenever bytes
-- of the broker, or the end of the connection, may have changed the session.
function stream.new(loop, session, role, settings, moved)
  return setmetatable({
    _loop = loop, _session = session, _role = role, _settings = settings, _moved = moved,
    _timeout = session:exchange_timeout(), _unsent = loop.condition(), _written = loop.condition(),
  }, stream)
end

-- ---- opening, reading, writing --------------------------------------------------------------------------------------

-- An error that a driver raises, as for an option that it does not support, fails the connection. Any code but "tls" is
-- "unreachable".
local function connect(self, host, port, tls, seconds)
  local fine, socket, message, code = pcall(self._loop.connect, host, port, tls, seconds)
  if fine then return socket, message, code == "tls" and code or "unreachable" end
  return nil, tostring(socket), tls and "tls" or "unreachable"
end

-- Runs fn() in a coroutine of its own, which may use the socket, too. Returns its thread if the loop can kill it; nil
-- and a message if it could not be started.
local function beside(self, fn) return (self._loop.beside or self._loop.spawn)(fn) end

local LATE = "the function for the URL did not return within %g s"
local NEVER = "the function for the URL could not be called: %s"

-- Calls the URL function in a coroutine of its own, where it may wait. Returns the call; nil and a message if it could
-- not be started.
local function question(self, fn)
  local asked = { done = self._loop.condition() }
  local thread, why = beside(self, function()
    asked.url, asked.why, asked.code = urls.ask(fn)
    asked.is_over, self._asked = true, nil
    asked.done:signal()
  end)
  asked.thread = thread
  if why then return nil, NEVER:format(why) end
  if not asked.is_over then self._asked = asked end -- nginx runs it at once
  return asked
end

-- Returns the result of the URL function. A function that never returns is waited for no longer than a broker. If it
-- cannot be killed, it is not called again until it has returned: each call would leave one coroutine more.
local function ask(self, fn)
  local loop, left = self._loop, self._timeout
  local deadline = core.now() + left
  local asked, problem = self._asked, nil
  if not asked then asked, problem = question(self, fn) end
  if not asked then return nil, problem, "url" end
  while not asked.is_over and left > 0 do
    asked.done:wait(left)
    left = deadline - core.now()
  end
  if asked.is_over then return asked.url, asked.why, asked.code end
  if loop.abandon then
    loop.abandon(asked.thread)
    self._asked = nil
  end
  return nil, LATE:format(self._timeout), "url"
end

local function give_place_up(self, code, message)
  local session, role = self._session, self._role
  local _, port, _, _, name = session:address(role)
  session:fail(role, code, ("%s:%d: %s"):format(name, port, message))
end

-- Tells the session the addresses of the name that is to be connected to. Without loop.resolve, the loop connects to
-- the name.
local function resolve(self)
  local session, role = self._session, self._role
  local name = self._loop.resolve and session:unresolved(role)
  if not name then return end
  local begun, _, _, seconds = core.now(), session:address(role)
  local fine, addresses, message = pcall(self._loop.resolve, name, seconds)
  session:pump()
  if not session:due(role) then return end
  if fine and type(addresses) == "table" then
    session:resolve(role, addresses, core.now() - begun)
  else
    give_place_up(self, "unreachable", fine and message or tostring(addresses))
  end
end

local function may_connect(self)
  local session, role = self._session, self._role
  return session:due(role) and not session:lacks_address(role)
end

-- Opens the connection, and drops it if it is not needed any more by then.
local function open(self)
  local session, role = self._session, self._role
  urls.renew(session, role, self._settings, function(fn) return ask(self, fn) end)
  if may_connect(self) then resolve(self) end
  if not may_connect(self) or self._loop.resolve and session:unresolved(role) then return end
  local host, port, seconds, tls = session:address(role)
  local begun = core.now()
  local socket, message, code = connect(self, host, port, tls, seconds)
  session:pump()
  if not session:due(role) then
    if socket then socket:close() end
  elseif socket then
    self._socket = socket
    session:attach(role, math.max(0.001, begun + seconds - core.now()))
  else
    give_place_up(self, code, message)
  end
end

local function is_up(self) return self._socket ~= nil and self._session:is_up(self._role) end

local function lose(self, why)
  if self._session:is_up(self._role) then self._session:down(self._role, why) end
end

-- Waits for bytes of the broker, and feeds them to the session.
local function read(self)
  local socket = self._socket
  local bytes, why = socket:read()
  if socket ~= self._socket or not is_up(self) then return end -- the connection has ended; drop bytes that come now
  if bytes then
    self._session:feed(self._role, bytes)
  elseif why ~= "timeout" then
    lose(self, why)
  end
end

-- Sends the queued bytes, also the last ones of a connection that has ended.
local function write(self)
  local session, role, socket = self._session, self._role, self._socket
  while socket and session:is_unsent(role) do
    local sent, why = socket:write(session:output(role), self._timeout)
    if not sent then
      lose(self, why)
      return
    end
  end
end

--- Closes the socket, without waiting; coroutines that read or write notice. In a child of fork() it does nothing, as
-- the socket is the parent's.
function stream:close()
  if self._session:has_forked() then return end
  if self._socket then self._socket:close() end
  self._socket = nil
end

--- Waits until the queued bytes were sent, at most the session's timeout.
function stream:drain()
  if is_up(self) and self._session:is_unsent(self._role) then self._written:wait(self._timeout) end
end

-- ---- its coroutines -------------------------------------------------------------------------------------------------

-- An error here is a defect of this library or of a driver. It ends the connection, with the error as the reason.
local function give_up(self, why)
  lose(self, why)
  if self._session:due(self._role) then self._session:fail(self._role, "unreachable", why) end
end

local function attempt(self, fn)
  local fine, problem = pcall(fn, self)
  if not fine then give_up(self, tostring(problem)) end
end

local function guarded(self, fn)
  return function()
    attempt(self, fn)
    self._session:pump()
    self._moved()
  end
end

local function read_on(self)
  local socket = self._socket
  while socket == self._socket and is_up(self) do
    read(self)
    self._session:pump()
    self._moved()
  end
end

local function write_on(self)
  while is_up(self) do
    self._session:pump()
    self._moved()
    write(self)
    self._written:signal()
    if is_up(self) and not self._session:is_unsent(self._role) then
      local left, at = self._session:wake()
      self._wakes_at = at or math.huge
      self._unsent:wait(math.min(left or LONGEST, LONGEST))
    end
  end
  write(self)
end

local function carry(self)
  open(self)
  if not is_up(self) then return end
  local _, why = beside(self, guarded(self, read_on))
  if why then error(why, 0) end
  write_on(self)
end

local function run(self)
  attempt(self, carry)
  self:close()
end

local function start(self)
  self._runs = true
  local _, why = self._loop.spawn(function()
    guarded(self, run)()
    self._runs = false
    self._moved() -- the next connection may be due
  end)
  if not why then return end
  self._runs = false
  self._session:fail(self._role, "unreachable", why)
end

--- Call it whenever the session may have changed. It starts the connection if it is due, wakes the writer if there are
-- bytes to send, and lets it pump the session at the time `at`. `at` is absolute: a time from now would be smaller at
-- each call, and the two streams of a session would wake each other for ever. Returns true if the connection could not
-- be started.
function stream:mind(at)
  if self._runs then
    local is_early = at and self._wakes_at and at < self._wakes_at
    if is_early or self._session:is_unsent(self._role) or not is_up(self) then self._unsent:signal() end
  elseif self._session:due(self._role) then
    start(self)
    return not self._runs
  end
end

return stream
