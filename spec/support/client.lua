-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A small AMQP client for tests. It shares no code with the library under test, and shows what other clients see.
--
--     local client = require "spec.support.client"
--     local one = client.connect()                                     -- $AMQP_URL
--     local channel = one:channel()
--     local ok, reason = channel:call{ method = "queue.declare", queue = "q", exclusive = true }
--     -- a frame (see frames.lua), or nil and { code = 405, text = "RESOURCE_LOCKED …" } when the broker closed
--     one:close()
--
-- Sending only queues a frame. Queued frames are written together, before any wait or by flush(). Nothing happens
-- between calls: there is no reading thread, and a client that is not waiting sends nothing, not even heartbeats.
--
-- Every wait takes a number of seconds (5). It throws at the deadline; the error names what it waited for and what came
-- instead. A decision of the broker (to close a channel or the connection) is a result, not an error. A wait keeps
-- other frames, in order, for later waits. A method with content is one "frame" here, with `properties` and `body`.
local socket = require "socket"
local url = require "socket.url"
local channel = require "spec.support.channel"
local frames = require "spec.support.frames"

local client = {}
client.__index = client

local SECONDS = 60
local RUN = ("%x"):format(math.floor(socket.gettime() * 1e6))  -- distinguishes runs of the suite
local unique_names = 0
local CAPABILITIES = {
  publisher_confirms = true, consumer_cancel_notify = true, ["basic.nack"] = true,
  ["connection.blocked"] = true, authentication_failure_close = true,
}
local BRINGS_MESSAGE = { ["basic.deliver"] = true, ["basic.return"] = true, ["basic.get-ok"] = true }

-- Bytes -------------------------------------------------------------------------------------------------------------

--- Writes bytes at once, after the queued ones: encoded frames, or invalid bytes.
function client:write(bytes, seconds)
  local out = self.out .. bytes
  self.out = ""
  local deadline = socket.gettime() + (seconds or SECONDS)
  local at = 1
  while at <= #out do
    local _, writable = socket.select(nil, { self.socket }, math.max(0, deadline - socket.gettime()))
    if not writable[self.socket] then error("the broker takes no more bytes", 2) end
    local last, err, partial = self.socket:send(out, at)
    if err and err ~= "timeout" then return nil, err end  -- first read what the broker sent before it hung up
    at = (last or partial) + 1
  end
  return true
end

--- Writes the queued frames.
function client:flush()
  if self.out == "" then return true end
  return self:write("")
end

-- Joins a method that has content with the header and body frames that follow it on its channel.
function client:assemble(frame)
  local message = self.partial[frame.channel]
  if BRINGS_MESSAGE[frame.method] then
    self.partial[frame.channel] = frame
    return nil
  elseif frame.header then
    message.properties, message.size, message.body = frame.properties, frame.size, ""
  elseif frame.body then
    message.body = message.body .. frame.body
  else
    return frame
  end
  if #message.body < message.size then return nil end
  self.partial[frame.channel], message.size = nil, nil
  return message
end

-- Answers the broker's close at once and records it: later waits return the reason, and later sends do nothing.
function client:note_close(frame, owner)
  local reason = { code = frame.reply_code, text = frame.reply_text,
    class_id = frame.class_id, method_id = frame.method_id }
  if frame.method == "connection.close" then
    reason.connection = true
    self.closed = reason
    self:write(frames.encode{ method = "connection.close-ok" })
  elseif frame.method == "channel.close" then
    owner.closed = reason
    self.channels[frame.channel] = nil
    self:write(frames.encode{ channel = frame.channel, method = "channel.close-ok" })
  end
end

-- RabbitMQ up to 3.11 repeats channel.close at every tick until it has read our answer.
local function is_closed_again(frame, owner) return frame.method == "channel.close" and not owner end

function client:keep(list)
  for _, frame in ipairs(list) do
    local whole = self:assemble(frame)
    local is_heartbeat = whole and not whole.method and whole.heartbeat  -- connection.tune has a field of that name
    local owner = whole and self.channels[whole.channel]  -- kept with the frame, since channel numbers are reused
    if whole and not is_heartbeat and not is_closed_again(whole, owner) then
      table.insert(self.inbox, { frame = whole, owner = owner })
      self:note_close(whole, owner)
    end
  end
end

-- Waits for bytes until `deadline`. Returns true if some arrived, otherwise nil. Sets self.ended at the end of the
-- socket.
function client:read(deadline)
  self:flush()
  if not socket.select({ self.socket }, nil, math.max(0, deadline - socket.gettime()))[self.socket] then return nil end
  local bytes, err, partial = self.socket:receive(65536)
  bytes = bytes or partial
  if err and err ~= "timeout" then self.ended = err end
  self:keep(self.decoder:feed(bytes))
  return #bytes > 0 or nil
