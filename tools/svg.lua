-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Pictures: lines, boxes and text, written as SVG.
--
--     local picture = svg.new(800, 400)                     -- or svg.page, which has a title and colours
--     picture:line(x1, y1, x2, y2, { stroke = "#888", ["stroke-dasharray"] = "2 4" })
--     picture:path({ { x, y }, … }, { stroke = "#c00" })    -- one line through all of them
--     picture:box(x, y, width, height, { fill = "#eee" }, "the tooltip")
--     picture:dot(x, y, radius, { fill = "#c00" })
--     picture:text(x, y, "words", { ["text-anchor"] = "middle" })
--     picture.height = 500                                  -- may be set last
--     picture.description = "the same at length"            -- for screen readers
--     svg.style("ink", "16 bold end")                       -- a style of text: a class or a colour, and words
--     picture:save("build/picture.svg")                     -- or picture:source()
local svg = {}
svg.__index = svg

-- #light|#dark: the colours for a light and for a dark background. A viewer without media queries shows the light ones.
local CSS = [[
.paper { fill: #ffffff|#0d1117 } .ink { fill: #1f2328|#e6edf3 } .dim { fill: #59636e|#9ba4ae }
.grid { stroke: #d8dee4|#2a313a } .axis { stroke: #59636e|#9ba4ae }
.halo { stroke: #ffffff|#0d1117; stroke-width: 4px; stroke-linejoin: round; paint-order: stroke }
]]

local function both_schemes(css)
  return css:gsub("|#%x+", "") .. "@media (prefers-color-scheme: dark) {\n" .. css:gsub("#%x+|", "") .. "}\n"
end

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

--- A style of text. `paint` is a class or a colour. `words` are a size, "bold", and "middle" or "end" for the anchor.
function svg.style(paint, words)
  local style = { [paint:match "^#" and "fill" or "class"] = paint }
  for word in (words or ""):gmatch "%S+" do
    local name = tonumber(word) and "font-size" or word == "bold" and "font-weight" or "text-anchor"
    style[name] = word
  end
  return style
end

--- The step of an axis over `range`: 1, 2 or 5 times a power of ten, so that there are about `wanted` steps, at most
-- `most`.
function svg.step(range, wanted, most)
  local power = 10 ^ math.floor(math.log(range / wanted) / math.log(10))
  for _, times in ipairs{ 1, 2, 5, 10 } do
    if range / (power * times) <= most then return power * times end
  end
end

function svg.new(width, height) return setmetatable({ width = width, height = height, parts = {} }, svg) end

--- A picture with a title, at this place, on a background that is light or dark. `css` has further classes; a colour is
-- written as #light|#dark.
function svg.page(width, title, x, y, css)
  local page = svg.new(width)
  page.css, page.title = both_schemes(CSS .. css), title
  page:text(x, y, title, svg.style("ink", "16 bold"))
  return page
end

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
