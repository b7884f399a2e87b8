-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What is said when Lua has no memory left, for calls that may wait. Nothing here takes any.
local memory = {}

--- What Lua throws then: text, not a message of ours.
memory.ERROR = "not enough memory"

---@return nil, string message, string code
function memory.none() return nil, "no_memory: there is not enough memory", "no_memory" end

--- For what pcall gives, when nothing else is to be done: its results; errors but that one, before which `require` puts
-- words of its own, are thrown on.
function memory.results(fine, ...)
  if fine then return ... end
  local problem = ...
  if type(problem) == "string" and problem:find "not enough memory$" then return memory.none() end
  error(problem, 0)
end

return memory
