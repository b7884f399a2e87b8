-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The connections to the database. A caller gives a client, or a function that makes one. The stores are classes
-- derived from this one: they add step(), list() and setup().
--
-- A client that has failed in the middle of a step is given up: its next answer might be the one that was missed. Then
-- a function is called for another client. A client that was given as it is has no successor.
--
-- A client is asked for the time of the database, when it is new and after 5 seconds: servers and routers end idle
-- connections, and a step over such a one would be in doubt. From that time, and from what has passed since, a step
-- knows until when it may act: see late.lua.
--
-- A step uses a client alone. Steps that run side by side, in coroutines, get one each from the function.
--
-- The child of a fork must not use a connection of its parent: each would get answers of the other, so both would take
-- themselves for the holder. Nor may it close one: that ends the connection of its parent, too.
local acquiring = require "dblocks.acquiring"
local clock = require "dblocks.clock"
local options = require "dblocks.options"
local ticket = require "dblocks.ticket"

local client = {}
client.__index = client

local FRESH = 5 -- seconds
local TRIES = 3 -- of a step that comes too late

--- `close` ends a client that was made by the function; nil: it is collected. tell(one) returns the time of the
-- database in milliseconds, or nil, message, code. `now`: the caller's own clock, or nil.
function client.new(given, close, tell, now)
  local makes = type(given) == "function"
  local self = setmetatable({
    _make = makes and given, _close = close, _tell = tell, _now = now, _idle = {}, _process = ticket.process_id(),
  }, client)
  if not makes then self._idle[1] = { one = given } end
  return self
end

--- Whether another client can be made after a failure.
function client:renews() return self._make and true or false end

-- Words of failures to connect that pass by themselves, in lower case. An error that the function raises without one of
-- them is an error of the program. A failure that it returns passes unless it has those of `LASTING`.
local PASSING = {
  "refused", "reset", "timeout", "timed out", "closed", "unreachable", "no route", "broken pipe", "too many",
  "max number", "starting up", "shutting down", "recovery", "temporar", "try again", "loading", "busy", "locked",
  "gone away", "can't connect", "could not connect", "lost connection",
}
local LASTING = {
  "does not exist", "unknown database", "access denied", "authentication", "pg_hba", "wrongpass", "noauth", "noperm",
  "denied", "invalid password", "attempt to ", "module '", "bad argument", "ora-01017", "ora-12154",
  "ora-12514", "wrong user name",
}

local function has(words, message)
  message = options.lower(message)
  for _, word in ipairs(words) do
    if message:find(word, 1, true) then return true end
  end
  return false
end

local function made(self)
  local fine, new, message = pcall(self._make)
  if fine and new then return { one = new } end
  local problem = tostring(fine and message or new)
  local code = (fine or has(PASSING, problem)) and not has(LASTING, problem) and "unreachable" or "refused"
  return nil, ("%s: no connection to the database: %s"):format(code, problem), code
end

local function close(self, one)
  if self._make and self._close then pcall(self._close, one) end
end

-- In the child of a fork: leaves alone what its parent has opened. It is kept, as a client that is collected is closed.
local function part(self)
  local process = ticket.process_id()
  if process == self._process then return end
  self._process, self._of_parent, self._idle = process, { self._of_parent, self._idle }, {}
end

-- The clock that runs here depends on where this is called. So each client keeps the one by which it was told.
local function note(self, slot, time)
  slot.now = select(2, clock.find(nil, self._now))
  slot.time, slot.at = time, slot.now()
end

-- Returns the time of the database, at most: what its answer has taken has passed as well; or nil, message, code.
local function time_of(self, slot)
  local passed = slot.time and slot.now() - slot.at
  if passed and passed >= 0 and passed < FRESH then return slot.time + math.floor(passed * 1000) end
  local time, message, code = acquiring.answer(self._tell(slot.one))
  if time then note(self, slot, time) end
  return time, message, code
end

local GONE = "unreachable: the client %s; a function in its place would be called for another"

-- Returns a client for one step, in a table; or nil, message, code.
local function take(self)
  if self._closed then return nil, "closed: this object was closed", "closed" end
  part(self)
  local idle = table.remove(self._idle)
  if idle and (not self._make or time_of(self, idle)) then return idle end
  if idle then
    close(self, idle.one)
    return take(self)
  end
  if self._make then return made(self) end
  local gone = self._given_up and "failed before" or self._of_parent and "is of the parent of this process"
  if gone then return nil, GONE:format(gone), "unreachable" end
  error("dblocks: another coroutine is using this client: give a function that makes one for each", 0)
end

local function finish(self, slot, fine, first, second, third, is_sound)
  if fine and not (first == nil and not is_sound and (third == "unreachable" or third == "in_doubt")) then
    if self._closed then close(self, slot.one) else table.insert(self._idle, slot) end
    return first, second, third
  end
  self._given_up = true
  close(self, slot.one)
  if not fine then error(first, 0) end
  return nil, second, third
end

-- fn(one, time, ...); again, if that tells that it has come too late.
local function timely(slot, self, fn, ...)
  for _ = 1, TRIES do
    local time, message, code = time_of(self, slot)
    if not time then return nil, message, code end
    local first, second, third, is_sound = fn(slot.one, time, ...)
    if first ~= "late" then return first, second, third, is_sound end
    note(self, slot, second)
  end
  return nil, "contended: each request came to the database too late", "contended"
end

--- Returns fn(one, time, ...) for a client `one` and the time of the database: three results, the last of them a code
-- if the first is nil. A fourth that is true: the database itself has said that it cannot tell, or cannot be asked.
-- That client need not be given up. "late", and the time: the request came too late, and has changed nothing.
function client:use(fn, ...)
  local slot, message, code = take(self)
  if not slot then return nil, message, code end
  return finish(self, slot, pcall(timely, slot, self, fn, ...))
end

--- Ends the clients that the function has made.
function client:close()
  self._closed = true
  part(self)
  for _, idle in ipairs(self._idle) do close(self, idle.one) end
  self._idle = {}
end

return client
