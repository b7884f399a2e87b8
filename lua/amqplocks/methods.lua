-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Methods called with a dot instead of a colon, as in `conn.mutex("db")`, raise an error that says so. Those that only
-- another kind of object has, as in `rwlock:acquire()`, raise one that says what to call.
local methods = {}

-- The method to call instead of one that only another kind of object has, by the word for the object.
local OF_LOCK = "release of the lock that was acquired"
local HELD = { release = OF_LOCK, unlock = OF_LOCK }
local ONE_SIDED = {
  lock = "acquire", read = "acquire", try_read = "try_acquire", with_read = "with", write = "acquire",
  try_write = "try_acquire", with_write = "with",
}
local TWO_SIDED = {
  lock = "read or write", acquire = "read or write", try_acquire = "try_read or try_write",
  with = "with_read or with_write", revoke = "revoke_readers or revoke_writer",
}
local OF_ADMIN, OF_CLIENT = "that of conn:admin(name)", "that of conn:semaphore(name)"
local ADMINISTERED = {
  create = OF_ADMIN, resize = OF_ADMIN, add = OF_ADMIN, remove = OF_ADMIN, slots = OF_ADMIN, status = OF_ADMIN,
  repair = OF_ADMIN, destroy = OF_ADMIN, revoke = OF_ADMIN,
}
local ENDED = { unlock = "release", close = "release" }

local INSTEAD = {
  rwlock = { HELD, TWO_SIDED },
  semaphore = { HELD, ONE_SIDED, ADMINISTERED },
  token_semaphore = { HELD, ONE_SIDED },
  mutex = { HELD, ONE_SIDED },
  fast_mutex = { HELD, ONE_SIDED },
  side = { HELD, ONE_SIDED },
  all = { HELD, ONE_SIDED },
  admin = { { acquire = OF_CLIENT, try_acquire = OF_CLIENT, with = OF_CLIENT } },
  lock = { ENDED },
  locks = { ENDED },
}

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

local function elsewhere(what)
  local all = {}
  for _, list in ipairs(INSTEAD[what] or {}) do
    for name, instead in pairs(list) do
      all[name] = function() error(("%s: there is no %s:%s(); call %s"):format(name, what, name, instead), 0) end
    end
  end
  return all
end

--- Puts a check before each public method of a class, and adds those that only name another one. The methods in `but`
-- are called too often for a check, and check themselves. Objects have their class as `_class`; an object that forwards
-- calls to another one has it, too.
function methods.check(class, what, but)
  class._class = class
  for name, method in pairs(class) do
    local is_public = name:sub(1, 1) ~= "_"
    if is_public and not (but and but[name]) then class[name] = checked(class, what, name, method) end
  end
  setmetatable(class, { __index = elsewhere(what) })
end

return methods
