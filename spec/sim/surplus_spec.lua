-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Superfluous tokens. A caller that claims a slot whose token is on its way to another waiter rings (publishes a token)
-- when it is done, and so adds one. A waiter that is woken in vain throws one away in the end. How many there are
-- meanwhile depends on the delays of the broker, which only a simulated broker lets a test choose.
local Crowd = require "spec.support.model.crowd"

local WAYS = {
  { waiting = { "for long", "a while" }, too_many = 3 },
  { waiting = { "for long", "a while", "at once" }, too_many = 6 },
}
local SLOTS, SEEDS = 3, 12
local EVERY = 0.005  -- seconds between two counts

local function most_tokens(seed, waiting)
  local crowd = Crowd.new(seed, { workers = 8, slots = SLOTS, rounds = 15, hold = 0.01, poll = 600,
    paces = { Crowd.near[1] }, waiting = waiting, loses_tokens = true })
  local most = 0
  local function count()
    local bell = crowd.kind.bell
    if crowd.broker.queues[bell] then
      local ready, unacked = crowd.broker:count(bell)
      most = math.max(most, ready + unacked)
    end
    if not crowd.is_over then crowd.world:after(EVERY, count) end
  end
  count()
  crowd:play()
  return most
end

describe("eight processes in a storm, with a broker that is near, leave", function()
  for _, way in ipairs(WAYS) do
    it(("at most %d tokens too many, waiting %s"):format(way.too_many, table.concat(way.waiting, ", ")), function()
      local most = 0
      for seed = 1, SEEDS do most = math.max(most, most_tokens(seed, way.waiting)) end
      assert.is_true(most <= SLOTS + way.too_many, most .. " tokens for " .. SLOTS .. " slots")
      assert.is_true(most > SLOTS, "no storm at all")
    end)
  end
end)
