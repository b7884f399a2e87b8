-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A client's connections are reset by the network: on both sides, or ("half") for the broker only, while the client is
-- not notified.
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
