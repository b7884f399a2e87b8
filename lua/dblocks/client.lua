-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The connections to the database. A caller gives a client, or a function that makes one.
--
-- A client that has failed in the middle of a step is given up: its next answer might be the one that was missed. Then a
-- function is called for another client. A client that was given as it is has no successor.
--
-- A step uses a client alone. Steps that run side by side, in coroutines, get one each from the function.
local client = {}
client.__index = client

--- `close` ends a client that was made by the function; nil: it is collected.
function client.new(given, close)
  local makes = type(given) == "function"
  return setmetatable({ _make = makes and given, _close = close, _idle = makes and {} or { given } }, client)
end

--- Whether another client can be made after a failure.
function client:renews() return self._make and true or false end

local function made(self)
  local fine, new, message = pcall(self._make)
  if fine and new then return new end
  return nil, ("unreachable: no connection to the database: %s"):format(tostring(fine and message or new)), "unreachable"
end

-- Returns a client for one step, or nil, message, code.
local function take(self)
  if self._closed then return nil, "closed: this object was closed", "closed" end
  local idle = table.remove(self._idle)
  if idle then return idle end
  if self._make then return made(self) end
  if self._given_up then
    return nil, "unreachable: the client failed before; a function in its place would be called for another", "unreachable"
  end
  error("dblocks: another coroutine is using this client: give a function that makes one for each", 0)
end

local function close(self, one)
  if self._make and self._close then pcall(self._close, one) end
end

local function give_up(self, one)
  self._given_up = true
  close(self, one)
end

local function give_back(self, one)
  if self._closed then return close(self, one) end
  table.insert(self._idle, one)
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

--- Returns fn(one, ...) for a client `one`: three results, the last of them a code if the first is nil. A fourth that is
-- true: the database itself has said that it cannot tell, or cannot be asked. That client need not be given up.
function client:use(fn, ...)
  local one, message, code = take(self)
  if not one then return nil, message, code end
  return finish(self, one, pcall(fn, one, ...))
end

--- Ends the clients that the function has made.
function client:close()
  self._closed = true
  for _, one in ipairs(self._idle) do close(self, one) end
  self._idle = {}
end

return client
