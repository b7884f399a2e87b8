-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- An operator deletes a doorbell, empties it, or floods it. The queue of a fast mutex is not deleted here: its holder
-- would lose the lock (delete.lua).
local client = require "spec.support.client"
local pools = require "tools.prove.pools"

local HOW = {
  delete = function(stage, bell) stage.nodes[1]:delete_queue(bell) end,
  purge = function(stage, bell)
    local link = assert(client.connect(stage.nodes[1].url))
    pcall(function() link:channel():call{ method = "queue.purge", queue = bell } end)
    link:close()
  end,
  flood = function(stage, bell)
    local link = assert(client.connect(stage.nodes[1].url))
    pcall(function() for _ = 1, 20 do link:probe(bell, { type = "amqplocks.token", delivery_mode = 2 }) end end)
    link:close()
  end,
}

return {
  name = "bell", quick = true, needs = { "operator" },
  strike = function(stage, random)
    local pool = stage.pools[random(#stage.pools)]
    local bell = pools.bell(pool)
    if not bell then return nil end
    local how = ({ "purge", "flood", "delete" })[random(pools.is_fast(pool) and 2 or 3)]
    local number = stage:strike{ fault = "bell", pool = pool.name, how = how }
    pcall(HOW[how], stage, bell) -- there may be no bell
    return 0.1, function() stage:over(number) end
  end,
}
