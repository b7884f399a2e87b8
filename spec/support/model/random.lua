-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A random generator that depends only on its seed: the same on every machine, in every run, and under every Lua. It
-- combines two generators (L'Ecuyer, "Efficient and portable combined random number generators", 1988), whose whole
-- numbers stay within the 53 bits of a double.
local Random = {}
Random.__index = Random

local A, B = 2147483563, 2147483399  -- their moduli

-- 0 to A - 2
local function draw(self)
  local a, b = self.a * 40014 % A, self.b * 40692 % B
  self.a, self.b = a, b
  return (a - b) % (A - 1)
end

--- An independent stream: draws from it do not change other parts of a story.
function Random:fork()
  return setmetatable({ a = 1 + draw(self), b = 1 + draw(self) % (B - 1) }, Random)
end

-- Mixes the seed: adjacent seeds give unrelated streams.
local function stirred(seed)
  for _ = 1, 8 do seed = (seed * 69069 + math.floor(seed / 65536) + 1) % A end
  return seed
end

--- `seed` is a whole number, at least 0 and less than 2^53.
function Random.new(seed)
  local a = stirred(seed % A)
  local b = stirred((a + math.floor(seed / A)) % A)
  return setmetatable({ a = 1 + a % (A - 1), b = 1 + b % (B - 1) }, Random)
end

function Random:float()
  return draw(self) / (A - 1)
end

--- A whole number from 1 to `most`.
function Random:below(most)
  return 1 + draw(self) % most
end

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

return Random
