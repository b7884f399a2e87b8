-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A queue of the model broker: messages by position, and a list of consumers. Every queue has its own copy of a
-- message: { place =, redelivered =, properties =, … }, in `messages` when it is ready, in `unacked` when it is
-- delivered.
--
-- A queue is notified late of the end of a channel or a connection, as in RabbitMQ. Until then the consumers of the
-- dead client are in the list, and may be served. A queue that is being deleted is "ending" for a while before it is
-- gone: it can be seen and declared, but not consumed.
--
-- A queue with x-single-active-consumer gives messages to one consumer only, the `active` one. When there is none, the
-- first in line becomes it: the highest priority, then the earliest. It stays the active one until it is cancelled or
-- its channel ends. Such a queue handles a requeue late. It answers a declare before that, as gen_server2 does in
-- RabbitMQ, but everything else after it.
local frames = require "spec.support.frames"

local Queue = {}
Queue.__index = Queue

function Queue.new(broker, name, options)
  local self = setmetatable({ broker = broker, name = name, owner = options.owner, durable = options.durable or false,
    auto_delete = options.auto_delete or false, arguments = options.arguments or {}, messages = options.messages or {},
    unacked = {}, unacked_count = 0, acks_coming = 0, consumers = {}, places = 0, turns = 0, coming = {},
    made_at = broker.world.now, state = "live", is_alive = true }, Queue)
  if self.arguments["x-queue-type"] == "quorum" then self.counts_in = broker.laws.counts_in end
  for _, message in ipairs(self.messages) do self.places = math.max(self.places, message.place) end
  self.max_length = self.arguments["x-max-length"] or math.huge
  self.rejects = self.arguments["x-overflow"] == "reject-publish"
  self.is_single = self.arguments["x-single-active-consumer"] == true
  self:used()
  return self
end

-- One event at a time, which looks whether the queue was used since.
local function expire(self)
  local time = self.expires_at
  self.expiry = time and self.is_alive and time > self.broker.world.now
  if self.expiry then return self.broker.world:at(time, expire, self) end
  if time then self:remove() end
end

--- The queue was declared, asked for, or left by its last consumer: its expiry begins anew.
function Queue:used()
  local expires, world = self.arguments["x-expires"], self.broker.world
  if not expires or not self.is_alive then return end
  self.expires_at = #self.consumers == 0 and world.now + expires / 1000 or nil
  if not self.expires_at or self.expiry then return end
  self.expiry = true
  world:at(self.expires_at, expire, self)
end

-- Messages ----------------------------------------------------------------------------------------------------------

local function tell_level(self)
  if self.is_alive then self.broker:tell("leveled", self) end
end

-- Most messages come as bytes, and nothing reads their properties: they are decoded on demand.
local function properties_of(message)
  message.properties = message.properties or (frames.properties(message.header))
  return message.properties
end

Queue.properties_of = properties_of

local function expires(message) return properties_of(message).expiration == "0" end

local function put_in_place(self, message)
  local messages = self.messages
  local at = #messages + 1
  while at > 1 and messages[at - 1].place > message.place do at = at - 1 end
  table.insert(messages, at, message)
end

local function has_room(consumer)
  return consumer.no_ack or consumer.prefetch == 0 or consumer.unacked < consumer.prefetch
end

local function is_before(a, b)
  return a.priority > b.priority or a.priority == b.priority and a.turn < b.turn
end

local function first_in_line(self)
  local first
  for _, consumer in ipairs(self.consumers) do
    if not consumer.is_out and (not first or is_before(consumer, first)) then first = consumer end
  end
  return first
end

-- Consumers are served round robin, the highest priority first: a served consumer goes to the end of the list. A
-- consumer whose prefetch limit is found to be reached leaves the list, and returns to its end. If the limit was not
-- checked meanwhile, it keeps its place.
local function next_consumer(self)
  if self.is_single then return self.active and has_room(self.active) and self.active end
  local first = first_in_line(self)
  while first and not has_room(first) do
    first.is_out = true
    first = first_in_line(self)
  end
  return first
end

local function to_the_end(self, consumer)
  self.turns = self.turns + 1
  consumer.turn = self.turns
end

-- Messages expire at the head of the queue only, and are checked now and then.
local function drop_expired(self)
  while self.messages[1] and expires(self.messages[1]) do table.remove(self.messages, 1) end
end

local function hand_out(self, message)
  self.unacked[message], self.unacked_count = true, self.unacked_count + 1
end

