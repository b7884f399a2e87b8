-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A story: a few processes that want locks of one kind (see kinds/), and what befalls them, all decided by one seed.
--
--     local crowd = Crowd.new(seed, { troubles = { "death", "alarm" } })
--     crowd:play()                                   -- throws when something was not as it must be
--
-- Every member goes through some rounds of waiting, holding and letting go, each in one of the ways there are. Troubles
-- come in between. In the end nobody wants anything any more, and nothing may be left.
local Broker = require "spec.support.model.broker"
local Process = require "spec.support.model.process"
local Watch = require "spec.support.model.watch"
local Wire = require "spec.support.model.wire"
local World = require "spec.support.model.world"

local Crowd = {}
Crowd.__index = Crowd

local SECONDS = 600  -- no story is longer

local PACES = {
  { least = 0.00005, most = 0.0003, spike = 0.002, spikes = 0.02 },  -- one machine
  { least = 0.0005, most = 0.001, spike = 0.02, spikes = 0.05 },     -- one house
  { least = 0.00005, most = 0.005, spike = 0.005, spikes = 0 },      -- anything goes
  { least = 0.02, most = 0.03, spike = 0.2, spikes = 0.02 },         -- another continent
}

Crowd.near = { PACES[1], PACES[3] }
Crowd.far = { { least = 0.1, most = 0.3, spike = 0.3, spikes = 0 } }
Crowd.bad = { PACES[1], PACES[4], { least = 0.001, most = 0.01, spike = 0.3, spikes = 0.2 } }

local function breach(...)
  error({ breach = string.format(...) }, 0)
end

-- A connection's timeout: every answer must be here by then. It is also what an operation gets that has no other limit,
-- once for each of its exchanges, of which there is one, or so many as are given.
local TIMEOUT = 5
local ADMIN = 30

-- How long anything takes -------------------------------------------------------------------------------------------

-- The longest that a round trip can take, and what is made of round trips.
local function round_trip(self)
  local laws = self.broker.laws
  local settled = laws.nodes > 1 and laws.settled or 0
  local inner = 2 * laws.inner + laws.birth + math.max(laws.confirm, laws.consume_ok)
  return 2 * Wire.longest(self.pace) + inner + laws.stale + settled
end

--- How long a waiter may sleep beside a free lock, at worst: until its next look, or, if the prober was lost, until it
-- has another; four looks, in the time that it leaves the slot to others; a ring, and the look of the one who hears it;
-- and up to eight races lost, after a look for squatters. While all goes well everybody is rung: who has a token looks
-- every tenth of a second.
function Crowd:patience()
  local trip = round_trip(self)
  local look, claim, skew, squatters = trip, trip, 0.01, 2 * trip
  local reconnecting, grace, ring = 0.5 + 5 * trip, 0.1, trip
  if self.options.is_silenced then look = look + TIMEOUT end
  local pause = self.options.is_rung and trip + 0.1 or self.poll + reconnecting
  if self.options.is_dead then pause = pause + math.min(self.poll, TIMEOUT) end -- at a bell asked for just then
  return pause + 4 * look + grace + ring + 8 * (look + claim + skew) + squatters
end

-- Members -----------------------------------------------------------------------------------------------------------

local LETTING_GO = { "release", "release", "release", "drop", "verify" }

-- What a failure may be called, and the troubles of which one must be among the story's for that. What is not here is
-- always a defect.
local CODES = {
  timeout = true, busy = true, contended = true, deadlock = true,
  unreachable = { "lost holder", "lost prober", "cut off", "stopped", "stall", "restart", "stopping", "death",
    "dies claiming" },
  lost = { "lost holder", "cut off", "stopped", "stall", "restart", "stopping", "robbed", "too long", "destroy",
    "death", "dies claiming", "requests" }, -- the last three: as before 4.3, by another's end
  suspect = { "lost holder", "cut off", "stopped", "stall", "restart", "stopping" },
  not_found = { "destroy", "nodes" },
  exists = { "inquiry" },
  removed = { "resize" },
  conflict = { "resize", "surplus", "rubbish" },
  unavailable = { "slot down", "resize", "destroy", "restart", "stopping" },
  refused = { "denied" },
  blocked = { "alarm" },
  closed = { "requests" },
}

