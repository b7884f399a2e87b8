-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Waiters, by a book of digest.lua: whether they waited beside a free lock, and how long after the end of a lock the
-- next waiter had it.
--
--     waits.beside_free(book, function(violation) … end)    -- called for each wait that was too long; see checker.lua
--     local hand_overs = waits.hand_overs(book)             -- { [cause] = { seconds, … } }
local pools = require "tools.prove.pools"
local strikes = require "tools.prove.strikes"

local waits = {}

local WAITED = 0.02 -- seconds after which a caller counts as waiting

-- What can be waited for --------------------------------------------------------------------------------------------

local function by_name(a, b)
  if a.pool.name ~= b.pool.name then return a.pool.name < b.pool.name end
  return (a.slot or 0) < (b.slot or 0)
end

-- Each slot or pool of which at least `capacity` locks can be held at a time, with the locks that were held of it.
local function units_of(book)
  local units, list = {}, {}
  local function unit(pool, slot)
    local key = pool.name .. (slot and "#" .. slot or "")
    if not units[key] then
      units[key] = { pool = pool, slot = slot, holds = {}, capacity = pools.is_token(pool) and pool.least or 1 }
      table.insert(list, units[key])
    end
    return units[key]
  end
  for _, pool in pairs(book.pools) do
    local is_numbered = pools.is_numbered(pool)
    for slot = 1, is_numbered and pool.least or 1 do unit(pool, is_numbered and slot or nil) end
  end
  for _, hold in ipairs(book.holds) do
    local pool = book.pools[hold.pool]
    if not hold.slot or hold.slot <= pool.least then table.insert(unit(pool, hold.slot).holds, hold) end
  end
  table.sort(list, by_name)
  return list
end

-- Waiting beside what is free ---------------------------------------------------------------------------------------

-- Of simultaneous events, beginnings come before ends.
local function by_time(a, b)
  if a.at ~= b.at then return a.at < b.at end
  if a.change ~= b.change then return a.change > b.change end
  return a.hold.number < b.hold.number
end

-- The periods in which fewer than `capacity` of these holds existed, by the releasing side: { from, to, hold that ended
-- }.
local function free_stretches(holds, capacity, first, last)
  local events = {}
  for _, hold in ipairs(holds) do
    table.insert(events, { at = hold.got, change = 1, hold = hold })
    table.insert(events, { at = math.max(hold.ended, hold.got), change = -1, hold = hold })
  end
  table.sort(events, by_time)
  local list, count, since, ended = {}, 0, first, nil
  for _, event in ipairs(events) do
    count = count + event.change
    if since and count >= capacity then
      table.insert(list, { from = since, to = event.at, hold = ended })
      since = nil
    elseif not since and count < capacity then
      since, ended = event.at, event.hold
    end
  end
  if since and since < last then table.insert(list, { from = since, to = last, hold = ended }) end
  return list
end

-- Administrators hold free permits for a moment, or for as long as they wait.
local function administered(book, pool, from, to)
  local seconds = 0
  for _, act in ipairs(pools.is_token(pool) and book.acts[pool.name] or {}) do
    seconds = seconds + math.max(0, math.min(act.to, to) - math.max(act.from, from))
  end
  return seconds
end

local function check_wait(book, unit, stretch, wait, found)
  local from, to = math.max(stretch.from, wait.from), math.min(stretch.to, wait.to)
  local limit = 2 * (wait.poll or 5) + strikes.GRACE
  if to - from <= limit then return end
  if strikes.is_struck(book, from - strikes.GRACE, to) then limit = limit + strikes.SILENCE * book.heartbeat end
  local waited = to - from - strikes.hindered(book, wait.base, from, to) - administered(book, unit.pool, from, to)
    - strikes.stalled(book, from, to)
  if waited <= limit then return end
  local what = (unit.slot and ("slot %d of "):format(unit.slot) or "") .. wait.pool
  found{
    kind = "stuck", pool = wait.pool, slot = unit.slot, from = from, to = to,
    lanes = { wait.lane, stretch.hold and stretch.hold.lane },
    text = ("%s: %s waited for %.2f s beside it while it was free (limit %.2f); before it: %s"):format(what,
      wait.lane, waited, limit, strikes.before(book, from - 5, from)),
  }
