-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Methods called with a dot instead of a colon, as in `conn.mutex("db")`, raise an error that says so. Those that only
-- another kind of object has, as in `rwlock:acquire()`, raise one that says what to call.
local methods = {}

-- The method to call instead of one that only another kind of object has, by the word for the object.
local OF_ADMIN, OF_CLIENT = "that of conn:admin(name)", "that of conn:semaphore(name)"
local OF_LOCK = "release of the lock that was acquired"

local function acquired(list)
  list.release, list.unlock = OF_LOCK, OF_LOCK
  return list
end

--- What an object has not that is acquired by one method, or by two, and what an administration and a lock have not.
methods.ONE_SIDED = acquired{
  lock = "acquire", read = "acquire", try_read = "try_acquire", with_read = "with", write = "acquire",
  try_write = "try_acquire", with_write = "with",
}
methods.TWO_SIDED = acquired{
  lock = "read or write", acquire = "read or write", try_acquire = "try_read or try_write",
  with = "with_read or with_write", revoke = "revoke_readers or revoke_writer",
}
methods.ADMIN = { acquire = OF_CLIENT, try_acquire = OF_CLIENT, with = OF_CLIENT }
methods.LOCK = { unlock = "release", close = "release" }

--- What an object has not that has one method to acquire, and is administered by another object.
methods.ADMINISTERED = {
  create = OF_ADMIN, resize = OF_ADMIN, add = OF_ADMIN, remove = OF_ADMIN, slots = OF_ADMIN, status = OF_ADMIN,
  repair = OF_ADMIN, destroy = OF_ADMIN, revoke = OF_ADMIN,
}
for name, instead in pairs(methods.ONE_SIDED) do methods.ADMINISTERED[name] = instead end

--- Raises the error. `what` is the word for the object before the colon.
function methods.misused(what, name)
  error(("%s: must be called with a colon, %s:%s(…), not with a dot"):format(name, what, name), 0)
end

local function checked(class, what, name, method)
  return function(self, ...)
    if type(self) ~= "table" or self._class ~= class then methods.misused(what, name) end
    return method(self, ...)
  end
end

local function elsewhere(what, lacking)
  local all = {}
  for name, instead in pairs(lacking) do
    all[name] = function() error(("%s: there is no %s:%s(); call %s"):format(name, what, name, instead), 0) end
  end
  return all
end

--- Puts a check before each public method of a class, and adds those that only name another one: `lacking`, a table
-- from above. The methods in `but` are called too often for a check, and check themselves. Objects have their class as
-- `_class`; an object that forwards calls to another one has it, too.
function methods.check(class, what, lacking, but)
  class._class = class
  for name, method in pairs(class) do
    local is_public = name:sub(1, 1) ~= "_"
    if is_public and not (but and but[name]) then class[name] = checked(class, what, name, method) end
  end
  setmetatable(class, { __index = elsewhere(what, lacking or {}) })
end

return methods
