-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories about a mutex of quorum queues: its holder has proved lately that the queue knows it. The queue's active
-- consumer decides nothing: the rule is that held() never tells two clients at one time that they hold it.
local Kind = require "spec.support.model.kind"

local NAME, QUEUE = "db", "db-fastmutex"
local SHAPE = { durable = true, arguments = { ["x-queue-type"] = "quorum", ["x-single-active-consumer"] = true,
  ["x-max-length"] = 1, ["x-overflow"] = "reject-publish", ["x-delivery-limit"] = -1,
  ["x-consumer-timeout"] = 60000, ["x-consumer-disconnected-timeout"] = 15000 } }

local QuorumMutex = Kind.extend{ noun = "quorum mutex", queue = QUEUE, bell = QUEUE, shape = SHAPE, seats = {},
  troubles = {}, lingers = 25 } -- so long an acquire that ended in doubt goes on without its caller

function QuorumMutex.new(crowd)
  local self = setmetatable({ crowd = crowd, broker = crowd.broker, ending = 0, steps_at = 0 }, QuorumMutex)
  self.broker:on("delivered", function (queue, consumer, message) self:delivered(queue, consumer, message) end)
  if crowd.options.is_used then self:be_used() end
  return self
end

-- The token's last holder has ended.
function QuorumMutex:be_used()
  Kind.be_used(self)
  local token = self.broker.queues[QUEUE].messages[1]
  token.acquired, token.failures = 3, 2
end

function QuorumMutex.ask(_, process, _, ...)
  return process.peer:fast_mutex(NAME, { queue_type = "quorum" }):acquire(...)
end

function QuorumMutex.clash(_, beliefs)
  if #beliefs < 2 then return nil end
  return ("the quorum mutex is held by %s and by %s"):format(beliefs[1].process.name, beliefs[2].process.name)
end

--- Only a new leader learns that a consumer is gone which the last one has suspected twice.
function QuorumMutex:settle()
  local queue = self.broker.queues[QUEUE]
  self.crowd.world:after(self.crowd.restarted_by - self.crowd.world.now, queue.lose_leader, queue, 0)
end

-- Troubles ----------------------------------------------------------------------------------------------------------

local troubles = QuorumMutex.troubles

local function is_any_cut(queue)
  for _, node in ipairs(queue.broker.nodes) do
    if queue.at[node].is_cut then return true end
  end
end

-- The node of the holder, of the first waiter, or any.
local function pick_node(crowd, queue)
  local consumer = queue.consumers[crowd.random:below(3)]
  return consumer and consumer.channel.connection.node or crowd.random:pick(queue.broker.nodes)
end

-- After it the cluster is whole for a while: so long a story goes on.
local function lasts(crowd, seconds) crowd.restarted_by = math.max(crowd.restarted_by, crowd.world.now + seconds) end

-- A node is cut off from the others. Meanwhile the leader may move, and a former leader's timer may fire.
local function cut(crowd, queue, node)
  local random, world, options = crowd.random, crowd.world, crowd.options
  local notice = random:between(0, random:pick(options.notices or { 0.01, 1, 10 }))
  local seconds = random:between(0, random:pick(options.cuts or { 2, 20, 40 }))
  lasts(crowd, seconds + 40)
  queue:cut(node, notice)
  if random:chance(0.3) then queue:lag(node, seconds + random:between(0, options.lags_for or 30)) end
  world:after(seconds, queue.heal, queue, node)
  if options.is_doubled and random:chance(0.5) then
    world:after(random:between(0, seconds), queue.lose_leader, queue, random:between(0, 1))
    world:after(seconds + random:between(0, 30), queue.lose_leader, queue, random:between(0, 1))
  elseif options.is_doubled and not options.keeps_time then -- see "What remains" in docs/specification.md, 6.1
    world:after(random:between(0, seconds), queue.hasten, queue)
  end
end

function troubles.partition(crowd)
  local queue = crowd.broker.queues[QUEUE]
  if queue and not is_any_cut(queue) then cut(crowd, queue, pick_node(crowd, queue)) end
end

-- The next node whose client proves something is cut off in the moment of the queue's answer.
troubles["partition in time"] = function (crowd) crowd.kind.is_aimed = true end

local function ends(channel) channel:fail(541, "INTERNAL_ERROR") end

function QuorumMutex:delivered(queue, consumer, message)
  local own = message.own
  if self.ending > 0 then
    self.ending = self.ending - 1
    self.crowd.world:after(self.crowd.random:pick{ 0, 0.001, 0.003 }, ends, consumer.channel)
  end
  if self.steps_next then
    self.steps_next = false
    self.crowd.world:after(0, queue.step_clock, queue)
  end
  if not self.is_aimed or not own or own.acquired == 0 or is_any_cut(queue) then return end
  self.is_aimed = false
  cut(self.crowd, queue, consumer.channel.connection.node)
end

-- A free token is there beside the one that may be held: a new leader may put it there, from a client that is gone.
troubles["another token"] = function (crowd)
  local queue = crowd.broker.queues[QUEUE]
  if not queue then return end
  local properties = { message_id = tostring(crowd.world.now) }
  table.insert(queue.messages, 1, { acquired = 3, failures = 2, properties = properties, body = "" })
  queue:serve()
end

-- The queue's member on a node lags.
function troubles.lag(crowd)
  local queue, seconds = crowd.broker.queues[QUEUE], crowd.random:between(0, crowd.random:pick{ 1, 30 })
  if not queue then return end
  lasts(crowd, seconds)
  queue:lag(pick_node(crowd, queue), seconds)
end

-- A clock takes the token from its holder, perhaps in the middle of a proof, and up to two clients end that get it next
-- and have done nothing to it, or hardly anything (see "What remains" in docs/specification.md, 6.1). Another clock may
-- take it once more.
function troubles.clock(crowd)
  local queue, self, random, world = crowd.broker.queues[QUEUE], crowd.kind, crowd.random, crowd.world
  if not queue or world.now < self.steps_at then return end
  self.ending, self.steps_at = random:below(3) - 1, world.now + 30
  if random:chance(0.5) then self.steps_next = true else queue:step_clock() end
  if random:chance(0.5) then world:after(random:between(1, 14), queue.step_clock, queue) end
end

troubles["no majority"] = function (crowd)
  local queue, seconds = crowd.broker.queues[QUEUE], crowd.random:between(0, crowd.random:pick{ 1, 30 })
  if not queue then return end
  lasts(crowd, seconds)
  queue:lose_leader(seconds)
end

return QuorumMutex
