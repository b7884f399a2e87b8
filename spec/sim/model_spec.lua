-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Runs the specs of real brokers' behaviour (spec/broker/facts), unchanged, against the model broker.
local Socket = require "spec.support.model.socket"
local frames = require "spec.support.frames"

local FACTS = { "claim", "exclusive", "fence", "permit_numbers", "permits", "probing", "queue", "readers", "routing",
  "waiting" }
local SINGLE_ACTIVE = { "single_active", "single_active_tokens" }

local environment = getfenv and getfenv() or _ENV
local brokers = {
  ["that closes in order"] = { version = "3.10.8" },
  ["that closes at once, and lags"] = { version = "3.10.9", closes_late = false, lags = 0.8, inner = 0.002 },
}

local function run(files, which, laws)
  describe(("the model of a broker %s:"):format(which), function ()
    for i, file in ipairs(files) do
      Socket.load("spec/broker/facts/" .. file .. "_spec.lua", environment, #files + i, laws)
    end
  end)
end

for which, laws in pairs(brokers) do
  run(FACTS, which, laws)
  run(SINGLE_ACTIVE, which, laws)
end
run(SINGLE_ACTIVE, "of 4.0", { version = "4.0.9", lags = 0.5 })

-- Behaviour that no client can bring about on a real broker, and no story needs to catch a breakage (docs/proving.md).
describe("the model broker", function ()
  local broker, client
  before_each(function () broker, client = Socket.broker(1) end)

  it("closes a channel that has a token for too long, again until close-ok, and has the token back", function ()
    broker:declare("bell", { durable = true })
    broker:put("bell", 1)
    broker.laws.tick = 0
    local link, closes = client.connect(), 0
    local channel = link:channel()
    assert(channel:call{ method = "basic.qos", prefetch_count = 1 })
    assert(channel:call{ method = "basic.consume", queue = "bell" })
    assert(channel:await("basic.deliver"))
    broker:time_out("bell")
    broker.world:run(1)
    for _, frame in ipairs(frames.decoder():feed(select(3, link.socket:receive()))) do
      if frame.method == "channel.close" then closes = closes + (frame.reply_code == 406 and 1 or 0) end
    end
    assert.equal(2, closes)
    assert.same({ 1, 0, 0 }, { broker:count("bell") })
  end)

  it("reads no publisher during an alarm, and keeps what it has, though it is gone", function ()
    local publisher, gone, other = client.connect(), client.connect(), client.connect()
    assert(gone:declare("mine", { exclusive = true }))
    broker:alarm(true)
    local channel = publisher:channel():confirm()
    channel:publish{ routing_key = "bell" }
    gone:channel():confirm():publish{ routing_key = "mine" }
    for _, link in ipairs{ publisher, gone } do assert(link:await("connection.blocked")) end
    channel:send{ method = "queue.declare", queue = "bell" }
    publisher:flush()
    gone:abort()
    broker.world:run(600)
    assert.is_false(other:exists("bell"))
    assert.is_true(other:exists("mine"))
    broker:alarm(false)
    assert(publisher:await("connection.unblocked"))
    assert(channel:await("queue.declare-ok"))
    broker.world:run(1)
    assert.is_false(other:exists("mine"))
  end)

  it("throws at what it does not know, and at what no client may say", function ()
    local one, two = client.connect():channel(), client.connect()
    assert.error_matches(function () one:call{ method = "basic.recover" } end, "knows no basic.recover")
    two:write(frames.encode{ channel = 9, method = "basic.qos" })
    assert.error_matches(function () broker.world:run(1) end, "channel 9, which is not open")
  end)
end)
