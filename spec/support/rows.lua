-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Rows of `make bench`: what was measured, beside what it may cost at most.
local bare = require "bare"

local rows = {}

local ROUNDS = tonumber(os.getenv "ROUNDS") or 15

function rows.median(times)
  table.sort(times)
  return times[math.floor(#times / 2) + 1]
end

local function seconds(fn)
  local start = bare.now()
  fn()
  return bare.now() - start
end

--- Runs both sides in turns; the medians of a single call of each.
local function measure(calls, ours, theirs)
  local mine, bares = {}, {}
  for round = 0, ROUNDS do -- the first round warms up
    local a, b = seconds(ours), seconds(theirs)
    if round > 0 then
      mine[#mine + 1], bares[#bares + 1] = a / calls, b / calls
    end
  end
  return rows.median(mine), rows.median(bares)
end

function rows.row(what, budget, is_fine, value)
  print(("%-52s %10s   budget %-8s %s"):format(what, value, budget, is_fine and "ok" or "over"))
end

--- A figure without a budget.
function rows.plain(what, value) print(("%-52s %10s"):format(what, value)) end

--- Two medians, of ours and of what rabbitmq-c alone does; `at_least`: as a rate, to be no less than the budget.
function rows.compare(what, budget, mine, bares, at_least)
  local ratio = at_least and bares / mine or mine / bares
  local fine = at_least and ratio >= budget or not at_least and ratio <= budget
  rows.row(what, (at_least and ">= %.2f" or "<= %.2f"):format(budget), fine, ("%.2f"):format(ratio))
  print(("%-52s %8.2f us, bare %.2f us"):format("", mine * 1e6, bares * 1e6))
end

function rows.ratio(what, budget, calls, ours, theirs, at_least)
  local mine, bares = measure(calls, ours, theirs)
  rows.compare(what, budget, mine, bares, at_least)
end

return rows
