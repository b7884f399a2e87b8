-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Reads what everybody wrote down (journal.lua), and says where that cannot have been right.
--
--     local findings = checker.check(records)
--     findings.violations        -- { { kind =, text =, from =, to =, lanes =, pool = }, … }
--     findings.exceptions        -- the same, of what is documented: overlaps after a fault of which the journal of the
--                                faults -- says that it frees locks at once while their holders learn it when the news
--                                arrive
--     findings.hand_overs        -- { [cause] = { seconds, … } }: from the end of a lock to the next one's, for those
--     who waited
--     checker.report(findings)   -- text
--
-- What is certain: a lock was held from the end of the first look that said so to the beginning of the last one. A look
-- takes its time, and nobody knows when in it the answer was true; a process that was stopped believes nothing until it
-- looks. So what is called an overlap here was one.
--
-- Kinds of violations: "overlap"; "false": somebody held what a witness saw was not there; "late": an act took longer
-- than it may; "stuck": somebody waited too long beside what was free; "lost": fewer, or more, could be taken at the
-- end than there are; "left": the broker still has what should be gone; "answer": an error code that nothing explains;
-- "robbed": a lock was lost and no fault had struck it, or was held again after that; "ended": a process ended
-- that nobody killed, or would not end.
local digest = require "spec.prove.digest"

local checker = {}

local GRACE = 1.5 -- seconds that the machine may be late
local SILENCE = 3.3 -- heartbeats until the broker has given up a client it does not hear, and some time more
local CERTAIN = 2 -- heartbeats until a holder who hears nothing is not certain any more
local WAITED = 0.02 -- seconds after which somebody who asked is taken for waiting

local function add(findings, list, finding)
  finding.at = finding.from
  table.insert(findings[list], finding)
end

-- Faults ------------------------------------------------------------------------------------------------------------

-- Whether a fault struck this lock: its holder, everybody, or its queue.
local function concerns(strike, hold)
  return strike.lane == "*" or strike.lane and strike.lane == hold.base
    or strike.pool ~= nil and strike.pool == hold.pool and strike.slot == hold.slot
end

-- The documented fault that freed a lock, if there was one, so that its holder may say that it holds it until `to`.
local function excuse(book, hold, from, to)
  for _, strike in ipairs(book.strikes) do
    if strike.excuse and strike.from <= from and strike.to >= hold.from and concerns(strike, hold)
      and to - strike.to <= CERTAIN * book.heartbeat then
      return strike
    end
  end
end

-- What struck in an interval, at most some of it: what concerns a lock first, then what came last.
local function strikes_before(book, from, to, hold)
  local own, others = {}, {}
  for i = #book.strikes, 1, -1 do
    local strike = book.strikes[i]
    if strike.from <= to and strike.to >= from then
      local list = hold and concerns(strike, hold) and own or others
      table.insert(list, strike.fault .. (strike.lane and " of " .. strike.lane or ""))
    end
  end
  for _, one in ipairs(others) do table.insert(own, one) end
  return #own > 0 and table.concat(own, ", ", 1, math.min(6, #own)) or "nothing"
end

-- Seconds of an interval that are in the windows of these strikes, each longer by its own `hinders`.
local function hindered(book, lane, from, to, only)
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

-- Overlaps ----------------------------------------------------------------------------------------------------------

local function what_of(hold)
  return hold.slot and ("slot %d of %s"):format(hold.slot, hold.pool) or hold.pool
end

local function overlap(book, findings, first, second)
  local from, to = second.from, math.min(first.to, second.to)
  local strike = excuse(book, first, from, to)
  add(findings, strike and "exceptions" or "violations", {
    kind = "overlap", pool = first.pool, slot = first.slot, from = from, to = to, lanes = { first.lane, second.lane },
    seconds = to - from, fault = strike and strike.fault, words = strike and strike.excuse,
    text = ("%s: %s (%s) and %s (%s) both held it for %.0f us; %s"):format(what_of(first), first.lane, first.kind,
      second.lane,
      second.kind, (to - from) * 1e6, strike and ("%s, %.1f ms before"):format(strike.excuse,
        (from - strike.from) * 1e3)
      or "before it: " .. strikes_before(book, first.from, from, first)),
  })
