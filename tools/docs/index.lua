-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The index: an entry for each function, method, field and option of Lua, from the annotations; for each function of C
-- and option of a command, from the manual pages; and for each error code. An entry links to the place that describes
-- it. A field in the head of the page filters them.
local annotations = require "spec.support.annotations"

local index = {}

local MODULES = { amqplocks = true, dblocks = true, metrics = true, testing = true } -- their functions are public

-- The section that describes a class, or one of its methods.
local SECTIONS = {
  ["dblocks.html#the-interface"] = "dblocks",
  ["drivers.html#a-driver-for-another-loop"] = "Loop LoopCondition LoopSocket LoopTls",
  ["guide.html#administering"] = "Admin AdminOptions Connection.admin",
  ["guide.html#asking-for-a-lock-back"] = "RevokeOptions",
  ["guide.html#connecting"] = "ConnectOptions Connection.close TlsOptions amqplocks",
  ["guide.html#elections"] = "Connection.elect ElectOptions",
  ["guide.html#events-and-statistics"] = "Connection.on_event Connection.stats Event Stats",
  ["guide.html#fast-mutexes"] = "FastMutex FastMutexOptions",
  ["guide.html#locking"] = "Connection Lock Semaphore SemaphoreOptions",
  ["guide.html#losing-a-lock"] = "Connection.events Connection.on_lost Connection.pollfd Connection.timeout",
  ["guide.html#mutexes"] = "Mutex MutexAcquireOptions MutexOptions",
  ["guide.html#permits"] = "TokenAdminOptions TokenSemaphore TokenSemaphoreOptions",
  ["guide.html#readers-and-writers"] = "RWLock RWLockOptions",
  ["guide.html#reentrant-mutexes"] = "Entry",
  ["guide.html#several-locks-at-once"] = "All Connection.all Side",
  ["guide.html#several-slots-or-permits"] = "Locks SlotsOptions",
  ["guide.html#waiting"] = "AcquireOptions SettlingOptions",
  ["monitoring.html#serving-them"] = "Metrics MetricsOptions metrics",
  ["testing.html#the-world"] = "World WorldEntry testing",
}
local SECTION_OF = {}
for section, names in pairs(SECTIONS) do
  for name in names:gmatch "%S+" do SECTION_OF[name] = section end
end

local FILTER = [[
<script>
const field = document.querySelector("input"), groups = document.querySelectorAll("section")
function filter() {
  const words = field.value.toLowerCase().replace(/\bconn:/g, "connection:").split(/\s+/)
  for (const group of groups) {
    for (const row of group.querySelectorAll("li"))
      row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word))
    group.hidden = !group.querySelector("li:not([hidden])")
  }
  document.querySelector("#none").hidden = document.querySelector("li:not([hidden])")
}
field.value = new URLSearchParams(location.search).get("q")
field.addEventListener("input", filter)
filter()
</script>]]

local function read(path) return assert(io.open(path)):read "*a" end

-- Of a comment, as HTML.
local ENTITIES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" }
local function rich(text) return (text:gsub("[&<>]", ENTITIES):gsub("`([^`]*)`", "<code>%1</code>")) end

local function sentence(text) return text:match "^%s*(.-%.)%s+%u" or text end

local function add(group, link, name, text)
  local key = (name:match "al_[%l_]+%f[(]" or name):lower():gsub("^%-+", "")
  local html = ('<li><a href="%s"><code>%s</code></a> %s'):format(link, rich(name), text)
  table.insert(group, { key = key, html = html })
end

local function is_public(fn)
  return fn and fn.owner and not fn.name:find "^_" and (fn.owner:find "^%u" or MODULES[fn.owner])
end

local function section_of(source, class, name)
  if source:find "^db%-locks" then class = "dblocks" end
  return SECTION_OF[class .. "." .. name] or assert(SECTION_OF[class], "tools/docs/index.lua: no section of " .. class)
end

