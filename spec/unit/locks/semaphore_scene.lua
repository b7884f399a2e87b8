-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The acquires of the slots of a semaphore called "images": for semaphore_spec and semaphore_race_spec.
local Peer = require "spec.support.peer"

local scene = {}

--- An acquire with these options, fed in this way, has asked once which queues exist: `seen`. Returns peer, op.
function scene.searches(way, seen, ...)
  local peer = Peer.open(way)
  local op = peer:semaphore("images"):acquire(...)
  peer.prober:look(seen)
  return peer, op
end

return scene
