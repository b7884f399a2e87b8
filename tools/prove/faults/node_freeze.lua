-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- One node of three is frozen (SIGSTOP and SIGCONT), for shorter or longer than the other nodes take to regard it as
-- down.
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