-- The codes that the story's troubles, its nodes that are behind and its requests can bring about.
local function codes_of(options)
  local happens, codes = { nodes = options.nodes, requests = options.requests }, {}
  for _, trouble in ipairs(options.troubles or {}) do happens[trouble] = true end
  for code, causes in pairs(CODES) do
    codes[code] = causes == true
    for _, cause in ipairs(causes ~= true and causes or {}) do codes[code] = codes[code] or happens[cause] end
  end
  return codes
end

-- Whoever asks by the same connection as soon as somebody has asked for a silent queue has next to no time left when
-- that question is given up, and its channel with it.
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
  self.watch:gives(process, lock)
  if how == "drop" then
    process.looks_away = true
    return lock:drop()
  end
  local own, connection = self.broker.queues[queue], process.sockets.holder and process.sockets.holder.connection
  local released = finish(self, process, lock:release(), "releases", TIMEOUT)
  if released and own and own.owner == connection and self.broker.queues[queue] == own then
    breach("%s is released and still there", queue)
  end
end

-- With all that belong to the same worker.
local function excuse(self, process)
  local worker = process.lender or process
  self.watch:excuses(worker)
  for _, borrower in ipairs(worker.borrowers) do self.watch:excuses(borrower) end
  self.watch:excuses_fair()
end

-- It is stopped in the middle of what it does, for about as long as the broker waits.
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

local function hold(self, process, lock)
  process:note("holds %s", self.kind:queue_of(lock))
  self.watch:got(process, lock)
  process:sleep(self.random:between(0, self.hold))
  if self.kind:wish_of(lock) == "write" and self.random:chance(self.options.downgrades or 0) then
    downgrade(self, process, lock)
    process:sleep(self.random:between(0, self.hold))
  end
  let_go(self, process, lock)
end

-- Who asks while nothing can be answered hears of that: connecting takes a timeout, and asking another one. So it is
-- for as long as neither connection is another.
local function promise_answer(self, process, op)
  local seconds, holder, prober = 2 * TIMEOUT, process:both_sockets()
  local ends = holder and prober and math.min(holder.stalled_until or 0, prober.stalled_until or 0) or 0
  if ends < self.world.now + seconds + 1 then return end
  self.watch:promises(process, op, "waits for an answer", seconds, function ()
    local holder_now, prober_now = process:both_sockets()
    return holder_now == holder and prober_now == prober
  end)
end

local function promise(self, process, op, timeout)
  if not timeout then return promise_answer(self, process, op) end
  local seconds = timeout > 0 and timeout or 6 * TIMEOUT
  self.watch:promises(process, op, timeout > 0 and "waits" or "tries", seconds)
end

-- Whether there is somebody who is not heard of, and may be first in line: who is fair leaves a free lock to him.
local function is_anybody_away(self)
  for _, process in ipairs(self.processes) do
    if not process.is_dead and (process.is_stopped or process:is_cut_off()) then return true end
  end
end

local WAITING = { "for long", "for long", "a while", "at once", "and gives up" }

-- One round of a member: waits in one of several ways, and holds what it gets.
local function round(self, process)
  local how, began = self.random:pick(self.options.waiting or WAITING), self.world.now
  local timeout = how == "a while" and self.random:between(0, 2 * self.hold) or how == "at once" and 0 or nil
  local wish = self.kind:wish()
  process:note("wants a %s, waits %s", wish, how)
  local fair, priority = self.random:chance(self.fair), self.random:pick(self.priorities)
  local op = process:keep(self.kind:ask(process, wish, timeout, fair, priority, self.poll))
  promise(self, process, op, timeout)
  local was_cut_off = process:is_cut_off()
  local may_be_left = was_cut_off or fair and is_anybody_away(self)
  if how ~= "at once" and not may_be_left then self.watch:waits(process, op, wish, fair) end
  if how == "and gives up" then
    process:sleep(self.random:between(0, self.hold), op)
    if not op:done() then
      process:note("gives up")
      self.watch:gives_up(op)
      process.looks_away = true
      op:drop()
      return
    end
  end
  local lock, message, code = finish(self, process, op)
  if lock then return hold(self, process, lock) end
  process:note("got nothing: %s", message)
  if code == "timeout" then
    process.looks_away = true  -- from what it may just have claimed
    self.watch:was_told_over(process, timeout and began + timeout)
  end
  -- What another program on its connection claims is not free for it, nor what it claims itself, and the broker has yet
  -- to hear of.
  if code == "busy" and not fair and not self.options.programs and not was_cut_off then
    self.watch:was_told_busy(process, wish, began - self.broker.laws.stale)
  end
