-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A client of the model broker: a session over bytes, both of its connections, and programs that use it. It connects
-- when it wants to, and may be stopped, killed or cut off. One that has a lender is a part of it, such as a request of
-- an nginx worker's: it has a holder of its own and asks by the lender's prober.
--
--     local process = Process.new(broker, "one", { seed = 1 })
--     process:start(function (self)
--       local lock, message, code = self:finish(self.peer:semaphore("images"):acquire(5))
--       self:sleep(0.1)
--       self:finish(lock:release())
--     end)
--     world:run(10)
local Peer = require "spec.support.peer"

local Process = {}
Process.__index = Process

local unpack = table.unpack or unpack

local ROLES = { "holder", "prober" }

--- `settings` are those of the peer, pace, that of its connections, shared, and lender, another process.
function Process.new(broker, name, settings)
  local world, lender = broker.world, settings.lender
  local self = setmetatable({ broker = broker, world = world, name = name, pace = settings.pace, sockets = {},
    connecting = {}, programs = {}, woke = 0, spins = 0, lender = lender, borrowers = {} }, Process)
  self.peer = Peer.new("whole", { name = name, seed = settings.seed, heartbeat = settings.heartbeat,
    timeout = settings.timeout or 5, shared = settings.shared, lender = lender and lender.peer.core_session })
  self.session, self.core = self.peer.session, self.peer.core_session
  if lender then table.insert(lender.borrowers, self) end
  self:turn()
  return self
end

--- Those that it lends its prober to, the oldest first, in a list that does not change.
function Process:borrower_list()
  return #self.borrowers > 0 and { unpack(self.borrowers) } or self.borrowers
end

-- Connections -------------------------------------------------------------------------------------------------------

-- Whether the session still listens to what is connected.
local function listens(self, role)
  local state = self.core:state(role)
  return state ~= "down" and state ~= "idle"
end

local function arrived(self, role, bytes)
  if self.is_stopped then
    table.insert(self.unread, { role, bytes })
  elseif listens(self, role) then
    self.core:feed(role, bytes)
    self:turn()
  end
end

local function hangs_up(self, role, why)
  if self.is_stopped then
    table.insert(self.unread, { role, nil, why })
  elseif listens(self, role) then
    self.session:down(role, why)
    self:turn()
  end
end

local function connect(self, role)
  if self.is_dead then return end
  local socket
  local function is_current() return not self.is_dead and self.sockets[role] == socket end
  socket = self.broker:connect(
    function (bytes) if is_current() then arrived(self, role, bytes) end end,
    function ()
      if is_current() then hangs_up(self, role, "the broker closed the connection without giving a reason") end
    end,
    self.pace)
  socket.connection.name = self.name .. " " .. role
  self.sockets[role], self.connecting[role] = socket, false
  self.session:attach(role)
  self:turn()
end

-- What was written leaves; connections that are wanted are made, and those that are over are closed.
local function move(self, role)
  local socket, core = self.sockets[role], self.core
  local state, wanted = core:state(role)
  if socket then
    local bytes = core:output(role)
    socket:send(bytes)
    if self.on_sent then self.on_sent(bytes) end
    if state == "down" or state == "idle" then
      socket:close()
      self.sockets[role] = nil
    end
  end
  if wanted and not self.sockets[role] and not self.connecting[role] then
    self.connecting[role] = true
    self.world:after(2 * (self.pace or self.broker.laws.pace).most, connect, self, role)
  end
end

-- Turns -------------------------------------------------------------------------------------------------------------

-- A session that wants one turn after the other, and does nothing with them, keeps its processor busy for ever.
local function look_at_pace(self)
  local is_at_once = self.world.now - self.woke < 3e-6
  self.woke, self.spins = self.world.now, is_at_once and self.spins + 1 or 0
  if self.spins > 1000 then error({ breach = self.name .. " spins" }, 0) end
end

