-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The options of a command are the same in the table of src/cli/arguments.c, in its --help and in its manual page.
local process = require "spec.support.process"

-- Each option as "-w --timeout S", sorted, and once: the table may have one twice, with other words for other verbs.
local function sorted(list)
  local unique = {}
  table.sort(list)
  for i, option in ipairs(list) do
    if option ~= list[i - 1] then table.insert(unique, option) end
  end
  return unique
end

local function words(letter, name, word)
  return (letter ~= "" and "-" .. letter .. " " or "") .. "--" .. name .. (word ~= "" and " " .. word:upper() or "")
end

local function of_table(bit)
  local text, list = process.contents "src/cli/arguments.c", {}
  text = text:match "cli_options_all%[%] = {(.-)\n};":gsub("%s+", " ")
  local row = '{CLI_[%u_]+, "([%l-]+)", (%S+), (%S+), (%u[%u_]+), ([^,]+), ("?)'
  for name, letter, word, programs, _, quote in text:gmatch(row) do
    local is_shown = quote == '"' and (programs == bit or programs == "BOTH")
    if is_shown then table.insert(list, words(letter:match "'(%a)'" or "", name, word:match '"(.*)"' or "")) end
  end
  return sorted(list)
end

local function of_help(program)
  local list = {}
  local directory = os.getenv "AMQPLOCKS_CLI" or "build/cli"
  for line in process.shell(directory .. "/" .. program, "--help"):gmatch "[^\n]+" do
    local letter, name, word = line:match "^  %-(%a), %-%-([%l-]+) ?(%u*)  "
    if not letter then
      letter, name, word = "", line:match "^      %-%-([%l-]+) ?(%u*)  "
    end
    if name then table.insert(list, words(letter, name, word)) end
  end
  return sorted(list)
end

local function of_page(program)
  local list = {}
  for line in io.lines("docs/man/" .. program .. ".1") do
    local rest = line:match "^%.It Fl (.*)"
    if rest then
      local letter = rest:match "^(%a) , " or ""
      table.insert(list, words(letter, rest:match "%-([%l-]+)", rest:match " Ar (%a+)$" or ""))
    end
  end
  return sorted(list)
end

for program, bit in pairs { ["amqp-lock"] = "CLI_LOCK", ["amqp-lock-admin"] = "CLI_ADMIN" } do
  describe("the options of " .. program, function()
    local all = of_table(bit)

    it("are the same in the table and in --help", function() assert.same(all, of_help(program)) end)

    it("are the same in the table and in the manual page", function() assert.same(all, of_page(program)) end)

    it("are many, so the comparison has read them", function() assert.is_true(#all > 20) end)
  end)
end