end

-- A round of a request's own, which ends in the middle of it, or after it, with a word to the broker or without.
local function serve(self, process)
  local request = Process.new(self.broker, ("%s.%d"):format(process.name, self.births),
    { seed = self.random:below(1000000), heartbeat = self.heartbeat, pace = self.pace, lender = process })
  self.births = self.births + 1
  process.request = request
  table.insert(self.processes, request)
  request.on_turn = function () self.watch:heard(request) end
  local is_over
  request:start(function ()
    round(self, request)
    if self.random:chance(0.3) then finish(self, request, request.session:close(), "closes", TIMEOUT) end
    is_over = true
    self.world:after(0, process.turn, process)
  end)
  local breaks_off = self.random:chance(0.3) and self.random:between(0, 2 * self.hold) or SECONDS
  process:sleep(breaks_off, { done = function () return is_over end })
  if request.is_dead then return end
  self.watch:gives(request)
  self.watch:excuses(request)
  request:kill(false)
end

local function live(self, member)
  local once = self.options.requests and serve or round
  return function (process)
    while member.rounds > 0 do
      member.rounds = member.rounds - 1
      process:sleep(self.random:between(0, self.idle))
      while self.broker.is_down and self.random:chance(0.8) do process:sleep(self.random:between(0, 1)) end
      once(self, process)
    end
    process:note("wants nothing any more")
    member.busy = member.busy - 1
  end
end

-- Has another lock on the connection all the while, which must not be lost by what becomes of permits.
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
  local process = Process.new(self.broker, ("%s%d"):format(member.name, member.lives),
    { seed = self.random:below(1000000), heartbeat = self.heartbeat, pace = self.pace, shared = self.options.shares })
  member.lives = member.lives + 1
  member.process, process.member = process, member
  process.on_turn = function () self.watch:heard(process) end
  table.insert(self.processes, process)
  member.busy = self.options.programs or 1
  for _ = 1, member.busy do process:start(live(self, member)) end
  if self.options.beside then process:start(hold_beside(member)) end
end

-- A dead member's rounds go on in another process.
local function begin_again(self, member)
  self.world:after(self.random:between(0, self.idle), begin, self, member)
end

-- Troubles ----------------------------------------------------------------------------------------------------------

local function anybody(self) return self.random:pick(self.members) end

-- Who holds and waits, in the place of a member: its process, or a request of it.
local function somebody(self)
  local process = anybody(self).process
  local request = process.request
  return request and not request.is_dead and request or process
end

local troubles = {}
Crowd.troubles = troubles

local function kill(self, process, loses_what_it_wrote)
  if process.is_dead or process.member.busy == 0 then return end
  for _, borrower in ipairs(process.borrowers) do
    self.watch:gives(borrower)
    self.watch:excuses(borrower)
  end
  self.watch:gives(process)
  self.watch:excuses(process)
  process:kill(loses_what_it_wrote)
  begin_again(self, process.member)
end

function troubles.death(self) kill(self, anybody(self).process, self.random:chance(0.5)) end

-- The next claim that it writes is its last word.
troubles["dies claiming"] = function (self)
  local process = anybody(self).process
  process.on_sent = function (bytes)
    if not bytes:find("x-amqplocks-ticket", 1, true) then return end
    process.on_sent = nil
    self.world:after(0, kill, self, process, false)
  end
end

-- The locks are lost with the holder, and the news takes its time; the wait ends with it.
troubles["lost holder"] = function (self)
  local process = somebody(self)
  self.watch:excuses(process)
  for _, belief in ipairs(self.watch:locks_of(process)) do
    self.watch:robbed(process, belief.lock, Wire.longest(self.pace))
  end
  process:lose("holder")
