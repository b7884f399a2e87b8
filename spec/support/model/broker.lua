-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A model of a RabbitMQ broker, as far as the library uses one: enough for thousands of stories in simulated time,
-- each decided by a seed, with the orders that a real broker shows once in a thousand runs. What it knows of RabbitMQ
-- is what spec/broker/facts asserts, and the same specs are run against it (spec/sim/model_spec.lua).
--
--     local broker = Broker.new(world, { version = "3.10.8" })
--     local socket = broker:connect(arrived, ended)          -- bytes come back to arrived(), the end to ended()
--     socket:send(bytes)
--     broker:delete("images-bell")                           -- an operator's hand
--     broker:stop() broker:start()
--
-- Anything that it does not know it refuses loudly, so that it cannot be right about something by chance.
local Connection = require "spec.support.model.connection"
local Queue = require "spec.support.model.queue"
local Wire = require "spec.support.model.wire"

local unpack = table.unpack or unpack

local Broker = {}
Broker.__index = Broker

--- How long things take at most, in seconds, each time drawn anew.
Broker.laws = {
  version = "3.10.8",
  strict = false,       -- what only a client with a defect can bring about is an error of the story
  lags = 0.3,           -- this share of all frames waits, within its channel
  inner = 0.0005,       -- so long at most
  consume_ok = 0.0005,  -- a consumer's way into the line
  confirm = 0.0005,     -- messages that come together are confirmed together
  handshake = 10,       -- it must be done by then
  notice = 0.002,       -- until a consumer hears that its queue is gone
  by_name = false,      -- by then its channel may consume from another of that name, and hears it of that one, too
  down = 0.001,         -- until a queue hears that a channel is gone
  settled = 0.002,      -- until a queue of a cluster hears what was acknowledged or given back
  exclusive = 0.003,    -- between one exclusive queue and the next, when their connection is gone
  ending = 0.002,       -- a queue that goes by itself takes its time
  birth = 0.003,        -- an exclusive queue that is late, as `lags` of them are, begins so much later at most
  by_its_name = nil,    -- what ends takes away whatever stands under its name by then: if not given, before 4.3
  taken_away = 0.005,   -- until it has
  nacks = 0.3,          -- a queue that is going away refuses this share of all messages
  tick = 0.1,           -- who has held a message for too long, and does not say close-ok, is told so again
  nodes = 1,            -- of a cluster; each connection is with one of them
  stale = 0,            -- a node sees so late at most what was changed through another
  closes_late = true,   -- close-ok for a connection comes when its queues are gone, as up to 4.1
  pace = { least = 0.00005, most = 0.0003, spike = 0.002, spikes = 0.02 },  -- of the network
}

-- A node sees everything as it was so long ago, but at least as it was at `viewed`.
local function add_node(self, name)
  table.insert(self.nodes, { name = name, behind = self:lag(self.laws.stale), viewed = 0 })
end

local function is_before_4_3(version)
  local major, minor = version:match("^(%d+)%.(%d+)")
  return tonumber(major) < 4 or tonumber(major) == 4 and tonumber(minor) < 3
end

local function laws_with(some)
  local laws = {}
  for name, law in pairs(Broker.laws) do laws[name] = law end
  for name, law in pairs(some) do laws[name] = law end
  if laws.by_its_name == nil then laws.by_its_name = is_before_4_3(laws.version) end
  return laws
end

function Broker.new(world, laws)
  local self = setmetatable({ world = world, random = world.random:fork(), queues = {}, connections = {}, names = 0,
    exchanges = { ["amq.direct"] = { type = "direct", bindings = {} } }, remains = {}, watchers = {},
    past = { queues = {}, bindings = {} }, nodes = {},
    laws = laws_with(laws or {}) }, Broker)
  for i = 1, self.laws.nodes do add_node(self, i) end
  return self
end

function Broker:lag(most) return most * self.random:float() end

function Broker:unique(prefix)
  self.names = self.names + 1
  return prefix .. self.names
end

-- Connections -------------------------------------------------------------------------------------------------------

