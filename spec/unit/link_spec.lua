-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"

local frames = require "spec.support.frames"

-- connection.close
local function close(reply_code, reply_text)
  return { channel = 0, method = "connection.close", reply_code = reply_code, reply_text = reply_text }
end

local HEARTBEAT = { channel = 0, heartbeat = true }

for _, way in ipairs(Peer.ways) do
  describe("a link, fed " .. way, function ()
    local function new(settings) return Peer.new(way, settings) end

    local function opening(settings)
      local peer = new(settings)
      return peer, peer.session:open()
    end

    describe("shaking hands", function ()
      it("sends header, start-ok, then tune-ok and open in one go", function ()
        local peer, op = opening{ url = "amqp://me:secret@host/jobs", name = "worker" }
        local holder = peer.holder
        holder:attach()
        holder:expect("protocol header", { protocol = "0-9-1" })
        holder:silent()
        holder:send(holder.start())
        local ok = holder:expect("connection.start-ok", { channel = 0, mechanism = "PLAIN", response = "\0me\0secret",
          locale = "en_US" })
        assert.equal("worker holder", ok.client_properties.connection_name)
        assert.same({ authentication_failure_close = true, ["basic.nack"] = true, ["connection.blocked"] = true,
          consumer_cancel_notify = true, publisher_confirms = true }, ok.client_properties.capabilities)
        holder:silent()
        holder:send{ channel = 0, method = "connection.tune", channel_max = 2047, frame_max = 131072, heartbeat = 60 }
        holder:expect("connection.tune-ok")
        holder:expect("connection.open", { virtual_host = "jobs" })
        holder:silent()
        assert.is_false(op:done())
        holder:send{ channel = 0, method = "connection.open-ok" }
        assert.is_true(peer:result(op))
        holder:silent()
      end)

      it("asks the broker for no version", function ()
        local peer, op = opening()
        peer.holder:attach()
        peer.holder:expect("protocol header")
        for _, version in ipairs{ false, 3, "three", "3.10", ("9"):rep(100) } do
          local start = peer.holder.start{ server_properties = { version = version or nil, versions = "4" } }
          peer.holder:send(start)
          peer.holder:expect("connection.start-ok")
          peer = opening()
          peer.holder:attach()
          peer.holder:expect("protocol header")
        end
        assert.is_false(op:done())
      end)

      it("names the prober so", function ()
        local peer = new{ name = "worker" }
        assert.equal("worker prober", peer.prober:greeted().client_properties.connection_name)
      end)

      it("takes EXTERNAL if told to", function ()
        local peer, op = opening{ url = "amqp://host?auth_mechanism=external" }
        peer.holder:attach()
        peer.holder:expect("protocol header")
        peer.holder:send(peer.holder.start{ mechanisms = "EXTERNAL PLAIN" })
        peer.holder:expect("connection.start-ok", { mechanism = "EXTERNAL", response = "" })
        assert.is_false(op:done())
      end)

      local limits = {
        { "both", { channel_max = 2047, frame_max = 131072 }, { channel_max = 2047, frame_max = 8192 } },
        { "the broker's channels", { channel_max = 64, frame_max = 8192 }, { channel_max = 64, frame_max = 8192 } },
        { "the broker's frames", { channel_max = 2047, frame_max = 4096 }, { channel_max = 2047, frame_max = 4096 } },
        { "our own where it has none", { channel_max = 0, frame_max = 0 }, { channel_max = 2047, frame_max = 8192 } },
      }
      for _, case in ipairs(limits) do
        local name, theirs, agreed = table.unpack(case)
        it("agrees on the lesser limits: " .. name, function ()
          local peer = new()
          local ok = peer.holder:tuned(theirs)
          assert.same(agreed, { channel_max = ok.channel_max, frame_max = ok.frame_max })
        end)
      end

      it("asks for no more channels than its settings say", function ()
        local peer = new{ url = "amqp://host?channel_max=7" }
        assert.equal(7, peer.holder:tuned().channel_max)
      end)

      it("decides on the heartbeat itself", function ()
        assert.equal(10, new{ heartbeat = 10 }.holder:tuned().heartbeat)
        assert.equal(300, new{ heartbeat = 300 }.holder:tuned().heartbeat)
      end)
    end)

    describe("refused", function ()
      it("because of the password: auth, and the password is not told", function ()
        local peer, op = opening{ url = "amqp://me:secret@host" }
        peer.holder:greeted()
        peer.holder:send(close(403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."))
        local message = peer:failed(op, "auth", "Login was refused")
        assert.is_nil(message:find("secret", 1, true))
      end)

      it("because there is no such mechanism: auth", function ()
        local peer, op = opening()
        peer.holder:attach()
        peer.holder:send(peer.holder.start{ mechanisms = "EXTERNAL PLAINER SCRAM" })
        peer:failed(op, "auth", "PLAIN")
      end)

      it("because there is no such virtual host: vhost", function ()
        local peer, op = opening()
        peer.holder:tuned()
        peer.holder:send(close(530, "NOT_ALLOWED - vhost jobs not found"))
        peer:failed(op, "vhost", "vhost jobs not found")
      end)

      it("because the virtual host is another's: vhost", function ()
        local peer, op = opening()
        peer.holder:tuned()
        peer.holder:send(close(530, "NOT_ALLOWED - access to vhost 'jobs' refused for user 'me'"))
        peer:failed(op, "vhost", "access to vhost 'jobs' refused")
      end)

      it("because there are too many connections: limit", function ()
        for _, text in ipairs{
          "NOT_ALLOWED - access to vhost '/' refused for user 'me': connection limit (5) is reached",
          "NOT_ALLOWED - connection refused for user 'me': user connection limit (1) is reached",
          "NOT_ALLOWED - connection refused: node connection limit (0) is reached" } do
          local peer, op = opening()
          peer.holder:tuned()
          peer.holder:send(close(530, text))
          peer:failed(op, "limit", "limit")
        end
      end)

      it("because there is no virtual host of a misleading name: vhost", function ()
        local peer, op = opening()
        peer.holder:tuned()
        peer.holder:send(close(530, "NOT_ALLOWED - vhost rate-limits not found"))
        peer:failed(op, "vhost", "rate-limits")
      end)

      it("by another protocol's header: protocol", function ()
        for header, said in pairs{ ["AMQP\0\0\9\1"] = "AMQP 0.9", ["AMQP\3\1\0\0"] = "AMQP 1.0" } do
          local peer, op = opening()
          peer.holder:attach()
          peer.holder:feed(header)
          peer:failed(op, "protocol", said)
        end
      end)

      it("by something that is no AMQP: protocol", function ()
        for _, bytes in ipairs{ "HTTP/1.1 400 Bad Request\r\n\r\n", "\x15\x03\x01\0\2\2\x46",
          "SSH-2.0-OpenSSH_9.2p1\r\n", ("\xFF"):rep(64), frames.encode(HEARTBEAT), "\1\0\0\0\0\0\4\0\x0A\0\x0A\0" } do
          local peer, op = opening()
          peer.holder:attach()
          peer.holder:feed(bytes)
          if op:done() then
            peer:failed(op, "protocol")
          else  -- what could yet become a frame
            peer:pass(5)
            peer:failed(op, "unreachable")
          end
        end
      end)

      it("by a broker that skips a step: protocol", function ()
        local tune = { channel = 0, method = "connection.tune", channel_max = 1, frame_max = 4096, heartbeat = 1 }
        for _, frame in ipairs{ tune, { channel = 0, method = "connection.open-ok" }, { channel = 0,
          method = "connection.secure", challenge = "?" } } do
          local peer, op = opening()
          peer.holder:attach()
          peer.holder:send(frame)
          peer:failed(op, "protocol", "broke the AMQP handshake")
        end
        local peer, op = opening()
        peer.holder:tuned()
        peer.holder:send(tune)
        peer:failed(op, "protocol", "broke the AMQP handshake")
      end)

      it("by a broker that opens channels of its own: protocol", function ()
        local peer, op = opening()
        peer.holder:tuned()
        peer.holder:send{ channel = 1, method = "channel.open-ok" }
        peer:failed(op, "protocol", "channel 1")
      end)

      it("by a broker that wants frames smaller than AMQP's least: protocol", function ()
        for _, frame_max in ipairs{ 1, 7, 8, 9, 11, 12, 100, 4095 } do
          local peer, op = opening()
          peer.holder:greeted()
          peer.holder:send{ channel = 0, method = "connection.tune", channel_max = 10, frame_max = frame_max }
          peer:failed(op, "protocol", "frame")
        end
      end)

      it("by silence at every step: unreachable at the deadline, not before", function ()
        for _, step in ipairs{ "attach", "greeted", "tuned" } do
          local peer, op = opening{ timeout = 3 }
          peer.holder[step](peer.holder)
          assert.equal(3, peer:tick())
          peer:pass(2.999)
          assert.is_false(op:done())
          peer:pass(0.001)
          peer:failed(op, "unreachable", "handshake in time")
          assert.equal("down", peer.holder:state())
        end
      end)

      it("by a connection that ends without a word at every step: unreachable", function ()
        for _, step in ipairs{ "attach", "greeted", "tuned" } do
          local peer, op = opening()
          peer.holder[step](peer.holder)
          peer.holder:down("end of file")
          peer:failed(op, "unreachable", "end of file")
        end
      end)

      it("for another reason: unreachable", function ()
        local peer, op = opening()
        peer.holder:tuned()
        peer.holder:send(close(541, "INTERNAL_ERROR"))
        peer:failed(op, "unreachable", "INTERNAL_ERROR")
      end)
    end)

    describe("open", function ()
      it("ends at once, with everything on it, when the broker closes it", function ()
        local peer = Peer.open(way)
        local lock = peer:acquire("images")
        local waiting = peer:semaphore("images"):acquire()
        peer.holder:send(close(320, "CONNECTION_FORCED - Closed via management plugin"))
        assert.equal("down", peer.holder:state())
        local held, message, code = lock:held()
        assert.same({ false, "lost" }, { held, code })
        assert.matches("Closed via management plugin", message)
        peer.prober:ignore()
        peer:pass(5)
        peer:failed(waiting, "unreachable")
      end)

      -- PENDING: closed_by_broker() (link.c) writes close-ok and gives the port back at once; what the bytes transport
      -- had not handed out by then is gone with it. Only the native one flushes in between.
      pending("answers the broker's close at any moment", function ()
        for _, step in ipairs{ "greeted", "tuned", "handshake" } do
          local peer = new()
          peer.session:open()
          peer.holder[step](peer.holder)
          peer.holder:send(close(320, "CONNECTION_FORCED"))
          peer.holder:expect("connection.close-ok", { channel = 0 })
          peer.holder:silent()
        end
      end)

      -- PENDING: al_output_append() (output.c) hands NULL to memcpy(), which the sanitizer reports.
      pending("takes no bytes at all for no news", function ()
        local peer = new()
        peer.session:open()
        peer.holder:attach()
        peer.session:feed("holder", "")
        peer:tick()
        assert.equal("greeting", peer.holder:state())
      end)

      it("is blocked and unblocked, and that ends nothing", function ()
        local peer = Peer.open(way)
        local lock = peer:acquire("images")
        for _ = 1, 2 do
          peer.prober:send{ channel = 0, method = "connection.blocked", reason = "low on memory" }
          peer.holder:send{ channel = 0, method = "connection.blocked", reason = "low on memory" }
          assert.is_true(lock:held())
        end
        for _ = 1, 2 do
          peer.prober:send{ channel = 0, method = "connection.unblocked" }
          assert.equal("open", peer.prober:state())
        end
      end)

      local misplaced = {
        ["a method on a channel that is not open"] = { channel = 9, method = "queue.declare-ok" },
        ["a header without a message"] = { channel = 1, header = true, class = 60, size = 3 },
        ["a body without a message"] = { channel = 1, body = "abc" },
        ["a header on channel 0"] = { channel = 0, header = true, class = 60, size = 3 },
        ["a body on channel 0"] = { channel = 0, body = "abc" },
        ["another version's header"] = "\1\0\1\0\0\0\4\0\xC8\0\x0B\xCE",
        ["a frame without its end"] = "\8\0\0\0\0\0\0\xCF",
        ["a frame larger than agreed"] = "\3\0\1\0\0\x20\0",
      }
      for name, frame in pairs(misplaced) do
        it("goes down by " .. name .. ": protocol", function ()
          local peer = Peer.open(way)
          local op = peer:semaphore("images"):acquire(0)
          peer.prober:probes()
          peer.prober:send(frame)
          assert.equal("down", peer.prober:state())
          peer:failed(op, "protocol")
        end)
      end

      it("goes down by a method in the middle of a message: protocol", function ()
        local peer = Peer.open(way)
        local op = peer:semaphore("images"):acquire(0)
        local probes = peer.prober:probes()
        peer.prober:send({ channel = 1, method = "basic.return", reply_code = 312 }, peer.prober.ack(probes[1]))
        peer:failed(op, "protocol", "channel 1")
      end)

      it("goes down by more body than the header announced: protocol", function ()
        local peer = Peer.open(way)
        local _, claim = peer:acquire("images")
        local deliver = { channel = claim.channel, method = "basic.deliver", consumer_tag = claim.tag }
        peer.holder:send(deliver, { channel = claim.channel, header = true, class = 60, size = 3 },
          { channel = claim.channel, body = "ab" }, { channel = claim.channel, body = "cd" })
        assert.equal("down", peer.holder:state())
      end)

      it("takes messages whole, in parts and empty, and heartbeats in between", function ()
        local peer = Peer.open(way)
        local lock, claim = peer:acquire("images")
        local deliver = { channel = claim.channel, method = "basic.deliver", consumer_tag = claim.tag }
        for _, size in ipairs{ 0, 1, 4096, 10000 } do
          local message = frames.encode_content(deliver, { type = "hello" }, ("x"):rep(size), 8192)
          local first = #frames.encode(deliver)
          peer.holder:send(message:sub(1, first), HEARTBEAT, message:sub(first + 1), HEARTBEAT)
          assert.is_true(lock:held())
        end
        assert.equal("open", peer.holder:state())
        peer.holder:silent()
      end)

      -- PENDING: al_link_wake() (link.c) knows nothing of what read_some() left unread after FRAMES_AT_ONCE frames.
      pending("reads no more than it should in one turn, and wants the next one at once", function ()
        local peer = Peer.open(way)
        local op = peer:semaphore("images"):acquire(0)
        local probes = peer.prober:probes()
        local said = {}
        for i = 1, 20000 do said[i] = frames.encode(HEARTBEAT) end
        for _, probe in ipairs(probes) do
          table.insert(said, peer.prober.returned(probe))
          table.insert(said, frames.encode(peer.prober.ack(probe)))
        end
        peer.session:feed("prober", table.concat(said))
        local wants = peer:tick()
        assert.is_true(op:done() or wants <= 0)
        peer:tick()
        peer:tick()
        peer:failed(op, "not_found")
      end)

      it("connects anew for whoever comes after, with nothing left of the old connection", function ()
        local peer = Peer.open(way)
        local lost = peer:acquire("images")
        peer.holder:down()
        peer.prober:down()
        assert.equal("lost", select(3, lost:held()))
        local op = peer:semaphore("images"):acquire(0)
        assert.is_true(peer.holder:wanted())
        peer.holder:handshake()
        assert.is_true(peer.prober:wanted())
        peer.prober:handshake()
        peer.prober:look{ "images-1-A" }
        local claim = peer.holder:claim("images-1-B", "images-1-A")
        assert.equal(1, claim.channel)
        peer.holder:grant(claim)
        assert.is_true(peer:result(op):held())
        assert.is_false(lost:held())
      end)
    end)
  end)
end
