-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The function `with` of every kind of lock. It returns true and then fn's results: so no result of fn is taken for a
-- failure of the lock.
local options = require "amqplocks.options"
local pcall = require("amqplocks.compat.pcall").pcall

local scope = {}

--- Splits `with`'s arguments: ([opts,] fn, …) into opts, fn and the rest. A table after fn is an argument for fn. But
-- if it is the only one, and could be options of `schema`, it is taken for options in the wrong place: they would be
-- dropped, and a call that should end after its timeout would wait for ever.
function scope.split(where, schema, ...)
  local first, second = ...
  if type(first) == "function" then
    if select("#", ...) == 2 and options.could_be(second, schema) then
      error(where .. ": options come before the function: { … }, fn (to pass such a table to the function: "
        .. "{}, fn, { … })", 0)
    end
    return nil, first, select(2, ...)
  end
  if type(second) ~= "function" then
    error(("%s: a function must be given, not %s"):format(where, type(second)), 0)
  end
  return ...
end

-- True if the lock was lost before fn returned, or may have been: fn's results are then dropped. A late answer to the
-- release alone is no such doubt.
local function is_lost(was_held, released, code)
  if released or code == "not_held" then return false end
  return code == "lost" or not was_held
end

-- Reports to on_lost a loss that the release itself did not find.
local function lost(lock, message, code)
  message = message:gsub("^[%w_]+", "lost", 1)
  if code ~= "lost" and code ~= "forked" then lock:_count_as_lost(message) end
  return nil, message, "lost"
end

local function finish(lock, fine, ...)
  local looked, was_held = pcall(lock.held, lock) -- a message takes memory: without memory, release all the same
  if not fine then
    pcall(lock.release, lock) -- otherwise an error in on_lost's function would replace this one
    error((...), 0)
  end
  local released, message, code = lock:release()
  local loss = code == "not_held" and lock:_loss() -- fn has released the lock, and found it lost
  if loss then return nil, loss, "lost" end
  if is_lost(looked and was_held, released, code) then return lost(lock, message, code) end
  return true, ...
end

local function hold(lock, fn, ...) return finish(lock, pcall(fn, lock, ...)) end

-- If a coroutine is closed while fn yields, the code above does not run. A Lua that can close coroutines also has
-- to-be-closed variables, and the lock is kept in one.
if coroutine.close then
  hold = load [[
    local hold = ...
    return function(lock, fn, ...)
      local guard <close> = lock
      return hold(lock, fn, ...)
    end
  ]](hold)
end

local function run(where, acquire, self, method, opts, fn, ...)
  local lock, message, code = acquire(self, method, opts, where)
  if not lock then return nil, message, code end
  return hold(lock, fn, ...)
end

--- Acquires by acquire(self, method, opts), calls fn(lock, …) and releases. See semaphore:with.
function scope.with(where, schema, acquire, self, method, ...)
  return run(where, acquire, self, method, scope.split(where, schema, ...))
end

return scope