--- A client connects. `arrived(bytes)` is called with what the broker writes, `ended()` at the end. Gives the client's
-- end: send(bytes); close(); reset(), what was under way is lost; cut("up", "down" or "both"), the network is gone, and
-- nobody hears of it; stall("up", "down" or "both", seconds), nothing arrives before these are over.
function Broker:connect(arrived, ended, pace)
  local connection
  pace = pace or self.laws.pace
  local down = Wire.new(self.world, pace, arrived, ended)
  local up = Wire.new(self.world, pace, function (bytes, sent_at) connection:feed(bytes, sent_at) end,
    function () connection:ended() end)
  connection = Connection.new(self, down)
  table.insert(self.connections, connection)
  if self.is_down then connection:abort() end
  return {
    connection = connection,
    send = function (_, bytes) up:send(bytes) end,
    close = function ()
      up:finish()
      down:cut()
    end,
    reset = function ()
      up:reset()
      down:cut()
    end,
    cut = function (_, direction)
      if direction ~= "down" then up:cut() end
      if direction ~= "up" then down:cut() end
    end,
    stall = function (_, direction, seconds)
      if direction ~= "down" then up:stall(seconds) end
      if direction ~= "up" then down:stall(seconds) end
    end,
  }
end

function Broker:disconnected(connection)
  for i, other in ipairs(self.connections) do
    if other == connection then table.remove(self.connections, i) end
  end
end

-- Queues ------------------------------------------------------------------------------------------------------------

--- For queues: it was made, is gone, or is or is no longer consumed by one alone.
function Broker:changed(queue)
  for _, watcher in ipairs(self.watchers) do watcher(queue) end
end

--- Has fn(queue) called whenever a queue was made, or is gone; or somebody begins or ceases to consume from it alone.
function Broker:watch(fn)
  table.insert(self.watchers, fn)
end

--- Has asked(queue, channel) called whenever somebody is told how many are in the line of a queue, arrived(queue,
-- consumer) when somebody is in it, and returned(queue, connection) when a client gives a message back to it, unless
-- that crossed with its basic.cancel.
function Broker:watch_line(asked, arrived, returned)
  self.line_watcher = { asked = asked, arrived = arrived, returned = returned }
end

--- For channels.
function Broker:asked(queue, channel)
  if self.line_watcher then self.line_watcher.asked(queue, channel) end
end

--- Has fn(queue) called whenever a queue may have got more messages, or fewer, or has given some out.
function Broker:watch_level(fn)
  self.level_watcher = fn
end

--- For queues.
function Broker:leveled(queue)
  if self.level_watcher and queue.is_alive then self.level_watcher(queue) end
end

--- For queues.
function Broker:consumed(queue, consumer)
  if self.line_watcher then self.line_watcher.arrived(queue, consumer) end
end

--- For channels.
function Broker:given_back(queue, connection)
  if self.line_watcher then self.line_watcher.returned(queue, connection) end
end

--- Makes a queue; `options` are owner (a connection), durable, auto_delete, arguments.
function Broker:declare(name, options)
  local queue = Queue.new(self, name, options)
  self.world:note("broker", "%s is made", name)
  self.queues[name] = queue
  if queue.owner then table.insert(queue.owner.exclusive, queue) end
  self:changed(queue)
  return queue
end

-- What is gone may still be seen for a while.
local function keep_past(self, list, thing)
  local now, stale = self.world.now, self.laws.stale
  thing.gone_at = now
  if stale == 0 then return end
  while list[1] and list[1].gone_at < now - stale do table.remove(list, 1) end
  table.insert(list, thing)
end

-- It ends with its owner, if not before: so do those that are there no more for anybody else.
local function disown(queue)
  if not queue.owner or queue.is_orphan then return end
  for i, other in ipairs(queue.owner.exclusive) do
    if other == queue then table.remove(queue.owner.exclusive, i) end
  end
end

--- For the queue: it is gone.
function Broker:forget(queue)
  self.world:note("broker", "%s is gone", queue.name)
  self.queues[queue.name] = nil
  keep_past(self, self.past.queues, queue)
  for name in pairs(self.exchanges) do self:unbind(queue, name) end
  disown(queue)
  self:changed(queue)
end

local function take_away(self, name)
  if self.queues[name] then self.queues[name]:be_orphaned() end
end

--- A queue of that name ends that is not the one that stands there, if any does: because another has taken that place,
-- or because its owner was dead when it began. Before 4.3 it takes away what stands there when it is done.
function Broker:ends_elsewhere(name)
  if not self.laws.by_its_name then return end
  self.world:note("broker", "another %s ends", name)
  self.world:after(self:lag(self.laws.taken_away), take_away, self, name)
