-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The commands of src/cli, and programs that run them, as processes that a spec starts.
--
--     local command = require "spec.support.command"
--     after_each(command.clear)                       -- ends them, and all that they have left behind
--     local one = command.start({ input = true }, "--hold", name)
--     one:await "held (%x+)\n"                        -- waits until the output matches
--     one:signal "TERM"
--     assert.same({ "signal", 15 }, { one:wait() })   -- or "exit", 0
--     local job = command.process(pid)                -- any process, by its number and start time
--     job:alive()
--
-- Options of `start`: `env`, variables to set (false: to unset); `program`, another program than amqp-lock; `pty`, in a
-- session with a terminal of its own; `input`, standard input that write() and close_input() serve (otherwise it is
-- empty); `ignore`, a list of signals; `close`, a list of descriptors; `fd`, a descriptor whose output told() returns.
local assert = require "luassert"
local process = require "spec.support.process"
local until_true = require "spec.support.until"

local command = {}
command.__index = command

local SECONDS = 60
local place
local started, running = 0, {}

--- Where the commands are.
command.DIRECTORY = os.getenv "AMQPLOCKS_CLI" or "build/cli"

local function quoted(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end

--- A directory for a spec's files, until command.clear().
function command.place()
  place = place or process.directory()
  return place
end

local function env_of(how)
  local words = { "env" }
  for name, value in pairs(how.env or {}) do
    if value == false then
      table.insert(words, "-u")
      table.insert(words, name)
    end
  end
  for name, value in pairs(how.env or {}) do
    if value then table.insert(words, name .. "=" .. value) end
  end
  return words
end

local function line_of(words, how, ...)
  table.insert(words, how.program or command.DIRECTORY .. "/amqp-lock")
  for _, word in ipairs { ... } do table.insert(words, word) end
  for i, word in ipairs(words) do words[i] = quoted(word) end
  return table.concat(words, " ")
end

local function words_of(how, base, ...)
  local words = env_of(how)
  for _, word in ipairs { process.PYTHON, "-IS", "spec/support/programs/launch.py", base, process.id() } do
    table.insert(words, word)
  end
  for _, flag in ipairs { "pty", "input" } do
    if how[flag] then table.insert(words, flag) end
  end
  for _, key in ipairs { "ignore", "close" } do
    for _, value in ipairs(how[key] or {}) do table.insert(words, key .. "=" .. value) end
  end
  if how.fd then table.insert(words, "fd=" .. how.fd) end
  table.insert(words, "--")
  return line_of(words, how, ...)
end

local function first_number(path)
  return until_true(function() return tonumber((process.contents(path) or ""):match "^(%d+)\n") end, SECONDS)
end

--- Starts amqp-lock, or how.program, with these arguments.
function command.start(how, ...)
  started = started + 1
  local base = ("%s/%d"):format(command.place(), started)
  local self = setmetatable({ base = base }, command)
  if how.pty or how.input then process.shell("mkfifo", base .. ".in") end
  local launch = words_of(how, base, ...)
  os.execute(("bash -c %s launch %s </dev/null >/dev/null 2>>%s &"):format(quoted(process.LAUNCH), launch,
    quoted(base .. ".log")))
  if how.pty or how.input then self.input = assert(io.open(base .. ".in", "r+")) end -- waits for no reader
  self.pid = first_number(base .. ".pid")
  self.launcher = command.process(tonumber((process.contents(base .. ".pid"):match "\n(%d+)\n")))
  table.insert(running, self)
  self.process = command.process(self.pid)
  return self
end

--- Its standard output and error so far; of a terminal, what it shows.
function command:output() return process.contents(self.base .. ".log") or "" end

--- Returns the text that it has written to the descriptor `fd`.
function command:told() return process.contents(self.base .. ".fd") or "" end

--- How it has ended: "exit" and its status, or "signal" and its number. nil: it has not.
function command:status()
  local how, number = (process.contents(self.base .. ".status") or ""):match "^(%l+) (%d+)\n"
  return how, tonumber(number)
end

--- Waits until it has ended; returns how.
function command:wait(seconds)
  until_true(function() return self:status(), self:output() end, seconds or SECONDS)
  return self:status()
end

--- Waits until its output matches the pattern; returns the captures, or the match.
function command:await(pattern, seconds)
  until_true(function()
    local how, number = self:status() -- first: what it wrote before its end is in the output then
    local output = self:output()
    if output:find(pattern) then return true end
    if how then error(("it has ended (%s %s):\n%s"):format(how, tostring(number), output), 0) end
    return nil, output
  end, seconds or SECONDS)
  return self:output():match(pattern)
end

--- Starts one whose command prints "job PID" for each process of it; returns it and these processes.
function command.start_jobs(how, jobs, ...)
  local one, all = command.start(how, ...), nil
  until_true(function()
    all = {}
    for pid in one:output():gmatch "job (%d+)\n" do table.insert(all, command.process(pid)) end
    return #all == jobs, one:output()
  end, SECONDS)
  for _, job in ipairs(all) do assert.is_true(job:alive()) end
  return one, all
end

--- Sends it a signal, unless it has ended.
function command:signal(name)
  if not self:status() then self.process:signal(name) end
end

--- Writes to its standard input, or types into its terminal.
function command:write(text)
  self.input:write(text)
  self.input:flush()
end

function command:close_input()
  self.input:close()
  self.input = nil
end

--- Ends its standard input; it must exit with this status.
function command:ends_with_input(status)
  self:close_input()
  assert.same({ "exit", status }, { self:wait() }, self:output())
end

--- Runs one to its end; returns how it ended, the number and its output.
function command.run(how, ...)
  local one = command.start(how, ...)
  local kind, number = one:wait()
  return kind, number, one:output()
end

--- Runs one that must exit with this status; returns its output. One that leaves nothing behind is started without the
-- program that would end that, which takes longer than most commands.
function command.ends(how, status, ...)
  if how.ignore or status > 128 then
    local kind, number, output = command.run(how, ...)
    assert.same({ "exit", status }, { kind, number }, output)
    return output
  end
  local words = line_of(how.env and env_of(how) or {}, how, ...)
  local pipe = assert(io.popen(("timeout --foreground %d %s </dev/null 2>&1; echo $?"):format(2 * SECONDS, words)))
  local output, number = pipe:read "*a":match "^(.-)(%d+)\n$"
  pipe:close()
  assert.equal(status, tonumber(number), output)
  return output
end

--- A process that lives now, by its number.
command.process = process.of

-- The end -----------------------------------------------------------------------------------------------------------

--- Ends all that was started. Call this after each test.
function command.clear()
  local old = running
  running = {}
  for _, one in ipairs(old) do
    if one.input then one:close_input() end
    one.launcher:signal "TERM"
  end
  for _, one in ipairs(old) do one.launcher:await_end() end
  if place then process.shell("rm", "-rf", place) end
  place = nil
end

return command
