-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Pictures: lines, boxes and text, written as SVG.
--
--     local picture = require "tools.svg".new(800, 400)
--     picture:line(x1, y1, x2, y2, { stroke = "#888", ["stroke-dasharray"] = "2 4" })
--     picture:path({ { x, y }, … }, { stroke = "#c00" })    -- one line through all of them
--     picture:box(x, y, width, height, { fill = "#eee" }, "the tooltip")
--     picture:dot(x, y, radius, { fill = "#c00" })
--     picture:text(x, y, "words", { ["text-anchor"] = "middle" })
--     picture.height = 500                                  -- may be set last
--     picture.title = "what it shows"                       -- for screen readers
--     picture.description = "the same at length"            -- for screen readers, too
--     picture.css = svg.CSS .. ".bar { fill: #2166ac }"     -- the background is of class paper
--     svg.style("ink", { ["font-size"] = 16 })              -- a style with a class of the CSS
--     picture:save("build/picture.svg")                     -- or picture:source()
local svg = {}
svg.__index = svg

--- Colours for a light and for a dark background. A viewer without media queries shows the light ones.
svg.CSS = [[
.paper { fill: #ffffff } .ink { fill: #1f2328 } .dim { fill: #59636e }
.grid { stroke: #d8dee4 } .axis { stroke: #59636e }
.halo { stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; paint-order: stroke }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 } .ink { fill: #e6edf3 } .dim { fill: #9ba4ae }
.grid { stroke: #2a313a } .axis { stroke: #9ba4ae }
.halo { stroke: #0d1117 }
}
]]

local ESCAPED = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }

local function escaped(text) return (tostring(text):gsub('[&<>"]', ESCAPED)) end

local function number(value) return type(value) == "number" and ("%.6g"):format(value) or escaped(value) end

-- In alphabetical order, so that equal pictures are equal files.
local function attributes(...)
  local list, all = {}, {}
  for i = 1, select("#", ...) do
    for name, value in pairs((select(i, ...)) or {}) do all[name] = value end
  end
  for name, value in pairs(all) do table.insert(list, (' %s="%s"'):format(name, number(value))) end
  table.sort(list)
  return table.concat(list)
end

-- The second of two styles takes precedence.
local function element(name, content, ...)
  local opening = "<" .. name .. attributes(...)
  return content and opening .. ">" .. content .. "</" .. name .. ">" or opening .. "/>"
end

local function add(self, ...) table.insert(self.parts, element(...)) end

--- A style of a class, and further attributes.
function svg.style(class, more)
  local all = { class = class }
  for name, value in pairs(more or {}) do all[name] = value end
  return all
end

function svg.new(width, height) return setmetatable({ width = width, height = height, parts = {} }, svg) end

function svg:line(x1, y1, x2, y2, style)
  add(self, "line", nil, { x1 = x1, y1 = y1, x2 = x2, y2 = y2, stroke = "#000" }, style)
end

function svg:path(points, style)
  local list = {}
  for i, point in ipairs(points) do list[i] = number(point[1]) .. "," .. number(point[2]) end
  add(self, "polyline", nil, { points = table.concat(list, " "), fill = "none", stroke = "#000" }, style)
end

function svg:box(x, y, width, height, style, title)
  local words = title and element("title", escaped(title))
  add(self, "rect", words, { x = x, y = y, width = width, height = height }, style)
end

function svg:dot(x, y, radius, style) add(self, "circle", nil, { cx = x, cy = y, r = radius }, style) end

function svg:text(x, y, words, style) add(self, "text", escaped(words), { x = x, y = y }, style) end

--- The SVG source.
function svg:source()
  local parts = {}
  if self.title then table.insert(parts, element("title", escaped(self.title))) end
  if self.description then table.insert(parts, element("desc", escaped(self.description))) end
  if self.css then table.insert(parts, element("style", "\n" .. escaped(self.css))) end
  table.insert(parts, element("rect", nil, { width = self.width, height = self.height, fill = "#fff" },
    self.css and { class = "paper" }))
  table.insert(parts, table.concat(self.parts, "\n"))
  return element("svg", ("\n%s\n"):format(table.concat(parts, "\n")), {
    xmlns = "http://www.w3.org/2000/svg", width = self.width, height = self.height,
    viewBox = ("0 0 %d %d"):format(self.width, self.height), ["font-family"] = "sans-serif", ["font-size"] = 12,
  }, self.title and { role = "img" }) .. "\n"
end

function svg:save(path)
  local file = assert(io.open(path, "w"))
  assert(file:write(self:source()))
  assert(file:close())
end

return svg
