-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A store of one file. It keeps the largest fencing token that came with a write, and refuses a write with a smaller
-- one. One process has the store, and does one write after the other: the comparison and the write cannot be parted.
-- (A database does the same by one statement: update edition set text = $2, fence = $1 where fence <= $1.)
local Store = {}
Store.__index = Store

--- @param fence? number the token of the writer's lock; nil: it has none, and the write is accepted
--- @return boolean accepted
function Store:write(text, fence)
  if fence and fence < self.fence then return false end
  self.fence = fence or self.fence
  local file = assert(io.open(self.path, "w"))
  file:write(text)
  file:close()
  return true
end

function Store:read()
  local file = assert(io.open(self.path))
  local text = file:read "*a"
  file:close()
  return text
end

function Store:remove() os.remove(self.path) end

return { new = function() return setmetatable({ path = os.tmpname(), fence = 0 }, Store) end }
