-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A quorum queue with a single active consumer, as RabbitMQ 4.3.6 has it (rabbit_fifo.erl), and faults of its
-- cluster.
--
-- The queue's leader applies commands in order, if it has a majority. It suspects the consumers of a node that it
-- cannot reach: they get nothing, and keep the role and the messages for the queue's
-- x-consumer-disconnected-timeout. Then both move, and nobody is notified. A command from such a node arrives when the
-- node is back. A delivery to it arrives then, too, or later, if the queue's member there lags.
local Queue = require "spec.support.model.queue"

local Quorum = setmetatable({ is_ordered = true }, { __index = Queue })
Quorum.__index = Quorum

function Quorum.new(broker, name, options)
  local self = setmetatable(Queue.new(broker, name, options), Quorum)
  self.leader, self.out, self.log, self.at = broker.random:pick(broker.nodes), {}, {}, {}
  for _, node in ipairs(broker.nodes) do self.at[node] = { commands = {}, deliveries = {} } end
  self.keeps_for = self.arguments["x-consumer-timeout"] / 1000
  self.suspects_for = (self.arguments["x-consumer-disconnected-timeout"] or 60000) / 1000
  return self
end

-- What a consumer is after the queue has lost its node, and when the node is back. In 4.3.6 a suspected consumer that
-- is suspected once more keeps its message, loses the role, and is not rehabilitated.
local SUSPECTED = { up = "suspected", ["timed out"] = "suspected", suspected = "lost", lost = "lost, suspected",
  ["lost, suspected"] = "lost" }
local BACK = { suspected = "up", ["lost, suspected"] = "lost", ["timed out"] = "timed out" }

local function node_of(consumer) return consumer.channel.connection.node end

local function active(self)
  for _, consumer in ipairs(self.consumers) do
    local status = consumer.status
    if not consumer.is_waiting and (status == "up" or status == "suspected") then return consumer end
  end
end

--- How many consumers a client is told of: not those that wait.
function Quorum:count_active()
  local count = 0
  for _, consumer in ipairs(self.consumers) do count = count + (consumer.is_waiting and 0 or 1) end
  return count
end

local function activate(self)
  if active(self) then return end
  for _, consumer in ipairs(self.consumers) do
    if consumer.is_waiting and consumer.status == "up" then
      consumer.is_waiting = false
      return
    end
  end
end

-- Messages ----------------------------------------------------------------------------------------------------------

-- Each delivery is a copy, with the counts of that time.
local function copy_of(own, consumer)
  local properties, headers = {}, {}
  for name, value in pairs(Queue.properties_of(own)) do properties[name] = value end
  for name, value in pairs(properties.headers or {}) do headers[name] = value end
  if own.acquired > 0 then
    headers["x-acquired-count"], headers["x-delivery-count"] = own.acquired, own.failures
  end
  properties.headers = headers
  return { own = own, consumer = consumer, redelivered = own.acquired > 0, properties = properties, body = own.body,
    exchange = own.exchange, routing_key = own.routing_key }
end

local function deliver(self, message)
  local consumer = message.consumer
  local place = self.at[node_of(consumer)]
  if place.is_cut or place.lags or place.deliveries[1] then
    table.insert(place.deliveries, message)
  else
    consumer.channel:deliver(consumer, message)
  end
end

local commit, look_at_clock

-- The messages of a consumer are taken back after the consumer timeout. 4.3.6 looks when the first of them is due, and
-- with each command after that.
local function watch_clock(self, time)
  self.looks_at = self.looks_at and math.min(self.looks_at, time) or time
  self.broker.world:at(math.max(self.looks_at, self.broker.world.now), commit, self, look_at_clock)
end

function Quorum:serve()
  local consumer = active(self)
  while consumer and consumer.status == "up" and self.messages[1] do
    if consumer.prefetch > 0 and consumer.unacked >= consumer.prefetch then break end
    local message = copy_of(table.remove(self.messages, 1), consumer)
    consumer.unacked, self.unacked_count = consumer.unacked + 1, self.unacked_count + 1
    message.due = self.broker.world.now + self.keeps_for
    if not self.looks_at then watch_clock(self, message.due) end
    table.insert(self.out, message)
    self.broker:tell("delivered", self, consumer, message)
    deliver(self, message)
  end
  if self.is_alive then self.broker:tell("leveled", self) end
