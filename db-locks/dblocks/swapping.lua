-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A step on a database that can compare and swap: the row is read, the doorman decides, and the new row is written if
-- nobody has changed the row meanwhile. A lost race begins again.
--
-- A store has these functions; each may return nil, message, code instead:
--
--     store:read(one, resource) -> row | false, now       a full row, see below; now in milliseconds
--     store:swap(one, resource, before, after) -> boolean true: it was `before` (false: nothing), now it is `after`
--     store:claim(one, resource, ticket) -> time | false  an acquire without a look: puts the row of a lone writer
--     store:clear(one, resource, ticket, since) -> boolean  a release without a look: deletes that row of a lone writer
--
-- After false the last three may return what read() returns: they had to look. `one` may have an expiry, from which on
-- they change nothing.
--
-- A full row: ticket, acquired_at, revision; with ticket "readers" also readers (a table from ticket to time), pending,
-- pending_at; is_foreign: others know who the readers are. Each row that is written for readers has a new random
-- revision: `before` is found again by that.
local doorman = require "dblocks.doorman"
local ticket = require "dblocks.ticket"

local RACES = 64

local swapping = {}

--- What the doorman sees of a row.
local function seen(row, mine)
  if not row then return nil end
  if row.ticket ~= "readers" then return row end
  local inside = 0
  for _ in pairs(row.readers) do inside = inside + 1 end
  return {
    ticket = "readers", acquired_at = row.acquired_at, since = row.readers[mine], pending = row.pending,
    pending_at = row.pending_at, inside = not row.is_foreign and inside or nil,
  }
end

local function crowd(row)
  local readers = {}
  for each, since in pairs(row.readers or {}) do readers[each] = since end
  return {
    ticket = "readers", acquired_at = row.acquired_at, readers = readers, pending = row.pending,
    pending_at = row.pending_at, revision = assert(ticket.random(8), "/dev/urandom cannot be read"),
  }
end

-- Each deed returns the row after it; false: nothing is left.
local deeds = {}

function deeds.free() return false end

function deeds.alone(_, mine, now) return { ticket = mine, acquired_at = now } end

function deeds.enter(row, mine, now)
  local after = crowd(row or { acquired_at = now })
  after.readers[mine] = now
  return after
end

function deeds.exit(row, mine)
  local after = crowd(row)
  after.readers[mine] = nil
  return after
end

function deeds.announce(row, mine, now)
  local after = crowd(row)
  after.pending, after.pending_at = mine, now
  return after
end

function deeds.withdraw(row)
  local after = crowd(row)
  after.pending, after.pending_at = nil, nil
  return after
end

function deeds.share(row, mine)
  local after = crowd { acquired_at = row.acquired_at }
  after.readers[mine] = row.acquired_at
  return after
end

function deeds.renew(row, mine, _, since)
  if row.ticket ~= "readers" then return { ticket = mine, acquired_at = since } end
  local after = crowd(row)
  after.readers[mine] = since
  return after
end

-- `row` and `now`: what was read already.
local function decided(store, one, resource, verb, mine, held_since, row, now)
  for _ = 1, RACES do
    local code, message, why, swapped
    if not now then row, now, code = store:read(one, resource) end
    if row == nil then return nil, now, code end
    if one.expiry and now >= one.expiry then return "late", now end
    local outcome, deed, detail = doorman.decide(seen(row, mine), verb, mine, now, held_since)
    if not deed then return outcome, detail end
    swapped, message, why = store:swap(one, resource, row, deeds[deed](row, mine, now, detail))
    if swapped then return outcome, detail end
    if swapped == nil then return nil, message, why end
    row, now = message, why
  end
  return nil, ("contended: %s changed during each of %d attempts"):format(resource.words, RACES), "contended"
end

--- One step. `since`: since when the ticket holds it; `is_reader`: the ticket is known to be a reader's.
function swapping.step(store, one, resource, verb, mine, since, is_reader)
  local done, row, now
  if verb == "write" or verb == "wait" then
    done, row, now = store:claim(one, resource, mine)
    if done then return "held", done end
    if done == nil then return nil, row, now end
  elseif verb == "leave" and not is_reader then
    done, row, now = store:clear(one, resource, mine, since)
    if done then return "released" end
    if done == nil then return nil, row, now end
  end
  return decided(store, one, resource, verb, mine, since, row, now)
end

return swapping
