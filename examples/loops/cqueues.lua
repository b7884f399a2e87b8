-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- A server that answers while its jobs wait for a lock: everything in one thread, with cqueues.
--
--   cqueues.lua [JOBS]    does so many jobs, one at a time across all running programs, and ends
--
-- Meanwhile it sends each client that connects to its port the number of remaining jobs. The broker is AMQP_URL, or on
-- localhost.

local amqplocks = require "amqplocks"
local condition = require "cqueues.condition"
local cqueues = require "cqueues"
local socket = require "cqueues.socket"

local left = tonumber(arg[1]) or 3
local loop, done = cqueues.new(), condition.new()
local server = assert(socket.listen("127.0.0.1", 0))
io.stdout:setvbuf "line"

-- Starts a coroutine of the loop. An error in it ends the program.
local function spawn(fn, ...)
  local arguments, count = { ... }, select("#", ...)
  loop:wrap(function() fn((table.unpack or unpack)(arguments, 1, count)) end)
end

local function answer(guest)
  guest:write(("%d jobs left\n"):format(left))
  guest:close()
end

local function serve()
  print("asking on port " .. select(3, server:localname()))
  while left > 0 do
    local guest = server:accept(0)
    if guest then spawn(answer, guest) else cqueues.poll(server, done) end
  end
end

local function work(lock, number)
  print(("job %d works"):format(number))
  cqueues.sleep(0.5)
  assert(lock:held())
end

local function all_jobs()
  local conn = assert(amqplocks.connect(nil, { driver = "cqueues" }))
  local report = conn:mutex "report"
  for number = 1, left do
    spawn(function()
      assert(report:with({ timeout = 60 }, work, number)) -- all jobs wait at once, on one connection
      left = left - 1
      done:signal()
    end)
  end
  while left > 0 do done:wait() end
  conn:close()
  print "done"
end

spawn(serve)
spawn(all_jobs)
assert(loop:loop())
