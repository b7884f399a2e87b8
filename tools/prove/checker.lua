-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Reads the journals of all processes (journal.lua), and reports what cannot have been right.
--
--     local findings = checker.check(records)
--     findings.violations   -- { { kind =, text =, from =, to =, lanes =, pool = }, … }
--     findings.exceptions   -- the same for documented exceptions: overlaps after a fault which, by the journal of the
--                              faults, frees locks at once, while their holders are notified later
--     findings.hand_overs   -- { [cause] = { seconds, … } }: see waits.lua
--     findings.answers      -- { ["act: code"] = how often }
--     findings.book         -- see digest.lua
--
-- What is certain: a lock was held from the end of the first check (call of held()) that returned true to the beginning
-- of the last one. A check takes time, and at which moment in it the answer was true is unknown. A stopped process
-- believes nothing until it checks. So every reported overlap is a real one.
--
-- Kinds of violations: "overlap"; "fence": a fencing token was given twice, or out of order; "false": a lock was
-- reported as held whose queue a witness saw absent; "late": an act took longer than allowed; "stuck": a waiter waited
-- too long beside a free lock; "lost": at the end fewer, or more, locks could be acquired than exist; "left": the
-- broker still has what should be gone; "answer": an error code without a reason; "robbed": a lock was lost without a
-- fault, or was held again after its loss; "ended": a process ended that was not killed, or did not end when told to.
local digest = require "tools.prove.digest"
local pools = require "tools.prove.pools"
local strikes = require "tools.prove.strikes"
local waits = require "tools.prove.waits"

local checker = {}

local function wrong(findings, finding) table.insert(findings.violations, finding) end

-- Records a violation, or a documented exception if a fault excuses it. Its duration is recorded in both cases.
local function wrong_unless(findings, strike, finding)
  finding.seconds = finding.seconds or finding.to - finding.from
  if not strike then return wrong(findings, finding) end
  finding.fault, finding.words = strike.fault, strike.excuse
  table.insert(findings.exceptions, finding)
end

-- The strikes between two times, if no fault excuses the event after them.
local function cause(book, strike, from, to, hold)
  return strike and strike.excuse or "before it: " .. strikes.before(book, from, to, hold)
end

local function microseconds(from, to) return ("%.0f us"):format((to - from) * 1e6) end

local function what_of(hold) return hold.slot and ("slot %d of %s"):format(hold.slot, hold.pool) or hold.pool end

-- Overlaps ----------------------------------------------------------------------------------------------------------

local function overlap(book, findings, first, second)
  local from, to = second.from, math.min(first.to, second.to)
  local strike = strikes.excuse(book, first, from, to)
  local why = cause(book, strike, first.from, from, first)
  if strike then why = ("%s, %.1f ms before"):format(why, (from - strike.from) * 1e3) end
  wrong_unless(findings, strike, {
    kind = "overlap", pool = first.pool, slot = first.slot, from = from, to = to, lanes = { first.lane, second.lane },
    text = ("%s: %s (%s) and %s (%s) both held it for %s; %s"):format(what_of(first), first.lane, first.kind,
      second.lane, second.kind, microseconds(from, to), why),
  })
end

local function by_start(a, b)
  if a.from ~= b.from then return a.from < b.from end
  return a.number < b.number
end

-- Holds of a thing that only one process may hold at a time, except readers.
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

