-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The number of round trips to the broker that each operation takes. It is measured by time with a broker that is 100
-- ms away: the best of some tries, in round trips. The fraction above a whole number is the work of the broker and the
-- library.
local amqplocks = require "amqplocks"
local bare = require "bare"
local distant = require "tools.bench.parts.distant"
local process = require "spec.support.process"
local rows = require "tools.bench.parts.rows"

local AWAY, TRIES, SLOTS = 0.1, 3, 1000

local near = assert(amqplocks.connect(nil, { name = "bench" }))
local raw = bare.connect(os.getenv "AMQP_URL")
local conn = assert(amqplocks.connect(distant.start(AWAY), { name = "far" }))
local name = ("bench-%d"):format(os.time())
local many = name .. "-many"

-- Releases the locks that it acquires.
local function trips(acquire)
  local best, release = math.huge, math.huge
  for _ = 1, TRIES do
    local lock
    best = math.min(best, rows.seconds(function() lock = assert(acquire()) end))
    release = math.min(release, rows.seconds(function() lock:release() end))
  end
  return best / (2 * AWAY), release / (2 * AWAY)
end

local function exactly(value) return ("(%.2f)"):format(value) end

local function row(what, budget, acquire)
  local count, release = trips(acquire)
  local whole = math.floor(count)
  if budget then
    rows.row("round trips: " .. what, "<= " .. budget, whole <= budget, ("%d"):format(whole), exactly(count))
  else
    rows.plain("round trips: " .. what, ("%d"):format(whole), exactly(count))
  end
  rows.plain("  and of its release", ("%d"):format(math.floor(release)), exactly(release))
end

local admin, permits = near:admin(name), near:token_semaphore(name)
local semaphore, mutex, rwlock = conn:semaphore(name), conn:mutex(name), conn:rwlock(name)
local fast = conn:fast_mutex(name .. "-fast")
assert(admin:create(3))
assert(permits:create(3))
assert(semaphore:acquire()):release() -- opens the prober
assert(assert(rwlock:read()):release())
assert(assert(fast:acquire()):release()) -- makes the queue and its token
local fenced = conn:mutex(name, { fenced = true })
assert(assert(fenced:acquire()):release()) -- makes the fence

local near_quorum = near:token_semaphore(name .. "-quorum", { queue_type = "quorum" })
assert(near_quorum:create(1))
local quorum = conn:token_semaphore(name .. "-quorum", { queue_type = "quorum", fenced = true })

row("uncontended acquire, try", 2, function() return semaphore:try_acquire() end)
row("the same, ready to wait", 2, function() return semaphore:acquire() end)

-- Each by a semaphore object that has not seen the semaphore before.
assert(near:admin(many):create(SLOTS, { timeout = 120 }))
raw:occupy(many, 1, SLOTS - 1)
row(("%d of %d slots busy"):format(SLOTS - 1, SLOTS), 9, function() return conn:semaphore(many):try_acquire() end)

row("fast mutex", nil, function() return fast:acquire() end)
row("mutex", 2, function() return mutex:acquire() end)
row("reader", nil, function() return rwlock:read() end)
row("writer", 4, function() return rwlock:write() end)
row("fenced mutex", nil, function() return fenced:acquire() end)
row("fenced permit", nil, function() return quorum:acquire() end)
row("permit", nil, function() return conn:token_semaphore(name):acquire() end)

assert(fenced:forget_fence())
raw:delete(name .. "-fast-fastmutex")
conn:close()
raw:close()
assert(near:admin(many):destroy{ timeout = 120 })
assert(admin:destroy())
assert(permits:destroy())
assert(near_quorum:destroy())
near:close()
process.clear()
