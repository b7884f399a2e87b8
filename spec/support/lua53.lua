-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Functions of Lua 5.3 and later that the specs use; for Lua 5.1 and LuaJIT they come from lua-compat-5.3. Nothing
-- becomes global: the library under test must work without the specs.
local strings = string.pack and string or require "compat53.string"

local lua53 = { pack = strings.pack, unpack = strings.unpack, utf8 = rawget(_G, "utf8") or require "compat53.utf8" }

--- The bytes given by hexadecimal digits, as "\x" does: lua53.bytes "E2 82".
function lua53.bytes(digits)
  return (digits:gsub("%s", ""):gsub("%x%x", function (byte) return string.char(tonumber(byte, 16)) end))
end

--- The limits of integers, in both directions.
lua53.maxinteger = math.maxinteger or 2 ^ 53
lua53.mininteger = math.mininteger or -2 ^ 53

--- math.type. Where Lua has only one kind of number, whole numbers are integers.
lua53.math_type = math.type or function (value)
  return type(value) == "number" and (value % 1 == 0 and "integer" or "float") or nil
end

return lua53
