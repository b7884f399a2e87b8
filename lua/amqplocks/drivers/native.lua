-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The native driver: the sockets are rabbitmq-c's. Waiting blocks the process, for at most a second at a time.
local core = require "amqplocks.core"
local losses = require "amqplocks.waiting.losses"
local urls = require "amqplocks.urls"

local native = {}

local ROLES = { "holder", "prober", "fence", "maker", "quorum" } -- of the connections of a session

--- Returns a session over `settings`, and the driver that waits for its operations; or nil, message, code.
function native.session(settings)
  local begun, problem, kind = urls.begin(settings)
  if not begun then return nil, problem, kind end
  local session, message, code = core.native(settings)
  if not session then return nil, message, code end
  local ask = settings.ask and urls.asker()
  local driver = {
    wait = function(operation)
      if ask then -- Lua calls the function, not C: C connects to the URL that it has
        for _, role in ipairs(ROLES) do urls.renew(session, role, settings, ask) end
      end
      session:wait(operation)
    end,
    finishes = not ask,
    news = function() return session:news() end,
    is_quiet = function(alerts) return session:is_quiet(alerts) end,
    losses = losses.new(function() return session:alerts() end),
  }
  return session, driver
end

return native
