-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Sessions in any event loop. docs/drivers.md describes the functions that a loop must have. Coroutines of the driver
-- read and write. A coroutine that waits for an operation sleeps until it has ended, and the others run.
local core = require "amqplocks.core"
local losses = require "amqplocks.waiting.losses"
local may_wait = require "amqplocks.waiting.may_wait"
local news = require "amqplocks.waiting.notify"
local stream = require "amqplocks.drivers.stream"
local urls = require "amqplocks.urls"
local waiting = require "amqplocks.waiting.sleepers"

local loop = {}

-- The program owns the driver, and the driver owns the connections. The driver's coroutines have only weak references
-- to it: otherwise a connection that the program has dropped would never be collected.
local function tell_soon(spawn, session, known)
  local alerts = session:alerts()
  local driver = known.driver
  if not driver or driver.alerts == alerts then return end
  driver.alerts = alerts
  spawn(function() news.tell(driver) end)
end

local BREATH = 0.001 -- seconds: at most

-- Lets the other coroutines of the loop run, once.
local function rest(events, pause)
  events.spawn(function() pause:signal() end)
  pause:wait(BREATH)
end

-- The roles of a session's connections. Locks are held on the first two.
local ROLES = { "holder", "quorum", "prober", "fence", "maker" }

--- Returns a session over `settings`, and the driver that waits for its operations; or nil, message, code.
function loop.session(events, settings)
  local function check() return may_wait(events) end
  local begun, problem, kind = urls.begin(settings, check)
  if not begun then return nil, problem, kind end
  if events.here then events = events.here() end
  local session, message, code = core.loop(settings)
  if not session then return nil, message, code end
  local known = setmetatable({}, { __mode = "v" })
  local room, pause = waiting.new(events), events.condition()
  local changes, is_served = 0, false
  local streams = {}

  -- Returns true if a connection could not be started: then times that were known before are outdated.
  local function mind()
    local _, at = session:wake()
    local runs, has_failed = false, false
    for _, each in ipairs(streams) do
      if each:mind(at) then has_failed = true end
      if each._runs then runs = true end
    end
    local is_left = (is_served or has_failed) and not runs
    is_served = runs
    if is_left then room:call(true) end -- no connection minds the session's timers: each waiter looks when to go on
    if session:op_changes() ~= changes then
      changes = session:op_changes()
      room:call()
    end
    tell_soon(events.spawn, session, known)
    return has_failed
  end

  for i, role in ipairs(ROLES) do streams[i] = stream.new(events, session, role, settings, mind) end

  -- The collector calls this. It may already have collected the session.
  local function forget()
    session:abort()
    for _, each in ipairs(streams) do each:close() end
  end

  local driver = {
    check = check,
    wait = function(operation, seconds)
      local left = session:pump(operation)
      if mind() then return end
      if operation:done() then return rest(events, pause) end -- it has acquired what is retained (acquire.c)
      room:wait(operation, left, seconds)
      session:pump(operation)
      mind()
    end,
    mind = mind,
    minder = setmetatable({}, { __close = function() pcall(mind) end }),
    drain = function()
      mind()
      for i = 1, 2 do streams[i]:drain() end
    end,
    forget = function(operation) room:forget(operation) end,
    news = function() return session:news() end,
    is_quiet = function(alerts) return session:is_quiet(alerts) end,
    losses = losses.new(function() return session:alerts() end),
    alerts = 0,
    collected = not events.keeps and core.on_collect(forget),
  }
  known.driver = driver
  return session, driver
end

return loop
