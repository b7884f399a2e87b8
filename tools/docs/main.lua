-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- `make docs`: makes HTML of the documents and the manual pages, with an index of all calls.
--     lua tools/docs/main.lua DIRECTORY
-- cmark-gfm, GitHub's own converter, and mandoc do the work. What is added here: anchors of headings as GitHub makes
-- them, links between the pages, the frame of a page, and index.html.
local index = require "tools.docs.index"
local links = require "tools.docs.links"

local OUT = assert(arg[1], "which directory?")

local function read(path) return assert(io.open(path)):read "*a" end

local function write(name, text)
  local file = assert(io.open(OUT .. "/" .. name, "w"))
  assert(file:write(text))
  assert(file:close())
end

local function output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "*a"
  return assert(pipe:close() and text ~= "" and text, "no output, or a failure: " .. command)
end

-- A list, and by their paths: { path =, name = of the HTML file, title =, html = }
local pages = {}
for path in output("echo README.md docs/*.md docs/man/* CONTRIBUTING.md CHANGELOG.md"):gmatch "%S+" do
  local page = { path = path, name = path:match("[^/]+$"):gsub("%.md$", "") .. ".html" }
  table.insert(pages, page)
  pages[path] = page
end

local ENTITIES = { amp = "&", lt = "<", gt = ">", quot = '"' }
local function plain(html) return (html:gsub("<[^>]*>", ""):gsub("&(%l+);", ENTITIES)) end

-- A link to a file that is no page becomes text, and tells the path when it is pointed at.
local function link(page, attributes, target, text)
  local path, anchor = target:match "^([^#]*)(.*)$"
  local to = links.resolve(page.path, path)
  if path == "" or path:find "^%a[%w+.-]*:" then return nil end
  if not pages[to] then return ('<span title="%s">%s</span>'):format(to, text) end
  return ('<a%shref="%s%s">%s</a>'):format(attributes, pages[to].name, anchor, text)
end

local function picture(page, path)
  local name = path:match "[^/]+$"
  write(name, read(links.resolve(page.path, path)))
  return ('<img src="%s"'):format(name)
end

local function of_markdown(page)
  local html = output("cmark-gfm -e table " .. page.path):gsub("<(h%d)>(.-)</h%d>", function(tag, heading)
    page.title = page.title or plain(heading)
    return ('<%s id="%s">%s</%s>'):format(tag, links.anchor(plain(heading)), heading, tag)
  end)
  return html:gsub('<img src="([^"]*)"', function(path) return picture(page, path) end)
end

-- mandoc gives the anchor of a function to the first place that names it. Here it is the place that describes it.
local function of_manual(page)
  page.title = page.path:match("[^/]+$"):gsub("%.(%d)$", "(%1)")
  local html = output("mandoc -T html -O fragment,man=%N.%S " .. page.path)
  html = html:gsub('<table class="%l+">.-</table>', ""):gsub("(</?h)(%d)", function(h, n) return h .. n + 1 end)
  html = html:gsub('(<[^d]%w* class="%u%l"[^>]-) id="al_[^"]*"', "%1"):gsub('<dt>(<code class="Fn">([%w_]+))',
    '<dt id="%2">%1')
  return "<h1>" .. page.title .. "</h1>" .. html
end

local FRAME = read "tools/docs/page.html"
local function save(name, title, html)
  html = html:gsub("<table>.-</table>", '<div class="wide" tabindex="0">%0</div>')
  write(name, (FRAME:gsub("{(%l+)}", { title = title:gsub("<", "&lt;"), body = html })))
end

for _, page in ipairs(pages) do
  local html = (page.path:find "%.md$" and of_markdown or of_manual)(page)
  page.html = html:gsub('<a([^>]-)href="([^"]*)">(.-)</a>', function(...) return link(page, ...) end)
end
for _, page in ipairs(pages) do save(page.name, page.title, page.html) end
save("index.html", "Index", index.html(pages))
write("style.css", read "tools/docs/style.css")
