-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Locales for second processes. A machine that runs specs may have none but C; these are compiled once, into build/.
--
--     local locale = require "spec.support.locale"
--     local other = process.start(locale.environment())
--     other:run "assert(os.setlocale 'de_DE.UTF-8')"
local process = require "spec.support.process"

local locale = {}

--- A comma in numbers, and `a` before `B`; the same, and bytes that are letters; an `I` whose lower case is no `i`.
locale.NAMES = { "de_DE.UTF-8", "de_DE.ISO-8859-1", "tr_TR.ISO-8859-9" }

--- The variables with which a process finds these locales.
function locale.environment()
  return { LOCPATH = (process.shell("sh", "-c", [[
    mkdir -p build/locales && cd build/locales && exec 9>turn && flock 9 || exit
    for name; do
      [ -d "$name" ] || { localedef -i "${name%%.*}" -f "${name#*.}" ./new && mv new "$name"; } || exit
    done >&2
    pwd]], "sh", (table.unpack or unpack)(locale.NAMES)):match "^[^\n]+") }
end

return locale
