-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- From now on Lua code reads no global that nobody has set, and sets no new one; as with pl.strict.
local function refuse(table, name, value)
  local caller = debug.getinfo(2, "S")
  if caller.what ~= "C" then error(("the global %s is not declared"):format(tostring(name)), 2) end
  if value ~= nil then rawset(table, name, value) end
end

setmetatable(_G, { __index = refuse, __newindex = refuse })
