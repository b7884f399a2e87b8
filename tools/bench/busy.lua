-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- How long it takes to find and claim the one free slot behind many held slots. It compares the library, in the order
-- of the slots and from a random slot on, with rabbitmq-c, which asks one question after the other. Each try of the
-- library uses a semaphore object that has not seen the semaphore before. It also draws a picture.
local amqplocks = require "amqplocks"
local bare = require "bare"
local rows = require "tools.bench.parts.rows"
local svg = require "tools.svg"

local SLOTS, ROUNDS = 1001, 7
local BUSY = { 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000 }
local PICTURE = "build/bench/acquire.svg"

local conn = assert(amqplocks.connect(nil, { name = "bench" }))
local raw, occupant = bare.connect(os.getenv "AMQP_URL"), bare.connect(os.getenv "AMQP_URL")
local name = ("bench-%d"):format(os.time())
assert(conn:admin(name):create(SLOTS, { timeout = 120 }))

-- Measuring ----------------------------------------------------------------------------------------------------------

local function ours(strategy)
  return function()
    local semaphore, lock = conn:semaphore(name, { strategy = strategy })
    local took = rows.seconds(function() lock = assert(semaphore:try_acquire()) end)
    assert(lock:release())
    return took
  end
end

local function in_turn()
  local slot
  local took = rows.seconds(function() slot = raw:acquire_in_turn(name) end)
  raw:delete(("%s-%d-B"):format(name, slot))
  return took
end

local ways = {
  { label = "one question at a time", take = in_turn, color = "#b03030", points = {} },
  { label = "amqp-locks, from a random slot on", take = ours "random", color = "#3080b0", points = {} },
  { label = "amqp-locks, in the order of the slots", take = ours "ascending", color = "#208040", points = {} },
}

local function milliseconds(seconds) return ("%.1f"):format(seconds * 1e3) end

local function measure(busy)
  local times = { {}, {}, {} }
  for round = 0, ROUNDS do -- the first round warms up
    for i, way in ipairs(ways) do
      local took = way.take()
      if round > 0 then times[i][round] = took end
    end
  end
  for i, way in ipairs(ways) do
    table.insert(way.points, { busy = busy, median = rows.median(times[i]), low = rows.quantile(times[i], 0.25),
      high = rows.quantile(times[i], 0.75) })
  end
  local one, random, order = rows.median(times[1]), rows.median(times[2]), rows.median(times[3])
  print(("%6d %14s %14s %14s %17.1f"):format(busy, milliseconds(order), milliseconds(random), milliseconds(one),
    one / order))
end

-- The picture: both axes logarithmic ---------------------------------------------------------------------------------

local WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 460, 70, 20, 50, 60
local MOST = 1200 -- end of the axis of busy slots

local function log10(value) return math.log(value) / math.log(10) end

-- The powers of ten below and above all values.
local function bounds()
  local low, high = math.huge, 0
  for _, way in ipairs(ways) do
    for _, point in ipairs(way.points) do low, high = math.min(low, point.low), math.max(high, point.high) end
  end
  return 10 ^ math.floor(log10(low)), 10 ^ math.ceil(log10(high))
end

local function seconds_label(seconds)
  if seconds >= 1 then return ("%.0f s"):format(seconds) end
  return seconds >= 1e-3 and ("%.0f ms"):format(seconds * 1e3) or ("%.1f ms"):format(seconds * 1e3)
end

local function draw_axes(picture, x, y, low, high)
  local grid, middle, right = { stroke = "#ddd" }, { ["text-anchor"] = "middle" }, { ["text-anchor"] = "end" }
  for _, busy in ipairs(BUSY) do
    picture:line(x(busy), TOP, x(busy), HEIGHT - BOTTOM, grid)
    picture:text(x(busy), HEIGHT - BOTTOM + 18, busy, middle)
  end
  for power = math.floor(log10(low) + 0.5), math.floor(log10(high) + 0.5) do
    local at = 10 ^ power
    picture:line(LEFT, y(at), WIDTH - RIGHT, y(at), { stroke = "#bbb" })
    picture:text(LEFT - 8, y(at) + 4, seconds_label(at), right)
    for part = 2, at < high and 9 or 0 do picture:line(LEFT, y(part * at), WIDTH - RIGHT, y(part * at), grid) end
  end
  picture:text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, "slots that are held before the free one", middle)
  picture:text(LEFT, 24, "Time to acquire a slot", { ["font-size"] = 16 })
  picture:text(LEFT, 40, ("medians and quartiles of %d; %d slots, broker on the same machine"):format(ROUNDS, SLOTS),
    { fill = "#666", ["font-size"] = 11 })
end

local function draw_way(picture, way, x, y)
  local points = {}
  for i, point in ipairs(way.points) do
    points[i] = { x(point.busy), y(point.median) }
    picture:line(x(point.busy), y(point.low), x(point.busy), y(point.high), { stroke = way.color })
    picture:dot(x(point.busy), y(point.median), 3.5, { fill = way.color })
  end
  picture:path(points, { stroke = way.color, ["stroke-width"] = 1.5 })
end

local function draw()
  local low, high = bounds()
  local function x(busy) return LEFT + 20 + (WIDTH - LEFT - RIGHT - 20) * log10(busy) / log10(MOST) end
  local function y(seconds)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * log10(seconds / low) / log10(high / low)
  end
  local picture = svg.new(WIDTH, HEIGHT)
  draw_axes(picture, x, y, low, high)
  for i, way in ipairs(ways) do
    draw_way(picture, way, x, y)
    local line = TOP + 4 + 18 * i
    picture:box(LEFT + 12, line - 9, 10, 10, { fill = way.color })
    picture:text(LEFT + 28, line, way.label)
  end
  picture:save(PICTURE)
  print("picture: " .. PICTURE)
end

print(("%6s %14s %14s %14s %17s"):format("busy", "in order, ms", "random, ms", "one by one, ms", "one by one / ours"))
local held = 0
for _, busy in ipairs(BUSY) do
  occupant:occupy(name, held + 1, busy)
  held = busy
  measure(busy)
end
draw()

occupant:close()
raw:close()
assert(conn:admin(name):destroy{ timeout = 120 })
conn:close()
