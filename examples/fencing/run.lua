-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- Why a resource should compare fencing tokens. Writer A takes a lock, and is stopped (SIGSTOP) just before it writes.
-- The broker misses its heartbeats, and the lock is free. Writer B takes it, and writes. Then A continues (SIGCONT) and
-- writes, as it cannot know what happened meanwhile. This is done twice: without fencing tokens, and with them.
--
--   run.lua    takes some 10 seconds
--
-- The broker is AMQP_URL, or on localhost.

local amqplocks = require "amqplocks"

local lua, folder = arg[-1], arg[0]:match "^(.*)/" or "."
package.path = folder .. "/?.lua;" .. package.path
local stores = require "store"
io.stdout:setvbuf "line"

local function say(...) print(("  " .. ...):format(select(2, ...))) end

local function start(...)
  return assert(io.popen(('"%s" "%s/writer.lua" %s 2>&1'):format(lua, folder, table.concat({ ... }, " "))))
end

-- Waits until the process is stopped.
local function until_stopped(process)
  for _ = 1, 600 do
    local file = assert(io.open("/proc/" .. process .. "/stat"))
    local state = file:read("*a"):match "^%d+ %(.*%) (%u)"
    file:close()
    if state == "T" then return end
    os.execute "sleep 0.1"
  end
  error("process " .. process .. " was not stopped within 60 s")
end

-- Reads the writer's next line, which begins with this word. Returns the two values behind it.
local function next_of(writer, word)
  local line = writer:read "*l" or "the writer has ended"
  local first, second = line:match("^" .. word .. "\t([^\t]+)\t?(.*)$")
  return assert(first, line), second
end

local function write(store, writer)
  local text, token = next_of(writer, "writes")
  if store:write(text, tonumber(token)) then
    say("the store accepts %s, token %s", text, token)
  else
    say("the store refuses %s: token %s is smaller than %.0f", text, token, store.fence)
  end
end

-- A is stopped, and still has the lock at the broker. B waits for it.
local function let_b_write(store, way, a)
  until_stopped(a)
  local b = start("B", way)
  local _, token = next_of(b, "holds")
  say("B holds the lock, token %s", token)
  write(store, b)
  say("B ends: %s", (next_of(b, "ends")))
  b:close()
end

local function show(way)
  local store, a = stores.new(), start("A", way, "pauses")
  local process, token = next_of(a, "holds")
  say("A holds the lock, token %s, and is stopped before it writes", token)
  local fine, problem = pcall(let_b_write, store, way, process)
  os.execute(("kill -s %s %s"):format(fine and "CONT" or "KILL", process)) -- otherwise it would stay for ever
  assert(fine, problem)
  say "A continues"
  write(store, a)
  say("A ends: %s", (next_of(a, "ends")))
  a:close()
  say("the file has %s", store:read())
  store:remove()
end

assert(amqplocks.connect()):close() -- without a broker the writers would fail one after the other
print "without fencing tokens:"
show "plain"
print "with fencing tokens:"
show "fenced"
