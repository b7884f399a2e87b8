-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What must always hold of a semaphore in the model, and is watched while a story goes on:
--
-- * no two are told at one time that they hold a slot;
-- * nobody is told to hold a slot whose queue is gone, unless the news could not be there yet, and then not for long;
-- * nobody gets a slot that was not there any more when it was claimed;
-- * nobody waits while a slot is free, for longer than `patience` seconds;
-- * nobody is told that all slots are held while one was free all the time.
--
-- A breach is an error of the story.
local Watch = {}
Watch.__index = Watch

local function breach(...)
  error({ breach = string.format(...) }, 0)
end

local function slot_of(self, queue_name)
  local slot, kind = queue_name:match("^" .. self.semaphore .. "%-(%d+)%-([AB])$")
  return tonumber(slot), kind
end

local function is_free(self, slot)
  local queues = self.broker.queues
  return queues[self.semaphore .. "-" .. slot .. "-A"] ~= nil and not queues[self.semaphore .. "-" .. slot .. "-B"]
end

-- Waiting -----------------------------------------------------------------------------------------------------------

local function look_at_patience(self, slot, wait)
  local from = math.max(self.free_since[slot], wait.since)
  local slept = self.world.now - from
  if slept > 0 then self.longest = math.max(self.longest, slept) end
  if slept > self.patience then
    breach("%s slept for %.3f s, more than %.3f s, while slot %d was free", wait.process.name, slept, self.patience,
      slot)
  end
end

local function look_at_all(self, slot)
  for _, wait in ipairs(self.waiting) do look_at_patience(self, slot, wait) end
end

local function note_free(self, slot)
  local free = is_free(self, slot)
  if not free and self.free_since[slot] then
    look_at_all(self, slot)
    self.free_since[slot] = nil
  elseif free and not self.free_since[slot] then
    self.free_since[slot] = self.world.now
  end
end

--- A process waits, by an operation, from now until that is done. Gives what to end it with before.
function Watch:waits(process, op)
  local wait = { process = process, op = op, since = self.world.now }
  table.insert(self.waiting, wait)
  return wait
end

local function each_free(self, fn)
  for slot = 1, self.slots do
    if self.free_since[slot] then fn(slot) end
  end
end

--- It waits no more, or cannot be expected to do so well.
function Watch:ends(wait)
  each_free(self, function (slot) look_at_patience(self, slot, wait) end)
  for i, other in ipairs(self.waiting) do
    if other == wait then table.remove(self.waiting, i) end
  end
end

--- The operation is abandoned.
function Watch:gives_up(op)
  for _, wait in ipairs(self.waiting) do
    if wait.op == op then return self:ends(wait) end
  end
end

--- A process was told that no slot is free, asking since `since`.
function Watch:was_told_busy(process, since)
  each_free(self, function (slot)
    if self.free_since[slot] < since then
      breach("%s was told that no slot is free, and slot %d was free all the time", process.name, slot)
    end
  end)
end

--- Whatever this process waits for, it cannot be expected to do so well.
function Watch:excuses(process)
  for i = #self.waiting, 1, -1 do
    if self.waiting[i].process == process then self:ends(self.waiting[i]) end
  end
end

--- For the end of a story: who waits by now has waited well so far.
function Watch:look()
  each_free(self, function (slot) look_at_all(self, slot) end)
end

-- Holding -----------------------------------------------------------------------------------------------------------

local function believes(belief) return belief.process:holds(belief.lock) end

-- Two who believe: both are asked, now and whenever one of them has heard something.
local function look_at_beliefs(self, slot)
  local believer
  for _, belief in ipairs(self.beliefs[slot]) do
    if believes(belief) then
      if believer then
        breach("slot %d is held by %s and by %s", slot, believer.process.name, belief.process.name)
      end
      believer = belief
    end
  end
end

-- Who came before, and has not even been rung, is overtaken.
local function look_at_line(self, process)
  for _, wait in ipairs(self.waiting) do
    local other = wait.process
    local is_before = other.place and process.place and other.place < process.place
    if is_before and other.caller.unacked == 0 then breach("%s overtook %s", process.name, other.name) end
  end
  process.place = nil
end

