-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Methods called with a dot instead of a colon, as in `conn.mutex("db")`, raise an error that says so.
local methods = {}

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

--- Puts a check before each public method of a class. The methods in `but` are called too often for that, and check
-- themselves. Objects have their class as `_class`; an object that forwards calls to another one has it, too.
function methods.check(class, what, but)
  class._class = class
  for name, method in pairs(class) do
    local is_public = name:sub(1, 1) ~= "_"
    if is_public and not (but and but[name]) then class[name] = checked(class, what, name, method) end
  end
end

return methods
