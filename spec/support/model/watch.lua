-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The rules that hold for locks of every kind in the model, checked while a story runs: docs/proving.md lists them.
-- (crowd.lua checks beside it what must hold at the end of a call, and of the story.)
--
-- A violation is an error of the story. The kind (see kinds/) defines "free" and "two". It has these fields:
--
--   seats                the things to wait for: { name =, is_free = function () …, wakes = nil or function (wait) …,
--                        tells = nil or function (wish, since) … }; a free seat wakes every waiter and counts for every
--                        answer, unless these two functions say otherwise
--   many                 if not nil: the gate of those who want several at once (gate.lua), which has a `seat`, too
--   clash(beliefs)       returns what is wrong, as text, if these are all held at once; they are of one `group`
--   group_of(lock), queue_of(lock), wish_of(lock)
--   changed(queue)       a queue was created, or is gone
--   refuses(belief)      nil, or what is wrong with having got this lock
--   held_by(connection)  nil, or the name of something that it holds
--   given(belief)        { birth =, … }: what the broker gave to this holder, and the how manieth of all;
--                        may_equal(one, other) and has_order(one, other) are about two of these
--   news                 if not nil: for so long a holder may not know that the queue is gone; that is no violation
local Watch = {}
Watch.__index = Watch

function Watch.breach(...) error({ breach = string.format(...) }, 0) end

local breach = Watch.breach

-- Waiting -----------------------------------------------------------------------------------------------------------

local function look_at_patience(self, seat, wait)
  if seat.wakes and not seat.wakes(wait) then return end
  local slept = self.world.now - math.max(seat.free_since, wait.since)
  if slept > self.patience then
    breach("%s slept for %.3f s, more than %.3f s, while %s was free", wait.process.name, slept, self.patience,
      seat.name)
  end
end

local function look_at_all(self, seat)
  for _, wait in ipairs(self.waiting) do look_at_patience(self, seat, wait) end
end

-- Calls fn(self, seat, wait) for each seat, or only for those that are free.
local function each_seat(self, is_free, fn, wait)
  for _, seat in ipairs(self.kind.seats) do
    if seat.free_since or not is_free then fn(self, seat, wait) end
  end
  local gate = self.kind.many and self.kind.many.seat
  if gate and (gate.free_since or not is_free) then fn(self, gate, wait) end
end

-- The connection that left the seat last, if its own queue was in the way. A bolt, which may open last, has no owner.
local function owner_of(self, queue)
  if queue.owner then self.owners[queue.name] = queue.owner end
  return queue.owner or self.owners[(queue.name:gsub("%-bolt$", ""))]
end

local function note_free(self, seat, left_by)
  local free = seat.is_free()
  if not free and seat.free_since then
    look_at_all(self, seat)
    seat.free_since = nil
  elseif free and not seat.free_since then
    seat.free_since, seat.left_by = self.world.now, left_by
  end
end

--- A seat may have become free, or taken; because of a queue, if one is given.
function Watch:note(queue)
  each_seat(self, false, note_free, queue and owner_of(self, queue))
end

--- A process waits, by an operation for this wish, from now until the operation is done. `count`: for so many at once.
function Watch:waits(process, op, wish, fair, count)
  table.insert(self.waiting, { process = process, op = op, wish = wish, fair = fair, count = count,
    since = self.world.now, passed = {} })
end

--- A waiter for several is inside the gate, and waits for the first of them from now on.
function Watch:enters(wait)
  wait.since, wait.passed, wait.is_inside = self.world.now, {}, true
end

-- The wait ends, or its time limit is suspended.
local function ends(self, wait)
  each_seat(self, true, look_at_patience, wait)
  for i, other in ipairs(self.waiting) do
    if other == wait then table.remove(self.waiting, i) end
  end
end

function Watch:gives_up(op)
  for _, wait in ipairs(self.waiting) do
    if wait.op == op then return ends(self, wait) end
  end