-- Fencing tokens: none is given twice. Of two holds, one of which certainly ended before the other certainly began, the
-- later one has the larger.
local function fenced(findings, pool, holds)
  local largest, numbered = nil, {}
  for _, hold in ipairs(holds) do
    if hold.fence then table.insert(numbered, hold) end -- a witness takes it without a number
  end
  local function check(hold, other, is_wrong)
    if not is_wrong then return end
    local text = "%s: %s has the number %.0f, after %s had %.0f"
    wrong(findings, { kind = "fence", pool = pool.name, from = other.from, to = hold.from,
      lanes = { hold.lane, other.lane },
      text = text:format(pool.name, hold.lane, hold.fence, other.lane, other.fence) })
  end
  local seen, ended = {}, {}
  for i, hold in ipairs(numbered) do ended[i] = hold end
  table.sort(ended, function(a, b) return a.to < b.to end)
  local next_ended = 1
  for _, hold in ipairs(numbered) do -- in the order of `from`
    while ended[next_ended] and ended[next_ended].to <= hold.from do
      local other = ended[next_ended]
      if not largest or other.fence > largest.fence then largest = other end
      next_ended = next_ended + 1
    end
    if largest and largest ~= hold then check(hold, largest, hold.fence <= largest.fence) end
    if seen[hold.fence] then check(hold, seen[hold.fence], true) end
    seen[hold.fence] = hold
  end
end

-- The same for the permits of a quorum queue: each permit has numbers of its own.
local function fenced_permits(findings, pool, holds)
  local ids, of_permit = {}, {}
  for _, hold in ipairs(holds) do
    local id = hold.permit
    if id and not of_permit[id] then
      of_permit[id] = {}
      table.insert(ids, id)
    end
    if id then table.insert(of_permit[id], hold) end
  end
  for _, id in ipairs(ids) do fenced(findings, pool, of_permit[id]) end
end

-- The items of a list that are wanted, sorted by one of their times.
local function sorted(list, time, is_wanted)
  local copy = {}
  for _, one in ipairs(list) do
    if is_wanted(one) then table.insert(copy, one) end
  end
  table.sort(copy, function(a, b) return a[time] < b[time] end)
  return copy
end

-- Returns a function that returns the greatest possible number of permits at a moment: the last number that was
-- certainly set, or any that an administrator may have set since. Its calls must be in the order of time.
local function most_permits(pool, acts)
  local begun = sorted(acts, "from", function(act) return act.slots end)
  local made = sorted(acts, "to", function(act) return act.slots and act.result end)
  local next_begun, next_made, superseded = 1, 1, -math.huge
  local open, is_known = {}, false
  return function(at)
    while made[next_made] and made[next_made].to <= at do
      superseded = math.max(superseded, made[next_made].from)
      is_known, next_made = true, next_made + 1
    end
    while begun[next_begun] and begun[next_begun].from <= at do
      table.insert(open, begun[next_begun])
      next_begun = next_begun + 1
    end
    local most, still = 0, {}
    for _, act in ipairs(open) do
      if act.to > superseded then
        most = math.max(most, act.slots)
        table.insert(still, act)
      end
    end
    open = still
    return is_known and most or math.max(most, pool.most)
  end
end

local function crowded(book, findings, pool, active, hold, most)
  local from, to, strike, lanes = hold.from, hold.to, nil, {}
  for i, other in ipairs(active) do
    to = math.min(to, other.to)
    lanes[i] = other.lane
  end
  for _, other in ipairs(active) do strike = strike or strikes.excuse(book, other, from, to) end
  wrong_unless(findings, strike, {
    kind = "overlap", pool = pool.name, from = from, to = to, lanes = lanes,
    text = ("%s: %d permits held at once for %s, of %d, by %s; %s"):format(pool.name, #active, microseconds(from, to),
      most, table.concat(lanes, ", "), cause(book, strike, from - 5, from)),
  })
end

local function counted(book, findings, pool, holds)
  local active, most_at = {}, most_permits(pool, book.acts[pool.name] or {})
  for _, hold in ipairs(holds) do
    local still, most = { hold }, most_at(hold.from)
    for _, other in ipairs(active) do
      if other.to > hold.from then table.insert(still, other) end
    end
    active = still
    if #active > pool.least and #active > most then crowded(book, findings, pool, active, hold, most) end
  end
end

local function key_of(what) return what.pool .. (what.slot and "#" .. what.slot or "") end

