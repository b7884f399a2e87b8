-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Settings from make's command line. An invalid one ends the program with status 2. Otherwise a run with other
-- settings could be mistaken for the requested one.
--
--     local settings = require "tools.prove.settings"
--     local seconds = settings.seconds(os.getenv "SECONDS") or 60
--     local seed = settings.seed(os.getenv "SEED") or os.time()
local settings = {}

--- Prints what is wrong, and ends the program.
function settings.refuse(...)
  io.stderr:write((...):format(select(2, ...)), "\n")
  os.exit(2)
end

--- A number of seconds; nil if there is no text or an empty one.
function settings.seconds(text)
  if not text or text == "" then return nil end
  local value = tonumber(text)
  if not value or value <= 0 or value >= 1e9 then settings.refuse("SECONDS must be a number above 0, not %s", text) end
  return value
end

local function whole(name, text, least)
  if not text or text == "" then return nil end
  local value = text:match "^%d+$" and tonumber(text)
  if not value or value < least or value >= 2 ^ 53 then
    settings.refuse("%s must be a whole number of at least %d, not %s", name, least, text)
  end
  return value
end

--- A seed: a number that every Lua represents exactly. nil if there is no text or an empty one. `name`: the setting.
function settings.seed(text, name) return whole(name or "SEED", text, 0) end

--- A number of things, at least 1; nil if there is no text or an empty one.
function settings.count(text, name) return whole(name, text, 1) end

--- Each word of a list, which must be a key of `known`.
function settings.check(what, words, known)
  for _, word in ipairs(words or {}) do
    if not known[word] then
      local names = {}
      for name in pairs(known) do table.insert(names, name) end
      table.sort(names)
      settings.refuse("there is no %s %q, but: %s", what, word, table.concat(names, ", "))
    end
  end
end

return settings