end

--- Whether somebody consumes from it alone.
function Broker:is_shut(name)
  local queue = self.queues[name]
  local first = queue and queue.consumers[1]
  return first and first.is_alone or false
end

--- Takes away the binding of a queue with a key, or all that the queue has there.
function Broker:unbind(queue, exchange, key)
  local bindings = self.exchanges[exchange].bindings
  for i = #bindings, 1, -1 do
    local is_meant = bindings[i].queue == queue and (not key or bindings[i].key == key)
    if is_meant then keep_past(self, self.past.bindings, table.remove(bindings, i)) end
  end
end

--- For channels.
function Broker:is_bound(queue, exchange, key)
  for _, binding in ipairs(self.exchanges[exchange] and self.exchanges[exchange].bindings or {}) do
    if binding.queue == queue and binding.key == key then return true end
  end
  return false
end

function Broker:bind(queue, exchange, key)
  if self:is_bound(queue, exchange, key) then return end
  table.insert(self.exchanges[exchange].bindings,
    { exchange = exchange, queue = queue, key = key, made_at = self.world.now })
end

-- Things that are or were there, as they were at a time.
local function seen(time, now, past)
  local list = {}
  for _, things in ipairs{ now, past } do
    for _, thing in ipairs(things) do
      if thing.made_at <= time and (not thing.gone_at or thing.gone_at > time) then table.insert(list, thing) end
    end
  end
  return list
end

local NOWHERE = {}

-- The queues of a name, at most one, as one sees it who sees what was so at a time.
local function named(self, name, time)
  local queue, past = self.queues[name], self.past.queues
  if #past == 0 then return queue and queue.made_at <= time and { queue } or NOWHERE end
  local found = {}
  for _, other in ipairs(seen(time, { queue }, past)) do
    if other.name == name then table.insert(found, other) end
  end
  return found
end

-- The queues that a message goes to, as one sees it who sees what was so at a time.
local function route(self, message, time)
  if message.exchange == "" then
    local found = named(self, message.routing_key, time)
    return found[1] and found[1].is_down == "returned" and NOWHERE or found
  end
  local found, has = {}, {}
  local exchange = self.exchanges[message.exchange]
  if not exchange then error("the model broker knows no publish to an exchange that is not there", 0) end
  for _, binding in ipairs(seen(time, exchange.bindings, self.past.bindings)) do
    local is_meant = binding.exchange == message.exchange
      and (exchange.type == "fanout" or binding.key == message.routing_key)
    if is_meant and not has[binding.queue] then table.insert(found, binding.queue) end
    has[binding.queue] = has[binding.queue] or is_meant
  end
  return found
end

local function publish(self, queue, message)
  if queue.state ~= "live" then return not self.random:chance(self.laws.nacks) end
  return queue:publish(message)
end

--- A message is published by one who sees what was so at a time. Gives whether it went anywhere, and whether it was
-- taken everywhere.
function Broker:publish(message, time)
  local found, taken = route(self, message, time or self.world.now), true
  for _, queue in ipairs(found) do taken = publish(self, queue, message) and taken end
  return #found > 0, taken
end

-- An operator's hands -----------------------------------------------------------------------------------------------

function Broker:delete(name)
  if self.queues[name] then self.queues[name]:remove() end
end

--- The node that a queue is on goes down: "refused" is what is sent to it from then on, as with Khepri, or "returned",
-- as with Mnesia; or nil, it is up again. Everything else that is asked of it is refused.
function Broker:put_down(name, how)
  local queue = self.queues[name]
  if not queue then return end
  self.world:note("broker", "%s is %s", name, how and "down, and what is sent is " .. how or "up again")
  queue.is_down = how
end

--- A queue does not answer those who publish to it, as one of a quorum that has no leader: whatever came on such a
-- channel after that waits, too, until it answers again. Everything else that is asked of it is answered.
function Broker:silence(name, is_on)
  local queue = self.queues[name]
  if not queue then return end
  self.world:note("broker", is_on and "%s does not answer" or "%s answers again", name)
  queue.is_silent = is_on
  if not is_on then self:go_on() end
end

-- A durable queue comes back with what lasts.
local function come_back(self, queue)
  return self:declare(queue.name, { durable = true, auto_delete = queue.auto_delete, arguments = queue.arguments,
    messages = queue:what_lasts() })
