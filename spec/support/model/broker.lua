-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A model of a RabbitMQ broker, as far as the library uses one. It is fast enough for thousands of stories (simulated
-- runs) in simulated time. A seed decides each story, including the orders of events that a real broker shows once in a
-- thousand runs. The model implements what spec/broker/facts asserts about RabbitMQ, and those specs also run against
-- the model (spec/sim/model_spec.lua).
--
--     local broker = Broker.new(world, { version = "3.10.8" })
--     local socket = broker:connect(arrived, ended)          -- arrived(bytes) gets bytes, ended() is called at the end
--     socket:send(bytes)
--     broker:delete("images-bell")                           -- an action of an operator
--     broker:stop() broker:start()
--
-- A request that the model does not know is an error, so that no story passes by accident.
local Connection = require "spec.support.model.connection"
local Queue = require "spec.support.model.queue"
local Quorum = require "spec.support.model.quorum_queue"
local Wire = require "spec.support.model.wire"

local unpack = table.unpack or unpack

local Broker = {}
Broker.__index = Broker

--- Upper limits of delays, in seconds; each delay is drawn at random.
Broker.laws = {
  version = "3.10.8",
  strict = false,       -- true: frames that only a defective client sends are an error of the story
  lags = 0.3,           -- this share of all frames is delayed within its channel
  inner = 0.0005,       -- by at most this
  consume_ok = 0.0005,  -- until a new consumer is in the queue's list
  confirm = 0.0005,     -- messages that arrive within this time are confirmed together
  handshake = 10,       -- the handshake must be done by then
  notice = 0.002,       -- until a consumer is notified that its queue is gone
  by_name = false,      -- true: if its channel then consumes another queue of that name, that consumer is notified, too
  down = 0.001,         -- until a queue is notified that a channel is gone
  requeue = 0.0003,     -- until a queue with a single active consumer handles a requeue
  wakes_next = nil,     -- such a queue looks at its ready messages when a cancel passes the role on; default: from 4.0
  settled = 0.002,      -- until a queue of a cluster is notified of acks and requeues
  exclusive = 0.003,    -- between two exclusive queues' deletions, when their connection is gone
  ending = 0.002,       -- time that a queue which ends by itself takes
  birth = 0.003,        -- an exclusive queue that is late, as the share `lags` of them is, begins at most so much later
  by_its_name = nil,    -- a queue that ends removes whatever has its name by then; default: before 4.3
  taken_away = 0.005,   -- delay of that removal
  nacks = 0.3,          -- a queue that is ending nacks this share of all messages
  tick = 0.1,           -- interval at which an unanswered channel.close after the consumer timeout is repeated
  nodes = 1,            -- nodes of a cluster; each connection is to one of them
  stale = 0,            -- a node sees changes made through another node at most so late
  closes_late = true,   -- connection.close-ok comes when the connection's queues are gone, as up to 4.1
  pace = { least = 0.00005, most = 0.0003, spike = 0.002, spikes = 0.02 },  -- of the network
}

-- A node sees all metadata as they were `stale` seconds ago, but at least as they were at `viewed`.
local function add_node(self, name)
  table.insert(self.nodes, { name = name, behind = self:lag(self.laws.stale), viewed = 0 })
end

local function laws_with(some)
  local laws = {}
  for name, law in pairs(Broker.laws) do laws[name] = law end
  for name, law in pairs(some) do laws[name] = law end
  local major, minor = laws.version:match "^(%d+)%.(%d+)"
  local is_before_4_3 = tonumber(major) * 100 + tonumber(minor) < 403
  if laws.by_its_name == nil then laws.by_its_name = is_before_4_3 end
  if laws.wakes_next == nil then laws.wakes_next = tonumber(major) >= 4 end
  laws.counts_in = is_before_4_3 and "x-delivery-count" or "x-acquired-count"
  return laws
end

