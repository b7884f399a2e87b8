-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A channel of the model broker: it handles the client's methods and sends the answers.
--
-- Each channel is a process of its own. It handles its frames in order, but later than they arrived; its answers are in
-- order, too. There is no order between two channels. consume-ok may come late, since RabbitMQ sends it from the queue
-- and not from the channel, but it comes before the first delivery.
local frames = require "spec.support.frames"
local lua53 = require "spec.support.lua53"

local Channel = {}
Channel.__index = Channel

function Channel.new(connection, number)
  return setmetatable({ connection = connection, broker = connection.broker, world = connection.world,
    number = number, state = "open", prefetch = 0, consumers = {}, unacked = {}, tags = 0, published = nil,
    unconfirmed = {}, returns = {}, settling = {}, in_until = 0, out_until = 0, settled_until = 0 }, Channel)
end

-- Coming and going --------------------------------------------------------------------------------------------------

-- Runs fn at once or later, in order: `field` holds when the previous one will be through.
local function in_turn(self, field, fn, what, more)
  local broker, now = self.broker, self.world.now
  local time = self[field]
  if broker.random:chance(broker.laws.lags) then
    time = math.max(time, now + broker:lag(broker.laws.inner))
    self[field] = time
  end
  if time <= now then fn(self, what, more) else self.world:at(time, fn, self, what, more) end
end

local METHODS = {}

local ASKS = { ["queue.declare"] = true, ["queue.purge"] = true, ["basic.consume"] = true, ["basic.get"] = true }

local function is_out_of_reach(self, queue)
  return queue and queue.is_out_of_reach and queue:is_out_of_reach(self.connection.node)
end

-- Whether the frame waits: it is for a queue that does not answer, or comes after such a frame.
local function waits(self, frame)
  if self.behind then return true end
  if ASKS[frame.method] then
    local queue = self.connection:sees(frame.queue)
    return queue and queue.trouble == "dead" or is_out_of_reach(self, queue)
  end
  if frame.method ~= "basic.publish" or frame.exchange ~= "" then return false end
  local queue = self.connection:sees(frame.routing_key)
  return queue and queue.trouble == "silent" or is_out_of_reach(self, queue)
end

local function wait(self, frame)
  if not self.behind then
    self.behind, self.connection.silent_since = {}, self.world.now
  end
  table.insert(self.behind, frame)
end

local function handle(self, frame)
  if self.state == "open" and waits(self, frame) then return wait(self, frame) end
  local ends = frame.method == "channel.close" or frame.method == "channel.close-ok"
  if self.state ~= "open" and not (self.state == "closing" and ends) then return end
  local method = METHODS[frame.method]
  if not method then error("the model broker knows no " .. frame.method, 0) end
  method(self, frame)
end

--- Frames that waited for a silent queue are handled.
function Channel:go_on()
  local behind = self.behind or {}
  self.behind = nil
  for _, frame in ipairs(behind) do handle(self, frame) end
end

-- The declare of an exclusive queue may take effect late; its owner may be dead by then.
local function begins_late(self, frame)
  local broker, is_claim = self.broker, frame.method == "queue.declare" and frame.exclusive
  if not is_claim or not broker.random:chance(broker.laws.lags) then return end
  self.in_until = math.max(self.in_until, self.world.now) + broker:lag(broker.laws.birth)
end

function Channel:arrive(frame)
  if self.state == "closing" then
    handle(self, frame)  -- its owner is dead: no delay
  else
    begins_late(self, frame)
    in_turn(self, "in_until", handle, frame)
  end
end

local function write(self, bytes, more)
  if self.state == "over" then return end
  self.connection:write(bytes)
  if more then self.connection:write(more) end
end

local function write_known(self, said)
  if self.state == "over" then return end
  if self.world.trace then self.connection:note_sent(said.frame, self.number) end
  self.connection:write(said.bytes, said.news)
  if said.more then self.connection:write(said.more) end
end

-- `more` are bytes that follow directly; `news`: see Connection:write.
local function say(self, frame, bytes, more, news)
  if news or self.world.trace then
    in_turn(self, "out_until", write_known, { frame = frame, bytes = bytes, more = more, news = news })
  else
    in_turn(self, "out_until", write, bytes, more)
  end
end

local function reply(self, frame, news)
  say(self, frame, frames.write_method(frame, self.number), nil, news)
end

