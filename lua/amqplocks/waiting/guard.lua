-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Ends what a coroutine has begun when it is closed while it waits (coroutine.close, of Lua 5.4 and later). No pcall
-- notices that, only variables that are declared to be closed; and older Luas cannot read such a declaration. There a
-- coroutine can only be forgotten, and what it has begun is ended by the collector.
local pcall = require("amqplocks.compat.pcall").pcall

local guard = {}

-- Of values with __close.
local function close(value) getmetatable(value).__close(value) end

--- Protects a call that may wait: calls fn(driver, value, ...), closes `value`, and has the driver write what that has
-- begun. -> true and the first three results, or false and the error
function guard.call(fn, driver, value, ...)
  -- By name: to hand on whatever there is takes memory, and what was got would be nobody's for a while.
  local fine, first, second, third = pcall(fn, driver, value, ...)
  close(value)
  if driver.mind then pcall(driver.mind) end -- should that fail, it has failed before
  return fine, first, second, third
end

--- Returns fn(owner, ...). If the coroutine is closed meanwhile, calls undo(owner). If fn throws, it does not: that is
-- the caller's.
function guard.unless_closed(_, fn, owner, ...) return fn(owner, ...) end

if coroutine.close then
  -- The error that __close is given does not tell whether fn has thrown: it may be that of another variable, further
  -- inside, that was closed with the coroutine. So the call is marked when fn has returned or thrown.
  local unfinished = {
    __close = function(call)
      if call.undo then call.undo(call.owner) end
    end,
  }

  local function begun(undo, owner) return setmetatable({ undo = undo, owner = owner }, unfinished) end

  local function finish(call, fine, ...)
    call.undo = nil
    if not fine then error((...), 0) end
    return ...
  end

  guard.call, guard.unless_closed = load([[
    local pcall, begun, finish = ...

    local function call(fn, driver, value, ...)
      local minder <close> = driver.minder
      local closed <close> = value -- first
      return fn(driver, value, ...)
    end

    return function(...) return pcall(call, ...) end,

      function(undo, fn, owner, ...)
        local call <close> = begun(undo, owner)
        return finish(call, pcall(fn, owner, ...))
      end
  ]], "=amqplocks.waiting.guard")(pcall, begun, finish)
end

return guard
