-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The events of a connection, for the listeners of conn:on_event. Nothing here is done while nobody listens.
--
-- A lock that was acquired has a record until its end: so each lock that was acquired ends once, as released or as
-- lost, whether its owner releases it, drops it for the collector, closes the connection or ends the request.
--
-- An event is queued first, and the listeners are called where on_lost's function may be: inside calls that may wait. A
-- listener may cause further events. They are told after it has returned, or by a call that waits inside it.
local pcall = require("amqplocks.compat.pcall").pcall

local SWEEP = 1 -- seconds between two searches for locks that were collected

local LINKS = { "holder", "prober", "quorum" }

local events = {}
events.__index = events

local function is_up(session, link) return session:state(link) == "open" end

--- `owns_links`: the session's connections are no other connection's. `clock`: of the driver.
function events.new(session, owns_links, clock)
  local self = setmetatable({
    _session = session, _clock = clock, _listeners = {}, _queue = {}, _open = {}, _swept = 0, _links = {},
  }, events)
  local opened = owns_links and session:stats().opened or {}
  for _, link in ipairs(owns_links and LINKS or {}) do
    self._links[link] = { opened = opened[link], is_up = is_up(session, link) }
  end
  return self
end

-- ---- listeners ------------------------------------------------------------------------------------------------------

--- Adds a listener; returns a function that removes it.
function events:add(fn)
  local listener = { fn = fn }
  table.insert(self._listeners, listener)
  return function()
    for i, each in ipairs(self._listeners) do
      if each == listener then return table.remove(self._listeners, i) and nil end
    end
  end
end

local function call(self, event, log)
  local listeners = {}
  for i, each in ipairs(self._listeners) do listeners[i] = each end -- one may remove itself
  for _, each in ipairs(listeners) do
    local fine, problem = pcall(each.fn, event)
    if not fine and log then pcall(log, "warning", "on_event: " .. tostring(problem)) end
  end
end

--- Queues an event. Its time is added.
function events:post(event)
  event.at = self._clock.wall()
  table.insert(self._queue, event)
end

--- Calls the listeners for all events that are queued.
function events:tell(log)
  while self._queue[1] do call(self, table.remove(self._queue, 1), log) end
end

-- ---- locks ----------------------------------------------------------------------------------------------------------

local function post(self, record, what, more)
  local event = { what = what }
  for _, from in ipairs{ record.words, more or {} } do
    for key, value in pairs(from) do event[key] = value end
  end
  self:post(event)
end

--- A caller has got this lock. `more`: further fields of the event.
function events:acquired(lock, more)
  local record = {
    words = { kind = lock.kind, name = lock.name, slot = lock.slot, ticket = lock.ticket, fence = lock.fence },
    began = self._clock.now(),
    lock = setmetatable({ lock }, { __mode = "v" }),
  }
  lock._record = record
  self._open[record] = true
  post(self, record, "acquired", more)
end

local function finish(self, record, what, code)
  if not record or not self._open[record] then return end
  self._open[record] = nil
  post(self, record, what, { held = self._clock.now() - record.began, code = code })
end

--- The lock has ended: `what` is "released" or "lost". A lock that has ended before, or was acquired while nobody
-- listened, is no event.
function events:ended(lock, what, code) finish(self, lock._record, what, code) end

--- An administrator has asked for the lock back.
function events:revoked(lock)
  local record = lock._record
  if not record or record.is_revoked or not self._open[record] then return end
  record.is_revoked = true
  post(self, record, "revoked")
end

--- All locks have ended: the connection was closed, or its request is over.
function events:end_all()
  local open = self._open
  self._open = {}
  for record in pairs(open) do
    self._open[record] = true
    finish(self, record, "released")
  end
end

local function sweep(self)
  local now = self._clock.now()
  if now < self._swept + SWEEP then return end
  self._swept = now
  local gone = {}
  for record in pairs(self._open) do
    if not record.lock[1] then table.insert(gone, record) end
  end
  for _, record in ipairs(gone) do finish(self, record, "released") end
end

-- ---- connections ----------------------------------------------------------------------------------------------------

local function down(self, link)
  if link.is_up then self:post{ what = "down", link = link.name } end
  link.is_up = false
end

local function look_at_link(self, name, opened)
  local link = self._links[name]
  link.name = name
  for _ = link.opened + 1, opened do
    down(self, link)
    link.is_up = true
    self:post{ what = "up", link = name }
  end
  link.opened = opened
  if not is_up(self._session, name) then down(self, link) end
end

--- Looks for what has changed without a call of the program: connections, the broker's alarms, locks that were
-- collected.
function events:look()
  sweep(self)
  if not next(self._links) then return end
  local stats = self._session:stats()
  for _, name in ipairs(LINKS) do look_at_link(self, name, stats.opened[name]) end
  if stats.blocked ~= (self._is_blocked or false) then
    self._is_blocked = stats.blocked
    self:post{ what = stats.blocked and "blocked" or "unblocked", link = "prober" }
  end
end

return events