end

local function by_start(a, b)
  if a.from ~= b.from then return a.from < b.from end
  return a.number < b.number
end

-- Holds of one thing of which one at a time may be held, readers apart.
local function exclusive(book, findings, holds)
  local active = {}
  for _, hold in ipairs(holds) do
    local still = {}
    for _, other in ipairs(active) do
      if other.to > hold.from then
        table.insert(still, other)
        if not (other.kind == "read" and hold.kind == "read") then overlap(book, findings, other, hold) end
      end
    end
    table.insert(still, hold)
    active = still
  end
end

-- The most permits there may have been at a moment: any number that somebody may have made it, after the last that was
-- certainly made.
local function permits(pool, acts, at)
  local most, is_known = 0, false
  for _, act in ipairs(acts) do
    if act.slots and act.from <= at then
      local is_superseded = false
      for _, later in ipairs(acts) do
        if later.slots and later.result and later.from >= act.to and later.to <= at then is_superseded = true end
      end
      if not is_superseded then most = math.max(most, act.slots) end
      is_known = is_known or act.result and act.to <= at
    end
  end
  return is_known and most or math.max(most, pool.most)
end

local function crowded(book, findings, pool, active, hold, most)
  local to, strike, lanes = hold.to, nil, {}
  for _, other in ipairs(active) do
    to = math.min(to, other.to)
    table.insert(lanes, other.lane)
  end
  for _, other in ipairs(active) do strike = strike or excuse(book, other, hold.from, to) end
  add(findings, strike and "exceptions" or "violations", {
    kind = "overlap", pool = pool.name, from = hold.from, to = to, lanes = lanes, seconds = to - hold.from,
    fault = strike and strike.fault, words = strike and strike.excuse,
    text = ("%s: %d permits held at once for %.0f us, of %d, by %s; %s"):format(pool.name, #active,
      (to - hold.from) * 1e6,
      most, table.concat(lanes, ", "), strike and strike.excuse
      or "before it: " .. strikes_before(book, hold.from - 5, hold.from)),
  })
end

local function counted(book, findings, pool, holds)
  local active, acts = {}, book.acts[pool.name] or {}
  for _, hold in ipairs(holds) do
    local still = { hold }
    for _, other in ipairs(active) do
      if other.to > hold.from then table.insert(still, other) end
    end
    active = still
    if #active > pool.least then
      local most = permits(pool, acts, hold.from)
      if #active > most then crowded(book, findings, pool, active, hold, most) end
    end
  end
end

-- Locks that were certainly held for a time, by what they are of, in order.
local function certain_holds(book)
  local units = {}
  for _, hold in ipairs(book.holds) do
    if hold.from and hold.to and hold.to > hold.from then
      local key = hold.pool .. (hold.slot and "#" .. hold.slot or "")
      units[key] = units[key] or {}
      table.insert(units[key], hold)
    end
  end
  for _, holds in pairs(units) do table.sort(holds, by_start) end
  return units
end

local function find_overlaps(book, findings)
  for _, holds in pairs(certain_holds(book)) do
    local pool = book.pools[holds[1].pool]
    if pool.kind:sub(1, 5) == "token" then
      counted(book, findings, pool, holds)
    else
      exclusive(book, findings, holds)
    end
  end
end

-- What witnesses saw ------------------------------------------------------------------------------------------------

