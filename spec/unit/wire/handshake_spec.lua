-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"

local frames = require "spec.support.frames"

describe("a handshake", function ()
  local function opening(settings)
    local peer = Peer.new(settings)
    return peer, peer.session:open()
  end

  it("sends header, start-ok, then tune-ok and open in one go", function ()
    local peer, op = opening{ url = "amqp://me:secret@host/jobs", name = "worker" }
    peer.holder:attach()
    peer.holder:expect("protocol header", { protocol = "0-9-1" })
    peer.holder:send(peer.holder.start())
    local ok = peer.holder:expect("connection.start-ok", { mechanism = "PLAIN", response = "\0me\0secret" })
    assert.equal("worker holder", ok.client_properties.connection_name)
    assert.same({ authentication_failure_close = true, ["basic.nack"] = true, ["connection.blocked"] = true,
      consumer_cancel_notify = true, publisher_confirms = true }, ok.client_properties.capabilities)
    peer.holder:silent()
    peer.holder:send{ channel = 0, method = "connection.tune", channel_max = 2047, frame_max = 131072, heartbeat = 60 }
    peer.holder:expect("connection.tune-ok")
    peer.holder:expect("connection.open", { virtual_host = "jobs" })
    assert.is_false(op:done())
    peer.holder:send{ channel = 0, method = "connection.open-ok" }
    assert.is_true(peer:result(op))
    peer.holder:silent()
  end)

  -- Before the broker has told its limit, a frame has no more than 4096 bytes.
  it("has room for the longest user, password and name in one frame", function ()
    local user, password, name = ("u"):rep(255), ("p"):rep(3455), ("n"):rep(127)
    local peer = opening{ url = ("amqp://%s:%s@host"):format(user, password), name = name }
    peer.holder:attach()
    peer.holder:expect("protocol header")
    peer.holder:send(peer.holder.start())
    local ok = peer.holder:expect("connection.start-ok", { response = "\0" .. user .. "\0" .. password })
    assert.equal(name .. " holder", ok.client_properties.connection_name)
  end)

  it("asks the broker for no version, and reads one of two numbers", function ()
    for _, version in ipairs{ false, 3, "three", "3.10", ("9"):rep(100) } do
      local peer = opening()
      peer.holder:attach()
      peer.holder:send(peer.holder.start{ server_properties = { version = version or nil, versions = "4" } })
      peer.holder:expect("protocol header")
      peer.holder:expect("connection.start-ok")
    end
    assert.is_true(Peer.open(nil, { version = "3.10" }):acquire("images"):held()) -- with a bolt
  end)

  it("takes EXTERNAL if told to", function ()
    local peer = opening{ url = "amqp://host?auth_mechanism=external" }
    peer.holder:attach()
    peer.holder:expect("protocol header")
    peer.holder:send(peer.holder.start{ mechanisms = "EXTERNAL PLAIN" })
    peer.holder:expect("connection.start-ok", { mechanism = "EXTERNAL", response = "" })
  end)

  it("agrees on the limits: the lower number of channels, and the broker's frames", function ()
    for _, row in ipairs{ -- channel_max, frame_max: the broker's, and what is agreed on
      { { 64, 8192 }, { 64, 8192 } }, { { 65535, 8192 }, { 2047, 8192 } }, { { 0, 4096 }, { 2047, 4096 } },
      { { 2047, 131072 }, { 2047, 131072 } }, { { 2047, 1048576 }, { 2047, 1048576 } },
    } do
      local ok = Peer.new().holder:tuned{ channel_max = row[1][1], frame_max = row[1][2] }
      assert.same(row[2], { ok.channel_max, ok.frame_max })
    end
  end)

  it("is refused because there is no such mechanism: auth", function ()
    local peer, op = opening()
    peer.holder:attach()
    peer.holder:send(peer.holder.start{ mechanisms = "EXTERNAL PLAINER SCRAM" })
    peer:failed(op, "auth", "PLAIN")
  end)

  it("is refused by connection.close: what its text means", function ()
    for text, code in pairs{
      ["ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."] = "auth",
      ["NOT_ALLOWED - vhost jobs not found"] = "vhost",
      ["NOT_ALLOWED - access to vhost 'jobs' refused for user 'me'"] = "vhost",
      ["NOT_ALLOWED - vhost rate-limits not found"] = "vhost", -- a misleading name
      ["NOT_ALLOWED - access to vhost '/' refused for user 'me': connection limit (5) is reached"] = "limit",
      ["INTERNAL_ERROR"] = "unreachable",
    } do
      local peer, op = opening{ url = "amqp://me:secret@host" }
      peer.holder[code == "auth" and "greeted" or "tuned"](peer.holder)
      peer.holder:ends(({ unreachable = 541, auth = 403 })[code] or 530, text)
      assert.is_nil(peer:failed(op, code, text):find("secret", 1, true))
    end
  end)

  it("is refused later, because there are too many channels: limit", function ()
    for _, whose in ipairs{ "for user 'me' has reached the maximum allowed user limit of (8)", -- 3.10
      "on node 'rabbit@host' has reached the maximum allowed limit of 80" } do -- 4.x
      local peer = Peer.open()
      local lock = peer:acquire("images")
      local op = peer:semaphore("images", { probe = "passive" }):acquire(0) -- asks on the holder
      peer.holder:ends(530, "NOT_ALLOWED - number of channels opened " .. whose)
      peer:failed(op, "limit", "number of channels opened")
      assert.equal("lost", select(3, lock:held()))
    end
  end)

  it("is refused by another protocol, or by something that is no AMQP: protocol", function ()
    for bytes, said in pairs{ ["AMQP\0\0\9\1"] = "AMQP 0.9", ["AMQP\3\1\0\0"] = "AMQP 1.0",
      ["HTTP/1.1 400 Bad Request\r\n\r\n"] = "", ["\21\3\1\0\2\2\70"] = "", [("\255"):rep(64)] = "",
      [frames.encode{ channel = 0, heartbeat = true }] = "" } do
      local peer, op = opening()
      peer.holder:attach()
      peer.holder:feed(bytes)
      if op:done() then
        peer:failed(op, "protocol", said)
      else  -- what could yet become a frame
        assert.equal("", said)
        peer:pass(5)
        peer:failed(op, "unreachable")
      end
    end
  end)

  it("is refused by a broker that skips a step, or opens channels of its own: protocol", function ()
    local tune = { channel = 0, method = "connection.tune", channel_max = 1, frame_max = 4096, heartbeat = 1 }
    for _, frame in ipairs{ tune, { channel = 0, method = "connection.open-ok" }, { channel = 0,
      method = "connection.secure", challenge = "?" } } do
      local peer, op = opening()
      peer.holder:attach()
      peer.holder:send(frame)
      peer:failed(op, "protocol", "broke the AMQP handshake")
    end
    for frame, words in pairs{ [tune] = "broke the AMQP handshake",
      [{ channel = 1, method = "channel.open-ok" }] = "channel 1" } do
      local peer, op = opening()
      peer.holder:tuned()
      peer.holder:send(frame)
      peer:failed(op, "protocol", words)
    end
  end)

  it("is refused by a broker that wants frames of no size to work with: protocol, limit", function ()
    for code, sizes in pairs{ protocol = { 1, 8, 4095 }, limit = { 0, 1048577, 4294967295 } } do
      for _, frame_max in ipairs(sizes) do
        local peer, op = opening()
        peer.holder:greeted()
        peer.holder:send{ channel = 0, method = "connection.tune", channel_max = 10, frame_max = frame_max }
        peer:failed(op, code, "frame_max is " .. ("%.0f"):format(frame_max))
      end
    end
  end)

  it("is refused by silence at every step: unreachable at the deadline, not before", function ()
    for _, step in ipairs{ "attach", "greeted", "tuned" } do
      local peer, op = opening{ timeout = 3 }
      peer.holder[step](peer.holder)
      peer:fails_after(3, op, "unreachable", "handshake in time")
      assert.equal("down", peer.holder:state())
    end
  end)
end)
