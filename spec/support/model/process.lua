-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A client of the model broker: a session over bytes, its connections (holder, prober, and those of fences), and
-- programs that use it. It connects when the session wants a connection. It may be stopped, killed or cut off.
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

local ROLES = { "holder", "prober", "fence", "maker", "quorum" }

--- `settings`: those of the peer; pace, of its connections; shared.
function Process.new(broker, name, settings)
  local world = broker.world
  local self = setmetatable({ broker = broker, world = world, name = name, pace = settings.pace, sockets = {},
    connecting = {}, is_over = {}, hung_until = 0, programs = {}, woke = 0, spins = 0 }, Process)
  self.peer = Peer.new({ name = name, seed = settings.seed, heartbeat = settings.heartbeat,
    timeout = settings.timeout or 5, shared = settings.shared })
  self.session, self.core = self.peer.session, self.peer.core_session
  self:turn()
  return self
end

-- Connections -------------------------------------------------------------------------------------------------------

local function listens(self, role)
  local state = self.core:state(role)
  return state ~= "down" and state ~= "idle"
end

local function arrived(self, role, bytes)
  if self.is_stopped then
    table.insert(self.unread, { role, bytes })
  elseif not self.is_over[role] then
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
  self.connecting[role] = false
  if self.is_dead or not select(2, self.core:state(role)) then return end -- it may not be wanted any more
  local socket
  local function is_current() return not self.is_dead and self.sockets[role] == socket end
  socket = self.broker:connect(
    function (bytes) if is_current() then arrived(self, role, bytes) end end,
    function ()
      if is_current() then hangs_up(self, role, "the broker closed the connection without giving a reason") end
    end,
    self.pace)
  socket.connection.name = self.name .. " " .. role
  self.sockets[role] = socket
  self.session:attach(role)
  self:turn()
end

local function send(self, role, socket)
  local bytes = self.core:output(role)
  if self.on_send then bytes = self.on_send(bytes, role) end
  socket:send(bytes)
  if self.on_sent then self.on_sent(bytes) end
end

-- The needs of a link (src/lua/bytes.c), as a sum: output waits, the link is over, a connection is wanted.
local WRITES, IS_OVER, IS_WANTED = 1, 2, 4

-- Sends what the session wrote; opens connections that it wants, and closes those that are over.
local function move(self, role, needs)
  local is_wanted = needs >= IS_WANTED
  if is_wanted then needs = needs - IS_WANTED end
  local is_over, socket = needs >= IS_OVER, self.sockets[role]
  self.is_over[role] = is_over
  if socket and needs > 0 then
    if needs % 2 == WRITES then send(self, role, socket) end
    if is_over then
      socket:close()
      self.sockets[role] = nil
    end
  end
  if is_wanted and not self.sockets[role] and not self.connecting[role] then
    self.connecting[role] = true
    self.world:after(2 * (self.pace or self.broker.laws.pace).most, connect, self, role)
  end
end

-- Turns -------------------------------------------------------------------------------------------------------------

-- Throws if a session asks for turn after turn without doing anything: it would keep its processor busy for ever.
local function look_at_pace(self)
  local is_at_once = self.world.now - self.woke < 3e-6
  self.woke, self.spins = self.world.now, is_at_once and self.spins + 1 or 0
  if self.spins > 1000 then error({ breach = self.name .. " spins" }, 0) end
end

local function wake(self, time)
  if self.wakes_at ~= time then return end
  self.wakes_at = nil
  look_at_pace(self)
  self:turn()
end

local function wake_in(self, seconds)
  local time = self.world.now + math.max(seconds, 1e-6)
  if seconds > 3600 or self.wakes_at and self.wakes_at <= time then return end
  self.wakes_at = time
  self.world:at(time, wake, self, time)
end

local function resume(self, program)
  program.waits_for = nil
  local fine, err = coroutine.resume(program.thread, self)
  if not fine then
    error(type(err) == "string" and debug.traceback(program.thread, self.name .. ": " .. err) or err, 0)
  end
  return coroutine.status(program.thread) == "dead"
end

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

-- `began`: when it read the clock, if it was stopped after that and before it reads its sockets.
local function tick(self, began)
  local now, peer = self.world.now, self.peer
  peer.now = began or now
  local next_at, holder, prober, fence, maker, quorum = self.core:tick(peer.now, peer:wall(), now)
  peer.now = now
  if self.is_stopped then return end
  move(self, "holder", holder)
  move(self, "prober", prober)
  move(self, "fence", fence)
  move(self, "maker", maker)
  move(self, "quorum", quorum)
  wake_in(self, next_at - now)
end

--- Everything goes on, as far as it can without time passing.
function Process:turn()
  if self.is_dead or self.is_stopped then return end
  repeat
    tick(self)
  until self.is_dead or not resume_some(self)
  if self.on_turn and not self.is_dead then self.on_turn(self) end
