-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- Eight workers, each a process of its own, import orders under one mutex in Redis. One of them is killed in the middle
-- of its import. Its lock stays, so nobody imports on top of a half-done import, until an operator has looked at it and
-- breaks the lock. `make demo-db` runs this with a Redis of its own.
local dblocks = require "dblocks"
local process = require "spec.support.process"
local redis = require "spec.support.servers.redis"
local socket = require "socket"
local until_true = require "spec.support.until"

local WORKERS, TIMES = 8, 2
local RUN = [[ arg = { ... } return dofile "examples/dblocks/worker.lua" ]]

local began = socket.gettime()

local function say(...) print(("%5.1f s  %s"):format(socket.gettime() - began, (...):format(select(2, ...)))) end

local server = assert(redis.start("--save", ""))
local locks = dblocks.redis(function() return redis.connect(server.address) end, { name = "operator" })
assert(locks:setup())

local workers, path = {}, os.tmpname()
local log = assert(io.open(path))

-- Prints what the workers have written since the last call.
local function listen()
  log:seek "cur" -- what came since is not in the buffer
  for line in log:lines() do say("%s", line) end
end

local function listen_for(seconds)
  local ends = socket.gettime() + seconds
  while socket.gettime() < ends do
    listen()
    socket.sleep(0.02)
  end
end

-- The worker that has the mutex, and its ticket.
local function holder()
  local entry = locks:list()[1]
  return entry and workers[tonumber(entry.ticket:match "^worker%-(%d+)")], entry
end

local function story()
  say("%d workers import orders, %d times each; only one at a time may do so", WORKERS, TIMES)
  for number = 1, WORKERS do
    workers[number] = process.start()
    workers[number]:begin(RUN, ("%d"):format(server.address), ("worker-%d"):format(number), ("%d"):format(TIMES), path)
  end
  listen_for(1.5)

  local victim = until_true(holder, 10)
  victim:kill()
  listen()
  say("SIGKILL: %s is dead in the middle of its import", (select(2, holder())).ticket)
  listen_for(2)
  say("nobody has gone on: the import is half done, and a person has to look at it")
  for _, entry in ipairs(assert(locks:list())) do
    say("the operator lists: %s %s, %s, ticket %s, for %.1f s", entry.type, entry.id, entry.kind, entry.ticket,
      entry.age)
  end
  local _, left = holder()
  say("the operator has cleaned up, and breaks that lock")
  assert(locks:break_lock(left.type, left.id, left.ticket))
  for _, worker in ipairs(workers) do
    if worker ~= victim then
      until_true(function()
        listen()
        return worker:finished()
      end, 60)
    end
  end
  listen()
  assert(#locks:list() == 0)
  say("all others are done; no lock is left")
end

io.stdout:setvbuf "line"
local fine, problem = pcall(story)
process.clear()
server:stop()
os.remove(path)
if not fine then
  print(problem)
  os.exit(1)
end
