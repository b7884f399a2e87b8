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
-- they change nothing. store.sleep is the caller's own way to wait, or nil.
--
-- A full row: ticket, acquired_at, revision; with ticket "readers" also readers, a text "ticket,ms ticket,ms", and
-- inside, how many these are; pending, pending_at; is_foreign: others know who the readers are. Nobody takes the text
-- apart: among a thousand readers that would cost each step milliseconds. Each row that is written for readers has a
-- new random revision: `before` is found again by that.
local clock = require "dblocks.clock"
local doorman = require "dblocks.doorman"
local ticket = require "dblocks.ticket"

local RACES = 64
local PAUSE = 0.002 -- seconds, about, after a lost race: those who try again at once keep each other from getting on

local swapping = {}

-- The text of readers without one of them, and since when that one is there; nil: it is not.
local function without(readers, mine)
  local all = " " .. readers
  local from, to = all:find(" " .. mine .. ",", 1, true)
  if not from then return readers, nil end
  local after = all:find(" ", to, true) or #all + 1
  return (all:sub(1, from - 1) .. all:sub(after)):sub(2), tonumber(all:sub(to + 1, after - 1))
end

local function with(readers, mine, since)
  return ("%s%s%s,%.0f"):format(readers, readers == "" and "" or " ", mine, since)
end

--- What the doorman sees of a row.
local function seen(row, mine)
  if not row or row.ticket ~= "readers" then return row or nil end
  local _, since = without(row.readers, mine)
  return {
    ticket = "readers", acquired_at = row.acquired_at, since = since, pending = row.pending,
    pending_at = row.pending_at, inside = not row.is_foreign and row.inside or nil,
  }
end

--- Whether a full row has that lock.
function swapping.is_held(row, mine, since)
  return doorman.decide(seen(row, mine), "verify", mine, row.acquired_at, since) == "held"
end

local function crowd(acquired_at, readers, pending, pending_at)
  return {
    ticket = "readers", acquired_at = acquired_at, readers = readers, pending = pending, pending_at = pending_at,
    revision = assert(ticket.random(8), "/dev/urandom cannot be read"),
  }
end

-- Each deed returns the row after it; false: nothing is left.
local deeds = {}

function deeds.free() return false end

function deeds.alone(_, mine, now) return { ticket = mine, acquired_at = now } end

function deeds.enter(row, mine, now)
  row = row or { acquired_at = now, readers = "" }
  return crowd(row.acquired_at, with(row.readers, mine, now), row.pending, row.pending_at)
end

function deeds.exit(row, mine)
  local others = without(row.readers, mine)
  return crowd(row.acquired_at, others, row.pending, row.pending_at)
end

function deeds.announce(row, mine, now) return crowd(row.acquired_at, row.readers, mine, now) end

function deeds.withdraw(row) return crowd(row.acquired_at, row.readers) end

function deeds.share(row, mine) return crowd(row.acquired_at, with("", mine, row.acquired_at)) end

function deeds.renew(row, mine, _, since)
  if row.ticket ~= "readers" then return { ticket = mine, acquired_at = since } end
  local others = without(row.readers, mine)
  return crowd(row.acquired_at, with(others, mine, since), row.pending, row.pending_at)
end

-- `row` and `now`: what was read already.
local function decided(store, one, resource, verb, mine, held_since, row, now)
  for nth = 1, RACES do
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
    local sleep = clock.find(store.sleep)
    if sleep then pcall(sleep, PAUSE * math.random() * math.min(nth, 8)) end
  end
  return nil, ("contended: %s changed during each of %d attempts"):format(resource.words, RACES), "contended"
end

--- One step. `since`: since when the ticket holds it; `is_reader`: the ticket is known to be a reader's.
function swapping.step(store, one, resource, verb, mine, since, is_reader)
  local outcome, done, row, now = "held", false, nil, nil
  if verb == "write" or verb == "wait" then
    done, row, now = store:claim(one, resource, mine)
  elseif verb == "leave" and not is_reader then
    outcome, done, row, now = "released", store:clear(one, resource, mine, since)
  end
  if done then return outcome, done end
  if done == nil then return nil, row, now end
  return decided(store, one, resource, verb, mine, since, row, now)
end

return swapping
