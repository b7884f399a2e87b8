-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A story: a simulated run of a few processes that acquire locks of one kind (see kinds/), and troubles, such as
-- faults and actions of an operator. One seed decides everything.
--
--     local crowd = Crowd.new(seed, { troubles = { "death", "alarm" } })
--     crowd:play()                                   -- throws if a rule was broken
--
-- Every member (process) goes through some rounds of waiting, holding and releasing, each in one of several ways.
-- Troubles come in between. At the end no lock is wanted any more, and nothing may be left on the broker.
local Broker = require "spec.support.model.broker"
local Process = require "spec.support.model.process"
local Watch = require "spec.support.model.watch"
local Wire = require "spec.support.model.wire"
local World = require "spec.support.model.world"

local Crowd = {}
Crowd.__index = Crowd

local SECONDS = 600  -- the longest time of a story

local PACES = {
  { least = 0.00005, most = 0.0003, spike = 0.002, spikes = 0.02 },  -- one machine
  { least = 0.0005, most = 0.001, spike = 0.02, spikes = 0.05 },     -- one site
  { least = 0.00005, most = 0.005, spike = 0.005, spikes = 0 },      -- evenly distributed
  { least = 0.02, most = 0.03, spike = 0.2, spikes = 0.02 },         -- another continent
}

Crowd.near = { PACES[1], PACES[3] }
Crowd.far = { { least = 0.1, most = 0.3, spike = 0.3, spikes = 0 } }
Crowd.bad = { PACES[1], PACES[4], { least = 0.001, most = 0.01, spike = 0.3, spikes = 0.2 } }

local breach = Watch.breach

-- A connection's timeout: every answer must arrive within it. It is also the limit of an operation without another
-- limit: once for each of its exchanges with the broker. There is one of these, unless a number is given.
local TIMEOUT = 5
local ADMIN = 30
-- How much later than its time an acquire ends, at most, to learn that what it has taken is back.
local LATE = 1
-- A waiter returns to a queue that was deleted after at most so long (AL_BACKOFF_QUEUE).
local RETURN = 1

-- How long things take ----------------------------------------------------------------------------------------------

-- The longest time of a round trip, and times derived from it.
local function round_trip(self)
  local laws = self.broker.laws
  local settled = laws.nodes > 1 and laws.settled or 0
  local inner = 2 * laws.inner + laws.birth + math.max(laws.confirm, laws.consume_ok)
  return 2 * Wire.longest(self.pace) + inner + laws.stale + settled
end

-- The process gives up a claim that may be on its way, or lets go without waiting. Until the broker knows of that, and
-- the process knows that it does, what it claimed is not free for the process.
local function look_away(self, process)
  process.looks_away = self.world.now + 2 * round_trip(self) + (self.kind.lingers or 0)
end

--- How long a waiter may sleep beside a free lock, in the worst case: until its next recheck, or, if the prober
-- connection was lost, until it has another; four searches, while it leaves the slot to others; a ring (the publishing
-- of a token), and the search of the woken waiter; and up to eight lost races, after a search for squatters. Without
-- faults every waiter is woken by a token, and a waiter with a token searches every tenth of a second.
function Crowd:patience()
  local trip = round_trip(self)
  local look, claim, skew, squatters = trip, trip, 0.01, 2 * trip
  local reconnecting, grace, ring = 0.5 + 5 * trip, 0.1, trip
  if self.options.is_silenced then look = look + TIMEOUT end
  local pause = self.options.is_rung and trip + 0.1 or self.poll + reconnecting
  local happens = self.happens
  if happens.destroy or happens["queue deleted"] or happens["foreign queue"] then pause = pause + RETURN end
  if self.options.is_dead then pause = pause + math.min(self.poll, TIMEOUT) end -- a bell asked for just then
  if self.options.fenced and self.kind.fence then
    pause = pause + 3 * TIMEOUT -- it may have one, and draw its number, or make the fence
  end
  return pause + 4 * look + grace + ring + 8 * (look + claim + skew) + squatters
end

--- For how long a holder may not know that its queue is gone.
function Crowd:news()
  local laws = self.broker.laws
  return laws.notice + laws.inner + Wire.longest(self.pace) + 1e-6
end

-- Members -----------------------------------------------------------------------------------------------------------

local LETTING_GO = { "release", "release", "release", "drop", "verify" }

-- The codes that a failure may have, and the troubles that explain each: one of them must be in the story. Any other
-- code is a defect.
local CODES = {
  timeout = true, busy = true, contended = true, deadlock = true,
  unreachable = { "lost holder", "lost prober", "cut off", "stopped", "stopped making", "stall", "restart", "stopping",
    "death", "dies claiming", "partition", "partition in time", "lag", "no majority" },
  lost = { "lost holder", "cut off", "stopped", "stopped making", "stall", "restart", "stopping", "robbed",
    "robbed drawing", "robbed gathering", "too long", "destroy", "queue deleted", "foreign queue",
    "partition", "partition in time", "lag", "no majority",
    "death", "dies claiming" },
    -- the last two: before 4.3, through the end of another queue
  suspect = { "lost holder", "cut off", "stopped", "stopped making", "stall", "restart", "stopping", "robbed drawing" },
  not_found = { "destroy", "nodes" },
  exists = { "inquiry" },
  removed = { "resize" },
  conflict = { "resize", "surplus", "rubbish", "no fence", "moved fence", "foreign queue" },
  unavailable = { "slot down", "resize", "destroy", "restart", "stopping", "lost fence", "cut fence",
    "no fence", "stopped", "stopped making" },
  refused = { "denied" },
  blocked = { "alarm" },
  limit = { "too many", "resize" },
}

