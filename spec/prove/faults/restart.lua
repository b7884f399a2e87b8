-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The broker is stopped and started again.
-- Quorum queues are not safe the moment they are declared (docs/reliability.md).
return {
  name = "restart", weight = 0.2, after = 8, needs = { "node", "operator" },
  strike = function(stage, random)
    local node = stage.nodes[random(#stage.nodes)]
    local number = stage:strike{ fault = "restart", lane = "*", hinders = 8, excuse = "the broker was stopped" }
    node:restart()
    return 0, function() stage:over(number) end
  end,
}
