-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Reads the LuaLS annotations of a Lua file, as far as specs compare them with the code. `make check-annotations`
-- looks at their syntax and their types.
--
--     annotations.read(text)   a list of blocks, one for each comment with an annotation:
--       { { tag = "param", name =, optional =, type =, text = }, …, words = the comment before the tags,
--         fn = { owner = "Mutex" or nil, name = "with", is_method =, parameters = { "…" } } or nil }
--
-- `text` is all of it behind the tag, with the lines that continue it. `type` ends at the first blank: of a function it
-- is the beginning.
local annotations = {}

-- The function that a line of code begins.
local function function_of(code)
  local full, list = code:match "^%l*%s*function%s+([%w_.:]+)(%b())"
  if not full then full, list = code:match "^([%w_.]+)%s*=%s*function%s*(%b())" end
  if not full then return nil end
  local owner, colon, name = full:match "^(.-)([.:])([%w_]+)$"
  local parameters = {}
  for parameter in list:gmatch "[%w_.]+" do table.insert(parameters, parameter) end
  return { owner = owner, name = name or full, is_method = colon == ":", parameters = parameters }
end

local function tag_of(tag, text)
  local name, mark, type = text:match "^([%w_.]+)(%??):? *(%S*)"
  return { tag = tag, name = name, optional = mark == "?", type = type, text = text }
end

function annotations.read(text)
  local blocks, block = {}, { words = "" }
  for line in (text .. "\n"):gmatch "(.-)\n" do
    local tag, rest = line:match "^%-%-%-@(%l+)%s*(.*)$"
    local more = line:match "^%-%-%-  (.*)$" or line:match "^%-%-%-(|.*)$"
    if tag then
      table.insert(block, tag_of(tag, rest))
    elseif more and #block > 0 then
      block[#block].text = block[#block].text .. " " .. more
    elseif line:find "^%-%-" then
      block.words = block.words .. " " .. (line:match "^%-+ (%S.*)$" or "") -- without code
    else
      block.fn = function_of(line)
      if #block > 0 then table.insert(blocks, block) end
      block = { words = "" }
    end
  end
  return blocks
end

--- The tags of a block that are of one kind.
function annotations.tags(block, kind)
  local list = {}
  for _, tag in ipairs(block) do
    if tag.tag == kind then table.insert(list, tag) end
  end
  return list
end

return annotations
