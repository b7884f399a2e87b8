-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Permits of a token semaphore, as ratios to the time that rabbitmq-c alone needs to get or to consume a message, and
-- to requeue it. Other programs use basic.get. But a client that gets a message instead of consuming it is not notified
-- when it loses the message.
local amqplocks = require "amqplocks"
local bare = require "bare"
local rows = require "tools.bench.parts.rows"

local conn = assert(amqplocks.connect(nil, { name = "bench" }))
local other = assert(amqplocks.connect(nil, { name = "other" }))
local raw = bare.connect(os.getenv "AMQP_URL")
local name = ("bench-%d"):format(os.time())
local queue, TIMES, MANY = name .. ".semaphore", 500, 500

assert(conn:token_semaphore(name):create(MANY + 3))

local function cycles(connection)
  local semaphore = connection:token_semaphore(name)
  return function()
    for _ = 1, TIMES do assert(assert(semaphore:try_acquire()):release()) end
  end
end

local function get_nack() raw:get_nack(queue, TIMES) end

local function take_nack() raw:take_nack(queue, TIMES) end

rows.ratio("permit: acquire + release / get + nack", 1.25, TIMES, cycles(conn), get_nack)
rows.ratio("the same / consume + cancel and nack", 1.25, TIMES, cycles(conn), take_nack)

local semaphore = conn:token_semaphore(name)
collectgarbage()
local heap = select(2, bare.memory())
local locks = {}
for i = 1, MANY do locks[i] = assert(semaphore:try_acquire()) end
local each = (select(2, bare.memory()) - heap) / MANY / 1024
rows.row("a permit held, KiB", "<= 24", each <= 24, ("%.1f"):format(each))
rows.ratio(("the same with %d held / with none"):format(MANY), 1.25, TIMES, cycles(conn), cycles(other))
for i = 1, MANY do assert(locks[i]:release()) end

-- With so much other garbage, Lua's collector seldom reaches the released locks.
local ballast = {}
for i = 1, 1000000 do ballast[i] = { i } end
local fresh = assert(amqplocks.connect(nil, { name = "fresh" }))
for _ = 1, 10 do cycles(conn)() end
rows.ratio("the same with 5000 to collect / with none", 1.25, TIMES, cycles(conn), cycles(fresh))
assert(#ballast > 0)

assert(semaphore:destroy())
fresh:close()
other:close()
conn:close()
raw:close()