end

-- A lock that a connection released without waiting is not free for that connection before it has been notified. A lock
-- that the process has claimed and given up is not free for it until the time `looks_away`: the broker may not have
-- heard of the claim yet.
local function may_think_it_has(process, seat, since)
  local socket = process:holder()
  if not process.looks_away or not socket then return false end
  return seat.left_by == socket.connection or since < process.looks_away
end

-- Whether the gate was open and so many seats were free all the time.
local function were_all_free(self, count, since)
  local seats = 0
  each_seat(self, true, function (_, seat)
    if seat.free_since < since then seats = seats + 1 end
  end)
  local gate_since = self.kind.many.seat.free_since
  return gate_since and gate_since < since and seats > count -- the gate is one of these
end

--- A process was told that nothing is free; it has asked since `since`. `count`: for so many at once.
function Watch:was_told_busy(process, wish, since, count)
  if count then
    if not were_all_free(self, count, since) or process.looks_away then return end
    breach("%s was told that %d are not free, and they were all the time", process.name, count)
  end
  each_seat(self, true, function (_, seat)
    local is_told = not seat.tells or seat.tells(wish, since)
    if seat.free_since < since and is_told and not may_think_it_has(process, seat, since) then
      breach("%s was told that nothing is free, and %s was all the time", process.name, seat.name)
    end
  end)
end

--- Suspends the time limit of all waits of this process, and of all fair ones, if `with_fair`: the waiter to which
-- they leave the lock is disconnected or stopped.
function Watch:excuses(process, with_fair)
  for i = #self.waiting, 1, -1 do
    local wait = self.waiting[i]
    if wait.process == process or with_fair and wait.fair then ends(self, wait) end
  end
end

--- For the end of a story: current waits have kept their time limit so far.
function Watch:look()
  each_seat(self, true, look_at_all)
end

-- Deadlines ---------------------------------------------------------------------------------------------------------

local A_TURN = 1e-5
local LATE = 1 -- an acquire whose time was over meanwhile gives back what it has, and has so long for that

local function look_at_deadline(self, promise)
  local process = promise.process
  if process.is_dead or promise.op:done() or promise.only_if and not promise.only_if() then return end
  local due = process.goes_on_at and process.goes_on_at + LATE + A_TURN or 0
  if due > self.world.now then return self.world:at(due, look_at_deadline, self, promise) end
  breach("%s %s for more than %g s", process.name, promise.what, promise.seconds)
end

--- An operation of a process must be done so many seconds from now, plus one turn.
function Watch:promises(process, op, what, seconds, only_if)
  self.world:at(self.world.now + seconds + A_TURN, look_at_deadline, self,
    { process = process, op = op, what = what, seconds = seconds, only_if = only_if })
end

--- A process was told that its time is over, which must be true at that time; nil: never.
function Watch:was_told_over(process, time)
  if time and self.world.now + A_TURN >= time then return end
  breach("%s was told too early that its time is over", process.name)
end

-- Holding -----------------------------------------------------------------------------------------------------------

local function believes(belief) return belief.process:holds(belief.lock) end
local function is_of_group(belief, group) return belief.group == group and belief.is_due end
local function is_of(belief, process) return belief.process == process end
local function is_left(belief, process, lock) return belief.process ~= process or lock and belief.lock ~= lock end

