-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A lock made of a standing queue with a single active consumer: the holder is the active consumer, once it has the
-- queue's only message, the token, which it leaves unacknowledged. The other consumers wait in line.
--
--     local queue = single.queue()
--     local one, other = single.join(queue), single.join(queue)
--     single.served(one)
--     single.release(one)
--     single.served(other)
local scene = require "spec.broker.facts.scene"

local single = {}

single.ARGUMENTS = {
  ["x-queue-type"] = "classic", ["x-single-active-consumer"] = true, ["x-max-length"] = 1, ["x-expires"] = 600000,
}

--- Those of a mutex for clusters: a quorum queue that waits before it gives up a consumer whose node is unreachable.
single.QUORUM = {
  ["x-queue-type"] = "quorum", ["x-single-active-consumer"] = true, ["x-max-length"] = 1, ["x-delivery-limit"] = -1,
  ["x-consumer-disconnected-timeout"] = 20000, ["x-consumer-timeout"] = 100000000000,
}

--- The declaration of such a queue, as a frame, with some arguments changed. `from`: ARGUMENTS, or QUORUM.
function single.declaration(name, changes, from)
  local arguments = {}
  for _, source in ipairs{ from or single.ARGUMENTS, changes or {} } do
    for key, value in pairs(source) do arguments[key] = value end
  end
  return { method = "queue.declare", queue = name, durable = true, arguments = arguments }
end

--- Declares such a queue, and gives its name. `empty`: it has no token. `changes`, `from`: other arguments.
function single.queue(empty, changes, from)
  local name = scene.queue(single.declaration(nil, changes, from))
  if not empty then scene.ring(name) end
  return name
end

--- A consumer, in line when this returns, on a connection of its own or the given one.
function single.join(queue, priority, connection)
  local channel = (connection or scene.connect()):channel()
  return { channel = channel, queue = queue, tag = scene.wait_for_token(channel, queue, priority) }
end

--- Waits until a consumer has the token, which is `delivery` then.
function single.served(self)
  self.delivery = assert(self.channel:await("basic.deliver"))
  assert(self.delivery.consumer_tag == self.tag)
  return self
end

--- Whether the broker has sent nothing to a consumer. While a channel waits for the answer of a queue it does not send
-- what the queue delivered before: that is sent before the answer to the next question.
function single.asleep(self)
  for _ = 1, 2 do scene.barrier(self.channel, self.queue) end
  return self.channel:silent()
end

function single.cancel(self)
  self.channel:send{ method = "basic.cancel", consumer_tag = self.tag }
  return self
end

function single.nack(self)
  self.channel:send{ method = "basic.nack", delivery_tag = self.delivery.delivery_tag, requeue = true }
  return self
end

--- The way a permit is released: out of the line, the permit back, in one write, and nothing is waited for.
function single.give_back(self)
  self.channel:send{ method = "basic.cancel", consumer_tag = self.tag, no_wait = true }
  single.nack(self).channel.client:flush()
end

--- Gives the token back without leaving, and waits until it comes again: the consumer is still the active one.
function single.pulse(self) return single.served(single.nack(self)) end

--- Leaves the line and gives the token back, in one write. The queue has both when this returns: cancel-ok comes before
-- the nack is dealt with.
function single.release(self)
  single.nack(single.cancel(self))
  assert(self.channel:await("basic.cancel-ok"))
  scene.barrier(self.channel, self.queue)
end

--- How many tokens are ready, and how many consumers there are.
function single.counts(queue)
  local channel = scene.channel()
  local answer = assert(channel:call{ method = "queue.declare", queue = queue, passive = true })
  channel.client:close()
  return { answer.message_count, answer.consumer_count }
end

return single