end

--- Calls found(violation) for each wait that was too long.
function waits.beside_free(book, found)
  for _, unit in ipairs(units_of(book)) do
    for _, stretch in ipairs(free_stretches(unit.holds, unit.capacity, book.first, book.last)) do
      if stretch.to - stretch.from > strikes.GRACE then
        for _, wait in ipairs(book.waits[unit.pool.name] or {}) do
          if wait.from < stretch.to and wait.to > stretch.from then check_wait(book, unit, stretch, wait, found) end
        end
      end
    end
  end
end

-- Hand-overs --------------------------------------------------------------------------------------------------------

-- When and why a lock became free: by the strike that cost the holder the lock, otherwise by the holder's own act.
local function vacancy(book, hold)
  if hold.killed and hold.gone_code ~= "lost" then return hold.killed, "SIGKILL" end
  if hold.gone_code ~= "lost" and hold.let then
    return hold.let, hold.how == "exit" and "exit without close" or hold.how
  end
  for i = #book.strikes, 1, -1 do
    local strike = book.strikes[i]
    if strike.from <= hold.ended and strike.to >= hold.got and strikes.concerns(strike, hold) then
      return math.max(strike.from, hold.got), strike.fault
    end
  end
  return hold.ended, "lost"
end

-- Returns a function that tells whether a caller had been waiting at a moment for some time. The waits are in the order
-- of their beginning; for each it stores the latest end of all waits up to it.
local function waiting_at(list)
  local lasts, latest = {}, -math.huge
  for i, wait in ipairs(list) do
    latest = math.max(latest, wait.to)
    lasts[i] = latest
  end
  return function(at)
    local low, high = 0, #list
    while low < high do
      local middle = math.ceil((low + high) / 2)
      if list[middle].from < at - WAITED then low = middle else high = middle - 1 end
    end
    return low > 0 and lasts[low] > at
  end
end

-- When it became free while a caller waited, in order: { at, cause, hold that ended }.
local function vacancies(book, unit)
  local list, is_waited_for = {}, waiting_at(book.waits[unit.pool.name] or {})
  for _, hold in ipairs(unit.holds) do
    if hold.ended < math.huge and not hold.into then
      local at, cause = vacancy(book, hold)
      if at < book.calm and is_waited_for(at) then
        table.insert(list, { at = at, cause = cause, hold = hold })
      end
    end
  end
  table.sort(list, function(a, b) return a.at < b.at end)
  return list
end

local function holds_by_got(unit)
  local list = {}
  for i, hold in ipairs(unit.holds) do list[i] = hold end
  table.sort(list, function(a, b)
    if a.got ~= b.got then return a.got < b.got end
    return a.number < b.number
  end)
  return list
end

-- The first lock acquired after an end is the hand-over of that end; it counts if its caller had waited.
local function measure(book, unit, hand_overs)
  local free, next_free = vacancies(book, unit), 1
  for _, hold in ipairs(holds_by_got(unit)) do
    local one = free[next_free]
    if one and one.at <= hold.got and hold.asked then
      next_free = next_free + 1
      if hold.asked < one.at - WAITED and one.hold ~= hold then
        hand_overs[one.cause] = hand_overs[one.cause] or {}
        table.insert(hand_overs[one.cause], hold.got - one.at)
      end
    end
  end
end

--- The time from the end of a lock to the next one, for waiters, by the cause of the end.
function waits.hand_overs(book)
  local hand_overs = {}
  for _, unit in ipairs(units_of(book)) do
    if unit.pool.kind ~= "rwlock" then measure(book, unit, hand_overs) end -- its next holder is not determined
  end
  return hand_overs
end

return waits
