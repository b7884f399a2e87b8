-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The model broker against the real one, step by step: one seed decides the requests to both, and they must answer
-- alike. Later effects of a step are awaited on the real broker until they are as in the model.
--
--     AMQPLOCKS_WALK=17 make test SPEC=spec/broker/model_walk_spec.lua         # one walk again
--     AMQPLOCKS_SOAK=1 make test SPEC=spec/broker/model_walk_spec.lua          # more, and longer ones
local Socket = require "spec.support.model.socket"
local Walk = require "spec.support.model.walk"
local client = require "spec.support.client"
local until_true = require "spec.support.until"

local IS_LONG = os.getenv "AMQPLOCKS_SOAK"
local STEPS = IS_LONG and 1000 or 200
local SEED = tonumber(os.getenv "AMQPLOCKS_WALK")
local SHOWN = 25  -- lines of what went before

local function tell(seed, trace, what)
  error(("AMQPLOCKS_WALK=%d: %s\n%s"):format(seed, what, table.concat(trace, "\n", math.max(1, #trace - SHOWN))), 0)
end

local function differ(model, real) return ("the model:\n%s\nthe broker:\n%s"):format(model, tostring(real)) end

-- One step of both. Throws what is different.
local function step(broker, model, real, trace)
  local said, in_model = model:step()
  table.insert(trace, said .. ": " .. in_model)
  broker.world:run(0.1)
  local expected = model:look()
  table.insert(trace, "    " .. expected:gsub("\n", "\n    "))
  local also_said, answer = real:step()
  assert(also_said == said and answer == in_model, differ(said .. ": " .. in_model, also_said .. ": " .. answer))
  local is_same, seen = pcall(until_true, function ()
    local now = real:look()
    return now == expected, now
  end)
  assert(is_same, differ(expected, seen))
end

local function walk(seed, steps)
  local broker, model_client = Socket.broker(seed)
  local prefix, trace = client.unique("walk"), {}
  local model, real = Walk.new(model_client, seed, prefix), Walk.new(client, seed, prefix)
  for _ = 1, steps do
    local fine, what = pcall(step, broker, model, real, trace)
    if not fine then tell(seed, trace, what) end
  end
  real:finish()
end

describe("the model and the broker", function ()
  local fresh = os.time() % 1000000
  local seeds = SEED and { SEED } or { 1, 2, 348113 } -- the third gives back what several consumers have
  for i = 4, not SEED and IS_LONG and 60 or 0 do seeds[i] = fresh + i end
  for _, seed in ipairs(seeds) do
    it(("answer alike, whatever they are asked (seed %d)"):format(seed), function () walk(seed, STEPS) end)
  end
end)
