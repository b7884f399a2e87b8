-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A client's connection ends as soon as it has declared an exclusive queue: the broker is notified of both at once.
-- Before RabbitMQ 4.3 the dead client's queue removes the queue that the next client has declared under its name, and
-- that one later does the same to another. Claims with bolts exclude each other all the same; witnesses and foreigners
-- use no bolts. A bolt is a queue that guards a lock's queue.
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
