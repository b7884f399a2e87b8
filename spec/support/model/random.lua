-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Chance that a seed decides, and nothing else: the same on every machine and in every run (splitmix64).
local Random = {}
Random.__index = Random

function Random.new(seed)
  return setmetatable({ state = seed * 0x5851F42D4C957F2D }, Random)
end

local function draw(self)
  local z = self.state + 0x9E3779B97F4A7C15
  self.state = z
  z = (z ~ (z >> 30)) * 0xBF58476D1CE4E5B9
  z = (z ~ (z >> 27)) * 0x94D049BB133111EB
  return z ~ (z >> 31)
end

--- At least 0, less than 1.
function Random:float()
  return (draw(self) >> 11) * 2.0 ^ -53
end

--- A whole number from 1 to `most`.
function Random:below(most)
  return 1 + (draw(self) >> 11) % most
end

--- A number between two others.
function Random:between(from, to)
  return from + (to - from) * self:float()
end

--- True in `share` of all cases.
function Random:chance(share)
  return self:float() < share
end

function Random:pick(list)
  return list[self:below(#list)]
end

--- Another stream: what one part of a story draws then changes nothing for the others.
function Random:fork()
  return setmetatable({ state = draw(self) }, Random)
end

return Random
