-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The result of calls that may wait when Lua has no memory left. Nothing here allocates memory.
local memory = {}

--- The error that Lua raises then. It is a text of Lua.
memory.ERROR = "not enough memory"

---@return nil, string message, amqplocks.Code code
function memory.none() return nil, "no_memory: there is not enough memory", "no_memory" end

--- Takes the results of pcall. Returns those of the function. If Lua had no memory, returns that; `require` puts a text
-- of its own before this error. Raises any other error again.
function memory.results(fine, ...)
  if fine then return ... end
  local problem = ...
  if type(problem) == "string" and problem:find "not enough memory$" then return memory.none() end
  error(problem, 0)
end

return memory
