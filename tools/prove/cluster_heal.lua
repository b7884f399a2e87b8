-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Ends a partition in which node 1 was cut off. Mnesia does not heal by itself: the node that was alone is restarted,
-- as operators must do.
local cluster = require "tools.prove.three_nodes"

return function()
  cluster.heal()
  if not cluster.has_khepri() and os.getenv "CLUSTER_PARTITION" ~= "pause_minority" then cluster.nodes[1]:restart() end
  cluster.until_whole()
end
