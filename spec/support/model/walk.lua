-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A random walk through the requests that a client may send to a broker: step after step, each awaited to its answer.
-- The seed and the answers decide the steps, so that two brokers that behave alike get the same walk.
--
--     local walk = Walk.new(client, seed, "prefix")          -- client.lua, or the model's (socket.lua)
--     local said, answer = walk:step()                       -- the request, and the answer
--     walk:look()                                            -- everything that has arrived since, as text
--     walk:finish()                                          -- closes all connections, and deletes all queues
--
-- Where a broker promises no order (between consumers), what arrived is sorted. The walk only ends connections whose
-- end a queue is notified of once; otherwise messages could go to one consumer or to another.
local Random = require "spec.support.model.random"

local Walk = {}
Walk.__index = Walk

local CONNECTIONS, CHANNELS, NAMES, KEYS, IN_HAND = 3, 3, 5, 2, 4

function Walk.new(client, seed, prefix)
  local self = setmetatable({ client = client, random = Random.new(seed), prefix = prefix, links = {}, owners = {},
    names = {}, forms = {}, there = {}, keys = {}, steps = 0 }, Walk)
  for i = 1, NAMES do self.names[i] = ("%s.q%d"):format(prefix, i) end
  for i = 1, KEYS do self.keys[i] = ("%s.k%d"):format(prefix, i) end
  for i = 1, CONNECTIONS do self:connect(i) end
  self.observer = assert(client.connect())
  return self
end

function Walk:connect(i)
  self.links[i] = { number = i, client = assert(self.client.connect()), channels = {}, opened = 0 }
end

-- Shortens our names in the reported text.
local function short(self, text)
  return (tostring(text):gsub(self.prefix:gsub("%p", "%%%0") .. "%.", ""))
end

