-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Bytes from a client, or to it, are delayed for a while and then delivered.
return {
  name = "stall", quick = true, needs = { "proxy" },
  strike = function(stage, random)
    local one = stage:pick_proxied(random)
    if not one then return nil end
    local way = random() < 0.5 and "up" or "down"
    local number = stage:strike{ fault = "stall", one = one, ways = way, hinders = 6 }
    one.proxy:switch(way, "hold")
    return random() < 0.5 and random() * 0.5 or 1.5 + random() * 2.5, function()
      one.proxy:switch(way, "pass")
      stage:over(number)
    end
  end,
}
