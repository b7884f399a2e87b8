-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What the faults that end a broker, and start it again, have in common. They spare the beginning, as quorum queues
-- are not safe the moment they are declared (docs/reliability.md).
local node_end = {}

--- A fault of real.lua. `excuse`: for locks that are freed; come_and_go(node): does it.
function node_end.fault(name, excuse, come_and_go)
  return { name = name, weight = 0.2, after = 8, needs = { "node", "operator" }, strike = function(stage, random)
    local node = stage.nodes[random(#stage.nodes)]
    local number = stage:strike{ fault = name, lane = "*", hinders = 8, excuse = excuse }
    come_and_go(node)
    return 0, function() stage:over(number) end
  end }
end

return node_end