local function content_of(self, message)
  local body = message.body
  message.header = message.header or frames.write_header(self.number, message.properties, #body)
  local header = frames.header_on(self.number, message.header)
  return body == "" and header or header .. frames.write_body(self.number, body, self.connection.frame_max)
end

local function send_content(self, frame, message, news)
  say(self, frame, frames.write_method(frame, self.number), content_of(self, message), news)
end

--- The broker closes the channel; `frame` is sent before that, if given.
function Channel:fail(code, text, frame)
  if self.state ~= "open" then return end
  local refused = frame and frames.methods[frame.method]
  local close = { method = "channel.close", reply_code = code, reply_text = text, class_id = refused and refused.class,
    method_id = refused and refused.id }
  self.last_words = close
  reply(self, close)
  self.state = "closing"
  self:down()
end

local function say_again(self, close)
  if self.state ~= "closing" then return end
  write_known(self, { frame = close, bytes = frames.write_method(close, self.number) })
end

--- Up to 3.11 the broker repeats channel.close until it has received close-ok. It never does so after that, when the
-- channel number may be in use again.
function Channel:insist()
  if self.state == "closing" then in_turn(self, "out_until", say_again, self.last_words) end
end

-- The end -----------------------------------------------------------------------------------------------------------

local function queues_of(self)
  local list, seen = {}, {}
  for _, things in ipairs{ self.consumers, self.unacked, self.settling } do
    for _, thing in ipairs(things) do
      if not seen[thing.queue] then list[#list + 1] = thing.queue end
      seen[thing.queue] = true
    end
  end
  return list
end

local function is_older(a, b) return a.tag < b.tag end

local function hear(group)
  if group.requeue then group.queue:requeue(group.entries, group.fails) else group.queue:ack(group.entries) end
end

-- Each end of a channel is told to a queue once, also if the channel ends again while that notice is under way.
local function tell_down(self, queue)
  queue:handle_requeues()
  local entries, kept = {}, {}
  for _, group in ipairs(self.settling) do
    if group.queue == queue and not group.is_overtaken then
      group.is_overtaken = true
      queue:expect(group, -1)
      if queue.is_ordered then
        hear(group)
      else
        for _, entry in ipairs(group.entries) do table.insert(entries, entry) end
      end
    end
  end
  for _, entry in ipairs(self.unacked) do table.insert(entry.queue == queue and entries or kept, entry) end
  self.unacked = kept
  if entries[2] then table.sort(entries, is_older) end
  queue:channel_down(self, entries)
end

--- Notifies its queues that it is gone, each after a delay of at most laws.down seconds.
function Channel:down()
  if self.is_down then return end
  self.is_down = true
  for _, queue in ipairs(queues_of(self)) do
    self.world:after(self.broker:lag(self.broker.laws.down), tell_down, self, queue)
  end
end

function Channel:over()
  self:down()
  self.state = "over"
end

local function closed(self)
  self.state = "closed"
  self.connection:channel_closed(self)
end

METHODS["channel.close"] = function (self)
  if self.state == "open" then self:down() end
  reply(self, { method = "channel.close-ok" })
  if self.state ~= "closing" then closed(self) end -- or our own close is still to be answered
end

METHODS["channel.close-ok"] = function (self)
  if self.state ~= "closing" then error("channel.close-ok on a channel that nobody closes", 0) end
  closed(self)
end

-- Queues ------------------------------------------------------------------------------------------------------------

local REFUSALS = {
  ["no queue"] = { 404, "NOT_FOUND - no queue '%s' in vhost '/'" },
  ["out of reach"] = { 404, "NOT_FOUND - home node 'rabbit@other' of durable queue '%s' in vhost '/' is down or "
    .. "inaccessible" },
  ["no exchange"] = { 404, "NOT_FOUND - no exchange '%s' in vhost '/'" },
  locked = { 405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '%s' in vhost '/'. It could be "
    .. "originally declared on another connection or the exclusive property value does not match that of the "
    .. "original declaration." },
  denied = { 403, "ACCESS_REFUSED - read access to queue '%s' in vhost '/' refused for user 'guest'" },
  alone = { 403, "ACCESS_REFUSED - queue '%s' in vhost '/' in exclusive use" },
  reserved = { 403, "ACCESS_REFUSED - queue name '%s' contains reserved prefix 'amq.*'" },
  ["an exchange"] = { 403, "ACCESS_REFUSED - operation not permitted on exchange '%s'" },
  ["in use"] = { 406, "PRECONDITION_FAILED - queue '%s' in vhost '/' in use" },
  ["not empty"] = { 406, "PRECONDITION_FAILED - queue '%s' in vhost '/' not empty" },
}

-- Closes the channel, because of the queue that this is about, or of its exchange.
local function refuse(self, frame, why)
  local code, text = REFUSALS[why][1], REFUSALS[why][2]
  self:fail(code, text:format(why:find "exchange" and frame.exchange or frame.queue), frame)
end

local function is_down(queue) return queue.trouble == "refused" end

local function is_foreign(self, queue) return queue.owner and queue.owner ~= self.connection end

-- Returns the queue, if it exists and this connection may use it; otherwise closes the channel.
local function usable(self, frame)
  local queue = self.connection:sees(frame.queue)
  if not queue then return refuse(self, frame, "no queue") end
  if is_foreign(self, queue) then return refuse(self, frame, "locked") end
  if is_down(queue) then return refuse(self, frame, "out of reach") end
  return queue
end

local function declared(self, queue, frame)
  queue:used()
  if frame.no_wait then return end
  reply(self, { method = "queue.declare-ok", queue = queue.name, message_count = #queue.messages,
    consumer_count = queue.count_active and queue:count_active() or #queue.consumers })
  self.broker:tell("asked", queue, self)
end

-- The arguments that must be the same when a queue is declared again. Others do not matter.
local COMPARED = { "x-queue-type", "x-max-length", "x-overflow", "x-expires", "x-message-ttl", "x-delivery-limit",
  "x-single-active-consumer" }

-- To the broker, no exclusive queue is durable, whatever its declare says.
local function is_durable(frame) return frame.durable and not frame.exclusive end

local function is_another(queue, frame)
  if queue.durable ~= is_durable(frame) then return "durable" end
  if queue.auto_delete ~= frame.auto_delete then return "auto_delete" end
  for _, key in ipairs(COMPARED) do
    local default = key == "x-queue-type" and "classic" or nil
    if (queue.arguments[key] or default) ~= (frame.arguments[key] or default) then return key end
  end
end

-- A queue whose owner is dead when it begins ends at once; no other client has ever seen it.
local function make(self, name, frame)
  if frame.exclusive and self.connection.state == "over" then return self.broker:ends_elsewhere(name) end
  declared(self, self.broker:declare(name, { owner = frame.exclusive and self.connection or nil,
    durable = is_durable(frame), auto_delete = frame.auto_delete, arguments = frame.arguments }), frame)
  self.connection:wrote_metadata()
end

METHODS["queue.declare"] = function (self, frame)
  local name = frame.queue:gsub("[\r\n]", "")
  local queue = self.broker.queues[name]
  if frame.passive then
    queue = usable(self, frame)
    if queue then declared(self, queue, frame) end
  elseif name:find("^amq%.") then
    refuse(self, frame, "reserved")
  elseif not queue then
    if name == "" then error("the model broker makes up no names", 0) end
    make(self, name, frame)
  elseif is_foreign(self, queue) or frame.exclusive ~= (queue.owner ~= nil) then
    refuse(self, frame, "locked")
  elseif is_down(queue) then
    refuse(self, frame, "out of reach")
  elseif is_another(queue, frame) then
    self:fail(406, ("PRECONDITION_FAILED - inequivalent arg '%s' for queue '%s' in vhost '/'"):format(
      is_another(queue, frame), frame.queue), frame)
  else
    declared(self, queue, frame)
  end
end

METHODS["queue.delete"] = function (self, frame)
  local queue = self.connection:sees(frame.queue)
  if queue and is_foreign(self, queue) then return refuse(self, frame, "locked") end
  if queue and is_down(queue) then return refuse(self, frame, "out of reach") end
  local count = queue and #queue.messages or 0
  if frame.if_unused and queue and #queue.consumers > 0 then return refuse(self, frame, "in use") end
  if frame.if_empty and count > 0 then return refuse(self, frame, "not empty") end
  if queue then
    if queue.owner and self.broker.is_stopping then queue:linger() else queue:remove() end
    self.connection:wrote_metadata()
  end
  if not frame.no_wait then reply(self, { method = "queue.delete-ok", message_count = count }) end
end

METHODS["queue.purge"] = function (self, frame)
  local queue = usable(self, frame)
  if queue then reply(self, { method = "queue.purge-ok", message_count = queue:purge() }) end
end

METHODS["queue.bind"] = function (self, frame)
  if not self.broker.exchanges[frame.exchange] then return refuse(self, frame, "no exchange") end
  local queue = usable(self, frame)
  if not queue then return end
  self.broker:bind(queue, frame.exchange, frame.routing_key)
  self.connection:wrote_metadata()
  reply(self, { method = "queue.bind-ok" })
end

-- Unbinding a missing queue or binding succeeds, also for a client that does not own the queue.
METHODS["queue.unbind"] = function (self, frame)
  local queue, exchange, key = self.connection:sees(frame.queue), frame.exchange, frame.routing_key
  if queue and self.broker:is_bound(queue, exchange, key) then
    if is_foreign(self, queue) then return refuse(self, frame, "locked") end
    self.broker:unbind(queue, exchange, key)
    self.connection:wrote_metadata()
  end
  reply(self, { method = "queue.unbind-ok" })
end

METHODS["exchange.declare"] = function (self, frame)
  local exchanges = self.broker.exchanges
  exchanges[frame.exchange] = exchanges[frame.exchange] or { type = frame.type, bindings = {} }
  reply(self, { method = "exchange.declare-ok" })
end

METHODS["exchange.delete"] = function (self, frame)
  if frame.exchange:find("^amq%.") then return refuse(self, frame, "an exchange") end
  self.broker.exchanges[frame.exchange] = nil
  reply(self, { method = "exchange.delete-ok" })
end

-- Consumers ---------------------------------------------------------------------------------------------------------

METHODS["basic.qos"] = function (self, frame)
  if frame.global then error("the model broker knows no global prefetch", 0) end
  self.prefetch = frame.prefetch_count
  reply(self, { method = "basic.qos-ok" })
end

local function find(self, tag)
  for i, consumer in ipairs(self.consumers) do
    if consumer.tag == tag then return consumer, i end
  end
end

local function told(consumer)
  if consumer.is_told then return end
  consumer.is_told = true
  if consumer.channel.state ~= "open" then return end
  reply(consumer.channel, { method = "basic.consume-ok", consumer_tag = consumer.tag }, consumer)
end

local function begin(consumer)
  told(consumer)
  consumer.queue:serve()
end

-- If a quorum queue has no majority, a consume or a cancel there costs the connection, with every lock on it.
local function mind_other_locks(self, queue)
  if queue.arguments["x-queue-type"] ~= "quorum" then return end
  for name, other in pairs(self.broker.queues) do
    if other.owner == self.connection and name:find "^beside%-" then
      error("a consumer of a quorum queue risks other locks", 0)
    end
  end
end

METHODS["basic.consume"] = function (self, frame)
  if self.broker.denies then return refuse(self, frame, "denied") end
  local queue = self.connection:sees(frame.queue)
  if not queue or queue.state ~= "live" then return refuse(self, frame, "no queue") end
  if is_foreign(self, queue) then return refuse(self, frame, "locked") end
  local priority = frame.arguments["x-priority"] or 0
  if lua53.math_type(priority) ~= "integer" then
    return self:fail(406, "PRECONDITION_FAILED - invalid arg 'x-priority' for queue", frame)
  end
  local tag = frame.consumer_tag ~= "" and frame.consumer_tag or self.broker:unique("amq.ctag-")
  if find(self, tag) then error("a consumer's tag is used twice on a channel", 0) end
  if not queue:admits(frame.exclusive) then return refuse(self, frame, "alone") end
  local consumer = { tag = tag, channel = self, queue = queue, no_ack = frame.no_ack,
    prefetch = self.prefetch, priority = priority, is_alone = frame.exclusive }
  mind_other_locks(self, queue)
  table.insert(self.consumers, consumer)
  queue:consume(consumer)
  if frame.no_wait then consumer.is_told, consumer.known_at = true, -math.huge end -- without consume-ok
  self.world:after(self.broker:lag(self.broker.laws.consume_ok), begin, consumer)
end

-- RabbitMQ 3.10 crashes if a cancel overtakes consume-ok, and closes the connection. In RabbitMQ that depends on
-- timing; the model always does it.
METHODS["basic.cancel"] = function (self, frame)
  local consumer, at = find(self, frame.consumer_tag)
  if consumer and not (consumer.known_at and consumer.known_at <= frame.sent_at) then
    if self.broker.laws.strict then error("a consumer is cancelled before its consume-ok", 0) end
    self.connection:fail(541, "INTERNAL_ERROR - a consumer was cancelled before its consume-ok")
    return
  end
  if consumer then
    table.remove(self.consumers, at)
    consumer.queue:cancel(consumer)
    consumer.quits_at = not frame.no_wait and frame.sent_at -- it has no unacknowledged message yet
  end
  if not frame.no_wait then reply(self, { method = "basic.cancel-ok", consumer_tag = frame.consumer_tag }) end
end

function Channel:deliver(consumer, message)
  local entry
  self.tags = self.tags + 1
  if not consumer.no_ack then
    entry = { tag = self.tags, queue = consumer.queue, message = message, consumer = consumer }
    table.insert(self.unacked, entry)
  end
  -- The delivery is lost if the queue does not know yet that the channel has ended; it requeues it when it does.
  if self.state ~= "open" or self.is_down then return end
  told(consumer)
  send_content(self, { method = "basic.deliver", consumer_tag = consumer.tag, delivery_tag = self.tags,
    redelivered = message.redelivered, exchange = message.exchange, routing_key = message.routing_key }, message,
    entry)
end

--- The client is told that its consumer is cancelled.
function Channel:notify(consumer)
  if self.state ~= "open" then return end
  told(consumer)
  if self.connection.can.consumer_cancel_notify then
    reply(self, { method = "basic.cancel", consumer_tag = consumer.tag })
  end
end

-- Another queue of the same name may have been declared and consumed since. RabbitMQ knows only the name: it also
-- cancels that queue's consumer, and that queue is not notified before the channel ends.
local function notify_by_name(self, name)
  for _, other in ipairs(self.consumers) do
    if other.queue.name == name and other.is_told and not other.is_misled then
      other.is_misled = true
      self:notify(other)
    end
  end
end

local function notify_gone(self, consumer)
  local still, at = find(self, consumer.tag)
  if still == consumer then
    table.remove(self.consumers, at)
    if not consumer.is_misled then self:notify(consumer) end
  end
  if self.broker.laws.by_name then notify_by_name(self, consumer.queue.name) end
end

--- A consumer's queue is gone. Its client is notified later, if it supports consumer_cancel_notify.
function Channel:queue_gone(consumer)
  self.world:after(self.broker:lag(self.broker.laws.notice), notify_gone, self, consumer)
end

-- Whether this get may cost a lock: while a quorum queue has no leader the broker may answer by ending the connection.
local function risks_locks(self, queue)
  if not queue or queue.arguments["x-queue-type"] ~= "quorum" then return false end
  for _, other in ipairs(self.connection.exclusive) do
    if other.is_alive and other.name ~= queue.name .. "-maker" then return true end
  end
end

METHODS["basic.get"] = function (self, frame)
  local queue = usable(self, frame)
  if self.broker.laws.strict and risks_locks(self, queue) then error("a get at a quorum queue risks locks", 0) end
  local message = queue and queue:take(frame.no_ack)
  if not queue then return end
  if not message then return reply(self, { method = "basic.get-empty" }) end
  self.tags = self.tags + 1
  if not frame.no_ack then
    table.insert(self.unacked, { tag = self.tags, queue = queue, message = message })
  end
  send_content(self, { method = "basic.get-ok", delivery_tag = self.tags, redelivered = message.redelivered,
    exchange = message.exchange, routing_key = message.routing_key, message_count = #queue.messages }, message)
end

-- Removes the deliveries of a delivery tag from the list; an unknown tag closes the channel. `multiple` with tag 0
-- means all, and may be none.
local function settle(self, frame)
  local settled, kept = {}, {}
  local is_all = frame.multiple and frame.delivery_tag == 0
  for _, entry in ipairs(self.unacked) do
    local meant = is_all or entry.tag == frame.delivery_tag or frame.multiple and entry.tag <= frame.delivery_tag
    table.insert(meant and settled or kept, entry)
  end
  if #settled == 0 and not is_all then
    if self.broker.laws.strict then error("a delivery is settled that is not there, or was before", 0) end
    self:fail(406, "PRECONDITION_FAILED - unknown delivery tag " .. frame.delivery_tag, frame)
  end
  self.unacked = kept
  return settled
end

local function is_first(a, b)
  if a.queue.name ~= b.queue.name then return a.queue.name < b.queue.name end
  return a.tag < b.tag
end

-- Groups deliveries by queue and consumer, in the order of names and tags; those of basic.get come first: { { queue =,
-- tag =, entries = }, … }. A consumer whose deliveries are requeued first is also served first.
local function by_queue(entries)
  local list, group_of = {}, {}
  for _, entry in ipairs(entries) do
    local tag = entry.consumer and entry.consumer.tag or ""
    group_of[entry.queue] = group_of[entry.queue] or {}
    local group = group_of[entry.queue][tag]
    if not group then
      group = { queue = entry.queue, tag = tag, entries = {} }
      group_of[entry.queue][tag] = group
      table.insert(list, group)
    end
    table.insert(group.entries, entry)
  end
  if list[2] then table.sort(list, is_first) end
  return list
end

local function arrive(self)
  local group = table.remove(self.settling, 1)
  if group.is_overtaken then return end
  group.queue:expect(group, -1)
  hear(group)
end

-- In a cluster acks and requeues go to the queue by way of another process, in order. The notice that the channel is
-- gone does not, and may overtake them: then the queue requeues all that it does not know to be settled. (A quorum
-- queue gets all from the channel itself, in order.)
local function tell_settled(self, group)
  if #self.broker.nodes == 1 then return hear(group) end
  table.insert(self.settling, group)
  group.queue:expect(group, 1)
  self.settled_until = math.max(self.settled_until, self.world.now + self.broker:lag(self.broker.laws.settled))
  self.world:at(self.settled_until, arrive, self)
end

local function put_back(self, frame)
  for _, group in ipairs(by_queue(settle(self, frame))) do
    local entry, consumer = group.entries[1], group.entries[1].consumer
    local quits_at = consumer and consumer.quits_at
    local crossed = quits_at and (not entry.known_at or entry.known_at >= quits_at)
    if not crossed then self.broker:tell("given_back", group.queue, self.connection) end
    group.requeue, group.fails = frame.requeue, frame.method == "basic.reject"
    tell_settled(self, group)
  end
end

METHODS["basic.ack"] = function (self, frame)
  for _, group in ipairs(by_queue(settle(self, frame))) do tell_settled(self, group) end
end

METHODS["basic.nack"] = put_back
METHODS["basic.reject"] = put_back

-- Publishing --------------------------------------------------------------------------------------------------------

METHODS["confirm.select"] = function (self)
  self.published = 0
  reply(self, { method = "confirm.select-ok" })
end

-- Messages that are confirmed together are confirmed by one frame or by several, in any order.
local function confirm(self)
  local tags, refused = self.unconfirmed, self.refused
  self.unconfirmed, self.refused = {}, nil
  if self.state ~= "open" then return end
  if not refused and self.broker.random:chance(0.7) then
    reply(self, { method = "basic.ack", delivery_tag = tags[#tags], multiple = #tags > 1 })
    return
  end
  for i = #tags, 1, -1 do
    local tag = table.remove(tags, self.broker.random:below(i))
    reply(self, { method = refused and refused[tag] and "basic.nack" or "basic.ack", delivery_tag = tag })
  end
end

-- A queue has answered for a message. When all queues of a delivery tag have, the publisher gets its confirm.
local function to_confirm(self, is_taken)
  local tags = self.unconfirmed
  local count, tag = #tags, self.published + 1
  self.published, tags[count + 1] = tag, tag
  if not is_taken then
    self.refused = self.refused or {}
    self.refused[tag] = true
  end
  if count == 0 then self.world:after(self.broker:lag(self.broker.laws.confirm), confirm, self) end
end

-- Cached: the same names are returned again and again.
local function give_back(self, frame)
  local key = frame.exchange .. " " .. frame.routing_key
  local known = self.returns[key]
  if not known then
    known = { frame = { method = "basic.return", reply_code = 312, reply_text = "NO_ROUTE", exchange = frame.exchange,
      routing_key = frame.routing_key } }
    known.bytes = frames.write_method(known.frame, self.number)
    self.returns[key] = known
  end
  say(self, known.frame, known.bytes, content_of(self, frame))
end

-- Whether this is published into a fence by a client that may have been overtaken by another maker.
local function is_late_for(self, queue)
  if not queue or queue.name:match "fence$" == nil then return false end
  local maker = self.broker.queues[queue.name .. "-maker"]
  return not maker or maker.owner ~= self.connection
end

METHODS["basic.publish"] = function (self, frame)
  local to = frame.exchange == "" and self.broker.queues[frame.routing_key]
  if self.broker.laws.strict and is_late_for(self, to) then error("a fence is published to by a late maker", 0) end
  local routed, taken = self.broker:publish(frame, self.connection:view())
  if not routed and frame.mandatory then give_back(self, frame) end
  if self.published then to_confirm(self, taken) end
end

return Channel