-- The locks that were certainly held for some time, grouped by what they are of, in order.
local function certain_holds(book)
  local units = {}
  for _, hold in ipairs(book.holds) do
    if hold.from and hold.to and hold.to > hold.from then
      local key = key_of(hold)
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
    if pools.is_token(pool) then
      counted(book, findings, pool, holds)
      fenced_permits(findings, pool, holds)
    else
      exclusive(book, findings, holds)
    end
    if pools.fence(pool) then fenced(findings, pool, holds) end
  end
end

-- What witnesses saw ------------------------------------------------------------------------------------------------

local function false_belief(book, findings, hold, saw)
  local strike = strikes.excuse(book, hold, saw.at, hold.to)
  wrong_unless(findings, strike, {
    kind = "false", pool = saw.pool, slot = saw.slot, from = saw.from, to = hold.to, lanes = { hold.lane, saw.lane },
    text = ("%s: %s held it for %s after %s had seen that it was free; %s"):format(what_of(hold), hold.lane,
      microseconds(saw.at, hold.to), saw.lane, cause(book, strike, hold.from, saw.at, hold)),
  })
end

local function find_false_beliefs(book, findings)
  local units, over = certain_holds(book), {}
  local saws = sorted(book.saws, "at", function(saw) return saw.what == "absent" end)
  for _, saw in ipairs(saws) do
    local key = key_of(saw)
    local holds, first = units[key] or {}, over[key] or 1
    while holds[first] and holds[first].to <= saw.at do first = first + 1 end
    over[key] = first
    for i = first, #holds do
      local hold = holds[i]
      if hold.from > saw.from then break end
      local is_held = hold.to > saw.at and (not saw.kind or saw.kind == hold.kind)
      if is_held then false_belief(book, findings, hold, saw) end
    end
  end
end

-- Losses ------------------------------------------------------------------------------------------------------------

-- Whether an event explains the loss of a lock that was acquired at one time and lost at another: an event between
-- these times, or before them by at most the time that the broker takes to give a holder up. If a fault robs later
-- holders, too, it may be any time before.
local function may_be_lost(book, hold, from, lost)
  local patience = strikes.SILENCE * book.heartbeat + strikes.GRACE
  for _, strike in ipairs(book.strikes) do
    local is_then = strike.from <= lost and strike.to + patience >= from
    if is_then and strikes.concerns(strike, hold) or strike.robs and strike.from <= lost then return true end
  end
  for _, stall in ipairs(book.stalls) do
    if stall.from <= lost and stall.at + patience >= from then return true end
  end
end

local function find_robbed(book, findings)
  for _, hold in ipairs(book.holds) do
    local text
    if hold.lost and not may_be_lost(book, hold, hold.got, hold.lost) then
      text = "%s: %s lost it, and nothing had struck it"
    elseif hold.lost and hold.to and hold.to > hold.lost then
      text = "%s: %s holds it after it was lost"
    end
    if text then
      wrong(findings, { kind = "robbed", pool = hold.pool, slot = hold.slot, from = hold.lost, to = hold.lost,
        lanes = { hold.lane }, text = text:format(what_of(hold), hold.lane) })
    end
  end
end

-- Time --------------------------------------------------------------------------------------------------------------

local STOPS = { stop = true }

local function find_late_acts(book, findings)
  for _, act in ipairs(book.deadlines) do
    local took = act.to - act.from
    local late = took - act.within - strikes.GRACE
    if late > 0 then
      late = late - strikes.hindered(book, act.base, act.from, act.to, STOPS) - strikes.stalled(book, act.from, act.to)
    end
    if late > 0 then
      wrong(findings, {
        kind = "late", pool = act.pool, from = act.from, to = act.to, lanes = { act.lane },
        text = ("%s: %s took %.2f s, and may take %.2f; meanwhile: %s"):format(act.lane, act.what, took, act.within,
          strikes.before(book, act.from, act.to)),
      })
    end
  end
end

local function find_waits(book, findings)
  waits.beside_free(book, function(violation) wrong(findings, violation) end)
  findings.hand_overs = waits.hand_overs(book)
