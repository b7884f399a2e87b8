-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The hammer: many processes take locks, while some of them get SIGKILL, or SIGSTOP and SIGCONT, and some are cut off.
-- They write down their numbers in files that the judge reads (ledger.lua).
--
--     local result = hammer.run{ urls = { url }, directory = "build/prove/fenced-7", seconds = 60, seed = 7 }
--     result.violations             -- a list of texts
--     result.got, result.held       -- locks; answers of verify() that they are held
--     result.kills, result.stops, result.long_stops, result.codes
--
-- Other settings: kinds, of the names (fenced locks of all kinds that have a fence; "many": a semaphore of which some
-- clients take several slots at once); clients (12); every, the mean time in seconds between strikes (0.12); at_once,
-- most and lanes, see ledger.lua; may_overlap, if two may hold one of these locks in a partition; minute, the seconds
-- after which each lane must have got a lock (never);
-- during(seconds since the beginning), which is called all the time, and may strike the brokers; forgets, seconds after
-- which a fence is deleted, again and again, so that processes are also killed and stopped while they make it (never);
-- cut(name), which ends the connection of this name, if it is there (nobody is cut off).
local amqplocks = require "amqplocks"
local client = require "spec.support.client"
local history = require "tools.prove.history"
local ledger = require "tools.prove.ledger"
local process = require "spec.support.process"
local socket = require "socket"

local hammer = {}

local KINDS = { "mutex", "mutex", "semaphore", "rwlock" }
local HAS_FENCE = { mutex = true, rwlock = true }
local SLOTS = { semaphore = 2, many = 5 }
local SHARED = { semaphore = true, many = true, rwlock = true } -- more than one may hold it
local RUN = "return require('tools.prove.hammer_client').run(spec, ...)"
local ENDS = 60 -- seconds in which processes end that were told to

-- Codes of failed acquires that a fault of a process or a node explains.
local EXPLAINED = { timeout = true, unreachable = true, unavailable = true, lost = true, suspect = true, blocked = true,
  ["gone: lost"] = true, ["gone: unreachable"] = true, ["gone: suspect"] = true, contended = true }

local function make_pools(self)
  local conn = assert(amqplocks.connect(self.urls[1]))
  for i, kind in ipairs(self.kinds) do
    local name = ("%s.%d"):format(self.prefix, i)
    table.insert(self.pools, { name = name, kind = kind, path = ("%s/%d-%s"):format(self.directory, i, kind) })
    if SLOTS[kind] then assert(conn:admin(name):resize(SLOTS[kind])) end
  end
  conn:close()
end

