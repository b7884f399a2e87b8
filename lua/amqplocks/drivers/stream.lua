-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- One of the two connections of a session over bytes, on a socket of an event loop's. The core says when it wants one
-- ("due"); here it is opened, read and written.
--
-- A loop that can do so runs it in two coroutines: one opens it, writes what anybody has begun and minds the time,
-- the other reads for everybody who waits. They come with a connection and go with it; the next one has two of its
-- own. Where nobody may stay behind, whoever waits opens, reads and writes.
local core = require "amqplocks.core"
local pcall = require("amqplocks.compat.pcall").pcall
local urls = require "amqplocks.urls"

local LONGEST = 1 -- seconds without a look at the time: what the collector lets go of nobody else has written

local stream = {}
stream.__index = stream

--- `loop` is what a driver offers (docs/drivers.md), `role` is "holder" or "prober", `settings` may have a function to
-- ask where to connect. `moved()` is called by its coroutines whenever the broker, or the end of the connection, has
-- moved anything.
function stream.new(loop, session, role, settings, moved)
  return setmetatable({
    _loop = loop, _session = session, _role = role, _settings = settings, _moved = moved,
    _timeout = session:patience(), _unsent = loop.condition(), _written = loop.condition(),
  }, stream)
end

-- ---- for whoever waits ----------------------------------------------------------------------------------------------

-- What a driver throws, such as for an option that it cannot honour, is why there is no connection.
local function connect(self, host, port, tls, seconds)
  local fine, socket, message, code = pcall(self._loop.connect, host, port, tls, seconds)
  if fine then return socket, message, code or "unreachable" end
  return nil, tostring(socket), tls and "tls" or "unreachable"
end

-- Has fn() run in a coroutine of its own, with the same right to use the socket. -> its thread, where the loop can kill
-- it; nil, message if that is not possible
local function beside(self, fn) return (self._loop.beside or self._loop.spawn)(fn) end

local LATE = "the function for the URL did not return within %g s"
local NEVER = "the function for the URL could not be called: %s"

-- Calls the function in a coroutine of its own, where it may wait as others do in this loop. -> the call; nil, message
-- if there is none
local function question(self, fn)
  local asked = { done = self._loop.condition() }
  local thread, why = beside(self, function()
    asked.url, asked.why, asked.code = urls.ask(fn)
    asked.is_over, self._asked = true, nil
    asked.done:signal()
  end)
  asked.thread = thread
  if why then return nil, NEVER:format(why) end
  if not asked.is_over then self._asked = asked end -- nginx calls it at once
  return asked
end

-- Where to connect, from the function; nil alone if the caller's own time ends before the function returns. A function
-- that never returns is waited for no longer than a broker is. Where it cannot be killed, it is not called again until
-- it has returned: each call would leave one coroutine more.
local function ask(self, fn, patience)
  local loop, most = self._loop, math.min(self._timeout, patience or math.huge)
  local left, deadline = most, core.now() + most
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
  if most < self._timeout then return nil end
  return nil, LATE:format(self._timeout), "url"
end

local function renew(self, patience)
  urls.renew(self._session, self._role, self._settings, function(fn) return ask(self, fn, patience) end)
end

--- Opens the connection, unless it is not wanted any more once it is there. Who has only so many seconds himself breaks
-- off then: it is not the broker's time that is up, and whoever still waits tries again.
function stream:open(patience)
  local session, role = self._session, self._role
  local deadline = patience and core.now() + patience
  renew(self, patience)
  if not session:due(role) or session:lacks_address(role) then return end
  local host, port, share, tls, left = session:address(role)
  local begun = core.now()
  local seconds = deadline and math.min(share, math.max(0.001, (deadline - begun) / left)) or share
  local socket, message, code = connect(self, host, port, tls, seconds)
  session:pump()
  if not session:due(role) then
    if socket then socket:close() end
  elseif socket then
    self._socket = socket
    session:attach(role, math.max(0.001, begun + share - core.now()))
  elseif seconds < share and core.now() >= begun + seconds then
    session:put_off(role)
  else
    session:fail(role, code, ("%s:%d: %s"):format(host, port, message))
  end
end

function stream:is_up() return self._socket ~= nil and self._session:is_up(self._role) end

local function lose(self, why)
  if self._session:is_up(self._role) then self._session:down(self._role, why) end
end

--- Waits for what the broker sends, not longer than so many seconds (nil: for ever), and feeds it to the session.
function stream:read(seconds)
  local socket = self._socket
  local bytes, why = socket:read(seconds)
  if socket ~= self._socket or not self:is_up() then return end -- it is over, and what comes now is nobody's
  if bytes then
    self._session:feed(self._role, bytes)
  elseif why ~= "timeout" then
    lose(self, why)
  end
end

--- Sends what there is to be sent, among it the last words of a connection that is over.
function stream:write()
  local session, role, socket = self._session, self._role, self._socket
  while socket and session:is_unsent(role) do
    local sent, why = socket:write(session:output(role), self._timeout)
    if not sent then
      lose(self, why)
      return
    end
  end
end

--- Never waits; whoever reads or writes notices. In the child of a fork the socket is the parent's.
function stream:close()
  if self._session:has_forked() then return end
  if self._socket then self._socket:close() end
  self._socket = nil
end

--- Waits until what there is to be sent was sent, as far as the other side takes it.
function stream:drain()
  if self:is_up() and self._session:is_unsent(self._role) then self._written:wait(self._timeout) end
end

-- ---- for all who wait -----------------------------------------------------------------------------------------------

-- An error here is a defect, or that of a driver: the connection is worth nothing any more, and its end tells why.
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
  while socket == self._socket and self:is_up() do
    self:read()
    self._session:pump()
    self._moved()
  end
end

local function write_on(self)
  while self:is_up() do
    self._session:pump()
    self._moved()
    self:write()
    self._written:signal()
    if self:is_up() and not self._session:is_unsent(self._role) then
      local left, at = self._session:wake()
      self._wakes_at = at or math.huge
      self._unsent:wait(math.min(left or LONGEST, LONGEST))
    end
  end
  self:write()
end

local function carry(self)
  self:open()
  if not self:is_up() then return end
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

--- To be called whenever anything may have moved: has the connection opened if it is due, written what there is, and
-- the session moved along in time, `at` being when it wants that. Seconds from now would not do: they have become less
-- whenever somebody looks, and the two streams of a session would wake each other for ever.
function stream:mind(at)
  if self._runs then
    local is_early = at and self._wakes_at and at < self._wakes_at
    if is_early or self._session:is_unsent(self._role) or not self:is_up() then self._unsent:signal() end
  elseif self._session:due(self._role) then
    start(self)
  end
end

return stream
