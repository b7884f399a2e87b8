-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Reads the LuaLS annotations of a Lua file.
--
--     annotations.read(text)   a list of blocks, one for each comment with an annotation:
--       { line =, tags = { { tag = "param", line =, name =, optional =, type =, rest = }, … },
--         fn = { owner = "Mutex" or nil, name = "with", is_method =, parameters = { "…" }, is_local = } or nil }
--
-- `line` is the line number of the code below the comment. A `type` is text, without blanks around it.
local annotations = {}

-- Types ---------------------------------------------------------------------------------------------------------------

local skip_union

-- The end of the results of a fun(): types with commas between them.
local function skip_results(text, at)
  local _, colon = text:find("^%s*:%s*", at)
  if not colon then return at end
  at = skip_union(text, colon + 1)
  while true do
    local _, comma = text:find("^,%s*", at)
    if not comma then return at end
    at = skip_union(text, comma + 1)
  end
end

-- The end of one type without "|": `at` is its first character. Raises an error if there is no type.
local function skip_one(text, at)
  local _, last = text:find("^fun%b()", at)
  if last then return skip_results(text, last + 1) end
  for _, pattern in ipairs{ '^"[^"]*"', "^%b()", "^%b{}", "^%.%.%.[%a_][%w_.]*", "^[%a_][%w_.]*%b<>",
    "^[%a_][%w_.]*%w", "^[%a_]" } do
    last = select(2, text:find(pattern, at))
    if last then break end
  end
  assert(last, "no type: " .. text:sub(at))
  while text:find("^%[%]", last + 1) do last = last + 2 end
  if text:find("^%?", last + 1) then last = last + 1 end
  return last + 1
end

function skip_union(text, at)
  at = skip_one(text, at)
  while text:find("^|", at) do at = skip_one(text, at + 1) end
  return at
end

--- Splits "type rest" into the type and the rest.
function annotations.type_of(text)
  local after = skip_union(text, 1)
  return text:sub(1, after - 1), (text:sub(after):gsub("^%s+", ""))
end

--- The alternatives of a type: `"a"|"b"|false` has three, and `string?` has two, as it may be nil.
function annotations.alternatives(type)
  local list, at = {}, 1
  while at <= #type do
    local after = skip_one(type, at)
    local one = type:sub(at, after - 1)
    table.insert(list, (one:gsub("%?$", "")))
    if one:find "%?$" then table.insert(list, "nil") end
    at = after + 1
  end
  return list
end

--- The names of classes and aliases that a type mentions.
function annotations.names(text)
  local names = {}
  for name in text:gsub('"[^"]*"', ""):gmatch "amqplocks%.%a[%w_]*" do table.insert(names, name) end
  return names
end

-- Tags ----------------------------------------------------------------------------------------------------------------

local read = {}

local function named(text)
  local name, mark, rest = text:match "^([%w_.]+)(%??)%s+(.*)$"
  assert(name, "no name and type: " .. text)
  local type, comment = annotations.type_of(rest)
  return { name = name, optional = mark == "?", type = type, rest = comment }
end

read.param, read.field = named, named

-- `@class A: B`: A has the fields of B, too.
function read.class(text)
  local name, parent = text:match "^([%w_.]+): ([%w_.]+)$"
  return { name = name or text:match "^[%w_.]+$" or error("no name of a class: " .. text, 0), parent = parent }
end

function read.alias(text)
  local name, rest = text:match "^([%w_.]+)%s*(.*)$"
  local values = {}
  for value in rest:gmatch '|%s*"([^"]*)"' do table.insert(values, value) end
  return { name = name, values = values, type = rest:find "^|" and "" or annotations.type_of(rest) }
end

function read.overload(text) return { type = (annotations.type_of(text)) } end

-- Several results in one line, each a type and perhaps a name; a comment may follow the last name.
read["return"] = function(text)
  local results = {}
  repeat
    local type, rest = annotations.type_of(text)
    local name, after = rest:match "^([%a_][%w_]*)(.*)$"
    if rest:find "^%.%.%." then name, after = "...", rest:sub(4) end
    table.insert(results, { type = type, name = name })
    rest = name and after or rest
    local more = rest:match "^,%s*(.*)$"
    text = more or rest:gsub("^%s+", "")
  until not more
  return { results = results, rest = text }
end

local function tag_of(line, text)
  local tag, rest = text:match "^@(%l+)%s*(.*)$"
  local reader = read[tag] or error(("line %d: unknown annotation @%s"):format(line, tag), 0)
  local fine, result = pcall(reader, rest)
  if not fine then error(("line %d: @%s: %s"):format(line, tag, result), 0) end
  result.tag, result.line, result.text = tag, line, rest
  return result
end

-- Blocks --------------------------------------------------------------------------------------------------------------

-- The function that a line of code begins.
local function function_of(code)
  local is_local, full, list = code:match "^(%l*)%s*function%s+([%w_.:]+)(%b())"
  if not full then
    full, list = code:match "^([%w_.]+)%s*=%s*function%s*(%b())"
    is_local = ""
  end
  if not full then return nil end
  local owner, colon, name = full:match "^(.-)([.:])([%w_]+)$"
  local parameters = {}
  for parameter in list:gmatch "[%w_.]+" do table.insert(parameters, parameter) end
  return { owner = owner, name = name or full, is_method = colon == ":", is_local = is_local == "local",
    parameters = parameters }
end

-- Joins an annotation and the lines that continue it: they begin with two blanks, or with "|".
local function texts_of(comment)
  local texts, is_open = {}, false
  for _, each in ipairs(comment) do
    local text = each.text:match "^%-%-%-(@.*)$"
    local more = is_open and (each.text:match "^%-%-%-  (.*)$" or each.text:match "^%-%-%-(|.*)$")
    if text then
      table.insert(texts, { line = each.line, text = text })
    elseif more then
      texts[#texts].text = texts[#texts].text .. " " .. more
    end
    is_open = text ~= nil or more and true or false
  end
  return texts
end

local function block_of(comment, code, line)
  local texts, tags = texts_of(comment), {}
  for i, each in ipairs(texts) do tags[i] = tag_of(each.line, each.text) end
  return #tags > 0 and { tags = tags, fn = function_of(code), line = line, code = code } or nil
end

function annotations.read(text)
  local blocks, comment, number = {}, {}, 0
  for line in (text .. "\n"):gmatch "(.-)\n" do
    number = number + 1
    if line:find "^%-%-" then
      table.insert(comment, { line = number, text = line })
    else
      local block = #comment > 0 and block_of(comment, line, number)
      if block then table.insert(blocks, block) end
      comment = {}
    end
  end
  return blocks
end

--- The tags of a block that are of one kind.
function annotations.tags(block, kind)
  local list = {}
  for _, tag in ipairs(block.tags) do
    if tag.tag == kind then table.insert(list, tag) end
  end
  return list
end

return annotations
