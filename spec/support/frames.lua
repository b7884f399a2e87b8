-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- AMQP 0-9-1 frames as Lua tables, in both directions, for tests.
--
-- The unit specs use it to play the broker against the core. The raw client (client.lua) uses it to play a client
-- against a broker. It is written from the specification and shares no code with the library under test, so that one
-- defect cannot hide in both.
--
-- A frame is one of
--
--     { channel = 1, method = "queue.declare-ok", queue = "q", message_count = 0, consumer_count = 0 }
--     { channel = 1, header = true, class = 60, size = 5, properties = { message_id = "7", expiration = "0" } }
--     { channel = 1, body = "bytes" }
--     { channel = 0, heartbeat = true }
--     { protocol = "0-9-1" }                        the eight bytes "AMQP…" that open or refuse a connection
--
-- Field names are those of the specification, with underscores. A missing field is zero, false or empty. An unknown
-- field is an error, since it must be a typing error.
local lua53 = require "spec.support.lua53"

local frames = {}

local pack, unpack = lua53.pack, lua53.unpack

--- The protocol header, which a client sends first.
frames.header = "AMQP\0\0\9\1"

local METHOD, HEADER, BODY, HEARTBEAT, FRAME_END = 1, 2, 3, 8, 0xCE
local BASIC = 60

-- class.method name field:type …, from the specification; RabbitMQ's own are connection.blocked, .unblocked and
-- .update-secret, basic.nack and all of confirm. Consecutive bits share an octet.
local methods = {}  -- both by name and by class * 65536 + method
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
  methods[name] = method
  methods[method.class * 65536 + method.id] = method
end

