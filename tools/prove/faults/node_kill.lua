-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- One node of three is killed (SIGKILL), and started again.
local nodes = require "tools.prove.cluster_nodes"

return nodes.fault("node_kill", 6, function(node)
  return function() node:kill() end, function() node:restart() end
end)
