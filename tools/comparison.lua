-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The comparison with other lock services, of what tools/bench/rivals.lua printed: as an SVG, and as README's table.
--
--     local run = comparison.read{ "rivals.txt", "rivals-sid.txt" }    -- the first report has the other services
--     comparison.draw(run)                                             -- the SVG source
--     comparison.fill(text, run)                                       -- README's text, with the table of this run
--
-- From the shell, of which `make picture-rivals` makes use: `lua tools/comparison.lua svg REPORT...`, and `table` in
-- place of `svg`.
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
  { heading = "^a holder ends: until the next holds, ms; bound for a silent one: (%d+) s$",
    words = "Crash: from SIGKILL of the holder until the next holds the lock (bound for a silent holder: %s s)" },
}

local function panel_of(line)
  for i, panel in ipairs(PANELS) do
    local capture = line:match(panel.heading)
    if capture then return i, { words = panel.words:format(capture), rows = {} } end
  end
end

-- A row of a table: the name of the lock, and its values. nil: the line is none, or its first value is "none".
local function row_of(line)
  local row = { name = line:sub(1, NAME_COLUMNS):match "^(%S.-)%s*$", values = {} }
  local rest = line:sub(NAME_COLUMNS + 1)
  if not row.name or not rest:find "^%s+>?%s*%d" then return nil end
  for more, value in rest:gmatch "(>?) ?(%d[%d.]*)%S*" do
    table.insert(row.values, { number = tonumber(value), is_least = more == ">" })
  end
  return row
end

-- "beside: Redis 7.0.15, etcd 3.4.23" names the other services. The names of their locks begin with the same words.
local function is_other(beside, name)
  return (", " .. beside):find(", " .. name:match "^%w+" .. " ", 1, true) ~= nil
end

-- The panels of one report, and what was measured.
local function read(path)
  local run, current = { panels = {}, measured = {} }, nil
  for line in io.lines(path) do
    local index, panel = panel_of(line)
    if index then
      run.panels[index], current = panel, panel
    elseif line:match "^%s*$" then
      current = nil
    elseif current then
      table.insert(current.rows, (row_of(line))) -- the heads of the columns are none
    end
    local what, words = line:match "^(%l+): (.*)$"
    if what == "machine" or what == "software" or what == "beside" then
      run[what] = words
      table.insert(run.measured, line)
    end
  end
  run.broker = (run.software or ""):match "RabbitMQ ([%d.]+)"
  for i, panel in ipairs(PANELS) do
    local found = run.panels[i]
    if not found or #found.rows < math.max(1, #run.panels[1].rows) then
      error(path .. " has not all figures for: " .. panel.words:gsub(" %(.*", ""), 0)
    end
    for _, row in ipairs(found.rows) do row.is_other = is_other(run.beside, row.name) end
  end
  return run
end

-- Puts the rows of this library's locks that are in `from` before the other services of `into`.
local function join(into, from)
  local at = 1
  while into[at] and not into[at].is_other do at = at + 1 end
  for _, row in ipairs(from) do
    if not row.is_other then
      table.insert(into, at, row)
      at = at + 1
    end
  end
end

-- With more than one broker, the name of each row says with which.
local function name_broker(run)
  for _, panel in ipairs(run.panels) do
    for _, row in ipairs(panel.rows) do
      if not row.is_other then row.name = row.name .. ", RabbitMQ " .. run.broker end
    end
  end
end

--- Reads reports. The first has the other services; of the others only the locks of this library count, in another
-- RabbitMQ.
function comparison.read(paths)
  local run = read(paths[1])
  run.servers = "RabbitMQ " .. run.broker
  if #paths > 1 then name_broker(run) end
  for i = 2, #paths do
    local more = read(paths[i])
    name_broker(more)
    for j, panel in ipairs(run.panels) do join(panel.rows, more.panels[j].rows) end
    run.servers = run.servers .. " and " .. more.broker
    table.insert(run.measured, "software: " .. more.software)
  end
  run.servers = run.servers .. ", " .. run.beside
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
  local value = row.values[1]
  if value.number < LEAST then return "< 0.01 ms" end -- printed as 0.00
  return (value.is_least and "> " or "") .. time_of(value.number)