local function look_ahead(self)
  local options, happens, codes = self.options, {}, {}
  for _, trouble in ipairs(options.troubles or {}) do happens[trouble] = true end
  happens.nodes, happens["too many"] = options.nodes, options.most
  for code, causes in pairs(CODES) do
    codes[code] = causes == true
    for _, cause in ipairs(causes ~= true and causes or {}) do codes[code] = codes[code] or happens[cause] end
  end
  self.happens, self.codes = happens, codes
end

-- A process has too little time left if it asks through a connection on which another one has just asked for a silent
-- queue: when that request is given up its channel is closed.
local function asked_behind(self, process, message)
  if not message:find("^unreachable: the broker did not answer") then return false end
  local _, prober = process:both_sockets()
  local since, trip = prober and prober.connection.silent_since, round_trip(self)
  local late = since and self.world.now - since - TIMEOUT
  return late and late > -trip and late < 3 * trip
end

local function may_fail(self, process, message, code)
  if asked_behind(self, process, message) then return end
  if code == "deadlock" and self.options.shares then breach("callers who share a session wait for one another") end
  if not self.codes[code] then breach("%s", message) end
end

local function finish(self, process, op, what, seconds)
  if what then self.watch:promises(process, op, what, seconds) end
  local result, message, code = process:finish(op)
  if not result then may_fail(self, process, message, code) end
  return result, message, code
end

local function verify(self, process, lock)
  local since = self.world.now - self.broker.laws.stale
  local verified, _, code = finish(self, process, lock:verify(), "verifies", 3 * TIMEOUT)
  if verified then self.watch:is_told(process, lock) end
  local flaw = code == "removed" and self.kind:kept(lock, since)
  if flaw then breach("%s was told that its slot was taken away: %s", process.name, flaw) end
end

local function let_go(self, process, lock)
  local queue = self.kind:queue_of(lock)
  local how = self.random:pick(self.options.letting_go or LETTING_GO)
  if how == "verify" then verify(self, process, lock) end
  local is_held, message, code = lock:held()
  if not is_held and not self.codes[code] then breach("%s", message) end
  process:note("lets go (%s)", how)
  self.watch:releases(process, lock)
  if how == "drop" then
    look_away(self, process)
    return lock:drop()
  end
  local own, connection = self.broker.queues[queue], process:connection()
  local released = finish(self, process, lock:release(), "releases", TIMEOUT)
  if not released and self.kind.lingers then look_away(self, process) end
  local is_there = own and own.owner == connection and self.broker.queues[queue] == own
  if released and is_there and not self.options.retain then
    breach("%s is released and still there", queue)
  end
end

local function excuse(self, process) self.watch:excuses(process, true) end

-- The process is stopped (SIGSTOP) in the middle of its work, for about as long as the broker's heartbeat timeout.
local function nod(self, process)
  self.world:after(self.random:between(0, 4 * round_trip(self)), function ()
    excuse(self, process)
    process:stop(self.random:between(1.5, 3.5) * self.heartbeat)
  end)
end

local function downgrade(self, process, lock)
  process:note("downgrades")
  if self.options.nods then nod(self, process) end
  self.watch:turns(lock, "read", nil)
  if not finish(self, process, process:keep(lock:downgrade()), "downgrades", 3 * TIMEOUT) then return end
  self.watch:is_told(process, lock)
  self.watch:turns(lock, "read", self.kind:queue_of(lock))
end

local function hold(self, process, locks)
  for _, lock in ipairs(locks) do
    process:note("holds %s", self.kind:queue_of(lock))
    self.watch:got(process, lock)
  end
  process:sleep(self.random:between(0, self.hold))
  if self.kind:wish_of(locks[1]) == "write" and self.random:chance(self.options.downgrades or 0) then
    downgrade(self, process, locks[1])
    process:sleep(self.random:between(0, self.hold))
  end
  for i = #locks, 1, -1 do let_go(self, process, locks[i]) end
end

-- A caller that asks while nothing can be answered must get an error: connecting takes one timeout, and asking another.
-- This holds as long as neither connection is replaced.
local function promise_answer(self, process, op)
  local seconds, holder, prober = 2 * TIMEOUT, process:both_sockets()
  local ends = holder and prober and math.min(holder.stalled_until or 0, prober.stalled_until or 0) or 0
  if ends < self.world.now + seconds + 1 then return end
  self.watch:promises(process, op, "waits for an answer", seconds, function ()
    local holder_now, prober_now = process:both_sockets()
    return holder_now == holder and prober_now == prober
  end)