end

-- An operator deletes the queue that is somebody's lock, and not another's by now.
troubles["robbed"] = function (self)
  local process, laws = somebody(self), self.broker.laws
  local holder = process.sockets.holder
  for _, belief in ipairs(self.watch:locks_of(process)) do
    local queue = self.broker.queues[belief.queue]
    if queue and holder and queue.owner == holder.connection then
      process:note("is robbed of %s", belief.queue)
      self.watch:robbed(process, belief.lock, laws.notice + laws.inner + Wire.longest(self.pace) + 1e-6)
      self.broker:delete(belief.queue)
    end
  end
end

-- A bolt, which stands for as long as nobody has used it for ten seconds.
local function is_bolt(name) return name:find("%-bolt$") end

-- An operator deletes a bolt. Nobody's lock is lost by that alone.
troubles["no bolt"] = function (self)
  local bolts = {}
  for _, name in ipairs(self.broker:names_of_queues()) do
    if is_bolt(name) then table.insert(bolts, name) end
  end
  if #bolts > 0 then self.broker:delete(self.random:pick(bolts)) end
end

troubles["lost prober"] = function (self)
  somebody(self):lose("prober")
end

-- Nobody hears of it. The lock's certainty must end before the broker lets another one in.
troubles["cut off"] = function (self)
  local process = somebody(self)
  excuse(self, process)
  local direction = self.random:pick{ "up", "down", "both", "both" }
  local which = self.random:pick{ "holder", "prober", "both" }
  if which ~= "prober" then process:cut("holder", direction) end
  if which ~= "holder" then process:cut("prober", direction) end
end

-- The network keeps everything back for a while, and nobody hears of it.
troubles["stall"] = function (self)
  local process = somebody(self)
  excuse(self, process)
  local direction, seconds = self.random:pick{ "up", "down", "both" }, self.random:between(0, self.random:pick{ 2, 60 })
  local which = self.random:pick{ "holder", "prober", "both", "both" }
  if which ~= "prober" then process:stall("holder", direction, seconds) end
  if which ~= "holder" then process:stall("prober", direction, seconds) end
end

-- It has no processor for a few round trips.
troubles["hiccup"] = function (self)
  anybody(self).process:stop(self.random:between(0, 10 * round_trip(self)))
end

-- SIGSTOP, for longer than the broker waits, or less.
troubles["stopped"] = function (self)
  local process = somebody(self)
  local worker = process.lender or process
  if worker.is_stopped then return end
  excuse(self, worker)
  worker:stop(self.random:between(0, self.random:pick{ 0.1, 4 * self.heartbeat }), self.random:chance(0.5))
end

function troubles.alarm(self)
  if self.broker.has_alarm then return end
  self.broker:alarm(true)
  self.world:after(self.random:between(0, 2 * self.hold), function () self.broker:alarm(false) end)
end

-- A queue that nobody here wants does not answer for a while, and somebody asks for it by the connections that he has.
-- All others are to be answered.
local SILENT, SILENT_SLOT = "silent", "silent-1-A"

local function be_silent(self, seconds)
  local broker = self.broker
  if not broker.queues[SILENT_SLOT] then broker:declare(SILENT_SLOT, { durable = true }) end
  self.silent_until = self.world.now + seconds
  broker:silence(SILENT_SLOT, true)
  self.world:after(seconds, broker.silence, broker, SILENT_SLOT, false)
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

-- The node that the bell is on is killed, and comes back.
troubles["dead bell"] = function (self)
  local broker, bell = self.broker, self.kind.bell
  local queue = broker.queues[bell]
  if not queue or queue.is_dead then return end
  broker:kill(bell)
  self.world:after(self.random:between(0, self.random:pick{ 2, 10, 60 }), broker.revive, broker, bell)
end

-- They lose the permission to consume for a while: what they have declared by then would stay, with nobody's consumer.
function troubles.denied(self)
  if self.broker.denies then return end
  self.broker:deny(true)
  self.world:after(self.random:between(0, 2 * self.hold), function () self.broker:deny(false) end)
end