local function find_false_beliefs(book, findings)
  local units = certain_holds(book)
  for _, saw in ipairs(book.saws) do
    local holds = saw.what == "absent" and units[saw.pool .. (saw.slot and "#" .. saw.slot or "")] or {}
    for _, hold in ipairs(holds) do
      if hold.from > saw.from then break end
      local is_held = hold.to > saw.at and (not saw.kind or saw.kind == hold.kind)
      local strike = is_held and excuse(book, hold, saw.at, hold.to)
      if is_held then
        add(findings, strike and "exceptions" or "violations", {
          kind = "false", pool = saw.pool, slot = saw.slot, from = saw.from, to = hold.to, lanes = { hold.lane,
            saw.lane },
          seconds = hold.to - saw.from, fault = strike and strike.fault, words = strike and strike.excuse,
          text = ("%s: %s held it for %.0f us after %s had seen that nobody does; %s"):format(what_of(hold), hold.lane,
            (hold.to - saw.at) * 1e6, saw.lane, strike and strike.excuse
            or "before it: " .. strikes_before(book, hold.from, saw.at, hold)),
        })
      end
    end
  end
end

-- Losses ------------------------------------------------------------------------------------------------------------

-- Whether anything happened for which a holder may lose it, then or so long before as the broker takes to give him up.
local function may_be_lost(book, hold)
  local patience = SILENCE * book.heartbeat + GRACE
  for _, strike in ipairs(book.strikes) do
    if strike.from <= hold.lost and strike.to + patience >= hold.got and concerns(strike, hold) then return true end
  end
  for _, stall in ipairs(book.stalls) do
    if stall.from <= hold.lost and stall.at + patience >= hold.got then return true end
  end
end

local function find_robbed(book, findings)
  for _, hold in ipairs(book.holds) do
    local text
    if hold.lost and not may_be_lost(book, hold) then
      text = "%s: %s lost it, and nothing had struck it"
    elseif hold.lost and hold.to and hold.to > hold.lost then
      text = "%s: %s holds it after it was lost"
    end
    if text then
      add(findings, "violations", { kind = "robbed", pool = hold.pool, slot = hold.slot, from = hold.lost,
        to = hold.lost, lanes = { hold.lane }, text = text:format(what_of(hold), hold.lane) })
    end
  end
end

-- Time --------------------------------------------------------------------------------------------------------------

local STOPS = { stop = true }

local function find_late_acts(book, findings)
  for _, act in ipairs(book.deadlines) do
    local took = act.to - act.from
    local late = took - act.within - GRACE
    if late > 0 then late = late - hindered(book, act.base, act.from, act.to, STOPS) end
    for _, stall in ipairs(late > 0 and book.stalls or {}) do
      if stall.from < act.to and stall.at > act.from then late = late - stall.seconds end
    end
    if late > 0 then
      add(findings, "violations", { kind = "late", from = act.from, to = act.to, lanes = { act.lane }, pool = act.pool,
        text = ("%s: %s took %.2f s, and may take %.2f; meanwhile: %s"):format(act.lane, act.what, took, act.within,
          strikes_before(book, act.from, act.to)) })
    end
  end
end

-- When fewer than `capacity` of these holds were there, seen from those who let go: { from, to, hold that ended }.
local function free_stretches(holds, capacity, first, last)
  local events = {}
  for _, hold in ipairs(holds) do
    table.insert(events, { at = hold.got, change = 1, hold = hold })
    table.insert(events, { at = math.max(hold.ended, hold.got), change = -1, hold = hold })
  end
  table.sort(events, function(a, b)
    if a.at ~= b.at then return a.at < b.at end
    if a.change ~= b.change then return a.change > b.change end
    return a.hold.number < b.hold.number
  end)
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