end

-- A gather makes as many exchanges as it takes locks, and one more for the gate. A call that fails makes one more.
local function promise(self, process, op, timeout, count)
  if not timeout then return promise_answer(self, process, op) end
  local seconds = timeout > 0 and timeout + LATE or 7 * TIMEOUT * (count and count + 1 or 1)
  self.watch:promises(process, op, timeout > 0 and "waits" or "tries", seconds)
end

-- Whether a waiter that may be first in line is disconnected or stopped: fair waiters leave a free lock to it.
local function is_anybody_away(self)
  for _, process in ipairs(self.processes) do
    if not process.is_dead and (process.is_stopped or process:is_cut_off()) then return true end
  end
end

local WAITING = { "for long", "for long", "a while", "at once", "and gives up" }

-- How many locks a member wants at once, if it gathers several; nil: one.
local function gathered(self)
  if not self.options.gathers or not self.random:chance(self.options.gathers) then return nil end
  return 1 + self.random:below(math.max(self.options.most or self.slots, 2) - 1)
end

-- The number of changes of how many locks there are; nil while it is being changed, or half changed.
local function settled_after(self)
  return not self.admin.is_busy and not self.is_half_done and self.resizes or nil
end

-- Only a gather that wants more than there are may be told so. `resizes`: how many there had been when it began.
local function look_at_limit(self, process, count, resizes)
  if count <= self.slots and resizes and resizes == settled_after(self) then
    breach("%s was told that there are fewer than %d, and there are %d", process.name, count, self.slots)
  end
end

-- What the process's connection has of the story's locks, as a set: queues, and messages.
local function belongings(process)
  local connection, set = process:connection() or {}, {}
  for _, queue in ipairs(connection.exclusive or {}) do
    local is_other = queue.name:find "scratch" or queue.name:find "^beside" or queue.name:find "^silent"
    if not is_other and not queue.is_orphan then set[queue] = queue.name end
  end
  for _, channel in ipairs(connection.channels or {}) do
    for _, entry in ipairs(channel.state == "open" and channel.unacked or {}) do
      local name = entry.queue.name
      if name:find "%.semaphore$" or name:find "%-fastmutex$" then set[entry] = "a message of " .. name end
    end
  end
  return set
end

-- A lock that a failed call has taken is free again when it returns, unless the broker took too long to say so. So is
-- the gate of one that has several locks. `before`: what the process had before the call, and has let go of.
local function look_at_rest(self, process, before, began, timeout, has_got)
  local is_late = self.world.now + 1e-5 >= began + (timeout and timeout > 0 and timeout + LATE or TIMEOUT)
  local may_have_more = self.options.shares or self.options.programs or (process.looks_away or 0) > began
  if self.codes.refused or is_late or may_have_more or self.kind.lingers then return end
  for thing, name in pairs(belongings(process)) do
    if not before[thing] and (not has_got or name:find "many$") then
      breach("%s got %s, and still has %s", process.name, has_got and "its locks" or "nothing", name)
    end
  end
end

local function round(self, process)
  local how, began = self.random:pick(self.options.waiting or WAITING), self.world.now
  local before = belongings(process)
  local timeout = how == "a while" and self.random:between(0, 2 * self.hold) or how == "at once" and 0 or nil
  local wish, count, resizes = self.kind:wish(), gathered(self), settled_after(self)
  process:note("wants %s %s, waits %s", count or "a", wish, how)
  local fair, priority = self.random:chance(self.fair), self.random:pick(self.priorities)
  local op = process:keep(self.kind:ask(process, wish, timeout, fair, priority, self.poll, nil, count,
    self.options.settle))
  promise(self, process, op, timeout, count)
  local was_cut_off = process:is_cut_off()
  local may_be_left = was_cut_off or fair and is_anybody_away(self)
  if how ~= "at once" and not may_be_left then self.watch:waits(process, op, wish, fair, count) end
  if how == "and gives up" then
    process:sleep(self.random:between(0, self.hold), op)
    if not op:done() then
      process:note("gives up")
      self.watch:gives_up(op)
      look_away(self, process)
      op:drop()
      return
    end
  end
  local got, message, code = finish(self, process, op)
  look_at_rest(self, process, before, began, timeout, got)
  if got then
    self.watch:passes(process, count)
    return hold(self, process, count and got or { got })
  end
  process:note("got nothing: %s", message)
  if code == "limit" then look_at_limit(self, process, count, resizes) end
  -- Away from what it may just have got, or from what it could declare, and not consume from.
  if code == "timeout" or code == "refused" or count then look_away(self, process) end
  if code == "timeout" then self.watch:was_told_over(process, timeout and began + timeout) end
  -- Not free for this process, although the broker may say so: a claim of another program on its connection, its own
  -- claim, until the broker knows of them, and a mutex that settles.
  if code == "busy" and not message:find "settles" and not fair and not self.options.programs and not was_cut_off then
    self.watch:was_told_busy(process, wish, began - self.broker.laws.stale, count)
  end