function Broker.new(world, laws)
  local self = setmetatable({ world = world, random = world.random:fork(), queues = {}, connections = {}, names = 0,
    exchanges = { ["amq.direct"] = { type = "direct", bindings = {} } }, remains = {},
    watchers = { changed = {}, leveled = {}, delivered = {}, consumed = {}, left = {}, asked = {}, given_back = {} },
    past = { queues = {}, bindings = {} }, nodes = {},
    laws = laws_with(laws or {}) }, Broker)
  for i = 1, self.laws.nodes do add_node(self, i) end
  return self
end

function Broker:lag(most) return most * self.random:float() end

function Broker:unique(prefix)
  self.names = self.names + 1
  return prefix .. self.names
end

-- Connections -------------------------------------------------------------------------------------------------------

--- A client connects. `arrived(bytes)` is called with what the broker writes, `ended()` at the end. Returns the
-- client's end: send(bytes); close(); reset(), which loses bytes under way; strike("cut" or "stall", "up", "down" or
-- "both", seconds): nothing arrives any more, or for that time, and neither end is notified.
function Broker:connect(arrived, ended, pace)
  local connection
  pace = pace or self.laws.pace
  local down = Wire.new(self.world, pace, arrived, ended)
  local up = Wire.new(self.world, pace, function (bytes, sent_at) connection:feed(bytes, sent_at) end,
    function () connection:ended() end)
  connection = Connection.new(self, down)
  table.insert(self.connections, connection)
  if self.is_down then connection:abort() end
  return {
    connection = connection,
    send = function (_, bytes) up:send(bytes) end,
    close = function ()
      up:finish()
      down:cut()
    end,
    reset = function ()
      up:reset()
      down:cut()
    end,
    strike = function (_, how, direction, seconds)
      if direction ~= "down" then up[how](up, seconds) end
      if direction ~= "up" then down[how](down, seconds) end
    end,
  }
end

function Broker:disconnected(connection)
  for i, other in ipairs(self.connections) do
    if other == connection then table.remove(self.connections, i) end
  end
end

-- Queues ------------------------------------------------------------------------------------------------------------

--- Calls fn whenever this happens:
--   changed(queue)                          a queue was created or is gone, or its exclusive consumer came or left
--   leveled(queue)                          the number of its messages may have changed, or some were delivered
--   delivered(queue, consumer, message)     it gives a message to a consumer
--   consumed(queue, consumer)               it got a consumer; left(queue, consumer): it lost one
--   asked(queue, channel)                   a client is told the number of its consumers
--   given_back(queue, connection)           a client requeues a message, unless that crossed with its basic.cancel
function Broker:on(event, fn) table.insert(self.watchers[event], fn) end

function Broker:tell(event, a, b, c)
  local watchers = self.watchers[event]
  for i = 1, #watchers do watchers[i](a, b, c) end
end

--- Creates a queue; `options` are owner (a connection), durable, auto_delete, arguments.
function Broker:declare(name, options)
  local arguments = options.arguments or {}
  local is_quorum = arguments["x-queue-type"] == "quorum" and arguments["x-single-active-consumer"]
  local queue = (is_quorum and Quorum or Queue).new(self, name, options)
  self.world:note("broker", "%s is made", name)
  self.queues[name] = queue
  if queue.owner then table.insert(queue.owner.exclusive, queue) end
  self:tell("changed", queue)
  return queue
end

-- A deleted thing stays visible for a while, to nodes that are stale.
local function keep_past(self, list, thing)
  local now, stale = self.world.now, self.laws.stale
  thing.gone_at = now
  if stale == 0 then return end
  while list[1] and list[1].gone_at < now - stale do table.remove(list, 1) end
  table.insert(list, thing)
end

-- A queue loses its owner when it ends: so do queues that nobody but the owner sees any more.
local function disown(queue)
  if not queue.owner or queue.is_orphan then return end
  for i, other in ipairs(queue.owner.exclusive) do
    if other == queue then table.remove(queue.owner.exclusive, i) end
  end
end

function Broker:forget(queue)
  self.world:note("broker", "%s is gone", queue.name)
  self.queues[queue.name] = nil
  keep_past(self, self.past.queues, queue)
  for name in pairs(self.exchanges) do self:unbind(queue, name) end
  disown(queue)
  self:tell("changed", queue)
end

