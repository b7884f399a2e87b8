-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Messages that other clients published to a queue that a session consumes: whatever they contain, no holder loses a
-- lock.

local Peer = require "spec.support.peer"
local frames = require "spec.support.frames"
local lua53 = require "spec.support.lua53"
local permits = require "spec.unit.tokens.permit_scene"
local scene = require "spec.unit.locks.rwlock_scene"

local pack = lua53.pack

-- A table within a table, so many deep, as bytes: rabbitmq-c, and our own frames.lua, would recurse.
local function deep_table(depth)
  local bytes = pack(">I4", 0)
  for _ = 1, depth do bytes = pack(">I4", #bytes + 3) .. "\1tF" .. bytes end
  return bytes
end

-- A header frame by hand: its table as bytes, and others of its properties.
local function header(channel, flags, properties, size)
  local payload = pack(">I2I2I8I2", 60, 0, size or 0, flags) .. properties
  return pack(">I1I2s4I1", 2, channel, payload, 206)
end

local HEADERS, TYPE = 0x2000, 0x0020
local REVOKE = "\16amqplocks.revoke"

for _, way in ipairs(Peer.ways) do
  describe("a foreign message, fed " .. way, function ()
    local peer, lock, claim, deliver

    before_each(function ()
      peer = Peer.open{ way = way }
      local op = peer:mutex("db"):acquire(0)
      scene.looks(peer, "db-mutex", "free")
      claim = scene.claim(peer, "db-mutex")
      scene.replies(peer, claim)
      lock = peer:result(op)
      deliver = frames.encode{ channel = claim.channel, method = "basic.deliver", consumer_tag = claim.tag }
    end)

    -- The lock is ours, and the holder reads on: what comes next is understood.
    local function goes_on()
      assert.equal("open", peer.holder:state())
      assert.is_true(lock:held())
      assert.is_false(lock:revoked())
      peer.holder:send(deliver, header(claim.channel, TYPE, REVOKE))
      assert.is_true(lock:revoked())
    end

    for _, size in ipairs{ 8192, 20000, 131000, 300000 } do -- the last one is more than was agreed on
      it(("with headers of %d bytes is passed over"):format(size), function ()
        peer.holder:send(deliver, { channel = claim.channel, header = true, class = 60, size = 0,
          properties = { headers = { x = ("y"):rep(size) } } })
        goes_on()
      end)
    end

    for _, depth in ipairs{ 99, 101, 20000 } do
      it("with a table that is " .. depth .. " deep is passed over", function ()
        peer.holder:send(deliver, header(claim.channel, HEADERS, deep_table(depth)))
        goes_on()
      end)
    end

    it("with every property there is, is read for its type behind them", function ()
      peer.holder:send(deliver, { channel = claim.channel, header = true, class = 60, properties = {
        content_type = ("c"):rep(255), content_encoding = ("e"):rep(255), headers = { a = { b = ("x"):rep(9000) } },
        delivery_mode = 2, priority = 9, correlation_id = ("i"):rep(255), reply_to = ("r"):rep(255),
        expiration = "60000", message_id = ("m"):rep(255), timestamp = 1, type = "amqplocks.revoke",
        user_id = ("u"):rep(255), app_id = ("a"):rep(255), cluster_id = ("k"):rep(255) } })
      assert.is_true(lock:revoked())
    end)

    -- RabbitMQ reads one word of flags, whatever its two lowest bits say, and hands on what the publisher wrote.
    it("with flag bits that RabbitMQ does not read is passed over", function ()
      for bits = 1, 3 do
        peer.holder:send(deliver, header(claim.channel, bits, ""))
        peer.holder:send(deliver, header(claim.channel, HEADERS + bits, deep_table(3)))
        peer.holder:send(deliver, header(claim.channel, TYPE + bits, "\1t"))
      end
      goes_on()
    end)

    it("is read for its type behind a table, whatever the lowest bits of its flags are", function ()
      peer.holder:send(deliver, header(claim.channel, HEADERS + TYPE + 3, deep_table(3) .. REVOKE))
      assert.is_true(lock:revoked())
    end)

    it("with a body in parts of any size is passed over", function ()
      for _, size in ipairs{ 1, 8184, 8185, 131064, 150000 } do
        peer.holder:send(deliver, header(claim.channel, 0, "", 2 * size + 1),
          { channel = claim.channel, body = ("b"):rep(size) }, { channel = claim.channel, body = "" },
          { channel = claim.channel, body = ("b"):rep(size) }, { channel = claim.channel, body = "b" })
      end
      goes_on()
    end)

    -- The fencing token of a permit whose table of headers has these entries.
    local function fence_of(entries)
      peer = permits.open{ way = way }
      local op = permits.semaphore(peer, true):acquire(60)
      local taker = permits.consumes(peer)
      deliver = { channel = taker.channel, method = "basic.deliver", consumer_tag = taker.tag, delivery_tag = 1,
        redelivered = true }
      peer.holder:send(deliver, header(taker.channel, HEADERS + 0x0080 + TYPE,
        pack(">s4", entries) .. "\16" .. ("a"):rep(16) .. "\16amqplocks.permit"))
      permits.welcome(peer, taker)
      return peer:result(op):fence()
    end

    local NUMBERS = "\16x-amqplocks-basel" .. pack(">I8", 1000) .. "\16x-delivery-countl" .. pack(">I8", 3)

    it("with headers of every type, and a long one, is read for the numbers behind them", function ()
      local entries = "\1aS" .. pack(">s4", ("y"):rep(300))
      for type, size in pairs{ V = 0, t = 1, b = 1, B = 1, s = 2, u = 2, I = 4, i = 4, f = 4, D = 5, l = 8, L = 8,
        d = 8, T = 8, x = 4, A = 4, F = 4 } do -- the last three are empty
        entries = entries .. "\1a" .. type .. ("\0"):rep(size)
      end
      assert.equal(1004, fence_of(entries .. NUMBERS))
    end)

    it("with a header that is malformed is read for no number in it or behind it", function ()
      for _, value in ipairs{ "", "S", "S\0\0\0", "S\0\0\0\9abc", "l\0\0\0", "?" .. NUMBERS } do
        assert.is_nil(fence_of(string.char(#NUMBERS) .. NUMBERS .. value))
      end
      assert.is_nil(fence_of "\16x-amqplocks-basel\0\0\0")
    end)

    local broken = {
      ["a table longer than its frame"] = header(1, HEADERS, "\0\0\1\0"),
      ["a table longer than any frame"] = header(1, HEADERS, "\255\255\255\255"),
      ["a table that is cut off"] = header(1, HEADERS, "\0\0"),
      ["properties that end before the table"] = header(1, HEADERS + 0x8000, "\200abc"),
      ["flags without end"] = pack(">I1I2s4I1", 2, 1, pack(">I2I2I8", 60, 0, 0) .. ("\255\255"):rep(4000), 206),
      ["no flags"] = pack(">I1I2s4I1", 2, 1, pack(">I2I2I8", 60, 0, 0), 206),
      ["no class"] = pack(">I1I2s4I1", 2, 1, "", 206),
      ["another class"] = pack(">I1I2s4I1", 2, 1, pack(">I2I2I8I2", 50, 0, 0, HEADERS) .. "\0\0\0\0", 206),
      ["no end, behind a table"] = header(1, HEADERS, deep_table(3)):sub(1, -2) .. "\205",
      ["a body without its end"] = header(1, 0, "", 3) .. "\3\0\1\0\0\0\3abc\205",
    }
    for name, bytes in pairs(broken) do
      it("that is broken, by " .. name .. ", ends the connection: protocol", function ()
        assert.equal(1, claim.channel)
        peer.holder:send(deliver, bytes)
        assert.equal("down", peer.holder:state())
        local held, _, code = lock:held()
        assert.same({ false, "lost" }, { held, code })
      end)
    end
  end)
end
