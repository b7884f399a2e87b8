-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Checks arguments and options of callers. A wrong one raises an error that names it. Nothing here asks the broker.
local core = require "amqplocks.core"

local options = {}

local function is_finite(value) return value == value and value ~= math.huge and value ~= -math.huge end

-- Each check takes a value. It returns nil if the value is fine, otherwise what it must be. A second result, after nil,
-- replaces the value.
local checks = {}

function checks.string(value) return type(value) ~= "string" and "a string" or nil end

--- A text for C, which has room for `most` bytes and reads up to the first NUL.
function checks.text(most)
  return function(value)
    if type(value) ~= "string" or #value > most or value:find("\0", 1, true) then
      return ("a string of at most %d bytes, without a NUL"):format(most)
    end
  end
end

function checks.boolean(value) return type(value) ~= "boolean" and "true or false" or nil end

function checks.callable(value) return type(value) ~= "function" and "a function" or nil end

--- Seconds, fractions allowed.
function checks.seconds(value)
  if type(value) ~= "number" or not is_finite(value) or value < 0 then
    return "a number of seconds, finite and not negative"
  end
end

function checks.timeout(value)
  return checks.seconds(value) or value == 0 and "more than 0 seconds" or nil
end

--- A list without holes and without other keys. Elements from its metatable count.
function checks.list(value)
  if type(value) ~= "table" then return "a list of slots" end
  local list, most = {}, core.slots_max
  while #list <= most and value[#list + 1] ~= nil do list[#list + 1] = value[#list + 1] end
  if #list > most then return ("a list of slots, at most %d"):format(most) end
  for key in next, value do
    if list[key] == nil then return "a list of slots, without holes or other keys" end
  end
  return nil, list
end

function checks.whole(least, most)
  return function(value)
    if type(value) ~= "number" or not is_finite(value) or value % 1 ~= 0 or value < least or value > most then
      return ("a whole number from %d to %d"):format(least, most)
    end
  end
end

function checks.one_of(...)
  local allowed = { ... }
  local wanted = 'one of "' .. table.concat(allowed, '", "') .. '"'
  return function(value)
    for _, one in ipairs(allowed) do
      if value == one then return nil end
    end
    return wanted
  end
end

function checks.table_of(schema)
  return function(value, where, key)
    if type(value) ~= "table" then return "a table" end
    return nil, options.check(value, schema, where .. "." .. key)
  end
end

options.checks = checks

local SHOWN = 60 -- bytes

-- A text that may be a URL, without user and password: those are before its last "@".
local function without_secrets(text)
  local place = text:match "^.*(@.*)$"
  if not place then return text end
  return (text:match "^[Aa][Mm][Qq][Pp][Ss]?://" or "") .. "…" .. place
end

-- Describes a value for errors: on one line, shortened, and without a password.
local function show(value)
  local fine, text = pcall(tostring, value)
  if not fine or type(text) ~= "string" then return "a " .. type(value) end
  text = without_secrets(text)
  if #text > SHOWN then text = text:sub(1, SHOWN):gsub("[\192-\255][\128-\191]*$", "") .. "…" end
  text = text:gsub("%c", function(control) return "\\" .. control:byte() end)
  return type(value) == "string" and '"' .. text .. '"' or text
end

local function copy_of(given)
  local copy = {}
  for key, value in next, given do copy[key] = value end
  return copy
end

-- A table with a metatable is read once, so that the values that are checked are the values that are used.
local function plain(given, schema)
  if getmetatable(given) == nil then return given end
  local copy = copy_of(given)
  for key in pairs(schema) do copy[key] = given[key] end
  return copy
end

--- Raises an error unless every option is known and valid. Returns the options to use. `where` names the call or table.
function options.check(given, schema, where)
  if type(given) ~= "table" then
    error(("%s: options must be a table, not %s"):format(where, show(given)), 0)
  end
  local asked = plain(given, schema)
  local taken = asked -- no needless copy: without memory, calls that may wait must return an error, not raise one
  for key, value in next, asked do
    local check = schema[key]
    if not check then error(("%s: unknown option %s"):format(where, show(key)), 0) end
    local wanted, instead = check(value, where, key)
    if wanted then error(("%s: option %s must be %s, not %s"):format(where, key, wanted, show(value)), 0) end
    if instead then
      if taken == asked then taken = copy_of(asked) end
      taken[key] = instead
    end
  end
  return taken
end

--- Returns whether a value could be options: a table that has some, and nothing else.
function options.could_be(value, schema)
  if type(value) ~= "table" or getmetatable(value) ~= nil then return false end
  for key in next, value do
    if not schema[key] then return false end
  end
  return next(value) ~= nil
end

--- Raises an error unless `value` passes `check`. Returns the value to use. `argument` names it.
function options.argument(value, check, argument, where)
  local wanted, instead = check(value)
  if wanted then error(("%s: %s must be %s, not %s"):format(where, argument, wanted, show(value)), 0) end
  return instead or value
end

--- Raises an error unless `name` is a valid name of a lock.
function options.name(name, where)
  options.argument(name, checks.string, "the name", where)
  local wrong = core.name_error(name)
  if wrong then error(("%s: %s"):format(where, wrong), 0) end
  return name
end

--- Raises an error unless `slots` is a valid number of slots, at least `least`.
function options.slots(slots, least, where)
  return options.argument(slots, checks.whole(least, core.slots_max), "the number of slots", where)
end

--- Returns a new table with `defaults`, overridden by `given`.
function options.merge(defaults, given)
  local merged = {}
  for key, value in pairs(defaults) do merged[key] = value end
  for key, value in pairs(given or {}) do merged[key] = value end
  return merged
end

return options
