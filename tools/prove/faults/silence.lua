-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What a client sends, what it is sent, or both, gets lost on the way, and no side is told; also not that it ended.
local WAYS = { { "up" }, { "down" }, { "up", "down" } }

return {
  name = "silence", quick = true, weight = 2, needs = { "proxy" },
  strike = function(stage, random)
    local one = stage:pick_proxied(random)
    if not one then return nil end
    local ways = WAYS[random(#WAYS)]
    local number = stage:strike{ fault = "silence", one = one, ways = table.concat(ways, "+"), hinders = 6 }
    for _, way in ipairs(ways) do one.proxy:switch(way, "drop") end
    -- What was lost was lost: a connection that has missed something is no good any more. Those that come later are.
    return 1 + random() * 4, function()
      one.proxy:switch("up", "pass", "new")
      one.proxy:switch("down", "pass", "new")
      stage:over(number)
    end
  end,
}
