-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The native driver: rabbitmq-c's own sockets. Waiting blocks the process, a second at most at a time.
local core = require "amqplocks.core"
local losses = require "amqplocks.waiting.losses"
local urls = require "amqplocks.urls"

local native = {}

--- A session over `settings`, and what waits for its operations; or nil, message, code.
function native.session(settings)
  local begun, problem, kind = urls.begin(settings)
  if not begun then return nil, problem, kind end
  local session, message, code = core.native(settings)
  if not session then return nil, message, code end
  local ask = settings.ask and urls.asker()
  local driver = {
    wait = function(operation)
      if ask then -- here and not from C, which connects with what it was told, and else leaves that to the next time
        urls.renew(session, "holder", settings, ask)
        urls.renew(session, "prober", settings, ask)
      end
      session:wait(operation)
    end,
    news = function() return session:news() end,
    losses = losses.new(function() return session:alerts() end),
  }
  return session, driver
end

return native
