-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What faults have to do with what happened, by a book of digest.lua: whom a strike concerns, what it excuses, and for
-- how long it may have kept somebody from getting anywhere.
local strikes = {}

strikes.GRACE = 1.5 -- seconds that the machine may be late
strikes.SILENCE = 3.3 -- heartbeats until the broker has given up a client it does not hear, and some time more

local CERTAIN = 2 -- heartbeats until a holder who hears nothing is not certain any more
local TOLD = 6 -- strikes that are told of at most

--- Whether it struck this lock: its holder, everybody, or its queue; that of any slot, if nobody knows which it was.
function strikes.concerns(strike, hold)
  return strike.lane == "*" or strike.lane and strike.lane == hold.base
    or strike.pool ~= nil and strike.pool == hold.pool and (not hold.slot or strike.slot == hold.slot)
end

-- What was had only after the strike is not lost by that connection's end: if another has it, bolts have failed.
local function is_robbed(strike, hold)
  return strike.robs and hold.from > strike.from
end

--- The documented fault that freed a lock, if there was one, so that its holder may say that it holds it until `to`.
function strikes.excuse(book, hold, from, to)
  for _, strike in ipairs(book.strikes) do
    local is_then = strike.from <= from and strike.to >= hold.from and to - strike.to <= CERTAIN * book.heartbeat
    if strike.excuse and is_then and strikes.concerns(strike, hold) and not is_robbed(strike, hold) then
      return strike
    end
  end
end

--- In words, what struck in an interval, at most some of it: what concerns a lock first, then what came last.
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

--- Seconds of an interval in which somebody was hindered: by any fault that hinders, each for as long as it says, or
-- `only` by some of them, while they last.
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

--- Seconds of the times in which processors were short and which touch an interval.
function strikes.stalled(book, from, to)
  local seconds = 0
  for _, stall in ipairs(book.stalls) do
    if stall.from < to and stall.at > from then seconds = seconds + stall.seconds end
  end
  return seconds
end

--- Whether anything struck anybody in an interval, or so long before that the broker may not have noticed all of it.
function strikes.is_struck(book, from, to)
  for _, strike in ipairs(book.strikes) do
    if strike.from <= to and strike.to + strikes.SILENCE * book.heartbeat >= from then return true end
  end
end

return strikes
