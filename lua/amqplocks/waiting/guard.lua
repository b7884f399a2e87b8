-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Ends what a coroutine has begun when it is closed while it waits (coroutine.close, of Lua 5.4 and later). No pcall
-- notices that, only variables that are declared to be closed; and older Luas cannot read such a declaration. There a
-- coroutine can only be forgotten, and what it has begun is ended by the collector.
local pcall = require("amqplocks.compat.pcall").pcall

local guard = {}

-- Of values with __close.
local function close(value) getmetatable(value).__close(value) end

--- Protects a call that may wait: calls fn(...), closes `value`, and has the driver write what that has begun.
-- -> true and the first three results, or false and the error
function guard.call(driver, value, fn, ...)
  -- By name: to hand on whatever there is takes memory, and what was got would be nobody's for a while.
  local fine, first, second, third = pcall(fn, ...)
  close(value)
  if driver.mind then pcall(driver.mind) end -- should that fail, it has failed before
  return fine, first, second, third
end

--- Returns fn(...). If the coroutine is closed meanwhile, undo(owner) is called; if fn throws, that is the caller's.
function guard.unless_closed(_, _, fn, ...) return fn(...) end

if coroutine.close then
  local unfinished = {
    __close = function(self, problem)
      if self.undo and problem == nil then self.undo(self.owner) end
    end,
  }

  local function begun(undo, owner) return setmetatable({ undo = undo, owner = owner }, unfinished) end

  local function finish(call, ...)
    call.undo = nil
    return ...
  end

  guard.call, guard.unless_closed = load([[
    local pcall, begun, finish = ...

    local function call(driver, value, fn, ...)
      local minder <close> = driver.minder
      local closed <close> = value -- first
      return fn(...)
    end

    return function(...) return pcall(call, ...) end,

      function(undo, owner, fn, ...)
        local call <close> = begun(undo, owner)
        return finish(call, fn(...))
      end
  ]], "=amqplocks.waiting.guard")(pcall, begun, finish)
end

return guard
