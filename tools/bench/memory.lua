-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The memory of a session and of a lock, and a check that neither grows: over $OPERATIONS operations (20000). A million
-- take some minutes.
local amqplocks = require "amqplocks"
local bare = require "bare"
local rows = require "tools.bench.parts.rows"

local OPERATIONS = tonumber(os.getenv "OPERATIONS") or 20000

local conn = assert(amqplocks.connect(nil, { name = "bench" }))
local name = ("bench-%d"):format(os.time())

local function sessions()
  local count, idle = 20, {}
  collectgarbage()
  local resident, heap = bare.memory()
  for i = 1, count do
    idle[i] = assert(amqplocks.connect())
    assert(idle[i]:admin(name):slots()) -- opens the prober
  end
  local resident_now, heap_now = bare.memory()
  local session = (resident_now - resident) / count / 1024
  rows.row("an idle session, KiB resident", "<= 100", session <= 100, ("%.0f"):format(session))
  rows.plain("the same, KiB allocated", ("%.0f"):format((heap_now - heap) / count / 1024))
  for i = 1, count do idle[i]:close() end
end

local function locks()
  local count, held = 100, {}
  assert(conn:admin(name):create(count))
  local semaphore = conn:semaphore(name)
  collectgarbage() -- what the sessions have left; once more, for what finalizers keep
  collectgarbage()
  local heap = select(2, bare.memory())
  for i = 1, count do held[i] = assert(semaphore:try_acquire()) end
  local each = (select(2, bare.memory()) - heap) / count / 1024
  rows.row("a held lock, KiB", "<= 24", each <= 24, ("%.1f"):format(each))
  for i = 1, count do held[i]:release() end
  assert(conn:admin(name):destroy())
end

-- Of each hundred operations two take a slot or a mutex. The others take a permit, which is much faster.
local function flat()
  local EVERY = 100
  local admin, permits = conn:admin(name), conn:token_semaphore(name)
  assert(admin:create(2))
  assert(permits:create(2))
  local semaphore, mutex = conn:semaphore(name), conn:mutex(name)
  local function some()
    assert(assert(semaphore:acquire()):release())
    assert(assert(mutex:acquire()):release())
    for _ = 3, EVERY do assert(assert(permits:acquire()):release()) end
  end
  -- Includes Lua's own memory. It is the least of many values: rabbitmq-c has a page of 64 KiB more or less at times.
  local function heap()
    local least = math.huge
    for _ = 1, 20 do
      some()
      collectgarbage()
      collectgarbage()
      least = math.min(least, (select(2, bare.memory())))
    end
    return least
  end
  for _ = 1, OPERATIONS / EVERY / 4 do some() end
  local before = heap()
  for _ = 1, OPERATIONS / EVERY do some() end
  local grown = heap() - before
  rows.row(("%d operations leave on the heap, KiB"):format(OPERATIONS), "<= 128", grown <= 131072,
    ("%.1f"):format(grown / 1024))
  assert(admin:destroy())
  assert(permits:destroy())
end

sessions()
locks()
flat()
conn:close()
