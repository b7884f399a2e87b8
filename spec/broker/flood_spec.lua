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

local flooder = {}
flooder.__index = flooder

-- A relay in front of the broker, which floods its clients from flood() on; of TLS with the suite's own certificate.
function flooder.start(is_tls)
  local fifo, parts, tls = os.tmpname(), url.parse(os.getenv "AMQP_URL"), os.getenv "BROKER_TLS"
  local certificate = is_tls and ("%s/server.pem %s/server.key"):format(tls, tls) or ""
  assert(os.execute(("rm %s && mkfifo %s"):format(fifo, fifo)))
  local output = assert(io.popen(("exec <%s; exec %s spec/support/flooder.py %s %s"):format(fifo, python.with_pika(),
    parts.port, certificate)))
  local self = setmetatable({ input = assert(io.open(fifo, "w")), output = output }, flooder)
  os.remove(fifo)
  stage.undo(function()
    self.input:close()
    self.output:close()
  end)
  parts.port, parts.scheme = assert(output:read("*l")), is_tls and "amqps" or "amqp"
  parts.authority, parts.host = nil, "localhost"
  self.url = url.build(parts)
  return self
end

function flooder:flood()
  self.input:write("flood\n")
  self.input:flush()
  assert.equal("floods", self.output:read("*l"))
end

describe("a peer that never pauses", function()
  after_each(process.clear)
  after_each(stage.clear)
  teardown(stage.check)

  -- A process with a lock on a connection that is flooded then. run() throws if there is no answer within 20 s.
  local function flooded(is_tls)
    local between, one = flooder.start(is_tls), process.start()
    one:run([[
      local url, ca = ...
      amqplocks = require "amqplocks"
      conn = assert(amqplocks.connect(url, { heartbeat = 1, timeout = 2, tls = ca and { ca = ca } }))
      lock = assert(conn:mutex("flooded"):try_acquire())
    ]], between.url, is_tls and os.getenv "BROKER_TLS" .. "/ca.pem" or nil)
    between:flood()
    return one
  end

  local function ends_by_its_deadlines(one)
    local got, _, code = one:run([[return conn:mutex("another"):acquire{ timeout = 1 }]])
    assert.is_nil(got)
    assert.is_true(code == "timeout" or code == "unreachable", code)
    assert.equal("no", one:run([[
      while lock:held() do end
      return lock:verify() and "yes" or "no"
    ]]))
    assert.is_true(one:run([[return (conn:close())]]) ~= "never")
    assert.is_true(one:run([[
      local conn = assert(amqplocks.connect())
      return conn:mutex("flooded"):acquire{ timeout = 20 }:release() and conn:close()
    ]]))
  end

  local tls_it = os.getenv "AMQPS_URL" and it or pending
  for name, is_tls in pairs{ ["a plain socket"] = false, ["TLS"] = true } do
    (is_tls and tls_it or it)("keeps no call past its deadline, over " .. name, function()
      ends_by_its_deadlines(flooded(is_tls))
    end);

    -- The keeper reads on while the program computes.
    (is_tls and tls_it or it)("does not keep the program out by way of the keeper, over " .. name, function()
      local one = flooded(is_tls)
      for _ = 1, 10 do
        one:run([[
          local stop = os.clock() + 0.3
          while os.clock() < stop do end
          lock:held()
          return conn:mutex("another"):try_acquire() and "got" or "no"
        ]])
      end
      ends_by_its_deadlines(one)
    end)
  end

  -- Before any certificate is seen: no key is needed for that.
  for how, pause in pairs{ ["without a pause"] = 0, ["now and then"] = 0.2 } do
    it("does not keep who connects by TLS beyond its timeout with HelloRequests, sent " .. how, function()
      local fifo, one = os.tmpname(), process.start()
      assert(os.execute(("rm %s && mkfifo %s"):format(fifo, fifo)))
      local output = assert(io.popen(("exec <%s; exec python3 spec/support/hello_requests.py %s"):format(fifo, pause)))
      local input = assert(io.open(fifo, "w"))
      os.remove(fifo)
      stage.undo(function()
        input:close()
        output:close()
      end)
      local code, message = one:run([[
        local _, message, code = require("amqplocks").connect(..., { timeout = 2 })
        return code, message
      ]], ("amqps://guest:guest@127.0.0.1:%d"):format(output:read("*n")))
      if pause == 0 then
        assert.equal("tls", code)
        assert.matches("handshake messages without end", message)
      else
        assert.equal("unreachable", code)
        assert.matches("did not answer in time", message)
      end
    end)
  end

  for _, name in ipairs{ "cqueues", "luv" } do
    local loop_it = loops[name].run and it or pending
    loop_it("keeps neither a call past its deadline nor other coroutines from their turns, in " .. name, function()
      local between, one, mark, mutex = flooder.start(), process.start(), os.tmpname(), stage.mutex()
      os.remove(mark)
      one:begin([[
        local name, url, mutex, mark = ...
        local loop = require("spec.support.loops")[name]
        local turns, is_over, code = 0, false, nil
        loop.run(function()
          local conn = assert(require("amqplocks").connect(url, { heartbeat = 5, timeout = 2, driver = loop.option }))
          local lock = assert(conn:mutex(mutex):try_acquire())
          assert(io.open(mark .. ".held", "w")):close()
          loop.until_true(function()
            local file = io.open(mark)
            return file and file:close()
          end)
          loop.spawn(function()
            while not is_over do
              loop.sleep(0.01)
              turns = turns + 1
            end
          end)
          code = select(3, conn:mutex(mutex .. "2"):acquire{ timeout = 1 })
          conn:close()
          is_over = true
        end)
        return code, turns
      ]], name, between.url, mutex, mark)
      until_true(function() return os.remove(mark .. ".held") end)
      between:flood()
      assert(io.open(mark, "w")):close()
      local code, turns = one:finish()
      os.remove(mark)
      assert.is_true(code == "timeout" or code == "unreachable", code)
      assert.is_true(turns > 1, turns)
      gate.until_free("mutex", mutex)
    end)
  end
end)