-- What can be waited for: each with the locks that were held of it.
local function units_of(book)
  local units = {}
  local function unit(pool, slot)
    local key = pool.name .. (slot and "#" .. slot or "")
    units[key] = units[key] or { pool = pool, slot = slot, holds = {},
      capacity = pool.kind:sub(1, 5) == "token" and pool.least or 1 }
    return units[key]
  end
  for _, pool in pairs(book.pools) do
    local is_numbered = pool.kind == "classic" or pool.kind == "quorum"
    for slot = 1, is_numbered and pool.least or 1 do unit(pool, is_numbered and slot or nil) end
  end
  for _, hold in ipairs(book.holds) do
    if not hold.slot or hold.slot <= book.pools[hold.pool].least then
      table.insert(unit(book.pools[hold.pool], hold.slot).holds, hold)
    end
  end
  local list = {}
  for _, one in pairs(units) do table.insert(list, one) end
  table.sort(list, function(a, b)
    if a.pool.name ~= b.pool.name then return a.pool.name < b.pool.name end
    return (a.slot or 0) < (b.slot or 0)
  end)
  return list
end

-- Administrators take the permits that are free in hand for a moment, or for as long as they wait.
local function administered(book, pool, from, to)
  local seconds = 0
  for _, act in ipairs(pool.kind:sub(1, 5) == "token" and book.acts[pool.name] or {}) do
    seconds = seconds + math.max(0, math.min(act.to, to) - math.max(act.from, from))
  end
  return seconds
end

local function is_struck(book, from, to)
  for _, strike in ipairs(book.strikes) do
    if strike.from <= to and strike.to + SILENCE * book.heartbeat >= from then return true end
  end
end

local function check_wait(book, findings, unit, stretch, wait)
  local from, to = math.max(stretch.from, wait.from), math.min(stretch.to, wait.to)
  local limit = 2 * (wait.poll or 5) + GRACE
  if to - from <= limit then return end
  if is_struck(book, from - GRACE, to) then limit = limit + SILENCE * book.heartbeat end
  local waited = to - from - hindered(book, wait.base, from, to) - administered(book, unit.pool, from, to)
  for _, stall in ipairs(book.stalls) do
    if stall.from < to and stall.at > from then waited = waited - stall.seconds end
  end
  if waited <= limit then return end
  add(findings, "violations", { kind = "stuck", pool = wait.pool, slot = unit.slot, from = from, to = to,
    lanes = { wait.lane, stretch.hold and stretch.hold.lane },
    text = ("%s%s: %s waited for %.2f s beside it while it was free, and may for %.2f; before it: %s"):format(
      unit.slot and ("slot %d of "):format(unit.slot) or "", wait.pool, wait.lane, waited, limit,
      strikes_before(book, from - 5, from)) })
end

local function find_stuck_waiters(book, findings)
  for _, unit in ipairs(units_of(book)) do
    for _, stretch in ipairs(free_stretches(unit.holds, unit.capacity, book.first, book.last)) do
      if stretch.to - stretch.from > GRACE then
        for _, wait in ipairs(book.waits[unit.pool.name] or {}) do
          if wait.from < stretch.to and wait.to > stretch.from then check_wait(book, findings, unit, stretch, wait) end
        end
      end
    end
  end
end

-- Hand-overs --------------------------------------------------------------------------------------------------------

-- When and why a lock came free: with what struck its holder, if that cost him the lock, else with what he did.
local function vacancy(book, hold)
  if hold.killed and hold.gone_code ~= "lost" then return hold.killed, "SIGKILL" end
  if hold.gone_code ~= "lost" and hold.let then
    return hold.let, hold.how == "exit" and "exit without a word" or hold.how
  end
  for i = #book.strikes, 1, -1 do
    local strike = book.strikes[i]
    if strike.from <= hold.ended and strike.to >= hold.got and concerns(strike, hold) then
      return math.max(strike.from, hold.got), strike.fault
    end
  end
  return hold.ended, "lost"
end

local function is_waited_for(book, pool, at)
  for _, wait in ipairs(book.waits[pool] or {}) do
    if wait.from > at then return false end
    if wait.from < at - WAITED and wait.to > at then return true end
  end
end