end

-- Programs ----------------------------------------------------------------------------------------------------------

local NOTHING = { done = function () return true end }

--- Starts a program: a function that may call finish() and sleep().
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

--- For programs: waits for an operation. Returns its result, or nil, message, code.
function Process:finish(op)
  this_program(self).waits_for = op
  coroutine.yield()
  return self.peer:keep(op:result())
end

--- For programs: waits for `seconds`, or until the operation is done.
function Process:sleep(seconds, op)
  local wakes_at = self.world.now + seconds
  this_program(self).waits_for = { done = function () return self.world.now >= wakes_at or op and op:done() end }
  self.world:at(wakes_at, self.turn, self)
  coroutine.yield()
end

--- For programs: keeps an operation or a lock from being collected.
function Process:keep(thing)
  return self.peer:keep(thing)
end

function Process:note(...)
  self.world:note(self.name, ...)
end

-- Faults ------------------------------------------------------------------------------------------------------------

--- The process is killed: what it wrote arrives, or is lost; the broker sees its connections end.
function Process:kill(loses_what_it_wrote)
  self:note("is killed")
  self.is_dead = true
  for _, role in ipairs(ROLES) do
    local socket = self.sockets[role]
    if socket and loses_what_it_wrote then socket:reset() elseif socket then socket:close() end
  end
  self:bury()
end

--- The process stops, as by SIGSTOP, for so many seconds. `has_begun`: it has just read the clock, and is about to read
-- its sockets.
function Process:stop(seconds, has_begun)
  if self.is_dead or self.is_stopped then return end
  self:note("is stopped for %g s%s", seconds, has_begun and ", about to read" or "")
  self.is_stopped, self.unread, self.goes_on_at = true, {}, self.world.now + seconds
  self.began = has_begun and self.world.now or nil
  self.world:after(seconds, function () self:continue() end)
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

--- The role of the connection on which the process holds what the story is about.
function Process:holding() return self.sockets.quorum and "quorum" or "holder" end

function Process:holder() return self.sockets[self:holding()] end

--- A connection is reset: both ends are notified.
function Process:lose(role)
  local socket = self.sockets[role]
  if not socket or self.is_dead then return end
  self:note("loses its %s connection", role)
  socket:reset()
  hangs_up(self, role, "connection reset by peer")
end

-- Delayed bytes arrive at most so long after the end of a stall.
local AFTERWARDS = 1

--- The network drops everything from now on ("cut"), or delays it for so many seconds ("stall"): "up" to the broker,
-- "down" from it, or "both". Neither end is notified.
function Process:strike(how, role, direction, seconds)
  local socket = self.sockets[role]
  if not socket or self.is_dead then return end
  socket:strike(how, direction, seconds)
  self:note("%s: %s, %s, for %g s", how, role, direction, seconds or math.huge)
  if how == "cut" then
    socket.is_cut = true
  else
    socket.stalled_until = math.max(socket.stalled_until or 0, self.world.now + seconds)
    -- So long also after the process has lost or left this connection: the broker sees its end no earlier.
    self.hung_until = math.max(self.hung_until, socket.stalled_until + AFTERWARDS)
  end
end

function Process:both_sockets()
  return self:holder(), self.sockets.prober
end

--- The broker's side of the holder's connection, if there is one.
function Process:connection()
  local socket = self:holder()
  return socket and socket.connection
end

--- The time at which the network's delay ends; 0 if there is none.
function Process:stalled_until()
  local holder, prober = self:both_sockets()
  local time = math.max(holder and holder.stalled_until or 0, prober and prober.stalled_until or 0)
  return time > 0 and time + AFTERWARDS or 0
end

--- Whether one of its connections is cut off or delayed.
function Process:is_cut_off()
  local holder, prober = self:both_sockets()
  return holder and holder.is_cut or prober and prober.is_cut or self:stalled_until() > self.world.now
end

--- What lock:held() returns now; for a stopped process, what it would return if it were called right after the stop.
function Process:holds(lock)
  if self.is_dead then return false end
  self.began = nil -- it reads the clock again: time does not go back
  tick(self)
  if is_ready(self) and not self.is_stopped then self.world:after(0, self.turn, self) end
  local is_there, held = pcall(lock.held, lock)  -- the lock may have been dropped
  return is_there and held
end

--- Whether its session took the bell for missing, for a minute. It does so also when the broker answers late.
function Process:has_missed_bell()
  while not self.is_dead and not self.missed_bell do
    local level, text = self.core:news()
    if not level then break end
    self.missed_bell = text:find "^the bell .* does not exist, may not be read, or does not answer" ~= nil
  end
  return self.missed_bell
end

--- Frees its memory. It cannot be used after that.
function Process:bury()
  self:has_missed_bell()
  self.is_dead = true
  self.session:abort()
  self.programs = {}
end

return Process
