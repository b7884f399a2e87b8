-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The Python that has pika, which may not be the first in PATH: `python.with_pika()` returns its name.
local python = {}

function python.with_pika()
  for _, one in ipairs{ "python3", "/usr/bin/python3" } do
    local result = os.execute(one .. " -c 'import pika' 2>/dev/null")
    if result == true or result == 0 then return one end
  end
  error("no python3 that has pika", 0)
end

return python
