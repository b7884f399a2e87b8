-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A channel of the raw client, made by client:channel(): see client.lua for how sending and waiting work.
local frames = require "spec.support.frames"

local channel = {}
channel.__index = channel

function channel.new(client, number)
  return setmetatable({ client = client, number = number, published = 0 }, channel)
end

--- Queues a method for sending; does not wait. `frame` is as for frames.encode; the channel number is filled in.
function channel:send(frame)
  if self.closed then return self end
  frame.channel = self.number
  self.client.out = self.client.out .. frames.encode(frame)
  return self
end

--- Queues a message for sending. In confirm mode, returns its delivery tag.
-- @tparam table message exchange (default: the default exchange), routing_key, mandatory, properties, body
function channel:publish(message)
  if self.closed then return nil end
  self.client.out = self.client.out .. frames.encode_content({
    channel = self.number, method = "basic.publish", exchange = message.exchange,
    routing_key = message.routing_key, mandatory = message.mandatory,
  }, message.properties, message.body or "", self.client.frame_max)
  self.published = self.published + 1
  return self.published
end

-- Returns frames that arrived before the channel or the connection ended, in order; after these, the reason of the end.
-- Returns neither if nothing came in time.
local function look_for(self, wanted, seconds)
  local link = self.client
  local function ours(frame, owner)
    return frame.method == "connection.close" or owner == self and (frame.method == "channel.close" or wanted(frame))
  end
  local frame, why = link:take(ours), nil
  if not frame and not self.closed and not link.closed then frame, why = link:find(ours, seconds) end
  if frame and frame.method ~= "channel.close" and frame.method ~= "connection.close" then return frame end
  if why == "timeout" then return nil end
  return nil, link.closed or self.closed or { text = link.ended, connection = true }
end

-- The same, but throws if nothing came in time.
local function wait(self, what, wanted, seconds)
  local frame, reason = look_for(self, wanted, seconds)
  if not frame and not reason then self.client:complain(what .. " on channel " .. self.number, "timeout") end
  return frame, reason
end

--- Waits for one of the named methods on this channel. Other frames are kept for later calls.
-- @return the frame; or nil and the reason when the broker closed the channel or (reason.connection) the connection:
--   { code = 404, text = "NOT_FOUND …", class_id = 50, method_id = 10 }
function channel:await(method, ...)
  local names, seconds = { [method] = true }, nil
  for _, more in ipairs{ ... } do
    if type(more) == "number" then seconds = more else names[more] = true end
  end
  return wait(self, method, function (frame) return names[frame.method] end, seconds)
end

--- Returns the next delivery, if one arrives within `seconds` (0); otherwise nil. Throws if the channel or the
-- connection has ended and no delivery is left.
function channel:delivered(seconds)
  local message, reason = look_for(self, function (frame) return frame.method == "basic.deliver" end, seconds or 0)
  if reason then error(("nothing comes on channel %d: %s"):format(self.number, tostring(reason.text)), 2) end
  return message
end

--- Waits for the next frame on this channel. Results as for await.
function channel:next(seconds)
  return wait(self, "any frame", function () return true end, seconds)
end

--- Whether no more frames have arrived on this channel. To prove that a broker sent nothing, first wait for the answer
-- to another request: frames sent before that answer have arrived by then.
-- @return true, or false and the frame that came
function channel:silent()
  for _, kept in ipairs(self.client.inbox) do
    if kept.owner == self then return false, kept.frame end
  end
  return true
end

--- Sends a method and waits for its answer. Results as for await.
function channel:call(frame, seconds)
  self:send(frame)
  if frame.method == "basic.get" then return self:await("basic.get-ok", "basic.get-empty", seconds) end
  return self:await(frame.method .. "-ok", seconds)
end

--- Switches publisher confirms on: publish counts from here.
function channel:confirm()
  assert(self:call{ method = "confirm.select" })
  self.published = 0
  return self
end

--- Closes the channel and waits for close-ok; drops frames that arrive before it. Idempotent.
function channel:close(seconds)
  local link = self.client
  if not self.closed and not link.closed and not link.ended then
    self:send{ method = "channel.close", reply_code = 200, reply_text = "done" }
    self:await("channel.close-ok", seconds)
  end
  if not self.closed then
    self.closed = { text = "closed by the test" }
    link.channels[self.number] = nil
  end
  while link:take(function (_, owner) return owner == self end) do end
end

return channel
