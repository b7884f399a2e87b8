-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A slow connection: some bytes at a time.
return {
  name = "trickle", needs = { "proxy" },
  strike = function(stage, random)
    local one = stage:pick_proxied(random)
    if not one then return nil end
    local number = stage:strike{ fault = "trickle", one = one, hinders = 6 }
    for _, way in ipairs{ "up", "down" } do one.proxy:switch(way, "trickle") end
    return 2 + random() * 4, function()
      for _, way in ipairs{ "up", "down" } do one.proxy:switch(way, "pass") end
      stage:over(number)
    end
  end,
}
