-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A client's connection ends as soon as it has declared an exclusive queue: the broker learns of both at once. Before
-- RabbitMQ 4.3 the dead one's queue takes away what the next has declared by its name, and that one's, some time later,
-- does the same to another's. Who knows of bolts is alone all the same; witnesses and foreigners do not know of them.
return {
  name = "claim", needs = { "proxy" }, without = { "witnesses", "foreigners" },
  strike = function(stage, random)
    local one = stage:pick_proxied(random)
    if not one then return nil end
    local number = stage:strike{ fault = "claim", one = one, hinders = 6, robs = true,
      excuse = "the connection was reset" }
    one.proxy:cut_claiming()
    return 1, function()
      one.proxy:lose_nothing()
      stage:over(number)
    end
  end,
}
