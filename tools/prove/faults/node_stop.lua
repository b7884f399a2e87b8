-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- One node of three is stopped cleanly and started again.
local nodes = require "tools.prove.cluster_nodes"

return nodes.fault("node_stop", 6, function(node)
  return function() node:stop() end, function() node:restart() end
end)
