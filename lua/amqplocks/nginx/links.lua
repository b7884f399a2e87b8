-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The AMQP connections of this nginx worker, for metrics: those of requests, those that are kept, the worker's own.
-- The events of a request do not tell of all: a connection may be opened before the request, or closed after it.
local links = {}

local PAUSE = 1 -- seconds between two looks

local sessions = {} -- session -> its roles, and how many connections of each were counted
local opened = { holder = 0, prober = 0 } -- by this worker so far

local function count_opened(its, stats)
  for _, role in ipairs(its.roles) do
    opened[role] = opened[role] + stats.opened[role] - its.counted[role]
    its.counted[role] = stats.opened[role]
  end
end

--- Adds a session, unless it is there already. `roles`: of the connections that are its own.
function links.add(session, roles)
  sessions[session] = sessions[session] or { roles = roles, counted = { holder = 0, prober = 0 } }
end

--- Aborts a session, which is not counted any more.
function links.abort(session)
  local its = sessions[session]
  sessions[session] = nil
  if its then count_opened(its, session:stats()) end
  session:abort()
end

--- Returns the number of this worker, how many connections of each role are open, how many were opened so far, how many
-- are to a broker that has an alarm, and the longest time in seconds since a holder of locks has heard its broker.
function links.look()
  local seen = {
    worker = tostring(ngx.worker.id()), up = { holder = 0, prober = 0 }, opened = opened, blocked = 0, silence = 0,
  }
  for session, its in pairs(sessions) do
    local stats = session:stats()
    count_opened(its, stats)
    for _, role in ipairs(its.roles) do
      if session:state(role) == "open" then
        seen.up[role] = seen.up[role] + 1
        if role == "prober" and stats.blocked then seen.blocked = seen.blocked + 1 end
      end
    end
    seen.silence = math.max(seen.silence, stats.silence or 0)
  end
  return seen
end

--- Calls fn(links.look()) now and each second, also while requests wait; and with nothing open when this worker is shut
-- down, as another one may have its number then.
function links.watch(fn)
  fn(links.look())
  assert(ngx.timer.every(PAUSE, function(is_exiting)
    if is_exiting then sessions = {} end
    fn(links.look())
  end))
end

return links
