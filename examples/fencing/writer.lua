-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- One writer. It takes the lock, makes sure that it holds it, and writes. run.lua starts it, and reads what it prints.
--
--   writer.lua NAME fenced|plain [pauses]

local amqplocks = require "amqplocks"

local name, is_fenced, pauses = arg[1], arg[2] == "fenced", arg[3] == "pauses"
io.stdout:setvbuf "line"

local function process_id()
  local file = assert(io.open "/proc/self/stat")
  local id = file:read "*n"
  file:close()
  return ("%d"):format(id)
end

-- All of this process stops, the thread that sends heartbeats too, until somebody sends SIGCONT. A host that is
-- suspended, and a machine that swaps, do the same at any moment.
local function pause() os.execute "kill -s STOP $PPID" end

-- The heartbeat is short, so that the broker soon misses it.
local conn = assert(amqplocks.connect(nil, { heartbeat = 2 }))
local lock
repeat lock = assert(conn:mutex("edition", { fenced = is_fenced }):acquire { timeout = 60 }) until lock:held()
local token = lock.fence and ("%.0f"):format(lock.fence) or "none" -- not in the form 1.7e+15, as older Luas print it
print("holds", process_id(), token)

if pauses then pause() end -- after held() was true, and before the write
print("writes", name .. "'s edition", token) -- to the store, at the other end of the pipe

local released, _, code = lock:release()
print("ends", released and "released" or code)
