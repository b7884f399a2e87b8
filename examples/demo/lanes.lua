-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- Draws the ledger of ledger.lua in the terminal: a lane for every slot, with time from left to right. Each picture is
-- drawn over the last one, from the ledger alone. It fits the width of the terminal, and scrolls to the left when the
-- story takes longer than the picture is wide.

local Lanes = {}
Lanes.__index = Lanes

local SECONDS = 20 -- of time that fit in a picture
local LABEL = 9

local blocks = {
  held = "▇", removed = "░", free = "·", killed = "✗",
  waiting = { [0] = " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" },
}
local ascii = {
  held = "=", removed = ":", free = ".", killed = "X",
  waiting = { [0] = " ", "1", "2", "3", "4", "5", "6", "7", "8" },
}

local palette = { 71, 179, 68, 133, 73, 209, 245, 106 } -- readable on black and on white
local DIM, RED, BOLD = "2", "1;31", "1"

local function locale()
  for _, name in ipairs { "LC_ALL", "LC_CTYPE", "LANG" } do
    local value = os.getenv(name) or ""
    if value ~= "" then return value:lower() end
  end
  return ""
end

--- For a terminal of this size.
local function new(rows, columns)
  return setmetatable({
    rows = rows,
    columns = columns,
    cells = math.max(columns - LABEL - 2, 10),
    glyphs = locale():find "utf%-?8" and blocks or ascii,
    coloured = not os.getenv "NO_COLOR",
    shift = 0, -- cells that were scrolled out on the left
    drawn = 0, -- lines of the last picture
  }, Lanes)
end

local function paint(self, style, text)
  return self.coloured and ("\27[%sm%s\27[m"):format(style, text) or text
end

local function letter_style(letter, ground)
  local colour = palette[(letter:byte() - ("A"):byte()) % #palette + 1]
  return ground and ("1;30;48;5;%d"):format(colour) or ("38;5;%d"):format(colour)
end

local function cell_at(self, time) return math.floor(time / SECONDS * self.cells) + 1 end

local function column(self, time) return cell_at(self, time) - self.shift end

local function row(self, label, cells)
  for c = 1, self.cells do cells[c] = cells[c] or " " end
  return ("%" .. LABEL .. "s "):format(label) .. table.concat(cells, "", 1, self.cells)
end

local function axis(self, now)
  local text = {}
  local function write(at, label)
    for i = 1, #label do text[at + i - 1] = paint(self, DIM, label:sub(i, i)) end
  end
  for second = 0, math.max(now, SECONDS), 5 do
    if column(self, second) > 0 then write(column(self, second), tostring(second)) end
  end
  return row(self, "seconds", text)
end

-- A holder's letter, then its colour for as long as it holds. Returns the last cell that must not be overwritten.
local function draw_span(self, cells, lane, span, now, taken)
  local first = math.max(column(self, span.from), taken + 1)
  local last = math.max(column(self, span.to or now), first)
  local removed = lane.to and column(self, lane.to) or math.huge
  cells[first] = paint(self, letter_style(span.who, true), span.who)
  for c = first + 1, last do
    cells[c] = paint(self, letter_style(span.who), c >= removed and self.glyphs.removed or self.glyphs.held)
  end
  if not span.killed then return first - 1 end
  last = math.max(last, first + 1)
  cells[last] = paint(self, RED, self.glyphs.killed)
  return last
end

local function draw_lane(self, slot, lane, now)
  local cells, taken = {}, -math.huge
  for c = column(self, lane.from), column(self, lane.to or now) do cells[c] = paint(self, DIM, self.glyphs.free) end
  for _, span in ipairs(lane.spans) do taken = draw_span(self, cells, lane, span, now, taken) end
  return row(self, "slot " .. slot, cells)
end

local function draw_waiting(self, ledger, now)
  local cells, from, count = {}, 1, 0
  local function fill(to)
    for c = math.max(from, 1), to do cells[c] = paint(self, DIM, self.glyphs.waiting[count]) end
    from = to + 1
  end
  for _, change in ipairs(ledger.waiting) do
    fill(column(self, change.at) - 1)
    count = change.count
  end
  fill(column(self, now))
  return row(self, "waiting", cells)
end

local function draw_marks(self, ledger)
  local cells, free = {}, -math.huge
  for _, mark in ipairs(ledger.marks) do
    local first = math.max(column(self, mark.at), free)
    for i = 1, #mark.text do cells[first + i - 1] = paint(self, BOLD, mark.text:sub(i, i)) end
    free = first + #mark.text + 1
  end
  return row(self, "", cells)
end

local function draw_queue(self, ledger)
  local letters = {}
  for i, letter in ipairs(ledger:queue()) do letters[i] = paint(self, letter_style(letter, true), letter) end
  return (" "):rep(LABEL - 7) .. "waiting now: " .. table.concat(letters, " ")
end

local function draw_remark(self, remark)
  return ("%" .. LABEL .. ".1f %s"):format(remark.at, remark.text):sub(1, self.columns - 1)
end

local function picture(self, ledger, now)
  local lines = { axis(self, now) }
  for slot, lane in ipairs(ledger.lanes) do lines[#lines + 1] = draw_lane(self, slot, lane, now) end
  lines[#lines + 1] = draw_waiting(self, ledger, now)
  lines[#lines + 1] = draw_marks(self, ledger)
  lines[#lines + 1] = draw_queue(self, ledger)
  lines[#lines + 1] = ""
  local room = self.rows - 1 - #lines
  for i = math.max(#ledger.remarks - room + 1, 1), #ledger.remarks do
    lines[#lines + 1] = draw_remark(self, ledger.remarks[i])
  end
  return lines
end

--- The meaning of the signs.
function Lanes:legend()
  local g = self.glyphs
  return ("Left to right: A%s held by A, %s removed but held, %s free, %s killed")
    :format(g.held:rep(3), g.removed:rep(3), g.free, g.killed)
end

--- Draws the ledger as of `now` seconds after the beginning; leaves the cursor below.
function Lanes:draw(ledger, now)
  self.shift = math.max(cell_at(self, now) - self.cells, 0)
  local lines = picture(self, ledger, now)
  local up = self.drawn > 0 and ("\27[%dA"):format(self.drawn) or ""
  io.write(up, "\r", table.concat(lines, "\27[K\n"), "\27[K\n\27[J")
  io.flush()
  self.drawn = #lines
end

return { new = new }