local function measure(book, findings, unit)
  local free = {}
  for _, hold in ipairs(unit.holds) do
    if hold.ended < math.huge and not hold.into then
      local at, cause = vacancy(book, hold)
      if at < book.calm and is_waited_for(book, unit.pool.name, at) then
        table.insert(free, { at = at, cause = cause, hold = hold })
      end
    end
  end
  table.sort(free, function(a, b) return a.at < b.at end)
  local next_free = 1
  for _, hold in ipairs(unit.by_got) do
    local one = free[next_free]
    if one and one.at <= hold.got and hold.asked then
      next_free = next_free + 1
      if hold.asked < one.at - WAITED and one.hold ~= hold then
        local list = findings.hand_overs[one.cause] or {}
        findings.hand_overs[one.cause] = list
        table.insert(list, hold.got - one.at)
      end
    end
  end
end

local function find_hand_overs(book, findings)
  for _, unit in ipairs(units_of(book)) do
    if unit.pool.kind ~= "rwlock" then -- where who comes next is not who was waited for
      unit.by_got = {}
      for i, hold in ipairs(unit.holds) do unit.by_got[i] = hold end
      table.sort(unit.by_got, function(a, b)
        if a.got ~= b.got then return a.got < b.got end
        return a.number < b.number
      end)
      measure(book, findings, unit)
    end
  end
end

-- The end, and answers ----------------------------------------------------------------------------------------------

