-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Draws what happened, as an SVG: a lane for each caller, what it held and waited for, what struck it, and what was
-- wrong.
--
--     timeline.of(findings)                    -- each violation, a few seconds around it; without any, a window of the
--     run timeline.draw(book, { { from =, to =, title =, marks = { { from =, to =, lanes = { … } } } }, … })
--
-- `lua spec/prove/timeline.lua DIRECTORY FROM TO >picture.svg` draws any window, in seconds since the beginning.
local timeline = {}

local WIDTH, LEFT, RIGHT, LANE, HEAD = 1500, 130, 20, 20, 64
local COLOURS = { classic = "#2f6fb7", quorum = "#0f8b8d", mutex = "#7a4fa3", rwlock = "#b5651d", token = "#4d8b31",
  ["token-quorum"] = "#93a12c" }
local PANELS = 6

local function escape(text) return (tostring(text):gsub("[<>&\"]", { ["<"] = "&lt;", [">"] = "&gt;", ["&"] = "&amp;",
  ['"'] = "&quot;" })) end

local canvas = {}
canvas.__index = canvas

function canvas:put(...) table.insert(self.parts, (...):format(select(2, ...))) end

function canvas:rect(x, y, width, height, style, title)
  self:put('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s>%s</rect>', x, y, math.max(width, 0.7), height, style,
    title and "<title>" .. escape(title) .. "</title>" or "")
end

function canvas:text(x, y, text, style) self:put('<text x="%.1f" y="%.1f" %s>%s</text>', x, y, style or "",
  escape(text)) end

-- A panel -----------------------------------------------------------------------------------------------------------

local function x_of(panel, at)
  local bounded = math.min(math.max(at, panel.from), panel.to)
  return LEFT + (bounded - panel.from) / (panel.to - panel.from) * (WIDTH - LEFT - RIGHT)
end

local function is_in(panel, from, to) return from < panel.to and to > panel.from end

local function lanes_of(book, panel)
  local there, list = {}, {}
  local function add(lane, from, to)
    if is_in(panel, from, to) and not there[lane] then
      there[lane] = true
      table.insert(list, lane)
    end
  end
  for _, hold in ipairs(book.holds) do add(hold.lane, hold.got, hold.ended) end
  for _, waits in pairs(book.waits) do
    for _, wait in ipairs(waits) do add(wait.lane, wait.from, wait.to) end
  end
  for _, acts in pairs(book.acts) do
    for _, act in ipairs(acts) do add(act.lane, act.from, act.to) end
  end
  for _, strike in ipairs(book.strikes) do
    if strike.lane and strike.lane ~= "*" and not there[strike.lane .. ":1"] then add(strike.lane, strike.from,
      strike.to) end
  end
  table.sort(list)
  return list
end

-- Seconds between the lines of the axis: 1, 2 or 5 of some power of ten, so that there are about ten.
local function step_of(seconds)
  local power = 10 ^ math.floor(math.log(seconds / 10) / math.log(10))
  for _, factor in ipairs{ 1, 2, 5, 10 } do
    if seconds / (factor * power) <= 12 then return factor * power end
  end
  return seconds
end

local function axis(self, book, panel, top, bottom)
  local step = step_of(panel.to - panel.from)
  local digits = math.max(0, -math.floor(math.log(step) / math.log(10) + 1e-9))
  local at = math.ceil((panel.from - book.first) / step) * step
  while at <= panel.to - book.first do
    local x = x_of(panel, at + book.first)
    self:put('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>', x, top, x, bottom)
    self:text(x, bottom + 12, ("%." .. digits .. "f s"):format(at), 'class="axis" text-anchor="middle"')
    at = at + step
  end
end

local function label_of(hold)
  if hold.slot then return tostring(hold.slot) end
  return ({ read = "r", write = "w", mutex = "m", permit = "p" })[hold.kind] or ""
end

local function kind_of(book, pool) return book.pools[pool] and book.pools[pool].kind or pool end

local function draw_hold(self, book, panel, y, hold)
  local colour = COLOURS[kind_of(book, hold.pool)] or "#555"
  local x, right = x_of(panel, hold.got), x_of(panel, hold.ended)
  local title = ("%s %s, %.6f to %.6f, %s"):format(kind_of(book, hold.pool), label_of(hold), hold.got - book.first,
    hold.ended - book.first, hold.gone_code or hold.how or "")
  self:rect(x, y + 3, right - x, LANE - 6, ('fill="%s" fill-opacity="0.35"'):format(colour), title)
  if hold.from and hold.to > hold.from and is_in(panel, hold.from, hold.to) then
    self:rect(x_of(panel, hold.from), y + 3, x_of(panel, hold.to) - x_of(panel, hold.from), LANE - 6,
      ('fill="%s"'):format(colour), title)
  end
  if right - x > 9 then self:text(x + 2, y + LANE - 6, label_of(hold), 'class="slot"') end
  if hold.gone_code and is_in(panel, hold.gone, hold.gone + 1e-9) then
    self:text(x_of(panel, hold.gone), y + LANE - 5, "×", 'class="gone"')
  end
end

local function draw_strike(self, panel, rows, top, bottom, strike)
  local x, right = x_of(panel, strike.from), x_of(panel, math.max(strike.to, strike.from))
  local style = 'fill="#f3c04b" fill-opacity="%s"'
  if strike.lane == "*" then
    self:rect(x, top, right - x, bottom - top, style:format "0.22", strike.fault)
    self:text(x + 2, top - 3, strike.fault, 'class="fault"')
    return
  end
  local is_drawn
  for lane, y in pairs(rows) do
    if lane:match "^[^:]+" == strike.lane then
      self:rect(x, y, right - x, LANE, style:format "0.45", strike.fault)
      if not is_drawn then self:text(x + 2, y + 8, strike.fault, 'class="fault"') end
      is_drawn = true
    end
  end
  if not is_drawn then
    self:put('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#c98a00" stroke-dasharray="3 3"/>', x, top, x,
      bottom)
    self:text(x + 2, top - 3, strike.fault .. (strike.slot and " " .. strike.slot or ""), 'class="fault"')
  end
