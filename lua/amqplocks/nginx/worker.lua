-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The session that all requests of an nginx worker to one broker share. Timers own its connections, so it outlives
-- each request. They also end what ended requests leave behind.
--
-- After 600 seconds it retires: later requests get a new session, and the old one ends with its last request. It also
-- ends when nginx shuts the worker down.
local close = require "amqplocks.waiting.close"
local core = require "amqplocks.core"
local endings = require "amqplocks.nginx.endings"
local events = require "amqplocks.nginx.events"
local links = require "amqplocks.nginx.links"
local loop = require "amqplocks.drivers.loop"
local news = require "amqplocks.waiting.notify"

local LIFETIME = 600 -- seconds: the memory that a timer allocates is freed only at its end

local worker = {}

local current = {} -- by address

-- A URL function may return another user and password each time, and its nodes in another order, and may be another
-- closure in each request. Its URL leads to the same session if the nodes, the virtual host and all other settings are
-- the same. The session's connections belong to the user that the function returned when they were opened. So users
-- with different rights need a `name` each, which makes a session of its own.
local function place_of(settings)
  local url = settings.url or ""
  local places = settings.ask and core.places(settings)
  if places then
    table.sort(places)
    return "\2" .. table.concat(places, "\1")
  end
  return type(url) == "table" and table.concat(url, "\1") or url
end

local function key_of(settings)
  local parts = {
    place_of(settings), settings.name or "", settings.heartbeat or "", settings.timeout or "", settings.order or "",
    settings.trace or "",
  }
  for _, name in ipairs { "ca", "cert", "key", "server_name", "verify" } do
    table.insert(parts, tostring(settings.tls and settings.tls[name]))
  end
  return table.concat(parts, "\0")
end

local function is_retired(self) return ngx.now() >= self._until end

local function is_over(self) return self.endings.count == 0 and (ngx.worker.exiting() or is_retired(self)) end

-- It closes its connections in order: the broker is notified.
local function look_after(self)
  repeat
    self.endings:wait(1)
    news.tell(self.driver)
  until is_over(self)
  if current[self._key] == self then current[self._key] = nil end
  close(self.driver, self.session)
  links.abort(self.session)
end

local function log(level, message)
  ngx.log(level == "warning" and ngx.WARN or ngx.INFO, "amqplocks: ", message)
end

local function new(key, settings)
  settings.addressed = nil -- its connections are opened later, and a URL function is called again by then
  local session, driver, code = loop.session(events, settings)
  if not session then return nil, driver, code end
  driver.log = log
  local self = {
    session = session, driver = driver, endings = endings.new(),
    _key = key, _settings = settings, _until = ngx.now() + LIFETIME,
  }
  local begun, why = events.spawn(function() look_after(self) end)
  if not begun then return nil, "unreachable: " .. why, "unreachable" end
  links.add(session)
  return self
end

--- Returns the worker session for a broker.
---@return table|nil, string? message, amqplocks.Code? code
function worker.of(settings)
  local key = key_of(settings)
  local old = current[key]
  if old then old._settings.ask = settings.ask end -- the function before may be a closure over a request that has ended
  if old and not is_retired(old) then return old end
  local self, why, code = new(key, settings)
  if not self then return old, why, code end -- a session that has to retire is better than none
  current[key] = self
  return self
end

return worker
