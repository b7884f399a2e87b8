-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The acquires of the slots of a semaphore called "images": for semaphore_spec, semaphore_race_spec and
-- gather_spec.
local Peer = require "spec.support.peer"

local scene = {}

--- An acquire with these options has asked once which queues exist: `seen`. Returns peer, op.
function scene.searches(seen, ...)
  local peer = Peer.open()
  local op = peer:semaphore("images"):acquire(...)
  peer.prober:look(seen)
  return peer, op
end

--- Whether the holders of slots found busy are true ones is asked once a minute: they are.
function scene.no_squatters(peer)
  local channel = peer.holder:next() == "channel.open" and peer.holder:opened()
  while peer.holder:next() == "queue.declare" do
    channel = peer.holder:expect("queue.declare", { passive = true }).channel
  end
  peer.holder:refuse(channel, 405, "RESOURCE_LOCKED", "queue.declare")
end

return scene