end

-- Messages that came back go before those that did not.
local function put_back(self, message, fails)
  for i, other in ipairs(self.out) do
    if other == message then
      table.remove(self.out, i)
      local consumer, own, at = message.consumer, message.own, 1
      consumer.unacked, self.unacked_count = consumer.unacked - 1, self.unacked_count - 1
      own.acquired, own.failures = own.acquired + 1, own.failures + (fails and 1 or 0)
      while self.messages[at] and self.messages[at].acquired > 0 do at = at + 1 end
      return table.insert(self.messages, at, own)
    end
  end
end

local function put_all_back(self, consumer, fails)
  for i = #self.out, 1, -1 do
    if self.out[i].consumer == consumer then put_back(self, self.out[i], fails) end
  end
end

function Quorum:publish(message)
  if self.rejects and #self.messages >= self.max_length then return false end
  table.insert(self.messages, { acquired = 0, failures = 0, properties = message.properties, header = message.header,
    body = message.body, exchange = message.exchange, routing_key = message.routing_key })
  self:serve()
  return true
end

-- A consumer whose messages were taken back waits, and is not served again.
local function time_out(self, consumer)
  put_all_back(self, consumer, false)
  consumer.is_waiting, consumer.status, consumer.timer = true, "timed out", nil
  local lag = self.broker:lag(self.broker.laws.notice)
  if not self.at[node_of(consumer)].is_cut then
    self.broker.world:after(lag, consumer.channel.notify, consumer.channel, consumer)
  end
end

look_at_clock = function (self)
  local now = self.broker.world.now
  self.looks_at = nil
  for _, consumer in ipairs(self.consumers) do
    for _, message in ipairs(self.out) do
      if message.consumer == consumer and message.due <= now then time_out(self, consumer) break end
    end
  end
  for _, message in ipairs(self.out) do self.looks_at = math.min(self.looks_at or math.huge, message.due) end
  activate(self)
  self:serve()
end

-- Commands ----------------------------------------------------------------------------------------------------------

commit = function (self, fn, a, b)
  if self.is_stuck then return table.insert(self.log, { fn, a, b }) end
  if not self.is_alive then return end
  fn(self, a, b)
  if self.looks_at and self.broker.world.now > self.looks_at then look_at_clock(self) end
end

local function command(self, channel, fn, a, b)
  local place = self.at[channel.connection.node]
  if place.is_cut then table.insert(place.commands, { fn, a, b }) else commit(self, fn, a, b) end
end

--- Whether what a channel on this node asks of the queue is not answered now.
function Quorum:is_out_of_reach(node) return self.is_stuck or self.at[node].is_cut end

function Quorum.handle_requeues() end

local function take_back(self, entries, fails)
  for _, entry in ipairs(entries) do put_back(self, entry.message, fails) end
  activate(self)
  self:serve()
end

local function forget(self, entries)
  for _, entry in ipairs(entries) do
    for i, message in ipairs(self.out) do
      if message == entry.message then
        table.remove(self.out, i)
        message.consumer.unacked, self.unacked_count = message.consumer.unacked - 1, self.unacked_count - 1
        break
      end
    end
  end
  activate(self)
  self:serve()
end

function Quorum:ack(entries) command(self, entries[1].consumer.channel, forget, entries) end

function Quorum:requeue(entries, fails) command(self, entries[1].consumer.channel, take_back, entries, fails) end

function Quorum:consume(consumer)
  consumer.unacked, consumer.status, consumer.is_waiting = 0, "up", true
  table.insert(self.consumers, consumer)
  activate(self)
  self.broker:tell("consumed", self, consumer)
end

-- `who`: a channel that is gone; or a node, all of whose dead channels the queue learns of.
local function is_gone(consumer, who)
  return consumer.channel == who or consumer.channel.is_down and node_of(consumer) == who
end

