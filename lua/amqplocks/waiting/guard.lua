-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Undoes what a coroutine has begun if it is closed while it waits (coroutine.close, of Lua 5.4 and later). pcall does
-- not notice that; only to-be-closed variables do. Older Luas cannot parse these, and cannot close a coroutine: there
-- an abandoned coroutine is collected, and the collector ends what it has begun.
local pcall = require("amqplocks.compat.pcall").pcall

local guard = {}

--- Protects a call that may wait: calls fn(driver, value, ...), drops `value`, and lets the driver send what that has
-- queued. Returns true and the first three results, or false and the error. `value` has a method `drop`, which is its
-- __close, too: getmetatable may need memory, which there may be none of.
function guard.call(fn, driver, value, ...)
  -- Named results: passing on any number of them takes memory, and without memory a result would have no owner.
  local fine, first, second, third = pcall(fn, driver, value, ...)
  value:drop()
  if driver.mind then pcall(driver.mind) end -- an error here was raised before
  return fine, first, second, third
end

--- Returns fn(owner, ...). If the coroutine is closed meanwhile, it calls undo(owner). If fn raises an error, it does
-- not: the caller handles that.
function guard.unless_closed(_, fn, owner, ...) return fn(owner, ...) end

if coroutine.close then
  -- The error that __close gets does not tell whether fn has raised it: it may come from another variable, further
  -- inside, that was closed with the coroutine. So the call is marked when fn has returned or raised an error.
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