-- A message is not with a client any more. False: it was not before.
local function take_back(self, message)
  if not self.unacked[message] then return false end
  self.unacked[message], self.unacked_count = nil, self.unacked_count - 1
  return true
end

-- A queue that rejects messages keeps those that are requeued, beyond its length.
local function drop_head(self)
  if self.rejects then return end
  while #self.messages > self.max_length do table.remove(self.messages, 1) end
end

local function serve(self)
  while #self.messages > 0 do
    local consumer = next_consumer(self)
    if not consumer then break end
    local message = table.remove(self.messages, 1)
    local is_late = not message.is_fresh and expires(message) and self.broker.random:chance(0.5)
    if not is_late then
      to_the_end(self, consumer)
      if not consumer.no_ack then
        consumer.unacked = consumer.unacked + 1
        hand_out(self, message)
      end
      consumer.served_at = self.broker.world.now
      self.broker:tell("delivered", self, consumer, message)
      consumer.channel:deliver(consumer, message)
    end
  end
  drop_expired(self)
  tell_level(self)
end

-- Requeued messages are back in their positions. A queue that is then too long drops its head before it serves a
-- consumer.
local function serve_again(self)
  drop_head(self)
  serve(self)
end

local function make_room(self, consumer)
  if not consumer then return end
  consumer.unacked = consumer.unacked - 1
  if not consumer.is_out then return end
  consumer.is_out = false
  to_the_end(self, consumer)
end

-- A quorum queue tells in a header how often a message came back.
local function set_count(self, message, count)
  if not self.counts_in then return end
  local properties, headers = {}, {}
  for name, value in pairs(properties_of(message)) do properties[name] = value end
  for name, value in pairs(properties.headers or {}) do headers[name] = value end
  headers[self.counts_in] = count
  properties.headers = headers
  message.properties, message.header = properties, nil
end

local function count_return(self, message)
  local headers = self.counts_in and properties_of(message).headers or {}
  set_count(self, message, (headers[self.counts_in] or 0) + 1)
end

local function put_back(self, entry)
  if not take_back(self, entry.message) then return end
  entry.message.redelivered = true
  count_return(self, entry.message)
  put_in_place(self, entry.message)
end

-- Messages whose requeue the queue has received, and not handled yet, return to their positions.
local function handle_requeues(self)
  while self.coming[1] do
    for _, entry in ipairs(table.remove(self.coming, 1)) do
      make_room(self, entry.consumer)
      put_back(self, entry)
    end
    serve_again(self)
  end
end

Queue.handle_requeues = handle_requeues

--- A message arrives. False: it was refused.
function Queue:publish(message)
  handle_requeues(self)
  local is_full = self.rejects and #self.messages >= self.max_length
  if is_full or self.trouble and self.trouble ~= "silent" then return false end
  self.places = self.places + 1
  local own = { place = self.places, is_fresh = true, redelivered = false, properties = message.properties,
    header = message.header, body = message.body, exchange = message.exchange, routing_key = message.routing_key,
    sent_at = message.sent_at }
  table.insert(self.messages, own)
  serve(self)
  drop_head(self)
  own.is_fresh = false
  return true
end

--- Other software takes what lies ready, and publishes it again: the count of its returns begins anew.
function Queue:move()
  handle_requeues(self)
  local moved = self.messages
  self.messages = {}
  for _, message in ipairs(moved) do
    set_count(self, message, nil)
    self:publish(message)
  end
end

function Queue:take(no_ack)
  handle_requeues(self)
  drop_expired(self)
  local message = table.remove(self.messages, 1)
  drop_expired(self)
  self:used()
  if message and not no_ack then hand_out(self, message) end
  tell_level(self)
  return message
end

--- The acks of a group of entries are under way to the queue (1), or no longer are (-1).
function Queue:expect(group, sign)
  if not group.requeue then self.acks_coming = self.acks_coming + sign * #group.entries end
end

--- Unacknowledged messages (`entries`, the oldest first) are removed.
function Queue:ack(entries)
  if not self.is_alive then return end
  handle_requeues(self)
  for _, entry in ipairs(entries) do
    take_back(self, entry.message)
    make_room(self, entry.consumer)
  end
  serve(self)
end

--- Unacknowledged messages (`entries`, the oldest first) return to their positions, all at once.
function Queue:requeue(entries)
  if not self.is_alive then return end
  table.insert(self.coming, entries)
  if not self.is_single then return handle_requeues(self) end
  local laws = self.broker.laws
  self.broker.world:after(self.broker:lag(laws.requeue), handle_requeues, self)
end

function Queue:purge()
  handle_requeues(self)
  local count = #self.messages
  self.messages = {}
  tell_level(self)
  return count