end

--- The node that a durable queue is on is killed: its consumers are told, and nobody else is told anything of it until
-- it is back, nor of what comes behind that on such a channel; what is sent to it is refused.
function Broker:kill(name)
  local queue = self.queues[name]
  self.world:note("broker", "the node of %s dies", name)
  queue:remove()
  come_back(self, queue).is_dead = true
end

--- It is back.
function Broker:revive(name)
  local queue = self.queues[name]
  if not queue then return end
  self.world:note("broker", "%s is back", name)
  queue.is_dead = false
  self:go_on()
end

--- Those who wait for a queue that did not answer ask again: it does so, or is gone.
function Broker:go_on()
  for _, connection in ipairs(self.connections) do
    for _, channel in ipairs{ unpack(connection.channels) } do channel:go_on() end
  end
end

--- Nobody may read from queues any more, or everybody may again.
function Broker:deny(is_on)
  self.denies = is_on
  self.world:note("broker", is_on and "lets nobody consume" or "lets everybody consume")
end

function Broker:purge(name)
  if self.queues[name] then self.queues[name]:purge() end
end

--- Puts messages of a type into a queue.
function Broker:put(name, count, properties)
  for _ = 1, count do
    self:publish{ exchange = "", routing_key = name, properties = properties or {}, body = "" }
  end
end

--- A client that nobody knows has an exclusive queue of that name, bound to amq.direct if there is a key. Gives what
-- ends it; nil if there is such a queue.
function Broker:intrude(name, key)
  if self.queues[name] then return nil end
  self.world:note("a stranger", "has %s", name)
  local queue = self:declare(name, { owner = { exclusive = {} }, auto_delete = true })
  if key then self:bind(queue, "amq.direct", key) end
  return function () queue:remove() end
end

--- The consumer timeout, whenever one likes: closes the channels that have unacknowledged messages of a queue.
function Broker:time_out(name)
  for _, connection in ipairs(self.connections) do
    for _, channel in ipairs(connection.channels) do
      for _, entry in ipairs(channel.unacked) do
        if entry.queue.name == name and channel.state == "open" then
          channel:fail(406, "PRECONDITION_FAILED - delivery acknowledgement on channel " .. channel.number
            .. " timed out. Timeout value used: 1800000 ms. This timeout value can be configured")
          self.world:after(self:lag(self.laws.tick), channel.insist, channel)
        end
      end
    end
  end
end

--- A memory or disk alarm begins or ends: who publishes meanwhile is not read until it is over.
function Broker:alarm(is_on)
  self.has_alarm = is_on
  self.world:note("broker", is_on and "has an alarm" or "has no alarm any more")
  if is_on then return end
  for _, connection in ipairs{ unpack(self.connections) } do connection:alarm_over() end
end

--- It has been told to stop, and takes its time. As from RabbitMQ 4.0 on it takes its own queues for dead meanwhile.
function Broker:begin_to_stop()
  self.world:note("broker", "begins to stop")
  self.is_stopping = true
end

--- It stops, in order or (as by SIGKILL) without a word. Of the queues only the durable ones are back at start(), and
-- of their messages the persistent ones.
function Broker:stop(in_order)
  self.world:note("broker", in_order and "stops" or "dies")
  self.is_down, self.is_stopping, self.remains = true, false, {}
  for _, connection in ipairs{ unpack(self.connections) } do connection:vanish(in_order) end
  for _, name in ipairs(self:names_of_queues()) do
    local queue = self.queues[name]
    if queue.durable and not queue.owner then table.insert(self.remains, queue) end
    queue:remove()
  end
end

--- It serves again.
function Broker:start()
  self.world:note("broker", "starts")
  self.is_down = false
  for _, queue in ipairs(self.remains) do come_back(self, queue) end
end

--- How many messages of a queue are ready, how many are with consumers who have not acknowledged them, and how many
-- consumers there are.
function Broker:count(name)
  local queue = self.queues[name]
  if not queue then return 0, 0, 0 end
  return #queue.messages, queue.unacked_count - queue.acks_coming, #queue.consumers
end

--- The names of all queues, sorted.
function Broker:names_of_queues()
  local names = {}
  for name in pairs(self.queues) do table.insert(names, name) end
  table.sort(names)
  return names
end

return Broker
