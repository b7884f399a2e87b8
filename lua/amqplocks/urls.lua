-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Where to connect: a URL, a list of URLs, or a function that is called before each connection and returns either.
--
-- A malformed URL is an error of configuration: calls return nil, message and the code `url`. Only a value of a wrong
-- type raises an error.
local protected = require "amqplocks.compat.pcall"

local is_inside, pcall = protected.is_inside, protected.pcall

local urls = {}

-- True for a list of strings without holes and without other keys.
local function is_list(value)
  local count = 0
  for key, one in next, value do
    if type(key) ~= "number" or type(one) ~= "string" then return false end
    count = count + 1
  end
  return #value == count
end

local function is_url(value)
  return type(value) == "string" or type(value) == "table" and is_list(value)
end

--- Returns nil if `value` is valid, otherwise what it must be.
function urls.check(value)
  if is_url(value) or type(value) == "function" then return nil end
  local hint = type(value) == "table" and " (options are the second argument: connect(nil, { … }))" or ""
  return "a string, a list of strings without holes, or a function that returns either" .. hint
end

local function text_of(problem)
  local fine, text = pcall(tostring, problem)
  return fine and type(text) == "string" and text or "a " .. type(problem)
end

--- Calls the function. Never raises an error.
---@return string|string[]|nil url, string? why, amqplocks.Code? code
function urls.ask(fn)
  local fine, url, why = pcall(fn)
  if fine and is_url(url) then return url end
  if not fine then return nil, "the function for the URL raised an error: " .. text_of(url), "url" end
  if url == nil and why ~= nil then return nil, "the function for the URL returned none: " .. text_of(why), "url" end
  return nil, ("the function for the URL returned %s, not a URL or a list of URLs"):format(
    url == nil and "nothing" or "a " .. type(url)), "url"
end

--- The settings of a session, for a URL, a list or a function. `origin` tells in messages where the first two come
-- from.
function urls.settings(url, origin)
  if type(url) ~= "function" then return { url = url, origin = origin } end
  return { ask = url, rotates = true, origin = "the function for the URL returned a wrong one: " }
end

--- Calls the function, if there is one and it was not called yet. The session is made with the URL that it returns, and
-- connects to that first. The function may wait. So the driver of an event loop gives `check`, which tells whether
-- anything can wait here.
---@return true|nil, string? message, amqplocks.Code? code
function urls.begin(settings, check)
  if not settings.ask or settings.url then return true end
  local url, why, code
  if check then why, code = check() end
  if not why then url, why, code = urls.ask(settings.ask) end
  if not url then return nil, ("%s: %s"):format(code, why), code end
  settings.url, settings.addressed = url, true
  return true
end

--- Calls the function before one of a session's connections is opened, by `ask`. A wrong result of the function fails
-- the connection.
function urls.renew(session, role, settings, ask)
  if not session:lacks_address(role) then return end
  local url, why, code = ask(settings.ask)
  if not session:lacks_address(role) then return end -- meanwhile the connection is not needed any more
  local done
  if url then
    settings.url = url
    done, why, code = session:readdress(role, settings)
  end
  if not done then session:fail(role, code, why) end
end

local RECURSION = "the function for the URL waits for the connection that it is called for"

--- Returns a function that calls the URL function for a session that blocks. A call inside such a call would wait for
-- itself, and fails.
function urls.asker()
  local asker
  return function(fn)
    if is_inside(asker) then return nil, RECURSION, "url" end
    asker = coroutine.running() or true
    local url, why, code = urls.ask(fn)
    asker = nil
    return url, why, code
  end
end

return urls
