-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- SIGKILL of the broker, which is started again.
-- Quorum queues are not safe the moment they are declared (docs/reliability.md).
return {
  name = "crash", weight = 0.2, after = 8, needs = { "node", "operator" },
  strike = function(stage, random)
    local node = stage.nodes[random(#stage.nodes)]
    local number = stage:strike{ fault = "crash", lane = "*", hinders = 8, excuse = "the broker was killed" }
    node:kill()
    node:restart()
    return 0, function() stage:over(number) end
  end,
}
