-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What `with` does, for every kind of lock: it returns true and then fn's results, so that whatever they are, they are
-- not taken for a failure of the lock.
local pcall = require("amqplocks.compat.pcall").pcall

local scope = {}

--- Splits `with`'s arguments: ([opts,] fn, …) into opts, fn and the rest.
local function split(where, ...)
  local first = ...
  if type(first) == "function" then return nil, first, select(2, ...) end
  local second = select(2, ...)
  if type(second) ~= "function" then
    error(("%s: a function must be given, not %s"):format(where, type(second)), 0)
  end
  return ...
end

-- Lost before fn returned, or nobody can say that it was not: fn's results are worth nothing then. An answer to the
-- release that is merely late takes nothing back.
local function is_lost(was_held, released, code)
  if released or code == "not_held" then return false end
  return code == "lost" or not was_held
end

-- What the release has not found out by itself, on_lost is told of here.
local function lost(lock, message, code)
  message = message:gsub("^[%w_]+", "lost", 1)
  if code ~= "lost" and code ~= "forked" then lock:_count_as_lost(message) end
  return nil, message, "lost"
end

local function finish(lock, fine, ...)
  local looked, was_held = pcall(lock.held, lock) -- words for "no" take memory, and without it is released all the same
  if not fine then
    pcall(lock.release, lock) -- or an error of on_lost's would come instead
    error((...), 0)
  end
  local released, message, code = lock:release()
  local loss = code == "not_held" and lock:_loss() -- fn has released it, and has found it lost
  if loss then return nil, loss, "lost" end
  if is_lost(looked and was_held, released, code) then return lost(lock, message, code) end
  return true, ...
end

local function hold(lock, fn, ...) return finish(lock, pcall(fn, lock, ...)) end

-- A coroutine that is closed while fn yields never comes back here: where Lua can close coroutines it has scopes, too,
-- and the lock is bound to one.
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

--- Acquires by acquire(self, method, opts), calls fn(lock, …), releases. See semaphore:with.
function scope.with(where, acquire, self, method, ...)
  return run(where, acquire, self, method, split(where, ...))
end

return scope
