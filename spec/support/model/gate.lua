-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The gate of stories in which members gather several slots or permits: an exclusive queue. A member that waits for
-- several waits for the gate, and then, inside, for each slot.
--
--     kind.many = Gate.new(kind, "images-many")      -- kind:count_of(connection): how many of them a connection has
local Gate = {}
Gate.__index = Gate

local function has_entered(self, wait)
  local queue = self.broker.queues[self.queue]
  return queue ~= nil and queue.owner == wait.process:connection()
end

function Gate.new(kind, queue)
  local broker = kind.broker
  local self = setmetatable({ kind = kind, broker = broker, queue = queue, bell = queue .. "bell" }, Gate)
  self.seat = { name = "the gate",
    is_free = function () return not broker.queues[queue] and not broker:is_shut(queue .. "-bolt") end,
    wakes = function (wait) return wait.count ~= nil end,
    tells = function () return false end }
  --- Whether a free slot wakes this waiter: it wants one, or it is inside and has fewer than it wants.
  function self.wakes(wait)
    return not wait.count or has_entered(self, wait) and kind:count_of(wait.process:connection()) < wait.count
  end
  return self
end

--- A queue was created, or is gone.
function Gate:changed(queue)
  if queue.name ~= self.queue or not self.broker.queues[self.queue] then return end
  local watch = self.kind.crowd.watch
  for _, wait in ipairs(watch.waiting) do
    if wait.count and has_entered(self, wait) then watch:enters(wait) end
  end
end

return Gate