local function take_away(self, name)
  if self.queues[name] then self.queues[name]:be_orphaned() end
end

--- A queue with this name ends that is not the one registered under the name, if any is: because another queue has
-- taken the name, or because its owner was dead when the queue began. Before 4.3 the registered queue is removed with
-- it.
function Broker:ends_elsewhere(name)
  if not self.laws.by_its_name then return end
  self.world:note("broker", "another %s ends", name)
  self.world:after(self:lag(self.laws.taken_away), take_away, self, name)
end

function Broker:is_shut(name)
  local queue = self.queues[name]
  local first = queue and queue.consumers[1]
  return first and first.is_alone or false
end

--- Removes one binding of a queue, by its key, or all bindings of the queue to the exchange.
function Broker:unbind(queue, exchange, key)
  local bindings = self.exchanges[exchange].bindings
  for i = #bindings, 1, -1 do
    local is_meant = bindings[i].queue == queue and (not key or bindings[i].key == key)
    if is_meant then keep_past(self, self.past.bindings, table.remove(bindings, i)) end
  end
end

function Broker:is_bound(queue, exchange, key)
  for _, binding in ipairs(self.exchanges[exchange] and self.exchanges[exchange].bindings or {}) do
    if binding.queue == queue and binding.key == key then return true end
  end
  return false
end

function Broker:bind(queue, exchange, key)
  if self:is_bound(queue, exchange, key) then return end
  table.insert(self.exchanges[exchange].bindings,
    { exchange = exchange, queue = queue, key = key, made_at = self.world.now })
end

-- The things that existed at a time, including things deleted since.
local function seen(time, now, past)
  local list = {}
  for _, things in ipairs{ now, past } do
    for _, thing in ipairs(things) do
      if thing.made_at <= time and (not thing.gone_at or thing.gone_at > time) then table.insert(list, thing) end
    end
  end
  return list
end

local NOWHERE = {}

-- The queues of a name, at most one, as a node sees them whose view is of this time.
local function named(self, name, time)
  local queue, past = self.queues[name], self.past.queues
  if #past == 0 then return queue and queue.made_at <= time and { queue } or NOWHERE end
  local found = {}
  for _, other in ipairs(seen(time, { queue }, past)) do
    if other.name == name then table.insert(found, other) end
  end
  return found
end

-- The queues that a message is routed to by a node whose view is of this time.
local function route(self, message, time)
  if message.exchange == "" then return named(self, message.routing_key, time) end
  local found, has = {}, {}
  local exchange = self.exchanges[message.exchange]
  if not exchange then error("the model broker knows no publish to an exchange that is not there", 0) end
  for _, binding in ipairs(seen(time, exchange.bindings, self.past.bindings)) do
    local is_meant = binding.exchange == message.exchange
      and (exchange.type == "fanout" or binding.key == message.routing_key)
    if is_meant and not has[binding.queue] then table.insert(found, binding.queue) end
    has[binding.queue] = has[binding.queue] or is_meant
  end
  return found
end

local function publish(self, queue, message)
  if queue.state ~= "live" then return not self.random:chance(self.laws.nacks) end
  return queue:publish(message)
end

--- Publishes a message through a node whose view is of this time. Returns whether it was routed to a queue, and whether
-- every queue accepted it.
function Broker:publish(message, time)
  local found, taken = route(self, message, time or self.world.now), true
  for _, queue in ipairs(found) do taken = publish(self, queue, message) and taken end
  return #found > 0, taken
end

-- Actions of an operator --------------------------------------------------------------------------------------------

function Broker:delete(name)
  if self.queues[name] then self.queues[name]:remove() end
end

-- A durable queue comes back with its persistent messages.
local function come_back(self, queue)
  return self:declare(queue.name, { durable = true, auto_delete = queue.auto_delete, arguments = queue.arguments,
    messages = queue:what_lasts() })
end

