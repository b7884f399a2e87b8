-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- `make torture-db STORE=redis SECONDS=600`: processes share one readers–writer lock in a real database, while some of
-- them get SIGKILL, or SIGSTOP and SIGCONT, and the connections of all are cut. An operator breaks what the dead have
-- left. A file is the witness (ledger.lua).
local ledger = require "tools.dblocks.ledger"
local process = require "spec.support.process"
local settings = require "tools.prove.settings"
local socket = require "socket"
local until_true = require "spec.support.until"

local CLIENTS = 8
local STRIKES, CUTS = 0.5, 10 -- seconds, on average
local LOOKS = 1 -- seconds between two looks of the operator
local LOAD = "locks = (loadstring or load)(...)({ name = select(2, ...) })"
local RUN = "local cpath, lane, path, seed = ... " ..
  "return require('tools.dblocks.client').run(spec, cpath, lane, path, locks, seed)"

local function say(...) print((...):format(select(2, ...))) end

local torture = {}
torture.__index = torture

function torture:sit(seat)
  seat.life = seat.life + 1
  seat.continues = nil
  seat.lane = ("c%d-%d"):format(seat.number, seat.life)
  seat.process = process.start()
  seat.process:run(LOAD, self.code, seat.lane)
  seat.process:begin(RUN, self.cpath, seat.lane, self.path, math.random(2 ^ 30))
end

function torture:wake()
  for _, seat in ipairs(self.seats) do
    if seat.continues and socket.gettime() >= seat.continues then
      seat.process:signal "CONT"
      seat.continues = nil
    end
  end
end

-- Asks the database until it gives a result: connections are cut. A stopped process may lock the whole file of SQLite.
function torture:insist(ask)
  return until_true(function()
    self:wake()
    local result, message = ask()
    return result, message
  end, 30)
end

function torture:list() return self:insist(function() return self.locks:list() end) end

-- The operator: breaks all that the list shows of processes that are known to be dead. It looks again and again: the
-- database may execute the last step of a process after its death.
function torture:clean_up()
  self.looks_at = socket.gettime() + LOOKS
  for _, entry in ipairs(self:list()) do
    if self.dead[entry.ticket:match "^(.*)%.%x+$"] then
      self:insist(function()
        local broken, message, code = self.locks:break_lock(entry.type, entry.id, entry.ticket)
        return broken or code == "not_held", message
      end)
      self.broken[entry.kind] = (self.broken[entry.kind] or 0) + 1
    end
  end
end

function torture:kill(seat)
  seat.process:kill()
  seat.process:forget()
  self.kills = self.kills + 1
  self.witness.append(self.file, ("dead %s \n"):format(seat.lane))
  self.dead[seat.lane] = true
  self:clean_up()
  self:sit(seat)
end

function torture:stop(seat)
  seat.process:signal "STOP"
  seat.continues = socket.gettime() + 3 * math.random() ^ 2
  self.stops = self.stops + 1
end

