-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A connection to the model broker, on the broker's side: handshake, heartbeats, channels, alarms, the end.
--
-- Whatever ends it, its channels first handle the frames that have arrived. Then the queues are notified, each after
-- its own delay, and exclusive queues are deleted later still. So a token (a message in the doorbell queue that wakes a
-- waiter) that a death requeues can reach another client before the dead client's slot is free.
local Channel = require "spec.support.model.channel"
local frames = require "spec.support.frames"

local HEARTBEAT = frames.encode{ heartbeat = true }

local Connection = {}
Connection.__index = Connection

function Connection.new(broker, wire, name)
  local self = setmetatable({ broker = broker, world = broker.world, wire = wire, name = name or "connection",
    bytes = "", out = {}, told = {}, channels = {}, by_number = {}, partial = {}, exclusive = {}, can = {},
    state = "greeting", frame_max = 131072, heard = broker.world.now, wrote = broker.world.now,
    node = broker.random:pick(broker.nodes) }, Connection)
  broker.world:after(broker.laws.handshake, self.look_at_handshake, self)
  return self
end

-- Writing -----------------------------------------------------------------------------------------------------------

--- `news` (a consumer or a delivery) is known to the client when it gets these bytes: that time is set as `known_at`.
function Connection:write(bytes, news)
  if self.state == "over" then return end
  local out = self.out
  local count = #out
  if count == 0 then self.world:flush_soon(self) end
  out[count + 1] = bytes
  if news then table.insert(self.told, news) end
end

function Connection:flush()
  local out = self.out
  local bytes = out[2] and table.concat(out) or out[1] or ""
  for i = #out, 1, -1 do out[i] = nil end
  self.wrote = self.world.now
  local arrival, told = self.wire:send(bytes), self.told
  for i = 1, #told do
    told[i].known_at, told[i] = arrival, nil
  end
end

function Connection:note_sent(frame, channel)
  frame.channel = channel
  self.world:note(self.name, "<- %s", frames.describe(frame))
end

local function say(self, frame)
  if self.world.trace then self:note_sent(frame, 0) end
  self:write(frames.write_method(frame, 0))
end

-- The end -----------------------------------------------------------------------------------------------------------

-- Channels that still have frames to handle get the time for it.
local function when_idle(self)
  local time = self.world.now
  for _, channel in ipairs(self.channels) do time = math.max(time, channel.in_until) end
  return time
end

local function remove_queue(queue) queue:remove() end

-- The exclusive queues of a connection are deleted one after another. Returns the time of the last deletion.
local function remove_exclusive(self)
  local laws, time = self.broker.laws, self.world.now
  for _, queue in ipairs(self.exclusive) do
    time = time + self.broker:lag(laws.exclusive)
    self.world:at(time, remove_queue, queue)
  end
  self.exclusive = {}
  return time
end

local function end_channels(self)
  self.broker:disconnected(self)
  for _, channel in ipairs(self.channels) do channel:over() end
  self.channels, self.by_number = {}, {}
  local gone = remove_exclusive(self)
  if self.closing and self.broker.laws.closes_late then
    self.world:at(math.max(gone, self.world.now + self.broker.laws.down), self.closing)
  elseif self.closing then
    self.closing()
  end
end

local function finish(self, closing)
  if self.ending then return end
  self.ending, self.closing = true, closing
  self.world:at(when_idle(self), end_channels, self)
end

local function hang_up(self)
  if self.state == "over" then return end
  self.world:note(self.name, "over")
  self.state = "over"
  self.wire:send(table.concat(self.out))
  self.out = {}
  self.wire:finish()
  finish(self)
end

--- The broker ends the connection: with connection.close, and without waiting long for the answer.
function Connection:fail(code, text)
  if self.state == "closing" or self.state == "over" then return end
  say(self, { method = "connection.close", reply_code = code, reply_text = text })
  self.state = "closing"
  finish(self)
  self.world:after(30, hang_up, self)
end

Connection.abort = hang_up

function Connection:look_at_handshake()
  if self.state == "greeting" then hang_up(self) end
end