end

-- Consumers ---------------------------------------------------------------------------------------------------------

function Queue:admits(exclusive)
  local first = self.consumers[1]
  if self.is_single then return not exclusive end
  return not first or not exclusive and not first.is_alone
end

function Queue:consume(consumer)
  handle_requeues(self)
  consumer.unacked = 0
  to_the_end(self, consumer)
  table.insert(self.consumers, consumer)
  if self.is_single then self.active = self.active or consumer end
  self:used()
  if consumer.is_alone then self.broker:tell("changed", self) end
  self.broker:tell("consumed", self, consumer)
end

Queue.serve = serve

local function is_gone(consumer, who) return consumer == who or consumer.channel == who end

-- `who`: a consumer, or a channel with all its consumers.
local function remove(self, who)
  local kept = {}
  for _, consumer in ipairs(self.consumers) do
    if is_gone(consumer, who) then self.broker:tell("left", self, consumer) else kept[#kept + 1] = consumer end
  end
  local had, was_alone = #kept < #self.consumers, self.consumers[1] and self.consumers[1].is_alone
  self.consumers = kept
  if self.active and is_gone(self.active, who) then self.active = first_in_line(self) end
  if not had or #kept > 0 then return end
  if was_alone then self.broker:tell("changed", self) end
  self:used()
  if self.auto_delete then self:finish() end
end

-- A lingering queue ends when its last consumer leaves. It then removes whatever its connection has declared under its
-- name since, without notice to consumers; before 4.3 also a queue of another connection.
local function end_lingering(self)
  local namesake = self.broker.queues[self.name]
  self.lingers = false
  if self.broker.laws.by_its_name then return self.broker:ends_elsewhere(self.name) end
  if not namesake or namesake.owner ~= self.owner then return end
  namesake.state, namesake.is_alive = "gone", false
  self.broker:forget(namesake)
end

local function leaves(self, who)
  remove(self, who)
  if self.lingers and #self.consumers == 0 then end_lingering(self) end
end

-- When a cancel passes the role of the active consumer on, RabbitMQ looks at the ready messages from 4.0 on only.
function Queue:cancel(gone)
  handle_requeues(self)
  leaves(self, gone)
  if not self.is_single then return end
  if self.broker.laws.wakes_next then serve(self) else tell_level(self) end
end

--- The queue is notified that a channel is gone: its unacknowledged messages (`entries`, the oldest first) are
-- requeued.
function Queue:channel_down(channel, entries)
  if self.lingers then leaves(self, channel) end
  if not self.is_alive then return end
  for _, entry in ipairs(entries) do put_back(self, entry) end
  remove(self, channel)
  serve_again(self)
end

-- The end -----------------------------------------------------------------------------------------------------------

function Queue:finish()
  if self.state ~= "live" then return end
  self.state = "ending"
  self.broker.world:after(self.broker:lag(self.broker.laws.ending), function () self:remove() end)
end

function Queue:remove()
  if self.is_orphan and self.lingers then return end_lingering(self) end
  if not self.is_alive then return end
  self.state, self.is_alive, self.coming = "gone", false, {}
  self.broker:forget(self)
  for _, consumer in ipairs(self.consumers) do
    self.broker:tell("left", self, consumer)
    consumer.channel:queue_gone(consumer)
  end
  self.consumers, self.active = {}, nil
  if self.trouble then self.broker:go_on() end
end

--- The owner deletes it on a node that is being stopped and regards the queue as dead: its record is deleted, and the
-- queue goes on until its last consumer leaves.
function Queue:linger()
  if #self.consumers == 0 then return self:remove() end
  self.state, self.is_alive, self.lingers = "gone", false, true
  self.broker:forget(self)
end

--- Another queue of its name has ended and removed its record: no client sees it any more, its name is free, and nobody
-- is notified. It goes on for its consumers and its owner, until they leave. The model covers queues of other owners
-- only roughly.
function Queue:be_orphaned()
  if not self.owner then return self:remove() end
  self.state, self.is_alive, self.lingers, self.is_orphan = "gone", false, true, true
  self.broker:forget(self)
end

--- What a durable queue has when the broker is back after a restart: a list of messages.
function Queue:what_lasts()
  local list = {}
  for message in pairs(self.unacked) do
    message.redelivered = true
    count_return(self, message)
    put_in_place(self, message)
  end
  for _, message in ipairs(self.messages) do
    if properties_of(message).delivery_mode == 2 then table.insert(list, message) end
  end
  return list
end

return Queue
