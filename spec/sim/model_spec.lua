-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Runs the specs of real brokers' behaviour (spec/broker/facts), unchanged, against the model broker.
local Socket = require "spec.support.model.socket"
local frames = require "spec.support.frames"
local scene = require "spec.broker.facts.scene"

local FACTS = { "claim", "exclusive", "fence", "permit_numbers", "permits", "probing", "queue", "readers", "routing",
  "waiting" }
local SINGLE_ACTIVE = { "single_active", "single_active_tokens" }
local ROUNDS = os.getenv "AMQPLOCKS_SOAK" and 20 or 1

local environment = getfenv and getfenv() or _ENV
local brokers = {
  ["that closes in order"] = { version = "3.10.8" },
  ["that closes at once, and lags"] = { version = "3.10.9", closes_late = false, lags = 0.8, inner = 0.002 },
}

local function run(files, which, laws)
  for round = 1, ROUNDS do
    describe(("the model of a broker %s, round %d:"):format(which, round), function ()
      for i, file in ipairs(files) do
        Socket.load("spec/broker/facts/" .. file .. "_spec.lua", environment, round * #files + i, laws)
      end
    end)
  end
end

for which, laws in pairs(brokers) do
  run(FACTS, which, laws)
  run(SINGLE_ACTIVE, which, laws)
end
run(SINGLE_ACTIVE, "of 4.0", { version = "4.0.9", lags = 0.5 })

-- What no client can bring about on a real broker, or not soon: the clock and the operator's hands are the test's.
describe("the model broker", function ()
  local broker, client
  before_each(function () broker, client = Socket.broker(1) end)

  local function token(channel)
    assert(channel:call{ method = "basic.qos", prefetch_count = 1 })
    assert(channel:call{ method = "basic.consume", queue = "bell" })
    return assert(channel:await("basic.deliver"))
  end

  local function bell(tokens)
    broker:declare("bell", { durable = true })
    broker:put("bell", tokens)
  end

  it("lets a death's tokens go before its exclusive queues, mostly", function ()
    bell(1)
    local early = 0
    for round = 1, 30 do
      local owner, name = client.connect(), "held." .. round
      local lock, waiter = owner:channel(), client.connect():channel()
      assert(lock:call{ method = "queue.declare", queue = name, exclusive = true, auto_delete = true })
      assert(lock:call{ method = "basic.consume", queue = name, no_ack = true })
      token(owner:channel())
      assert(waiter:call{ method = "basic.consume", queue = "bell" })
      owner:abort()
      assert(waiter:await("basic.deliver"))
      if broker.queues[name] then early = early + 1 end
      waiter.client:close()
      broker.world:run(1)
      assert.is_nil(broker.queues[name])
    end
    assert.is_true(early >= 10 and early < 30, early .. " of 30 times")
  end)

  it("answers a declare before it handles a nack, and a consume after it, if one consumer is active", function ()
    broker, client = Socket.broker(1, { lags = 0 })
    local single = { ["x-single-active-consumer"] = true, ["x-max-length"] = 1, ["x-overflow"] = "reject-publish" }
    broker:declare("bell", { durable = true, arguments = single })
    broker:put("bell", 1)
    local channel, before = client.connect():channel(), 0
    for i = 1, 50 do
      local tag = "holder " .. i
      channel:send{ method = "basic.qos", prefetch_count = 1 }
      channel:send{ method = "queue.declare", queue = "bell", passive = true }
      channel:send{ method = "basic.consume", queue = "bell", consumer_tag = tag }
      local answer = assert(channel:await("queue.declare-ok"))
      assert.equal(0, answer.consumer_count)
      before = before + (answer.message_count == 0 and 1 or 0)
      local number = assert(channel:await("basic.deliver")).delivery_tag
      channel:send{ method = "basic.cancel", consumer_tag = tag, no_wait = true }
      channel:send{ method = "basic.nack", delivery_tag = number, requeue = true }
      if i % 2 == 0 then
        channel.client:flush()
        broker.world:run(1)
      end
    end
    assert.equal(25, before)
  end)

  it("closes the channel, and gives the token back, when a consumer takes too long", function ()
    bell(1)
    local channel = client.connect():channel()
    token(channel)
    broker:time_out("bell")
    local _, reason = channel:await("basic.deliver")
    assert.equal(406, reason.code)
    broker.world:run(1)
    assert.same({ 1, 0, 0 }, { broker:count("bell") })
  end)

  it("closes such a channel again and again until it hears close-ok", function ()
    bell(1)
    broker.laws.tick = 0
    local socket, closes = client.connect(), 0
    local channel = socket:channel()
    token(channel)
    broker:time_out("bell")
    broker.world:run(1)
    for _, frame in ipairs(frames.decoder():feed(select(3, socket.socket:receive()))) do
      if frame.method == "channel.close" then closes = closes + 1 end
    end
    assert.equal(2, closes)
  end)

  it("does not close it again once it has heard that, when another one has the number", function ()
    bell(1)
    broker.laws.lags, broker.laws.inner, broker.laws.tick = 1, 0.01, 0.001
    function broker.lag(_, most) return most end
    local socket = client.connect()
    local channel = socket:channel()
    token(channel)
    broker:time_out("bell")
    assert.is_nil((channel:await("basic.deliver")))
    local other = socket:channel()
    assert.equal(channel.number, other.number)
    assert(other:call{ method = "basic.qos", prefetch_count = 1 })
    broker.world:run(1)
    assert(other:call{ method = "basic.qos", prefetch_count = 1 })
  end)

  it("reads no publisher during an alarm, and says so to who publishes", function ()
    bell(0)
    local publisher, other = client.connect(), client.connect()
    broker:alarm(true)
    local channel = publisher:channel():confirm()
    channel:publish{ routing_key = "bell" }
    assert(publisher:await("connection.blocked"))
    channel:send{ method = "queue.declare", queue = "bell", passive = true }
    publisher:flush()
    broker.world:run(600)
    assert.is_true(other:exists("bell"))
    assert.equal("basic.ack", channel:next().method)
    assert.is_true(channel:silent())
    broker:alarm(false)
    assert(publisher:await("connection.unblocked"))
    assert(channel:await("queue.declare-ok"))
  end)

  it("keeps what a blocked client has until the alarm is over, though the client is gone", function ()
    local publisher, other = client.connect(), client.connect()
    assert(publisher:declare("mine", { exclusive = true }))
    broker:alarm(true)
    publisher:channel():confirm():publish{ routing_key = "mine" }
    publisher:await("connection.blocked")
    publisher:abort()
    broker.world:run(600)
    assert.is_true(other:exists("mine"))
    broker:alarm(false)
    broker.world:run(1)
    assert.is_false(other:exists("mine"))
  end)

  it("ends a connection that is silent for two to three heartbeats", function ()
    for _ = 1, 20 do
      local began = broker.world.now
      local silent = client.connect(nil, { heartbeat = 2 })
      broker.world:run(10, function () return silent.socket.is_over end)
      local took = broker.world.now - began
      assert.is_true(took >= 4 and took <= 6.1, took .. " s")
    end
  end)

  for how, in_order in pairs{ ["in order"] = true, ["without a word"] = false } do
    it("stops " .. how .. ", and has what was to last when it is back", function ()
      broker, client = Socket.broker(1, { lags = 1, inner = 1 })
      local one, two = client.connect(), client.connect()
      assert(one:declare("durable", { durable = true }))
      assert(one:declare("mine", { durable = true, exclusive = true }))
      assert(one:declare("passing"))
      local channel = one:channel():confirm()
      for id = 1, 4 do
        channel:publish{ routing_key = "durable",
          properties = { message_id = tostring(id), delivery_mode = id == 3 and 1 or 2 } }
      end
      assert.equal("1", channel:call{ method = "basic.get", queue = "durable" }.properties.message_id)
      two:channel():send{ method = "queue.declare", queue = "late" }
      two:flush()
      broker.world:run(0.01)  -- it has come, and is not done yet
      broker:stop(in_order)
      local reason = one:await_end()
      assert.equal(in_order and 320 or nil, reason.code)
      local refused, why = pcall(client.connect)
      assert.is_false(refused)
      assert.matches("closed", why)
      broker:start()
      local asking = client.connect()
      for name, lasts in pairs{ durable = true, passing = false, mine = false, late = false } do
        assert.equal(lasts, asking:exists(name))
      end
      channel = asking:channel()
      local got = {}
      for i = 1, 3 do got[i] = channel:call{ method = "basic.get", queue = "durable", no_ack = true } end
      assert.same({ "1", "2", "4" }, { got[1].properties.message_id, got[2].properties.message_id,
        got[3].properties.message_id })
      assert.is_true(got[1].redelivered)
      assert.equal("basic.get-empty", channel:call{ method = "basic.get", queue = "durable" }.method)
      asking:close()
      broker.world:run(10)
      assert.equal(0, #broker.connections)
    end)
  end

  describe("when a client dies whose claim is on its way", function ()
    local watcher, second, third

    local function begin(version)
      broker, client = Socket.broker(1, { version = version, lags = 1, birth = 0.01, taken_away = 0.1 })
      function broker.lag(_, most) return most end
      watcher = client.connect()
    end

    local function die_claiming()
      local dying = client.connect()
      dying:channel():send(scene.holder("held"))
      dying:flush()
      dying:abort()
      broker.world:run(0.05)
      assert.equal("absent", watcher:probe("held"))
    end

    local function hold()
      local channel = client.connect():channel()
      scene.hold(channel, "held")
      return channel
    end

    it("of before 4.3, takes away the next one's queue, of which he is told nothing", function ()
      begin "4.2.9"
      die_claiming()
      second = hold()
      assert.is_true(watcher:locked("held"))
      broker.world:run(1)
      assert.is_true(second:silent())
      assert.is_false(watcher:exists("held"))
      assert.equal("absent", watcher:probe("held"))
    end)

    for how, let_go in pairs{
      ["when his channel closes"] = function () second:close() end,
      ["when he dies"] = function () second.client:abort() end,
    } do
      it("of before 4.3, and so does the next one's what another has by then, " .. how, function ()
        begin "3.10.8"
        die_claiming()
        second = hold()
        broker.world:run(1)
        third = hold()
        assert.is_true(watcher:locked("held"))
        let_go()
        broker.world:run(1)
        assert.is_true(third:silent())
        assert.is_false(watcher:exists("held"))
      end)
    end

    it("of 4.3 or later, takes away nothing", function ()
      begin "4.3.0"
      die_claiming()
      second = hold()
      broker.world:run(1)
      assert.is_true(watcher:locked("held"))
    end)
  end)

  -- As in a cluster.
  describe("with nodes that are behind", function ()
    local function connections_to(nodes)
      local found, count = {}, 0
      repeat
        local one = client.connect()
        local link = broker.connections[#broker.connections]
        if found[link.node] then
          one:close()
          broker.world:run(1)
        else
          found[link.node], count = one, count + 1
        end
      until count == nodes
      return found
    end

    local function call(channel, method, more)
      local frame = { method = method, queue = "reader" }
      for key, value in pairs(more or {}) do frame[key] = value end
      assert(channel:call(frame))
    end

    local function routed(channel)
      return not select(2, scene.publish(channel, { exchange = "amq.direct", routing_key = "key", mandatory = true }))
    end

    local function sees_all(channel)
      assert(channel:call{ method = "queue.declare", queue = "scratch", exclusive = true })
      assert(channel:call{ method = "queue.delete", queue = "scratch" })
    end

    before_each(function () broker, client = Socket.broker(1, { nodes = 2, stale = 0.1 }) end)

    it("lets them see late what is changed elsewhere, unless they have changed something themselves since", function ()
      local one, two = broker.nodes[1], broker.nodes[2]
      one.behind, two.behind = 0, 0.1
      local found, missed, lingers = connections_to(2), 0, 0
      local bound, prober = found[one]:channel(), found[two]:channel():confirm()
      for _ = 1, 20 do
        call(bound, "queue.declare", { exclusive = true })
        call(bound, "queue.bind", { exchange = "amq.direct", routing_key = "key" })
        assert.is_true(bound.client:exists("reader"))
        if not routed(prober) or prober.client:probe("reader") == "absent" then missed = missed + 1 end
        sees_all(prober)
        assert.is_true(routed(prober))
        call(bound, "queue.delete")
        assert.is_false(bound.client:exists("reader"))
        if routed(prober) or prober.client:probe("reader") == "present" then lingers = lingers + 1 end
        sees_all(prober)
        assert.is_false(routed(prober))
      end
      assert.is_true(missed > 10 and lingers > 10, missed .. " and " .. lingers)
    end)

    it("lets all of a node's connections see what one of them has seen or changed", function ()
      local node = broker.nodes[1]
      node.behind = 1000
      local found = connections_to(2)
      local elsewhere, here = found[broker.nodes[2]], found[node]
      local beside
      repeat beside = client.connect() until broker.connections[#broker.connections].node == node
      assert(elsewhere:declare("made"))
      assert.equal("absent", beside:probe("made"))
      sees_all(here:channel())
      assert.equal("present", beside:probe("made"))
    end)

    it("decides a claim by what is true, however far behind", function ()
      broker.nodes[1].behind, broker.nodes[2].behind = 1000, 1000
      local found = connections_to(2)
      assert(found[broker.nodes[1]]:declare("mine", { exclusive = true }))
      assert.equal("absent", found[broker.nodes[2]]:probe("mine"))
      local declared, why = found[broker.nodes[2]]:declare("mine", { exclusive = true })
      assert.is_nil(declared)
      assert.equal(405, why.code)
    end)
  end)

  it("gives up who does not get through the handshake", function ()
    local socket = broker:connect(function () end, function () end)
    broker.world:run(9.9)
    assert.equal(1, #broker.connections)
    broker.world:run(0.2)
    assert.equal(0, #broker.connections)
    socket:close()
  end)

  it("throws at what it does not know, and at what no client may say", function ()
    local one, two = client.connect():channel(), client.connect()
    assert.error_matches(function () one:call{ method = "basic.recover" } end, "knows no basic.recover")
    two:write(frames.encode{ channel = 9, method = "basic.qos" })
    assert.error_matches(function () broker.world:run(1) end, "channel 9, which is not open")
  end)
end)
