-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- An operator deletes the queue that is a held lock.
local pools = require "tools.prove.pools"

return {
  name = "delete", quick = true, needs = { "operator" },
  strike = function(stage, random)
    local pool = stage.pools[random(#stage.pools)]
    local slot = pools.is_numbered(pool) and random(pool.least) or nil
    local queue = pools.holder(pool, slot) or pools.is_fast(pool) and pools.bell(pool)
    if not queue then return nil end
    local number = stage:strike{ fault = "delete", pool = pool.name, slot = slot,
      excuse = "the operator deleted the queue" }
    pcall(stage.nodes[1].delete_queue, stage.nodes[1], queue) -- it may not be held at the moment
    return 0.1, function() stage:over(number) end
  end,
}
