-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Rows of `make bench`: a measurement, its spread, and its budget (its limit).
--
--     local rows = require "tools.bench.parts.rows"
--     rows.ratio("this / that", 1.20, 50, this, that)     -- runs both in turns; the ratio of their medians
--     rows.compare("the same", 1.20, times, other_times)  -- measured by the caller, also in turns
--     rows.row("something, KiB", "<= 24", value <= 24, ("%.1f"):format(value))
--     rows.plain("something without a budget", "12")
--
-- Rows with a budget also go to the file $BENCH_ROWS; `rows.summary` prints the table of these at the end.
local bare = require "bare"

local rows = {}

local ROUNDS = tonumber(os.getenv "ROUNDS") or 15

io.stdout:setvbuf("line")

--- The quantile of a list; sorts the list.
function rows.quantile(list, share)
  table.sort(list)
  return list[math.min(#list, math.floor(#list * share) + 1)]
end

function rows.median(list) return rows.quantile(list, 0.5) end

--- The quartiles of a list, as text: half of the values are between them.
function rows.spread(list, pattern)
  return (pattern .. "-" .. pattern):format(rows.quantile(list, 0.25), rows.quantile(list, 0.75))
end

--- The number of rounds; $ROUNDS.
rows.rounds = ROUNDS

function rows.seconds(fn, ...)
  local start = bare.now()
  fn(...)
  return bare.now() - start
end

--- Runs both sides in turns; returns how long a single call of each took, round by round.
local function measure(calls, ours, theirs)
  local mine, bares = {}, {}
  for round = 0, ROUNDS do -- the first round warms up
    local a, b = rows.seconds(ours), rows.seconds(theirs)
    if round > 0 then
      mine[round], bares[round] = a / calls, b / calls
    end
  end
  return mine, bares
end

local function remember(...)
  local path = os.getenv "BENCH_ROWS"
  if not path then return end
  local file = assert(io.open(path, "a"))
  file:write(table.concat({ ... }, "\t"), "\n")
  file:close()
end

local LINE = "%-58s %8s  %-11s  budget %-8s %s"

--- A row with a budget. `spread`: the quartiles, as text.
function rows.row(what, budget, is_fine, value, spread)
  local word = is_fine and "ok" or "over"
  print(LINE:format(what, value, spread or "", budget, word))
  remember(what, value, spread or "", budget, word)
end

--- A figure without a budget.
function rows.plain(what, value, spread)
  print((("%-58s %8s  %s"):format(what, value, spread or ""):gsub("%s+$", "")))
end

--- Times of the library and of rabbitmq-c alone, measured in turns: prints the ratio of the medians, and the quartiles
-- of the ratios of the turns. `at_least`: the values are rates, and the budget is a lower limit.
function rows.compare(what, budget, mine, bares, at_least)
  local ratios = {}
  for i = 1, #mine do ratios[i] = at_least and bares[i] / mine[i] or mine[i] / bares[i] end
  local a, b = rows.median(mine), rows.median(bares)
  local ratio = at_least and b / a or a / b
  local fine = at_least and ratio >= budget or not at_least and ratio <= budget
  rows.row(what, (at_least and ">= %.2f" or "<= %.2f"):format(budget), fine, ("%.2f"):format(ratio),
    rows.spread(ratios, "%.2f"))
  print(("%-58s %8.2f us, bare %.2f us"):format("", a * 1e6, b * 1e6))
end

function rows.ratio(what, budget, calls, ours, theirs, at_least)
  local mine, bares = measure(calls, ours, theirs)
  rows.compare(what, budget, mine, bares, at_least)
end

-- The beginning and the end ------------------------------------------------------------------------------------------

local function first_line(path, pattern)
  local file = io.open(path)
  if not file then return "?" end
  for line in file:lines() do
    local found = line:match(pattern)
    if found then
      file:close()
      return found
    end
  end
  file:close()
  return "?"
end

local function processors()
  local count = 0
  for line in io.lines("/proc/cpuinfo") do
    if line:find "^processor%s*:" then count = count + 1 end
  end
  return count
end

--- Prints the machine of the measurements, and its load.
function rows.machine()
  local jit = rawget(_G, "jit")
  print(("machine: %d processors, %s; Linux %s; load %s"):format(processors(),
    first_line("/proc/cpuinfo", "^model name%s*:%s*(.*)$"), first_line("/proc/sys/kernel/osrelease", "(.*)"),
    first_line("/proc/loadavg", "^(%S+)")))
  local raw = bare.connect(os.getenv "AMQP_URL")
  print(("software: %s, %s, rabbitmq-c %s"):format(jit and jit.version or _VERSION, raw:server(), bare.version()))
  raw:close()
end

--- Prints the table at the end: all rows that have a budget.
function rows.summary()
  local path, over = os.getenv "BENCH_ROWS", 0
  local count = 0
  print(("\n%-58s %8s  %-11s  %-8s"):format("summary", "measured", "quartiles", "budget"))
  for line in io.lines(path) do
    local what, value, spread, budget, word = line:match("^(.-)\t(.-)\t(.-)\t(.-)\t(.-)$")
    print(("%-58s %8s  %-11s  %-8s %s"):format(what, value, spread, budget, word))
    count, over = count + 1, over + (word == "over" and 1 or 0)
  end
  print(("%d rows, %d over their budget; load now %s"):format(count, over, first_line("/proc/loadavg", "^(%S+)")))
end

return rows
