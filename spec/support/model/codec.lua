-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The frames of spec/support/frames.lua for the model broker, which reads and writes hundreds of thousands a second.
-- Each method has a generated function instead of a loop over its fields. Misspelt fields are not detected.
-- spec/sim/codec_spec.lua checks that it equals frames.lua. It exists for speed alone (docs/design-changes.md).
local frames = require "spec.support.frames"

local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor

local codec = { METHOD = 1, HEADER = 2, BODY = 3, HEARTBEAT = 8, PROTOCOL = 0x41 }

local FRAME_END = 0xCE

-- Writing values ----------------------------------------------------------------------------------------------------

-- Cached: most numbers are small and occur again and again.
local function remembered(fn)
  local known = {}
  return function (number)
    if number >= 4096 then return fn(number) end
    local bytes = known[number]
    if not bytes then
      bytes = fn(number)
      known[number] = bytes
    end
    return bytes
  end
end

local write = { octet = char }

write.short = remembered(function (number) return char(floor(number / 0x100), number % 0x100) end)

write.long = remembered(function (number)
  return char(floor(number / 0x1000000), floor(number / 0x10000) % 0x100, floor(number / 0x100) % 0x100, number % 0x100)
end)

write.longlong = remembered(function (number)
  return write.long(floor(number / 0x100000000)) .. write.long(number % 0x100000000)
end)

local short = write.short

-- Reading values: each returns a value, and the position after it ---------------------------------------------------

local read = {}

function read.octet(bytes, at) return byte(bytes, at), at + 1 end

function read.short(bytes, at)
  local a, b = byte(bytes, at, at + 1)
  return a * 0x100 + b, at + 2
end

local function read_long(bytes, at)
  local a, b, c, d = byte(bytes, at, at + 3)
  return ((a * 0x100 + b) * 0x100 + c) * 0x100 + d, at + 4
end

read.long = read_long

function read.longlong(bytes, at)
  return read_long(bytes, at) * 0x100000000 + read_long(bytes, at + 4), at + 8
end

function read.shortstr(bytes, at)
  local after = at + 1 + byte(bytes, at)
  return sub(bytes, at + 1, after - 1), after
end

function read.longstr(bytes, at)
  local after = at + 4 + read_long(bytes, at)
  return sub(bytes, at + 4, after - 1), after
end

-- The types that most values in field tables have; frames.lua decodes the others.
local VALUES = { [("S"):byte()] = read.longstr, [("T"):byte()] = read.longlong }

VALUES[("t"):byte()] = function (bytes, at) return byte(bytes, at) ~= 0, at + 1 end

VALUES[("I"):byte()] = function (bytes, at)
  local number, after = read_long(bytes, at)
  return number < 0x80000000 and number or number - 0x100000000, after
end

VALUES[("l"):byte()] = function (bytes, at)
  local high, low = read_long(bytes, at), read_long(bytes, at + 4)
  if high >= 0x80000000 then high = high - 0x100000000 end
  return high * 0x100000000 + low, at + 8
end

function read.table(bytes, at)
  local fields, next_at, after = {}, at + 4, at + 4 + read_long(bytes, at)
  while next_at < after do
    local key, value_at = read.shortstr(bytes, next_at)
    local read_value = VALUES[byte(bytes, value_at)]
    if not read_value then return frames.decode_table(bytes, at) end
    fields[key], next_at = read_value(bytes, value_at + 1)
  end
  return fields, after
end

VALUES[("F"):byte()] = read.table

-- Methods -----------------------------------------------------------------------------------------------------------