local function down(self, who, is_new)
  local kept = {}
  for _, consumer in ipairs(self.consumers) do
    if not is_gone(consumer, who) or consumer.is_unwatched and not is_new then
      kept[#kept + 1] = consumer
    else
      put_all_back(self, consumer, true)
      self.broker:tell("left", self, consumer)
    end
  end
  self.consumers = kept
  activate(self)
  self:serve()
end

function Quorum:channel_down(channel) command(self, channel, down, channel) end

-- Faults ------------------------------------------------------------------------------------------------------------

local function move(self, consumer)
  if consumer.is_waiting or not (consumer.status == "suspected" or consumer.status == "lost, suspected") then return end
  self.broker.world:note("broker", "%s is moved away from %s", self.name, consumer.tag)
  put_all_back(self, consumer, false)
  consumer.is_waiting, consumer.status = true, "suspected"
  activate(self)
  self:serve()
end

local function give_up(self, consumer, timer)
  if consumer.timer == timer then commit(self, move, consumer) end
end

local function start_timer(self, consumer)
  consumer.timer = {}
  self.broker.world:after(self.suspects_for, give_up, self, consumer, consumer.timer)
end

-- 4.3.6 watches a consumer's channel until it is told that the node is gone. It does so again when the node is back, if
-- it was told once, and when there is a new leader.
local function suspect(self, node)
  if not self.at[node].is_cut then return end
  for _, consumer in ipairs(self.consumers) do
    if node_of(consumer) == node then
      consumer.is_unwatched = true
      consumer.status = SUSPECTED[consumer.status]
      if not consumer.is_waiting then start_timer(self, consumer) end
    end
  end
  self:serve()
end

local function rehabilitate(self, node)
  for _, consumer in ipairs(self.consumers) do
    if node_of(consumer) == node then
      local status = BACK[consumer.status]
      consumer.is_unwatched = consumer.is_unwatched and (not status or status == consumer.status)
      consumer.status = status or consumer.is_waiting and "up" or consumer.status
      consumer.timer = nil
    end
  end
  down(self, node)
end

local function elect(self)
  for _, node in ipairs(self.broker.nodes) do
    if not self.at[node].is_cut then self.leader = node end
  end
  self.broker.world:note("broker", "%s has a leader on node %d", self.name, self.leader.name)
  self.is_stuck = false
  local log = self.log
  self.log = {}
  for _, entry in ipairs(log) do entry[1](self, entry[2], entry[3]) end
  for _, consumer in ipairs(self.consumers) do consumer.is_unwatched = false end
  for _, node in ipairs(self.broker.nodes) do suspect(self, node) end
  for _, node in ipairs(self.broker.nodes) do
    if not self.at[node].is_cut then down(self, node, true) end
  end
  if self.looks_at then watch_clock(self, self.looks_at) end
  self.broker:go_on()
end

-- The leader notices that cut of the node, unless it is healed by then.
local function notice(self, node, cut)
  if self.at[node].is_cut == cut then commit(self, suspect, node) end
end

--- The queue has no leader for so many seconds, and then a new one.
function Quorum:lose_leader(seconds)
  self.is_stuck = true
  self.broker.world:after(seconds, elect, self)
end

--- A node is cut off from the others, which notice it so many seconds later.
function Quorum:cut(node, seconds)
  local cut = {}
  self.broker.world:note("broker", "node %d is cut off", node.name)
  self.at[node].is_cut = cut
  if self.leader == node then
    self:lose_leader(seconds)
  else
    self.broker.world:after(seconds, notice, self, node, cut)
  end
end

-- Deliveries that a node has not seen arrive there.
local function catch_up(self, node)
  local place = self.at[node]
  local deliveries = place.deliveries
  place.lags, place.deliveries = false, {}
  for _, message in ipairs(deliveries) do deliver(self, message) end
end

--- The queue's member on a node lags for so many seconds.
function Quorum:lag(node, seconds)
  self.at[node].lags = true
  self.broker.world:after(seconds, catch_up, self, node)
end

--- The node is back.
function Quorum:heal(node)
  self.broker.world:note("broker", "node %d is back", node.name)
  local place = self.at[node]
  local commands = place.commands
  place.is_cut, place.commands = false, {}
  commit(self, rehabilitate, node)
  for _, entry in ipairs(commands) do commit(self, entry[1], entry[2], entry[3]) end
  if not place.lags then catch_up(self, node) end
  self.broker:go_on()
end

--- The clock of the leader's machine steps forward by more than the consumer timeout.
function Quorum:step_clock()
  for _, message in ipairs(self.out) do message.due = self.broker.world.now end
  commit(self, look_at_clock)
end

--- A timer that a former leader has left fires too early.
function Quorum:hasten()
  local consumer = active(self)
  if consumer and not self.is_stuck then move(self, consumer) end
end

return Quorum
