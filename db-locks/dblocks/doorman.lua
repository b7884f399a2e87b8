-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The algorithm of mutexes and readers–writer locks: one pure function that decides what a step does to the row of a
-- resource. The function runs in this process (SQL, Cassandra) or in the Redis server, so it is kept as a text, in Lua
-- 5.1, without a global.
--
--     outcome, deed, detail = decide(row, verb, ticket, now, since)
--
-- `row` is what is stored of the resource, nil if nothing is:
--
--     ticket              of the writer or the mutex that holds it; "readers" if readers do, or a writer waits
--     acquired_at         since when (milliseconds, by the database's clock, as all times here)
--     inside, since       with "readers": how many there are, and since when `ticket` is one of them (nil: it is not).
--                         `inside` is nil if others than dblocks know who they are
--     pending, pending_at with "readers": the ticket of the writer that waits, and when it said so last
--
-- Verbs: "read", "write"; "wait", as write, but a writer that finds readers keeps new ones out; "withdraw" (to wait no
-- longer); and those of a holder: "leave" (to release), "verify", "downgrade", "adopt" (to take over what an earlier
-- acquire of this ticket holds). `since` tells which lock that is: what the ticket has got anew is another one.
--
-- Outcomes: "held", and since when; "mine", and since when: this ticket held it before; "busy", and the ticket of the
-- writer that holds it or waits, or "readers"; "foreign" (readers whom only others know); "released"; "lost" (nothing
-- of that ticket is there).
--
-- Deeds, the change to be stored; nil: none. In one atomic step with the reading of the row:
--
--     alone     the row is the writer's
--     enter     one reader more, of the first or to the others
--     exit      one reader less
--     free      nothing is left of the row
--     announce  the writer waits
--     withdraw  it does no longer
--     share     the writer is the first reader
--     renew     the holder has it since a millisecond later, so a step of an earlier one does not end it
--
-- Each step may be repeated when its answer was lost: a ticket that has the lock is told so, and nothing changes.
--
-- A lock never times out. But a waiting writer holds nothing: it announces itself every 3 seconds, and after 10
-- seconds of silence it is passed over. Otherwise a dead one would keep all readers out for ever. Differences of both
-- signs count, as the clock may have been set back.
local doorman = {}

doorman.source = [[
local function decide(row, verb, ticket, now, since)
  local REFRESH, SILENCE = 3000, 10000
  local acquires = verb == "read" or verb == "write" or verb == "wait"
  if not row then
    if not acquires then return "lost" end
    return "held", verb == "read" and "enter" or "alone", now
  end
  local is_crowd = row.ticket == "readers"
  if is_crowd and not row.inside then return acquires and "foreign" or "lost" end
  local mine
  if is_crowd then mine = row.since elseif row.ticket == ticket then mine = row.acquired_at end
  local waits = row.pending == ticket
  local age = row.pending and (now > row.pending_at and now - row.pending_at or row.pending_at - now)
  local is_closed = row.pending and age < SILENCE
  if verb == "withdraw" then
    if not waits then return "lost" end
    return "released", row.inside == 0 and "free" or "withdraw"
  elseif not acquires then
    if not mine or since and since ~= mine then return "lost" end
    if verb == "leave" then return "released", is_crowd and (row.inside > 1 or is_closed) and "exit" or "free" end
    if verb == "adopt" then return "held", "renew", mine + 1 end
    return "held", verb == "downgrade" and not is_crowd and "share" or nil, mine
  end
  if not is_crowd then
    if mine and verb ~= "read" then return "mine", nil, mine end
    return "busy", nil, row.ticket
  end
  if verb == "read" then
    if mine then return "mine", nil, mine end
    if is_closed then return "busy", nil, row.pending end
    return "held", "enter", now
  end
  if is_closed and not waits then return "busy", nil, row.pending end
  if row.inside == 0 then return "held", "alone", now end
  return "busy", verb == "wait" and not (waits and age < REFRESH) and "announce" or nil, "readers"
end
]]

doorman.decide = (rawget(_G, "loadstring") or load)(doorman.source .. "return decide", "=dblocks.doorman")()

return doorman
