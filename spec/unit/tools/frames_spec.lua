-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The codec of unit specs and of the model (spec/support/frames.lua).
local frames = require "spec.support.frames"
local lua53 = require "spec.support.lua53"

local hex = lua53.bytes

local function decoded(bytes)
  local list = frames.decoder():feed(bytes)
  assert.equal(1, #list)
  return list[1]
end

-- A value for every kind of field, different for each place so that mixed up fields show.
local function sample(kind, i)
  if kind == "bit" then return i % 2 == 0 end
  if kind == "table" then return { ["x-max-length"] = i } end
  if kind == "shortstr" or kind == "longstr" then return kind .. i end
  return ({ octet = 20, short = 6000, long = 400000000, longlong = 0x0800000000000000 })[kind] * i
end

describe("frames", function ()
  -- Bytes written down by hand from the specification, so that encode and decode cannot agree on a mistake.
  for name, case in pairs{
    ["a heartbeat"] = { { channel = 0, heartbeat = true }, "08 0000 00000000 ce" },
    ["bits in one octet, the first lowest, and an empty table"] = {
      { channel = 2, method = "queue.declare", queue = "q", passive = false, durable = true, exclusive = false,
        auto_delete = true, no_wait = false, arguments = {} },
      "01 0002 0000000d 0032 000a 0000 01 71 0a 00000000 ce",
    },
    ["bits after a long field"] = {
      { channel = 1, method = "basic.nack", delivery_tag = 5, multiple = false, requeue = true },
      "01 0001 0000000d 003c 0078 0000000000000005 02 ce",
    },
    ["a bit between other fields"] = {
      { channel = 1, method = "basic.deliver", consumer_tag = "t", delivery_tag = 1, redelivered = true, exchange = "",
        routing_key = "q" },
      "01 0001 00000012 003c 003c 01 74 0000000000000001 01 00 01 71 ce",
    },
    ["a header with delivery-mode, expiration and message-id"] = {
      { channel = 1, header = true, class = 60, size = 0,
        properties = { delivery_mode = 1, expiration = "0", message_id = "17" } },
      "02 0001 00000014 003c 0000 0000000000000000 1180 01 01 30 02 3137 ce",
    },
    ["a body"] = { { channel = 3, body = "hi" }, "03 0003 00000002 6869 ce" },
    ["the protocol header"] = { { protocol = "0-9-1" }, "41 4d 51 50 00 00 09 01" },
  } do
    it("on the wire are " .. name, function ()
      assert.equal(hex(case[2]), frames.encode(case[1]))
      assert.same(case[1], decoded(hex(case[2])))
    end)
  end

  it("come back as they were sent, every method with every field, byte by byte", function ()
    local everything, bytes, seen = {}, {}, {}
    for name, method in pairs(frames.methods) do
      local frame = { channel = 300 + method.id, method = name }
      for i, field in ipairs(method.fields) do
        if field.name ~= "ticket" then frame[field.name] = sample(field.kind, i) end
      end
      table.insert(everything, frame)
    end
    for i, frame in ipairs(everything) do bytes[i] = frames.encode(frame) end
    local decoder = frames.decoder()
    for byte in table.concat(bytes):gmatch "." do
      for _, frame in ipairs(decoder:feed(byte)) do table.insert(seen, frame) end
    end
    assert.same(everything, seen)
  end)

  it("of a message are method, header and bodies no longer than frame_max", function ()
    local deliver, properties = { channel = 1, method = "basic.deliver" }, { type = "t" }
    local list = frames.decoder():feed(frames.encode_content(deliver, properties, ("x"):rep(4100), 4096))
    assert.same({ channel = 1, header = true, class = 60, size = 4100, properties = properties }, list[2])
    assert.same({ 4, 4088, 12 }, { #list, #list[3].body, #list[4].body })
    assert.equal(2, #frames.decoder():feed(frames.encode_content(deliver, {}, "")))
  end)

  it("of bytes that are no AMQP are errors, as is a slip of the pen", function ()
    for bytes, message in pairs{
      ["08 0000 00000000 cd"] = "a frame that does not end in 0xCE",
      ["09 0000 00000000 ce"] = "no such type of frame: 9",
      ["01 0000 00000004 0032 0063 ce"] = "no such method: 50.99",
      ["01 0001 00000005 0014 0029 00 ce"] = "a frame whose fields end elsewhere",
    } do
      assert.has_error(function () frames.decoder():feed(hex(bytes)) end, message)
    end
    for message, frame in pairs{
      ["no such method: queue.make"] = { method = "queue.make" },
      ["queue.delete has no field exclusive"] = { method = "queue.delete", exclusive = true },
      ["no such property: ttl"] = { header = true, properties = { ttl = 1 } },
    } do
      assert.error_matches(function () frames.encode(frame) end, message)
    end
  end)
end)

-- The letters as RabbitMQ and rabbitmq-c read them.
it("a field table takes and gives every type that is used", function ()
  for _, case in ipairs{
    { "t", true, "74 01" }, { "b", -2, "62 fe" }, { "B", 254, "42 fe" }, { "s", -2, "73 fffe" },
    { "U", -2, "55 fffe" }, { "u", 65534, "75 fffe" }, { "I", -2, "49 fffffffe" }, { "i", 4294967294, "69 fffffffe" },
    { "l", -2, "6c fffffffffffffffe" }, { "L", 2, "4c 0000000000000002" }, { "f", 0.5, "66 3f000000" },
    { "d", 0.5, "64 3fe0000000000000" }, { "T", 1, "54 0000000000000001" }, { "S", "ab", "53 00000002 6162" },
    { "x", "ab", "78 00000002 6162" }, { "A", { 1 }, "41 00000005 49 00000001" },
    { "F", { k = true }, "46 00000004 01 6b 74 01" },
  } do
    local kind, value, bytes = case[1], case[2], hex(case[3])
    local frame = frames.encode{ channel = 1, method = "queue.declare", arguments = { k = frames.as(kind, value) } }
    assert.equal(lua53.pack(">s4", "\1k" .. bytes), frame:sub(-1 - 4 - 2 - #bytes, -2))
    assert.same({ k = value }, decoded(frame).arguments)
  end
end)
