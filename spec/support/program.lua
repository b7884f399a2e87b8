-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- C programs that are built with the results of `make lib` and `make lib-lua`, and run.
--
--     local program = require "spec.support.program"
--     after_each(program.clear)                                  -- ends programs that still run
--     teardown(program.remove)                                   -- and removes the built programs
--     local worker = program.build("examples/c/worker.c", "amqplocks")
--     local one = program.start({ AMQP_URL = … }, worker, "images", "1")
--     one:signal("TERM")
--     local status, output = one:wait()
--
-- They run in an empty directory, with only the given environment variables.
local process = require "spec.support.process"
local until_true = require "spec.support.until"

local program = {}
program.__index = program

local place
local built, running = 0, {}

--- Where the libraries are.
program.LIB = os.getenv "AMQPLOCKS_LIB" or "build/lib"

--- The Lua of this run, by the name that pkg-config and the libraries use.
program.LUA = (os.getenv "LUA" or "lua5.4"):match "[^/]+$"

--- Whether this run uses sanitizers. They cannot be linked statically, for example.
program.sanitized = os.getenv "SANITIZE_REPORTS" ~= nil and os.getenv "SANITIZE_REPORTS" ~= ""

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

--- A directory for a spec's files, until program.remove().
function program.place()
  place = place or process.directory()
  return place
end

--- Runs make for this run's Lua, independent of the make that started this run.
function program.make(...)
  return process.shell("env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "make", "LUA=" .. program.LUA, ...)
end

--- Builds one of the libraries with the thread sanitizer, whatever this run is built with; returns its directory.
function program.races(goal)
  program.make(goal, ("BUILD=build/%s-races"):format(program.LUA), "SANITIZE=thread", "CFLAGS=-O1 -g")
  return process.shell("pwd"):match "[^\n]+" .. "/build/lib-races"
end

--- TSAN_OPTIONS for these libraries. Without io_sync=0 a read from a socket counts as synchronised with all earlier
-- writes to other sockets.
program.RACES = ("io_sync=0:suppressions=%s/spec/support/races.txt"):format(process.shell("pwd"):match "[^\n]+")

--- The pkg-config package of this run's Lua.
function program.lua_package()
  local version = _VERSION:match "%d.%d"
  for _, name in ipairs { program.LUA, "lua" .. version, "lua-" .. version, "lua" .. version:gsub("%.", "") } do
    if pcall(process.shell, "pkg-config", "--exists", name) then return name end
  end
  error("pkg-config knows no headers of " .. _VERSION)
end

--- Builds a program from a file as users do: with the flags of pkg-config for these packages. Warnings are errors.
-- Returns its path. `how`: { lib = where to look for packages, flags = more compiler flags, static = link statically }
function program.build(source, packages, how)
  how = how or {}
  local path = ("%s/program%d"):format(program.place(), built)
  built = built + 1
  process.shell("sh", "-c", [[
    flags=$(PKG_CONFIG_PATH=$1 pkg-config $5 --cflags --libs $4) || exit
    exec ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -g $5 $6 -pthread -o "$2" "$3" $flags
  ]], "sh", how.lib or program.LIB, path, source, packages, how.static and "-static" or "", how.flags or "")
  return path
end

--- Starts a program, by its path.
function program.start(environment, path, ...)
  local self = setmetatable({ base = ("%s/run%d"):format(program.place(), built) }, program)
  built = built + 1
  process.shell("mkdir", self.base .. ".empty")
  local words = { "env", "-i" }
  for name, value in pairs(environment) do table.insert(words, name .. "=" .. value) end
  for _, word in ipairs { path, ... } do table.insert(words, word) end
  for i, word in ipairs(words) do words[i] = quoted(word) end
  local base = quoted(self.base)
  local begin = quoted("echo $$ >" .. base .. '.pid; exec "$@"')
  local command = "{ cd %s.empty; bash -c %s launch sh -c %s sh %s >%s.log 2>&1 </dev/null; echo $? >%s.status; } &"
  os.execute(command:format(base, quoted(process.LAUNCH), begin, table.concat(words, " "), base, base))
  self.pid = until_true(function() return (process.contents(self.base .. ".pid") or ""):match "^(%d+)\n" end)
  table.insert(running, self)
  return self
end

--- Its output so far.
function program:output() return process.contents(self.base .. ".log") or "" end

--- Its exit status, or 128 plus the signal that ended it; nil while it runs.
function program:status() return tonumber((process.contents(self.base .. ".status") or ""):match "^(%d+)\n") end

function program:signal(name)
  if not self:status() then os.execute(("kill -s %s %s 2>/dev/null"):format(name, self.pid)) end
end

--- Waits until its output matches the pattern.
function program:await(pattern, seconds)
  return until_true(function()
    local output = self:output()
    if output:find(pattern) then return output:match(pattern) end
    if self:status() then error("it has ended:\n" .. self:output(), 0) end
    return nil, output
  end, seconds or 20)
end

--- Waits until it has ended; returns its status and output.
function program:wait(seconds)
  until_true(function() return self:status(), self:output() end, seconds or 20)
  return self:status(), self:output()
end

--- Starts a program and waits for its end.
function program.run(...) return program.start(...):wait() end

--- Ends running programs. Call this after each test.
function program.clear()
  local old = running
  running = {}
  for _, one in ipairs(old) do
    one:signal("KILL")
    one:wait()
  end
end

--- Call this at the end of the file.
function program.remove()
  if place then process.shell("rm", "-rf", place) end
  place = nil
end

return program
