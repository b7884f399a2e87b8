-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The broker is stopped and started again.
local node_end = require "tools.prove.node_end"

return node_end.fault("restart", "the broker was stopped", function(node) node:restart() end)
