-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- One node of three is cut off from the others, in both directions or in one. Its clients still reach it.
local nodes = require "tools.prove.cluster_nodes"

return nodes.fault("partition", 20, function(node, stage, random)
  local cluster = require "tools.prove.three_nodes"
  local one, others = tonumber(node.number), {}
  for i in ipairs(stage.nodes) do
    if i ~= one then table.insert(others, i) end
  end
  local cut = random() < 0.7 and cluster.cut or cluster.deafen
  return function() cut(one, others) end, cluster.heal
end)
