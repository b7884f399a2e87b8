-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Relates strikes to other events, by a book of digest.lua: which locks a strike concerns, what it excuses, and for
-- how long it may have kept a process from making progress.
local strikes = {}

strikes.GRACE = 1.5 -- seconds of delay that the machine may cause
strikes.SILENCE = 3.3 -- heartbeats until the broker has given up a silent client, and some time more

local CERTAIN = 2 -- heartbeats until a holder that receives nothing is not certain any more
local TOLD = 6 -- strikes that are listed at most

--- Whether a strike concerns this lock: its holder, all processes, or its queue; the queue of any slot, if the slot is
-- unknown.
function strikes.concerns(strike, hold)
  return strike.lane == "*" or strike.lane and strike.lane == hold.base
    or strike.pool ~= nil and strike.pool == hold.pool and (not hold.slot or strike.slot == hold.slot)
end

-- A lock acquired after the strike is not lost by the end of the struck connection. If another process has it, bolts
-- failed.
local function is_robbed(strike, hold)
  return strike.robs and hold.from > strike.from
end

--- The documented fault that freed a lock, if there was one, so that its holder may report it as held until `to`.
function strikes.excuse(book, hold, from, to)
  for _, strike in ipairs(book.strikes) do
    local is_then = strike.from <= from and strike.to >= hold.from and to - strike.to <= CERTAIN * book.heartbeat
    if strike.excuse and is_then and strikes.concerns(strike, hold) and not is_robbed(strike, hold) then
      return strike
    end
  end
end

--- The strikes in an interval as text, at most some of them: first those that concern the lock, then the latest.
function strikes.before(book, from, to, hold)
  local own, others = {}, {}
  for i = #book.strikes, 1, -1 do
    local strike = book.strikes[i]
    if strike.from <= to and strike.to >= from then
      local list = hold and strikes.concerns(strike, hold) and own or others
      local struck = strike.node and "node " .. strike.node or strike.lane
      table.insert(list, strike.fault .. (struck and " of " .. struck or ""))
    end
  end
  for _, one in ipairs(others) do table.insert(own, one) end
  return #own > 0 and table.concat(own, ", ", 1, math.min(TOLD, #own)) or "nothing"
end

--- Seconds of an interval in which a process was hindered: by any fault that hinders, each for as long as it says, or
-- only by the faults in `only`, while they last.
function strikes.hindered(book, lane, from, to, only)
  local seconds, reached = 0, from
  for _, strike in ipairs(book.hindering) do
    if (strike.lane == "*" or strike.lane == lane) and (not only or only[strike.fault]) then
      local begins, ends = math.max(strike.from, reached), math.min(strike.to + (only and 0 or strike.hinders), to)
      if ends > begins then
        seconds, reached = seconds + ends - begins, ends
      end
    end
  end
  return seconds
end

--- Seconds of periods with short processors that overlap an interval.
function strikes.stalled(book, from, to)
  local seconds = 0
  for _, stall in ipairs(book.stalls) do
    if stall.from < to and stall.at > from then seconds = seconds + stall.seconds end
  end
  return seconds
end

--- Whether anything was struck in an interval, or shortly before: the broker may not have noticed all of it.
function strikes.is_struck(book, from, to)
  for _, strike in ipairs(book.strikes) do
    if strike.from <= to and strike.to + strikes.SILENCE * book.heartbeat >= from then return true end
  end
end

return strikes
