-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The report of a run of `make prove`: how much was done, which faults struck, how long hand-overs took, the answers
-- by code, the documented exceptions that were seen, and the violations.
--
--     io.write(report.of(findings, { kill = 17, stop = 9 }))      -- findings of checker.lua; strikes of each fault
local report = {}

local MOST = 50 -- violations that are listed; all of them are counted

local function quantile(sorted, q) return sorted[math.max(1, math.ceil(#sorted * q))] end

local function sorted_keys(list)
  local keys = {}
  for key in pairs(list) do table.insert(keys, key) end
  table.sort(keys)
  return keys
end

local function tell_amount(say, book)
  say("%.0f s, %d processes, %d locks held, %d waits, %d looks of witnesses", book.last - book.first, book.processes,
    #book.holds, book.wait_count, #book.saws)
  for _, name in ipairs(sorted_keys(book.pools)) do
    say("  %-14s %6d locks held", book.pools[name].kind, book.held_of[name] or 0)
  end
end

local function tell_strikes(say, strikes)
  say "faults:"
  for _, name in ipairs(sorted_keys(strikes)) do say("  %-14s %6d", name, strikes[name]) end
end

-- The number of these values; then, in milliseconds, their median, 99th percentile and maximum.
local function spread(list)
  table.sort(list)
  return #list, quantile(list, 0.5) * 1e3, quantile(list, 0.99) * 1e3, list[#list] * 1e3
end

local function tell_hand_overs(say, hand_overs)
  say("%-78s %6s %8s %8s %8s", "hand-overs to those who waited, by what ended the lock before (ms):", "n", "median",
    "p99", "max")
  for _, cause in ipairs(sorted_keys(hand_overs)) do
    say("  %-76s %6d %8.1f %8.1f %8.1f", cause, spread(hand_overs[cause]))
  end
end

local function tell_answers(say, answers)
  say "answers:"
  for _, key in ipairs(sorted_keys(answers)) do say("  %-40s %6d", key, answers[key]) end
end

local function seconds_by_words(exceptions)
  local kinds = {}
  for _, one in ipairs(exceptions) do
    local key = ("%s, %s"):format(one.kind, one.words)
    kinds[key] = kinds[key] or {}
    table.insert(kinds[key], one.seconds)
  end
  return kinds
end

local function tell_exceptions(say, exceptions)
  say("documented exceptions: %d", #exceptions)
  local kinds = seconds_by_words(exceptions)
  for _, key in ipairs(sorted_keys(kinds)) do
    local count, median, _, most = spread(kinds[key])
    say("  %-76s %6d, median %.1f ms, at most %.1f ms", key, count, median, most)
  end
end

local function tell_violations(say, violations, first)
  say("violations: %d", #violations)
  for i = 1, math.min(#violations, MOST) do
    local one = violations[i]
    say("  %s at %.6f: %s", one.kind, one.from - first, one.text)
  end
end

--- Findings as text. `strikes`: how many there were of each fault; nil: not counted.
function report.of(findings, strikes)
  local book, lines = findings.book, {}
  local function say(...) table.insert(lines, (...):format(select(2, ...))) end
  tell_amount(say, book)
  tell_strikes(say, strikes or {})
  tell_hand_overs(say, findings.hand_overs)
  tell_answers(say, findings.answers)
  if #book.stalls > 0 then say("short of processors: %d times, %.1f s in all", #book.stalls, book.stalled) end
  tell_exceptions(say, findings.exceptions)
  tell_violations(say, findings.violations, book.first)
  return table.concat(lines, "\n") .. "\n"
end

return report
