-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Claims on slot 1 of "images", its only one, made by acquires: for claim*_spec.
local scene = {}

scene.DENIED = "ACCESS_REFUSED - access refused"
scene.LOCKED = "RESOURCE_LOCKED - cannot obtain exclusive access"

--- An acquire as far as its claim. Returns op, claim.
function scene.claiming(peer) return peer:claiming("images", { max_attempts = 1 }) end

--- What was made before its channel was closed is deleted on another one. Returns that channel.
function scene.undoes(peer)
  local channel = peer.holder:opened()
  peer.holder:expect("queue.delete", { channel = channel, queue = "images-1-B" })
  return channel
end

--- The name is free: a new acquire claims it. Returns the claim.
function scene.assert_free(peer)
  local _, claim = scene.claiming(peer)
  return claim
end

--- The name is taken: a new acquire finds the only slot busy, although the broker says that B is absent.
function scene.assert_taken(peer)
  local op = peer:semaphore("images"):acquire(0)
  while not op:done() do peer.prober:look{ "images-1-A" } end -- two slots, and then more
  peer:failed(op, "busy")
end

return scene