local function wake(self)
  self.waking = nil
  look_at_pace(self)
  self:turn()
end

local function wake_in(self, seconds)
  if seconds > 3600 then return end
  local time = self.world.now + math.max(seconds, 1e-6)
  if self.waking then
    if self.world:time_of(self.waking) <= time then return end
    self.world:cancel(self.waking)
  end
  self.waking = self.world:timer(time, wake, self)
end

local function resume(self, program)
  program.waits_for = nil
  local fine, err = coroutine.resume(program.thread, self)
  if not fine then
    error(type(err) == "string" and debug.traceback(program.thread, self.name .. ": " .. err) or err, 0)
  end
  return coroutine.status(program.thread) == "dead"
end

-- A program that waits for what is done by now goes on. True if there was one.
local function resume_some(self)
  for i, program in ipairs(self.programs) do
    local waits_for = program.waits_for
    if waits_for and waits_for:done() then
      local is_over = resume(self, program)
      if is_over and not self.is_dead then table.remove(self.programs, i) end
      return true
    end
  end
end

local function is_ready(self)
  for _, program in ipairs(self.programs) do
    if program.waits_for and program.waits_for:done() then return true end
  end
end

-- `began`: when it looked at the clock, if it was stopped since, and before it has read.
local function tick(self, began)
  local now, peer = self.world.now, self.peer
  peer.now = began or now
  local seconds = self.core:tick(peer.now, peer:wall(), now) - now
  peer.now = now
  if self.is_stopped then return end
  move(self, "holder")
  if self.lender then
    if not self.lender.is_stopped then move(self.lender, "prober") end
  else
    move(self, "prober")
  end
  wake_in(self, seconds)
end

-- What came for one may have moved those that ask by the same prober.
local function turn_borrowers(self)
  for _, borrower in ipairs(self:borrower_list()) do borrower:turn() end
end

--- Everything moves along, as far as it does without time passing.
function Process:turn()
  if self.is_dead or self.is_stopped then return end
  repeat
    tick(self)
  until self.is_dead or not resume_some(self)
  if self.on_turn and not self.is_dead then self.on_turn(self) end
  turn_borrowers(self)
end

-- Programs ----------------------------------------------------------------------------------------------------------

local NOTHING = { done = function () return true end }

--- Begins a program: a function that may call finish() and sleep().
function Process:start(fn)
  table.insert(self.programs, { thread = coroutine.create(fn), waits_for = NOTHING })
  self.world:after(0, self.turn, self)
end

local function this_program(self)
  local thread = coroutine.running()
  for _, program in ipairs(self.programs) do
    if program.thread == thread then return program end
  end
end

--- For programs: waits for an operation. Gives its result, or nil, message, code.
function Process:finish(op)
  this_program(self).waits_for = op
  coroutine.yield()
  return self.peer:keep(op:result())
end

--- For programs: time passes, or less if an operation is done before.
function Process:sleep(seconds, op)
  local wakes_at = self.world.now + seconds
  this_program(self).waits_for = { done = function () return self.world.now >= wakes_at or op and op:done() end }
  self.world:at(wakes_at, self.turn, self)
  coroutine.yield()
end

--- For programs: what they hold on to, an operation or a lock, even if they forget it.
function Process:keep(thing)
  return self.peer:keep(thing)
end

function Process:note(...)
  self.world:note(self.name, ...)
end

-- Bad days ----------------------------------------------------------------------------------------------------------

--- It is killed: what it wrote arrives, or is lost on the way; the broker sees its connections end.
function Process:kill(loses_what_it_wrote)
  self:note("is killed")
  for _, borrower in ipairs(self:borrower_list()) do borrower:kill(loses_what_it_wrote) end
  self.is_dead = true
  for _, role in ipairs(ROLES) do
    local socket = self.sockets[role]
    if socket and loses_what_it_wrote then socket:reset() elseif socket then socket:close() end
  end
  self:bury()
end