end

local function new_process(self, name, settings)
  settings.seed, settings.heartbeat, settings.pace = self.random:below(1000000), self.heartbeat, self.pace
  local process = Process.new(self.broker, name, settings)
  table.insert(self.processes, process)
  return process
end

local function live(self, member)
  return function (process)
    while member.rounds > 0 do
      member.rounds = member.rounds - 1
      process:sleep(self.random:between(0, self.idle))
      while self.broker.is_down and self.random:chance(0.8) do process:sleep(self.random:between(0, 1)) end
      round(self, process)
    end
    process:note("wants nothing any more")
    member.busy = member.busy - 1
  end
end

-- Holds another lock on the connection meanwhile. That lock must not be lost through operations on permits.
local function hold_beside(member)
  return function (process)
    local lock, message = process:finish(process.peer:mutex("beside-" .. process.name):acquire(TIMEOUT))
    if not lock then breach("%s has no lock beside its permits: %s", process.name, message) end
    while member.busy > 0 do process:sleep(0.5) end
    if not lock:held() then breach("%s has lost the lock beside its permits", process.name) end
    process:finish(lock:release())
  end
end

local function begin(self, member)
  self.births = self.births + 1
  local process = new_process(self, ("%s%d"):format(member.name, member.lives), { shared = self.options.shares })
  member.lives = member.lives + 1
  member.process, process.member = process, member
  process.on_turn = function () self.watch:heard(process) end
  member.busy = self.options.programs or 1
  for _ = 1, member.busy do process:start(live(self, member)) end
  if self.options.beside then process:start(hold_beside(member)) end
end

-- Troubles ----------------------------------------------------------------------------------------------------------

local function anybody(self) return self.random:pick(self.members) end

local troubles = {}

local function kill(self, process, loses_what_it_wrote)
  if process.is_dead or process.member.busy == 0 then return end
  self.watch:loses(process)
  self.watch:excuses(process)
  process:kill(loses_what_it_wrote)
  self.world:after(self.random:between(0, self.idle), begin, self, process.member) -- goes on in another process
end

function troubles.death(self) kill(self, anybody(self).process, self.random:chance(0.5)) end

local function die_writing(self, text, may_lose)
  local process = anybody(self).process
  process.on_sent = function (bytes)
    if not bytes:find(text, 1, true) then return end
    process.on_sent = nil
    self.world:after(0, kill, self, process, may_lose and self.random:chance(0.5))
  end
end

troubles["dies claiming"] = function (self) die_writing(self, "x-amqplocks-ticket", false) end

-- The holder's locks are lost with its connection. The notice takes time. Its wait ends, too.
troubles["lost holder"] = function (self)
  local process = anybody(self).process
  self.watch:excuses(process)
  for _, belief in ipairs(self.watch:locks_of(process)) do
    self.watch:robbed(process, belief.lock, Wire.longest(self.pace))
  end
  process:lose(process:holding())
end

-- An operator deletes the queue of a lock, unless the queue belongs to another holder by now.
troubles["robbed"] = function (self)
  local process = anybody(self).process
  local holder = process.sockets.holder
  for _, belief in ipairs(self.watch:locks_of(process)) do
    local queue = self.broker.queues[belief.queue]
    if queue and holder and queue.owner == holder.connection then
      process:note("is robbed of %s", belief.queue)
      self.watch:robbed(process, belief.lock, self:news())
      self.broker:delete(belief.queue)
    end
  end
end

local function process_of(self, connection)
  for _, process in ipairs(self.processes) do
    if process:connection() == connection then return process end
  end
end

-- An operator deletes a queue of a process that is inside the gate: the gate, or a slot that it has.
troubles["robbed gathering"] = function (self)
  local gate, own = self.broker.queues[self.kind.many.queue], {}
  for _, name in ipairs(gate and self.broker:names_of_queues() or {}) do
    if self.broker.queues[name].owner == gate.owner then table.insert(own, name) end
  end
  local process = #own > 0 and process_of(self, gate.owner)
  if not process or #self.watch:locks_of(process) > 0 then return end
  local name = self.random:pick(own)
  process:note("is robbed of %s, as it gathers", name)
  self.watch:doubts(process, self:news())
  self.broker:delete(name)
end

-- A bolt is a queue that guards a lock's queue before 4.3. It expires after ten seconds without use.
local function is_bolt(name) return name:find("%-bolt$") end

-- An operator deletes a bolt. This alone loses no lock.
troubles["no bolt"] = function (self)
  local bolts = {}
  for _, name in ipairs(self.broker:names_of_queues()) do
    if is_bolt(name) then table.insert(bolts, name) end
  end
  if #bolts > 0 then self.broker:delete(self.random:pick(bolts)) end
end

troubles["lost prober"] = function (self) anybody(self).process:lose("prober") end

