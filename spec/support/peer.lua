-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A session over bytes, and a scripted broker at the other end of its links. The peer sends what the test tells it
-- to, and has no model of queues. There is no socket, and the test moves the clock.
--
--     local peer = Peer.open()                                   -- both links have been through the handshake
--     local op = peer:semaphore("images"):acquire(0)
--     peer.prober:look{ "images-1-A" }                           -- answers a window of probes: this queue exists
--     peer.holder:grant(peer.holder:claim("images-1-B", "images-1-A"))
--     local lock = peer:result(op)
--
-- The test takes the frames that the core writes in order, one after the other, and cannot skip any: expect() fails if
-- the next frame is another one, and silent() fails if there is any. The peer's frames arrive whole. In the way "byte
-- by byte" the core has a turn after each byte (Peer.ways), for specs about bytes that become frames.
local assert = require "luassert"
local core = require "amqplocks.core"
local frames = require "spec.support.frames"

local unpack = table.unpack or unpack

local Peer, Link = {}, {}
Peer.__index, Link.__index = Peer, Link

Peer.ways = { "whole", "byte by byte" }

-- Links -------------------------------------------------------------------------------------------------------------

-- `needs_bolts`: claims must declare bolts, queues that guard a lock's queue before RabbitMQ 4.3. The exception is
-- queues that are `unbolted`, whose bolt was refused before.
local function new_link(peer, role)
  return setmetatable({
    peer = peer, role = role, frames = {}, decoder = frames.decoder(), published = {}, most = 0,
    consumers = {}, deletes = {}, needs_bolts = false, unbolted = {},
  }, Link)
end

function Link:attach()
  self.frames, self.decoder, self.published, self.most = {}, frames.decoder(), {}, 0
  self.peer.session:attach(self.role)
end

--- Reads what the core wrote into self.frames.
function Link:pull()
  for _, frame in ipairs(self.decoder:feed(self.peer.session:output(self.role))) do table.insert(self.frames, frame) end
end

local function name(frame)
  if not frame then return "nothing" end
  return frame.method or frame.protocol and "protocol header" or frame.heartbeat and "heartbeat"
    or frame.header and "header" or "body"
end

--- The name of the next frame, which is not taken.
function Link:next()
  self:pull()
  return name(self.frames[1])
end

-- Records the consumers of a channel, and the queue to be deleted there.
local function note(self, frame)
  local channel = frame.channel
  if frame.method == "channel.open" then
    self.most = math.max(self.most, channel)
    self.consumers[channel], self.deletes[channel] = nil, {}
  elseif frame.method == "basic.consume" then
    self.consumers[channel] = { channel = channel, queue = frame.queue, tag = frame.consumer_tag }
  elseif frame.method == "queue.delete" then
    table.insert(self.deletes[channel], frame.queue)
  end
end

--- Takes the next frame, which must be a `method` (or "heartbeat", "header", "protocol header") with these fields.
-- luassert is called only for fields that differ or may differ: otherwise it would take most of the time of the specs.
function Link:expect(method, fields)
  if self:next() ~= method then assert.equal(method, self:next(), self.role .. " wrote something else") end
  local frame = table.remove(self.frames, 1)
  for key, value in pairs(fields or {}) do
    if value ~= frame[key] then assert.same(value, frame[key], method .. "." .. key) end
  end
  note(self, frame)
  return frame
end

--- Fails if the core wrote more frames.
function Link:silent()
  if self:next() ~= "nothing" then assert.equal("nothing", self:next(), self.role .. " wrote something") end
end

--- Drops frames that the core wrote: for scenarios about something else.
function Link:ignore()
  self:pull()
  for _, frame in ipairs(self.frames) do
    if frame.method == "confirm.select" then self.published[frame.channel] = 0 end
    if frame.method == "basic.publish" then self.published[frame.channel] = self.published[frame.channel] + 1 end
  end
  self.frames = {}
end

