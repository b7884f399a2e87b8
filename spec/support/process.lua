-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Second processes: Lua with this checkout's modules. They run code that a spec sends, and can be signalled.
--
--     local process = require "spec.support.process"
--     after_each(process.clear)
--     local other = process.start()
--     other:run("lock = assert(require('amqplocks').connect():semaphore(...):acquire())", "images")
--     local slot = other:run("return lock.slot")
--     other:begin("lock:release()")                  -- does not wait for the end
--     other:finish()                                 -- waits, and returns the results
--     other:kill()                                   -- SIGKILL, and waits until the process is gone
--
-- Globals stay from one call to the next. Strings, numbers and booleans are passed in both directions; of any other
-- value its tostring. An error in the code is not caught: it ends the process, as it would end any script, and `run`
-- throws the output of the process.
local socket = require "socket"
local until_true = require "spec.support.until"
local values = require "spec.support.programs.values"

local process = {}
process.__index = process

local SECONDS = 60
local PROGRAM = "spec/support/programs/remote.lua"
local running = {}

--- The shell command that starts a program. Sockets of LuaSocket are not close-on-exec: a second process would inherit
-- the first one's connections and keep them open.
process.LAUNCH = [[for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done; exec "$@"]]

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

--- All of a file, or nil and the reason why it cannot be read.
function process.contents(path)
  local file, reason = io.open(path)
  if not file then return nil, reason end
  local text = file:read "*a"
  file:close()
  return text
end

--- Python: not the first in PATH, which may be a script that takes a second to find the real one.
process.PYTHON = process.contents "/usr/bin/python3" and "/usr/bin/python3" or "python3"

--- Makes a file of this text.
function process.write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  file:close()
end

-- What /proc says of a process, from its state on; empty: there is no such process.
local function fields_of(pid)
  local text = process.contents("/proc/" .. pid .. "/stat")
  local fields = {}
  for field in (text and text:match("^.*%) (.*)$") or ""):gmatch("%S+") do table.insert(fields, field) end
  return fields
end

-- State letter and start time of a process. The start time distinguishes it from a later one of the same number. nil:
-- there is no such process.
function process.stat(pid)
  local fields = fields_of(pid)
  return fields[1], fields[20]
end

local stat = process.stat

local TICKS = 100 -- a second; the unit of the times in /proc, on every Linux

--- The seconds of processor time that a process has used, with all of its threads.
function process.processor_seconds(pid)
  local fields = fields_of(pid)
  return (tonumber(fields[12]) + tonumber(fields[13])) / TICKS
end

-- Any process -------------------------------------------------------------------------------------------------------

local other = {}
other.__index = other
setmetatable(process, other)

--- A process that lives now, by its number: it has the methods from here to `kill`. It is not taken for a later one of
-- that number.
function process.of(pid)
  pid = tonumber(pid)
  return setmetatable({ pid = pid, started = select(2, stat(pid)) }, other)
end

--- Whether it lives. A stopped process does, a zombie does not.
function other:alive()
  local state, since = stat(self.pid)
  return self.started ~= nil and since == self.started and state ~= "Z" and state ~= "X"
end

local EXITING = 4 -- a flag of the kernel

--- Whether it lives and has not begun to exit. While a process exits, its descriptors may still be open, but it has no
-- environment any more by which amqp-lock could know it; on a busy machine that takes some milliseconds.
function other:runs()
  local flags = tonumber(fields_of(self.pid)[7])
  return self:alive() and flags ~= nil and math.floor(flags / EXITING) % 2 == 0
end

--- The process state that ps shows, or nil: "S" if it waits in the kernel, "T" if it is stopped.
function other:state() return self:alive() and stat(self.pid) or nil end

--- Waits until its state is this letter.
function other:await_state(letter)
  until_true(function() return self:state() == letter, tostring(self:state()) end, SECONDS)
end

function other:signal(name)
  if self:alive() then os.execute(("kill -s %s %d 2>/dev/null"):format(name, self.pid)) end
end

--- Waits until it has ended.
function other:await_end(seconds)
  until_true(function()
    return not self:alive(), ("process %d lives: %s"):format(self.pid, self.output and self:output() or "")
  end, seconds or SECONDS)
end

--- SIGKILL. Returns when the process is gone.
function other:kill()
  self:signal "KILL"
  self:await_end()
end

-- Second processes --------------------------------------------------------------------------------------------------

--- This process's own id.
function process.id() return tonumber(process.contents("/proc/self/stat"):match("^%d+")) end

--- Starts one. `environment`: a table of variables to set for it. Further arguments: a command that runs it, and
-- the command's arguments.
function process.start(environment, ...)
  local server = assert(socket.bind("127.0.0.1", 0))
  server:settimeout(SECONDS)
  local _, port = server:getsockname()
  local self, log = setmetatable({}, process), os.tmpname()
  local words = { "env" }
  for name, value in pairs(environment or {}) do table.insert(words, quoted(name .. "=" .. value)) end
  for _, word in ipairs{ ... } do table.insert(words, quoted(word)) end
  for _, word in ipairs{ "bash", "-c", process.LAUNCH, "launch", os.getenv "LUA" or "lua", PROGRAM, tostring(port) } do
    table.insert(words, quoted(word))
  end
  os.execute(table.concat(words, " ") .. " </dev/null >>" .. quoted(log) .. " 2>&1 &")
  self.socket = server:accept()
  server:close()
  self.log = assert(io.open(log))
  os.remove(log)  -- now, not at the end: a spec that is killed does not reach its end
  if not self.socket then error("the second process did not start: " .. self:output(), 2) end
  self.socket:setoption("tcp-nodelay", true)
  self.pid = self:finish()
  self.started = select(2, stat(self.pid))
  table.insert(running, self)
  return self
