-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Checks arguments and options of callers. A wrong one raises an error that names it. Nothing here asks the database.
--
-- Texts are restricted, not escaped: no name that passes can end a literal of SQL or a key of Redis.
local options = {}

local checks = {}

local function is_finite(value) return value == value and value ~= math.huge and value ~= -math.huge end

function checks.seconds(value)
  if type(value) ~= "number" or not is_finite(value) or value < 0 then
    return "a number of seconds, finite and not negative"
  end
end

function checks.interval(value)
  return checks.seconds(value) or value == 0 and "more than 0 seconds" or nil
end

function checks.callable(value)
  if type(value) == "function" then return nil end
  local metatable = getmetatable(value)
  return not (type(metatable) == "table" and metatable.__call) and "a function" or nil
end

--- Not a cursor or an environment: these have no execute().
function checks.connection(value)
  local fine, execute = pcall(function() return value.execute end)
  return not (fine and execute) and "one of LuaSQL" or nil
end

function checks.one_of(...)
  local allowed = { ... }
  return function(value)
    for _, one in ipairs(allowed) do
      if value == one then return nil end
    end
    return 'one of "' .. table.concat(allowed, '", "') .. '"'
  end
end

local function text(pattern, characters)
  return function(value)
    if type(value) ~= "string" or #value < 1 or #value > 64 or not value:find("^" .. pattern .. "+$") then
      return "1 to 64 of the characters " .. characters
    end
  end
end

-- Not %w: the program's locale decides what that is.
options.WORD = "[A-Za-z0-9_.:@+-]"

checks.word = text(options.WORD, "A-Z a-z 0-9 _ . : @ + -")
checks.table_name = text("[A-Za-z0-9_.]", "A-Z a-z 0-9 _ .")

--- The text with the letters A to Z in lower case, whatever the locale.
function options.lower(words)
  return (words:gsub("[A-Z]", function(letter) return string.char(letter:byte() + 32) end))
end

local CQL_NAME = "[A-Za-z][A-Za-z0-9_]*"

--- A table of Cassandra, in its keyspace. Without quotes, so letters may be of either case.
function checks.keyspace_table(value)
  if type(value) ~= "string" or #value > 97 or not value:find("^" .. CQL_NAME .. "%." .. CQL_NAME .. "$") then
    return '"keyspace.table", each of letters, digits and _'
  end
end

function checks.ticket(value)
  return checks.word(value) or value == "readers" and 'a ticket other than "readers"' or nil
end

--- A whole number is a fine id, too: its text is used.
function checks.id(value)
  if type(value) == "number" and is_finite(value) and value % 1 == 0 and math.abs(value) < 2 ^ 53 then
    return nil, ("%.0f"):format(value + 0.0) -- not "-0"
  end
  return checks.word(value)
end

options.checks = checks

local SHOWN = 60 -- bytes

local function show(value)
  if type(value) ~= "string" then return type(value) == "table" and "a table" or tostring(value) end
  if #value > SHOWN then value = value:sub(1, SHOWN) .. "…" end
  return '"' .. value:gsub("%c", function(control) return "\\" .. control:byte() end) .. '"'
end

--- Raises an error unless `value` passes `check`. Returns the value to use. `argument` names it.
function options.argument(value, check, argument, where)
  local wanted, instead = check(value)
  if wanted then error(("%s: %s must be %s, not %s"):format(where, argument, wanted, show(value)), 0) end
  return instead or value
end

--- Raises an error unless `self` is an object of that metatable: `what` was followed by a dot.
function options.method(self, metatable, what, name)
  if getmetatable(self) == metatable then return end
  error(("%s: must be called with a colon, %s:%s(…), not with a dot"):format(name, what, name), 0)
end

--- Has methods that an object of this class does not have raise an error, which says what to call instead.
function options.elsewhere(class, what, instead)
  local all = {}
  for name, words in pairs(instead) do
    all[name] = function() error(("%s: there is no %s:%s(); call %s"):format(name, what, name, words), 0) end
  end
  setmetatable(class, { __index = all })
end

--- Returns whether a value could be options: a table that has some, and nothing else.
function options.could_be(value, schema)
  if type(value) ~= "table" or getmetatable(value) ~= nil then return false end
  for key in pairs(value) do
    if not schema[key] then return false end
  end
  return next(value) ~= nil
end

--- Raises an error unless every option is known and valid. Returns a table of the options to use.
function options.check(given, schema, where)
  if given == nil then return {} end
  if type(given) ~= "table" then
    error(("%s: options must be a table, not %s"):format(where, show(given)), 0)
  end
  local taken = {}
  for key, value in pairs(given) do
    local check = schema[key]
    if not check then error(("%s: unknown option %s"):format(where, show(key)), 0) end
    taken[key] = options.argument(value, check, "option " .. key, where)
  end
  return taken
end

return options
