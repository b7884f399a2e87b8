-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories about the permits of a token semaphore: messages that are with their holders. The queue is its own bell:
-- waiters are in line there.
local Gate = require "spec.support.model.gate"
local History = require "spec.support.model.history"
local Kind = require "spec.support.model.kind"
local Queue = require "spec.support.model.queue"

local NAME, QUEUE, COUNT = "licences", "licences.semaphore", "licences.semaphore-count"
local Tokens = Kind.extend{ noun = "permit", queue = QUEUE, bell = QUEUE }

local FOREIGN = { delivery_mode = 2, content_type = "text/plain" }

function Tokens.new(crowd)
  local broker = crowd.broker
  local self = setmetatable({ crowd = crowd, broker = broker, history = History.new(broker),
    queue_type = crowd.random:pick(crowd.options.queue_types or { "classic", "quorum" }) }, Tokens)
  self.many = crowd.options.gathers and Gate.new(self, NAME .. "-tokenmany")
  self.seats = { { name = "a permit", is_free = function () return (broker:count(QUEUE)) > 0 end,
    wakes = self.many and self.many.wakes } }
  broker:on("leveled", function (queue) self:leveled(queue) end)
  if crowd.options.fenced then self:mind_deliveries() end
  self.news = crowd:news()
  return self
end

-- For the story -----------------------------------------------------------------------------------------------------

-- Gives the operation, and for how long it may wait for holders, and undo what it did then.
local function administer(self, admin, action, wait, ...)
  return admin.session:administer_tokens(action, NAME, { queue_type = self.queue_type, wait = wait }, ...), wait + 5
end

function Tokens:create(admin)
  return administer(self, admin, "create", 0, self.crowd.slots)
end

function Tokens:resize(admin, permits)
  return administer(self, admin, "resize", self.crowd.random:pick{ 0, 5 }, permits)
end

function Tokens:destroy(admin)
  return administer(self, admin, "destroy", self.crowd.random:pick{ 0, 0, 5 })
end

function Tokens:repair(admin)
  return administer(self, admin, "repair", 60)
end

--- What an administrator asks, and a function of what he was told: nil, or what is wrong with that.
function Tokens:inquire(admin)
  local history, since = self.history, self.broker.world.now - self.broker.laws.stale
  return administer(self, admin, "slots", 0), function (count, free)
    if count == 0 and free == 0 and history:was_absent(QUEUE, since) then return nil end
    for name, number in pairs{ [QUEUE] = free, [COUNT] = count } do
      if not history:was(name, number, since) then return ("%s never had %d since"):format(name, number) end
    end
  end
end

--- What is wrong after a change that was said to be done: nobody else changes the number meanwhile.
function Tokens:undone(permits)
  if self.crowd.options.surplus then return nil end
  for _, name in ipairs{ QUEUE, COUNT } do
    local ready, unacked = self.broker:count(name)
    if ready + unacked ~= permits then return ("there are %d in %s"):format(ready + unacked, name) end
  end
end

function Tokens:ask(process, _, ...)
  return process.peer:token_semaphore(NAME,
    { queue_type = self.queue_type, fenced = self.crowd.options.fenced }):acquire(...)
end

--- A stranger has a permit. Gives what ends it.
function Tokens:intrude()
  local queue = self.broker.queues[QUEUE]
  local message = queue and queue:take()
  if not message then return nil end
  self.broker.world:note("a stranger", "has a permit")
  queue.strangers = (queue.strangers or 0) + 1
  return function ()
    queue.strangers = queue.strangers - 1
    queue:requeue{ { message = message } }
  end
end

--- Permits by somebody else, more than there should be.
function Tokens:ring(count) self.broker:put(QUEUE, count, FOREIGN) end

function Tokens:stays(queue) return queue == COUNT or Kind.stays(self, queue) end

