-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local frames = require "spec.support.frames"
local lua53 = require "spec.support.lua53"

local unpack = table.unpack or unpack
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

local function every_method()
  local list = {}
  for n, name in ipairs(frames.methods()) do
    local frame = { channel = n, method = name }
    for i, field in ipairs(frames.fields(name)) do frame[field.name] = sample(field.kind, i) end
    table.insert(list, frame)
  end
  return list
end

local everything = every_method()
for _, frame in ipairs{
  { channel = 7, header = true, class = 60, size = 11, properties = { message_id = "1", headers = { a = { b = 2 } } } },
  { channel = 7, body = "eleven bytes" },
  { channel = 7, body = "" },
  { channel = 0, heartbeat = true },
  { protocol = "0-9-1" },
} do
  table.insert(everything, frame)
end

describe("frames", function ()
  -- Bytes written down by hand from the specification, so that encode and decode cannot agree on a mistake.
  describe("on the wire", function ()
    local cases = {
      ["a heartbeat"] = { { channel = 0, heartbeat = true }, "08 0000 00000000 ce" },
      ["a method without fields"] = { { channel = 1, method = "channel.close-ok" }, "01 0001 00000004 0014 0029 ce" },
      ["bits in one octet, the first lowest, and an empty table"] = {
        { channel = 2, method = "queue.declare", ticket = 0, queue = "q", passive = false, durable = true,
          exclusive = false, auto_delete = true, no_wait = false, arguments = {} },
        "01 0002 0000000d 0032 000a 0000 01 71 0a 00000000 ce",
      },
      ["bits after a long field"] = {
        { channel = 1, method = "basic.nack", delivery_tag = 5, multiple = false, requeue = true },
        "01 0001 0000000d 003c 0078 0000000000000005 02 ce",
      },
      ["a bit between other fields"] = {
        { channel = 1, method = "basic.deliver", consumer_tag = "t", delivery_tag = 1, redelivered = true,
          exchange = "", routing_key = "q" },
        "01 0001 00000012 003c 003c 01 74 0000000000000001 01 00 01 71 ce",
      },
      ["a header with delivery-mode, expiration and message-id"] = {
        { channel = 1, header = true, class = 60, size = 0,
          properties = { delivery_mode = 1, expiration = "0", message_id = "17" } },
        "02 0001 00000014 003c 0000 0000000000000000 1180 01 01 30 02 3137 ce",
      },
      ["a body"] = { { channel = 3, body = "hi" }, "03 0003 00000002 6869 ce" },
      ["the protocol header"] = { { protocol = "0-9-1" }, "41 4d 51 50 00 00 09 01" },
    }
    for name, case in pairs(cases) do
      it("are " .. name, function ()
        local frame, bytes = case[1], hex(case[2])
        assert.equal(bytes, frames.encode(frame))
        assert.same(frame, decoded(bytes))
      end)
    end
  end)

  it("come back as they were sent, every method with every field", function ()
    for _, frame in ipairs(everything) do assert.same(frame, decoded(frames.encode(frame))) end
  end)

  it("take a field left out as zero, false or empty", function ()
    local empty = { bit = false, shortstr = "", longstr = "", octet = 0, short = 0, long = 0, longlong = 0, table = {} }
    for _, name in ipairs(frames.methods()) do
      local frame = decoded(frames.encode{ channel = 1, method = name })
      for _, field in ipairs(frames.fields(name)) do assert.same(empty[field.kind], frame[field.name]) end
    end
  end)

  it("arrive whole, split in two at every byte", function ()
    for _, frame in ipairs(everything) do
      local bytes = frames.encode(frame)
      for cut = 1, #bytes - 1 do
        local decoder = frames.decoder()
        assert.same({}, decoder:feed(bytes:sub(1, cut)))
        assert.same({ frame }, decoder:feed(bytes:sub(cut + 1)))
      end
    end
  end)

  it("arrive in order, however many come at once", function ()
    local bytes = {}
    for i, frame in ipairs(everything) do bytes[i] = frames.encode(frame) end
    assert.same(everything, frames.decoder():feed(table.concat(bytes)))
  end)

  it("arrive in order, one byte at a time", function ()
    local bytes, decoder, list = {}, frames.decoder(), {}
    for i, frame in ipairs(everything) do bytes[i] = frames.encode(frame) end
    for byte in table.concat(bytes):gmatch(".") do
      for _, frame in ipairs(decoder:feed(byte)) do table.insert(list, frame) end
    end
    assert.same(everything, list)
  end)

  it("are only waited for when cut short, never an error", function ()
    for _, frame in ipairs(everything) do
      local bytes = frames.encode(frame)
      for cut = 0, #bytes - 1 do assert.same({}, frames.decoder():feed(bytes:sub(1, cut))) end
    end
  end)

  it("of a message are method, header and bodies no longer than frame_max", function ()
    local deliver = { channel = 1, method = "basic.deliver" }
    local bytes = frames.encode_content(deliver, { type = "t" }, ("x"):rep(4100), 4096)
    local method, header, first, second, more = unpack(frames.decoder():feed(bytes))
    assert.equal("basic.deliver", method.method)
    assert.same({ size = 4100, properties = { type = "t" } }, { size = header.size, properties = header.properties })
    assert.same({ 4088, 12 }, { #first.body, #second.body })
    assert.equal(4096, #frames.encode(first))
    assert.is_nil(more)
  end)

  it("of an empty message have no body frame", function ()
    assert.equal(2, #frames.decoder():feed(frames.encode_content({ channel = 1, method = "basic.publish" }, {}, "")))
  end)

  describe("of bytes that are no AMQP are errors:", function ()
    local function refused(bytes, message)
      assert.has_error(function () frames.decoder():feed(hex(bytes)) end, message)
    end
    it("no end mark", function () refused("08 0000 00000000 cd", "a frame that does not end in 0xCE") end)
    it("no such type", function () refused("09 0000 00000000 ce", "no such type of frame: 9") end)
    it("no such method", function () refused("01 0000 00000004 0032 0063 ce", "no such method: 50.99") end)
    it("no such type in a table", function ()
      refused("01 0001 0000000b 000a 000b 00000003 01 61 3f ce", 'no such type in a field table: "?"')
    end)
  end)

  describe("with a slip of the pen are errors:", function ()
    local function refused(frame, message)
      assert.error_matches(function () frames.encode(frame) end, message)
    end
    it("a method that is none", function () refused({ method = "queue.make" }, "no such method: queue.make") end)
    it("a field of another method", function ()
      refused({ method = "queue.delete", exclusive = true }, "queue.delete has no field exclusive")
    end)
    it("a property that is none", function ()
      refused({ header = true, properties = { ttl = 1 } }, "no such property: ttl")
    end)
    it("a name over 255 bytes", function ()
      refused({ method = "queue.delete", queue = ("q"):rep(256) }, "queue = q+: ")
    end)
    it("nothing to encode", function () refused({ channel = 1 }, "neither method, header, body nor heartbeat") end)
  end)
end)

describe("a field table", function ()
  local function through(arguments)
    return decoded(frames.encode{ channel = 1, method = "queue.declare", arguments = arguments }).arguments
  end

  it("keeps every plain Lua value", function ()
    local plain = {
      yes = true, no = false, zero = 0, small = -5, least = lua53.mininteger, most = lua53.maxinteger,
      half = 0.5, text = "t\0xt", empty = "", list = { 1, "two", { three = 3 }, { 4 } },
      table = { deep = { deeper = true } },
    }
    assert.same(plain, through(plain))
  end)

  -- Where Lua has one kind of number only, there is nothing to keep apart.
  local apart_it = math.type and it or pending
  apart_it("keeps integers and floats apart", function ()
    local values = through{ integer = 2, float = 2.0 }
    assert.equal("integer", math.type(values.integer))
    assert.equal("float", math.type(values.float))
  end)

  -- The letters as RabbitMQ and rabbitmq-c read them.
  local on_wire = {
    { "t", true, "74 01" }, { "b", -2, "62 fe" }, { "B", 254, "42 fe" }, { "s", -2, "73 fffe" },
    { "U", -2, "55 fffe" }, { "u", 65534, "75 fffe" }, { "I", -2, "49 fffffffe" }, { "i", 4294967294, "69 fffffffe" },
    { "l", -2, "6c fffffffffffffffe" }, { "L", 2, "4c 0000000000000002" }, { "f", 0.5, "66 3f000000" },
    { "d", 0.5, "64 3fe0000000000000" }, { "T", 1, "54 0000000000000001" }, { "S", "ab", "53 00000002 6162" },
    { "x", "ab", "78 00000002 6162" }, { "A", { 1 }, "41 00000005 49 00000001" },
    { "F", { k = true }, "46 00000004 01 6b 74 01" },
  }
  for _, case in ipairs(on_wire) do
    local kind, value, bytes = case[1], case[2], hex(case[3])
    it("takes and gives type " .. kind, function ()
      local frame = frames.encode{ channel = 1, method = "queue.declare", arguments = { k = frames.as(kind, value) } }
      assert.equal(lua53.pack(">s4", "\1k" .. bytes), frame:sub(-1 - 4 - 2 - #bytes, -2))
      assert.same({ k = value }, decoded(frame).arguments)
    end)
  end

  it("takes and gives void and decimals", function ()
    assert.equal(frames.void, through{ nothing = frames.void }.nothing)
    local decimal = frames.as("D", { scale = 2, value = -314 })
    assert.same(decimal, through{ pi = decimal }.pi)
  end)

  it("has its keys in order, so that equal tables are equal bytes", function ()
    local one, other = {}, {}
    for i = 1, 50 do one["k" .. i] = i end
    for i = 50, 1, -1 do other["k" .. i] = i end
    local function bytes(fields)
      return frames.encode{ channel = 1, method = "queue.declare", arguments = fields }
    end
    assert.equal(bytes(one), bytes(other))
  end)

  it("refuses what has no type", function ()
    assert.error_matches(function () through{ f = print } end, "a field table cannot hold a function")
  end)
end)
