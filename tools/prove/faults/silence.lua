-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Bytes from a client, to it, or both, are lost. Neither side is notified, not even of the end of the connection.
local WAYS = { { "up" }, { "down" }, { "up", "down" } }

return {
  name = "silence", quick = true, weight = 2, needs = { "proxy" },
  strike = function(stage, random)
    local one = stage:pick_proxied(random)
    if not one then return nil end
    local ways = WAYS[random(#WAYS)]
    local number = stage:strike{ fault = "silence", one = one, ways = table.concat(ways, "+"), hinders = 6 }
    for _, way in ipairs(ways) do one.proxy:switch(way, "drop") end
    -- A connection that has lost bytes is useless. Later connections work again.
    return 1 + random() * 4, function()
      one.proxy:switch("up", "pass", "new")
      one.proxy:switch("down", "pass", "new")
      stage:over(number)
    end
  end,
}