--- Bytes arrive. They are read at the peer's `reads_at`, if set: the core has read its clock before.
function Link:feed(bytes)
  local peer, session = self.peer, self.peer.session
  local now, wall = peer.now, peer:wall()
  for part in bytes:gmatch(peer.way == "byte by byte" and "." or ".+") do
    if session:state(self.role) == "down" then return end
    session:feed(self.role, part)
    session:tick(now, wall, peer.reads_at)
  end
end

--- Frames arrive: tables as for frames.encode, or encoded frames.
function Link:send(...)
  local bytes = {}
  for i, frame in ipairs{ ... } do bytes[i] = type(frame) == "string" and frame or frames.encode(frame) end
  self:feed(table.concat(bytes))
end

--- The connection ends without connection.close.
function Link:down(why)
  self.peer.session:down(self.role, why or "connection reset by peer")
  self.peer:tick()
end

--- The broker ends the connection, with a reason.
function Link:ends(code, text)
  self:send{ channel = 0, method = "connection.close", reply_code = code, reply_text = text }
end

function Link:state() return (self.peer.session:state(self.role)) end
function Link:wanted() return select(2, self.peer.session:state(self.role)) end

--- How many seconds the session waits before it reconnects.
function Link:pause() return self.peer.session:pause(self.role) end

--- Whether the session wants a connection now.
function Link:due() return self:wanted() and self:pause() == 0 end

-- The handshake -----------------------------------------------------------------------------------------------------

function Link.start(fields)
  local start = { channel = 0, method = "connection.start", version_major = 0, version_minor = 9,
    mechanisms = "PLAIN AMQPLAIN", locales = "en_US", server_properties = { product = "RabbitMQ", version = "4.3.6" } }
  for key, value in pairs(fields or {}) do start[key] = value end
  return start
end

--- Connected, up to connection.tune and without it. `version` is the broker's, if not the usual one; false: the broker
-- sends no version. `cluster`: the name of its cluster. Returns start-ok.
function Link:greeted(version, cluster)
  local start = self.start()
  start.server_properties.cluster_name = cluster
  if version ~= nil then start.server_properties.version = version or nil end
  local major, minor = tostring(start.server_properties.version):match "^(%d+)%.(%d+)"
  self.needs_bolts = major ~= nil and tonumber(major) * 100 + tonumber(minor) < 403
  self:attach()
  self:expect("protocol header")
  self:send(start)
  return self:expect("connection.start-ok")
end

--- Connected, up to connection.open-ok and without it. Returns tune-ok, open.
function Link:tuned(limits)
  limits = limits or {}
  self:greeted(limits.version, limits.cluster)
  self:send{ channel = 0, method = "connection.tune", channel_max = limits.channel_max or 2047,
    frame_max = limits.frame_max or 131072, heartbeat = 60 }
  return self:expect("connection.tune-ok"), self:expect("connection.open")
end

function Link:handshake(limits)
  self:tuned(limits)
  self:send{ channel = 0, method = "connection.open-ok" }
  assert.equal("open", self:state())
end

-- Channels and claims -----------------------------------------------------------------------------------------------

--- The core opens a channel. Returns its number.
function Link:opened()
  local channel = self:expect("channel.open").channel
  self:send{ channel = channel, method = "channel.open-ok" }
  return channel
end

local ANSWERED = { ["queue.declare"] = { 50, 10 }, ["queue.bind"] = { 50, 20 }, ["queue.delete"] = { 50, 40 },
  ["basic.consume"] = { 60, 20 }, ["basic.publish"] = { 60, 40 }, ["basic.qos"] = { 60, 10 } }

--- The broker closes a channel, in answer to `method` or without a request, and the core sends close-ok.
function Link:refuse(channel, code, text, method)
  local class, id = unpack(ANSWERED[method] or { 0, 0 })
  self:send{ channel = channel, method = "channel.close", reply_code = code, reply_text = text, class_id = class,
    method_id = id }
  if self:state() ~= "down" then self:expect("channel.close-ok", { channel = channel }) end
