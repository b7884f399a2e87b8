-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- How soon the next process holds a slot, after a release and after the holder's death. The same times of a fast mutex,
-- as ratios to those of a permit, and of a retained mutex, as ratios to those of another mutex. All processes share one
-- clock. How long RabbitMQ takes to hand a message on in a line of consumers, without this library. And what waiters
-- cost meanwhile, many of them: WAITERS=10000 LIMIT=3600 for more than 1000 (the limit of open files must be above
-- twice as many).
local amqplocks = require "amqplocks"
local bare = require "bare"
local crowd = require "tools.bench.parts.crowd"
local process = require "spec.support.process"
local rows = require "tools.bench.parts.rows"

local TIMES = 10 * rows.rounds
local WAITERS = tonumber(os.getenv "WAITERS") or 1000
local SETTLED = 0.02 -- seconds after which a process that was told to wait waits

local conn = assert(amqplocks.connect(nil, { name = "bench" }))
local raw, next_raw = bare.connect(os.getenv "AMQP_URL"), bare.connect(os.getenv "AMQP_URL")
local name = ("bench-%d"):format(os.time())
assert(conn:admin(name):create(1))
assert(conn:token_semaphore(name):create(1))

-- This process's object of each kind. A kind is named by the method of a connection that makes the object, but one.
local resources = { retained = conn:mutex(name .. "-retained", { retain = 600 }) }
for _, kind in ipairs{ "semaphore", "token_semaphore", "fast_mutex", "mutex" } do
  resources[kind] = conn[kind](conn, name)
end

-- A process with an object of this kind.
local function another(kind)
  local other = process.start()
  other:run([[
    local kind, name = ...
    local conn = require("amqplocks").connect()
    bare, resource = require "bare", kind == "retained" and conn:mutex(name .. "-retained", { retain = 600 })
      or conn[kind](conn, name)
  ]], kind, name)
  return other
end

-- A queue changes hands between two bare connections, after an equally long rest: a broker that was idle takes longer.
local function bare_hand_over()
  local queue = name .. "-bare"
  raw:declare(queue)
  bare.sleep(SETTLED)
  local took = rows.seconds(function()
    raw:delete(queue)
    next_raw:declare(queue)
  end)
  next_raw:delete(queue)
  return took
end

-- Seconds from a release until the other process, which waited, holds the lock. It releases the lock again.
local function handed_over(kind, other)
  local lock = assert(resources[kind]:acquire())
  other:begin("local lock = assert(resource:acquire()) local got = bare.now() assert(lock:release()) return got")
  bare.sleep(SETTLED)
  local start = bare.now()
  lock:release()
  return other:finish() - start
end

-- Seconds for an acquire here, where the other process retains the mutex.
local function handed_back(other)
  assert(other:run "return assert(resource:acquire()):release()")
  bare.sleep(SETTLED)
  local start = bare.now()
  local lock = assert(resources.retained:acquire())
  local took = bare.now() - start
  lock:release()
  return took
end

local function after_release()
  local slot, permit, fast = another "semaphore", another "token_semaphore", another "fast_mutex"
  local mutex, retained = another "mutex", another "retained"
  local slots, bares, permits, fasts, mutexes, retaineds, backs = {}, {}, {}, {}, {}, {}, {}
  for i = 1, TIMES do
    slots[i], bares[i] = handed_over("semaphore", slot), bare_hand_over()
    permits[i], fasts[i] = handed_over("token_semaphore", permit), handed_over("fast_mutex", fast)
    mutexes[i], retaineds[i], backs[i] = handed_over("mutex", mutex), handed_over("retained", retained),
      handed_back(retained)
  end
  rows.compare("retained mutex: release -> next holds / a mutex's", 1.30, retaineds, mutexes)
  rows.plain("acquire of a mutex that another process retains, ms", ("%.2f"):format(1e3 * rows.median(backs)))
  rows.compare("release -> next holds / delete + declare", 1.25, slots, bares)
  rows.compare("fast mutex: release -> next holds / a permit's", 1.50, fasts, permits)
end

-- Seconds from the death of a holder until this process, which waited, holds the lock.
local function inherited(kind)
  local holder = another(kind)
  holder:run("lock = assert(resource:acquire())")
  local operation = resources[kind]._core:acquire{}
  local settled = bare.now() + SETTLED
  while bare.now() < settled do
    conn._driver.wait(operation)
    if operation:waiting() then break end
  end
  local start = bare.now()
  bare.kill(holder.pid)
  while not operation:done() do conn._driver.wait(operation) end
  local took = bare.now() - start
  operation:result():drop()
  operation:drop()
  process.clear()
  return took