local function sit(self, seat)
  seat.life, seat.continues = seat.life + 1, nil
  seat.process = process.start()
  local list = {}
  for i, pool in ipairs(self.pools) do list[i] = ("%s %s %s\n"):format(pool.name, pool.kind, pool.path) end
  seat.process:begin(RUN, self.cpath, ("%d.%d"):format(seat.number, seat.life), self.urls[seat.number % #self.urls + 1],
    table.concat(list), math.random(2 ^ 30))
end

-- Half of the stops are short, and half are longer than the broker waits for a silent client.
local function stop(self, seat)
  local is_long = math.random() < 0.5
  local seconds = is_long and 2.5 + 2 * math.random() or 0.3 * math.random()
  seat.process:signal "STOP"
  seat.continues = socket.gettime() + seconds
  self.stops, self.long_stops = self.stops + 1, self.long_stops + (is_long and 1 or 0)
end

local function kill(self, seat)
  seat.process:kill()
  seat.process:forget()
  self.kills = self.kills + 1
  sit(self, seat)
end

-- A process names its connections by its lane: see hammer_client.lua.
local function cut(self, seat)
  local is_cut = pcall(self.cut, ("%d.%d holder"):format(seat.number, seat.life))
  self.cuts = self.cuts + (is_cut and 1 or 0)
end

local function look_after(self)
  for _, seat in ipairs(self.seats) do
    if seat.continues and socket.gettime() >= seat.continues then
      seat.process:signal "CONT"
      seat.continues = nil
    end
    if not seat.process:alive() then error("a process ended: " .. seat.process:output(), 0) end
  end
end

local function strike(self)
  local seat = self.seats[math.random(#self.seats)]
  if seat.continues then return end
  local strikes = { kill, stop, self.cut and cut }
  strikes[math.random(#strikes)](self, seat)
end

-- Deletes the fence of one name, when it is time.
local function forget(self)
  if not self.forgets or socket.gettime() < (self.next_forgets or 0) then return end
  self.next_forgets = socket.gettime() + self.forgets
  self.conn = self.conn or assert(amqplocks.connect(self.urls[1]))
  local pool = self.pools[math.random(#self.pools)]
  local object
  if pool.kind == "semaphore" then
    object = self.conn:mutex(pool.name, { persistent = true }) -- it has the fence of the semaphore
  else
    object = self.conn[pool.kind](self.conn, pool.name)
  end
  if object:forget_fence() then self.forgotten = self.forgotten + 1 end
end

--- Writes into the ledgers, for the judge: "parted", "whole" or "minute".
function hammer.tell_judge(list, word)
  for _, pool in ipairs(list) do
    local file = assert(io.open(pool.path, "a"))
    file:write(word, " runner 0\n")
    file:close()
  end
end

local function go_on(self)
  local began, next_strike = socket.gettime(), 0
  local next_minute = began + (self.minute or math.huge)
  while socket.gettime() - began < self.seconds do
    look_after(self)
    forget(self)
    if self.during then self.during(socket.gettime() - began) end
    if socket.gettime() >= next_strike then
      strike(self)
      next_strike = socket.gettime() - math.log(1 - math.random()) * self.every
    end
    if socket.gettime() >= next_minute then
      hammer.tell_judge(self.pools, "minute")
      next_minute = next_minute + self.minute
    end
    socket.sleep(0.005)
  end
end

local function dismiss(self)
  for _, seat in ipairs(self.seats) do
    if seat.continues then seat.process:signal "CONT" end
    seat.process:begin "return true"
  end
  for _, seat in ipairs(self.seats) do
    seat.process:finish(ENDS)
    seat.process:kill()
    seat.process:forget()
  end
end

local function destroy(self)
  local conn = assert(amqplocks.connect(self.urls[1]))
  for _, pool in ipairs(self.pools) do
    if SLOTS[pool.kind] then
      assert(conn:admin(pool.name):destroy{ fence = true })
    elseif HAS_FENCE[pool.kind] then -- the broker deletes the queue of a fast mutex
      assert(conn[pool.kind](conn, pool.name):forget_fence())
    end
  end
  conn:close()
end

local function judge(self)
  self.got, self.held, self.codes, self.violations = 0, 0, {}, {}
  for _, pool in ipairs(self.pools) do
    local lines = process.contents(pool.path) or ""
    if not SHARED[pool.kind] then history.write(pool.path, history.of_ledger(lines), self.may_overlap) end
    local found = ledger.check(lines, { at_once = self.at_once, lanes = self.lanes,
      most = SLOTS[pool.kind] })
    self.got, self.held = self.got + found.got, self.held + found.held
    pool.got, pool.beside = found.got, found.beside
    for _, text in ipairs(found.violations) do table.insert(self.violations, pool.kind .. ": " .. text) end
    for code, count in pairs(found.codes) do
      self.codes[code] = (self.codes[code] or 0) + count
      if not EXPLAINED[code] then
        table.insert(self.violations, ("%s: %s, %d times"):format(pool.kind, code, count))
      end
    end
  end
end

local function run(self)
  make_pools(self)
  for number = 1, self.clients do
    self.seats[number] = { number = number, life = 0 }
    sit(self, self.seats[number])
  end
  go_on(self)
  dismiss(self)
  judge(self)
end

--- Runs the hammer; see the head of this file. The ledgers stay in the directory.
function hammer.run(settings)
  local self = { clients = 12, every = 0.12, kinds = KINDS, pools = {}, seats = {}, kills = 0, stops = 0,
    long_stops = 0, cuts = 0, forgotten = 0, prefix = client.unique "hammered" }
  for name, value in pairs(settings) do self[name] = value end
  math.randomseed(self.seed)
  process.empty_directory(self.directory)
  self.cpath = process.c_module "ledger"
  local fine, problem = pcall(run, self)
  process.clear()
  if not fine then error(problem, 0) end
  destroy(self)
  return self
end

--- What a run did, in a few lines; each is given to `say`.
function hammer.tell(result, say)
  say("%d locks, %d times certainly held; %d SIGKILL, %d SIGSTOP, of which %d outlasted the heartbeat, %d cut off",
    result.got, result.held, result.kills, result.stops, result.long_stops, result.cuts)
  for _, pool in ipairs(result.pools) do
    say("  %-10s %6d, at most %d of them beside each other", pool.kind, pool.got, pool.beside)
  end
  local codes = {}
  for code, count in pairs(result.codes) do table.insert(codes, ("%s %d"):format(code, count)) end
  table.sort(codes)
  if result.forgotten > 0 then say("%d times a fence was deleted, and made anew", result.forgotten) end
  say("failed acquires, and verifications: %s", table.concat(codes, ", "))
  say("violations: %d", #result.violations)
  for i = 1, math.min(20, #result.violations) do say("  %s", result.violations[i]) end
end

return hammer
