-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The options of a command are the same in its --help, which prints its table of options, and in its manual page.
local process = require "spec.support.process"

-- Each option as "-w --timeout S", sorted, and once: --help may have one twice, with other words for other verbs.
local function sorted(set)
  local list = {}
  for option in pairs(set) do table.insert(list, option) end
  table.sort(list)
  return list
end

local function words(letter, name, word)
  return (letter ~= "" and "-" .. letter .. " " or "") .. "--" .. name .. (word ~= "" and " " .. word:upper() or "")
end

local function of_help(program)
  local help = process.shell((os.getenv "AMQPLOCKS_CLI" or "build/cli") .. "/" .. program, "--help")
  local set = {}
  for letter, name, word in help:gmatch "\n  %-(%a), %-%-([%l-]+) ?(%u*)  " do
    set[words(letter, name, word)] = true
  end
  for name, word in help:gmatch "\n      %-%-([%l-]+) ?(%u*)  " do set[words("", name, word)] = true end
  return sorted(set)
end

local function of_page(program)
  local set = {}
  for rest in process.contents("docs/man/" .. program .. ".1"):gmatch "\n%.It Fl ([^\n]*)" do
    set[words(rest:match "^(%a) , " or "", rest:match "%-([%l-]+)", rest:match " Ar (%a+)$" or "")] = true
  end
  return sorted(set)
end

for _, program in ipairs{ "amqp-lock", "amqp-lock-admin" } do
  it("the options of " .. program .. " are the same in --help and in the manual page", function()
    local all = of_help(program)
    assert.is_true(#all > 20)
    assert.same(all, of_page(program))
  end)
end