end

-- The end -----------------------------------------------------------------------------------------------------------

local function is_right(count)
  return count.taken == count.expected and count.expected >= count.least and count.expected <= count.most
end

local KILLED = { fault = "administrator or broker killed", excuse = "an administrator or the broker was killed" }

local function may_lack_permits(book, name) return pools.is_token(book.pools[name]) and book.can_lose_permits end

local function find_lost(book, findings)
  for name, counts in pairs(book.counts) do
    local first, last = counts[1], counts[#counts]
    if not is_right(last) then
      wrong(findings, { kind = "lost", pool = name, from = last.at, to = last.at, lanes = { last.lane },
        text = ("%s: %d could be acquired, of %d (%s)"):format(name, last.taken, last.expected, tostring(last.more)) })
    elseif #counts > 1 then
      wrong_unless(findings, may_lack_permits(book, name) and KILLED, {
        kind = "lost", pool = name, from = first.at, to = last.at, lanes = { last.lane }, seconds = 0,
        text = ("%s: %d could be acquired, of %d, until it was repaired"):format(name, first.taken, first.expected),
      })
    end
  end
end

local function find_left(book, findings)
  for _, left in ipairs(book.left) do
    wrong(findings, { kind = "left", from = left.at, to = left.at, lanes = {},
      text = "left in the broker at the end: " .. left.message })
  end
end

-- An administrator that is killed while it repairs may leave no permit: until somebody repairs, clients wait in vain.
local function is_in_vain(book, name)
  local first = (book.counts[name] or {})[1]
  return first and first.taken == 0 and may_lack_permits(book, name)
end

local function find_ended(book, findings)
  for _, ended in ipairs(book.unexplained) do
    wrong_unless(findings, ended.pool and is_in_vain(book, ended.pool) and KILLED, {
      kind = "ended", from = ended.at, to = ended.at, lanes = { ended.lane }, text = ended.text })
  end
end

-- Answers -----------------------------------------------------------------------------------------------------------

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

local NOT_HANDED_OVER = { lost = true, suspect = true } -- acquired, and struck before the caller got it

local function is_explained(book, answer)
  if answer.act == "none" and NOT_HANDED_OVER[answer.code] then
    return may_be_lost(book, answer, answer.from, answer.at)
  end
  return EXPECTED[answer.act][answer.code] or answer.code == "limit" and is_short(book, answer)
    or answer.act == "verified" and answer.code == "blocked" and answer.probe == "publish" -- during an alarm
end

local function is_early(answer)
  return answer.code == "timeout" and answer.within and answer.at - answer.from < answer.within
end

local function find_answers(book, findings)
  for _, answer in ipairs(book.answers) do
    local key = ("%s: %s"):format(answer.what, answer.code)
    findings.answers[key] = (findings.answers[key] or 0) + 1
    if not is_explained(book, answer) or is_early(answer) then
      wrong(findings, {
        kind = "answer", pool = answer.pool, from = answer.from, to = answer.at, lanes = { answer.lane },
        text = ("%s: %s: %s; before it: %s"):format(answer.lane, answer.what, answer.message or answer.code,
          strikes.before(book, answer.from - 3, answer.at)),
      })
    end
  end
end

-- All of it ---------------------------------------------------------------------------------------------------------

local function by_time(a, b)
  if a.from ~= b.from then return a.from < b.from end
  return a.text < b.text
end

--- Checks the records of all lanes, in the order of time.
function checker.check(records)
  local book = digest.of(records)
  local findings = { violations = {}, exceptions = {}, hand_overs = {}, answers = {}, book = book }
  for _, find in ipairs{ find_overlaps, find_false_beliefs, find_robbed, find_late_acts, find_waits, find_lost,
    find_left, find_ended, find_answers } do
    find(book, findings)
  end
  table.sort(findings.violations, by_time)
  table.sort(findings.exceptions, by_time)
  return findings
end

return checker