-- Picks a queue, mostly one that exists and may be used.
local function pick_name(self, link)
  local usable = {}
  for _, name in ipairs(self.names) do
    local owner = self.owners[name]
    local is_foreign = self.there[name] == "owner" and owner ~= link
    if self.there[name] and not is_foreign then table.insert(usable, name) end
  end
  return self.random:pick(#usable > 0 and self.random:chance(0.95) and usable or self.names)
end

-- Answers -----------------------------------------------------------------------------------------------------------

local TOLD = { "message_count", "consumer_count", "redelivered", "routing_key" }

local function describe(self, frame)
  local words = { frame.method }
  if frame.properties then table.insert(words, frame.properties.message_id) end
  for _, field in ipairs(TOLD) do
    if frame[field] ~= nil then table.insert(words, field .. "=" .. short(self, frame[field])) end
  end
  return table.concat(words, " ")
end

-- The broker has closed the channel or the connection.
local function ended(self, link, channel, reason)
  for i, other in ipairs(link.channels) do
    if other == channel then table.remove(link.channels, i) end
  end
  if not reason.connection then return ("closed %d %d.%d"):format(reason.code, reason.class_id, reason.method_id) end
  self:connect(link.number)
  return "connection ended " .. tostring(reason.code)
end

-- Sends a request; returns the answer as text and as a frame (nil if there was none).
local function call(self, link, channel, frame)
  local answer, reason = channel.at:call(frame)
  if not answer then return ended(self, link, channel, reason) end
  return describe(self, answer), answer
end

-- For requests without an answer: the broker has handled it when it answers another request.
local function settle(self, link, channel)
  local answer, reason = channel.at:call{ method = "basic.qos", prefetch_count = channel.prefetch }
  return answer and "taken" or ended(self, link, channel, reason)
end

-- A step that is one request for a queue: `verb` tells it.
local function request(self, link, channel, verb, method, name, fields)
  fields = fields or {}
  fields.method, fields.queue = method, name
  return ("%s %s"):format(verb, short(self, name)), (call(self, link, channel, fields))
end

-- Steps -------------------------------------------------------------------------------------------------------------
-- Each returns its request and the answer; or nothing, if the step is not possible now.

local steps = {}

function steps.open(self, link)
  if #link.channels == CHANNELS then return end
  link.opened = link.opened + 1
  local channel = { name = ("c%d.%d"):format(link.number, link.opened), at = assert(link.client:channel()),
    consumers = {}, hand = {}, prefetch = 0, came = {} }
  channel.confirms = self.random:chance(0.6)
  if channel.confirms then channel.at:confirm() end
  table.insert(link.channels, channel)
  return "opens " .. channel.name .. (channel.confirms and " with confirms" or ""), "open"
end

function steps.close(self, link, channel)
  channel.at:close()
  ended(self, link, channel, { code = 0, class_id = 0, method_id = 0 })
  return "closes it", "closed"
end

local ARGUMENTS = {
  {}, {}, {}, {}, {}, { ["x-max-length"] = 0, ["x-overflow"] = "drop-head" },
  { ["x-max-length"] = 0, ["x-overflow"] = "reject-publish" }, { ["x-max-length"] = 1, ["x-overflow"] = "drop-head" },
}

-- The properties of a queue. Newer brokers refuse queues that are neither durable nor exclusive.
local function draw_form(random)
  local exclusive = random:chance(0.3)
  return { exclusive = exclusive, durable = not exclusive or random:chance(0.2), auto_delete = random:chance(0.4),
    arguments = random:pick(ARGUMENTS) }
end

-- A name mostly has the same properties, as long as the queue exists.
local function pick_form(self, name)
  local random = self.random
  if self.there[name] and random:chance(0.1) then return draw_form(random) end
  if not self.there[name] or not self.forms[name] then self.forms[name] = draw_form(random) end
  return self.forms[name]
end

function steps.declare(self, link, channel)
  local name = self.random:pick(self.names)
  local form, arguments = pick_form(self, name), { ["x-queue-type"] = "classic" }
  for key, value in pairs(form.arguments) do arguments[key] = value end
  local exclusive, durable, auto_delete = form.exclusive, form.durable, form.auto_delete
  local said = ("declares %s%s%s%s %s"):format(short(self, name), exclusive and " exclusive" or "",
    durable and " durable" or "", auto_delete and " auto-delete" or "",
    arguments["x-overflow"] and arguments["x-overflow"] .. " " .. arguments["x-max-length"] or "")
  local answer, frame = call(self, link, channel, { method = "queue.declare", queue = name, exclusive = exclusive,
    durable = durable, auto_delete = auto_delete, arguments = arguments })
  if frame and exclusive then self.owners[name] = link end
  return said, answer
end

function steps.ask(self, link, channel)
  return request(self, link, channel, "asks for", "queue.declare", pick_name(self, link), { passive = true })
end

function steps.delete(self, link, channel)
  local name, if_unused, if_empty = pick_name(self, link), self.random:chance(0.3), self.random:chance(0.3)
  local verb = ("deletes%s%s"):format(if_unused and " if unused" or "", if_empty and " if empty" or "")
  return request(self, link, channel, verb, "queue.delete", name, { if_unused = if_unused, if_empty = if_empty })
end

function steps.purge(self, link, channel)
  return request(self, link, channel, "purges", "queue.purge", pick_name(self, link))
end

function steps.consume(self, link, channel)
  local random, name, tag = self.random, pick_name(self, link), "t" .. self.steps
  local prefetch, priority, no_ack = random:below(3) - 1, random:pick{ 0, 0, 1, -1 }, random:chance(0.2)
  local exclusive = random:chance(0.1)
  channel.prefetch = prefetch
  assert(channel.at:call{ method = "basic.qos", prefetch_count = prefetch })
  local said = ("consumes %s as %s, prefetch %d, priority %d%s%s"):format(short(self, name), tag, prefetch, priority,
    no_ack and ", no ack" or "", exclusive and ", alone" or "")
  local arguments = priority ~= 0 and { ["x-priority"] = priority } or {}
  local answer, frame = call(self, link, channel, { method = "basic.consume", queue = name, consumer_tag = tag,
    no_ack = no_ack, exclusive = exclusive, arguments = arguments })
  if frame then table.insert(channel.consumers, { tag = tag, queue = name, no_ack = no_ack }) end
  return said, answer
end

function steps.cancel(self, link, channel)
  if #channel.consumers == 0 then return end
  local consumer = table.remove(channel.consumers, self.random:below(#channel.consumers))
  return "cancels " .. consumer.tag,
    (call(self, link, channel, { method = "basic.cancel", consumer_tag = consumer.tag }))
end

-- What comes back for a message before its confirm.
local function await_confirm(self, link, channel)
  local answer = {}
  repeat
    local frame, reason = channel.at:await("basic.return", "basic.ack", "basic.nack")
    if not frame then return ended(self, link, channel, reason) end
    table.insert(answer, frame.method)
  until frame.method ~= "basic.return"
  return table.concat(answer, " ")
end

function steps.publish(self, link, channel)
  local random, is_direct = self.random, self.random:chance(0.3)
  local message = { exchange = is_direct and "amq.direct" or "", mandatory = random:chance(0.6),
    routing_key = is_direct and random:pick(self.keys) or pick_name(self, link),
    properties = { message_id = "m" .. self.steps, delivery_mode = 1 + random:below(2) % 2 } }
  channel.at:publish(message)
  return ("publishes m%d to %s%s"):format(self.steps, short(self, message.routing_key),
      message.mandatory and ", mandatory" or ""),
    channel.confirms and await_confirm(self, link, channel) or settle(self, link, channel)
end

function steps.get(self, link, channel)
  local name, no_ack = pick_name(self, link), self.random:chance(0.3)
  if #channel.hand >= IN_HAND then return end
  local answer, frame = call(self, link, channel, { method = "basic.get", queue = name, no_ack = no_ack })
  if frame and frame.method == "basic.get-ok" and not no_ack then
    table.insert(channel.hand, { tag = frame.delivery_tag, queue = name, id = frame.properties.message_id })
  end
  return ("gets from %s%s"):format(short(self, name), no_ack and ", no ack" or ""), answer
end

local GIVING_BACK = {
  { word = "acks", method = "basic.ack" },
  { word = "gives back", method = "basic.nack", requeue = true },
  { word = "throws away", method = "basic.nack", requeue = false },
  { word = "rejects", method = "basic.reject", requeue = true },
}

-- One unacknowledged message, or all, or, seldom, an unknown delivery tag.
function steps.give_back(self, link, channel)
  local random = self.random
  local how, is_wrong = random:pick(GIVING_BACK), random:chance(0.01)
  if #channel.hand == 0 and not is_wrong then return end
  local is_all = not is_wrong and how.method ~= "basic.reject" and random:chance(0.2)
  local frame, whose = { method = how.method, requeue = how.requeue, delivery_tag = 0 }, "all"
  if is_all then
    frame.multiple, channel.hand = true, {}
  elseif is_wrong then
    frame.delivery_tag, whose = 1000000, "what it never had"
  else
    local one = table.remove(channel.hand, random:below(#channel.hand))
    frame.delivery_tag, whose = one.tag, one.id
  end
  channel.at:send(frame)
  return how.word .. " " .. whose, settle(self, link, channel)
end

for _, verb in ipairs{ "bind", "unbind" } do
  steps[verb] = function (self, link, channel)
    local name, key = pick_name(self, link), self.random:pick(self.keys)
    return request(self, link, channel, verb .. "s " .. short(self, key) .. " to", "queue." .. verb, name,
      { exchange = "amq.direct", routing_key = key })
  end
end

-- Whether a queue would be notified of the end of two channels of this connection.
local function is_ambiguous(link)
  local seen = {}
  for _, channel in ipairs(link.channels) do
    for _, list in ipairs{ channel.consumers, channel.hand } do
      for _, thing in ipairs(list) do
        if seen[thing.queue] and seen[thing.queue] ~= channel then return true end
        seen[thing.queue] = channel
      end
    end
  end
  return false
end

-- The connection ends, with or without connection.close, and another one is opened.
steps["end"] = function (self, link)
  if is_ambiguous(link) then return end
  local how = self.random:pick{ "close", "abort" }
  link.client[how](link.client)
  self:connect(link.number)
  return ("ends %d (%s)"):format(link.number, how), "ended"
end

-- The weight of each step, as a list, since pairs() has no order.
local WEIGHTS = { { "open", 3 }, { "close", 1 }, { "declare", 16 }, { "ask", 3 }, { "delete", 2 }, { "purge", 1 },
  { "consume", 10 }, { "cancel", 6 }, { "publish", 40 }, { "get", 10 }, { "give_back", 40 }, { "bind", 6 },
  { "unbind", 2 }, { "end", 1 } }
local DRAWN = {}
for _, entry in ipairs(WEIGHTS) do
  for _ = 1, entry[2] do table.insert(DRAWN, entry[1]) end
end

-- What comes without a request --------------------------------------------------------------------------------------

local function take_frame(channel, frame)
  for i, consumer in ipairs(channel.consumers) do
    if consumer.tag == frame.consumer_tag and frame.method == "basic.cancel" then
      return table.remove(channel.consumers, i)
    elseif consumer.tag == frame.consumer_tag and frame.method == "basic.deliver" and not consumer.no_ack then
      table.insert(channel.hand, { tag = frame.delivery_tag, queue = consumer.queue, id = frame.properties.message_id })
    end
  end
end

-- Frames that came since the last step are added to the channel's state.
local function take_in(channel)
  for _, one in ipairs(channel.came) do take_frame(channel, one.frame) end
  channel.came = {}
end

-- In order for each consumer.
local function collect(self, channel)
  local link = channel.at.client
  local function is_ours(_, owner) return owner == channel.at end
  local frame = link:take(is_ours)
  while frame do
    local key = ("%s %s %03d"):format(channel.name, frame.consumer_tag or "", #channel.came)
    table.insert(channel.came, { key = key, frame = frame,
      text = ("%s %s %s"):format(channel.name, frame.consumer_tag or "", describe(self, frame)) })
    frame = link:take(is_ours)
  end
  table.sort(channel.came, function (a, b) return a.key < b.key end)
end

-- Looking -----------------------------------------------------------------------------------------------------------

local function passive(link, name)
  if not link.asking or link.asking.closed then link.asking = assert(link:channel()) end
  return link.asking:call{ method = "queue.declare", queue = name, passive = true }
end

-- Only the owner of an exclusive queue can ask for it.
local function look_at(self, name)
  local answer, reason = passive(self.observer, name)
  local owner = self.owners[name]
  self.there[name] = answer and "all" or reason.code == 405 and "owner"
  if not answer and reason.code == 405 and owner and owner == self.links[owner.number] then
    answer, reason = passive(owner.client, name)
  end
  if answer then return ("%s=%d/%d"):format(short(self, name), answer.message_count, answer.consumer_count) end
  return ("%s=%d"):format(short(self, name), reason.code)
end

--- Everything that came since the last step, and the state of all queues: messages and consumers, or why that is not
-- known.
function Walk:look()
  local lines = {}
  for _, link in ipairs(self.links) do
    link.client:read(0)
    for _, channel in ipairs(link.channels) do
      collect(self, channel)
      for _, one in ipairs(channel.came) do table.insert(lines, one.text) end
    end
  end
  local queues = {}
  for i, name in ipairs(self.names) do queues[i] = look_at(self, name) end
  table.insert(lines, table.concat(queues, " "))
  return table.concat(lines, "\n")
end

local function try(self)
  local random = self.random
  local link, what = random:pick(self.links), random:pick(DRAWN)
  if #link.channels == 0 then what = "open" end
  local channel = #link.channels > 0 and random:pick(link.channels) or nil
  local said, answer = steps[what](self, link, channel)
  if not said then return end
  return ("%d. %s %s"):format(self.steps, what ~= "open" and channel and channel.name or link.number, said), answer
end

--- Takes one step.
function Walk:step()
  for _, link in ipairs(self.links) do
    for _, channel in ipairs(link.channels) do take_in(channel) end
  end
  self.steps = self.steps + 1
  local said, answer
  repeat said, answer = try(self) until said
  return said, answer
end

--- Ends the walk.
function Walk:finish()
  for _, link in ipairs(self.links) do link.client:close() end
  for _, name in ipairs(self.names) do
    repeat local gone = self.observer:delete(name) until gone  -- it may be exclusive, and about to be deleted
  end
  self.observer:close()
end

return Walk