local function find_lost(book, findings)
  for name, counts in pairs(book.counts) do
    local last = counts[#counts]
    local is_right = last.taken == last.expected and last.expected >= last.least and last.expected <= last.most
    local text = ("%s: %d could be taken, of %d (%s)"):format(name, last.taken, last.expected, tostring(last.more))
    if not is_right then
      add(findings, "violations", { kind = "lost", pool = name, from = last.at, to = last.at, lanes = { last.lane },
        text = text })
    elseif #counts > 1 then
      local pool, first = book.pools[name], counts[1]
      text = ("%s: %d could be taken, of %d, until it was repaired"):format(name, first.taken, first.expected)
      local is_permitted = pool.kind:sub(1, 5) == "token" and book.can_lose_permits
      add(findings, is_permitted and "exceptions" or "violations", { kind = "lost", pool = name, from = first.at,
        to = last.at, lanes = { last.lane }, text = text, fault = "administrator or broker killed",
        words = "an administrator or the broker was killed", seconds = 0 })
    end
  end
  for _, left in ipairs(book.left) do
    add(findings, "violations", { kind = "left", from = left.at, to = left.at, lanes = {},
      text = "in the broker when all are gone: " .. left.message })
  end
end

local EXPECTED = {
  none = { "timeout", "busy", "contended", "deadlock", "unreachable", "blocked", "unavailable" },
  free = { "lost", "unreachable" },
  verified = { "lost", "unreachable", "removed" },
  downgraded = { "lost", "unreachable" },
  connected = { "unreachable" },
  closed = {},
  done = { "timeout", "busy", "unreachable", "lost", "blocked", "not_held", "unavailable" },
}
for _, codes in pairs(EXPECTED) do
  for i = #codes, 1, -1 do codes[codes[i]] = true end
end

-- Whether a client may be short of channels or descriptors.
local function is_short(book, answer)
  if book.flavours[answer.base] == "cramped" then return true end
  for _, strike in ipairs(book.strikes) do
    if strike.fault == "descriptors" and strike.lane == answer.base and strike.from <= answer.at
      and strike.to + 5 >= answer.at then
      return true
    end
  end
end

local function find_answers(book, findings)
  for _, answer in ipairs(book.answers) do
    local key = ("%s: %s"):format(answer.what, answer.code)
    findings.answers[key] = (findings.answers[key] or 0) + 1
    local codes = EXPECTED[answer.act]
    local is_explained = codes and codes[answer.code] or answer.code == "limit" and is_short(book, answer)
    local is_early = answer.code == "timeout" and answer.within and answer.at - answer.from < answer.within
    if codes and (not is_explained or is_early) then
      add(findings, "violations", { kind = "answer", from = answer.from, to = answer.at, lanes = { answer.lane },
        pool = answer.pool, text = ("%s: %s: %s; before it: %s"):format(answer.lane, answer.what,
          answer.message or answer.code, strikes_before(book, answer.from - 3, answer.at)) })
    end
  end
end

local function find_ended(book, findings)
  for _, ended in ipairs(book.unexplained) do
    add(findings, "violations", { kind = "ended", from = ended.at, to = ended.at, lanes = { ended.lane },
      text = ended.text })
  end
end

--- Checks records of all lanes, in the order of time.
function checker.check(records)
  local book = digest.of(records)
  local findings = { violations = {}, exceptions = {}, hand_overs = {}, answers = {}, book = book }
  for _, find in ipairs{ find_overlaps, find_false_beliefs, find_robbed, find_late_acts, find_stuck_waiters,
    find_hand_overs, find_lost, find_answers, find_ended } do
    find(book, findings)
  end
  for _, list in ipairs{ findings.violations, findings.exceptions } do
    table.sort(list, function(a, b)
      if a.at ~= b.at then return a.at < b.at end
      return a.text < b.text
    end)
  end
  return findings
end

-- The report --------------------------------------------------------------------------------------------------------

local function quantile(sorted, q) return sorted[math.max(1, math.ceil(#sorted * q))] end

local function sorted_keys(list)
  local keys = {}
  for key in pairs(list) do table.insert(keys, key) end
  table.sort(keys)
  return keys
end

local function exceptions_by_words(findings)
  local kinds = {}
  for _, one in ipairs(findings.exceptions) do
    local key = ("%s, %s"):format(one.kind, one.words)
    kinds[key] = kinds[key] or {}
    table.insert(kinds[key], one.seconds)
  end
  return kinds
end

--- Findings as text. `strikes`: how many there were of each fault.
function checker.report(findings, strikes)
  local book, lines = findings.book, {}
  local function say(...) table.insert(lines, (...):format(select(2, ...))) end
  say("%.0f s, %d processes, %d locks held, %d waits, %d looks of witnesses", book.last - book.first, book.processes,
    #book.holds, book.wait_count, #book.saws)
  for _, name in ipairs(sorted_keys(book.pools)) do
    say("  %-14s %6d locks held", book.pools[name].kind, book.held_of[name] or 0)
  end
  say("faults:")
  for _, name in ipairs(sorted_keys(strikes or {})) do say("  %-14s %6d", name, strikes[name]) end
  say("hand-overs to those who waited, by what ended the lock before (ms):%16s %8s %8s %8s", "n", "median", "p99",
    "max")
  for _, cause in ipairs(sorted_keys(findings.hand_overs)) do
    local list = findings.hand_overs[cause]
    table.sort(list)
    say("  %-76s %6d %8.1f %8.1f %8.1f", cause, #list, quantile(list, 0.5) * 1e3, quantile(list, 0.99) * 1e3,
      list[#list] * 1e3)
  end
  say("answers:")
  for _, key in ipairs(sorted_keys(findings.answers)) do say("  %-40s %6d", key, findings.answers[key]) end
  if #book.stalls > 0 then say("short of processors: %d times, %.1f s in all", #book.stalls, book.stalled) end
  say("documented exceptions: %d", #findings.exceptions)
  local kinds = exceptions_by_words(findings)
  for _, key in ipairs(sorted_keys(kinds)) do
    local list = kinds[key]
    table.sort(list)
    say("  %-76s %6d, median %.1f ms, at most %.1f ms", key, #list, quantile(list, 0.5) * 1e3, list[#list] * 1e3)
  end
  say("violations: %d", #findings.violations)
  for i, one in ipairs(findings.violations) do
    if i <= 50 then say("  %s at %.6f: %s", one.kind, one.from - book.first, one.text) end
  end
  return table.concat(lines, "\n") .. "\n"
end

return checker