-- The node of a slot's queue is down for a while: the slot is there, and cannot be had, nor taken away.
troubles["slot down"] = function (self)
  local name = self.kind:slot_queue()
  self.broker:put_down(name, self.random:pick{ "refused", "returned" })
  self.watch:note()
  self.world:after(self.random:between(0, 2 * self.hold), function ()
    self.broker:put_down(name, nil)
    self.watch:note()
  end)
end

-- Somebody who holds a lock in a way of his own.
function troubles.stranger(self)
  local over = self.kind:intrude()
  if over then self.world:after(self.random:between(0, self.hold), over) end
end

-- The doorbell: it may be off by any number, gone, new, or full of other things. None of that may matter for long.
function troubles.purge(self) self.broker:purge(self.kind.bell) end

function troubles.surplus(self) self.kind:ring(self.random:below(5)) end

function troubles.rubbish(self) self.broker:put(self.kind.bell, self.random:below(5)) end

troubles["no bell"] = function (self) self.broker:delete(self.kind.bell) end

troubles["new bell"] = function (self)
  if self.broker.queues[self.kind.bell] then self.broker:delete(self.kind.bell) end
  self.kind:make_bell()
end

local function administer(self, admin, what, op, wait)
  return finish(self, admin, op, what, ADMIN + wait)
end

-- Another administrator asks how things are, while whatever happens does.
function troubles.inquiry(self)
  local asker = self.asker
  if not asker or asker.is_dead then
    asker = Process.new(self.broker, "asker", { seed = self.random:below(1000000), pace = self.pace,
      heartbeat = self.heartbeat })
    self.asker = asker
    table.insert(self.processes, asker)
  end
  if asker.is_busy then return end
  asker.is_busy = true
  asker:start(function ()
    local op, look = self.kind:inquire(asker)
    local answer, more = finish(self, asker, op, "asks", ADMIN)
    local flaw = answer and look(answer, more)
    if flaw then breach("an administrator was told what is wrong: %s", flaw) end
    self.inquiries = self.inquiries + (answer and 1 or 0)
    asker.is_busy = false
  end)
end

-- An administrator destroys everything, under those who hold and those who wait, and makes it anew.
function troubles.destroy(self)
  local admin = self.admin
  if admin.is_busy then return end
  admin.is_busy = true
  admin:note("destroys it")
  admin:start(function ()
    if administer(self, admin, "destroys", self.kind:destroy(admin)) then
      admin:sleep(self.random:between(0, self.hold))
      assert(admin:finish(self.kind:create(admin)))
    end
    admin.is_busy = false
  end)
end

-- All that anybody has is taken from him, and he hears of it so many seconds later at most.
local function rob_all(self, news)
  news = news + Wire.longest(self.pace) + 1e-6
  for _, process in ipairs(self.processes) do
    for _, belief in ipairs(self.watch:locks_of(process)) do self.watch:robbed(process, belief.lock, news) end
    self.watch:doubts(process, news)
  end
end

-- The broker closes the channels of those who hold a permit: for them it was too long.
troubles["too long"] = function (self)
  rob_all(self, self.broker.laws.inner)
  self.broker:time_out(self.kind.bell)
end

-- Who has a token too long loses its channel at the bell, and nothing else.
troubles["consumer timeout"] = function (self) self.broker:time_out(self.kind.bell) end

-- The broker is gone for a while, and nothing is left but what lasts.
function troubles.restart(self)
  for _, process in ipairs(self.processes) do self.watch:excuses(process) end
  rob_all(self, 0)
  self.broker:stop(self.random:chance(0.5))
  self.world:after(self.random:between(0, self.random:pick{ 0.1, 5 }), function () self.broker:start() end)
end

-- It is told to stop, and serves everybody for a while before it does.
function troubles.stopping(self)
  if self.broker.is_stopping then return end
  local seconds = self.random:between(0, self.random:pick{ 0.5, 5 })
  self.restarted_by = self.world.now + seconds + 5
  self.broker:begin_to_stop()
  self.world:after(seconds, troubles.restart, self)
end

local function next_admin(self)
  self.admin = Process.new(self.broker, "next admin", { seed = self.random:below(1000000), pace = self.pace,
    heartbeat = self.heartbeat })
  table.insert(self.processes, self.admin)
