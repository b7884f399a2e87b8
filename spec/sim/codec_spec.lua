-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Compares the model broker's fast codec for frames with the one that was written from the specification.
local codec = require "spec.support.model.codec"
local frames = require "spec.support.frames"

-- A value for every kind of field, different for each place so that mixed up fields show.
local function sample(kind, i)
  if kind == "bit" then return i % 2 == 0 end
  if kind == "table" then
    return { ["x-max-length"] = i, ["x-expires"] = 2 ^ 40, ["x-least"] = -i, ["x-name"] = "n" .. i, ["x-fine"] = true,
      ["x-more"] = { deep = false } }
  end
  if kind == "shortstr" or kind == "longstr" then return kind .. i end
  return ({ octet = 20, short = 6000, long = 400000000, longlong = 2 ^ 47 })[kind] * i
end

-- Those with a value in every field, and those without any.
local function every_method()
  local list = {}
  for n, name in ipairs(frames.methods()) do
    local frame = { channel = n, method = name }
    for i, field in ipairs(frames.fields(name)) do frame[field.name] = sample(field.kind, i) end
    table.insert(list, frame)
    table.insert(list, { channel = 2000 + n, method = name })
  end
  return list
end

-- As frames.lua reads it, but for what is reserved.
local function read_slowly(bytes)
  local frame = frames.decoder():feed(bytes)[1]
  frame.ticket, frame.immediate = nil, nil
  return frame
end

local function message_frames(channel, properties, body)
  local publish = { channel = channel, method = "basic.publish" }
  return frames.encode_content(publish, properties, body):sub(#frames.encode(publish) + 1)
end

describe("the model broker's codec", function ()
  it("writes every method as it should be", function ()
    for _, frame in ipairs(every_method()) do
      local fields = {}
      for name, value in pairs(frame) do
        if name ~= "channel" then fields[name] = value end
      end
      assert.equal(frames.encode(frame), codec.encode(fields, frame.channel), frame.method)
    end
  end)

  it("reads every method as it should be, wherever it stands", function ()
    for _, frame in ipairs(every_method()) do
      local bytes = frames.encode(frame)
      assert.same(read_slowly(bytes), codec.method("before" .. bytes .. "behind", 7, frame.channel), frame.method)
    end
  end)

  it("finds where frames begin and end", function ()
    local bytes, at = "", 1
    for _, frame in ipairs(every_method()) do bytes = bytes .. frames.encode(frame) end
    for _, frame in ipairs(every_method()) do
      local kind, channel, after = codec.look(bytes, at)
      assert.same({ codec.METHOD, frame.channel, #frames.encode(frame) }, { kind, channel, after - at })
      at = after
    end
    assert.same({ codec.HEARTBEAT, 0, 9 }, { codec.look(codec.heartbeat, 1) })
    assert.same({ codec.PROTOCOL, 0, 9 }, { codec.look(frames.header, 1) })
  end)

  it("writes headers and bodies as they should be, also on another channel", function ()
    for _, body in ipairs{ "", "body", ("x"):rep(200) } do
      local properties = { message_id = "17", delivery_mode = 2, type = "t", headers = { a = 1 } }
      local header = codec.header(1, properties, #body)
      for _, channel in ipairs{ 1, 300 } do
        assert.equal(message_frames(channel, properties, body), codec.header_on(channel, header)
          .. codec.body(channel, body, 131072))
      end
      assert.same({ properties, #body }, { codec.properties(header), codec.body_size(header) })
    end
  end)

  it("cuts a body to the length of frames", function ()
    local said = frames.decoder():feed(codec.body(1, ("x"):rep(100) .. "end", 58))
    assert.same({ 50, 50, "end" }, { #said[1].body, #said[2].body, said[3].body })
  end)
end)
