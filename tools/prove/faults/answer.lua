-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The broker's answer to a declare or a delete is lost, and everything after it: the client cannot know whether it has
-- the lock, or has released it. Then the connection is silent for good, or is reset.
local METHODS = { "queue.declare-ok", "queue.delete-ok", "basic.consume-ok" }

return {
  name = "answer", quick = true, weight = 2, needs = { "proxy" },
  strike = function(stage, random)
    local one = stage:pick_proxied(random)
    if not one then return nil end
    local method, cuts = METHODS[random(#METHODS)], random() < 0.5
    local number = stage:strike{ fault = "answer", one = one, method = method, hinders = 6,
      excuse = cuts and "the connection was reset" or nil }
    one.proxy:lose(method, cuts)
    return 1 + random() * 3, function()
      one.proxy:lose_nothing()
      stage:over(number)
    end
  end,
}
