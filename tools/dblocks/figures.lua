-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- `make figures-db STORE=redis`: what operations of db-locks cost on a real database, beside the barest lock that the
-- same client can make and end there. Both run in turns, so a ratio, of medians, holds on a busy machine, too.
local socket = require "socket"

local ROUNDS, TIMES = 15, tonumber(os.getenv "TIMES" or "") or 50
local READERS = tonumber(os.getenv "READERS" or "") or 9

local function median(list)
  table.sort(list)
  return list[math.floor(#list / 2) + 1]
end

local function milliseconds(fn)
  local start = socket.gettime()
  for _ = 1, TIMES do fn() end
  return (socket.gettime() - start) / TIMES * 1000
end

local name = os.getenv "STORE" or "redis"
local store = require("spec.dblocks.support.stores." .. name)
local server = assert(store.start())
local locks = (loadstring or load)(store.code(server))({ name = "figures" }) -- luacheck: ignore 113
assert(locks:setup())
local mutex, rwlock, pair = locks:mutex("job", 1), locks:rwlock("job", 2), store.pair(server)
local several = locks:rwlock("job", 3)
local others = {}
for i = 1, READERS do others[i] = assert(several:try_read()) end

local operations = {
  { "mutex: acquire + release", function() assert(assert(mutex:try_acquire()):release()) end },
  { "write + release", function() assert(assert(rwlock:try_write()):release()) end },
  { "read + release", function() assert(assert(rwlock:try_read()):release()) end },
  { ("read + release, beside %d readers"):format(READERS), function()
    assert(assert(several:try_read()):release())
  end },
}

if store.rival then table.insert(operations, { store.rival(server) }) end

print(("%s: milliseconds of each operation, and as a ratio to the barest pair"):format(name))
for _, operation in ipairs(operations) do
  local ours, bare = {}, {}
  for round = 0, ROUNDS do -- the first round warms up
    ours[round], bare[round] = milliseconds(operation[2]), milliseconds(pair)
  end
  print(("%-36s %8.2f  %6.2f"):format(operation[1], median(ours), median(ours) / median(bare)))
end
for _, lock in ipairs(others) do assert(lock:release()) end
locks:close()
server:stop()
