-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Token semaphores and fast mutexes as a client without this library sees them, and takes their permits: for
-- token_*_spec and fast_mutex_spec.
local assert = require "luassert"
local client = require "spec.support.client"
local line = require "spec.support.line"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local scene = {}

function scene.permits(name) return name .. ".semaphore" end
function scene.marks(name) return name .. ".semaphore-count" end

--- A name that nobody else uses, with something at its end; or this one, of which it is `whole`. Its queues are gone at
-- the end of the test.
function scene.name(suffix, whole)
  local name = whole and suffix or client.unique("lock") .. (suffix or "")
  stage.undo(function ()
    stage.delete(scene.permits(name))
    stage.delete(scene.marks(name))
  end)
  return name
end

--- Publishes a message, and returns when it is there.
function scene.publish(raw, queue, properties, body)
  local channel = raw:channel():confirm()
  channel:publish{ routing_key = queue, mandatory = true, properties = properties, body = body }
  assert.equal("basic.ack", assert(channel:next()).method)
  channel:close()
end

--- As many permits are free as there are marks: so many. Nobody is at work.
function scene.stands(raw, name, count)
  until_true(function () -- what was given back may take a moment
    local free, marks = raw:message_count(scene.permits(name)), raw:message_count(scene.marks(name))
    return free == count and marks == count, ("%d are free, of %d"):format(free, marks)
  end)
  assert.is_false(raw:exists(name .. "-tokenadmin"))
end

--- Waits until so many consume.
function scene.until_consumers(raw, name, count)
  until_true(function ()
    local channel = raw:channel()
    local answer = assert(channel:call{ method = "queue.declare", queue = scene.permits(name), passive = true })
    channel:close()
    return answer.consumer_count == count, answer.consumer_count .. " consume"
  end)
end

-- What clients lock: over(conn, name) gives the object of the library, queue(name) the queue from which it is served.
scene.classic = { queue = scene.permits, over = function(conn, name) return conn:token_semaphore(name) end }
scene.quorum = { queue = scene.permits,
  over = function(conn, name) return conn:token_semaphore(name, { queue_type = "quorum" }) end }
scene.fast = { queue = function(name) return name .. "-fastmutex" end,
  over = function(conn, name) return conn:fast_mutex(name) end }

--- A name for a fast mutex, whose queue is deleted at the end of the test. When all who took part are gone, nobody
-- consumes, and a token or a few lie ready (one more for each ring that came between the cancel and the nack of a
-- release), unless the test may do anything to it.
function scene.fast_name(is_frail)
  local name = stage.name()
  local queue = scene.fast.queue(name)
  stage.undo(function () stage.delete(queue) end)
  if not is_frail then
    stage.undo(function ()
      until_true(function ()
        local tokens, consumers = line.at(name, queue)
        return consumers == 0 and tokens >= 1 and tokens <= 5, ("%s tokens, %s consumers"):format(tokens, consumers)
      end)
    end)
  end
  return name
end

--- A second process with `take`, see line.process. Options of its connection are Lua source.
function scene.worker(object, name, options, url)
  local new = line.process(name, options, url)
  new:run(({ [scene.classic] = "sem = conn:token_semaphore(...)", [scene.fast] = "sem = conn:fast_mutex(...)",
    [scene.quorum] = "sem = conn:token_semaphore(..., { queue_type = 'quorum' })" })[object], name)
  new.bell = object.queue(name)
  return new
end

--- Has a process stand in line: returns when it does, behind all others.
function scene.join(one, options) return line.join(one, options, true) end

scene.took = line.served

local taker = {}
taker.__index = taker

--- Another client, on a connection of its own, that stands in line for a permit (or for what is in `queue`).
function scene.taker(name, priority, queue)
  local channel = stage.client():channel()
  assert(channel:call{ method = "basic.qos", prefetch_count = 1 })
  queue = queue or scene.permits(name)
  local answer = assert(channel:call{ method = "basic.consume", queue = queue,
    arguments = { ["x-priority"] = priority or 0 } })
  return setmetatable({ channel = channel, queue = queue, tag = answer.consumer_tag }, taker)
end

--- Waits until it has one. Gives the message it has.
function taker:served()
  self.permit = assert(self.channel:await "basic.deliver")
  self.properties = self.permit.properties
  return self
end

--- Whether it has got one by now.
function taker:has()
  assert(self.channel:call{ method = "queue.declare", queue = self.queue, passive = true })
  return not self.channel:silent()
end

--- Whether it still holds the one it has: nobody has told it otherwise.
function taker:holds() return not self:has() end

function taker:release()
  self.channel:send{ method = "basic.cancel", consumer_tag = self.tag, no_wait = true }
  self.channel:send{ method = "basic.nack", delivery_tag = self.permit.delivery_tag, requeue = true }
  self.channel.client:flush()
end

--- Takes it out of the world.
function taker:acknowledge()
  self.channel:send{ method = "basic.cancel", consumer_tag = self.tag, no_wait = true }
  self.channel:send{ method = "basic.ack", delivery_tag = self.permit.delivery_tag }
  assert(self.channel:call{ method = "basic.qos", prefetch_count = 1 })
end

return scene
