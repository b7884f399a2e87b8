-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Draws one run of the demo as an SVG: when each worker held a slot and when it waited, and how many slots there were.
-- It reads the output of examples/demo/demo.lua without a terminal, and checks it with the demo's own ledger.
--
--     picture.draw(picture.read(io.lines "demo.txt"))      -- the SVG source
--
-- `lua tools/picture.lua LOG >PICTURE` does this from the shell; `make picture` runs the demo first.
local ledgers = dofile "examples/demo/ledger.lua"
local svg = require "tools.svg"

local picture = {}

local WIDTH, LEFT, RIGHT = 800, 88, 20
local LEGEND_Y, SLOTS_Y, SLOT_HEIGHT, ROW, BAR = 50, 92, 13, 26, 18
local NOTE_WIDTH = 126 -- of its longest line, in a wide font
local TAIL = 0.3 -- seconds drawn after the last event
local CLOCK = 0.01 -- seconds; the resolution of the demo's clock

local CSS = [[
.wrong { fill: #cf222e|#ff7b72 } .change { stroke: #59636e|#9ba4ae } .steps { stroke: #1f2328|#e6edf3 }
.held { fill: #c9d1d9|#3d444d } .wait { stroke: #8c959f|#7d8590 } .cross { stroke: #cf222e|#ff7b72 }
.slot1 { fill: #2166ac|#2f7fd1; stroke: #2166ac|#2f7fd1 } .slot2 { fill: #b35806|#c4680f; stroke: #b35806|#c4680f }
.slot3 { fill: #1b7837|#2a8f48; stroke: #1b7837|#2a8f48 } .slot4 { fill: #762a83|#9a4fab; stroke: #762a83|#9a4fab }
.paper-line { stroke: #ffffff|#0d1117 }
]]

-- Reading the demo's output -------------------------------------------------------------------------------------------

--- Reads the lines of the demo: returns its ledger, when each worker waited, and the second at which the picture ends.
function picture.read(lines)
  local ledger, waits, last = ledgers.new(), {}, 0
  for line in lines do
    local at, event = line:match "^%s*(%d+%.%d+)  (%w.*)$"
    if at then
      last = tonumber(at)
      ledger:read(event, last)
      for letter, worker in pairs(ledger.workers) do
        local list = waits[letter] or {}
        local open = list[#list] and not list[#list].to and list[#list]
        if worker.waits and not open then table.insert(list, { from = last }) end
        if not worker.waits and open then open.to = last end
        waits[letter] = list
      end
    end
  end
  local problems = ledger:verdict()
  if #problems > 0 then error("nothing is drawn of a demo that failed: " .. table.concat(problems, "; "), 0) end
  return { ledger = ledger, waits = waits, finish = last + TAIL }
end

-- How many of these intervals overlap: a list of { at, count }, one for each time at which that changes.
local function counted(intervals)
  local by, times, list, count = {}, {}, {}, 0
  local function change(at, step)
    if not by[at] then table.insert(times, at) end
    by[at] = (by[at] or 0) + step
  end
  for _, one in ipairs(intervals) do
    change(one.from, 1)
    if one.to then change(one.to, -1) end
  end
  table.sort(times)
  for _, at in ipairs(times) do
    count = count + by[at]
    if by[at] ~= 0 then table.insert(list, { at = at, count = count }) end
  end
  return list
end

-- The picture ---------------------------------------------------------------------------------------------------------

local style = svg.style
local PLAIN, NAME, TIME, UNIT = style "ink", style("ink", "end"), style("dim", "middle"), style("dim", "end")
local NOTE, CHANGE, WRONG = style("dim", "11"), style("ink", "bold"), style("wrong halo", "bold")
local NUMBER = style("#fff", "bold")
local WAIT = { class = "wait", ["stroke-width"] = 2, ["stroke-dasharray"] = "2 3" }
local CROSS = { class = "cross", ["stroke-width"] = 3, ["stroke-linecap"] = "round" }

local function x_of(run, at) return LEFT + at / run.finish * (WIDTH - LEFT - RIGHT) end

local function draw_cross(page, x, y)
  page:line(x - 5, y - 5, x + 5, y + 5, CROSS)
  page:line(x - 5, y + 5, x + 5, y - 5, CROSS)
end

local function draw_held(page, slot, from, to, y)
  if to > from then page:box(from, y - BAR / 2, to - from, BAR, { class = "slot" .. slot, stroke = "none" }) end
end

local function draw_removed(page, slot, from, to, y)
  page:box(from + 0.75, y - BAR / 2 + 0.75, to - from - 1.5, BAR - 1.5, { class = "slot" .. slot,
    ["fill-opacity"] = 0.25, ["stroke-width"] = 1.5 })
end

local function draw_legend(page, slots)
  local x, y = LEFT, LEGEND_Y
  for slot = 1, slots do
    draw_held(page, slot, x, x + 22, y)
    page:text(x + 7, y + 4, slot, NUMBER)
    x = x + 26
  end
  page:text(x + 4, y + 4, "holds this slot", PLAIN)
  draw_removed(page, slots, x + 116, x + 138, y)
  page:text(x + 144, y + 4, "still holds it after its removal", PLAIN)
  page:line(x + 348, y, x + 375, y, WAIT)
  page:text(x + 382, y + 4, "waits for a slot", PLAIN)
  draw_cross(page, x + 502, y)
  page:text(x + 513, y + 4, "killed", PLAIN)
end

local function draw_axis(page, run, top, bottom)
  for second = 0, math.floor(run.finish) do
    local x, is_told = x_of(run, second), second % 2 == 0
    page:line(x, is_told and top or bottom, x, bottom + (is_told and 6 or 4), { class = "grid" })
    if is_told then page:text(x, bottom + 19, second, TIME) end
  end
  page:line(LEFT, bottom, WIDTH - RIGHT, bottom, { class = "axis" })
  page:text(LEFT - 10, bottom + 19, "seconds", UNIT)
end

-- A line through all rows whenever the number of slots changes.
local function draw_changes(page, run, bottom)
  local before
  for _, change in ipairs(counted(run.ledger.lanes)) do
    local x, by = x_of(run, change.at), change.count - (before or change.count)
    local done = by > 0 and ("%d added: "):format(by) or by < 0 and ("%d removed: "):format(-by) or ""
    if before then page:line(x, SLOTS_Y - 16, x, bottom, { class = "change", ["stroke-dasharray"] = "5 3" }) end
    page:text(x + 5, SLOTS_Y - 7, ("%s%d slots"):format(done, change.count), CHANGE)
    before = change.count
  end
end

-- The corners of a line that shows the number of these intervals over time.
local function steps(run, intervals, bottom)
  local points, y = {}, nil
  for _, change in ipairs(counted(intervals)) do
    local x = x_of(run, change.at)
    if y then table.insert(points, { x, y }) end
    y = bottom - change.count * SLOT_HEIGHT
    table.insert(points, { x, y })
  end
  table.insert(points, { x_of(run, run.finish), y })
  return points
end

-- The number of slots, and under this line the number of held slots.
local function draw_slots(page, run, bottom)
  local holds, settled = {}, nil
  for _, lane in ipairs(run.ledger.lanes) do
    for _, span in ipairs(lane.spans) do
      table.insert(holds, span)
      if lane.to and span.to and span.to > lane.to then settled = math.max(settled or 0, span.to) end
    end
  end
  local area = steps(run, holds, bottom)
  table.insert(area, 1, { area[1][1], bottom })
  table.insert(area, { area[#area][1], bottom })
  page:path(area, { class = "held", stroke = "none" })
  page:line(LEFT, bottom, WIDTH - RIGHT, bottom, { class = "axis" })
  page:path(steps(run, run.ledger.lanes, bottom), { class = "steps", ["stroke-width"] = 2 })
  local middle = (SLOTS_Y + bottom) / 2
  page:text(LEFT - 10, middle - 5, "slots", NAME)
  page:line(LEFT - 68, middle - 9, LEFT - 50, middle - 9, { class = "steps", ["stroke-width"] = 2 })
  page:text(LEFT - 10, middle + 13, "held", NAME)
  page:box(LEFT - 68, middle + 3, 18, 11, { class = "held" })
  if settled then
    local x = math.min(x_of(run, settled) + 6, WIDTH - NOTE_WIDTH)
    page:text(x, SLOTS_Y + 8, "a removed slot stays", NOTE)
    page:text(x, SLOTS_Y + 20, "held until its release", NOTE)
  end
end

local function draw_hold(page, run, slot, span, y)
  local from, to, removed = x_of(run, span.from), x_of(run, span.to or run.finish), run.ledger.lanes[slot].to
  removed = removed and math.max(x_of(run, removed), from) or math.huge
  draw_held(page, slot, from, math.min(removed, to), y)
  if removed < to then draw_removed(page, slot, removed, to, y) end
  if math.min(removed, to) - from > 16 then page:text(from + 5, y + 4, slot, NUMBER) end
end

local function draw_worker(page, run, letter, y)
  page:text(LEFT - 10, y + 4, "worker " .. letter, NAME)
  for _, wait in ipairs(run.waits[letter]) do
    page:line(x_of(run, wait.from), y, x_of(run, wait.to or run.finish), y, WAIT)
  end
  for slot, lane in ipairs(run.ledger.lanes) do
    for _, span in ipairs(lane.spans) do
      if span.who == letter then draw_hold(page, run, slot, span, y) end
    end
  end
end

-- The kill, and an arrow to the worker that gets the slot next.
local function draw_kill(page, run, y_of)
  local kill = run.ledger.kill
  local x, y, there = x_of(run, kill.at + kill.after), y_of[kill.who], y_of[kill.by]
  local down = there > y and 1 or -1
  local tip = there - down * (BAR / 2 + 1)
  local arrow = { { x, y + down * 9 }, { x, tip }, { x - 4, tip - down * 7 }, { x + 4, tip - down * 7 }, { x, tip } }
  page:path(arrow, { class = "paper-line", ["stroke-width"] = 5 })
  page:path(arrow, { class = "cross wrong", ["stroke-width"] = 2 })
  draw_cross(page, x_of(run, kill.at), y)
  page:text(x_of(run, kill.at) + 12, y + 4, ("kill -9: worker %s gets slot %d within %.2f s"):format(kill.by, kill.slot,
    kill.after + CLOCK), WRONG)
end

--- The SVG source.
function picture.draw(run)
  local page = svg.page(WIDTH, "Seven processes share the slots of a semaphore in RabbitMQ", LEFT, 26, CSS)
  local letters, y_of = {}, {}
  for letter in pairs(run.ledger.workers) do table.insert(letters, letter) end
  table.sort(letters)
  local slots_bottom = SLOTS_Y + #run.ledger.lanes * SLOT_HEIGHT
  local bottom = slots_bottom + 10 + #letters * ROW
  for i, letter in ipairs(letters) do y_of[letter] = slots_bottom + 10 + (i - 0.5) * ROW end
  page.height = bottom + 30
  draw_legend(page, #run.ledger.lanes)
  draw_axis(page, run, SLOTS_Y, bottom)
  draw_slots(page, run, slots_bottom)
  draw_changes(page, run, bottom)
  for _, letter in ipairs(letters) do draw_worker(page, run, letter, y_of[letter]) end
  draw_kill(page, run, y_of)
  return page:source()
end

if arg and arg[0] and arg[0]:match "tools/picture%.lua$" then io.write(picture.draw(picture.read(io.lines(arg[1])))) end

return picture
