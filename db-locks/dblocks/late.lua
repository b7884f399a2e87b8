-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Requests that arrive late. The kernel, a proxy or a pooler may deliver a request after its client has lost the
-- connection, has repeated the request, and has gone on.
--
-- So each request that changes something tells until when it may: LIMIT seconds after it was made, by the clock of the
-- database, which client.lua knows. It does nothing if it arrives later.
--
-- A repeated acquire that arrives before that time does nothing either, while the ticket is there. So the lock of an
-- acquire that was in doubt is not released earlier: see `left`. The other repeated steps name since when the ticket
-- holds what they change, so they change nothing that came after it.
local late = {}

--- Seconds.
late.LIMIT = 5

--- Until when a request that is made now may change something. Milliseconds, like `time`, the time of the database.
function late.expiry(time) return time + late.LIMIT * 1000 end

local function key(resource, ticket) return resource.words .. " " .. ticket end

--- Notes that an acquire under this ticket may still be executed. `now`: the clock of this process.
function late.note(store, resource, ticket, now)
  local doubts = store.doubts or {}
  for each, doubt in pairs(doubts) do
    if doubt.now() > doubt.until_then then doubts[each] = nil end
  end
  doubts[key(resource, ticket)] = { now = now, until_then = now() + late.LIMIT }
  store.doubts = doubts
end

--- For how many seconds an acquire under this ticket may still be executed. A fenced store is one where it does nothing
-- after the next step.
function late.left(store, resource, ticket)
  local doubt = not store.fenced and (store.doubts or {})[key(resource, ticket)]
  return doubt and math.max(doubt.until_then - doubt.now(), 0) or 0
end

return late