-- The items of the list for which fn(item, a, b) is true.
local function chosen(list, fn, a, b)
  local some = {}
  for _, item in ipairs(list) do
    if fn(item, a, b) then some[#some + 1] = item end
  end
  return some
end

--- Two processes believe to hold it: both are asked, now and whenever one of them has received something.
function Watch:look_at_beliefs(group)
  local beliefs = chosen(self.beliefs, is_of_group, group)
  if not self.kind:clash(beliefs) then return end
  local clash = self.kind:clash(chosen(beliefs, believes))
  if clash then breach("%s", clash) end
end

-- Whether the other process threw its token away, and lined up again only after this one was served. As long as it had
-- that token it could not be served.
local function was_away(other, process)
  local served_at = other.is_anew and process.caller.served_at
  return served_at and other.lined_up_at >= served_at
end

-- A waiter was overtaken if it was in line when this process asked for the line, and has not even been rung since. Of
-- two processes that come together both may be told that nobody waits. Of two that each threw a token away and lined up
-- again, either may be the first.
local function look_at_line(self, process)
  for _, wait in ipairs(self.waiting) do
    local other = wait.process
    local is_before = other.place and process.place and other.place <= process.before
    local are_anew = process.is_anew and other.is_anew
    if is_before and other.caller.unacked == 0 and not are_anew and not was_away(other, process) then
      breach("%s overtook %s", process.name, other.name)
    end
  end
  process.place, process.is_anew = nil, nil
end

-- Whether a process that got one, or several at once, was in the same line, where this one consumes, and has no token
-- yet. Before the gate are only those who want several.
local function may_pass(self, wait, count)
  local is_outside, connection = wait.count and not wait.is_inside, wait.process:connection()
  if is_outside and not count or not connection then return false end
  local queue = self.broker.queues[is_outside and self.kind.many.bell or self.kind.bell]
  for _, consumer in ipairs(queue and queue.consumers or {}) do
    if consumer.channel.connection == connection and consumer.unacked == 0 then return true end
  end
end

-- Where everybody is in line, a process that waits is passed by each other process at most once before its turn. It may
-- be told a little later than the other one. A client that wants several has a turn for each inside the gate.
local function look_at_turns(self, process, count)
  for _, wait in ipairs(self.waiting) do
    if wait.process ~= process and may_pass(self, wait, count) then
      wait.passed[process] = (wait.passed[process] or 0) + 1
      local turns = wait.is_inside and wait.count or 1
      if wait.passed[process] > turns + 1 then
        breach("%s had %d turns while %s waited", process.name, wait.passed[process], wait.process.name)
      end
    end
  end
end

-- A token must be for a seat that is free by then. A holder of several has a token for each.
local function look_at_token(self, queue, connection)
  local held, tokens = self.kind:held_by(connection), 0
  for _, channel in ipairs(held and self.kind.many and connection.channels or {}) do
    for _, entry in ipairs(channel.unacked) do tokens = tokens + (entry.queue == queue and 1 or 0) end
  end
  local is_another = held and self.kind.many and self.kind:count_of(connection) <= tokens
  if held and not is_another then breach("%s gives a token back before %s is free", connection.name, held) end
end

--- From now on locks must be acquired in the order in which waiters came to the doorbell, and a process that got a lock
-- must not give a token back.
function Watch:minds_line(bell)
  local places, asked = 0, setmetatable({}, { __mode = "k" })
  self.has_line = true
  self.broker:on("asked", function (queue, channel)
    if queue.name == bell then asked[channel] = places end
  end)
  self.broker:on("consumed", function (queue, consumer)
    for _, wait in ipairs(queue.name == bell and self.waiting or {}) do
      if wait.process:connection() == consumer.channel.connection then
        places = places + 1
        local process = wait.process
        local place = not wait.count and process.place -- one that wants several comes anew for each
        process.before = place and process.before or asked[consumer.channel] or places - 1
        process.is_anew = place ~= nil and place ~= false
        process.place, process.caller, process.lined_up_at = place or places, consumer, self.world.now
      end
    end
  end)
  self.broker:on("given_back", function (queue, connection)
    if queue.name == bell then look_at_token(self, queue, connection) end
  end)
end

--- A process is being told that it holds a lock, which it may have lost again before it asked.
function Watch:is_told(process, lock)
  if select(3, lock:held()) == "suspect" then
    breach("%s was told that %s is its own without being certain of it", process.name, self.kind:queue_of(lock))
  end
end

-- Fencing tokens grow in the order in which the broker gave the lock to its holders, whenever they are told. Two
-- holders that may hold at one time may have them in any order, but never the same.
local function look_at_number(self, belief)
  local kind, number = self.kind, belief.lock:fence()
  local given = kind:given(belief)
  given.number, given.process, given.group = number, belief.process, belief.group
  given.queue, given.wish = belief.queue, belief.wish
  if not number then breach("%s got %s without a number", belief.process.name, belief.queue) end
  for _, other in ipairs(self.numbers) do
    local is_after = given.birth > other.birth
    if number == other.number and not kind:may_equal(given, other)
      or kind:has_order(given, other) and is_after ~= (number > other.number) then
      breach("%s got %s with the number %d, %s %s with %d", belief.process.name, belief.queue, number,
        is_after and "after" or "before", other.process.name, other.number)
    end
  end
  table.insert(self.numbers, given)
end

--- A lock that a process is about to get may be lost by now; the process is notified at most `news` seconds later, if
-- its connection is not cut off.
function Watch:doubts(process, news)
  self.doubtful[process] = { till = math.max(self.world.now, process:stalled_until()) + news + A_TURN,
    holder = process:holder() }
end

-- Whether the notice of a loss may never reach the process on the connection by which it got the lock.
local function is_unheard(self, process)
  local doubt, holder = self.doubtful[process], process:holder()
  return doubt and holder and doubt.holder == holder and holder.is_cut
end

-- The notice may have come by now; to a process that is stopped it comes when that goes on.
local function look_at_doubted(self, belief)
  local process = belief.process
  if belief.is_doubted and process.is_stopped and not process.is_dead then
    belief.from = process.goes_on_at + A_TURN
    return self.world:at(belief.from, look_at_doubted, self, belief)
  end
  belief.is_due = true
  if is_unheard(self, process) then self:gives(process, belief.lock) end
  self:look_at_beliefs(belief.group)
end

function Watch:passes(process, count)
  if self.has_line and self.kind.many then look_at_turns(self, process, count) end
end

--- A process got a lock, and may have lost it again before it asked.
function Watch:got(process, lock)
  if self.has_line then look_at_line(self, process) end
  self.grants = self.grants + 1
  local kind = self.kind
  self:is_told(process, lock)
  if is_unheard(self, process) or not process:holds(lock) then return end
  local doubt = self.doubtful[process]
  local belief = { process = process, lock = lock, group = kind:group_of(lock), queue = kind:queue_of(lock),
    wish = kind:wish_of(lock), from = math.max(self.world.now, doubt and doubt.till or 0) }
  belief.is_doubted = belief.from > self.world.now
  local wrong = kind:refuses(belief)
  if wrong then breach("%s got %s", process.name, wrong) end
  if self.is_fenced then look_at_number(self, belief) end
  if self.unreleased and self.unreleased.till > self.world.now then
    breach("%s got %s, which settles for %.3f s yet", process.name, belief.queue, self.unreleased.till - self.world.now)
  end
  table.insert(self.beliefs, belief)
  self:note()
  self.world:at(belief.from, look_at_doubted, self, belief)
end

--- It releases the lock, or cannot know (yet) that it was taken away; without a lock: all of its locks.
function Watch:gives(process, lock)
  self.beliefs = chosen(self.beliefs, is_left, process, lock)
  self:note()
end

--- Its locks end without a release. Where locks settle, nobody may have them before they have settled.
function Watch:loses(process, lock)
  local is_there = self.settles and #self.beliefs > #chosen(self.beliefs, is_left, process, lock)
  if is_there then
    self.unreleased = { till = self.world.now + self.settles, connection = process:connection() }
  end
  self:gives(process, lock)
end

--- It releases the lock, also if that was taken away before, and it has not been told.
function Watch:releases(process, lock)
  local unreleased = self.unreleased
  if unreleased and unreleased.connection == process:connection() then self.unreleased = nil end
  self:gives(process, lock)
end

--- A lock becomes another one without being free in between; nil: at any moment from now.
function Watch:turns(lock, wish, queue)
  for _, belief in ipairs(self.beliefs) do
    if belief.lock == lock then
      belief.wish, belief.queue = wish, queue
      self:look_at_beliefs(belief.group)
    end
  end
end

-- A stopped process is notified when it continues, and a delayed one when the network delivers.
local function look_at_loss(self, loss)
  local process = loss.process
  local hears_at = process.is_stopped and process.goes_on_at or process:stalled_until()
  if hears_at > self.world.now then
    return self.world:at(hears_at + loss.news + A_TURN, look_at_loss, self, loss)
  end
  if process:is_cut_off() or not process:holds(loss.lock) then return end
  breach("%s still believes in a lock that it lost %.3f s ago", process.name, loss.news)
end

--- The lock was taken from its holder. The notice takes at most `news` seconds, unless it cannot arrive.
function Watch:robbed(process, lock, news)
  self:loses(process, lock)
  self.world:after(news, look_at_loss, self, { process = process, lock = lock, news = news })
end

function Watch:locks_of(process)
  return chosen(self.beliefs, is_of, process)
end

function Watch:heard(process)
  for i = #self.waiting, 1, -1 do
    local wait = self.waiting[i]
    if wait.process == process and wait.op:done() then ends(self, wait) end
  end
  if #self.beliefs < 2 then return end
  for _, belief in ipairs(self.beliefs) do
    if belief.process == process then self:look_at_beliefs(belief.group) end
  end
end

-- Before 4.3 the end of another queue may have removed the lock's queue record, without notice to its owner. The owner
-- still holds the lock, by the process of the queue and by its bolt. Nobody else may hold it.
local function has_orphan(process, name)
  local connection = process:connection()
  for _, queue in ipairs(connection and connection.exclusive or {}) do
    if queue.is_orphan and queue.name == name then return true end
  end
end

local function note_gone(self, name)
  if self.broker.queues[name] then return end
  for _, belief in ipairs(self.beliefs) do
    if belief.queue == name and self.kind.news then
      self:robbed(belief.process, belief.lock, self.kind.news)
    elseif belief.queue == name and has_orphan(belief.process, name) then
      self.orphaned = self.orphaned + 1
    elseif belief.queue == name and belief.from <= self.world.now and believes(belief) then
      breach("%s is gone while %s is told that it holds it", name, belief.process.name)
    end
  end
end

--- The process that holds the lock of this queue, and has held it all the time since then, though the queue's record
-- was removed; nil: none.
function Watch:robbed_holder(name, since)
  for _, belief in ipairs(self.beliefs) do
    if belief.queue == name and belief.from <= since and believes(belief) and has_orphan(belief.process, name) then
      return belief.process
    end
  end
end

local function note_birth(self, queue)
  if not queue.owner or self.broker.queues[queue.name] ~= queue then return end
  self.birth_count = self.birth_count + 1
  self.births[queue.owner] = self.births[queue.owner] or {}
  self.births[queue.owner][queue.name] = self.birth_count
end

--- When this connection declared the queue: the how manieth of all.
function Watch:birth(connection, name) return self.births[connection] and self.births[connection][name] end

--- Watches locks of a kind. Counts `grants`, and locks that were `orphaned`.
function Watch.new(broker, kind, patience)
  local self = setmetatable({ broker = broker, world = broker.world, kind = kind, patience = patience, waiting = {},
    beliefs = {}, numbers = {}, births = {}, birth_count = 0, doubtful = {}, owners = {},
    grants = 0, orphaned = 0 }, Watch)
  broker:on("changed", function (queue)
    note_birth(self, queue)
    kind:changed(queue)
    self:note(queue)
    note_gone(self, queue.name)
  end)
  return self
end

return Watch
