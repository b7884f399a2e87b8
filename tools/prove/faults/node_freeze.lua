-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- One node of three is frozen, for less or for more than the others believe in it (SIGSTOP and SIGCONT).
local nodes = require "tools.prove.cluster_nodes"

return nodes.fault("node_freeze", 16, function(node)
  return function()
    node.is_frozen = true
    node:freeze()
  end, function()
    node:thaw()
    node.is_frozen = nil
  end
end)
