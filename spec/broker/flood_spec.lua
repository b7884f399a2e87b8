-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A peer that sends heartbeats without a pause. Every call still ends by its deadline.
local gate = require "spec.support.gate"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local python = require "spec.support.python"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"
local url = require "socket.url"

-- A relay in front of the broker, over TLS with the suite's own certificate. Returns its URL, and a function from the
-- call of which on it floods its clients.
local function flooder(is_tls)
  local parts, tls, fifo = url.parse(os.getenv "AMQP_URL"), os.getenv "BROKER_TLS", os.tmpname()
  assert(os.execute(("rm %s && mkfifo %s"):format(fifo, fifo)))
  local output = assert(io.popen(("exec <%s; exec %s spec/support/flooder.py %s %s"):format(fifo, python.with_pika(),
    parts.port, is_tls and ("%s/server.pem %s/server.key"):format(tls, tls) or "")))
  local input = assert(io.open(fifo, "w"))
  os.remove(fifo)
  stage.undo(function()
    input:close()
    output:close()
  end)
  parts.port, parts.scheme = assert(output:read("*l")), is_tls and "amqps" or "amqp"
  parts.authority, parts.host = nil, "localhost"
  return url.build(parts), function()
    input:write("flood\n")
    input:flush()
    assert.equal("floods", output:read("*l"))
  end
end

describe("a peer that never pauses", function()
  stage.tidy()

  local tls_it = os.getenv "AMQPS_URL" and it or pending
  for name, is_tls in pairs{ ["a plain socket"] = false, ["TLS"] = true } do
    local this_it = is_tls and tls_it or it
    this_it("keeps no call past its deadline, also while the keeper reads, over " .. name, function()
      local one, address, flood = process.start(), flooder(is_tls) -- run() throws if there is no answer in time
      one:run([[
        local url, ca = ...
        amqplocks = require "amqplocks"
        conn = assert(amqplocks.connect(url, { heartbeat = 1, timeout = 5, tls = ca and { ca = ca } }))
        lock = assert(conn:mutex("flooded"):try_acquire())
      ]], address, is_tls and os.getenv "BROKER_TLS" .. "/ca.pem" or nil)
      flood()
      local got, _, code = one:run([[ -- the keeper reads on while the program computes
        local stop = os.clock() + 0.3
        while os.clock() < stop do end
        lock:held()
        return conn:mutex("another"):acquire{ timeout = 0.5 }
      ]])
      assert.is_nil(got)
      assert.is_true(code == "timeout" or code == "unreachable", code)
      one:run("while lock:held() do end")
      one:run([[return (conn:close())]])
      assert.is_true(one:run([[
        local conn = assert(amqplocks.connect())
        return conn:mutex("flooded"):acquire{ timeout = 60 }:release() and conn:close()
      ]]))
    end)
  end

  -- TLS tells clients to ignore these requests. They need no key, as they come before any certificate is seen.
  it("does not keep who connects by TLS beyond its timeout with HelloRequests", function()
    for pause, expected in pairs{ [0] = { "tls", "handshake messages without end" },
      [0.2] = { "unreachable", "did not answer in time" } } do
      local peer = process.start()
      local port = peer:run [[
        socket = require "socket"
        server = assert(socket.bind("127.0.0.1", 0))
        return (select(2, server:getsockname()))
      ]]
      peer:begin([[
        local pause, guest = ..., server:accept()
        guest:receive(1)
        while guest:send(("\22\3\3\0\4\0\0\0\0"):rep(pause > 0 and 1 or 2000)) do socket.sleep(pause) end
      ]], pause)
      local code, message = process.start():run([[
        local url, timeout = ...
        local _, message, code = require("amqplocks").connect(url, { timeout = timeout })
        return code, message
      ]], "amqps://guest:guest@127.0.0.1:" .. port, pause > 0 and 2 or 600)
      assert.equal(expected[1], code)
      assert.matches(expected[2], message)
    end
  end)

  -- No connection is closed here: a close waits by the same function as an acquire, and a flood takes all processors.
  for _, name in ipairs{ "cqueues", "luv" } do
    local loop_it = loops[name].run and it or pending
    loop_it("keeps neither a call past its deadline nor other coroutines from their turns, in " .. name, function()
      local one, mutex, address, flood = process.start(), stage.mutex(), flooder()
      one:begin([[
        local name, url, mutex = ...
        local loop, socket = require("spec.support.loops")[name], require "socket"
        local turns = 0
        loop.run(function()
          local conn = assert(require("amqplocks").connect(url, { heartbeat = 5, timeout = 5, driver = loop.option }))
          local lock = assert(conn:mutex(mutex):try_acquire())
          io.stdout:write "holds\n"
          io.stdout:flush()
          loop.until_true(function() return socket.select({ spec }, nil, 0)[spec] end)
          loop.spawn(function()
            while true do
              loop.sleep(0.01)
              turns = turns + 1
            end
          end)
          local _, _, code = conn:mutex(mutex .. "2"):acquire{ timeout = 0.5 }
          io.stdout:write(code, " after ", turns, " turns\n")
          io.stdout:flush()
        end)
      ]], name, address, mutex)
      until_true(function() return one:output():find("holds\n", 1, true), one:output() end)
      flood() -- the answer to the claim has come
      one:begin "return true"
      local code, turns
      until_true(function()
        code, turns = one:output():match "(%l+) after (%d+) turns\n"
        return code, one:output()
      end)
      assert.is_true(code == "timeout" or code == "unreachable", code)
      assert.is_true(tonumber(turns) > 1, turns)
      one:kill()
      gate.until_free("mutex", mutex)
    end)
  end
end)