end

-- What was acknowledged may be undone by a channel or a connection that ends too soon: in a cluster only.
local function look_once_more(self, admin, look)
  local laws = self.broker.laws
  if laws.nodes == 1 then return end
  if self.random:chance(0.3) then
    finish(self, admin, admin.session:close(), "closes", TIMEOUT)
    admin.has_left = true
    next_admin(self)
    self.admin.is_busy = true
  end
  admin:sleep(laws.settled + laws.down)
  look()
  self.admin.is_busy = false -- who has come in between may begin
end

-- An administrator changes the number of slots, and sometimes dies of it; the next one finishes the work.
function troubles.resize(self)
  if self.admin.is_busy then return end
  self.admin.is_busy = true
  local slots, last = self.random:below(self.slots + 2), self.admin
  last:note("resizes to %d", slots)
  last:start(function ()
    local asked_at, before = self.world.now, self.slots
    local op, wait = self.kind:resize(last, slots)
    if administer(self, last, "resizes", op, wait) then
      local waited_for = wait > 0 and slots < before and not self.is_half_done and before
      local function look()
        local flaw = self.kind:undone(slots, asked_at, waited_for)
        if flaw then breach("%s resized to %d: %s", last.name, slots, flaw) end
      end
      look()
      self.slots = slots
      look_once_more(self, last, look)
    end
    self.is_half_done = self.slots ~= slots  -- what is taken away by then is waited for by nobody
    last.is_busy = false
  end)
  if not self.random:chance(0.2) then return end
  self.world:after(self.random:between(0, 10 * round_trip(self)), function ()
    if last.is_dead or last.has_left or self.is_over then return end
    last:kill(true)
    self.is_half_done = true  -- it may be, or done
    next_admin(self)
    self.admin.is_busy = true
    self.admin:start(function (admin)
      while not administer(self, admin, "repairs", self.kind:repair(admin)) do admin:sleep(1) end
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
      if not self.is_over and not self.broker.is_down then troubles[trouble](self) end
    end)
  end
end

-- The story ---------------------------------------------------------------------------------------------------------

--- A story by its seed. `options`, all of them optional:
--   kind                of lock: "semaphore" (the default), or another of kinds/
--   troubles, count     the kinds of trouble that may come, none without; how many come
--   workers, slots, rounds, programs   how many of each; programs are those in each worker, which share a session
--   shares, requests    whether they do so knowing nothing of each other; whether every round is a request's, which has
--                       a session of its own that ends with it, and asks by the worker's prober
--   waiting, letting_go, priorities    to choose from
--   fair, deaf          the share of fair ones, and of those that do without the doorbell
--   writers, downgrades the share of those that want to write, and of writers that become readers
--   hold                the longest that a lock is held, in seconds
--   poll, is_rung       how often to look without being rung, and whether nobody should have to
--   is_used             whether somebody had it before, and has just left
--   in_line             whether those who came first must be served first
--   loses_tokens        whether fewer tokens than slots may be left
--   spare               how many tokens more than slots may be left; any number, if not given
--   mends, surplus      whether an administrator repairs it in the end, and whether there may be too many permits
--   notice              how late at most one may hear that a queue is gone that one consumes from, in seconds
--   inner, lags         how long the broker may be busy with one thing, in seconds, and how often, to choose from
--   nodes, stale        how many the broker has; how late one may see what was changed through another, in seconds
--   version             of the broker, before 4.3 or not: of either, if not given
--   channels            how many may be open in the end on a connection
--   heartbeat, paces    of the connections, and of the network to choose from
function Crowd.new(seed, options, traced)
  local world = World.new(seed, traced)
  local random = world.random:fork()
  local self = setmetatable({ seed = seed, options = options, world = world, random = random, members = {},
    processes = {}, births = 0, inquiries = 0, silent_until = 0, restarted_by = 0, codes = codes_of(options),
    slots = options.slots or 3,
    rounds = options.rounds or 3,
    heartbeat = options.heartbeat or 60, priorities = options.priorities or { 0, 0, 0, 1, -1 } }, Crowd)
  self.pace = random:pick(options.paces or PACES)
  self.broker = Broker.new(world, { strict = true, pace = self.pace,
    lags = random:pick(options.lags or { 0, 0.1, 0.5 }), closes_late = random:chance(0.5),
    version = options.version or random:pick{ "3.10.8", "4.3.0" },
    by_name = true,
    notice = options.notice, inner = options.inner, nodes = options.nodes, stale = options.stale })
  self.poll, self.fair = random:pick{ 0.2, 1, 5 }, random:pick{ 0, 0, 0.5, 1 }
  self.hold, self.idle = random:pick{ 0.01, 0.2, 2 }, random:pick{ 0, 0.1, 1 }
  self.fair, self.poll = options.fair or self.fair, options.poll or self.poll
  self.hold = options.hold or self.hold
  self.kind = require("spec.support.model.kinds." .. (options.kind or "semaphore")).new(self)
  self.watch = Watch.new(self.broker, self.kind, self:patience())
  if options.in_line then self.watch:minds_line(self.kind.bell) end
  return self
end

local function run(self, what, seconds, done)
  if not self.world:run(seconds, done) then
    self.watch:look()
    breach("%s: it never was so", what)
  end
end

local function create(self)
  local created
  local admin = Process.new(self.broker, "admin", { seed = 1, heartbeat = 60, pace = self.pace })
  table.insert(self.processes, admin)
  self.admin = admin
  admin:start(function ()
    if self.kind.create then assert(admin:finish(self.kind:create(admin))) end
    created = true
  end)
  run(self, "what is wanted is there", 60, function () return created end)
end

-- It is asked at every step, and mostly the same one is busy as before.
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

-- Nothing of it may be left: no claim, no consumer, no message in anybody's hands, nothing but what was made to stay.
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

-- Channels are used again: sixteen are kept for that, as whoever may not publish asks on many at a time. Who has been
-- through many rounds has no more of them open, and for each program a claim, a place at the doorbell, and the next.
local function look_for_channels(self)
  local most = self.options.channels or 16 + 4 * (self.options.programs or 1)
  for _, connection in ipairs(self.broker.connections) do
    local count = #connection.channels
    self.most_channels = math.max(self.most_channels or 0, count)
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

-- What an operator or a dead administrator left behind is put right, now that nobody holds anything.
local function mend(self)
  local admin, mended = self.admin, nil
  admin:start(function ()
    assert(admin:finish(self.kind:repair(admin)))
    mended = true
  end)
  run(self, "it is repaired", 120, function () return mended end)
  self.world:run(self.broker.laws.settled) -- what was given back is there
end

-- For how long the network will keep something back, a queue not answer, or the broker not be there again.
local function still_stalled(self)
  local time = math.max(0, self.silent_until - self.world.now, self.restarted_by - self.world.now)
  for _, process in ipairs(self.processes) do
    if not process.is_dead then time = math.max(time, process:stalled_until() - self.world.now) end
  end
  return time
end

local function tell(self)
  create(self)
  for i = 1, self.options.workers or 5 do
    local member = { name = ("abcdefghij"):sub(i, i), lives = 1,
      rounds = self.rounds * (self.options.programs or 1) }
    table.insert(self.members, member)
    begin(self, member)
  end
  plan(self)
  run(self, "everybody is done", SECONDS, function () return all_done(self) end)
  self.is_over = true
  self.watch:look()
  self.world:run(math.max(2 * self.heartbeat >= 60 and 5 or 6 * self.heartbeat, 5 + still_stalled(self)))
  look_for_leftovers(self, "when nobody wants anything any more")
  look_for_channels(self)
  if self.options.mends then mend(self) end
  local flaw = self.kind:flaw()
  if flaw then breach("%s", flaw) end
  close_all(self)
  look_for_leftovers(self, "when everybody is gone")
end

--- Plays it. Throws what was wrong, as text.
function Crowd:play()
  local fine, err = xpcall(function () tell(self) end, function (err)
    return type(err) == "table" and err.breach or debug.traceback(tostring(err), 2)
  end)
  for _, process in ipairs(self.processes) do process:bury() end
  if not fine then error(err, 0) end
end

return Crowd
