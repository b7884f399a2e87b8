-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- One backup at a time, in the order in which they were started. A waiter prints that it waits.
--
--   waiting.lua [SECONDS]    a backup that takes so long
--
-- Start it in several terminals, and kill the one that works. The broker is AMQP_URL, or on localhost. The semaphore
-- "backups" is created with one slot if it is absent.

local amqplocks = require "amqplocks"

local seconds = tonumber(arg[1]) or 10
local conn = assert(amqplocks.connect())
if assert(conn:admin("backups"):slots()) == 0 then conn:admin("backups"):create(1) end

local function say(...)
  print(...)
  io.stdout:flush()
end

local function wait(waited, reason) say(("waiting for %.0f s: %s"):format(waited, reason)) end

local function backup(lock)
  say "working"
  assert(os.execute("sleep " .. seconds))
  assert(lock:held())
end

assert(conn:semaphore("backups"):with({ fair = true, on_wait = wait }, backup))
say "done"
conn:close()
