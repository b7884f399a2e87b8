-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Runs tools/prove/foreigner.py, a client of another library (pika), until the spec sends something.
local python = require "spec.support.python"
local socket = require "socket"

local foreigner = {}

local function quoted(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end

function foreigner.run(spec, _, directory, lane, name, url, list, seed)
  local words = { "exec", python.with_pika(), "tools/prove/foreigner.py" }
  for _, word in ipairs{ directory .. "/" .. lane, name, url, list, seed } do table.insert(words, quoted(word)) end
  local pipe = assert(io.popen(table.concat(words, " "), "w"))
  socket.select({ spec })
  pipe:close() -- it ends at the end of its input
  return true
end

return foreigner