end

function Link:declared(channel, queue) self:send{ channel = channel, method = "queue.declare-ok", queue = queue } end

function Link:consumed(claim)
  self:send{ channel = claim.channel, method = "basic.consume-ok", consumer_tag = claim.tag }
end

--- The consumer of a claim is notified that the claim's queue is gone.
function Link:cancelled(claim)
  self.consumers[claim.channel] = nil
  self:send{ channel = claim.channel, method = "basic.cancel", consumer_tag = claim.tag, no_wait = true }
end

--- The queue that was to be deleted on this channel is deleted. A consumer there is notified, mostly before delete-ok.
-- With `is_silent` that notice is still to come.
function Link:deleted(channel, is_silent)
  local queue, consumer = table.remove(self.deletes[channel], 1), self.consumers[channel]
  if consumer and consumer.queue == queue and not is_silent then self:cancelled(consumer) end
  self:send{ channel = channel, method = "queue.delete-ok" }
end

--- The core closes a channel, and may then reuse its number.
function Link:closes(channel)
  self:expect("channel.close", { channel = channel })
  self:send{ channel = channel, method = "channel.close-ok" }
end

--- The core declares the bolt of `queue`, with exactly these fields. Returns the declare.
function Link:declares_bolt(queue, no_wait)
  return self:expect("queue.declare", { queue = queue .. "-bolt", passive = false, durable = true, exclusive = false,
    auto_delete = false, no_wait = no_wait, arguments = { ["x-queue-type"] = "classic", ["x-expires"] = 10000,
      ["x-max-length"] = 0, ["x-overflow"] = "drop-head" } })
end

--- The core shuts the bolt of `queue` (consumes it exclusively) before it declares the queue, with no-wait. Returns the
-- consume.
function Link:shuts(queue)
  local declare = self:declares_bolt(queue, true)
  return self:expect("basic.consume", { queue = declare.queue, channel = declare.channel, no_local = false,
    no_ack = true, exclusive = true, no_wait = true, arguments = {} })
end

--- Whether claims of this queue (or of this door, the queue that a writer holds) must shut its bolt.
function Link:bolts(queue) return self.needs_bolts and not self.unbolted[queue] end

--- The core claims `queue`, with its bolt if the link needs bolts, and then probes other queues. Returns { channel =,
-- tag =, queue =, looks = }.
function Link:claim(queue, ...)
  local opened = self:next() == "channel.open" and self:opened()
  local bolt = self:bolts(queue) and self:shuts(queue)
  local declare = self:expect("queue.declare", { queue = queue, passive = false, exclusive = true, auto_delete = true })
  if opened then assert.equal(opened, declare.channel) end
  local channel = declare.channel
  local consume = self:expect("basic.consume", { channel = channel, queue = queue, no_ack = true, exclusive = false })
  if bolt then assert.same({ channel, consume.consumer_tag .. "-bolt" }, { bolt.channel, bolt.consumer_tag }) end
  for _, look in ipairs{ ... } do
    self:expect("queue.declare", { channel = channel, queue = look, passive = true })
  end
  return { channel = channel, tag = consume.consumer_tag, queue = queue, looks = { ... }, declare = declare }
end

--- The broker grants it; consume-ok comes last, as in RabbitMQ.
function Link:grant(claim)
  self:declared(claim.channel, claim.queue)
  for _, look in ipairs(claim.looks) do self:declared(claim.channel, look) end
  self:consumed(claim)
end

--- The core deletes `queue` (on `channel`), and the broker confirms. Returns the channel.
function Link:delete(queue, channel)
  local delete = self:expect("queue.delete", { queue = queue, channel = channel })
  self:deleted(delete.channel)
  return delete.channel
end