end

--- Its output so far, standard output and error.
function process:output()
  self.log:seek "set"
  return self.log:read "*a"
end

--- Runs code with arguments in the process; does not wait for the end.
function process:begin(code, ...)
  assert(self.socket:send(values.message(code, ...)))
  return self
end

--- Whether the begun code has ended.
function process:finished()
  return socket.select({ self.socket }, nil, 0)[self.socket] ~= nil
end

--- Waits for the end of the begun code, and returns its results.
function process:finish(seconds)
  self.socket:settimeout(seconds or SECONDS)
  local results, err = values.receive(self.socket)
  if not results then
    if err == "closed" then until_true(function() return not self:alive() end) end
    error(("the second process %s: %s"):format(err == "closed" and "ended" or "gave no answer", self:output()), 2)
  end
  return values.unpack(results, 1, results.n)
end

--- Runs code in the process, and returns its results.
function process:run(code, ...) return self:begin(code, ...):finish() end

local function close(self)
  self.socket:close()
  self.log:close()
end

--- Closes the descriptors for a process that has ended.
function process:forget()
  for i, one in ipairs(running) do
    if one == self then
      table.remove(running, i)
      break
    end
  end
  close(self)
end

--- Ends all second processes. Call this after each test.
function process.clear()
  while running[1] do
    local one = table.remove(running)
    one:kill()
    close(one)
  end
end

--- Runs a command and returns its output; throws the output if the command failed.
function process.shell(...)
  local words = {}
  for i, word in ipairs{ ... } do words[i] = quoted(word) end
  local pipe = assert(io.popen(table.concat(words, " ") .. " 2>&1; echo \"$?\""))
  local output, status = pipe:read("*a"):match("^(.-)(%d+)\n$")
  pipe:close()
  if status ~= "0" then error(output, 2) end
  return output
end

--- Runs a Lua program, by its text; returns its output, and whether it ended well.
function process.run_lua(text)
  local path = os.tmpname()
  process.write(path, text)
  local fine, output = pcall(process.shell, os.getenv "LUA" or "lua5.4", path)
  os.remove(path)
  return output, fine
end

--- Creates an empty directory; the caller removes it.
function process.directory() return (process.shell("mktemp", "-d"):match "^[^\n]+") end

--- Makes a directory, or empties it.
function process.empty_directory(path)
  process.shell("sh", "-c", 'rm -rf "$1" && mkdir -p "$1"', "sh", path)
end

--- Starts another process that listens, on its global `server`. Returns it, and the port.
function process.listener()
  local new = process.start()
  return new, new:run "server = assert(require('socket').bind('127.0.0.1', 0)) return (select(2, server:getsockname()))"
end

local modules -- the directory with the C modules built so far

--- The pkg-config package of this run's Lua.
function process.lua_package()
  local version, jit = _VERSION:match("%d.%d"), rawget(_G, "jit")
  for _, suffix in ipairs{ jit and "jit" or version, "-" .. version, (version:gsub("%.", "")) } do
    if pcall(process.shell, "pkg-config", "--exists", "lua" .. suffix) then return "lua" .. suffix end
  end
  error("pkg-config knows no headers of " .. _VERSION)
end

--- The objects of this build that were made of sources, such as "src/core/*/*.c", and the flags to link them with.
-- These are the sources that there are today: an older build may have left objects of others.
function process.objects(sources)
  local place = os.getenv "AMQPLOCKS_OBJECTS" or "build/objects"
  local objects = process.shell("sh", "-c", "echo " .. sources):gsub("src/(%S+)%.c", place .. "/%1.o"):gsub("\n", " ")
  return objects .. (os.getenv "AMQPLOCKS_SANITIZER" or "")
end

--- Builds spec/support/programs/NAME.c; returns the entry for package.cpath. `flags`: more for the compiler.
function process.c_module(name, flags)
  modules = modules or process.directory()
  process.shell("sh", "-c", [[exec ${CC:-cc} -shared -fPIC $(pkg-config --cflags "$1") -o "$2" "$3" $4]], "cc",
    process.lua_package(), modules .. "/" .. name .. ".so", "spec/support/programs/" .. name .. ".c", flags or "")
  return modules .. "/?.so;"
end

--- Builds such a module and loads it.
function process.load_module(name, flags)
  local cpath = package.cpath
  package.cpath = process.c_module(name, flags) .. cpath
  local loaded = require(name)
  package.cpath = cpath
  return loaded
end

--- Removes the C modules. Call this at the end of a file that built some.
function process.remove_modules()
  if modules then process.shell("rm", "-rf", modules) end
  modules = nil
end

return process