-- Troubles of fences: a connection that draws numbers, or makes the fence, is lost, cut off or delayed; the maker dies
-- directly after it has written what makes the fence; an operator deletes the fence; other software moves its message
-- away and back.
troubles["lost fence"] = function (self) anybody(self).process:lose(self.random:pick{ "fence", "maker" }) end

troubles["cut fence"] = function (self)
  local process, role = anybody(self).process, self.random:pick{ "fence", "maker" }
  excuse(self, process)
  local how, direction = self.random:chance(0.5) and "cut" or "stall", self.random:pick{ "up", "down", "both" }
  process:strike(how, role, direction, how == "stall" and self.random:between(0, 10) or nil)
end

troubles["dies making"] = function (self) die_writing(self, "-unfinished", true) end

local PUBLISH, HEAD = "\0\60\0\40", 7 -- class and method of basic.publish; the bytes of a frame before them

-- The maker of a fence is stopped when it has written the declares, and before it has written the message, which it
-- writes when it goes on. By then the broker may have given it up, and another client may have made the fence.
troubles["stopped making"] = function (self)
  local process = anybody(self).process
  process.on_send = function (bytes, role)
    local at = role == "maker" and bytes:find(PUBLISH, 1, true)
    if not at then return bytes end
    process.on_send = nil
    local socket, seconds = process.sockets.maker, self.random:between(0, self.random:pick{ 0.1, 4 * self.heartbeat })
    local rest = bytes:sub(at - HEAD)
    excuse(self, process)
    self.world:after(0, process.stop, process, seconds)
    self.world:after(seconds, function ()
      if not process.is_dead then socket:send(rest) end
    end)
    return bytes:sub(1, at - HEAD - 1)
  end
end

-- An operator deletes the mutex while its holder draws a number. The number arrives late, and the notice later still.
troubles["robbed drawing"] = function (self)
  local queue = self.broker.queues[self.kind.gate]
  local process = queue and queue.owner and process_of(self, queue.owner)
  if not process or #self.watch:locks_of(process) > 0 then return end
  excuse(self, process)
  local news = self.random:between(0, 1)
  self.watch:doubts(process, news)
  process:strike("stall", "fence", "up", self.random:between(0, news))
  process:strike("stall", "holder", "down", news)
  self.broker:delete(queue.name)
end

troubles["no fence"] = function (self) self.broker:delete(self.kind.fence) end

troubles["moved fence"] = function (self)
  local fence = self.broker.queues[self.kind.fence]
  if fence then fence:move() end
end

local function strike(self, process, choice, how, ...)
  local which = self.random:pick(choice)
  if which ~= "prober" then process:strike(how, process:holding(), ...) end
  if which ~= "holder" then process:strike(how, "prober", ...) end
end

-- The connection is cut off without notice. The holder must stop reporting the lock as held before the broker frees it.
troubles["cut off"] = function (self)
  local process = anybody(self).process
  excuse(self, process)
  strike(self, process, { "holder", "prober", "both" }, "cut", self.random:pick{ "up", "down", "both", "both" })
end

troubles["stall"] = function (self)
  local process = anybody(self).process
  excuse(self, process)
  local direction, seconds = self.random:pick{ "up", "down", "both" }, self.random:between(0, self.random:pick{ 2, 60 })
  strike(self, process, { "holder", "prober", "both", "both" }, "stall", direction, seconds)
end

-- The process gets no processor time for a few round trips.
function troubles.hiccup(self) anybody(self).process:stop(self.random:between(0, 10 * round_trip(self))) end

-- SIGSTOP, for longer or shorter than the broker's heartbeat timeout.
troubles["stopped"] = function (self)
  local process = anybody(self).process
  if process.is_stopped then return end
  excuse(self, process)
  process:stop(self.random:between(0, self.random:pick{ 0.1, 4 * self.heartbeat }), self.random:chance(0.5))
end

local function for_a_while(self, fn)
  fn(self.broker, true)
  self.world:after(self.random:between(0, 2 * self.hold), fn, self.broker, false)
end

function troubles.alarm(self)
  if not self.broker.has_alarm then for_a_while(self, self.broker.alarm) end
end

-- A queue that is no lock of the story does not answer for a while, and members probe it through their connections. All
-- other requests must be answered.
local SILENT, SILENT_SLOT = "silent", "silent-1-A"

local function be_silent(self, seconds)
  local broker = self.broker
  if not broker.queues[SILENT_SLOT] then broker:declare(SILENT_SLOT, { durable = true }) end
  self.silent_until = self.world.now + seconds
  broker:trouble(SILENT_SLOT, "silent")
  self.world:after(seconds, broker.trouble, broker, SILENT_SLOT)
end

local function ask_for_silent(self, process)
  local op, began = process.peer:semaphore(SILENT):acquire(0), self.world.now
  self.watch:promises(process, op, "tries", 6 * TIMEOUT)
  local lock, message, code = process:finish(op)
  if lock then return finish(self, process, lock:release(), "releases", TIMEOUT) end
  process:note("got nothing: %s", message)
  if code ~= "unreachable" or began > self.silent_until then may_fail(self, process, message, code) end
