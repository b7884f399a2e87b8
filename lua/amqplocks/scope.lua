-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What `with` does, for every kind of lock.
local scope = {}

local unpack = table.unpack or unpack -- luacheck: ignore 113

local function pack(...) return { n = select("#", ...), ... } end

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

-- A lock that cannot be released was not ours until the end, or nobody can say that it was.
local function finish(lock, fine, ...)
  local released, message, code = lock:release()
  if not fine then error((...), 0) end
  if not released and code ~= "not_held" then return nil, (message:gsub("^[%w_]+", "lost", 1)), "lost" end
  return ...
end

local function run(acquire, opts, fn, ...)
  local lock, message, code = acquire(opts)
  if not lock then return nil, message, code end
  return finish(lock, pcall(fn, lock, ...))
end

--- Acquires, calls fn(lock, …), releases. See semaphore:with.
function scope.with(where, acquire, ...) return run(acquire, split(where, ...)) end

scope.pack, scope.unpack = pack, unpack

return scope
