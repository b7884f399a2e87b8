-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Common code of the faults of nodes: one fault at a time, and the cluster is whole again before the next. No caller
-- is reported as slow for as long as a node may take to answer afterwards. A fault excuses no lock except these: the
-- queue of a permit may be on the struck node, or cut off from its holder, so that the next client has it before the
-- holder can know. The same is true of a fast mutex while nodes are cut off or frozen.
local pools = require "tools.prove.pools"

local SLOW = 40 -- seconds: a declare on a node without a majority fails after 30

local nodes = {}

local PARTING = { partition = true, node_freeze = true }

local is_struck = false

local function excuse(pool, name)
  if pools.is_token(pool) then return "a node was struck, and permits may have been on it" end
  if pools.is_fast(pool) and PARTING[name] then return "nodes were not connected, and its queue may be on one" end
end

local function strike_all(stage, name, number)
  local numbers = { stage:strike{ fault = name, lane = "*", hinders = SLOW, node = number } }
  for _, pool in ipairs(stage.pools) do
    local why = excuse(pool, name)
    if why then table.insert(numbers, stage:strike{ fault = name, pool = pool.name, excuse = why }) end
  end
  return numbers
end

--- A fault of real.lua. `choose(node, stage, random)` returns the functions that strike this node and that repair it.
-- The fault lasts for at most so many seconds, often much less.
function nodes.fault(name, seconds, choose)
  return { name = name, weight = 1, needs = { "cluster" }, strike = function(stage, random)
    if is_struck then return nil end
    local node = stage.nodes[random(#stage.nodes)]
    local strike, mend = choose(node, stage, random)
    local numbers = strike_all(stage, name, node.number)
    is_struck = true
    strike()
    return random() ^ 2 * seconds, function()
      mend()
      require("tools.prove.three_nodes").until_whole()
      is_struck = false
      for _, number in ipairs(numbers) do stage:over(number) end
    end
  end }
end

return nodes