end

troubles["silent queue"] = function (self)
  local member = anybody(self)
  local process = member.process
  if process.is_dead or member.busy == 0 or process.asks_for_silent then return end
  if process.core:state("prober") ~= "open" then return end
  if self.silent_until < self.world.now then
    be_silent(self, self.random:between(0, self.random:pick{ 2, 10, 60 }))
  end
  member.busy, process.asks_for_silent = member.busy + 1, true
  process:start(function ()
    ask_for_silent(self, process)
    member.busy, process.asks_for_silent = member.busy - 1, false
  end)
end

-- The node of the bell is killed and comes back.
troubles["dead bell"] = function (self)
  local broker, bell = self.broker, self.kind.bell
  local queue = broker.queues[bell]
  if not queue or queue.trouble then return end
  broker:trouble(bell, "dead")
  self.world:after(self.random:between(0, self.random:pick{ 2, 10, 60 }), broker.trouble, broker, bell)
end

-- Members lose the read permission for a while. Queues that they have declared by then stay without a consumer.
function troubles.denied(self)
  if not self.broker.denies then for_a_while(self, self.broker.deny) end
end

-- The node of a slot's queue is down for a while: the slot exists, but can be neither acquired nor deleted.
troubles["slot down"] = function (self)
  local name = self.kind:slot_queue()
  for_a_while(self, function (broker, is_down)
    broker:trouble(name, is_down and "refused" or nil)
    self.watch:note()
  end)
end

function troubles.stranger(self)
  local over = self.kind:intrude()
  if over then self.world:after(self.random:between(0, self.hold), over) end
end

-- Troubles of the doorbell: it may have any number of tokens, be deleted, be new, or hold other messages. The story
-- must recover from each.
function troubles.purge(self)
  if self.kind.disturbed then self.kind:disturbed() end
  self.broker:purge(self.kind.bell)
end

function troubles.surplus(self) self.kind:ring(self.random:below(5)) end

function troubles.rubbish(self) self.broker:put(self.kind.bell, self.random:below(5)) end

troubles["no bell"] = function (self) self.broker:delete(self.kind.bell) end

-- The queue of a fast mutex, or of permits, is deleted: each lock of it is lost.
troubles["queue deleted"] = troubles["no bell"]

troubles["new bell"] = function (self)
  self.broker:delete(self.kind.bell)
  self.kind:make_bell()
end

function troubles.inquiry(self)
  local asker = self.asker
  if not asker or asker.is_dead then
    asker = new_process(self, "asker", {})
    self.asker = asker
  end
  if asker.is_busy then return end
  asker.is_busy = true
  asker:start(function ()
    local op, look = self.kind:inquire(asker)
    local answer, more = finish(self, asker, op, "asks", ADMIN)
    local flaw = answer and look(answer, more)
    if flaw then breach("an administrator was told what is wrong: %s", flaw) end
    asker.is_busy = false
  end)
end

function troubles.destroy(self)
  local admin = self.admin
  if admin.is_busy then return end
  admin.is_busy = true
  admin:note("destroys it")
  admin:start(function ()
    local op, wait = self.kind:destroy(admin)
    if finish(self, admin, op, "destroys", ADMIN + wait) then
      admin:sleep(self.random:between(0, self.hold))
      assert(admin:finish(self.kind:create(admin)))
    end
    admin.is_busy = false
  end)
end

-- All locks of all processes are taken away; the holders are notified at most `news` seconds later.
local function rob_all(self, news)
  news = news + Wire.longest(self.pace) + 1e-6
  for _, process in ipairs(self.processes) do
    for _, belief in ipairs(self.watch:locks_of(process)) do self.watch:robbed(process, belief.lock, news) end
    self.watch:doubts(process, news)
  end
end

-- The broker closes the channels of all holders of permits: the consumer timeout.
troubles["too long"] = function (self)
  rob_all(self, self.broker.laws.inner)
  self.broker:time_out(self.kind.bell)
end

-- A client that keeps a token for too long loses its channel at the bell, and nothing else.
troubles["consumer timeout"] = function (self) self.broker:time_out(self.kind.bell) end

function troubles.restart(self)
  for _, process in ipairs(self.processes) do self.watch:excuses(process) end
  rob_all(self, 0)
  self.broker:stop(self.random:chance(0.5))
  self.world:after(self.random:between(0, self.random:pick{ 0.1, 5 }), function () self.broker:start() end)
end

function troubles.stopping(self)
  if self.broker.is_stopping then return end
  local seconds = self.random:between(0, self.random:pick{ 0.5, 5 })
  self.restarted_by = self.world.now + seconds + 5
  self.broker:begin_to_stop()
  self.world:after(seconds, troubles.restart, self)
end