end

local function after_death()
  local slots, declares, permits, fasts = {}, {}, {}, {}
  for i = 1, TIMES / 5 do
    slots[i] = inherited "semaphore"
    declares[i] = rows.seconds(raw.declare, raw, name .. "-bare")
    raw:delete(name .. "-bare")
    permits[i], fasts[i] = inherited "token_semaphore", inherited "fast_mutex"
  end
  rows.compare("SIGKILL -> next holds / exclusive declare", 4, slots, declares)
  rows.compare("fast mutex: SIGKILL -> next holds / a permit's", 2, fasts, permits)
end

-- What many waiting sessions cost, and how soon the lock goes from one to the next.
local function many(kind, what, frames_most)
  local client, server, frames, heartbeats, few_take, many_take = crowd.measure(kind, WAITERS, TIMES)
  what = ("%d want a %s: "):format(WAITERS, what)
  rows.row(what .. "client, KiB each", "<= 150", client <= 150, ("%.0f"):format(client))
  rows.plain("  broker, KiB each", ("%.0f"):format(server))
  rows.row(what .. "frames in a minute, each", "<= " .. frames_most, frames <= frames_most, ("%.0f"):format(frames))
  rows.plain("  heartbeats in a minute, both ways", ("%.0f"):format(heartbeats))
  rows.row(what .. "release -> next / with 16", "<= 1.50", many_take <= 1.5 * few_take,
    ("%.2f"):format(many_take / few_take))
  rows.plain("  release -> next, ms", ("%.2f"):format(many_take * 1000))
end

-- The cost of probing clients for a holder: each probe is delivered to its queue, and so to the holder.
local function asked()
  local SECONDS, EACH = 3, 1000
  local holder = another "semaphore"
  holder:run("lock = assert(resource:acquire())")
  local function processor(fn)
    local before = holder:run("return os.clock()")
    fn()
    return (holder:run("return os.clock()") - before) / SECONDS
  end
  local rest = processor(function() bare.sleep(SECONDS) end)
  local busy = processor(function()
    for _ = 1, SECONDS * 100 do
      local due = bare.now() + 0.01
      for _ = 1, EACH / 100 do raw:publish(name, 1, 1, "B") end
      bare.sleep(math.max(0, due - bare.now()))
    end
  end)
  rows.plain("1000 questions a second: a holder's processor time", ("%.1f%%"):format(busy * 100))
  rows.plain("the same without", ("%.1f%%"):format(rest * 100))
  process.clear()
end

-- Seconds in which a message passes from one of so many consumers to the next. They are channels of one connection.
local function passed_on(consumers, single, expires)
  local PASSES, queue, line = 12, name .. "-line", bare.connect(os.getenv "AMQP_URL", 8192)
  line:line_up(queue, consumers + PASSES / 2, single, expires)
  bare.sleep(SETTLED)
  local took = rows.seconds(line.pass_on, line, PASSES) / PASSES
  line:close()
  raw:delete(queue)
  return took
end

local function along_a_line()
  local FEW, MANY = 16, 1500
  for _, shape in ipairs{ { "of permits" }, { "of a fast mutex", true, true } } do
    local few, all = {}, {}
    for i = 1, rows.rounds do
      few[i], all[i] = passed_on(FEW, shape[2], shape[3]), passed_on(MANY, shape[2], shape[3])
    end
    local a, b = rows.median(few) * 1e6, rows.median(all) * 1e6
    rows.plain(("rabbitmq-c: hand-over in a line %s, %d / %d"):format(shape[1], MANY, FEW), ("%.2f"):format(b / a),
      ("%.0f us, %.0f us"):format(b, a))
  end
end

after_release()
along_a_line()
after_death()
asked()
assert(conn:admin(name):destroy())
assert(conn:token_semaphore(name):destroy())
raw:delete(name .. "-fastmutex")
conn:close()
process.clear()

-- A mutex's waiter asks by three frames, every 5 s or an eighth earlier. At a semaphore it probes A and B of two slots,
-- by eight frames, and at most nine answer.
many("mutex", "mutex", 60)
many("fast_mutex", "fast mutex", 60)
many("token_semaphore", "permit", 0)
many("semaphore", "slot", 255)
