-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Pictures: lines, boxes and words, written as SVG.
--
--     local picture = require "spec.support.svg".new(800, 400)
--     picture:line(x1, y1, x2, y2, { stroke = "#888", ["stroke-dasharray"] = "2 4" })
--     picture:path({ { x, y }, … }, { stroke = "#c00" })    -- one line through all of them
--     picture:box(x, y, width, height, { fill = "#eee" })
--     picture:dot(x, y, radius, { fill = "#c00" })
--     picture:text(x, y, "words", { ["text-anchor"] = "middle" })
--     picture:save("build/picture.svg")
local svg = {}
svg.__index = svg

local ESCAPED = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }

local function escaped(text) return (tostring(text):gsub('[&<>"]', ESCAPED)) end

local function number(value) return type(value) == "number" and ("%.6g"):format(value) or escaped(value) end

-- In alphabetical order, so that the same picture is the same file.
local function attributes(...)
  local list, all = {}, {}
  for i = 1, select("#", ...) do
    for name, value in pairs((select(i, ...)) or {}) do all[name] = value end
  end
  for name, value in pairs(all) do table.insert(list, (' %s="%s"'):format(name, number(value))) end
  table.sort(list)
  return table.concat(list)
end

function svg.new(width, height)
  local self = setmetatable({ width = width, height = height, parts = {} }, svg)
  self:box(0, 0, width, height, { fill = "#fff" })
  return self
end

local function add(self, ...) table.insert(self.parts, table.concat{ ... }) end

function svg:line(x1, y1, x2, y2, style)
  add(self, "<line", attributes({ x1 = x1, y1 = y1, x2 = x2, y2 = y2, stroke = "#000" }, style), "/>")
end

function svg:path(points, style)
  local list = {}
  for i, point in ipairs(points) do list[i] = number(point[1]) .. "," .. number(point[2]) end
  add(self, "<polyline", attributes({ points = table.concat(list, " "), fill = "none", stroke = "#000" }, style), "/>")
end

function svg:box(x, y, width, height, style)
  add(self, "<rect", attributes({ x = x, y = y, width = width, height = height }, style), "/>")
end

function svg:dot(x, y, radius, style) add(self, "<circle", attributes({ cx = x, cy = y, r = radius }, style), "/>") end

function svg:text(x, y, words, style)
  add(self, "<text", attributes({ x = x, y = y }, style), ">", escaped(words), "</text>")
end

function svg:save(path)
  local file = assert(io.open(path, "w"))
  assert(file:write(('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
    .. 'font-family="sans-serif" font-size="12">\n'):format(self.width, self.height, self.width, self.height),
    table.concat(self.parts, "\n"), "\n</svg>\n"))
  assert(file:close())
end

return svg
