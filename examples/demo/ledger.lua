-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- Reads the log of the demo, line by line, and records which workers wait, which worker holds which slot since when,
-- and how many slots there are. Reports every violation. It knows the log alone, and never asks the library.
--
-- All processes write to one pipe, so the lines are in the order in which they were written. "acquired" is written
-- after the broker granted the slot, "releases" before the slot is released, "kills" before the kill. So the time for
-- which a worker holds a slot in this ledger is within the time for which it really does, and two holders that overlap
-- here did overlap. Likewise slots count from before they are added until after they are removed.
--
--   A started PID | waits | acquired SLOT | releases SLOT | ended STATUS
--   admin begins ACTION SLOTS | ends ACTION RESULT | kills LETTER

local Ledger = {}
Ledger.__index = Ledger

local KILLED = 128 + 9 -- the shell's status of a process ended by SIGKILL

local function new()
  return setmetatable({
    slots = 0, -- the number of slots
    lanes = {}, -- by slot: { from, to = when it was removed, spans = { { who, from, to, killed }, … } }
    workers = {}, -- by letter: { letter, pid, waits, span, slot, asked, killed, status }
    phases = {}, -- between changes: { slots, most = most holders at once }
    waiting = {}, -- { at, count } after every line
    marks = {}, -- { at, text }: what was done to the semaphore and its workers
    remarks = {}, -- { at, text }: events worth reporting
    problems = {}, -- violations
    acquisitions = 0,
    outlasted = 0, -- how many workers held a slot until after its removal
    lines = 0,
    now = 0,
  }, Ledger)
end