end

local function log10(value) return math.log(value) / math.log(10) end

-- The powers of ten, in ms, between which all values are. All panels have the same axis, so they can be compared.
local function bounds(run)
  local low, high = math.huge, -math.huge
  for _, panel in ipairs(run.panels) do
    for _, row in ipairs(panel.rows) do
      local power = log10(math.max(row.values[1].number, LEAST))
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

local function draw_row(page, row, x_of, y)
  local x = x_of(math.max(row.values[1].number, LEAST))
  local class = row.name:match "^fast mutex" and "first" or row.is_other and "others" or "ours"
  page:text(LEFT - 10, y + 4, row.name, NAME)
  page:box(LEFT, y - BAR / 2, x - LEFT, BAR, { class = class })
  page:text(x + 6, y + 4, value_of(row), VALUE)
end

-- Returns where the next panel begins.
local function draw_panel(page, panel, x_of, low, high, top)
  page:text(MARGIN, top + 14, panel.words, HEAD)
  local first, bottom = top + PANEL_HEAD, top + PANEL_HEAD + #panel.rows * ROW
  draw_axis(page, x_of, low, high, first, bottom)
  for i, row in ipairs(panel.rows) do draw_row(page, row, x_of, first + (i - 0.5) * ROW) end
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

-- README's table ------------------------------------------------------------------------------------------------------

-- The heading of each column, its panel, and which value it is there.
local COLUMNS = {
  { "acquire and release, no rival", 1, 1 },
  { "release, until the next of 16 has the lock", 2, 1 },
  { "SIGKILL, until the next has it", 3, 1 },
  { "SIGSTOP, until the next has it", 3, 3 },
}

-- 0.41; 9,354
local function figure(value)
  local text = ("%.2f"):format(value.number)
  if value.number >= 1000 then text = ("%.0f"):format(value.number):gsub("(%d)(%d%d%d)$", "%1,%2") end
  return (value.is_least and "> " or "") .. text
end

local function best_of(values)
  local best = math.huge
  for _, value in ipairs(values) do best = math.min(best, value.is_least and math.huge or value.number) end
  return best
end

-- The cells of a column; the best is bold.
local function cells_of(run, column)
  local values, cells = {}, {}
  for i, row in ipairs(run.panels[column[2]].rows) do values[i] = row.values[column[3]] end
  local best = best_of(values)
  for i, value in ipairs(values) do
    cells[i] = (not value.is_least and value.number == best and "**%s**" or "%s"):format(figure(value))
  end
  return cells
end

local CAPTION = "By `make bench-rivals`, with "

local function table_of(run)
  local lines = { "|", "|---|" }
  for i, row in ipairs(run.panels[1].rows) do lines[i + 2] = "| " .. row.name .. " |" end
  for _, column in ipairs(COLUMNS) do
    lines[1], lines[2] = lines[1] .. " | " .. column[1], lines[2] .. "---|"
    for i, cell in ipairs(cells_of(run, column)) do lines[i + 2] = lines[i + 2] .. " " .. cell .. " |" end
  end
  lines[1] = lines[1] .. " |"
  return ("%s%s:\n\n%s\n"):format(CAPTION, run.servers, table.concat(lines, "\n"))
end

--- README's text, with the caption and the table of this run in place of those that it has.
function comparison.fill(text, run)
  local from = assert(text:find(CAPTION, 1, true), "README has no line that begins: " .. CAPTION)
  local to = assert(text:find("|\n\n", from, true), "README has no table there")
  return text:sub(1, from - 1) .. table_of(run) .. text:sub(to + 2)
end

if arg and arg[0] and arg[0]:match "tools/comparison%.lua$" then
  local run = comparison.read{ (table.unpack or unpack)(arg, 2) }
  if arg[1] == "svg" then
    io.write(comparison.draw(run))
  else
    local file = assert(io.open "README.md")
    io.write(comparison.fill(file:read "*a", run))
    file:close()
  end
end

return comparison
