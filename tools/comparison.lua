-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Draws the comparison with other lock services as an SVG: for each lock the time without contention, under
-- contention, and after the death of its holder. It reads what tools/bench/rivals.lua printed.
--
--     comparison.draw(comparison.read(io.lines "report.txt"))      -- the SVG source
--
-- `lua tools/comparison.lua REPORT >PICTURE` does this from the shell; `make picture-rivals` runs the bench first.
local svg = require "tools.svg"

local comparison = {}

local WIDTH, MARGIN, LEFT, RIGHT = 800, 16, 200, 84
local TOP, PANEL_HEAD, ROW, BAR, AXIS, NOTE_LINE = 66, 26, 20, 13, 36, 16
local NAME_COLUMNS = 30 -- of the printed table; the rest of a line are values
local LEAST = 0.005 -- ms; a value that is printed as 0.00 is less, and is drawn as this

local CSS = [[
.first { fill: #0b4f9e|#58a6ff } .ours { fill: #5b9bd5|#2f6cb3 } .others { fill: #a1a9b2|#6e7681 }
]]

-- Reading what the bench printed --------------------------------------------------------------------------------------

-- A pattern for the printed heading of each table that is drawn, and the words of its panel with what it captures.
local PANELS = {
  { heading = "^uncontended: acquire %+ release, ms$", words = "No contention: acquire + release" },
  { heading = "^(%d+) wait, each holds it for %d+ ms: from release until the next holds, ms$",
    words = "Contention: from release until the next of %s waiting processes holds the lock" },
  { heading = "^a holder ends: until the next holds, ms; time to live, heartbeat: (%d+) s$",
    words = "Crash: from SIGKILL of the holder until the next holds the lock (time to live, heartbeat: %s s)" },
}

local function panel_of(line)
  for i, panel in ipairs(PANELS) do
    local capture = line:match(panel.heading)
    if capture then return i, { words = panel.words:format(capture), rows = {} } end
  end
end

-- A row of a table: the name of the lock, and its first value. nil: the line is none.
local function row_of(line)
  local name = line:sub(1, NAME_COLUMNS):match "^(%S.-)%s*$"
  local more, value = line:sub(NAME_COLUMNS + 1):match "^%s+(>?)%s*(%d[%d.]*)"
  return name and value and { name = name, value = tonumber(value), is_least = more == ">" }
end

-- "beside: Redis 7.0.15, etcd 3.4.23" names the other services. The names of their locks begin with the same words.
local function is_other(beside, name)
  return (", " .. beside):find(", " .. name:match "^%w+" .. " ", 1, true) ~= nil
end

--- Reads the lines of the bench's report: returns the panels, and what was measured.
function comparison.read(lines)
  local run, current = { panels = {}, measured = {}, beside = "" }, nil
  for line in lines do
    local index, panel = panel_of(line)
    if index then
      run.panels[index], current = panel, panel
    elseif line:match "^%s*$" then
      current = nil
    elseif current then
      table.insert(current.rows, (row_of(line))) -- the heads of the columns are none
    end
    run.beside = line:match "^beside: (.*)$" or run.beside
    for _, what in ipairs{ "machine", "software", "beside" } do
      if line:find("^" .. what .. ": ") then table.insert(run.measured, line) end
    end
  end
  for i, panel in ipairs(PANELS) do
    local found = run.panels[i]
    if not found or #found.rows == 0 then error("the report has no table for: " .. panel.words:gsub(" %(.*", ""), 0) end
    for _, row in ipairs(found.rows) do row.is_other = is_other(run.beside, row.name) end
  end
  return run
end

-- The picture ---------------------------------------------------------------------------------------------------------

local HEAD, NAME, PLAIN = svg.style("ink", "bold"), svg.style("ink", "end"), svg.style "ink"
local VALUE, TICK, NOTE = svg.style "ink halo", svg.style("dim", "middle"), svg.style("dim", "11")

-- A time in the unit in which it is read best.
local function time_of(milliseconds)
  if milliseconds >= 1000 then return ("%.3g s"):format(milliseconds / 1000) end
  return ("%.3g ms"):format(milliseconds)
end

local function value_of(row)
  if row.value < LEAST then return "< 0.01 ms" end -- printed as 0.00
  return (row.is_least and "> " or "") .. time_of(row.value)
end

local function log10(value) return math.log(value) / math.log(10) end

-- The powers of ten, in ms, between which all values are. All panels have the same axis, so they can be compared.
local function bounds(run)
  local low, high = math.huge, -math.huge
  for _, panel in ipairs(run.panels) do
    for _, row in ipairs(panel.rows) do
      local power = log10(math.max(row.value, LEAST))
      low, high = math.min(low, math.ceil(power) - 1), math.max(high, math.ceil(power))
    end
  end
  return low, high
end

local function draw_legend(page, y)
  local x = MARGIN
  for _, entry in ipairs{ { "first", "fast mutex", 92 }, { "ours", "other locks of this library", 190 },
    { "others", "other lock services", 0 } } do
    page:box(x, y - 10, 12, 12, { class = entry[1] })
    page:text(x + 18, y, entry[2], PLAIN)
    x = x + 18 + entry[3]
  end
end

local function draw_axis(page, x_of, low, high, top, bottom)
  for power = low, high do
    local x = x_of(10 ^ power)
    page:line(x, top, x, bottom + 4, { class = "grid" })
    page:text(x, bottom + 17, time_of(10 ^ power), TICK)
  end
  page:line(LEFT, bottom, WIDTH - RIGHT, bottom, { class = "axis" })
end

local function draw_row(page, row, is_first, x_of, y)
  local x = x_of(math.max(row.value, LEAST))
  local class = is_first and "first" or row.is_other and "others" or "ours"
  page:text(LEFT - 10, y + 4, row.name, NAME)
  page:box(LEFT, y - BAR / 2, x - LEFT, BAR, { class = class })
  page:text(x + 6, y + 4, value_of(row), VALUE)
end

-- Returns where the next panel begins.
local function draw_panel(page, panel, x_of, low, high, top)
  page:text(MARGIN, top + 14, panel.words, HEAD)
  local first, bottom = top + PANEL_HEAD, top + PANEL_HEAD + #panel.rows * ROW
  draw_axis(page, x_of, low, high, first, bottom)
  for i, row in ipairs(panel.rows) do draw_row(page, row, i == 1, x_of, first + (i - 0.5) * ROW) end
  return bottom + AXIS
end

-- The same in words, for a reader who does not see it.
local function description(run)
  local sentences = {}
  for i, panel in ipairs(run.panels) do
    local list = {}
    for j, row in ipairs(panel.rows) do list[j] = row.name:gsub(",", "") .. " " .. value_of(row) end
    sentences[i] = panel.words .. ": " .. table.concat(list, ", ") .. "."
  end
  return table.concat(sentences, " ")
end

--- The SVG source.
function comparison.draw(run)
  local page, low, high = svg.page(WIDTH, "Locks in RabbitMQ beside other lock services", MARGIN, 24, CSS), bounds(run)
  local function x_of(value) return LEFT + (WIDTH - LEFT - RIGHT) * (log10(value) - low) / (high - low) end
  page.description = description(run)
  draw_legend(page, 46)
  local y = TOP
  for _, panel in ipairs(run.panels) do y = draw_panel(page, panel, x_of, low, high, y) end
  page:text(MARGIN, y, "Medians; shorter is better. Each line stands for ten times the time of the line before.", NOTE)
  for i, measured in ipairs(run.measured) do page:text(MARGIN, y + i * NOTE_LINE, measured, NOTE) end
  page.height = y + (#run.measured + 1) * NOTE_LINE
  return page:source()
end

if arg and arg[0] and arg[0]:match "tools/comparison%.lua$" then
  io.write(comparison.draw(comparison.read(io.lines(arg[1]))))
end

return comparison
