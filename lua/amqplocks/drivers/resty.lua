-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The driver for nginx, with its Lua module or as OpenResty. A request's locks are on its worker's connection, which
-- is opened at its first use.
local may_wait = require "amqplocks.waiting.may_wait"
local urls = require "amqplocks.urls"

local resty = {}

local USUAL_HEARTBEAT = 60 -- seconds: the socket shows the death of a worker, and one that was held up keeps its locks

--- Returns a session over `settings`, and the driver that waits for its operations.
---@return table|nil session, (table|string)? driver_or_message, amqplocks.Code? code
function resty.session(settings)
  local nginx = rawget(_G, "ngx")
  if not nginx or nginx.config.subsystem ~= "http" then
    error('connect: driver "resty" is for the handlers of nginx\'s http requests, and for its timers', 0)
  end
  if settings.tls and settings.tls.ca then
    error("connect: option tls.ca: in nginx the authorities are those of lua_ssl_trusted_certificate", 0)
  end
  local events = require "amqplocks.nginx.events"
  local wrong, code = events.check()
  if wrong then return nil, ("%s: %s"):format(code, wrong), code end
  local begun, message, kind = urls.begin(settings, function() return may_wait(events) end)
  if not begun then return nil, message, kind end
  settings.usual_heartbeat = USUAL_HEARTBEAT
  local worker, why, problem = require("amqplocks.nginx.worker").of(settings)
  if not worker then return nil, why, problem end
  return require("amqplocks.nginx.request").session(worker)
end

return resty