-- Half of the strikes hit a process that holds, or waits to write, if there is one.
function torture:victim()
  local list = math.random() < 0.5 and self:list() or {}
  local entry = list[math.random(math.max(#list, 1))]
  for _, seat in ipairs(self.seats) do
    if entry and entry.ticket:sub(1, #seat.lane + 1) == seat.lane .. "." then return seat end
  end
  return self.seats[math.random(#self.seats)]
end

function torture:strike()
  local seat = self:victim()
  if seat.continues then return end
  if math.random() < 0.5 then self:kill(seat) else self:stop(seat) end
end

function torture:look_after()
  self:wake()
  for _, seat in ipairs(self.seats) do
    if not seat.process:alive() then error("a process ended: " .. seat.process:output(), 0) end
  end
end

local function due_after(mean) return socket.gettime() - math.log(1 - math.random()) * mean end

function torture:go_on(seconds)
  local ends, strikes, cuts = socket.gettime() + seconds, 0, due_after(CUTS)
  local tells = socket.gettime() + 10
  while socket.gettime() < ends do
    self:look_after()
    if socket.gettime() >= self.looks_at then self:clean_up() end
    if socket.gettime() >= strikes then
      self:strike()
      strikes = due_after(STRIKES)
    end
    if self.store.cut and socket.gettime() >= cuts then
      self.store.cut(self.server)
      self.cuts = self.cuts + 1
      cuts = due_after(CUTS)
    end
    if socket.gettime() >= tells then
      local left = ends - socket.gettime()
      say("... %.0f s left; %d SIGKILL, %d SIGSTOP, %d cuts", left, self.kills, self.stops, self.cuts)
      tells = tells + 10
    end
    socket.sleep(0.005)
  end
end

function torture:dismiss()
  for _, seat in ipairs(self.seats) do
    if seat.continues then seat.process:signal "CONT" end
    seat.process:begin "return true"
  end
  for _, seat in ipairs(self.seats) do seat.process:finish(60) end
  self:clean_up()
end

-- Nothing may be left: each process has resolved its acquires in doubt.
function torture:left()
  local left = {}
  for _, entry in ipairs(self:list()) do table.insert(left, entry.kind .. " " .. entry.ticket) end
  return left
end

function torture:run(seconds)
  self.server = assert(self.store.start())
  self.code = self.store.code(self.server)
  self.locks = (loadstring or load)(self.code)({ name = "operator" }) -- luacheck: ignore 113
  assert(self.locks:setup())
  self.cpath = process.c_module "ledger"
  self.witness = process.load_module "ledger"
  self.file = self.witness.open(self.path)
  for number = 1, CLIENTS do
    self.seats[number] = { number = number, life = 0 }
    self:sit(self.seats[number])
  end
  self:go_on(seconds)
  self:dismiss()
  self.remains = self:left()
end

function torture:tell()
  local found = ledger.check(assert(process.contents(self.path)))
  say("%d read locks, %d write locks, at most %d readers at once", found.got.read, found.got.write, found.most)
  say("%d SIGKILL, %d SIGSTOP, all connections cut %d times", self.kills, self.stops, self.cuts)
  say("the operator broke %d read locks, %d write locks and %d waiting writers of the dead", self.broken.read or 0,
    self.broken.write or 0, self.broken.waiting or 0)
  local codes = {}
  for code, count in pairs(found.codes) do table.insert(codes, ("%s %d"):format(code, count)) end
  table.sort(codes)
  say("failed acquires and releases: %s", #codes > 0 and table.concat(codes, ", ") or "none")
  say("left behind: %s", #self.remains > 0 and table.concat(self.remains, ", ") or "nothing")
  say("violations: %d", #found.violations)
  for i = 1, math.min(20, #found.violations) do say("  %s", found.violations[i]) end
  local is_enough = found.got.read > 100 and found.got.write > 20
  if not is_enough then say "too few locks to tell" end
  return #found.violations == 0 and #self.remains == 0 and is_enough
end

local name = os.getenv "STORE" or "redis"
local seconds = settings.seconds(os.getenv "SECONDS") or 60
local seed = settings.seed(os.getenv "SEED") or os.time()
io.stdout:setvbuf "line"
math.randomseed(seed)
say("%s: seed %d, for %g s", name, seed, seconds)
process.shell("mkdir", "-p", "build/dblocks")
local self = setmetatable({
  store = require("spec.dblocks.support.stores." .. name), path = ("build/dblocks/torture-%s-%d"):format(name, seed),
  seats = {}, dead = {}, broken = {}, looks_at = 0, kills = 0, stops = 0, cuts = 0,
}, torture)
local fine, problem = pcall(self.run, self, seconds)
process.clear()
local is_clean = fine and self:tell()
if not fine then print(problem) end
if self.server then self.server:stop() end
process.remove_modules()
say("the witness: %s", self.path)
os.exit(is_clean and 0 or 1)
