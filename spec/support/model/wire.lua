-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- One direction of a connection: bytes arrive later than they were sent, in their order, and after the last of them
-- the end. A delay is drawn for each write, from a pace: { least =, most =, spike =, spikes = }, where a `spikes` share
-- of the writes takes up to `spike` seconds.
local Wire = {}
Wire.__index = Wire

--- `arrived(bytes, sent_at)` is called with what arrives, `ended()` when nothing more will.
function Wire.new(world, pace, arrived, ended)
  return setmetatable({ world = world, random = world.random:fork(), pace = pace, arrived = arrived, ended = ended,
    last = 0, sent = 0, came = 0, lost = 0 }, Wire)
end

--- The longest that a write can take by itself; but it never overtakes an earlier one.
function Wire.longest(pace)
  return math.max(pace.most, pace.spike)
end

-- What was lost, or is not let in, takes its time in any case. Without bytes it is the end.
local function arrive(self, bytes, sent_at)
  self.came = self.came + 1
  if self.is_cut or self.came <= self.lost then return end
  if bytes then self.arrived(bytes, sent_at) else self.ended() end
end

-- Gives the time when it arrives.
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

--- The sender is gone; what it sent before still arrives.
function Wire:finish()
  send(self, nil)
  self.is_ended = true
end

--- What is under way is lost; the end arrives.
function Wire:reset()
  self.lost = self.sent
  self:finish()
end

--- Nothing arrives for so many seconds, except what is under way; then all of it.
function Wire:stall(seconds)
  self.last = math.max(self.last, self.world.now + seconds)
end

--- From now on nothing arrives, not even the end, and nobody is told.
function Wire:cut()
  self.is_cut = true
end

return Wire
