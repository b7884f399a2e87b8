-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The native driver: rabbitmq-c's own sockets. Waiting blocks the process, a second at most at a time.
local core = require "amqplocks.core"

local native = {}

--- A session over `settings`, and what waits for its operations.
function native.session(settings)
  local session = core.native(settings)
  local driver = {
    wait = function(operation) session:wait(operation) end,
    news = function() return session:news() end,
  }
  return session, driver
end

return native
