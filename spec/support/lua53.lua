-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What the specs use of Lua 5.3 and later; Lua 5.1 and LuaJIT have it from lua-compat-5.3. Nothing becomes global:
-- what the library under test uses must be there without the specs.
local strings = string.pack and string or require "compat53.string"

local lua53 = { pack = strings.pack, unpack = strings.unpack, utf8 = rawget(_G, "utf8") or require "compat53.utf8" }

--- The bytes of hexadecimal digits, as "\x" writes them: lua53.bytes "E2 82".
function lua53.bytes(digits)
  return (digits:gsub("%s", ""):gsub("%x%x", function (byte) return string.char(tonumber(byte, 16)) end))
end

--- How far integers go, in both directions.
lua53.maxinteger = math.maxinteger or 2 ^ 53
lua53.mininteger = math.mininteger or -2 ^ 53

--- math.type. Where Lua has one kind of number only, whole ones are integers.
lua53.math_type = math.type or function (value)
  return type(value) == "number" and (value % 1 == 0 and "integer" or "float") or nil
end

return lua53
