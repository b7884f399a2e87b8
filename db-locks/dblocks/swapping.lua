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
--     store:clear(one, resource, ticket) -> boolean       a release without a look: deletes the row of that lone writer
--
-- A full row: ticket, acquired_at, revision; with ticket "readers" also readers (a table from ticket to time), pending,
-- pending_at. Each row that is written for readers has a new random revision: `before` is found again by that.
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
    ticket = "readers", acquired_at = row.acquired_at, inside = inside, since = row.readers[mine],
    pending = row.pending, pending_at = row.pending_at,
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

local function decided(store, one, resource, verb, mine)
  for _ = 1, RACES do
    local row, now, code = store:read(one, resource)
    if row == nil then return nil, now, code end
    local outcome, deed, detail = doorman.decide(seen(row, mine), verb, mine, now)
    if not deed then return outcome, detail end
    local swapped, message, why = store:swap(one, resource, row, deeds[deed](row, mine, now))
    if swapped then return outcome, detail end
    if swapped == nil then return nil, message, why end
  end
  return nil, ("contended: %s changed during each of %d attempts"):format(resource.words, RACES), "contended"
end

--- One step. `is_reader`: the ticket is known to be a reader's.
function swapping.step(store, one, resource, verb, mine, is_reader)
  if verb == "write" or verb == "wait" then
    local since, message, code = store:claim(one, resource, mine)
    if since then return "held", since end
    if since == nil then return nil, message, code end
  elseif verb == "leave" and not is_reader then
    local cleared, message, code = store:clear(one, resource, mine)
    if cleared then return "released" end
    if cleared == nil then return nil, message, code end
  end
  return decided(store, one, resource, verb, mine)
end

return swapping
