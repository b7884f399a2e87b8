-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- A server that answers while its jobs wait for a lock: everything in one thread, with luv.
--
--   luv.lua [JOBS]    does so many jobs, one at a time across all running programs, and ends
--
-- Meanwhile it sends each client that connects to its port the number of remaining jobs. The broker is AMQP_URL, or on
-- localhost.

local amqplocks = require "amqplocks"
local uv = require "luv"

local left = tonumber(arg[1]) or 3
local server = uv.new_tcp()
io.stdout:setvbuf "line"

local function answer()
  local guest = uv.new_tcp()
  server:accept(guest)
  guest:write(("%d jobs left\n"):format(left), function() guest:close() end)
end

local function serve()
  assert(server:bind("127.0.0.1", 0))
  assert(server:listen(16, answer))
  print("asking on port " .. server:getsockname().port)
end

local function sleep(seconds)
  local thread, timer = coroutine.running(), uv.new_timer()
  timer:start(seconds * 1000, 0, function()
    timer:close()
    assert(coroutine.resume(thread))
  end)
  coroutine.yield()
end

local function work(lock, number)
  print(("job %d works"):format(number))
  sleep(0.5)
  assert(lock:held())
end

local function all_jobs()
  local conn = assert(amqplocks.connect(nil, { driver = "luv" }))
  local report = conn:mutex "report"
  for number = 1, left do
    coroutine.wrap(function()
      assert(report:with({ timeout = 60 }, work, number)) -- all jobs wait at once, on one connection
      left = left - 1
      if left > 0 then return end
      conn:close()
      server:close()
      print "done"
    end)()
  end
end

serve()
coroutine.wrap(all_jobs)()
uv.run()
