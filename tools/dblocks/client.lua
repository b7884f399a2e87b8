-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A process of the torture (torture.lua): reads and writes under a readers–writer lock, and tells the witness.
local late = require "dblocks.late"
local socket = require "socket"

local client = {}
client.__index = client

local READERS = 0.7 -- the share of acquires
local LOST, LATE = 0.001, 0.01 -- of answers, of requests
local LIMIT = 2.5 -- seconds, in place of those of late.lua: a lock in doubt is held for so long

function client:tell(act, word) self.ledger.append(self.file, ("%s %s %s\n"):format(act, self.lane, word or "")) end

-- Acquires; an acquire in doubt is resolved by its ticket.
function client:acquire(way)
  local how = { timeout = 0.5 + math.random(), poll = 0.01 }
  local lock, message, code = self.rwlock[way](self.rwlock, how)
  while not lock and code == "in_doubt" do
    self:tell("code", code)
    how.ticket = message:match "under the ticket (%S+):"
    lock, message, code = self.rwlock[way](self.rwlock, how)
  end
  return lock, code
end

function client:release(lock)
  while true do
    local released, _, code = lock:release()
    if released or code == "in_doubt" and lock._is_released then return end
    if code == "lost" then return self:tell "lost" end
    self:tell("code", code)
    socket.sleep(0.05)
  end
end

function client:turn()
  local way = math.random() < READERS and "read" or "write"
  local lock, code = self:acquire(way)
  if not lock then return self:tell("code", code) end
  self:tell("in", way)
  socket.sleep(math.random() ^ 3 * 0.02)
  if math.random() < 0.2 then
    local held, _, why = lock:verify()
    if not held and why == "lost" then self:tell "lost" end
  end
  self:tell "out" -- before: afterwards others may be in already
  self:release(lock)
end

-- The answer of some steps is lost after the database has done them. Some steps are done later, as if something had
-- kept the request, with the time at which they were made: some of them in time, some too late. (Not those of a store
-- that needs no time: it would have read the row before.)
local function disturb(locks)
  local clients = require "dblocks.client"
  late.LIMIT = LIMIT
  local use, unpack_of = clients.use, table.unpack or unpack
  local kept

  local function deliver(self)
    local step = kept
    if not step or socket.gettime() < step.due then return end
    kept = nil
    use(self, function(one) return step.fn(one, step.time, unpack_of(step, 1, step.count)) end)
  end

  function clients.use(self, fn, ...)
    deliver(self)
    return use(self, function(one, time, ...)
      if not kept and not locks._store.fenced and math.random() < LATE then
        kept = { fn = fn, time = time, count = select("#", ...), ... }
        kept.due = socket.gettime() + 2 * LIMIT * math.random()
        return nil, "in_doubt: the request is late", "in_doubt"
      end
      local first, second, third = fn(one, time, ...)
      if math.random() < LOST then return nil, "in_doubt: the answer was lost", "in_doubt" end
      return first, second, third
    end, ...)
  end

  -- At the end nobody else is there any more, so a request that is too late finds the lock free.
  return function()
    if kept then socket.sleep(math.max(kept.due - socket.gettime(), 0)) end
    locks:list()
  end
end

--- Runs until the runner sends something.
function client.run(spec, cpath, lane, path, locks, seed)
  math.randomseed(seed)
  local finish = disturb(locks)
  local load = assert(package.loadlib((cpath:gsub("%?%.so;$", "ledger.so")), "luaopen_ledger"))
  local self = setmetatable({ lane = lane, ledger = load(), rwlock = locks:rwlock("torture", 1) }, client)
  self.file = self.ledger.open(path)
  while not socket.select({ spec }, nil, 0)[spec] do self:turn() end
  finish()
  locks:close()
  return true
end

return client
