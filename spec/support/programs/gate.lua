-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A mutex, or one side of a readers–writer lock, with the two calls of a semaphore.
---@param kind "mutex"|"read"|"write"
return function(conn, kind, name, options)
  if kind == "mutex" then return conn:mutex(name, options) end
  local rwlock = conn:rwlock(name, options)
  return {
    try_acquire = function() return rwlock["try_" .. kind](rwlock) end,
    acquire = function(_, opts) return rwlock[kind](rwlock, opts) end,
    with = function(_, ...) return rwlock["with_" .. kind](rwlock, ...) end,
  }
end
