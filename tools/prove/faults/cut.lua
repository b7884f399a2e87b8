-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A client's connections are reset on the way: on both sides, or, by half, for the broker only, which is told that the
-- client has gone, while the client is told nothing.
return {
  name = "cut", quick = true, needs = { "proxy" },
  strike = function(stage, random)
    local one = stage:pick_proxied(random)
    if not one then return nil end
    local side = random() < 0.5 and "broker" or "both"
    local number = stage:strike{ fault = "cut", one = one, side = side, hinders = 6,
      excuse = side == "both" and "the connection was reset" or "the connection was reset on the broker's side only" }
    one.proxy:cut_all(side)
    return 0.1, function() stage:over(number) end
  end,
}