--- It stops in the middle of everything, as by SIGSTOP, for so many seconds; if `has_begun`, when it has just looked at
-- the clock, and is about to read. Those that ask by its prober are parts of it: they stop, and go on behind it.
function Process:stop(seconds, has_begun)
  if self.is_dead or self.is_stopped then return end
  self:note("is stopped for %g s%s", seconds, has_begun and ", about to read" or "")
  self.is_stopped, self.unread, self.goes_on_at = true, {}, self.world.now + seconds
  self.began = has_begun and self.world.now or nil
  self.world:after(seconds, function () self:continue() end)
  for _, borrower in ipairs(self.borrowers) do borrower:stop(seconds) end
end

function Process:continue()
  if self.is_dead then return end
  self:note("goes on")
  self.is_stopped = false
  local unread = self.unread
  for _, event in ipairs(unread) do
    local role, bytes, why = event[1], event[2], event[3]
    if self.sockets[role] and listens(self, role) then
      if bytes then self.session:feed(role, bytes) else self.session:down(role, why) end
    end
  end
  if self.began then tick(self, self.began) end
  self:turn()
end

--- A connection is reset somewhere between: both ends hear of it.
function Process:lose(role)
  if role == "prober" and self.lender then return self.lender:lose(role) end
  local socket = self.sockets[role]
  if not socket or self.is_dead then return end
  self:note("loses its %s connection", role)
  socket:reset()
  hangs_up(self, role, "connection reset by peer")
end

--- The network swallows everything from now on, "up" to the broker, "down" from it, or "both", and nobody hears of it.
function Process:cut(role, direction)
  if role == "prober" and self.lender then return self.lender:cut(role, direction) end
  if not self.sockets[role] or self.is_dead then return end
  self:note("is cut off: %s, %s", role, direction)
  self.sockets[role].is_cut = true
  self.sockets[role]:cut(direction)
end

--- The network keeps everything back for so many seconds, "up" to the broker, "down" from it, or "both".
function Process:stall(role, direction, seconds)
  if role == "prober" and self.lender then return self.lender:stall(role, direction, seconds) end
  local socket = self.sockets[role]
  if not socket or self.is_dead then return end
  self:note("is kept waiting for %g s: %s, %s", seconds, role, direction)
  socket.stalled_until = math.max(socket.stalled_until or 0, self.world.now + seconds)
  socket:stall(direction, seconds)
end

--- Its connections, the holder and the prober, as far as there are any.
function Process:both_sockets()
  return self.sockets.holder, (self.lender or self).sockets.prober
end

-- What was kept back is here so soon after.
local AFTERWARDS = 1

--- Until when the network keeps something back; 0 if it does not.
function Process:stalled_until()
  local holder, prober = self:both_sockets()
  local time = math.max(holder and holder.stalled_until or 0, prober and prober.stalled_until or 0)
  return time > 0 and time + AFTERWARDS or 0
end

--- Whether one of its connections is cut off, or kept waiting.
function Process:is_cut_off()
  local holder, prober = self:both_sockets()
  return holder and holder.is_cut or prober and prober.is_cut or self:stalled_until() > self.world.now
end

--- What its program would be told if it asked lock:held() now; a stopped one's, if that were its first word.
function Process:holds(lock)
  if self.is_dead then return false end
  (self.lender or self).began = nil -- so much for having begun: time does not go back
  tick(self)
  if is_ready(self) and not self.is_stopped then self.world:after(0, self.turn, self) end
  local is_there, held = pcall(lock.held, lock)  -- it may have been dropped
  return is_there and held
end

local function leave_lender(self)
  local borrowers = self.lender.borrowers
  for i = #borrowers, 1, -1 do
    if borrowers[i] == self then table.remove(borrowers, i) end
  end
end

--- Its memory is given back. It is of no more use.
function Process:bury()
  self.is_dead = true
  if self.lender then leave_lender(self) end
  self.session:abort()
  self.programs = {}
end

return Process
