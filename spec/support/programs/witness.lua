-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What lock:held() returned to a holder, and when the next holder got the locks. Each process records its own side
-- (see spec/support/witness.lua), by the machine's clock.
local lfs = require "lfs"
local socket = require "socket"
local clock = require "clock" -- spec/support/programs/clock.c
local values = require "spec.support.programs.values"

local witness = {}

local function look(lock, seen)
  local began = clock.now()
  local held, _, code = lock:held()
  if held then
    seen.held, seen.denied, seen.code = began, nil, nil
  elseif not seen.denied then
    seen.denied, seen.code = clock.now(), code
  end
end

--- Checks the locks until the spec sends something, and once more, with a pause of so many seconds after each round.
-- Notifies the spec after the first round. Returns three values for each lock: when the last check began that returned
-- held; when the first check after that one ended, which did not; and its code.
function witness.watch(locks, spec, pause)
  local all, results = {}, { n = #locks * 3 }
  for i = 1, #locks do all[i] = {} end
  local function look_around()
    for i, lock in ipairs(locks) do look(lock, all[i]) end
  end
  look_around()
  spec:send(values.message(true))
  repeat look_around() until socket.select({ spec }, nil, pause)[spec]
  look_around()
  for i, seen in ipairs(all) do
    results[i * 3 - 2], results[i * 3 - 1], results[i * 3] = seen.held, seen.denied, seen.code
  end
  return values.unpack(results, 1, results.n)
end

--- Calls lock:held() for so many seconds, up to three times: returns whether it never returned doubt in one of these
-- periods. If broker or machine pause for more than a heartbeat interval it returns doubt, which is right. For a pause
-- of less than two intervals the lock is not lost.
function witness.is_certain(lock, seconds)
  for _ = 1, 3 do
    local stop, was_certain = clock.now() + seconds, true
    while clock.now() < stop do
      local held, message, code = lock:held()
      assert(held or code == "suspect", message)
      was_certain = was_certain and held
    end
    if was_certain then return true end
  end
  return false
end

--- Acquires so many slots as soon as they are free, or every free slot until the spec sends something. Returns the
-- locks, and for each its slot, when the successful attempt began, and when it ended.
function witness.take(semaphore, spec, count)
  local results, locks = {}, {}
  while #locks < count and not socket.select({ spec }, nil, 0)[spec] do
    local began = clock.now()
    local lock, message, code = semaphore:try_acquire()
    if lock then
      table.insert(locks, lock)
      io.stdout:write("took ", lock.slot, "\n")
      io.stdout:flush()
      for _, value in ipairs{ lock.slot, began, clock.now() } do table.insert(results, value) end
    elseif code == "busy" or code == "contended" then
      socket.sleep(0.002)
    else
      error(message)
    end
  end
  return locks, values.unpack(results)
end

-- Threads ----------------------------------------------------------------------------------------------------------

--- The process's threads, as keys of a table.
function witness.threads()
  local threads = {}
  for thread in lfs.dir("/proc/self/task") do
    if tonumber(thread) then threads[thread] = true end
  end
  return threads
end

-- A field of the kernel's status of a thread; the main thread by default.
local function status(thread, key)
  local path = thread and ("/proc/self/task/%s/status"):format(thread) or "/proc/thread-self/status"
  for line in io.lines(path) do
    local value = line:match("^" .. key .. ":%s*(%x+)$")
    if value then return value end
  end
end

--- How many voluntary context switches a thread has had: how often it has waited.
function witness.switches(thread) return tonumber(status(thread, "voluntary_ctxt_switches")) end

--- The signals that a thread blocks, in hexadecimal digits.
function witness.blocked(thread) return status(thread, "SigBlk") end

return witness