--- The broker ends: requests that it has not handled yet are lost.
function Connection:vanish(in_order)
  for _, channel in ipairs(self.channels) do channel:over() end
  if in_order and self.state == "open" then
    say(self, { method = "connection.close", reply_code = 320,
      reply_text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'" })
  end
  hang_up(self)
  self.broker:disconnected(self)
end

--- The client has closed its end of the socket. The broker does not notice that on a connection that it does not read.
function Connection:ended()
  if self.is_stopped then
    self.has_ended = true
  else
    hang_up(self)
  end
end

-- Heartbeats --------------------------------------------------------------------------------------------------------

local function beat(self)
  if self.state ~= "open" then return end
  local now, half = self.world.now, self.heartbeat / 2
  if now - self.wrote >= half * 0.999 then self:write(HEARTBEAT) end
  self.world:after(half, beat, self)
end

-- A silent client is given up after two to three heartbeat intervals; every other time as early as possible.
local function listen(self)
  if self.state ~= "open" then return end
  if self.is_stopped then self.heard = self.world.now end
  local due = self.heard + self.patience * self.heartbeat
  if self.world.now >= due then return hang_up(self) end
  self.world:at(due, listen, self)
end

local function start_beating(self)
  if self.heartbeat == 0 then return end
  local random = self.broker.random
  self.patience = 2 + (random:chance(0.5) and 0 or random:float())
  self.world:after(self.heartbeat / 2, beat, self)
  listen(self)
end

-- Channel 0 ---------------------------------------------------------------------------------------------------------

local METHODS = {}

METHODS["connection.start-ok"] = function (self, frame)
  self.can = frame.client_properties.capabilities or {}
  self.name = frame.client_properties.connection_name or self.name
  say(self, { method = "connection.tune", channel_max = 2047, frame_max = 131072, heartbeat = 60 })
end

METHODS["connection.tune-ok"] = function (self, frame)
  self.heartbeat, self.frame_max = frame.heartbeat, frame.frame_max
end

METHODS["connection.open"] = function (self)
  self.state = "open"
  say(self, { method = "connection.open-ok" })
  start_beating(self)
end

METHODS["connection.close"] = function (self)
  self.state = "closing"
  finish(self, function ()
    say(self, { method = "connection.close-ok" })
    hang_up(self)
  end)
end

METHODS["connection.close-ok"] = hang_up

-- Frames ------------------------------------------------------------------------------------------------------------

function Connection:channel_closed(channel)
  self.by_number[channel.number] = nil
  for i, other in ipairs(self.channels) do
    if other == channel then table.remove(self.channels, i) end
  end
end

local function open_channel(self, number)
  local channel = Channel.new(self, number)
  self.by_number[number] = channel
  table.insert(self.channels, channel)
  local frame = { method = "channel.open-ok" }
  if self.world.trace then self:note_sent(frame, number) end
  self:write(frames.write_method(frame, number))
end

local function arrived(self, frame)
  local channel = self.by_number[frame.channel]
  if channel then
    if frame.method == "channel.open" then error(self.name .. " opens channel " .. frame.channel .. " twice", 0) end
    channel:arrive(frame)
  elseif frame.method == "channel.open" then
    open_channel(self, frame.channel)
  else
    error(("%s says %s on channel %d, which is not open"):format(self.name, frame.method, frame.channel), 0)
  end
end

local function content(self, channel, bytes, is_header)
  local publish = self.partial[channel]
  if not publish then error(self.name .. " sends content that belongs to nothing", 0) end
  if is_header then
    publish.header, publish.body = bytes, ""
  else
    publish.body = publish.body .. bytes:sub(8, -2)
  end
  if #publish.body < frames.body_size(publish.header) then return end
  self.partial[channel] = nil
  arrived(self, publish)
end

local function method(self, frame, sent_at)
  if self.world.trace then self.world:note(self.name, "-> %s", frames.describe(frame)) end
  if frame.channel == 0 then
    local handle = METHODS[frame.method]
    if not handle then error("the model broker knows no " .. frame.method, 0) end
    handle(self, frame)
  elseif self.partial[frame.channel] then
    error(self.name .. " interrupts a message", 0)
  elseif frame.method == "basic.publish" then
    frame.sent_at = sent_at
    self.partial[frame.channel] = frame
    self:publishes()
  else
    if frame.method == "basic.cancel" then frame.sent_at = sent_at end
    arrived(self, frame)
  end
end

local function greet(self)
  say(self, { method = "connection.start", version_major = 0, version_minor = 9, mechanisms = "PLAIN AMQPLAIN",
    locales = "en_US", server_properties = { product = "RabbitMQ", version = self.broker.laws.version } })
end

local function take(self, kind, channel, at, after, sent_at)
  if self.state == "closing" and not (channel == 0 and kind == frames.METHOD) then return end
  if kind == frames.METHOD then
    method(self, frames.read_method(self.bytes, at, channel), sent_at)
  elseif kind == frames.HEADER or kind == frames.BODY then
    content(self, channel, self.bytes:sub(at, after - 1), kind == frames.HEADER)
  elseif kind == frames.PROTOCOL then
    greet(self)
  elseif kind ~= frames.HEARTBEAT then
    error("the model broker knows no frames of type " .. kind, 0)
  end
end

local function read(self, sent_at)
  local bytes, at = self.bytes, 1
  while self.state ~= "over" and not self.is_stopped do
    local kind, channel, after = frames.look(bytes, at)
    if not kind then break end
    take(self, kind, channel, at, after, sent_at)
    at = after
  end
  if at > 1 then self.bytes = bytes:sub(at) end
end

function Connection:feed(bytes, sent_at)
  if self.state == "over" then return end
  self.heard = self.world.now
  self.bytes = self.bytes == "" and bytes or self.bytes .. bytes
  read(self, sent_at)
end

-- What it sees of the metadata ----------------------------------------------------------------------------------------

--- The connection has changed metadata. Its node sees that change, and all earlier ones.
function Connection:wrote_metadata()
  self.node.viewed = self.world.now
end

--- The time of the state that its node sees. It never goes back.
function Connection:view()
  local node = self.node
  node.viewed = math.max(node.viewed, self.world.now - node.behind)
  return node.viewed
end

function Connection:sees(name)
  local queue = self.broker.queues[name]
  if queue and queue.made_at <= self:view() then return queue end
end

-- Alarms ------------------------------------------------------------------------------------------------------------

--- The connection publishes. During an alarm the broker handles what was read so far, reads nothing more, and sends
-- connection.blocked once.
function Connection:publishes()
  if not self.broker.has_alarm or self.is_blocked then return end
  self.is_blocked = true
  if self.can["connection.blocked"] then
    say(self, { method = "connection.blocked", reason = "low on memory" })
  end
  self.world:after(0, function () self.is_stopped = self.is_blocked end)
end

function Connection:alarm_over()
  if not self.is_blocked then return end
  self.is_blocked, self.is_stopped = false, false
  if self.can["connection.blocked"] then say(self, { method = "connection.unblocked" }) end
  self.heard = self.world.now
  read(self, self.world.now)
  if self.has_ended then hang_up(self) end
end

return Connection