local function add_function(group, source, block)
  local fn, names, returns = block.fn, {}, {}
  for i, tag in ipairs(annotations.tags(block, "param")) do names[i] = tag.name .. (tag.optional and "?" or "") end
  for i, tag in ipairs(annotations.tags(block, "return")) do returns[i] = tag.text end
  local result = table.concat(returns, "; "):gsub("string%? message, %l+%.Code%? code", "message, code")
  add(group, section_of(source, fn.owner, fn.name),
    ("%s%s%s(%s)"):format(fn.owner, fn.is_method and ":" or ".", fn.name, table.concat(names, ", ")),
    rich(sentence(block.words)) .. (#result > 3 and " <small>Returns " .. rich(result) .. "</small>" or ""))
end

local function add_fields(group, source, block)
  local class = block[1].name:match "[^.]+$"
  for _, field in ipairs(annotations.tags(block, "field")) do
    local rest = field.text:gsub("^%S+%s*", ""):gsub(", ", ",\1") -- a type has no blank then
    local type = rest:match "^fun%b(): %S+" or rest:match "^fun%b()" or rest:match "^%b{}%S*" or rest:match "^%S+"
    add(group, section_of(source, class, field.name), class .. "." .. field.name,
      ("<code>" .. rich(type) .. "</code>" .. rich(rest:sub(#type + 1))):gsub("\1", " "))
  end
end

local function add_codes(group, section, block)
  for code, text in block[1].text:gmatch '| "([%l_]+)" *#? *([^|]*)' do
    add(group, section or "troubleshooting.html#" .. code, code,
      rich(text) .. (section and "" or "<small>AL_" .. code:upper() .. "</small>"))
  end
end

local function of_annotations(groups)
  local pipe = io.popen "find lua db-locks -name '*.lua' | sort"
  for source in pipe:lines() do
    local other = source:find "^db%-locks" and groups.dblocks
    for _, block in ipairs(annotations.read(read(source))) do
      local first = block[1]
      if is_public(block.fn) then add_function(other or groups.calls, source, block) end
      if first.tag == "class" then add_fields(other or groups.fields, source, block) end
      if first.tag == "alias" and first.name:find "%.Code$" then
        add_codes(other or groups.codes, other and SECTION_OF.dblocks, block)
      end
    end
  end
  pipe:close()
end

local function prototypes()
  local all = {}
  local text = read "src/amqplocks.h"
  for before, name, after in text:gmatch "\n(%l[%w_ ]*[ *]+)(al_[%w_]+)(%b());" do
    all[name] = before .. name .. after:gsub("%s+", " ")
  end
  return all
end

local function of_manual(group, page)
  local calls = prototypes()
  for anchor, name, text in page.html:gmatch '<dt id="([^"]*)">(.-)</dt>%s*<dd>(.-)</dd>' do
    add(group, page.name .. "#" .. anchor, calls[anchor] or name:gsub("<[^>]*>", ""):gsub("%s+", " "),
      sentence(text:gsub("<[^>]*>", ""):gsub("^op: ", "")))
  end
end

local function of_headings(group, page)
  for anchor, heading in page.html:gmatch '<h[2-4] id="([^"]*)">(.-)</h' do
    local html = ('<li><a href="%s#%s">%s</a> %s'):format(page.name, anchor, heading:gsub("</?a[^>]*>", ""), page.title)
    table.insert(group, { key = heading:lower(), html = html })
  end
end

--- The body of the page: `pages` as main.lua has them.
function index.html(pages)
  local titles, sections, codes, calls, fields, dblocks = {}, {}, {}, {}, {}, {}
  local groups = { { "Pages", titles }, { "Sections", sections },
    { '<a href="guide.html#error-codes">Error codes</a>', codes }, { "Lua: functions and methods", calls },
    { "Lua: options and fields", fields }, { "db-locks", dblocks } }
  of_annotations { codes = codes, calls = calls, fields = fields, dblocks = dblocks }
  for _, page in ipairs(pages) do
    add(titles, page.name, (page.name:gsub("%.html$", "")), rich(page.title))
    if page.path:find "%.md$" then
      of_headings(sections, page)
    else
      table.insert(groups, { page.title, {} })
      of_manual(groups[#groups][2], page)
    end
  end
  local html = { '<h1>Index</h1>\n<p id="none" hidden>Nothing here has all these words.</p>' }
  for _, group in ipairs(groups) do
    table.sort(group[2], function(a, b) return a.key < b.key end)
    table.insert(html, "<section>\n<h2>" .. group[1] .. "</h2>\n<ul>")
    for _, entry in ipairs(group[2]) do table.insert(html, entry.html) end
    table.insert(html, "</ul>\n</section>")
  end
  return table.concat(html, "\n") .. "\n" .. FILTER
end

return index
