-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Locales for second processes. A machine that runs specs may have none but C; these are compiled in a directory.
--
--     local locale = require "spec.support.locale"
--     teardown(locale.remove)
--     local other = process.start(locale.environment())
--     other:run "assert(os.setlocale 'de_DE.UTF-8')"
local process = require "spec.support.process"

local locale = {}

--- A comma in numbers, and `a` before `B`; the same, and bytes that are letters; an `I` whose lower case is no `i`.
locale.NAMES = { "de_DE.UTF-8", "de_DE.ISO-8859-1", "tr_TR.ISO-8859-9" }

local place

--- The variables with which a process finds these locales.
function locale.environment()
  if not place then
    place = process.directory()
    for _, name in ipairs(locale.NAMES) do
      local language, characters = name:match "^(.-)%.(.*)$"
      process.shell("localedef", "-i", language, "-f", characters, place .. "/" .. name)
    end
  end
  return { LOCPATH = place }
end

--- Removes them. Call this at the end of the file.
function locale.remove()
  if place then process.shell("rm", "-rf", place) end
  place = nil
end

return locale
