-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Draws a run as an SVG: a lane for each caller, what it held and waited for, the faults that struck it, and the
-- violations.
--
--     timeline.of(findings)           -- each violation, a few seconds around it; without any, a window of the run
--     timeline.draw(book, { { from =, to =, title =, marks = { { from =, to =, lanes = { … } } } }, … })
--
-- `lua tools/prove/timeline.lua DIRECTORY FROM TO >picture.svg` draws any window, in seconds since the beginning.
local svg = require "tools.svg"

local timeline = {}

local WIDTH, LEFT, RIGHT, LANE, HEAD = 1500, 130, 20, 20, 64
local COLOURS = { classic = "#2f6fb7", quorum = "#0f8b8d", mutex = "#7a4fa3", rwlock = "#b5651d", token = "#4d8b31",
  ["token-quorum"] = "#93a12c", fast_mutex = "#b0407a" }
local PANELS = 6

local TITLE, PLAIN, NAME = svg.style("#222", "14 bold"), svg.style("#222", "11"), svg.style("#222", "11 end")
local WRONG, GONE, TIME = svg.style("#900", "11"), svg.style("#e00", "15"), svg.style("#777", "10 middle")
local SLOT, FAULT = svg.style("#fff", "10"), svg.style("#8a5a00", "9")

local function filled(colour, opacity) return { fill = colour, ["fill-opacity"] = opacity } end

-- A panel -----------------------------------------------------------------------------------------------------------

local function x_of(panel, at)
  local bounded = math.min(math.max(at, panel.from), panel.to)
  return LEFT + (bounded - panel.from) / (panel.to - panel.from) * (WIDTH - LEFT - RIGHT)
end

local function is_in(panel, from, to) return from < panel.to and to > panel.from end

-- A box from one time to another, with a minimum width.
local function span(picture, panel, from, to, y, height, style, title)
  local x = x_of(panel, from)
  picture:box(x, y, math.max(x_of(panel, to) - x, 0.7), height, style, title)
  return x
end

-- Everything that the book has by pools, in a fixed order.
local function each(by_pool)
  local names = {}
  for name in pairs(by_pool) do table.insert(names, name) end
  table.sort(names)
  return coroutine.wrap(function()
    for _, name in ipairs(names) do
      for _, one in ipairs(by_pool[name]) do coroutine.yield(one) end
    end
  end)
end

local function lanes_of(book, panel)
  local there, list = {}, {}
  local function add(lane, from, to)
    if is_in(panel, from, to) and not there[lane] then
      there[lane] = true
      table.insert(list, lane)
    end
  end
  for _, hold in ipairs(book.holds) do add(hold.lane, hold.got, hold.ended) end
  for wait in each(book.waits) do add(wait.lane, wait.from, wait.to) end
  for act in each(book.acts) do add(act.lane, act.from, act.to) end
  for _, strike in ipairs(book.strikes) do
    local lane = strike.lane
    if lane and lane ~= "*" and not there[lane .. ":1"] then add(lane, strike.from, strike.to) end
  end
  table.sort(list)
  return list
end

local function draw_axis(picture, book, panel, top, bottom)
  local step = svg.step(panel.to - panel.from, 10, 12)
  local digits = math.max(0, -math.floor(math.log(step) / math.log(10) + 1e-9))
  local at = math.ceil((panel.from - book.first) / step) * step
  while at <= panel.to - book.first do
    local x = x_of(panel, at + book.first)
    picture:line(x, top, x, bottom, { stroke = "#ddd" })
    picture:text(x, bottom + 12, ("%." .. digits .. "f s"):format(at), TIME)
    at = at + step
  end
end

local function draw_lanes(picture, lanes, top)
  local rows = {}
  for i, lane in ipairs(lanes) do
    local y = top + (i - 1) * LANE
    picture:text(LEFT - 8, y + LANE - 6, lane, NAME)
    picture:line(LEFT, y + LANE, WIDTH - RIGHT, y + LANE, { stroke = "#eee" })
    rows[lane] = y
  end
  return rows
end

local function label_of(hold)
  if hold.slot then return tostring(hold.slot) end
  return ({ read = "r", write = "w", mutex = "m", permit = "p" })[hold.kind] or ""
end

local function kind_of(book, pool) return book.pools[pool] and book.pools[pool].kind or pool end

local function colour_of(book, pool) return COLOURS[kind_of(book, pool)] or "#555" end

local function draw_hold(picture, book, panel, y, hold)
  local colour, label = colour_of(book, hold.pool), label_of(hold)
  local title = ("%s %s, %.6f to %.6f, %s"):format(kind_of(book, hold.pool), label, hold.got - book.first,
    hold.ended - book.first, hold.gone_code or hold.how or "")
  local x = span(picture, panel, hold.got, hold.ended, y + 3, LANE - 6, filled(colour, 0.35), title)
  if hold.from and hold.to > hold.from and is_in(panel, hold.from, hold.to) then
    span(picture, panel, hold.from, hold.to, y + 3, LANE - 6, filled(colour), title)
  end
  if x_of(panel, hold.ended) - x > 9 then picture:text(x + 2, y + LANE - 6, label, SLOT) end
  if hold.gone_code and is_in(panel, hold.gone, hold.gone + 1e-9) then
    picture:text(x_of(panel, hold.gone), y + LANE - 5, "×", GONE)
  end
end

local function draw_wait(picture, book, panel, y, wait)
  span(picture, panel, wait.from, wait.to, y + LANE - 6, 3, filled(colour_of(book, wait.pool), 0.45),
    "waits for " .. kind_of(book, wait.pool))
end

