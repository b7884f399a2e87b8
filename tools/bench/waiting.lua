-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- How soon the next process holds a slot, after a release and after the holder's death; and what a waiter costs
-- meanwhile. All processes share one clock.
local amqplocks = require "amqplocks"
local bare = require "bare"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local rows = require "spec.support.rows"

local TIMES = 10 * rows.rounds
local LOOK = 17 -- frames of one search at a semaphore of one slot: eight probe A and B of two, at most nine answer
local SETTLED = 0.02 -- seconds after which a process that was told to wait waits

local conn = assert(amqplocks.connect(nil, { name = "bench" }))
local raw, next_raw = bare.connect(os.getenv "AMQP_URL"), bare.connect(os.getenv "AMQP_URL")
local name = ("bench-%d"):format(os.time())
local sem = conn:semaphore(name)
assert(conn:admin(name):create(1))

local function another()
  local other = process.start()
  other:run([[
    bare = require "bare"
    sem = require("amqplocks").connect():semaphore(...)
  ]], name)
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

local function after_release()
  local other, list, bares = another(), {}, {}
  for i = 1, TIMES do
    local lock = assert(sem:acquire())
    other:begin("local lock = assert(sem:acquire()) local got = bare.now() assert(lock:release()) return got")
    bare.sleep(SETTLED)
    local start = bare.now()
    lock:release()
    list[i] = other:finish() - start
    bares[i] = bare_hand_over()
  end
  rows.compare("release -> next holds / delete + declare", 1.25, list, bares)
end

local function after_death()
  local list, declares = {}, {}
  for i = 1, TIMES / 5 do
    local holder = another()
    holder:run("lock = assert(sem:acquire())")
    local operation = sem._core:acquire()
    local settled = bare.now() + SETTLED
    while bare.now() < settled do
      conn._driver.wait(operation)
      if operation:waiting() then break end
    end
    local start = bare.now()
    bare.kill(holder.pid)
    while not operation:done() do conn._driver.wait(operation) end
    list[i] = bare.now() - start
    operation:result():drop()
    operation:drop()
    declares[i] = rows.seconds(raw.declare, raw, name .. "-bare")
    raw:delete(name .. "-bare")
    process.clear()
  end
  rows.compare("SIGKILL -> next holds / exclusive declare", 4, list, declares)
end

-- All frames on its two connections, in both directions, without heartbeats.
local function at_rest()
  local SECONDS, POLL = 20, 5
  local lock, between, other = assert(sem:acquire()), proxy.start(), process.start()
  other:begin([[
    local url, name, poll = ...
    local sem = require("amqplocks").connect(url):semaphore(name)
    sem:acquire{ poll = poll }
  ]], between.url, name, POLL)
  bare.sleep(1)
  local frames, heartbeats = between:frames()
  bare.sleep(SECONDS)
  local frames_then, heartbeats_then = between:frames()
  frames, heartbeats = frames_then - frames, heartbeats_then - heartbeats
  local most = LOOK * math.ceil(SECONDS / (POLL * 7 / 8)) -- a recheck may come an eighth early
  rows.row("a waiter at rest, frames in a minute", ("<= %.0f"):format(most * 60 / SECONDS), frames <= most,
    ("%.0f"):format(frames * 60 / SECONDS))
  rows.plain("its heartbeats in a minute, both ways", ("%.0f"):format(heartbeats * 60 / SECONDS))
  lock:release()
end

-- The cost of probing clients for a holder: each probe is delivered to its queue, and so to the holder.
local function asked()
  local SECONDS, EACH = 3, 1000
  local holder = another()
  holder:run("lock = assert(sem:acquire())")
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

after_release()
after_death()
asked()
at_rest()
assert(conn:admin(name):destroy())
conn:close()
process.clear()
