-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The actions of an administrator of the semaphore "images", step by step, and the peer's answers: for admin*_spec.
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
  return scene.slots((table.unpack or unpack)(list))
end

-- Answers the survey, window after window; `exists` is what answer() takes. Returns the names that were asked for.
function scene.survey(peer, exists)
  local names = {}
  while peer.prober:next() ~= "nothing" do
    for _, name in ipairs(peer.prober:look(exists)) do table.insert(names, name) end
  end
  return names
end

-- An action under way that claims the mutex, which is not granted yet. Returns op, mutex.
function scene.starts(peer, action, amount, options)
  local op = peer.session:administer(action, "images", options or {}, amount)
  return op, peer.holder:claim("images-admin")
end

-- An action under way that has the mutex and knows what there is. Returns op, mutex.
function scene.begin(peer, action, amount, options, exists)
  local op, mutex = scene.starts(peer, action, amount, options)
  peer.prober:silent()
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

-- The core looks for the doorbell, on a channel of its own: there are so many tokens in it, or (nil) there is none.
function scene.finds_bell(peer, tokens)
  local opened = peer.holder:next() == "channel.open" and peer.holder:opened()
  local channel = peer.holder:expect("queue.declare", { queue = "images-bell", passive = true,
    channel = opened or nil }).channel
  if tokens then
    peer.holder:send{ channel = channel, method = "queue.declare-ok", queue = "images-bell", message_count = tokens,
      consumer_count = 0 }
  else
    peer.holder:refuse(channel, 404, "NOT_FOUND - no queue 'images-bell' in vhost '/'", "queue.declare")
  end
end

-- The core publishes so many tokens.
function scene.rings(peer, tokens)
  local probes = tokens > 0 and peer.prober:probes() or {}
  assert.equal(tokens, #probes)
  for _, token in ipairs(probes) do
    assert.same({ "images-bell", "amqplocks.token", 2 },
      { token.queue, token.properties.type, token.properties.delivery_mode })
    assert.is_nil(token.properties.expiration)
  end
  if tokens > 0 then peer.prober:answer(probes, { "images-bell" }) end
end

-- The core deletes these, on the mutex's channel, one answer after the other, and then the bell if no slot is left.
function scene.deletes(peer, mutex, names, is_all)
  assert.are_not.equal(mutex.channel, scene.checked(peer, names))
  for _, name in ipairs(names) do
    peer.holder:expect("queue.delete", { queue = name, channel = mutex.channel, if_unused = false, if_empty = false })
    peer.holder:silent()
    peer.holder:deleted(mutex.channel)
  end
  if is_all then peer.holder:delete("images-bell", mutex.channel) end
end

-- The core finds a bell (with `ready` tokens in it, 0 unless told; false: it finds none, and declares one), declares
-- these slots behind it, on the mutex's channel, and publishes `tokens`, as many as slots unless told.
function scene.declares(peer, mutex, names, ready, tokens)
  scene.finds_bell(peer, ready == nil and 0 or ready)
  local all = ready == false and { "images-bell" } or {}
  for _, name in ipairs(names) do table.insert(all, name) end
  for _, name in ipairs(all) do
    peer.holder:expect("queue.declare", { queue = name, passive = false, durable = true, channel = mutex.channel })
  end
  if #all > 0 then peer.prober:silent() end
  for _, name in ipairs(all) do peer.holder:declared(mutex.channel, name) end
  scene.rings(peer, tokens or #names)
end

-- The core gives the mutex back.
function scene.leaves(peer, mutex)
  peer.holder:delete("images-admin", mutex.channel)
  peer:silent()
end

-- The same, and the operation has this result, no sooner.
function scene.gives(peer, op, mutex, result)
  assert.is_false(op:done())
  scene.leaves(peer, mutex)
  assert.equal(result, peer:result(op))
end

-- The core gives the mutex back, and the operation failed with this code and these words in its message, which it
-- returns.
function scene.fails(peer, op, mutex, code, ...)
  scene.leaves(peer, mutex)
  return peer:failed(op, code, ...)
end

return scene