-- On the lanes of the struck process, with one label; on all lanes if all were struck; otherwise as a line.
local function draw_strike(picture, panel, rows, top, bottom, strike)
  local x, is_drawn = x_of(panel, strike.from), false
  if strike.lane == "*" then
    span(picture, panel, strike.from, strike.to, top, bottom - top, filled("#f3c04b", 0.22), strike.fault)
    return picture:text(x + 2, top - 3, strike.fault, FAULT)
  end
  for lane, y in pairs(rows) do
    if lane:match "^[^:]+" == strike.lane then
      span(picture, panel, strike.from, strike.to, y, LANE, filled("#f3c04b", 0.45), strike.fault)
      if not is_drawn then picture:text(x + 2, y + 8, strike.fault, FAULT) end
      is_drawn = true
    end
  end
  if not is_drawn then
    picture:line(x, top, x, bottom, { stroke = "#c98a00", ["stroke-dasharray"] = "3 3" })
    picture:text(x + 2, top - 3, strike.fault .. (strike.slot and " " .. strike.slot or ""), FAULT)
  end
end

local function draw_mark(picture, panel, rows, top, bottom, mark)
  span(picture, panel, mark.from, mark.to, top, bottom - top, filled("#e00", 0.18))
  for _, lane in ipairs(mark.lanes or {}) do
    if rows[lane] then
      span(picture, panel, mark.from, mark.to, rows[lane] + 1, LANE - 2,
        { fill = "none", stroke = "#e00", ["stroke-width"] = 2 }, mark.text)
    end
  end
end

local function draw_panel(picture, book, panel, top)
  local lanes, first = lanes_of(book, panel), top + HEAD
  local bottom = first + #lanes * LANE
  picture:text(LEFT, top + 16, panel.title, TITLE)
  if panel.words then picture:text(LEFT, top + 34, panel.words, WRONG) end
  draw_axis(picture, book, panel, first, bottom)
  local rows = draw_lanes(picture, lanes, first)
  for _, strike in ipairs(book.strikes) do
    if is_in(panel, strike.from, math.max(strike.to, strike.from + 1e-6)) then
      draw_strike(picture, panel, rows, first, bottom, strike)
    end
  end
  for wait in each(book.waits) do
    if is_in(panel, wait.from, wait.to) then draw_wait(picture, book, panel, rows[wait.lane], wait) end
  end
  for act in each(book.acts) do
    if is_in(panel, act.from, act.to) then
      span(picture, panel, act.from, act.to, rows[act.lane] + 4, LANE - 8, filled("#444", 0.6), act.action)
    end
  end
  for _, hold in ipairs(book.holds) do
    if is_in(panel, hold.got, hold.ended) then draw_hold(picture, book, panel, rows[hold.lane], hold) end
  end
  for _, mark in ipairs(panel.marks or {}) do draw_mark(picture, panel, rows, first, bottom, mark) end
  return bottom + 30
end

local function draw_legend(picture, y)
  for i, kind in ipairs{ "classic", "quorum", "mutex", "rwlock", "token", "token-quorum", "fast_mutex" } do
    local x = LEFT + (i - 1) * 105
    picture:box(x, y, 14, 12, filled(COLOURS[kind]))
    picture:text(x + 18, y + 10, kind, PLAIN)
  end
  picture:text(LEFT, y + 30, "full: certainly held; pale: by what the calls returned; thin: waits; ×: not held any "
    .. "more, by held(); grey: an administrator at work; yellow: a fault; red: a violation", PLAIN)
  return y + 44
end

--- Draws windows of a book, one below the other.
function timeline.draw(book, panels)
  local picture = svg.new(WIDTH)
  local y = draw_legend(picture, 8)
  for _, panel in ipairs(panels) do y = draw_panel(picture, book, panel, y) end
  picture.height = y
  return picture:source()
end

-- What to draw ------------------------------------------------------------------------------------------------------

-- The window with most faults.
local function busiest(book, seconds)
  local best, most = book.first, -1
  for i, strike in ipairs(book.strikes) do
    local count = 0
    for j = i, #book.strikes do
      if book.strikes[j].from > strike.from + seconds then break end
      count = count + 1
    end
    if count > most then best, most = strike.from - seconds / 10, count end
  end
  return { from = best, to = best + seconds, title = ("no violations; the %g s with most faults"):format(seconds) }
end

local function around(book, one)
  local middle = math.max(1, math.min(8, 4 * (one.to - one.from)))
  local from, to = one.from - middle, math.min(one.to, one.from + 20) + middle
  return { from = from, to = to, title = ("%s at %.3f s"):format(one.kind, one.from - book.first), words = one.text,
    marks = { one } }
end

--- Draws the violations, or a window of the run if there are none.
function timeline.of(findings)
  local panels = {}
  for i, one in ipairs(findings.violations) do
    if i <= PANELS then table.insert(panels, around(findings.book, one)) end
  end
  if #panels == 0 then panels[1] = busiest(findings.book, 6) end
  return timeline.draw(findings.book, panels)
end

if arg and arg[0] and arg[0]:match "tools/prove/timeline%.lua$" then
  local journal = require "tools.prove.journal"
  local from, to = tonumber(arg[2]), tonumber(arg[3])
  if not from or not to or from >= to then
    io.stderr:write("usage: timeline.lua build/prove/SEED FROM TO: the picture from FROM to TO, in seconds\n")
    os.exit(2)
  end
  local book = require("tools.prove.digest").of(journal.read_all(arg[1] .. "/journals"))
  from, to = book.first + from, book.first + to
  io.write(timeline.draw(book, { { from = from, to = to, title = ("%s: %s to %s s"):format(arg[1], arg[2], arg[3]) } }))
end

return timeline
