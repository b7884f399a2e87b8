-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- AMQP 0-9-1 frames as Lua tables, in both directions, for specs: the scripted peer, the raw client (client.lua) and
-- the model broker. It is written from the specification and shares no code with the library under test, so that one
-- defect cannot hide in both. A frame is one of
--
--     { channel = 1, method = "queue.declare-ok", queue = "q", message_count = 0, consumer_count = 0 }
--     { channel = 1, header = true, class = 60, size = 5, properties = { message_id = "7", expiration = "0" } }
--     { channel = 1, body = "bytes" }
--     { channel = 0, heartbeat = true }
--     { protocol = "0-9-1" }                        the eight bytes "AMQP…" that open or refuse a connection
--
-- Field names are those of the specification, with underscores. A missing field is zero, false or empty. An unknown
-- field is an error, since it must be a typing error. The model broker reads and writes hundreds of thousands of
-- frames a second. So each method has two generated functions instead of a loop over its fields.
local lua53 = require "spec.support.lua53"

local pack, unpack = lua53.pack, lua53.unpack
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor

local FRAME_END, BASIC = 0xCE, 60

--- The kinds of frames; "A" begins a protocol header. `header` is that of a client, which it sends first.
local frames = { METHOD = 1, HEADER = 2, BODY = 3, HEARTBEAT = 8, PROTOCOL = 0x41, header = "AMQP\0\0\9\1" }

-- class.method name field:type …, from the specification; RabbitMQ's own are connection.blocked, .unblocked and
-- .update-secret, basic.nack and all of confirm. Consecutive bits share an octet.
local methods, by_id = {}, {} -- by name, and by class * 65536 + method
for class, id, name, fields in ([[
  10.10 connection.start        version_major:octet version_minor:octet server_properties:table mechanisms:longstr
                                locales:longstr
  10.11 connection.start-ok     client_properties:table mechanism:shortstr response:longstr locale:shortstr
  10.20 connection.secure       challenge:longstr
  10.21 connection.secure-ok    response:longstr
  10.30 connection.tune         channel_max:short frame_max:long heartbeat:short
  10.31 connection.tune-ok      channel_max:short frame_max:long heartbeat:short
  10.40 connection.open         virtual_host:shortstr capabilities:shortstr insist:bit
  10.41 connection.open-ok      known_hosts:shortstr
  10.50 connection.close        reply_code:short reply_text:shortstr class_id:short method_id:short
  10.51 connection.close-ok
  10.60 connection.blocked      reason:shortstr
  10.61 connection.unblocked
  10.70 connection.update-secret new_secret:longstr reason:shortstr
  10.71 connection.update-secret-ok
  20.10 channel.open            out_of_band:shortstr
  20.11 channel.open-ok         channel_id:longstr
  20.20 channel.flow            active:bit
  20.21 channel.flow-ok         active:bit
  20.40 channel.close           reply_code:short reply_text:shortstr class_id:short method_id:short
  20.41 channel.close-ok
  40.10 exchange.declare        ticket:short exchange:shortstr type:shortstr passive:bit durable:bit auto_delete:bit
                                internal:bit no_wait:bit arguments:table
  40.11 exchange.declare-ok
  40.20 exchange.delete         ticket:short exchange:shortstr if_unused:bit no_wait:bit
  40.21 exchange.delete-ok
  50.10 queue.declare           ticket:short queue:shortstr passive:bit durable:bit exclusive:bit auto_delete:bit
                                no_wait:bit arguments:table
  50.11 queue.declare-ok        queue:shortstr message_count:long consumer_count:long
  50.20 queue.bind              ticket:short queue:shortstr exchange:shortstr routing_key:shortstr no_wait:bit
                                arguments:table
  50.21 queue.bind-ok
  50.30 queue.purge             ticket:short queue:shortstr no_wait:bit
  50.31 queue.purge-ok          message_count:long
  50.40 queue.delete            ticket:short queue:shortstr if_unused:bit if_empty:bit no_wait:bit
  50.41 queue.delete-ok         message_count:long
  50.50 queue.unbind            ticket:short queue:shortstr exchange:shortstr routing_key:shortstr arguments:table
  50.51 queue.unbind-ok
  60.10 basic.qos               prefetch_size:long prefetch_count:short global:bit
  60.11 basic.qos-ok
  60.20 basic.consume           ticket:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit
                                exclusive:bit no_wait:bit arguments:table
  60.21 basic.consume-ok        consumer_tag:shortstr
  60.30 basic.cancel            consumer_tag:shortstr no_wait:bit
  60.31 basic.cancel-ok         consumer_tag:shortstr
  60.40 basic.publish           ticket:short exchange:shortstr routing_key:shortstr mandatory:bit immediate:bit
  60.50 basic.return            reply_code:short reply_text:shortstr exchange:shortstr routing_key:shortstr
  60.60 basic.deliver           consumer_tag:shortstr delivery_tag:longlong redelivered:bit exchange:shortstr
                                routing_key:shortstr
  60.70 basic.get               ticket:short queue:shortstr no_ack:bit
  60.71 basic.get-ok            delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr
                                message_count:long
  60.72 basic.get-empty         cluster_id:shortstr
  60.80 basic.ack               delivery_tag:longlong multiple:bit
  60.90 basic.reject            delivery_tag:longlong requeue:bit
  60.110 basic.recover          requeue:bit
  60.111 basic.recover-ok
  60.120 basic.nack             delivery_tag:longlong multiple:bit requeue:bit
  85.10 confirm.select          no_wait:bit
  85.11 confirm.select-ok
]]):gmatch("(%d+)%.(%d+) (%S+)([^%d]*)") do
  local method = { name = name, class = tonumber(class), id = tonumber(id), fields = {}, has = {} }
  for field, kind in fields:gmatch("([%w_]+):(%w+)") do
    table.insert(method.fields, { name = field, kind = kind })
    method.has[field] = true
  end
  methods[name], by_id[method.class * 65536 + method.id] = method, method