-- The fields of a method, bits that share an octet together: { { kind = "short", "name" }, { kind = "bits", … }, … }
local function groups_of(name)
  local groups = {}
  for _, field in ipairs(frames.fields(name)) do
    local last = groups[#groups]
    if field.kind == "bit" and last and last.kind == "bits" then
      table.insert(last, field.name)
    else
      table.insert(groups, { kind = field.kind == "bit" and "bits" or field.kind, field.name })
    end
  end
  return groups
end

-- Compiles a function from source; `id` and the reader or writer of each kind of value, by the kind's name, are its
-- locals.
local function function_of(source, kinds, id)
  local chunk = ("local kinds, id, encode_table = ... " ..
    "local octet, short, long, longlong = kinds.octet, kinds.short, kinds.long, kinds.longlong " ..
    "local shortstr, longstr, table = kinds.shortstr, kinds.longstr, kinds.table %s"):format(source)
  return assert((loadstring or load)(chunk))(kinds, id, frames.encode_table)
end

local SIZES = { octet = 1, short = 2, long = 4, longlong = 8, bits = 1, shortstr = 1, longstr = 4, table = 0 }

-- The source of a writer for one group of fields: the declarations that it needs, and the expression to write.
local function writer_of(group, i)
  local name, kind = group[1], group.kind
  if kind == "bits" then
    local bits = {}
    for bit, field in ipairs(group) do bits[bit] = ("(frame.%s and %d or 0)"):format(field, 2 ^ (bit - 1)) end
    return "", ("octet(%s)"):format(table.concat(bits, " + "))
  elseif kind == "table" then
    return ("local v%d = encode_table(frame.%s or {}) "):format(i, name), "v" .. i, true
  elseif kind == "shortstr" or kind == "longstr" then
    return ("local v%d = frame.%s or '' "):format(i, name),
      ("%s(#v%d) .. v%d"):format(kind == "shortstr" and "octet" or "long", i, i), true
  end
  return "", ("%s(frame.%s or 0)"):format(kind, name)
end

-- function (frame, channel) local v2 = frame.queue or "" …
--   return "\1" .. short(channel) .. long(7 + #v2 …) .. id .. short(frame.ticket or 0) .. octet(#v2) .. v2 … end
local function encoder_of(name, id)
  local before, parts, sizes, fixed = {}, {}, {}, 4
  for i, group in ipairs(groups_of(name)) do
    local is_long
    before[i], parts[i], is_long = writer_of(group, i)
    fixed = fixed + SIZES[group.kind]
    if is_long then table.insert(sizes, " + #v" .. i) end
  end
  table.insert(parts, 1, ('"\\1" .. short(channel) .. long(%d%s) .. id'):format(fixed, table.concat(sizes)))
  table.insert(parts, '"\\206"')
  return function_of(("return function (frame, channel) %s return %s end"):format(table.concat(before),
    table.concat(parts, " .. ")), write, id)
end

-- Reserved fields, which nothing uses.
local RESERVED = { ticket = true, immediate = true }

-- function (bytes, at, channel) local v1 v1, at = short(bytes, at) … return { channel = channel, …, queue = v2, … } end
local function decoder_of(name)
  local lines, fields = {}, { "channel = channel", ("method = %q"):format(name) }
  for i, group in ipairs(groups_of(name)) do
    local kind = group.kind == "bits" and "octet" or group.kind
    table.insert(lines, ("local v%d v%d, at = %s(bytes, at)"):format(i, i, kind))
    for bit, field in ipairs(group) do
      local is_set = group.kind == "bits" and (" %% %d >= %d"):format(2 ^ bit, 2 ^ (bit - 1)) or ""
      if not RESERVED[field] then table.insert(fields, ("%s = v%d%s"):format(field, i, is_set)) end
    end
  end
  return function_of(("return function (bytes, at, channel) %s return { %s } end"):format(table.concat(lines, " "),
    table.concat(fields, ", ")), read)
end

local encoders, decoders = {}, {}
for _, name in ipairs(frames.methods()) do
  local id = frames.encode{ channel = 0, method = name }:sub(8, 11)
  encoders[name], decoders[(read_long(id, 1))] = encoder_of(name, id), decoder_of(name)
end

--- The bytes of a method on a channel.
function codec.encode(frame, channel)
  return encoders[frame.method](frame, channel)
end

--- Decodes the method in the frame at `at` on that channel, as frames.decode does, but without reserved fields.
function codec.method(bytes, at, channel)
  local id = read_long(bytes, at + 7)
  local decode = decoders[id]
  if not decode then error(("no such method: %d.%d"):format(floor(id / 0x10000), id % 0x10000), 0) end
  return decode(bytes, at + 11, channel)
end

-- Content and other frames ------------------------------------------------------------------------------------------

codec.heartbeat = frames.encode{ heartbeat = true }

--- The bytes of a message's header.
function codec.header(channel, properties, size)
  return frames.encode{ channel = channel, header = true, size = size, properties = properties }
end

--- The same header on a channel.
function codec.header_on(channel, header)
  local a, b = byte(header, 2, 3)
  if a * 0x100 + b == channel then return header end
  return "\2" .. short(channel) .. sub(header, 4)
end

local PROPERTIES = frames.properties()

--- The properties in a message's header.
function codec.properties(header)
  local flags, at, properties = read.short(header, 20), 22, {}
  for i = 1, #PROPERTIES do
    local property = PROPERTIES[i]
    if flags >= property.flag then
      flags = flags - property.flag
      properties[property.name], at = read[property.kind](header, at)
    end
  end
  return properties
end

--- The size of the body that follows a header.
function codec.body_size(header) return (read.longlong(header, 12)) end

--- The frames of a message's body.
function codec.body(channel, body, frame_max)
  local parts, room = {}, frame_max - 8
  for from = 1, #body, room do
    table.insert(parts, frames.encode{ channel = channel, body = body:sub(from, from + room - 1) })
  end
  return table.concat(parts)
end

--- Returns the kind and the channel of the frame at `at`, and where the next begins; nothing if the frame is not
-- complete.
function codec.look(bytes, at)
  local left = #bytes - at + 1
  if left < 8 then return nil end
  local kind, a, b, c, d, e, f = byte(bytes, at, at + 6)
  if kind == codec.PROTOCOL then return kind, 0, at + 8 end
  local size = ((c * 0x100 + d) * 0x100 + e) * 0x100 + f + 8
  if left < size then return nil end
  if byte(bytes, at + size - 1) ~= FRAME_END then error("a frame that does not end in 0xCE", 0) end
  return kind, a * 0x100 + b, at + size
end

return codec
