-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- SIGSTOP and SIGCONT of the broker.
return {
  name = "freeze", weight = 0.5, needs = { "node" },
  strike = function(stage, random)
    local node = stage.nodes[random(#stage.nodes)]
    if stage.frozen then return nil end
    stage.frozen = true
    local number = stage:strike{ fault = "freeze", lane = "*", hinders = 8 }
    node:freeze()
    return random() < 0.5 and random() or 1.5 + random() * 2.5, function()
      node:thaw()
      stage.frozen = false
      stage:over(number)
    end
  end,
}
