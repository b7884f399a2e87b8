-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The connections to the database. A caller gives a client, or a function that makes one.
--
-- A client that has failed in the middle of a step is given up: its next answer might be the one that was missed. Then
-- a function is called for another client. A client that was given as it is has no successor.
--
-- A client that was idle is asked whether it lives, if the store can ask that: servers and routers end idle
-- connections, and a step over such a one would be in doubt.
--
-- A step uses a client alone. Steps that run side by side, in coroutines, get one each from the function.
--
-- The child of a fork must not use a connection of its parent: each would get answers of the other, so both would take
-- themselves for the holder. Nor may it close one: that ends the connection of its parent, too.
local ticket = require "dblocks.ticket"

local client = {}
client.__index = client

local IDLE = 5 -- seconds

--- `close` ends a client that was made by the function; nil: it is collected. `alive` returns whether a client has an
-- answer; nil: nobody asks.
function client.new(given, close, alive)
  local makes = type(given) == "function"
  local self = setmetatable({
    _make = makes and given, _close = close, _alive = alive, _idle = {}, _process = ticket.process_id(),
  }, client)
  if not makes then self._idle[1] = { one = given, since = math.huge } end
  return self
end

--- Whether another client can be made after a failure.
function client:renews() return self._make and true or false end

local function made(self)
  local fine, new, message = pcall(self._make)
  if fine and new then return new end
  local problem = tostring(fine and message or new)
  return nil, "unreachable: no connection to the database: " .. problem, "unreachable"
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

-- Returns a client that was used before and lives; nil: there is none.
local function reuse(self)
  local idle = table.remove(self._idle)
  if not idle then return nil end
  local is_asked = self._make and self._alive and os.time() - idle.since >= IDLE
  if not is_asked or self._alive(idle.one) then return idle.one end
  close(self, idle.one)
  return reuse(self)
end

-- Returns a client for one step, or nil, message, code.
local function take(self)
  if self._closed then return nil, "closed: this object was closed", "closed" end
  part(self)
  local one = reuse(self)
  if one then return one end
  if self._make then return made(self) end
  if self._given_up then
    local message = "unreachable: the client failed before; a function in its place would be called for another"
    return nil, message, "unreachable"
  end
  if self._of_parent then
    local message = "unreachable: the client is of the parent of this process; a function would be called for another"
    return nil, message, "unreachable"
  end
  error("dblocks: another coroutine is using this client: give a function that makes one for each", 0)
end

local function give_up(self, one)
  self._given_up = true
  close(self, one)
end

local function give_back(self, one)
  if self._closed then return close(self, one) end
  table.insert(self._idle, { one = one, since = os.time() })
end

local function finish(self, one, fine, first, second, third, is_sound)
  if not fine then
    give_up(self, one)
    error(first, 0)
  end
  if first == nil and not is_sound and (third == "unreachable" or third == "in_doubt") then
    give_up(self, one)
  else
    give_back(self, one)
  end
  return first, second, third
end

--- Returns fn(one, ...) for a client `one`: three results, the last of them a code if the first is nil. A fourth that
-- is true: the database itself has said that it cannot tell, or cannot be asked. That client need not be given up.
function client:use(fn, ...)
  local one, message, code = take(self)
  if not one then return nil, message, code end
  return finish(self, one, pcall(fn, one, ...))
end

--- Ends the clients that the function has made.
function client:close()
  self._closed = true
  part(self)
  for _, idle in ipairs(self._idle) do close(self, idle.one) end
  self._idle = {}
end

return client
