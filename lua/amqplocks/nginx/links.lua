-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The AMQP connections of this nginx worker, for metrics. The events of a request do not tell of them.
local links = {}

local PAUSE = 1 -- seconds between two looks
local ROLES = { "holder", "prober", "quorum" }

---@return table<string, number>
local function zeros() return { holder = 0, prober = 0, quorum = 0 } end

local sessions = {} -- session -> how many connections of each role were counted
local opened = zeros() -- by this worker so far

local function count_opened(counted, stats)
  for _, role in ipairs(ROLES) do
    opened[role] = opened[role] + stats.opened[role] - counted[role]
    counted[role] = stats.opened[role]
  end
end

--- Adds a session.
function links.add(session) sessions[session] = zeros() end

--- Aborts a session, which is not counted any more.
function links.abort(session)
  local counted = sessions[session]
  sessions[session] = nil
  if counted then count_opened(counted, session:stats()) end
  session:abort()
end

--- Returns the number of this worker, how many connections of each role are open, how many were opened so far, how many
-- are to a broker that has an alarm, and the longest time in seconds since a holder of locks has heard its broker.
function links.look()
  local seen = {
    worker = tostring(ngx.worker.id()), up = zeros(), opened = opened, blocked = 0,
    silence = 0,
  }
  for session, counted in pairs(sessions) do
    local stats = session:stats()
    count_opened(counted, stats)
    for _, role in ipairs(ROLES) do
      if session:state(role) == "open" then seen.up[role] = seen.up[role] + 1 end
    end
    if stats.blocked and session:state "prober" == "open" then seen.blocked = seen.blocked + 1 end
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