-- Acks and requeues may be undone by a channel or a connection that ends too soon, but only in a cluster: then the
-- administrator looks again.
local function look_once_more(self, admin, look)
  local laws = self.broker.laws
  if laws.nodes == 1 then return end
  if self.random:chance(0.3) then
    finish(self, admin, admin.session:close(), "closes", TIMEOUT)
    admin.has_left = true
    self.admin = new_process(self, "next admin", {})
    self.admin.is_busy = true
  end
  admin:sleep(laws.settled + laws.down)
  look()
  self.admin.is_busy = false -- another administrator may begin
end

-- An administrator changes the number of slots, and sometimes dies while doing so; the next one finishes the work.
function troubles.resize(self)
  if self.admin.is_busy then return end
  self.admin.is_busy = true
  local slots, last = self.random:below(self.slots + 2), self.admin
  self.resizes = self.resizes + 1
  last:note("resizes to %d", slots)
  last:start(function ()
    local asked_at, before = self.world.now, self.slots
    local op, wait = self.kind:resize(last, slots)
    if finish(self, last, op, "resizes", ADMIN + wait) then
      local waited_for = wait > 0 and slots < before and not self.is_half_done and before
      local function look()
        local flaw = self.kind:undone(slots, asked_at, waited_for)
        if flaw then breach("%s resized to %d: %s", last.name, slots, flaw) end
      end
      look()
      self.slots = slots
      look_once_more(self, last, look)
    end
    self.is_half_done = self.slots ~= slots  -- nobody waits for slots that are deleted by then
    last.is_busy = false
  end)
  if not self.random:chance(0.2) then return end
  self.world:after(self.random:between(0, 10 * round_trip(self)), function ()
    if last.is_dead or last.has_left or self.is_over then return end
    last:kill(true)
    self.is_half_done = true  -- possibly half done
    self.admin = new_process(self, "next admin", {})
    self.admin.is_busy = true
    self.admin:start(function (admin)
      repeat
        local op, wait = self.kind:repair(admin)
        local is_done = finish(self, admin, op, "repairs", ADMIN + wait) or admin:sleep(1)
      until is_done
      admin.is_busy = false
    end)
  end)
end

local function plan(self)
  local list = self.options.troubles or {}
  if #list == 0 then return end
  for _ = 1, self.options.count or 6 do
    local trouble = self.random:pick(list)
    self.world:after(self.random:between(0, self.rounds * (self.hold + self.idle)), function ()
      if not self.is_over and not self.broker.is_down then (troubles[trouble] or self.kind.troubles[trouble])(self) end
    end)
  end
end

-- The story ---------------------------------------------------------------------------------------------------------

--- A story by its seed. All `options` are optional:
--   kind                of lock: "semaphore" (the default), or another of kinds/
--   troubles, count     the kinds of trouble that may come; how many come
--   workers, slots, rounds, programs   how many of each; programs are those in each worker, which share a session
--   shares              whether programs share a session without coordination, as requests of an nginx worker do
--   retain              for how long a session keeps a mutex after its release
--   settle              for how long a mutex settles that was not released
--   spared              the first letter of members that keep none
--   same_object         whether a process acquires a mutex or rwlock by the same object each time
--   waiting, letting_go, priorities, inner, lags, paces    lists to choose from; see LETTING_GO, and Broker.laws
--   gathers, most       the share of rounds in which a member gathers several, and how many at most
--   fair, deaf, writers, downgrades    the share of waiters that are fair, that use no doorbell, that write, and of
--                       writers that become readers
--   hold, idle          the longest time that a lock is held, and that a member pauses between rounds, in seconds
--   poll, is_rung       the interval of rechecks, and whether every waiter must be woken before it rechecks
--   is_used             whether another client used the locks before, and has just left
--   in_line             whether waiters must be served in the order in which they came
--   loses_tokens, spare whether there may be fewer tokens than slots at the end; how many more there may be (any)
--   mends, surplus      whether an administrator repairs the locks at the end; whether there may be too many permits
--   seconds             how long the story may take; ten minutes
--   notice, nodes, stale, version    see Broker.laws
--   channels            how many channels may be open on a connection at the end
function Crowd.new(seed, options, traced)
  local world = World.new(seed, traced)
  local random = world.random:fork()
  local self = setmetatable({ options = options, world = world, random = random, members = {},
    processes = {}, births = 0, resizes = 0, silent_until = 0, restarted_by = 0,
    slots = options.slots or 3, rounds = options.rounds or 3, heartbeat = options.heartbeat or 60,
    priorities = options.priorities or { 0, 0, 0, 1, -1 } }, Crowd)
  look_ahead(self)
  self.pace = random:pick(options.paces or PACES)
  self.broker = Broker.new(world, { strict = true, pace = self.pace,
    lags = random:pick(options.lags or { 0, 0.1, 0.5 }), closes_late = random:chance(0.5),
    version = options.version or random:pick{ "3.10.8", "4.3.0" },
    by_name = true, notice = options.notice, inner = options.inner, nodes = options.nodes, stale = options.stale })
  self.poll, self.fair = random:pick{ 0.2, 1, 5 }, random:pick{ 0, 0, 0.5, 1 }
  self.hold, self.idle = random:pick{ 0.01, 0.2, 2 }, random:pick{ 0, 0.1, 1 }
  self.fair, self.poll = options.fair or self.fair, options.poll or self.poll
  self.hold, self.idle = options.hold or self.hold, options.idle or self.idle
  self.kind = require("spec.support.model.kinds." .. (options.kind or "semaphore")).new(self)
  self.watch = Watch.new(self.broker, self.kind, self:patience())
  if options.in_line then self.watch:minds_line(self.kind.bell) end
  self.watch.is_fenced, self.watch.settles = options.fenced, options.settle
  return self
