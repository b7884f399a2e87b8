-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Common functions of the specs of the broker's behaviour: connections and names that are removed after each test, the
-- queues of a lock as the library declares them, and an operator.
--
--     after_each(scene.clear)
local luassert = require "luassert"
local client = require "spec.support.client"
local until_true = require "spec.support.until"

local scene = {}

local clients, names, undone = {}, {}, {}

--- A connection that ends with the test. Options as for client.connect.
function scene.connect(options)
  local new = assert(client.connect(nil, options))
  table.insert(clients, new)
  return new
end

--- A channel on a connection of its own.
function scene.channel(options)
  return scene.connect(options):channel()
end

--- A name nobody else uses. A queue that has it at the end of the test is deleted.
function scene.name()
  local name = client.unique("facts")
  table.insert(names, name)
  return name
end

--- Has something done at the end of the test, however it ends, the last thing first.
function scene.undo(fn)
  table.insert(undone, fn)
end

--- Declares a queue, not exclusive, and gives its name. Options as for client:declare; plain and durable without.
function scene.queue(options)
  local name, declaring = scene.name(), assert(client.connect())
  assert(declaring:declare(name, options or { durable = true }))
  declaring:close()
  return name
end

--- To be called after each test.
function scene.clear()
  if not (clients[1] or names[1] or undone[1]) then return end
  local old_clients, old_names, old_undone = clients, names, undone
  clients, names, undone = {}, {}, {}  -- first, so that one test's trouble does not become the next one's
  local failure
  for i = #old_undone, 1, -1 do
    local fine, err = pcall(old_undone[i])
    failure = failure or not fine and err
  end
  for _, old in ipairs(old_clients) do old:close() end
  local sweeper = assert(client.connect())
  for _, name in ipairs(old_names) do
    until_true(function () return sweeper:delete(name) end)  -- a killed owner's queue may take a moment to go
  end
  sweeper:close()
  if failure then error(failure, 0) end
end

--- The options of a slot queue (A), of type "classic" or "quorum".
function scene.slot(queue_type, overflow)
  return { durable = true, arguments = {
    ["x-queue-type"] = queue_type or "classic", ["x-max-length"] = 0, ["x-overflow"] = overflow or "drop-head",
  } }
end

--- The declaration of a holder queue (B), as a frame.
function scene.holder(name, ticket)
  return { method = "queue.declare", queue = name, exclusive = true, auto_delete = true, arguments = {
    ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head",
    ["x-amqplocks-ticket"] = ticket,
  } }
end

--- Makes B held on a channel: declared and consumed there.
function scene.hold(channel, name)
  assert(channel:call(scene.holder(name)))
  assert(channel:call{ method = "basic.consume", queue = name, no_ack = true })
  return name
end

--- Asks the broker something on this channel, about this queue: when the answer is here, so is whatever the queue had
-- for the channel before it was asked.
function scene.barrier(channel, queue)
  assert(channel:call{ method = "queue.declare", queue = queue, passive = true })
end

--- Publishes on a channel in confirm mode and waits for the confirm.
-- @return "basic.ack" or "basic.nack", and the basic.return if one came before it; or nil and the reason
function scene.publish(channel, message)
  local number, returned = channel:publish(message), nil
  while true do
    local frame, reason = channel:next()
    if not frame then return nil, reason end
    if frame.method ~= "basic.return" then
      assert(frame.delivery_tag == number, "a confirm of something else")
      return frame.method, returned
    end
    returned = frame
  end
end

--- Consumes with prefetch 1 and acknowledgements, as one who waits for a token.
function scene.wait_for_token(channel, bell, priority)
  assert(channel:call{ method = "basic.qos", prefetch_count = 1 })
  return assert(channel:call{
    method = "basic.consume", queue = bell, arguments = { ["x-priority"] = priority },
  }).consumer_tag
end

--- Puts a token in a bell, and waits until it is there.
function scene.ring(bell)
  local channel = scene.channel():confirm()
  assert(scene.publish(channel, { routing_key = bell, properties = { delivery_mode = 2 } }) == "basic.ack")
end

--- Asserts that the broker closes the channel with this code, and not the connection; with the ids of a class and a
-- method, if given. Returns the names of the methods that came before.
function scene.closed(channel, code, class_id, method_id)
  local came, frame, reason = {}, channel:next()
  while frame do
    came[frame.method] = true
    frame, reason = channel:next()
  end
  luassert.same({ code or reason.code, class_id or reason.class_id, method_id or reason.method_id },
    { reason.code, reason.class_id, reason.method_id })
  luassert.is_nil(reason.connection)
  return came
end

--- The same for this frame, which has no other answer.
function scene.refused(code, channel, frame, class_id, method_id)
  luassert.same({}, scene.closed(channel:send(frame), code, class_id, method_id))
end

return scene
