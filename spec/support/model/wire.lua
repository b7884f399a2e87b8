-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- One direction of a connection: bytes arrive later than they were sent, in order, and the end arrives after the last
-- of them. A delay is drawn for each write, from a pace: { least =, most =, spike =, spikes = }, where the share
-- `spikes` of the writes takes up to `spike` seconds.
local Wire = {}
Wire.__index = Wire

--- `arrived(bytes, sent_at)` is called with arriving bytes, `ended()` at the end.
function Wire.new(world, pace, arrived, ended)
  return setmetatable({ world = world, random = world.random:fork(), pace = pace, arrived = arrived, ended = ended,
    last = 0, sent = 0, came = 0, lost = 0 }, Wire)
end

--- The longest delay of a single write. A write never overtakes an earlier one.
function Wire.longest(pace)
  return math.max(pace.most, pace.spike)
end

-- Bytes of a wire that was reset or cut do not arrive. Without bytes this is the end.
local function arrive(self, bytes, sent_at)
  self.came = self.came + 1
  if self.is_cut or self.came <= self.lost then return end
  if bytes then self.arrived(bytes, sent_at) else self.ended() end
end

local function send(self, bytes)
  if self.is_cut or self.is_ended then return end
  local world, pace, random = self.world, self.pace, self.random
  local delay = random:between(pace.least, pace.most)
  if random:chance(pace.spikes) then delay = random:between(pace.most, Wire.longest(pace)) end
  local time = world.now + delay
  if time < self.last then time = self.last end
  self.last, self.sent = time, self.sent + 1
  world:at(time, arrive, self, bytes, world.now)
  return time
end

function Wire:send(bytes)
  if #bytes > 0 then return send(self, bytes) end
end

--- The sender is gone; bytes sent before still arrive.
function Wire:finish()
  send(self, nil)
  self.is_ended = true
end

--- Bytes under way are lost; the end arrives.
function Wire:reset()
  self.lost = self.sent
  self:finish()
end

--- Nothing arrives for so many seconds, except bytes under way; then everything.
function Wire:stall(seconds)
  self.last = math.max(self.last, self.world.now + seconds)
end

--- From now on nothing arrives, not even the end, and nobody is notified.
function Wire:cut()
  self.is_cut = true
end

return Wire
