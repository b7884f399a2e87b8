-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Connections of requests that were closed, kept for requests that come later. The session is empty: no lock, no
-- operation, nothing to be read or sent. Its socket is in nginx's pool of idle connections, where nobody reads it. So
-- the connection is kept for less time than the broker takes to send a heartbeat, or to miss one.
local MOST = 32 -- in this nginx worker
local LONGEST = 20 -- seconds
local BEATS = 1 / 3 -- heartbeats, at most

local kept = {}

--- Seconds after a connection's time until nginx closes it. The worker closes it before, by AMQP's handshake.
kept.SPARE = 1.5

local all = {} -- the oldest first: { session, socket, worker, address, ends }

--- Returns for how many seconds a session's connection may be kept; nil: it cannot be kept.
function kept.time(session, worker)
  if #all >= MOST or ngx.worker.exiting() or worker:is_retired() then return nil end
  local seconds = math.min(LONGEST, session:heartbeat "holder" * BEATS)
  return seconds > 0 and seconds or nil
end

--- Keeps the connection of the session, which rests. `socket`: the result of stream:keep(seconds + kept.SPARE).
function kept.add(session, socket, worker, address, seconds)
  table.insert(all, {
    session = session, socket = socket, worker = worker, address = address, ends = ngx.now() + seconds,
  })
end

-- Removes and returns the latest connection for which is_meant() is true.
local function take(is_meant)
  for i = #all, 1, -1 do
    if is_meant(all[i]) then return table.remove(all, i) end
  end
end

--- Returns a kept connection of this worker session to the same address, or nil. The caller has it now.
function kept.take(worker, address)
  local now = ngx.now()
  return take(function(one) return one.worker == worker and one.address == address and now < one.ends end)
end

--- Returns a connection of this worker session that was kept for its time, or nil. `at_once`: any that is kept.
function kept.take_old(worker, at_once)
  local now = ngx.now()
  return take(function(one) return one.worker == worker and (at_once or now >= one.ends) end)
end

--- Returns whether connections of this worker session are kept.
function kept.has(worker)
  for _, one in ipairs(all) do
    if one.worker == worker then return true end
  end
  return false
end

return kept