local function add(list, ...) list[#list + 1] = (...):format(select(2, ...)) end

function Ledger:problem(...) add(self.problems, ...) end

function Ledger:remark(...) self.remarks[#self.remarks + 1] = { at = self.now, text = (...):format(select(2, ...)) } end

function Ledger:mark(...) self.marks[#self.marks + 1] = { at = self.now, text = (...):format(select(2, ...)) } end

--- The span of the slot's holder, or nil.
function Ledger:held(slot)
  local spans = self.lanes[slot] and self.lanes[slot].spans or {}
  local last = spans[#spans]
  return last and not last.to and last or nil
end

--- The seconds for which the current holder has held the slot; math.huge if there is none.
function Ledger:held_for(slot)
  local span = self:held(slot)
  return span and self.now - span.from or math.huge
end

function Ledger:holders()
  local count = 0
  for _, worker in pairs(self.workers) do count = count + (worker.span and 1 or 0) end
  return count
end

--- Whether no removed slot is held any more.
function Ledger:settled()
  for slot = self.slots + 1, #self.lanes do
    if self:held(slot) then return false end
  end
  return true
end

--- The letters of the waiting workers.
function Ledger:queue()
  local letters = {}
  for letter, worker in pairs(self.workers) do
    if worker.waits then letters[#letters + 1] = letter end
  end
  table.sort(letters)
  return letters
end

local function let_go(self, worker)
  worker.span.to = self.now
  worker.span, worker.slot = nil, nil
end

-- ---- workers --------------------------------------------------------------------------------------------------------

local worker_says = {}

function worker_says.started(_, worker, pid) worker.pid = tonumber(pid) end

function worker_says.waits(self, worker) worker.waits, worker.asked = true, self.lines end

function worker_says.acquired(self, worker, number)
  local slot = tonumber(number)
  local lane, before = self.lanes[slot], self:held(slot)
  if worker.span then self:problem("%s got slot %s and still had slot %d", worker.letter, number, worker.slot) end
  if not worker.waits then self:problem("%s got slot %s without asking", worker.letter, number) end
  if not lane then return self:problem("%s got slot %s, which does not exist", worker.letter, number) end
  if lane.to and worker.asked > lane.removed then
    self:problem("%s asked for a slot after slot %d was removed, and got it", worker.letter, slot)
  end
  if before then self:problem("slot %d was held by %s and by %s at once", slot, before.who, worker.letter) end
  self.acquisitions = self.acquisitions + 1
  worker.waits, worker.slot, worker.span = false, slot, { who = worker.letter, from = self.now }
  lane.spans[#lane.spans + 1] = worker.span
  local phase, kill = self.phases[#self.phases], self.kill
  if self:settled() then phase.most = math.max(phase.most, self:holders()) end
  if kill and kill.slot == slot and not kill.by then
    kill.by, kill.after = worker.letter, self.now - kill.at
    self:remark("slot %d, where %s was killed, is taken over by %s", slot, kill.who, kill.by)
  end
end

function worker_says.releases(self, worker, number)
  if worker.slot ~= tonumber(number) then return self:problem("%s released a slot it did not hold", worker.letter) end
  local slot, lane = worker.slot, self.lanes[worker.slot]
  let_go(self, worker)
  if lane.to then
    self.outlasted = self.outlasted + 1
    self:remark("%s is done and releases slot %d, which was removed", worker.letter, slot)
  end
end

function worker_says.ended(self, worker, status)
  worker.status = tonumber(status)
  if worker.span then let_go(self, worker) end
  worker.waits = false
  if not (worker.killed and worker.status == KILLED) then
    self:problem("worker %s ended with status %s", worker.letter, status)
  end
end

-- ---- the administrator ----------------------------------------------------------------------------------------------

local admin_says = {}

local function resize(self, slots)
  for slot = self.slots + 1, slots do self.lanes[slot] = { from = self.now, spans = {} } end
  for slot = slots + 1, self.slots do self.lanes[slot].to, self.lanes[slot].removed = self.now, self.lines end
  self.slots = slots
  self.phases[#self.phases + 1] = { slots = slots, most = 0 }
end

function admin_says.begins(self, action, number)
  if action == "remove" then return end
  resize(self, self.slots + tonumber(number))
  if action == "add" then self:mark("add %s", number) end
end

function admin_says.ends(self, action, number)
  local before = self.slots
  if action == "remove" then
    resize(self, tonumber(number))
    self:mark("remove %d", before - self.slots)
    self:remark("the administrator removed %d slots: now %d", before - self.slots, self.slots)
  elseif tonumber(number) ~= self.slots then
    self:problem("after %s there should be %d slots, and there are %s", action, self.slots, number)
  elseif action == "add" then
    self:remark("the administrator added a slot: now %d", self.slots)
  end
end

function admin_says.kills(self, letter)
  local worker = self.workers[letter]
  if not worker.span then return self:problem("%s was to be killed with a slot, and had none", letter) end
  self.kill = { who = letter, slot = worker.slot, at = self.now }
  worker.killed, worker.span.killed = true, true
  let_go(self, worker)
  self:mark("kill %s", letter)
  self:remark("worker %s is killed with SIGKILL while it holds slot %d", letter, self.kill.slot)
end

-- ---------------------------------------------------------------------------------------------------------------------

local function dispatch(self, who, what, ...)
  if who == "admin" and admin_says[what] then
    admin_says[what](self, ...)
  elseif what and who:find "^%u$" and worker_says[what] then
    local worker = self.workers[who] or { letter = who }
    self.workers[who] = worker
    -- Lines that a worker wrote between "kills" and the kill are ignored.
    if not worker.killed or what == "ended" then worker_says[what](self, worker, ...) end
  else
    return false
  end
  return true
end

--- Takes one line of the log, read `now` seconds after the beginning. An empty line is a tick of the clock.
function Ledger:read(line, now)
  self.lines, self.now = self.lines + 1, now
  if line == "" then return end
  if not dispatch(self, line:match "^(%w+)%s+(%l+)%s*(%S*)%s*(%S*)$") then self:problem("%s", line) end
  self.waiting[#self.waiting + 1] = { at = now, count = #self:queue() }
end

--- At the end: the violations; if there are none, events that should have been seen and were not. Empty on success.
function Ledger:verdict()
  local problems = self.problems
  if #problems > 0 then return problems end
  for _, phase in ipairs(self.phases) do
    if phase.most ~= phase.slots then add(problems, "%d held at once, of %d slots", phase.most, phase.slots) end
  end
  local kill = self.kill
  if not kill then
    add(problems, "no worker was killed")
  elseif not kill.by then
    add(problems, "no worker took over slot %d from %s, which was killed", kill.slot, kill.who)
  elseif self.workers[kill.who].status ~= KILLED then
    add(problems, "%s should be dead and is not", kill.who)
  end
  if not self:settled() then add(problems, "a slot that was removed is still held") end
  return problems
end

return { new = new }
