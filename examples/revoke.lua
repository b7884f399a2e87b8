-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- A long job that releases its slot when an administrator asks for it.
--
--   revoke.lua work [STEPS]    works under a lock, a tenth of a second for each step
--   revoke.lua ask SLOT        meanwhile, elsewhere: asks the slot's holder to release it, and waits until it is free
--
-- The broker is AMQP_URL, or on localhost. The semaphore "long-jobs" is created with two slots if it is absent.

local amqplocks = require "amqplocks"

local role, number = arg[1], tonumber(arg[2])
local conn = assert(amqplocks.connect())
local admin = conn:admin "long-jobs"

local function step() assert(os.execute "sleep 0.1") end -- in place of work that does not call the library

local function work(lock, steps)
  print("working, in slot " .. lock.slot)
  io.stdout:flush()
  for done = 0, steps - 1 do
    assert(lock:held())
    if lock:revoked() then return ("asked to let go after %d steps"):format(done) end
    step()
  end
  return "all done"
end

if role == "work" then
  if assert(admin:slots()) == 0 then admin:create(2) end
  local _, outcome = assert(conn:semaphore("long-jobs"):with(work, number or 600))
  print(outcome)
elseif role == "ask" and number then
  print(assert(admin:revoke(number, { wait = 30 })) and "slot " .. number .. " is free")
else
  io.stderr:write "usage: revoke.lua work [STEPS] | ask SLOT\n"
  os.exit(1, true)
end
conn:close()