end

-- Frames ------------------------------------------------------------------------------------------------------------

local function name_of(frame)
  return frame.method or frame.protocol and "protocol " .. frame.protocol or "content"
end

--- Returns the first kept frame for which `wanted(frame, channel)` is true, if any.
function client:take(wanted)
  for i, kept in ipairs(self.inbox) do
    if wanted(kept.frame, kept.owner) then return table.remove(self.inbox, i).frame end
  end
end

--- The first frame for which `wanted` is true, kept or still to arrive. Otherwise nil and "timeout", or nil and
-- "closed".
function client:find(wanted, seconds)
  local deadline = socket.gettime() + (seconds or SECONDS)
  while true do
    local frame = self:take(wanted)
    if frame then return frame end
    if self.ended then return nil, "closed" end
    if not self:read(deadline) and not self.ended and socket.gettime() >= deadline then return nil, "timeout" end
  end
end

--- Throws an error that names what was waited for, why the wait ended, and what came instead.
function client:complain(what, why)
  local came = {}
  for i, kept in ipairs(self.inbox) do came[i] = ("%s on %d"):format(name_of(kept.frame), kept.frame.channel or 0) end
  error(("%s while waiting for %s; kept: %s"):format(why, what, #came > 0 and table.concat(came, ", ") or "nothing"), 0)
end

local function anything() return true end

--- The next frame except heartbeats, on any channel. Throws if none comes, also at the end of the socket.
function client:next(seconds)
  local frame, why = self:find(anything, seconds)
  return frame or self:complain("any frame", why)
end

--- Waits for a method on channel 0: connection.blocked, connection.close.
function client:await(method, seconds)
  local frame, why = self:find(function (frame) return frame.method == method end, seconds)
  return frame or self:complain(method, why)
end

--- Waits until the broker has ended the connection, with or without connection.close.
-- @return the reason: code and text, or text alone
function client:await_end(seconds)
  local _, why = self:find(function () return false end, seconds)
  if why ~= "closed" then self:complain("the end of the connection", why) end
  return self.closed or { text = self.ended, connection = true }
end

--- Opens a channel (see channel.lua), on the lowest free number.
-- @return the channel; or nil and the reason
function client:channel()
  local number = 1
  while self.channels[number] do number = number + 1 end
  local new = channel.new(self, number)
  self.channels[number] = new
  local opened, reason = new:call{ method = "channel.open" }
  if opened then return new end
  return nil, reason
end

--- A unique name for a queue or anything else: unique within this run and across runs.
function client.unique(prefix)
  unique_names = unique_names + 1
  return ("%s.%s.%d"):format(prefix or "spec", RUN, unique_names)
end

-- Connections -------------------------------------------------------------------------------------------------------

local function unescaped(text) return text and url.unescape(text) end

local function expect(self, method)
  local frame, why = self:find(anything)
  if not frame then self:complain(method, why) end
  if frame.method == method then return frame end
  if frame.method == "connection.close" then return nil, self.closed end
  error(("%s instead of %s"):format(name_of(frame), method), 0)
end

local function handshake(self, user, password, virtual_host, options)
  self:write(frames.header)
  local start, why = expect(self, "connection.start")
  if not start then return nil, why end
  self.server = start.server_properties
  self:write(frames.encode{
    method = "connection.start-ok", mechanism = "PLAIN", response = ("\0%s\0%s"):format(user, password),
    locale = "en_US", client_properties = { product = "amqp-locks spec", capabilities = CAPABILITIES },
  })
  local tune
  tune, why = expect(self, "connection.tune")
  if not tune then return nil, why end
  self.frame_max = tune.frame_max
  self:write(frames.encode{ method = "connection.tune-ok", channel_max = tune.channel_max,
    frame_max = tune.frame_max, heartbeat = options.heartbeat or 0 }
    .. frames.encode{ method = "connection.open", virtual_host = virtual_host })
  return expect(self, "connection.open-ok")
end

--- Opens a connection.
-- @tparam[opt] string address an amqp:// URL; $AMQP_URL unless given
-- @tparam[opt] table options heartbeat (seconds, of which it sends none; 0 unless given), user, password, virtual_host
--   (instead of the URL's)
-- @return the client; or nil and the reason when the broker refused
function client.connect(address, options)
  options = options or {}
  address = address or os.getenv "AMQP_URL" or error("neither a URL given nor AMQP_URL set", 2)
  local parts = url.parse(address)
  if parts.scheme ~= "amqp" then error("this client speaks amqp:// only", 2) end
  local self = setmetatable({
    socket = assert(socket.tcp()), decoder = frames.decoder(), out = "", inbox = {}, partial = {}, channels = {},
  }, client)
  self.socket:settimeout(SECONDS)
  assert(self.socket:connect(parts.host, parts.port or 5672))
  self.socket:settimeout(0)
  self.socket:setoption("tcp-nodelay", true)
  local virtual_host = options.virtual_host
    or parts.path and parts.path ~= "" and unescaped(parts.path:sub(2)) or "/"
  local opened, reason = handshake(self, options.user or unescaped(parts.user) or "guest",
    options.password or unescaped(parts.password) or "guest", virtual_host, options)
  if opened then return self end
  self:abort()
  return nil, reason
end

--- Whether the broker is of this version or a later one.
function client:since(major, minor)
  local its_major, its_minor = self.server.version:match "^(%d+)%.(%d+)"
  its_major, its_minor = tonumber(its_major), tonumber(its_minor)
  return its_major > major or its_major == major and its_minor >= minor
end

--- Closes the connection with connection.close, and waits for close-ok. Idempotent; no error on a dead connection.
function client:close(seconds)
  if not self.ended and not self.closed then
    self.out = self.out .. frames.encode{ method = "connection.close", reply_code = 200, reply_text = "done" }
    local _, why = self:find(function (frame) return frame.method == "connection.close-ok" end, seconds)
    if why == "timeout" then self:complain("connection.close-ok", why) end
  end
  self:abort()
end

--- Closes the socket without connection.close, as a killed process does. Idempotent.
function client:abort()
  self.ended = self.ended or "closed by the test"
  self.socket:close()
end

-- Whether the connection is open, as far as received frames tell.
local function is_open(self)
  self:find(function () return false end, 0)
  return not self.ended and not self.closed
end

local shared

--- A connection to $AMQP_URL that all tests of a file share. It is replaced when the broker has closed it.
function client.shared()
  if not shared or not is_open(shared) then shared = assert(client.connect()) end
  return shared
end

-- Questions about queues --------------------------------------------------------------------------------------------
-- Each uses a channel of its own, because a refusal closes the channel.

local function ask(self, frame)
  local asked = self:channel()
  local answer, reason = asked:call(frame)
  if not answer and reason.connection then error("the connection ended: " .. tostring(reason.text), 3) end
  asked:close()
  return answer, reason
end

local function passive(self, queue)
  local answer, reason = ask(self, { method = "queue.declare", queue = queue, passive = true })
  if answer or reason.code == 404 or reason.code == 405 then return answer, reason end
  error(("asked for %s: %d %s"):format(queue, reason.code, reason.text), 3)
end

--- Declares a queue; the queue outlives the channel.
-- @tparam[opt] table options durable, exclusive, auto_delete, arguments
-- @return declare-ok; or nil and the reason
function client:declare(queue, options)
  options = options or {}
  return ask(self, { method = "queue.declare", queue = queue, durable = options.durable,
    exclusive = options.exclusive, auto_delete = options.auto_delete, arguments = options.arguments })
end

--- Deletes a queue, if it exists.
-- @return delete-ok; or nil and the reason
function client:delete(queue) return ask(self, { method = "queue.delete", queue = queue }) end

--- Whether a queue of this name exists, also one that is exclusive to another connection.
function client:exists(queue)
  local answer, reason = passive(self, queue)
  return answer ~= nil or reason.code == 405
end

--- Whether the queue is exclusive to another connection.
function client:locked(queue)
  local answer, reason = passive(self, queue)
  return not answer and reason.code == 405
end

--- How many messages of a queue are ready for delivery.
function client:message_count(queue)
  local answer, reason = passive(self, queue)
  if not answer then error(("asked for %s: %d %s"):format(queue, reason.code, reason.text), 2) end
  return answer.message_count
end

--- Probes a queue: publishes an empty mandatory message to the default exchange, with confirm.
-- @tparam[opt] table properties of the message
-- @return "absent" (returned), "present" (acked), "unavailable" (nacked); or nil and the reason
function client:probe(queue, properties)
  if not self.prober or self.prober.closed then self.prober = self:channel():confirm() end
  self.prober:publish{ routing_key = queue, mandatory = true, properties = properties }
  local verdict
  repeat
    local answer, reason = self.prober:next()
    if not answer then return nil, reason end
    if answer.method == "basic.return" then
      verdict = "absent"
    elseif answer.method == "basic.nack" then
      verdict = "unavailable"
    end
  until answer.method ~= "basic.return"
  return verdict or "present"
end

return client
