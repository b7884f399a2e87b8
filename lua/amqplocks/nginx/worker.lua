-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The session that all requests of an nginx worker to one broker share. Its prober asks for all of them. Its holder
-- carries the locks of the requests that share it. Timers own the session, so it outlives each request. They also end
-- what ended requests leave behind.
--
-- After 600 seconds it retires: later requests get a new session, and the old one ends with its last request. It also
-- ends when nginx shuts the worker down.
local close = require "amqplocks.waiting.close"
local core = require "amqplocks.core"
local endings = require "amqplocks.nginx.endings"
local events = require "amqplocks.nginx.events"
local kept = require "amqplocks.nginx.kept"
local links = require "amqplocks.nginx.links"
local loop = require "amqplocks.drivers.loop"
local news = require "amqplocks.waiting.notify"
local request = require "amqplocks.nginx.request"
local waiting = require "amqplocks.waiting.sleepers"

local LINKS = { "holder", "prober" }
local LIFETIME = 600 -- seconds: the memory that a timer allocates is freed only at its end

local worker = {}
worker.__index = worker

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

--- Returns whether later requests get another session.
function worker:is_retired() return ngx.now() >= self._until end

-- Connections that close_old() closes need this session for a moment longer.
local CLOSING = 10 -- seconds

local function is_over(self)
  local is_left = not kept.has(self) and ngx.now() > self._closed_at + CLOSING
  return self.endings.count == 0 and (ngx.worker.exiting() or self:is_retired() and is_left)
end

-- Closes the connections that no request took in time. Their sockets belong to a timer meanwhile, whose memory is freed
-- at its end.
local function close_old(self)
  local one = kept.take_old(self)
  while one do
    local old = one
    self._closed_at = ngx.now()
    local begun = events.spawn(function() request.close_kept(self, old, self._settings) end)
    if not begun then links.abort(old.session) end -- nginx closes the socket
    one = kept.take_old(self)
  end
end

-- When nginx shuts the worker down, it closes the sockets that are kept.
local function abort_kept(self)
  local one = kept.take_old(self, true)
  while one do
    links.abort(one.session)
    one = kept.take_old(self, true)
  end
end

-- It closes its connections in order: the broker is notified.
local function look_after(self)
  repeat
    self.endings:wait(1)
    news.tell(self.driver)
    close_old(self)
  until is_over(self)
  abort_kept(self)
  if current[self._key] == self then current[self._key] = nil end
  close(self.driver, self.session)
  links.abort(self.session)
end

local function log(level, message)
  ngx.log(level == "warning" and ngx.WARN or ngx.INFO, "amqplocks: ", message)
end

-- Requests wait here while their operations wait for the prober.
local function is_answered(operation, begins)
  return operation:done() or operation:awaits() ~= "prober" or begins and operation:waiting()
end

-- A copy of the settings. Its connections are opened later, and the URL function, if any, is called again by then.
local function own(settings)
  local copy = {}
  for key, value in pairs(settings) do copy[key] = value end
  copy.addressed = nil
  return copy
end

local function new(key, settings)
  local askers = waiting.new(events, is_answered)
  local session, driver, code = loop.session(events, settings, function() askers:call() end)
  if not session then return nil, driver, code end
  driver.log = log
  local self = setmetatable({
    session = session, driver = driver, askers = askers, endings = endings.new(),
    _key = key, _settings = settings, _until = ngx.now() + LIFETIME, _closed_at = -CLOSING,
  }, worker)
  local begun, why = events.spawn(function() look_after(self) end)
  if not begun then return nil, "unreachable: " .. why, "unreachable" end
  links.add(session, LINKS)
  return self
end

--- Returns the worker session for a broker.
---@return table|nil, string? message, amqplocks.Code? code
function worker.of(settings)
  local key = key_of(settings)
  local old = current[key]
  if old then old._settings.ask = settings.ask end -- the function before may be a closure over a request that has ended
  if old and not old:is_retired() then return old end
  local self, why, code = new(key, own(settings))
  if not self then return old, why, code end -- a session that has to retire is better than none
  current[key] = self
  return self
end

return worker