end

local function draw_marks(self, panel, rows, top, bottom)
  for _, mark in ipairs(panel.marks or {}) do
    local x, right = x_of(panel, mark.from), x_of(panel, mark.to)
    self:rect(x, top, right - x, bottom - top, 'fill="#e00" fill-opacity="0.18"')
    for _, lane in ipairs(mark.lanes or {}) do
      if rows[lane] then
        self:rect(x, rows[lane] + 1, right - x, LANE - 2, 'fill="none" stroke="#e00" stroke-width="2"', mark.text)
      end
    end
  end
end

local function draw_panel(self, book, panel, top)
  local lanes, rows = lanes_of(book, panel), {}
  local first = top + HEAD
  local bottom = first + #lanes * LANE
  self:text(LEFT, top + 16, panel.title, 'class="title"')
  if panel.words then self:text(LEFT, top + 34, panel.words, 'class="words"') end
  axis(self, book, panel, first, bottom)
  for i, lane in ipairs(lanes) do
    rows[lane] = first + (i - 1) * LANE
    self:text(LEFT - 8, rows[lane] + LANE - 6, lane, 'class="lane" text-anchor="end"')
    self:put('<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#eee"/>', LEFT, rows[lane] + LANE, WIDTH - RIGHT,
      rows[lane] + LANE)
  end
  for _, strike in ipairs(book.strikes) do
    if is_in(panel, strike.from, math.max(strike.to, strike.from + 1e-6)) then
      draw_strike(self, panel, rows, first, bottom, strike)
    end
  end
  for _, waits in pairs(book.waits) do
    for _, wait in ipairs(waits) do
      if is_in(panel, wait.from, wait.to) then
        self:rect(x_of(panel, wait.from), rows[wait.lane] + LANE - 6, x_of(panel, wait.to) - x_of(panel, wait.from), 3,
          ('fill="%s" fill-opacity="0.45"'):format(COLOURS[kind_of(book, wait.pool)] or "#555"),
          "waits for " .. kind_of(book, wait.pool))
      end
    end
  end
  for _, acts in pairs(book.acts) do
    for _, act in ipairs(acts) do
      if is_in(panel, act.from, act.to) then
        self:rect(x_of(panel, act.from), rows[act.lane] + 4, x_of(panel, act.to) - x_of(panel, act.from), LANE - 8,
          'fill="#444" fill-opacity="0.6"', act.action)
      end
    end
  end
  for _, hold in ipairs(book.holds) do
    if is_in(panel, hold.got, hold.ended) then draw_hold(self, book, panel, rows[hold.lane], hold) end
  end
  draw_marks(self, panel, rows, first, bottom)
  return bottom + 30
end

local STYLE = [[<style>text { font: 11px sans-serif; fill: #222 } .title { font-size: 14px; font-weight: bold }
.words { font-size: 11px; fill: #900 } .lane { font-size: 11px } .axis { font-size: 10px; fill: #777 }
.slot { font-size: 10px; fill: #fff }
.fault { font-size: 9px; fill: #8a5a00 } .gone { font-size: 15px; fill: #e00 }</style>]]

local function legend(self, y)
  local x = LEFT
  for _, kind in ipairs{ "classic", "quorum", "mutex", "rwlock", "token", "token-quorum" } do
    self:rect(x, y, 14, 12, ('fill="%s"'):format(COLOURS[kind]))
    self:text(x + 18, y + 10, kind)
    x = x + 105
  end
  self:text(LEFT, y + 30,
    "full: certainly held; pale: by what the calls returned; thin: waits; ×: not held any more, by "
    .. "held(); grey: an administrator at work; yellow: a fault; red: a violation")
  return y + 44
end

--- Draws windows of a book, one below the other.
function timeline.draw(book, panels)
  local self = setmetatable({ parts = {} }, canvas)
  local y = legend(self, 8)
  for _, panel in ipairs(panels) do y = draw_panel(self, book, panel, y) end
  return ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">\n'):format(WIDTH, y,
    WIDTH, y)
    .. STYLE .. '\n<rect width="100%" height="100%" fill="#fff"/>\n' .. table.concat(self.parts, "\n") .. "\n</svg>\n"
end

-- What to draw ------------------------------------------------------------------------------------------------------

-- The window in which most happened to happen.
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

--- Draws what was wrong, or a window of the run if nothing was.
function timeline.of(findings)
  local panels = {}
  for i, one in ipairs(findings.violations) do
    if i <= PANELS then table.insert(panels, around(findings.book, one)) end
  end
  if #panels == 0 then panels[1] = busiest(findings.book, 6) end
  return timeline.draw(findings.book, panels)
end

if arg and arg[0] and arg[0]:match "spec/prove/timeline%.lua$" then
  local journal = require "spec.prove.journal"
  local book = require("spec.prove.digest").of(journal.read_all(arg[1] .. "/journals"))
  local from, to = book.first + tonumber(arg[2]), book.first + tonumber(arg[3])
  io.write(timeline.draw(book, { { from = from, to = to, title = ("%s: %s to %s s"):format(arg[1], arg[2], arg[3]) } }))
end

return timeline
