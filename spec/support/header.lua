-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What src/amqplocks.h declares, for specs that compare it with something else.
local process = require "spec.support.process"

local header = {}

local function read() return assert(process.contents "src/amqplocks.h") end

--- The names of its functions, sorted.
function header.functions()
  local names = {}
  local text = read():gsub("/%*.-%*/", ""):gsub("#[^\n]*", "")
  for name in text:gmatch "([%w_]+)%s*%([^()]*%)%s*;" do table.insert(names, name) end
  table.sort(names)
  return names
end

--- Its version, such as "0.3.0".
function header.version() return read():match '#define AL_VERSION "(%d+%.%d+%.%d+)"' end

return header