end

-- The properties of a message, the first having the highest flag bit.
local PROPERTIES = {}
for name, kind in ([[content_type:shortstr content_encoding:shortstr headers:table delivery_mode:octet priority:octet
  correlation_id:shortstr reply_to:shortstr expiration:shortstr message_id:shortstr timestamp:longlong type:shortstr
  user_id:shortstr app_id:shortstr cluster_id:shortstr]]):gmatch("([%w_]+):(%w+)") do
  table.insert(PROPERTIES, { name = name, kind = kind, flag = 2 ^ (15 - #PROPERTIES) })
  PROPERTIES[name] = true
end

--- All methods, by name: each has a class, an id, and fields in order, { { name = "queue", kind = "shortstr" }, … }.
frames.methods = methods

-- Values: write[kind](value) returns bytes; read[kind](bytes, at) returns a value, and the position after it ---------

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

local write, read = { octet = char }, {}

write.short = remembered(function (number) return char(floor(number / 0x100), number % 0x100) end)

write.long = remembered(function (number)
  return char(floor(number / 0x1000000), floor(number / 0x10000) % 0x100, floor(number / 0x100) % 0x100, number % 0x100)
end)

write.longlong = remembered(function (number) return pack(">I8", number) end)

function write.shortstr(text) return char(#text) .. text end

function write.longstr(text) return write.long(#text) .. text end

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

-- Values in field tables --------------------------------------------------------------------------------------------

local typed = {}  -- the metatable of values whose type on the wire was chosen by the test

--- A value for a field table with an explicit wire type: frames.as("s", 5) is a signed 16-bit 5. Plain Lua values imply
-- their type: booleans t, integers I or l, floats d, strings S, lists A, other tables F.
function frames.as(kind, value)
  return setmetatable({ kind = kind, value = value }, typed)
end

-- RabbitMQ and rabbitmq-c interpret these letters differently from the specification (s, l, L). This follows RabbitMQ.
local FIXED = {
  b = ">i1", B = ">I1", s = ">i2", U = ">i2", u = ">I2", I = ">i4", i = ">I4", l = ">i8", L = ">I8",
  f = ">f", d = ">d", T = ">I8", S = ">s4", x = ">s4",
}

local function kind_of(value)
  local lua_type = lua53.math_type(value) or type(value)
  if lua_type == "boolean" then return "t" end
  if lua_type == "integer" then return value >= -0x80000000 and value < 0x80000000 and "I" or "l" end
  if lua_type == "float" then return "d" end
  if lua_type == "string" then return "S" end
  if lua_type == "table" then return #value > 0 and "A" or "F" end
  error("a field table cannot hold a " .. lua_type, 0)
end

local function write_value(value)
  local kind
  if getmetatable(value) == typed then
    kind, value = value.kind, value.value
  else
    kind = kind_of(value)
  end
  if FIXED[kind] then return kind .. pack(FIXED[kind], value) end
  if kind == "t" then return kind .. (value and "\1" or "\0") end
  if kind == "F" then return kind .. write.table(value) end
  if kind == "A" then
    local items = {}
    for i, item in ipairs(value) do items[i] = write_value(item) end
    return kind .. write.longstr(table.concat(items))
  end
  error("no such type in a field table: " .. tostring(kind), 0)
end

-- Keys are sorted, so that equal tables have equal bytes.
function write.table(fields)
  local keys, bytes = {}, {}
  for key in pairs(fields) do table.insert(keys, key) end
  table.sort(keys)
  for i, key in ipairs(keys) do bytes[i] = write.shortstr(key) .. write_value(fields[key]) end
  return write.longstr(table.concat(bytes))
end

-- Readers by the letter, as a number. Most values have one of the first five types.
local VALUES = {}
for kind, format in pairs(FIXED) do VALUES[byte(kind)] = function (bytes, at) return unpack(format, bytes, at) end end

VALUES[byte "S"], VALUES[byte "T"] = read.longstr, read.longlong

VALUES[byte "t"] = function (bytes, at) return byte(bytes, at) ~= 0, at + 1 end

VALUES[byte "I"] = function (bytes, at)
  local number, after = read_long(bytes, at)
  return number < 0x80000000 and number or number - 0x100000000, after
end

local function read_value(bytes, at)
  local reader = VALUES[byte(bytes, at)]
  if not reader then error(("no such type in a field table: %q"):format(sub(bytes, at, at)), 0) end
  return reader(bytes, at + 1)
end

VALUES[byte "A"] = function (bytes, at)
  local list, next_at, after = {}, at + 4, at + 4 + read_long(bytes, at)
  while next_at < after do list[#list + 1], next_at = read_value(bytes, next_at) end
  return list, after
end

function read.table(bytes, at)
  local fields, next_at, after = {}, at + 4, at + 4 + read_long(bytes, at)
  while next_at < after do
    local key, value_at = read.shortstr(bytes, next_at)
    fields[key], next_at = read_value(bytes, value_at)
  end
  return fields, after
end

VALUES[byte "F"] = read.table

-- Methods -----------------------------------------------------------------------------------------------------------

-- The fields of a method, bits that share an octet together: { { kind = "short", "name" }, { kind = "bits", … }, … }
local function groups_of(method)
  local groups = {}
  for _, field in ipairs(method.fields) do
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
  local chunk = ("local kinds, id = ... local octet, short, long, longlong = kinds.octet, kinds.short, kinds.long, " ..
    "kinds.longlong local shortstr, longstr, table = kinds.shortstr, kinds.longstr, kinds.table %s"):format(source)
  return assert((loadstring or load)(chunk))(kinds, id)
end

local SIZES = { octet = 1, short = 2, long = 4, longlong = 8, bits = 1 }
local EMPTY = { shortstr = "''", longstr = "''", table = "{}" }

-- The source of a writer for one group of fields: the declaration that it needs, and the expression to write.
local function writer_of(group, i)
  local name, kind = group[1], group.kind
  if EMPTY[kind] then
    return ("local v%d = %s(frame.%s or %s) "):format(i, kind, name, EMPTY[kind]), "v" .. i
  elseif kind ~= "bits" then
    return "", ("%s(frame.%s or 0)"):format(kind, name)
  end
  local bits = {}
  for bit, field in ipairs(group) do bits[bit] = ("(frame.%s and %d or 0)"):format(field, 2 ^ (bit - 1)) end
  return "", ("octet(%s)"):format(table.concat(bits, " + "))
end

-- function (frame, channel) local v2 = shortstr(frame.queue or "") …
--   return "\1" .. short(channel) .. long(7 + #v2 …) .. id .. short(frame.ticket or 0) .. v2 … end
local function writer_of_method(method)
  local before, parts, sizes, fixed = {}, {}, {}, 4
  for i, group in ipairs(groups_of(method)) do
    before[i], parts[i] = writer_of(group, i)
    fixed = fixed + (SIZES[group.kind] or 0)
    if not SIZES[group.kind] then table.insert(sizes, " + #v" .. i) end
  end
  table.insert(parts, 1, ('"\\1" .. short(channel) .. long(%d%s) .. id'):format(fixed, table.concat(sizes)))
  table.insert(parts, '"\\206"')
  return function_of(("return function (frame, channel) %s return %s end"):format(table.concat(before),
    table.concat(parts, " .. ")), write, write.short(method.class) .. write.short(method.id))
end

-- function (bytes, at, channel) local v1 v1, at = short(bytes, at) …
--   return { channel = channel, …, queue = v2, … }, at end
local function reader_of_method(method)
  local lines, fields = {}, { "channel = channel", ("method = %q"):format(method.name) }
  for i, group in ipairs(groups_of(method)) do
    local kind = group.kind == "bits" and "octet" or group.kind
    table.insert(lines, ("local v%d v%d, at = %s(bytes, at)"):format(i, i, kind))
    for bit, field in ipairs(group) do
      local is_set = group.kind == "bits" and (" %% %d >= %d"):format(2 ^ bit, 2 ^ (bit - 1)) or ""
      if field ~= "ticket" then table.insert(fields, ("%s = v%d%s"):format(field, i, is_set)) end -- which is reserved
    end
  end
  return function_of(("return function (bytes, at, channel) %s return { %s }, at end"):format(table.concat(lines, " "),
    table.concat(fields, ", ")), read)
end

for _, method in pairs(methods) do
  method.write, method.read = writer_of_method(method), reader_of_method(method)
end

--- The bytes of a method on a channel. Unknown fields are not looked for.
function frames.write_method(frame, channel)
  return methods[frame.method].write(frame, channel)
end

--- The method in the frame at `at`, which is on that channel, and the position after its fields.
function frames.read_method(bytes, at, channel)
  local id = read_long(bytes, at + 7)
  local method = by_id[id] or error(("no such method: %d.%d"):format(floor(id / 0x10000), id % 0x10000), 0)
  return method.read(bytes, at + 11, channel)
end

-- Content and other frames ------------------------------------------------------------------------------------------

local function framed(kind, channel, payload)
  return char(kind) .. write.short(channel) .. write.longstr(payload) .. char(FRAME_END)
end

--- The bytes of a message's header, of the class basic unless given.
function frames.write_header(channel, properties, size, class)
  local flags, values = 0, {}
  properties = properties or {}
  for name in pairs(properties) do
    if not PROPERTIES[name] then error("no such property: " .. tostring(name), 0) end
  end
  for _, property in ipairs(PROPERTIES) do
    local value = properties[property.name]
    if value ~= nil then
      flags = flags + property.flag
      table.insert(values, write[property.kind](value))
    end
  end
  return framed(frames.HEADER, channel, write.short(class or BASIC) .. write.short(0) .. write.longlong(size)
    .. write.short(flags) .. table.concat(values))
end

--- The same header on a channel.
function frames.header_on(channel, header)
  if read.short(header, 2) == channel then return header end
  return "\2" .. write.short(channel) .. sub(header, 4)
end

--- The properties in a message's header, and the position after them.
function frames.properties(header)
  local flags, at, properties = read.short(header, 20), 22, {}
  for i = 1, #PROPERTIES do
    local property = PROPERTIES[i]
    if flags >= property.flag then
      flags = flags - property.flag
      properties[property.name], at = read[property.kind](header, at)
    end
  end
  return properties, at
end

--- The size of the body that follows a header.
function frames.body_size(header) return (read.longlong(header, 12)) end

--- The frames of a message's body.
function frames.write_body(channel, body, frame_max)
  local parts, room = {}, frame_max - 8
  for from = 1, #body, room do
    table.insert(parts, framed(frames.BODY, channel, body:sub(from, from + room - 1)))
  end
  return table.concat(parts)
end

--- A whole message: its method (a table as for encode), its header and its body, split by frame_max.
function frames.encode_content(method, properties, body, frame_max)
  return frames.encode(method) .. frames.write_header(method.channel, properties, #body)
    .. frames.write_body(method.channel, body, frame_max or 131072)
end

--- The bytes of one frame.
function frames.encode(frame)
  local channel, method = frame.channel or 0, methods[frame.method]
  if not method then
    if frame.protocol then return frames.header end
    if frame.header then return frames.write_header(channel, frame.properties, frame.size or 0, frame.class) end
    if frame.body then return framed(frames.BODY, channel, frame.body) end
    if frame.heartbeat then return framed(frames.HEARTBEAT, channel, "") end
    error("no such method: " .. tostring(frame.method), 0)
  end
  for name in pairs(frame) do
    if not (method.has[name] or name == "channel" or name == "method") then
      error(("%s has no field %s"):format(method.name, name), 0)
    end
  end
  return method.write(frame, channel)
end

local function escaped(text) return (text:gsub("%c", function (letter) return ("\\%d"):format(letter:byte()) end)) end

--- A frame as readable text: its method, and those of its fields that are not zero or empty, in order.
function frames.describe(frame)
  if frame.protocol then return "protocol header" end
  if not frame.method then return frame.heartbeat and "heartbeat" or frame.header and "header" or "body" end
  local words = { frame.method }
  for _, field in ipairs(methods[frame.method].fields) do
    local value = frame[field.name]
    local is_plain = value and value ~= "" and value ~= 0 and type(value) ~= "table"
    if is_plain then table.insert(words, field.name .. "=" .. escaped(tostring(value))) end
    if field.name == "arguments" and value and value["x-priority"] then
      table.insert(words, "x-priority=" .. value["x-priority"])
    end
  end
  return ("%d %s"):format(frame.channel or 0, table.concat(words, " "))
end

--- Returns the kind and the channel of the frame at `at`, and where the next begins; nothing if the frame is not
-- complete.
function frames.look(bytes, at)
  local left = #bytes - at + 1
  if left < 8 then return nil end
  local kind, a, b, c, d, e, f = byte(bytes, at, at + 6)
  if kind == frames.PROTOCOL then return kind, 0, at + 8 end
  local size = ((c * 0x100 + d) * 0x100 + e) * 0x100 + f + 8
  if left < size then return nil end
  if byte(bytes, at + size - 1) ~= FRAME_END then error("a frame that does not end in 0xCE", 0) end
  return kind, a * 0x100 + b, at + size
end

-- The frame that is these bytes. Its fields end where it does.
local function decode(kind, channel, bytes)
  if kind == frames.PROTOCOL then return { protocol = ("%d-%d-%d"):format(byte(bytes, 6, 8)) } end
  if kind == frames.BODY then return { channel = channel, body = sub(bytes, 8, -2) } end
  if kind == frames.HEARTBEAT then return { channel = channel, heartbeat = true } end
  local frame, after
  if kind == frames.METHOD then
    frame, after = frames.read_method(bytes, 1, channel)
  elseif kind == frames.HEADER then
    frame = { channel = channel, header = true, class = read.short(bytes, 8), size = frames.body_size(bytes) }
    frame.properties, after = frames.properties(bytes)
  else
    error("no such type of frame: " .. kind, 0)
  end
  if after ~= #bytes then error("a frame whose fields end elsewhere", 0) end
  return frame
end

local decoder = {}
decoder.__index = decoder

--- A decoder for one direction of one connection.
function frames.decoder()
  return setmetatable({ bytes = "" }, decoder)
end

--- Takes bytes, split anywhere; returns the list of frames that are complete now, often none. Throws if the bytes are
-- not AMQP, but not if they are only incomplete.
function decoder:feed(bytes)
  bytes = self.bytes .. bytes
  local list, at = {}, 1
  local kind, channel, after = frames.look(bytes, at)
  while kind do
    table.insert(list, decode(kind, channel, sub(bytes, at, after - 1)))
    at = after
    kind, channel, after = frames.look(bytes, at)
  end
  self.bytes = sub(bytes, at)
  return list
end

return frames
