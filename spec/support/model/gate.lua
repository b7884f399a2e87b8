-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The gate of stories in which members gather several slots or permits: an exclusive queue. A member that waits for
-- several waits for the gate, and then, inside, for each slot.
--
--     local gate = Gate.new(crowd, "images-many", function (connection) … end)  -- how many of them a connection has
--     gate.seat                                                                 -- for the watch
local Gate = {}
Gate.__index = Gate

local function connection_of(wait)
  local socket = wait.process.sockets.holder
  return socket and socket.connection
end

local function has_entered(self, wait)
  local queue = self.broker.queues[self.queue]
  return queue ~= nil and queue.owner == connection_of(wait)
end

function Gate.new(crowd, queue, held_by)
  local broker = crowd.broker
  local self = setmetatable({ crowd = crowd, broker = broker, queue = queue, bell = queue .. "bell",
    held_by = held_by }, Gate)
  self.seat = { name = "the gate",
    is_free = function () return not broker.queues[queue] and not broker:is_shut(queue .. "-bolt") end,
    wakes = function (wait) return wait.count ~= nil end,
    tells = function () return false end }
  return self
end

--- Whether a free slot wakes this waiter: it wants one, or it is inside and has fewer than it wants.
function Gate:is_awake(wait)
  return not wait.count or has_entered(self, wait) and self.held_by(connection_of(wait)) < wait.count
end

--- A queue was created, or is gone.
function Gate:changed(queue)
  if queue.name ~= self.queue or not self.broker.queues[self.queue] then return end
  for _, wait in ipairs(self.crowd.watch.waiting) do
    if wait.count and has_entered(self, wait) then self.crowd.watch:enters(wait) end
  end
end

function Gate:stays(queue) return queue == self.bell end

return Gate
