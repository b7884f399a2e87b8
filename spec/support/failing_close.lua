-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Returns a function that calls fn(...) in a block with a to-be-closed variable whose closing throws an error: at the
-- end of fn, or when the coroutine is closed (coroutine.close) while fn yields. nil where Lua cannot close coroutines.
--
--     local failing_close = require "spec.support.failing_close"
--     conn:on_lost(failing_close(coroutine.yield, "the error"))
if not coroutine.close then return function() end end

return load [[
  return function(fn, problem)
    local throwing = setmetatable({}, { __close = function() error(problem, 0) end })
    return function(...)
      local value <close> = throwing
      return (fn(...))
    end
  end
]]()