end

local function run(self, what, seconds, done)
  if not self.world:run(seconds, done) then
    self.watch:look()
    breach("%s: it never was so", what)
  end
end

-- The administrator does this, which must succeed, and be done in time.
local function manage(self, what, seconds, method)
  local admin, is_done = self.admin, nil
  admin:start(function ()
    if self.kind[method] then assert(admin:finish(self.kind[method](self.kind, admin))) end
    is_done = true
  end)
  run(self, what, seconds, function () return is_done end)
end

-- Checked at every step; mostly the member that was busy before still is.
local function all_done(self)
  if self.busy_one and self.busy_one.busy > 0 then return false end
  for _, member in ipairs(self.members) do
    if member.busy > 0 then
      self.busy_one = member
      return false
    end
  end
  return not self.admin.is_busy and not (self.asker and self.asker.is_busy)
end

-- Nothing may be left: no claim, no consumer, no unacknowledged message, no queue except permanent ones.
local function look_for_leftovers(self, when)
  for _, name in ipairs(self.broker:names_of_queues()) do
    local ready, unacked, consumers = self.broker:count(name)
    local may_stay = self.kind:stays(name) or name == SILENT_SLOT or is_bolt(name)
    if not may_stay then breach("%s: %s is left", when, name) end
    if unacked > 0 or consumers > 0 then
      breach("%s: %s has %d consumers, %d messages with them, %d ready", when, name, consumers, unacked, ready)
    end
  end
end

-- Channels are reused: sixteen are kept for that, since a client without the permission to publish asks on many
-- channels at once. A client that has been through many rounds has no more open than those, and, for each program, a
-- claim, a place at the doorbell, and the next one.
local function look_for_channels(self)
  local most = self.options.channels or 16 + 4 * (self.options.programs or 1)
  for _, connection in ipairs(self.broker.connections) do
    local count = #connection.channels
    if count > most then breach("%s has %d channels open, and does nothing", connection.name, count) end
  end
end

local function close_all(self)
  for _, process in ipairs(self.processes) do
    if not process.is_dead then
      process:start(function () finish(self, process, process.session:close(), "closes", TIMEOUT) end)
    end
  end
  self.world:run(60, function () return #self.broker.connections == 0 end)
  self.world:run(5)
  if #self.broker.connections > 0 then breach("%d connections are left", #self.broker.connections) end
end

-- Returns for how long the network still delays bytes, or the end of a connection that its process has lost or left, a
-- queue does not answer, or the broker is down.
local function still_stalled(self)
  local time = math.max(self.world.now, self.silent_until, self.restarted_by)
  for _, process in ipairs(self.processes) do time = math.max(time, process.hung_until) end
  return time - self.world.now
end

local function tell(self)
  self.admin = Process.new(self.broker, "admin", { seed = 1, heartbeat = 60, pace = self.pace })
  table.insert(self.processes, self.admin)
  manage(self, "what is wanted is there", 60, "create")
  for i = 1, self.options.workers or 5 do
    local member = { name = ("abcdefghij"):sub(i, i), lives = 1,
      rounds = self.rounds * (self.options.programs or 1) }
    table.insert(self.members, member)
    begin(self, member)
  end
  plan(self)
  run(self, "everybody is done", self.options.seconds or SECONDS, function () return all_done(self) end)
  self.is_over = true
  self.kind:settle()
  self.watch:look()
  local lingers = self.options.troubles and self.kind.lingers or 0 -- without troubles nothing may linger
  local stays = math.max(still_stalled(self), self.options.retain or 0, self.options.settle or 0)
  self.world:run(math.max(2 * self.heartbeat >= 60 and 5 or 6 * self.heartbeat, 5 + stays, lingers))
  look_for_leftovers(self, "when nobody wants anything any more")
  look_for_channels(self)
  if self.options.mends then -- what an operator or a dead administrator left behind
    manage(self, "it is repaired", 120, "repair")
    self.world:run(self.broker.laws.settled) -- requeued messages have arrived
  end
  local flaw = self.kind:flaw()
  if flaw then breach("%s", flaw) end
  close_all(self)
  look_for_leftovers(self, "when everybody is gone")
end

function Crowd:play()
  local fine, err = xpcall(function () tell(self) end, function (err)
    return type(err) == "table" and err.breach or debug.traceback(tostring(err), 2)
  end)
  for _, process in ipairs(self.processes) do process:bury() end
  if not fine then error(err, 0) end
end

return Crowd
