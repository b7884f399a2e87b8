-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- SIGKILL of the broker, which is then started again.
local node_end = require "tools.prove.node_end"

return node_end.fault("crash", "the broker was killed", function(node)
  node:kill()
  node:restart()
end)
