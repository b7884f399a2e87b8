-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Mutexes, fast mutexes, readers and writers, uncontended, as ratios to the time that rabbitmq-c alone needs for the
-- broker's part; retained mutexes in microseconds. Mutexes that settle, and fenced ones, as ratios to a plain mutex. A
-- semaphore of one quorum permit, as a ratio to a fenced mutex.
local amqplocks = require "amqplocks"
local bare = require "bare"
local cqueues = require "cqueues"
local rows = require "tools.bench.parts.rows"

local conn = assert(amqplocks.connect(nil, { name = "bench" }))
local raw = bare.connect(os.getenv "AMQP_URL")
local name = ("bench-%d"):format(os.time())
local TIMES, FAST_TIMES = 50, 500

local function row(what, budget, acquire, alone, times)
  times = times or TIMES
  rows.ratio(what, budget, times, function()
    for _ = 1, times do assert(assert(acquire()):release()) end
  end, alone)
end

local function declare_delete() raw:declare_delete(name .. "-bare", TIMES) end

local function declare_bind_delete() raw:declare_bind_delete(name .. "-bare", name .. "-bare-readers", TIMES) end

local mutex, rwlock = conn:mutex(name), conn:rwlock(name)
row("mutex: acquire + release / declare + delete", 1.20, function() return mutex:try_acquire() end, declare_delete)
row("reader: in + out / declare + bind + delete", 1.25, function() return rwlock:try_read() end, declare_bind_delete)
row("writer: in + out / declare + delete, twice", 1.25, function() return rwlock:try_write() end, function()
  declare_delete()
  declare_delete()
end)

local function retained_row(where, budget, connection)
  local retained, took = connection:mutex(name, { retain = 600 }), {}
  for i = 1, rows.rounds do
    took[i] = 1e6 / FAST_TIMES * rows.seconds(function()
      for _ = 1, FAST_TIMES do assert(assert(retained:acquire()):release()) end
    end)
  end
  local microseconds = rows.median(took)
  rows.row(("retained mutex%s: acquire + release, us"):format(where), "<= " .. budget, microseconds <= budget,
    ("%.1f"):format(microseconds), rows.spread(took, "%.0f"))
  connection:close()
end

retained_row("", 15, assert(amqplocks.connect(nil, { name = "bench" })))
local controller = cqueues.new()
controller:wrap(function()
  retained_row(", cqueues", 100, assert(amqplocks.connect(nil, { name = "bench", driver = "cqueues" })))
end)
assert(controller:loop())

-- rabbitmq-c takes the same token from the same queue.
local fast = conn:fast_mutex(name .. "-fast")
local queue = name .. "-fast-fastmutex"
row("fast mutex: acquire + release / consume + cancel and nack", 1.50, function()
  return fast:acquire{ timeout = 20 }
end, function() raw:take_nack(queue, FAST_TIMES) end, FAST_TIMES)
raw:delete(queue)

local function use_plain()
  for _ = 1, TIMES do assert(assert(mutex:try_acquire()):release()) end
end

row("mutex, settle: acquire + release / the same without", 2.75, function() return mutex:acquire{ settle = 20 } end,
  use_plain)
local fenced = conn:mutex(name, { fenced = true })
assert(assert(fenced:try_acquire()):release()) -- makes the fence
row("fenced mutex: acquire + release / the same, not fenced", 1.75, function() return fenced:try_acquire() end,
  use_plain)
-- On a connection of its own, as the guide has it.
local beside = assert(amqplocks.connect(nil, { name = "bench permits" }))
local tokens = beside:token_semaphore(name, { queue_type = "quorum", fenced = true })
assert(tokens:create(1))
row("one quorum permit: acquire + release / a fenced mutex", 0.75, function() return tokens:acquire{ timeout = 20 } end,
  function()
    for _ = 1, TIMES do assert(assert(fenced:try_acquire()):release()) end
  end)
assert(tokens:destroy())
assert(fenced:forget_fence())
beside:close()
conn:close()
raw:close()
