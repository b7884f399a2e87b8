-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Draws the dashboard of examples/metrics as an SVG, from what a real Prometheus answered to its queries. It reads
-- what tools/dashboard_run.lua printed.
--
--     dashboard.draw(dashboard.read(io.lines "answers.txt"))      -- the SVG source
--
-- `lua tools/dashboard.lua ANSWERS >PICTURE` does this from the shell; `make picture-dashboard` has the answers made
-- first.
local svg = require "tools.svg"

local dashboard = {}

local WIDTH, MARGIN, GAP = 800, 16, 24
local PANEL = (WIDTH - 2 * MARGIN - GAP) / 2 -- two in a row
local TOP, STORY_LINE, HEAD, PLOT, AXIS, LEGEND_LINE, BELOW = 46, 18, 38, 104, 22, 16, 14
local SCALE = 44 -- the width of the numbers at the left of a plot
local LETTER, DASH = 6.4, 24 -- the widths of a letter in a legend, and of the mark before it
local COLOURS = 5
local MOST_TICKS = 5

local CSS = [[
.line { stroke-width: 1.6px; stroke-linejoin: round; fill: none } .wide { stroke-width: 4.5px }
.mark { stroke: #59636e|#9ba4ae } .badge { fill: #59636e }
.c1 { stroke: #2166ac|#58a6ff } .c2 { stroke: #b35806|#e0862d } .c3 { stroke: #1b7837|#4cb866 }
.c4 { stroke: #762a83|#bc78d0 } .c5 { stroke: #cf222e|#ff7b72 }
]]

-- Reading the answers -------------------------------------------------------------------------------------------------

--- Reads the lines of answers: returns how many seconds they are about, what happened, and the panels.
function dashboard.read(lines)
  local run, panel, series = { happens = {}, panels = {} }, nil, nil
  for line in lines do
    local what, one, two = line:match "^(%l+)\t([^\t]*)\t?([^\t]*)$"
    if what == "seconds" then
      run.seconds = tonumber(one)
    elseif what == "happens" then
      table.insert(run.happens, { at = tonumber(one), words = two })
    elseif what == "panel" then
      panel = { title = one, unit = two, series = {} }
      table.insert(run.panels, panel)
    elseif what == "series" then
      series = { name = one, values = {} }
      table.insert(panel.series, series)
    elseif what == "value" then
      local value = tonumber(two) -- nil: Prometheus' NaN, where nothing was counted
      table.insert(series.values, { at = tonumber(one), value = value == value and value or nil })
    end
  end
  if not run.seconds then error("these are no answers of tools/dashboard_run.lua", 0) end
  for _, one in ipairs(run.panels) do
    if #one.series == 0 then error(("Prometheus has no answer for the panel %q"):format(one.title), 0) end
  end
  return run
end

-- Units and axes ------------------------------------------------------------------------------------------------------

-- Grafana's names of units: how a number is written, given the largest one of its axis.
local UNITS = {
  short = function(value) return ("%g"):format(value) end,
  ops = function(value) return ("%g/s"):format(value) end,
  s = function(value, top)
    if value == 0 then return "0" end
    if top < 1 then return ("%g ms"):format(value * 1000) end
    return ("%g s"):format(value)
  end,
}

local function largest(panel)
  local most = 0
  for _, series in ipairs(panel.series) do
    for _, one in ipairs(series.values) do most = math.max(most, one.value or 0) end
  end
  return most
end

-- The step of an axis up to `most`. Where locks or connections are counted it is at least 1.
local function step_of(most, unit)
  if unit == "short" and most <= MOST_TICKS then return 1 end
  return svg.step(most, MOST_TICKS, MOST_TICKS)
end

-- The picture ---------------------------------------------------------------------------------------------------------

local NAME, PLAIN, SMALL = svg.style("ink", "bold"), svg.style "ink", svg.style("ink", "11")
local TICK, TIME, BADGE = svg.style("dim", "11 end"), svg.style("dim", "11 middle"), svg.style("#fff", "10 bold middle")
local MARK = { class = "mark", ["stroke-dasharray"] = "2 3" }

local function draw_badge(page, x, y, number)
  page:dot(x, y, 7, { class = "badge" })
  page:text(x, y + 3.5, number, BADGE)
end

local function draw_axes(page, panel, place, top)
  local write = UNITS[panel.unit] or UNITS.short
  for i = 0, math.floor(top / place.step + 0.5) do
    local value = i * place.step
    local y = place.y_of(value)
    page:line(place.left, y, place.right, y, { class = i == 0 and "axis" or "grid" })
    page:text(place.left - 6, y + 4, write(value, top), TICK)
  end
  for second = 0, place.seconds, 10 do
    local x = place.x_of(second)
    page:line(x, place.bottom, x, place.bottom + 4, { class = "axis" })
    page:text(x, place.bottom + 16, second == 0 and "0 s" or ("%d"):format(second), TIME)
  end
end

-- Whether a line would lie under a later one for at least half of its length. It is drawn wide then.
local function is_covered(panel, number)
  local series = panel.series[number]
  for i = number + 1, #panel.series do
    local values, same = {}, 0
    for _, one in ipairs(panel.series[i].values) do values[one.at] = one.value end
    for _, one in ipairs(series.values) do
      if one.value and one.value > 0 and one.value == values[one.at] then same = same + 1 end
    end
    if same > 0 and same >= #series.values / 2 then return true end
  end
  return false
end

local function class_of(panel, number)
  return ("line c%d%s"):format((number - 1) % COLOURS + 1, is_covered(panel, number) and " wide" or "")
end

-- A line for each run of values without a gap.
local function draw_series(page, series, place, class)
  local style = { class = class }
  local points = {}
  local function finish()
    if #points > 1 then page:path(points, style) end
    points = {}
  end
  local last
  for _, one in ipairs(series.values) do
    if not one.value or last and one.at > last + 1 then finish() end
    if one.value then table.insert(points, { place.x_of(one.at), place.y_of(one.value) }) end
    last = one.at
  end
  finish()
end

-- The legend's entries, in lines: each a list of { x, name, number }.
local function legend_of(panel)
  local lines, x = { {} }, 0
  for i, series in ipairs(panel.series) do
    local width = DASH + #series.name * LETTER + 14
    if x > 0 and x + width > PANEL + 8 then
      table.insert(lines, {})
      x = 0
    end
    table.insert(lines[#lines], { x = x, name = series.name, number = i })
    x = x + width
  end
  return lines
end

local function height_of(panel) return HEAD + PLOT + AXIS + #legend_of(panel) * LEGEND_LINE + BELOW end

local function draw_panel(page, run, panel, x, y)
  local most = largest(panel)
  local step = step_of(most > 0 and most or 1, panel.unit)
  local top = math.max(1, math.ceil(most / step - 1e-9)) * step
  local place = { left = x + SCALE, right = x + PANEL, bottom = y + HEAD + PLOT, step = step, seconds = run.seconds }
  function place.x_of(second) return place.left + second / run.seconds * (place.right - place.left) end
  function place.y_of(value) return place.bottom - value / top * PLOT end
  page:text(x, y + 12, panel.title, NAME)
  draw_axes(page, panel, place, top)
  for i, one in ipairs(run.happens) do
    page:line(place.x_of(one.at), place.bottom - PLOT, place.x_of(one.at), place.bottom, MARK)
    draw_badge(page, place.x_of(one.at), place.bottom - PLOT - 9, i)
  end
  for i, series in ipairs(panel.series) do draw_series(page, series, place, class_of(panel, i)) end
  for i, line in ipairs(legend_of(panel)) do
    local line_y = place.bottom + AXIS + i * LEGEND_LINE - 4
    for _, entry in ipairs(line) do
      local from = x + entry.x
      page:line(from, line_y - 4, from + DASH - 6, line_y - 4, { class = class_of(panel, entry.number) })
      page:text(from + DASH, line_y, entry.name, SMALL)
    end
  end
end

-- The same in words, for a reader who does not see it.
local function description(run)
  local sentences = {}
  for _, one in ipairs(run.happens) do
    table.insert(sentences, ("After %.0f s %s."):format(one.at, one.words))
  end
  for _, panel in ipairs(run.panels) do
    local names = {}
    for i, series in ipairs(panel.series) do names[i] = series.name end
    local write, most = UNITS[panel.unit] or UNITS.short, largest(panel)
    table.insert(sentences, ("%s: at most %s (%s)."):format(panel.title, write(tonumber(("%.2g"):format(most)), most),
      table.concat(names, ", ")))
  end
  return table.concat(sentences, " ")
end

--- The SVG source.
function dashboard.draw(run)
  local page = svg.page(WIDTH, "The dashboard, while things happen to a service", MARGIN, 24, CSS)
  page.description = description(run)
  for i, one in ipairs(run.happens) do
    local y = TOP + (i - 1) * STORY_LINE
    draw_badge(page, MARGIN + 7, y, i)
    page:text(MARGIN + 22, y + 4, one.words, PLAIN)
  end
  local y = TOP + #run.happens * STORY_LINE + 8
  for i = 1, #run.panels, 2 do
    local left, right = run.panels[i], run.panels[i + 1]
    draw_panel(page, run, left, MARGIN, y)
    if right then draw_panel(page, run, right, MARGIN + PANEL + GAP, y) end
    y = y + math.max(height_of(left), right and height_of(right) or 0)
  end
  page.height = y
  return page:source()
end

if arg and arg[0] and arg[0]:match "tools/dashboard%.lua$" then
  io.write(dashboard.draw(dashboard.read(io.lines(arg[1]))))
end

return dashboard
