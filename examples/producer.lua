-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- One producer of a group is active and the others stand by. When the active one dies the next takes over at once.
--
--   producer.lua         a group of three; the active one is killed after three messages, until none is left
--   producer.lua NAME    one producer: start several in several terminals, on any machines, and kill them yourself
--
-- The broker is AMQP_URL, or on localhost. No administrator has to create the mutex "producer".

local amqplocks = require "amqplocks"

local lua, program, name = arg[-1], arg[0], arg[1]
io.stdout:setvbuf "line"

local function number_in(path)
  local file = assert(io.open(path))
  local number = file:read "*n"
  file:close()
  return number
end

-- ---- one of them ----------------------------------------------------------------------------------------------------

local process = number_in "/proc/self/stat" -- the first number in that file is this process's id

local function say(text) print(name, process, text) end

local function produce(lock)
  say "is active"
  local messages = 0
  while lock:held() do
    messages = messages + 1
    say("message " .. messages) -- in place of publishing a message
    os.execute "sleep 0.2"
  end
end

-- A producer that loses the mutex, or the broker, stands by again.
local function stand_by()
  local mutex = assert(amqplocks.connect()):mutex "producer"
  repeat
    local had, message, code = mutex:with(produce) -- produce returns nothing: the message is the lock's
    say(message or "released")
  until not had and code ~= "lost" and code ~= "unreachable"
end

-- ---- the group ------------------------------------------------------------------------------------------------------

-- Without a broker all of the processes would fail, so this checks first.
local function start(...)
  assert(amqplocks.connect()):close()
  local command = ""
  for _, one in ipairs { ... } do command = command .. ('"%s" "%s" %s 2>&1 & '):format(lua, program, one) end
  return assert(io.popen(command .. "wait"))
end

local function kill_whoever_is_active(group)
  local killed_at
  for line in group:lines() do
    print(line)
    if killed_at and line:find "is active$" then
      print(("taken over %.2f s after the last one was killed"):format(number_in "/proc/uptime" - killed_at))
    elseif line:find "message 3$" then
      killed_at = number_in "/proc/uptime"
      os.execute("kill -s KILL " .. line:match "%s(%d+)%s")
    end
  end
end

if name then
  stand_by()
else
  kill_whoever_is_active(start("A", "B", "C"))
end