--- The core changes metadata itself: it declares a scratch queue and deletes it. Returns the queue's name.
function Link:barrier()
  local opened = self:next() == "channel.open" and self:opened()
  local declare = self:expect("queue.declare", { passive = false, exclusive = true, auto_delete = true })
  if opened then assert.equal(opened, declare.channel) end
  self:expect("queue.delete", { channel = declare.channel, queue = declare.queue })
  self:declared(declare.channel, declare.queue)
  self:deleted(declare.channel)
  return declare.queue
end

-- Probes ------------------------------------------------------------------------------------------------------------

--- Takes the probes that the core wrote, at least one; `exchange` is the default exchange unless given. Returns a list
-- of { channel =, tag =, id =, queue = }.
function Link:probes(exchange)
  local list = {}
  if self:next() == "channel.open" then self:opened() end
  if self:next() == "confirm.select" then
    local channel = self:expect("confirm.select", { no_wait = false }).channel
    self.published[channel] = 0
    self:send{ channel = channel, method = "confirm.select-ok" }
  end
  repeat
    local publish = self:expect("basic.publish", { exchange = exchange or "", mandatory = true })
    local header = self:expect("header", { channel = publish.channel, size = 0 })
    local tag = self.published[publish.channel] + 1
    self.published[publish.channel] = tag
    table.insert(list, { channel = publish.channel, tag = tag, id = header.properties.message_id,
      queue = publish.routing_key, properties = header.properties })
  until self:next() ~= "basic.publish"
  return list
end

local function settling(method)
  return function (probe, multiple)
    return { channel = probe.channel, method = method, delivery_tag = probe.tag, multiple = multiple }
  end
end

Link.ack, Link.nack = settling "basic.ack", settling "basic.nack"

function Link.returned(probe)
  return frames.encode_content({ channel = probe.channel, method = "basic.return", reply_code = 312,
    reply_text = "NO_ROUTE", routing_key = probe.queue }, { message_id = probe.id, delivery_mode = 1 }, "")
end

--- Answers probes, all at once. `states`: names of queues that exist, and queue = "nack" for queues that nack. Other
-- queues are absent, or seem to be, since their node is down.
function Link:answer(probes, states)
  local exists, said = {}, {}
  for _, queue in ipairs(states) do exists[queue] = true end
  for _, probe in ipairs(probes) do
    local nack = states[probe.queue] == "nack"
    if not exists[probe.queue] and not nack then table.insert(said, self.returned(probe)) end
    table.insert(said, nack and self.nack(probe) or self.ack(probe))
  end
  self:send(unpack(said))
end

--- Takes the probes that the core wrote and answers them. Returns the probed names, in order.
function Link:look(states)
  local probes, names = self:probes(), {}
  for i, probe in ipairs(probes) do names[i] = probe.queue end
  self:answer(probes, states)
  return names
end

local ELSEWHERE = "NOT_FOUND - home node 'rabbit@other' of durable queue '%s' in vhost '/' is down or inaccessible"

