-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The native driver: rabbitmq-c's own sockets. Waiting blocks the process, a second at most at a time.
local core = require "amqplocks.core"
local losses = require "amqplocks.losses"

local native = {}

--- A session over `settings`, and what waits for its operations; or nil, message, code.
function native.session(settings)
  local session, message, code = core.native(settings)
  if not session then return nil, message, code end
  local driver = {
    wait = function(operation) session:wait(operation) end,
    news = function() return session:news() end,
    losses = losses.new(function() return session:alerts() end),
  }
  return session, driver
end

return native