-- The properties of a message, the first having the highest flag bit.
local PROPERTIES = {}
for name, kind in ([[content_type:shortstr content_encoding:shortstr headers:table delivery_mode:octet priority:octet
  correlation_id:shortstr reply_to:shortstr expiration:shortstr message_id:shortstr timestamp:longlong type:shortstr
  user_id:shortstr app_id:shortstr cluster_id:shortstr]]):gmatch("([%w_]+):(%w+)") do
  table.insert(PROPERTIES, { name = name, kind = kind, flag = 2 ^ (15 - #PROPERTIES) })
  PROPERTIES[name] = true
end

--- The names of all methods, sorted: for tests that go through every one.
function frames.methods()
  local names = {}
  for name in pairs(methods) do
    if type(name) == "string" then table.insert(names, name) end
  end
  table.sort(names)
  return names
end

--- The fields of a method, in order: { { name = "queue", kind = "shortstr" }, … }
function frames.fields(method)
  return methods[method].fields
end

--- The properties of a message, in order, in the same way.
function frames.properties()
  return PROPERTIES
end

-- Values in field tables --------------------------------------------------------------------------------------------

local typed = {}  -- the metatable of values whose type on the wire was chosen by the test

--- A value for a field table with an explicit wire type: frames.as("s", 5) is a signed 16-bit 5. Plain Lua values imply
-- their type: booleans t, integers I or l, floats d, strings S, lists A, other tables F.
function frames.as(kind, value)
  return setmetatable({ kind = kind, value = value }, typed)
end

--- The value of type V; a table cannot hold nil for it.
frames.void = setmetatable({ kind = "V" }, typed)

-- RabbitMQ and rabbitmq-c interpret these letters differently from the specification (s, l, L). This follows RabbitMQ.
local FIXED = {
  b = ">i1", B = ">I1", s = ">i2", U = ">i2", u = ">I2", I = ">i4", i = ">I4", l = ">i8", L = ">I8",
  f = ">f", d = ">d", T = ">I8", S = ">s4", x = ">s4",
}

local encode_table, decode_table

--- The bytes of a field table.
function frames.encode_table(fields) return encode_table(fields) end

--- Decodes a field table at `at`; returns it and the position after it.
function frames.decode_table(bytes, at) return decode_table(bytes, at) end

local function kind_of(value)
  local lua_type = lua53.math_type(value) or type(value)
  if lua_type == "boolean" then return "t" end
  if lua_type == "integer" then return value >= -0x80000000 and value < 0x80000000 and "I" or "l" end
  if lua_type == "float" then return "d" end
  if lua_type == "string" then return "S" end
  if lua_type == "table" then return #value > 0 and "A" or "F" end
  error("a field table cannot hold a " .. lua_type, 0)
end

local function encode_value(value)
  local kind
  if getmetatable(value) == typed then
    kind, value = value.kind, value.value
  else
    kind = kind_of(value)
  end
  if FIXED[kind] then return kind .. pack(FIXED[kind], value) end
  if kind == "V" then return kind end
  if kind == "t" then return kind .. (value and "\1" or "\0") end
  if kind == "D" then return kind .. pack(">I1i4", value.scale, value.value) end
  if kind == "F" then return kind .. encode_table(value) end
  if kind == "A" then
    local items = {}
    for i, item in ipairs(value) do items[i] = encode_value(item) end
    return kind .. pack(">s4", table.concat(items))
  end
  error("no such type in a field table: " .. tostring(kind), 0)
end

-- Keys are sorted, so that equal tables have equal bytes.
function encode_table(fields)
  local keys, bytes = {}, {}
  for key in pairs(fields) do table.insert(keys, key) end
  table.sort(keys)
  for i, key in ipairs(keys) do bytes[i] = pack(">s1", key) .. encode_value(fields[key]) end
  return pack(">s4", table.concat(bytes))
end

local function decode_value(bytes, at)
  local kind = bytes:sub(at, at)
  at = at + 1
  if FIXED[kind] then return unpack(FIXED[kind], bytes, at) end
  if kind == "V" then return frames.void, at end
  if kind == "t" then return bytes:byte(at) ~= 0, at + 1 end
  if kind == "F" then return decode_table(bytes, at) end
  if kind == "D" then
    local scale, value, after = unpack(">I1i4", bytes, at)
    return frames.as("D", { scale = scale, value = value }), after
  end
  if kind == "A" then
    local items, after = unpack(">s4", bytes, at)
    local list, i = {}, 1
    while i <= #items do list[#list + 1], i = decode_value(items, i) end
    return list, after
  end
  error(("no such type in a field table: %q"):format(kind), 0)
end

function decode_table(bytes, at)
  local items, after = unpack(">s4", bytes, at)
  local fields, i = {}, 1
  while i <= #items do
    local key
    key, i = unpack(">s1", items, i)
    fields[key], i = decode_value(items, i)
  end
  return fields, after
end

-- The fields of methods and headers ---------------------------------------------------------------------------------

local PLAIN = { octet = ">I1", short = ">I2", long = ">I4", longlong = ">I8", shortstr = ">s1", longstr = ">s4" }
local EMPTY = { octet = 0, short = 0, long = 0, longlong = 0, shortstr = "", longstr = "" }

local function encode_field(field, value)
  if field.kind == "table" then return encode_table(value or {}) end
  if value == nil then value = EMPTY[field.kind] end
  local fine, bytes = pcall(pack, PLAIN[field.kind], value)
  if not fine then error(("%s = %s: %s"):format(field.name, value, bytes), 0) end
  return bytes
end

local function decode_field(field, bytes, at)
  if field.kind == "table" then return decode_table(bytes, at) end
  return unpack(PLAIN[field.kind], bytes, at)
end

-- Whether a number's bit of this weight is set.
local function has(number, flag) return number % (2 * flag) >= flag end

local function encode_fields(method, values)
  local bytes, octet, flag = {}, 0, 1
  local function end_bits()
    if flag > 1 then table.insert(bytes, string.char(octet)) end
    octet, flag = 0, 1
  end
  for _, field in ipairs(method.fields) do
    if field.kind == "bit" then
      if values[field.name] then octet = octet + flag end
      flag = 2 * flag
    else
      end_bits()
      table.insert(bytes, encode_field(field, values[field.name]))
    end
  end
  end_bits()
  return table.concat(bytes)
end

local function decode_fields(method, bytes, at, values)
  local flag = 1
  for _, field in ipairs(method.fields) do
    if field.kind == "bit" then
      values[field.name] = has(bytes:byte(at), flag)
      flag = 2 * flag
    else
      if flag > 1 then at, flag = at + 1, 1 end
      values[field.name], at = decode_field(field, bytes, at)
    end
  end
  return values
end

-- Frames ------------------------------------------------------------------------------------------------------------

local function encode_method(frame)
  local method = methods[frame.method] or error("no such method: " .. tostring(frame.method), 0)
  for name in pairs(frame) do
    if not (method.has[name] or name == "channel" or name == "method") then
      error(("%s has no field %s"):format(method.name, name), 0)
    end
  end
  return pack(">I2I2", method.class, method.id) .. encode_fields(method, frame)
end

local function encode_header(frame)
  local flags, values = 0, {}
  local properties = frame.properties or {}
  for name in pairs(properties) do
    if not PROPERTIES[name] then error("no such property: " .. tostring(name), 0) end
  end
  for _, property in ipairs(PROPERTIES) do
    local value = properties[property.name]
    if value ~= nil then
      flags = flags + property.flag
      table.insert(values, encode_field(property, value))
    end
  end
  return pack(">I2I2I8I2", frame.class or BASIC, 0, frame.size or 0, flags) .. table.concat(values)
end

--- The bytes of one frame. It does not split content into frames: encode_content does, which knows frame_max.
function frames.encode(frame)
  local kind, payload
  if frame.protocol then
    return frames.header
  elseif frame.method then
    kind, payload = METHOD, encode_method(frame)
  elseif frame.header then
    kind, payload = HEADER, encode_header(frame)
  elseif frame.body then
    kind, payload = BODY, frame.body
  elseif frame.heartbeat then
    kind, payload = HEARTBEAT, ""
  else
    error("neither method, header, body nor heartbeat", 2)
  end
  return pack(">I1I2s4I1", kind, frame.channel or 0, payload, FRAME_END)
end

--- A whole message: its method (a table as for encode), its header and its body, split by frame_max.
function frames.encode_content(method, properties, body, frame_max)
  local channel, room = method.channel, (frame_max or 131072) - 8
  local parts = {
    frames.encode(method),
    frames.encode{ channel = channel, header = true, size = #body, properties = properties },
  }
  for from = 1, #body, room do
    table.insert(parts, frames.encode{ channel = channel, body = body:sub(from, from + room - 1) })
  end
  return table.concat(parts)
end

local function decode_method(channel, payload)
  local class, id = unpack(">I2I2", payload)
  local method = methods[class * 65536 + id] or error(("no such method: %d.%d"):format(class, id), 0)
  return decode_fields(method, payload, 5, { channel = channel, method = method.name })
end

local function decode_header(channel, payload)
  local class, _, size, flags, at = unpack(">I2I2I8I2", payload)
  local properties = {}
  for _, property in ipairs(PROPERTIES) do
    if has(flags, property.flag) then
      properties[property.name], at = decode_field(property, payload, at)
    end
  end
  return { channel = channel, header = true, class = class, size = size, properties = properties }
end

local function decode(kind, channel, payload)
  if kind == METHOD then return decode_method(channel, payload) end
  if kind == HEADER then return decode_header(channel, payload) end
  if kind == BODY then return { channel = channel, body = payload } end
  if kind == HEARTBEAT then return { channel = channel, heartbeat = true } end
  error("no such type of frame: " .. kind, 0)
end

local function escaped(text) return (text:gsub("%c", function (char) return ("\\%d"):format(char:byte()) end)) end

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

local decoder = {}
decoder.__index = decoder

--- A decoder for one direction of one connection.
function frames.decoder()
  return setmetatable({ bytes = "" }, decoder)
end

-- Decodes one frame of `bytes` at `at`; returns it and the position after it. nil: the frame is not complete.
local function decode_at(bytes, at)
  if #bytes - at + 1 < 8 then return nil end  -- the shortest frame, a heartbeat, has eight bytes, as has the header
  if bytes:byte(at) == 0x41 then
    return { protocol = ("%d-%d-%d"):format(bytes:byte(at + 5, at + 7)) }, at + 8
  end
  local kind, channel, size, payload_at = unpack(">I1I2I4", bytes, at)
  local end_at = payload_at + size
  if #bytes < end_at then return nil end
  if bytes:byte(end_at) ~= FRAME_END then error("a frame that does not end in 0xCE", 0) end
  return decode(kind, channel, bytes:sub(payload_at, end_at - 1)), end_at + 1
end

--- Takes bytes, split anywhere; returns the list of frames that are complete now, often none. Throws if the bytes are
-- not AMQP, but not if they are only incomplete.
function decoder:feed(bytes)
  bytes = self.bytes .. bytes
  local list, at = {}, 1
  local frame, after = decode_at(bytes, at)
  while frame do
    table.insert(list, frame)
    at = after
    frame, after = decode_at(bytes, at)
  end
  self.bytes = bytes:sub(at)
  return list
end

return frames