--- The core checks these queues again, by passive declares, each on a channel of its own. They are absent, except those
-- in `states`: queue = "down" (its node is), or queue = true (it exists).
function Link:again(queues, states)
  local looks = {}
  while #queues > 0 do
    while #looks < #queues and self:next() ~= "nothing" do
      local opened = self:next() == "channel.open" and self:opened()
      table.insert(looks, self:expect("queue.declare", { queue = queues[#looks + 1], passive = true,
        channel = opened or nil }))
    end
    local look = assert(table.remove(looks, 1), "nobody asks for " .. queues[1])
    local queue = table.remove(queues, 1)
    local state = states and states[queue]
    if state == true then
      self:declared(look.channel, queue)
    else
      self:refuse(look.channel, 404, state and ELSEWHERE:format(queue)
        or ("NOT_FOUND - no queue '%s' in vhost '/'"):format(queue), "queue.declare")
    end
  end
end

--- Every queue that the core checks again is absent.
function Link:absent()
  repeat
    local looks = {}
    while self:next() == "channel.open" or self:next() == "queue.declare" do
      if self:next() == "channel.open" then self:opened() end
      table.insert(looks, self:expect("queue.declare", { passive = true }))
    end
    for _, look in ipairs(looks) do
      self:refuse(look.channel, 404, ("NOT_FOUND - no queue '%s' in vhost '/'"):format(look.queue), "queue.declare")
    end
  until #looks == 0
end

-- Sessions ----------------------------------------------------------------------------------------------------------

-- An operation or a lock that is collected is abandoned. So results of a peer's session live as long as the peer: a
-- scenario need not keep a reference to them.
function Peer:keep(...)
  if type((...)) == "userdata" then table.insert(self.kept, (...)) end
  return ...
end

-- A session or a lock, the results of whose methods are kept.
local function keeping(peer, thing)
  return setmetatable({}, { __index = function (self, key)
    local method = thing[key]
    self[key] = function (_, ...) return peer:keep(method(thing, ...)) end
    return self[key]
  end, __close = function(self) self:abort() end })
end

--- A session whose links are not connected. `settings` are for core.bytes, except `way`, one of Peer.ways (the first).
-- Unless the URL says otherwise, the heartbeat interval is so long that no heartbeat comes in between.
function Peer.new(settings)
  local all = { name = "spec", seed = 1 }
  if not (settings and settings.url) then all.heartbeat, all.timeout = 60, 5 end
  for key, value in pairs(settings or {}) do all[key] = value end
  local way = all.way
  all.way = nil
  local self = setmetatable({ way = way, now = 1000, kept = {} }, Peer)
  self.core_session = core.bytes(all)
  self.session = keeping(self, self.core_session)
  self.holder, self.prober = new_link(self, "holder"), new_link(self, "prober")
  self.fence, self.maker, self.quorum = new_link(self, "fence"), new_link(self, "maker"), new_link(self, "quorum")
  self:tick()
  return self
end

--- A session whose links are both open. `limits` are the broker's: channel_max, frame_max, and its version, as for
-- greeted().
function Peer.open(settings, limits)
  local self = Peer.new(settings)
  self.holder:handshake(limits)
  self.prober:handshake(limits)
  return self
end

--- Seconds since the epoch.
function Peer:wall() return 1700000000 + self.now end

local FIRST = 2147483647 -- the priority of a holder that consumes before all waiters, and waits for nobody

--- The arguments of a consume tell people whose it is, and since when it waits, and have a priority, which a stream
-- refuses. Returns that time, and the arguments besides, without a priority of 0.
function Peer:signed(arguments)
  local rest = {}
  for key, value in pairs(arguments) do rest[key] = value end
  local holder, since = rest["x-amqplocks-holder"], rest["x-amqplocks-waiting-since"]
  rest["x-amqplocks-holder"], rest["x-amqplocks-waiting-since"] = nil, nil
  assert.equal("spec", holder)
  assert.is_number(rest["x-priority"])
  if rest["x-priority"] == 0 then rest["x-priority"] = nil end
  if rest["x-priority"] == FIRST then
    assert.is_nil(since)
  else
    assert.is_true(since >= 1700000000 and since <= self:wall() and since % 1 == 0, tostring(since))
  end
  return since, rest
end

--- Lets everything go on without time passing. Returns in how many seconds the next turn is due.
function Peer:tick()
  return self.session:tick(self.now, self:wall()) - self.now
end

--- Time passes, with one turn at the end.
function Peer:pass(seconds)
  self.now = self.now + seconds
  return self:tick()
end

--- Fails if the core wrote more frames, to the holder's link or the prober's.
function Peer:silent()
  self.holder:silent()
  self.prober:silent()
end

--- What people have been told since the last time, as a list of "level: text"; or that of it which has these words.
function Peer:news(words)
  local list = {}
  for level, text in function () return self.session:news() end do
    if text:find(words or "", 1, true) then table.insert(list, level .. ": " .. text) end
  end
  return list
end

--- Time passes, with a turn whenever one is due, until `seconds` are over or `done` returns true.
function Peer:live(seconds, done)
  local stop = self.now + seconds
  while self.now < stop and not (done and done()) do
    self:pass(math.min(math.max(self:tick(), 1e-6), stop - self.now))
  end
end

-- A resource of the session whose methods take positional arguments instead of options.
local function resource(self, kind, of, options)
  local box = self.session:resource(kind, of, options or {})
  local function begin(method)
    return function (_, timeout, fair, priority, poll, patient, count, settle)
      return self:keep(box[method](box, { timeout = timeout, fair = fair, priority = priority, poll = poll,
        patient = patient, count = count, settle = settle }))
    end
  end
  return { acquire = begin "acquire", read = begin "read", write = begin "write" }
end

--- A semaphore of the session, with acquire(timeout [, fair, priority, poll, patient, count]). It has no doorbell
-- unless options.bell is true.
function Peer:semaphore(semaphore, options)
  local given = { silent = not (options and options.bell) }
  for key, value in pairs(options or {}) do given[key] = value end
  return resource(self, "semaphore", semaphore, given)
end

--- Other resources of the session, with acquire(), or read() and write(), as for a semaphore. Those of mutexes take
-- `settle` behind the count.
function Peer:mutex(mutex, options) return resource(self, "mutex", mutex, options) end
function Peer:rwlock(rwlock, options) return resource(self, "rwlock", rwlock, options) end
function Peer:fast_mutex(mutex, options) return resource(self, "fast_mutex", mutex, options) end
function Peer:token_semaphore(semaphore, options) return resource(self, "token_semaphore", semaphore, options) end

--- The result of a finished operation; fails the test if the operation failed.
function Peer:result(op)
  assert.is_true(op:done(), "the operation is not done")
  local result, message = op:result()
  assert.is_nil(message)
  return self:keep(result)
end

--- Checks that the operation failed with `code`, and that its message contains all of these texts. Returns the message.
-- Its caller may not know yet: op:done() is false until the broker has back what the operation took.
function Peer.failed(_, op, code, ...)
  local result, message, got = op:result()
  assert.is_nil(result)
  assert.equal(code, got, message)
  assert.equal(code .. ": ", message:sub(1, #code + 2))
  for _, text in ipairs{ ... } do
    assert.is_truthy(message:find(text, 1, true), ("%q says nothing of %q"):format(message, text))
  end
  return message
end

--- The same, after so many seconds, and not before.
function Peer:fails_after(seconds, op, code, ...)
  self:pass(seconds - 0.001)
  assert.is_false(op:done())
  self:pass(0.001)
  return self:failed(op, code, ...)
end

--- Begins to acquire a slot of `semaphore`, which has one slot, and that is free. Returns the operation, its claim.
function Peer:claiming(semaphore, options, timeout)
  local op = self:semaphore(semaphore, options):acquire(timeout or 0)
  self.prober:look{ semaphore .. "-1-A" }
  return op, self.holder:claim(semaphore .. "-1-B", semaphore .. "-1-A")
end

--- Acquires it. Returns lock, claim.
function Peer:acquire(semaphore, options)
  local op, claim = self:claiming(semaphore, options)
  self.holder:grant(claim)
  return self:result(op), claim
end

--- What there is of the semaphore "images": slots 1 to `count`. Held are "all", the first so many, or those of a list.
function Peer.row(count, held)
  local names, is_held = {}, {}
  for _, slot in ipairs(type(held) == "table" and held or {}) do is_held[slot] = true end
  for slot = 1, count do
    table.insert(names, ("images-%d-A"):format(slot))
    local is_first = type(held) == "number" and slot <= held
    if held == "all" or is_first or is_held[slot] then table.insert(names, ("images-%d-B"):format(slot)) end
  end
  return names
end

--- The core claims a slot of "images". Returns the claim.
function Peer:claims(slot) return self.holder:claim(("images-%d-B"):format(slot), ("images-%d-A"):format(slot)) end

return Peer
