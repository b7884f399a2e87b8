-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- One worker of the demo: for ever, it waits for a slot, works for a while, and lets the slot go.
-- What happens to it, it says in one line each; where the lines stand matters to ledger.lua.
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

print(letter, "started", io.open("/proc/self/stat"):read "*n") -- the first number there is our own process id

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
