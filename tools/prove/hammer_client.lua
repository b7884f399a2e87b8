-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A process of the hammer (hammer.lua): it takes locks at random, and writes their numbers into the ledger of
-- their name (ledger.lua).
local amqplocks = require "amqplocks"
local socket = require "socket"

local client = {}
client.__index = client

local TIMEOUT = 3
local GATHERERS, SLOTS_AT_ONCE = 2, 3 -- the first clients take so many slots of a semaphore of kind "many" at once
-- What each kind of lock is made with. All kinds that have fencing tokens draw them.
local FENCED = { fenced = true }
local OPTIONS = { mutex = FENCED, semaphore = FENCED, rwlock = FENCED, quorum_mutex = { queue_type = "quorum" } }

-- The ways to acquire each kind of lock, weighted by repetition.
local WAYS = { mutex = { "acquire" }, semaphore = { "acquire" }, rwlock = { "write", "write", "read" },
  fast_mutex = { "acquire" }, quorum_mutex = { "acquire" }, plain = { "acquire" }, many = { "acquire" } }

-- A mutex without fencing tokens, a semaphore without, a fast mutex with a queue of another type.
local METHODS = { plain = "mutex", many = "semaphore", quorum_mutex = "fast_mutex" }

local LONG = { quorum_mutex = 0.1 } -- how many of the locks are held for seconds, and so through proofs

local function chance(p) return math.random() < p end

function client:is_over() return socket.select({ self.spec }, nil, 0)[self.spec] ~= nil end

function client:append(pool, act, op, ...)
  local words = { act, self.lane, ("%d"):format(op), ... }
  self.ledger.append(pool.file, table.concat(words, " ") .. "\n")
end

-- Asks the broker whether the lock is held, and writes the answer before any other process can ask.
function client:confirm(pool, op, lock)
  self.ledger.lock(pool.file)
  local held, _, code = lock:verify()
  if held then self:append(pool, "held", op) else self:append(pool, "gone", op, code) end
  self.ledger.unlock(pool.file)
  return held
end

-- The same for each lock of a list, which were acquired at once. `ops`: their numbers.
function client:confirm_all(pool, ops, locks)
  local all_held = true
  for i, op in ipairs(ops) do all_held = self:confirm(pool, op, locks[i]) and all_held end
  return all_held
end

-- Mostly the same object as before, for an object remembers what it need not ask again: that others waited lately,
-- and that the queue of a fast mutex was there.
function client:object(pool)
  local method = METHODS[pool.kind] or pool.kind
  if not self.objects[pool] or chance(0.1) then
    self.objects[pool] = self.conn[method](self.conn, pool.name, OPTIONS[pool.kind])
  end
  return self.objects[pool]
end

function client:note_got(pool, op, lock)
  local number = lock.fence and ("%.0f"):format(lock.fence) or "none"
  self:append(pool, "got", op, number, lock.kind, tostring(lock.slot or 1))
end

-- Returns the lock, the list of its locks (itself, or those that it was acquired with), and their numbers.
function client:take(pool)
  local ways = WAYS[pool.kind]
  local way, object, ops = ways[math.random(#ways)], self:object(pool), {}
  local gathers = pool.kind == "many" and self.seat <= GATHERERS
  for i = 1, gathers and SLOTS_AT_ONCE or 1 do
    self.ops = self.ops + 1
    ops[i] = self.ops
    self:append(pool, "ask", self.ops)
  end
  local lock, _, code = object[way](object,
    { timeout = 1 + 2 * math.random(), poll = 0.5, count = gathers and SLOTS_AT_ONCE or nil })
  if not lock then return nil, self:append(pool, "none", ops[1], code) end
  local locks = lock.locks or { lock }
  for i, op in ipairs(ops) do self:note_got(pool, op, locks[i]) end
  return lock, locks, ops
end

function client:connect()
  local options = { name = self.lane, heartbeat = 1, timeout = TIMEOUT }
  if not self.conn then self.conn, self.objects = amqplocks.connect(self.url, options), {} end
  return self.conn
end

function client:turn()
  if not self:connect() then return socket.sleep(0.1) end
  local pool = chance(0.5) and self.favourite or self.pools[math.random(#self.pools)]
  local lock, locks, ops = self:take(pool)
  if not lock then return socket.sleep(0.01) end
  if chance(LONG[pool.kind] or 0) and self:confirm_all(pool, ops, locks) then socket.sleep(1 + 4 * math.random()) end
  repeat
    local held = self:confirm_all(pool, ops, locks)
    socket.sleep(math.random() ^ 2 * 0.01)
  until not held or chance(0.7)
  if chance(0.03) then
    self.conn:close()
    self.conn = nil
  else
    lock:release()
  end
end

--- Runs until the runner sends something. `list`: lines of name, kind and ledger.
function client.run(spec, cpath, lane, url, list, seed)
  math.randomseed(seed)
  local load = assert(package.loadlib((cpath:gsub("%?%.so;$", "ledger.so")), "luaopen_ledger"))
  local self = setmetatable({ spec = spec, lane = lane, url = url, ledger = load(), pools = {}, ops = 0,
    seat = tonumber(lane:match "^%d+") }, client)
  for name, kind, path in list:gmatch "(%S+) (%S+) (%S+)\n" do
    table.insert(self.pools, { name = name, kind = kind, file = self.ledger.open(path) })
  end
  self.favourite = self.pools[math.random(#self.pools)] -- taken so often that it may be claimed at once
  while not self:is_over() do self:turn() end
  if self.conn then self.conn:close() end
  return true
end

return client
