-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- One worker of the demo: it waits for a slot, works for a while, releases the slot, and begins again. It prints one
-- line for each event; ledger.lua relies on the order of lines.
--
--   worker.lua SEMAPHORE LETTER

local amqplocks = require "amqplocks"

local name, letter = arg[1], arg[2]
io.stdout:setvbuf "line"
math.randomseed(os.time() * 256 + letter:byte())

local function spend(least, most)
  assert(os.execute(("sleep %.2f"):format(least + (most - least) * math.random())))
end

local function work() spend(1.7, 3) end

local function rest() spend(0.1, 0.6) end

print(letter, "started", io.open("/proc/self/stat"):read "*n") -- the first number in that file is this process's id

local conn = assert(amqplocks.connect())
local semaphore = conn:semaphore(name)

while true do
  print(letter, "waits")
  assert(semaphore:with({ timeout = 30 }, function(lock)
    print(letter, "acquired", lock.slot)
    work()
    assert(lock:held())
    print(letter, "releases", lock.slot)
  end))
  rest()
end
