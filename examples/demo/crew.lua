-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- The processes of the demo, which all write to one pipe; and functions that control them. See crew.sh.

local here, lua = arg[0]:match "^(.*)/" or ".", arg[-1]

local Crew = {}
Crew.__index = Crew

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function content(path, format)
  local file = assert(io.open(path))
  local found = file:read(format)
  file:close()
  return found
end

-- Seconds of a clock that no process sets.
local function clock() return content("/proc/uptime", "*n") end

--- Starts workers of these letters and a semaphore of so many slots.
local function new(slots, letters)
  local semaphore = "amqp-locks-demo-" .. content("/proc/sys/kernel/random/uuid", "*l")
  local words = { "exec setsid", quoted(here .. "/crew.sh"), quoted(lua), semaphore, slots, letters }
  local pipe = assert(io.popen(table.concat(words, " ")))
  local id = (pipe:read "*l" or ""):match "^crew started (%d+)$"
  return setmetatable({ semaphore = semaphore, pipe = pipe, id = assert(id, "the crew did not start") }, Crew)
end

--- Iterates over the lines that they write, with the time of each in seconds since the first call. Ten times a second
-- there is an empty line.
function Crew:lines()
  local began, next_line = clock(), self.pipe:lines()
  return function()
    local line = next_line()
    return line, line and clock() - began
  end
end

-- Runs a command whose output goes into the pipe, too.
local function run(self, command)
  local status = os.execute(("{ %s\n} >/proc/%d/fd/1 2>&1"):format(command, self.id))
  if status ~= true and status ~= 0 then error("failed: " .. command, 0) end
end

--- "add 1", "remove 2"
function Crew:administer(action)
  run(self, table.concat({ quoted(lua), quoted(here .. "/admin.lua"), self.semaphore, action }, " "))
end

--- Does not wait for the kill: its line in the log is read, and gets its time, before another worker gets the slot.
function Crew:kill(worker)
  run(self, ("{ echo admin kills %s; kill -9 %d; } &"):format(worker.letter, worker.pid))
end

--- Ends all remaining processes, and destroys the semaphore. True on success.
function Crew:dismiss() return self.pipe:close() end

return { new = new }