function Tokens:flaw()
  local permits, marks = self.broker:count(QUEUE), self.broker:count(COUNT)
  -- An administrator that died in the middle of a resize may have done it or not.
  if permits ~= marks or permits ~= self.crowd.slots and not self.crowd.options.mends then
    return ("%d permits are left, and %d marks, of %d"):format(permits, marks, self.crowd.slots)
  end
end

-- For the watch -----------------------------------------------------------------------------------------------------

-- There may be more permits than marks only by somebody else's hand.
local function look_at_count(self)
  local queues = self.broker.queues
  if not (queues[QUEUE] and queues[COUNT]) or self.crowd.options.surplus then return end
  local ready, unacked = self.broker:count(QUEUE)
  local marks, marks_unacked = self.broker:count(COUNT)
  if ready + unacked > marks + marks_unacked then
    self.crowd.watch.breach("there are %d permits, and %d marks", ready + unacked, marks + marks_unacked)
  end
end

function Tokens:leveled(queue)
  if queue.name ~= QUEUE and queue.name ~= COUNT then return end
  self.history:note(queue.name, (self.broker:count(queue.name)))
  look_at_count(self)
  self.crowd.watch:note()
  self.crowd.watch:look_at_beliefs(1)
end

function Tokens:changed(queue)
  local crowd = self.crowd
  Kind.changed(self, queue)
  if queue.name == QUEUE or queue.name == COUNT then
    self.history:note(queue.name, (self.broker:count(queue.name)))
  end
  if queue.name ~= QUEUE or self.broker.queues[QUEUE] then return end
  for _, member in ipairs(crowd.members) do crowd.watch:doubts(member.process, self.news) end
end

-- Calls fn with each consumer on a connection to whom a message of the queue is given out.
local function each_taker(connection, queue, fn)
  for _, channel in ipairs(connection and connection.channels or {}) do
    for _, entry in ipairs(channel.unacked) do
      if entry.queue == queue and entry.consumer then fn(entry.consumer) end
    end
  end
end

function Tokens:count_of(connection)
  local count = 0
  each_taker(connection, self.broker.queues[QUEUE], function () count = count + 1 end)
  return count
end

-- The holder of a permit has a message that was given out to that lock, and so to nobody else.
function Tokens:clash(beliefs)
  local queue, tickets = self.broker.queues[QUEUE], {}
  local function note(consumer) tickets[consumer.tag] = true end
  for _, belief in ipairs(beliefs) do each_taker(belief.process:connection(), queue, note) end
  for _, belief in ipairs(beliefs) do
    local ticket = select(3, belief.lock:info())
    if not tickets[ticket] then return belief.process.name .. " holds a permit that is not given out to it" end
  end
end

-- Remembers what the queue gave to each consumer: which permit, when it was published, and when it was given.
function Tokens:mind_deliveries()
  local count, by_tag = 0, {}
  self.deliveries = by_tag
  self.broker:on("delivered", function (queue, consumer, message)
    count = count + 1
    if queue.name ~= QUEUE or by_tag[consumer.tag] then return end
    by_tag[consumer.tag] = { birth = count, permit = Queue.properties_of(message).message_id,
      published_at = message.sent_at, at = self.broker.world.now }
  end)
end

--- What the broker gave to this holder. The holder is told which permit it has.
function Tokens:given(belief)
  local given, told = self.deliveries[select(3, belief.lock:info())], belief.lock:permit()
  if told ~= given.permit then
    self.crowd.watch.breach("%s was told that it has permit %s, and has %s", belief.process.name, told or "none",
      given.permit)
  end
  return given
end

--- Permits that were made together may have the same numbers.
function Tokens.may_equal(_, one, other) return one.permit ~= other.permit end

--- The numbers of one permit grow. Those of a permit that was made later are larger than all that were given before.
function Tokens.has_order(_, one, other)
  return one.permit == other.permit or one.published_at > other.at or other.published_at > one.at
end

return Tokens
