-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Common code of the faults that end a broker and start it again.
local socket = require "socket"

local node_end = {}

-- A quorum queue is not safe at the moment of its declaration (docs/reliability.md). One that is left without a leader
-- for good would block the rest of the run. So no process declares any for so many seconds before the end.
local SETTLES = 3

local function stop_administrators(stage, random)
  local stopped = {}
  for one in function() return stage:pick(random, "admin") end do
    stopped[one] = stage:strike{ fault = "stop", one = one, hinders = 8 }
    one.process:signal "STOP"
  end
  return stopped
end

--- A fault of real.lua. `excuse`: the reason why locks are freed; come_and_go(node): ends and starts the node.
function node_end.fault(name, excuse, come_and_go)
  return { name = name, weight = 0.2, after = 8, needs = { "node", "operator" }, strike = function(stage, random)
    local node, stopped = stage.nodes[random(#stage.nodes)], stop_administrators(stage, random)
    socket.sleep(SETTLES)
    local number = stage:strike{ fault = name, lane = "*", hinders = 8, excuse = excuse }
    come_and_go(node)
    return 0, function()
      for one, its in pairs(stopped) do
        one.process:signal "CONT"
        stage:over(its)
      end
      stage:over(number)
    end
  end }
end

return node_end
