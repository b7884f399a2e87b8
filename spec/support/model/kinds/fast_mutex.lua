-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories about a fast mutex: a queue whose active consumer, once it has a token, is the holder. The queue is its own
-- bell: waiters are in line there.
local Kind = require "spec.support.model.kind"

local NAME, QUEUE = "db", "db-fastmutex"
local SHAPE = { durable = true, arguments = { ["x-queue-type"] = "classic", ["x-single-active-consumer"] = true,
  ["x-max-length"] = 1, ["x-overflow"] = "reject-publish", ["x-expires"] = 600000 } }
local NEVER = function () return false end

local FastMutex = Kind.extend{ noun = "fast mutex", queue = QUEUE, bell = QUEUE, shape = SHAPE, troubles = {} }

-- Troubles after which there may be no token at the end.
local TAKES_TOKENS = { "purge", "queue deleted", "foreign queue", "stranger" }
-- The queue accepts a token when none lies ready. So there is one more than there are clients that have one: usually a
-- waiter that rang beside a holder has made the second one, and a ring between the cancel and the nack of a release may
-- make a third one. After these troubles there may be more: a client whose cancel crossed with a delivery, or a
-- stranger, keeps a token until the broker hears of it.
local MOST = 3
local KEEPS_TOKENS = { "cut off", "stall", "stopped", "stranger", "surplus" }

function FastMutex.new(crowd)
  local broker = crowd.broker
  local self = setmetatable({ crowd = crowd, broker = broker, visits = {}, disturbed_at = -math.huge }, FastMutex)
  -- A waiter that is active and has no token does not hold the mutex; but an acquire that may not wait is told `busy`.
  self.seats = {
    { name = "the fast mutex", is_free = function () return not self:holder() end, tells = NEVER },
    { name = "the fast mutex, which nobody else wanted,", is_free = function () return true end, wakes = NEVER,
      tells = function (_, since) return self:was_deserted(since) end },
  }
  if crowd.options.is_used then self:be_used() end
  broker:on("leveled", function (queue) self:leveled(queue) end)
  broker:on("consumed", function (queue, consumer) self:visited(queue, consumer, true) end)
  broker:on("left", function (queue, consumer) self:visited(queue, consumer, false) end)
  self.news = crowd:news()
  return self
end

-- For the story -----------------------------------------------------------------------------------------------------

function FastMutex:ask(process, _, ...)
  return self:object(process, "fast_mutex", NAME):acquire(...)
end

--- Each token has an id of its own, as clients give it one.
function FastMutex:ring(count)
  for _ = 1, count do
    self.rung = (self.rung or 0) + 1
    self.broker:put(QUEUE, 1, { type = "amqplocks.token", delivery_mode = 2, message_id = self.rung .. ".story" })
  end
end

-- Other software deletes the queue. A round trip later, and not between the declare and the consume of one write, it
-- declares one of another shape by its name, with messages or without. It deletes that a while later.
FastMutex.troubles["foreign queue"] = function (crowd)
  local broker, random = crowd.broker, crowd.random
  broker:delete(QUEUE)
  crowd.world:after(0.01, function ()
    if broker.queues[QUEUE] then return end
    broker:declare(QUEUE, { durable = true })
    crowd.kind:ring(random:below(4))
    crowd.world:after(random:between(0, crowd.hold), broker.delete, broker, QUEUE)
  end)
end

-- By basic.get.
local function take_token(queue)
  local message = queue:take()
  if not message then return nil end
  return function (settle) settle(queue, { { message = message } }) end
end

-- By basic.consume, in line with the others.
local function stand_in_line(queue)
  local entries = {}
  local channel = { connection = {}, queue_gone = function () end }
  local consumer = { tag = "a stranger", channel = channel, queue = queue, prefetch = 1, priority = 0 }
  function channel.deliver(_, _, message) table.insert(entries, { message = message, consumer = consumer }) end
  queue:consume(consumer)
  queue:serve()
  return function (settle)
    queue:cancel(consumer)
    if #entries > 0 then settle(queue, entries) end
  end
end

--- A client without this library gets a token, and gives it back or acknowledges it.
function FastMutex:intrude()
  local queue, random = self.broker.queues[QUEUE], self.crowd.random
  local over = queue and random:pick{ take_token, stand_in_line, stand_in_line }(queue)
  if not over then return nil end
  self:disturbed()
  self.broker.world:note("a stranger", "wants a token")
  local settle = random:chance(0.3) and queue.requeue or queue.ack
  return function ()
    self.broker.world:note("a stranger", "leaves")
    over(settle)
  end
end

function FastMutex:disturbed() self.disturbed_at = self.broker.world.now end

local function has_any(happens, troubles)
  for _, trouble in ipairs(troubles) do
    if happens[trouble] then return true end
  end
end

function FastMutex:flaw()
  local happens, tokens = self.crowd.happens, self.broker:count(QUEUE)
  local least = has_any(happens, TAKES_TOKENS) and 0 or self.crowd.watch.grants > 0 and 1 or 0
  local most = has_any(happens, KEEPS_TOKENS) and MOST + #self.crowd.members or MOST
  if tokens < least or tokens > most then return ("%d tokens are left"):format(tokens) end
end

-- For the watch -----------------------------------------------------------------------------------------------------

--- The tag of the active consumer, if it has a token, which may still be on its way.
function FastMutex:holder()
  local queue = self.broker.queues[QUEUE]
  local active = queue and queue.active
  return active and active.unacked > 0 and active.tag or nil
end

-- Consumers that left before an acquire that may still be told of something.
local FORGOTTEN = 120

function FastMutex:visited(queue, consumer, is_there)
  if queue.name ~= QUEUE then return end
  local now, visits = self.broker.world.now, self.visits
  if is_there then
    while visits[1] and visits[1].to < now - FORGOTTEN do table.remove(visits, 1) end
    table.insert(visits, { consumer = consumer, to = math.huge })
  end
  for _, visit in ipairs(visits) do
    if visit.consumer == consumer and not is_there then visit.to = now end
  end
end

--- Whether there was only one consumer since then, the asking one, and nobody else took a token or deleted the queue.
function FastMutex:was_deserted(since)
  local count = 0
  for _, visit in ipairs(self.visits) do
    if visit.to >= since then count = count + 1 end
  end
  return count < 2 and self.disturbed_at < since
end

function FastMutex:leveled(queue)
  if queue.name ~= QUEUE then return end
  self.crowd.watch:note()
  self.crowd.watch:look_at_beliefs(1)
end

function FastMutex:changed(queue)
  local crowd = self.crowd
  if queue.name ~= QUEUE or self.broker.queues[QUEUE] then return end
  self:disturbed()
  for _, process in ipairs(crowd.processes) do crowd.watch:doubts(process, self.news) end
end

-- Each client that is told that it holds the mutex is the active consumer, and has a token: so there is one at most.
function FastMutex:clash(beliefs)
  local holder = self:holder()
  for _, belief in ipairs(beliefs) do
    if select(3, belief.lock:info()) ~= holder then
      return belief.process.name .. " holds the fast mutex, and is not the active consumer with a token"
    end
  end
end

return FastMutex