--- A queue is in trouble, or is well again (nil):
--   "silent"    it does not confirm messages, like a quorum queue without a leader. Until it answers again, later
--               frames on such a channel wait, too. All other requests for it are answered.
--   "dead"      the node of a durable queue was killed. Its consumers are notified. All other requests for the queue,
--               and later frames on their channels, wait until it is back. Messages to it are refused.
--   "refused"   its node is down. Messages to it, and all other requests for it, are refused. (With Mnesia, messages
--               are returned as if it did not exist.)
function Broker:trouble(name, what)
  local queue = self.queues[name]
  if not queue then return end
  self.world:note("broker", "%s is %s", name, what or "well again")
  if what == "dead" then
    queue:remove()
    queue = come_back(self, queue)
  end
  queue.trouble = what
  if not what then self:go_on() end
end

--- Requests that waited for a silent queue are repeated: the queue answers, or is gone.
function Broker:go_on()
  for _, connection in ipairs(self.connections) do
    for _, channel in ipairs{ unpack(connection.channels) } do channel:go_on() end
  end
end

function Broker:deny(is_on)
  self.denies = is_on
  self.world:note("broker", is_on and "lets nobody consume" or "lets everybody consume")
end

function Broker:purge(name)
  if self.queues[name] then self.queues[name]:purge() end
end

function Broker:put(name, count, properties)
  for _ = 1, count do
    self:publish{ exchange = "", routing_key = name, properties = properties or {}, body = "" }
  end
end

--- An unknown client declares an exclusive queue of that name, bound to amq.direct if there is a key. Returns a
-- function that ends it; nil if the name is taken.
function Broker:intrude(name, key)
  if self.queues[name] then return nil end
  self.world:note("a stranger", "has %s", name)
  local queue = self:declare(name, { owner = { exclusive = {} }, auto_delete = true })
  if key then self:bind(queue, "amq.direct", key) end
  return function () queue:remove() end
end

--- The consumer timeout expires now: closes the channels that have unacknowledged messages of a queue.
function Broker:time_out(name)
  for _, connection in ipairs(self.connections) do
    for _, channel in ipairs(connection.channels) do
      for _, entry in ipairs(channel.unacked) do
        if entry.queue.name == name and channel.state == "open" then
          channel:fail(406, "PRECONDITION_FAILED - delivery acknowledgement on channel " .. channel.number
            .. " timed out. Timeout value used: 1800000 ms. This timeout value can be configured")
          self.world:after(self:lag(self.laws.tick), channel.insist, channel)
        end
      end
    end
  end
end

--- A memory or disk alarm begins or ends. During an alarm the broker does not read from connections that publish.
function Broker:alarm(is_on)
  self.has_alarm = is_on
  self.world:note("broker", is_on and "has an alarm" or "has no alarm any more")
  if is_on then return end
  for _, connection in ipairs{ unpack(self.connections) } do connection:alarm_over() end
end

--- A stop begins and takes a while. As from RabbitMQ 4.0 on, the broker regards its own queues as dead meanwhile.
function Broker:begin_to_stop()
  self.world:note("broker", "begins to stop")
  self.is_stopping = true
end

--- The broker stops: in order, or abruptly, as by SIGKILL. At start() only the durable queues are back, with their
-- persistent messages.
function Broker:stop(in_order)
  self.world:note("broker", in_order and "stops" or "dies")
  self.is_down, self.is_stopping, self.remains = true, false, {}
  for _, connection in ipairs{ unpack(self.connections) } do connection:vanish(in_order) end
  for _, name in ipairs(self:names_of_queues()) do
    local queue = self.queues[name]
    if queue.durable and not queue.owner then table.insert(self.remains, queue) end
    queue:remove()
  end
end

function Broker:start()
  self.world:note("broker", "starts")
  self.is_down = false
  for _, queue in ipairs(self.remains) do come_back(self, queue) end
end

--- Returns how many messages of a queue are ready, how many are unacknowledged, and how many consumers it has.
function Broker:count(name)
  local queue = self.queues[name]
  if not queue then return 0, 0, 0 end
  return #queue.messages, queue.unacked_count - queue.acks_coming, #queue.consumers
end

function Broker:names_of_queues()
  local names = {}
  for name in pairs(self.queues) do table.insert(names, name) end
  table.sort(names)
  return names
end

return Broker
