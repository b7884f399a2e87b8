-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Lists of values sent between processes: a line with a length, then Lua source that returns the values.
local values = {}

local load_text = loadstring or load -- luacheck: ignore 113

values.unpack = table.unpack or unpack

--- A list that can be unpacked with its nils.
function values.pack(...) return { n = select("#", ...), ... } end

local function source(value)
  local kind = type(value)
  if kind == "number" then return ("%.17g"):format(value) end
  if kind == "nil" or kind == "boolean" then return tostring(value) end
  return ("%q"):format(tostring(value))
end

--- The values as text.
function values.encode(...)
  local list = {}
  for i = 1, select("#", ...) do list[i] = source((select(i, ...))) end
  return "return " .. table.concat(list, ", ")
end

--- Decodes text to a list of values.
function values.decode(text) return values.pack(assert(load_text(text))()) end

--- The values as a message for `receive`.
function values.message(...)
  local text = values.encode(...)
  return #text .. "\n" .. text
end

--- Reads a message: a list, or nil and the error.
function values.receive(from)
  local length, err = from:receive("*l")
  if not length then return nil, err end
  local text
  text, err = from:receive(tonumber(length))
  if not text then return nil, err end
  return values.decode(text)
end

return values
