-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What an administrator of the semaphore "images" does, step by step, and the peer's answers: for admin*_spec.
local assert = require "luassert"

local scene = {}

-- The names of A queues, of the slots given.
function scene.slots(...)
  local names = {}
  for i, slot in ipairs{ ... } do names[i] = ("images-%d-A"):format(slot) end
  return names
end

function scene.row(from, to)
  local list = {}
  for slot = from, to do table.insert(list, slot) end
  return scene.slots(table.unpack(list))
end

-- Answers the survey, window after window.
function scene.survey(peer, exists)
  local names = {}
  while peer.prober:next() ~= "nothing" do
    for _, name in ipairs(peer.prober:look(exists)) do table.insert(names, name) end
  end
  return names
end

-- An action under way that has the mutex and knows what there is. Returns op, mutex.
function scene.begin(peer, action, amount, options, exists)
  local op = peer.session:administer(action, "images", options or {}, amount)
  local mutex = peer.holder:claim("images-admin")
  peer.holder:grant(mutex)
  peer.prober:barrier()
  scene.survey(peer, exists)
  return op, mutex
end

-- The core looks at the queues it is about to delete, on a channel of its own; all are there.
function scene.checked(peer, names)
  local channel = peer.holder:next() == "channel.open" and peer.holder:opened()
  for _, name in ipairs(names) do
    channel = peer.holder:expect("queue.declare", { queue = name, passive = true, channel = channel or nil }).channel
  end
  for _, name in ipairs(names) do peer.holder:declared(channel, name) end
  return channel
end

-- The core deletes these, on the mutex's channel, one answer after the other.
function scene.deletes(peer, mutex, names)
  assert.are_not.equal(mutex.channel, scene.checked(peer, names))
  for _, name in ipairs(names) do
    peer.holder:expect("queue.delete", { queue = name, channel = mutex.channel, if_unused = false, if_empty = false })
    peer.holder:silent()
    peer.holder:deleted(mutex.channel)
  end
end

-- The core declares these, on the mutex's channel.
function scene.declares(peer, mutex, names)
  for _, name in ipairs(names) do
    peer.holder:expect("queue.declare", { queue = name, passive = false, channel = mutex.channel })
  end
  for _, name in ipairs(names) do peer.holder:declared(mutex.channel, name) end
end

-- The core gives the mutex back.
function scene.leaves(peer, mutex)
  peer.holder:delete("images-admin", mutex.channel)
  peer.holder:silent()
  peer.prober:silent()
end

return scene