-- A token is for a slot that is free by then.
local function look_at_token(self, connection)
  for slot = 1, self.slots do
    local queue = self.broker.queues[self.semaphore .. "-" .. slot .. "-B"]
    if queue and queue.owner == connection then
      breach("%s gives a token back before slot %d is free", connection.name, slot)
    end
  end
end

--- From now on slots are got in the order in which those who want one came to the doorbell, and nobody gives back a
-- token who has a slot.
function Watch:minds_line(bell)
  local places = 0
  self.has_line = true
  self.broker:watch_line(function (queue, consumer)
    for _, wait in ipairs(queue.name == bell and self.waiting or {}) do
      local socket = wait.process.sockets.holder
      if socket and socket.connection == consumer.channel.connection then
        places = places + 1
        wait.process.place, wait.process.caller = wait.process.place or places, consumer
      end
    end
  end, function (queue, connection)
    if queue.name == bell then look_at_token(self, connection) end
  end)
end

--- A process got a slot, and may have lost it again before it looked.
function Watch:got(process, lock, slot)
  if self.has_line then look_at_line(self, process) end
  self.grants = self.grants + 1
  if not process:holds(lock) then return end
  if not self.was_there[slot] then breach("%s got slot %d, which had been taken away", process.name, slot) end
  self.beliefs[slot] = self.beliefs[slot] or {}
  table.insert(self.beliefs[slot], { process = process, lock = lock })
  if #self.beliefs[slot] > 1 then look_at_beliefs(self, slot) end
end

--- It gives it back, or cannot know (yet) that it was taken away.
function Watch:gives(process, lock)
  for slot = 1, self.slots do
    for i, belief in ipairs(self.beliefs[slot] or {}) do
      if belief.process == process and (belief.lock == lock or lock == nil) then
        table.remove(self.beliefs[slot], i)
        break
      end
    end
  end
end

--- It was taken from who has it. The news takes time, but at most so many seconds, unless it cannot be heard.
function Watch:robbed(process, lock, news)
  self:gives(process, lock)
  self.world:after(news, function ()
    if process.is_stopped or process:is_cut_off() then return end
    if process:holds(lock) then breach("%s still believes in a lock that it lost %.3f s ago", process.name, news) end
  end)
end

--- The locks that a process is told to have: a list of { lock =, slot = }.
function Watch:locks_of(process)
  local list = {}
  for slot = 1, self.slots do
    for _, belief in ipairs(self.beliefs[slot] or {}) do
      if belief.process == process then table.insert(list, { lock = belief.lock, slot = slot }) end
    end
  end
  return list
end

--- A process has heard something.
function Watch:heard(process)
  for i = #self.waiting, 1, -1 do
    local wait = self.waiting[i]
    if wait.process == process and wait.op:done() then self:ends(wait) end
  end
  for slot = 1, self.slots do
    local beliefs = self.beliefs[slot]
    if beliefs and #beliefs > 1 then
      for _, belief in ipairs(beliefs) do
        if belief.process == process then
          look_at_beliefs(self, slot)
          break
        end
      end
    end
  end
end

local function note_gone(self, slot, name)
  if self.broker.queues[name] then return end
  for _, belief in ipairs(self.beliefs[slot] or {}) do
    if believes(belief) then breach("%s is gone while %s is told that it holds it", name, belief.process.name) end
  end
end

-- A queue was made, or is gone.
local function changed(self, queue)
  local slot, kind = slot_of(self, queue.name)
  if not slot then return end
  if slot > self.slots then self.slots = slot end
  note_free(self, slot)
  if kind == "B" then note_gone(self, slot, queue.name) end
  -- Whether A was there at any moment since B was made.
  local is_there = self.broker.queues[self.semaphore .. "-" .. slot .. "-A"] ~= nil
  if kind == "B" or is_there then self.was_there[slot] = is_there end
end

--- Watches a semaphore. Counts `grants`, and knows the `longest` that anybody slept beside a free slot.
function Watch.new(broker, semaphore, patience)
  local self = setmetatable({ broker = broker, world = broker.world, semaphore = semaphore, patience = patience,
    free_since = {}, was_there = {}, waiting = {}, beliefs = {}, slots = 0, grants = 0, longest = 0 }, Watch)
  broker:watch(function (queue) changed(self, queue) end)
  return self
end

return Watch
