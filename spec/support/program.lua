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
--     local status, output = one:wait()                          -- or 128 plus the signal that ended it
--
-- They are commands (command.lua), which run in an empty directory, with only the given environment variables.
local command = require "spec.support.command"
local process = require "spec.support.process"

local program = setmetatable({}, { __index = command })
program.__index = program

local place
local built = 0

--- Where the libraries are.
program.LIB = os.getenv "AMQPLOCKS_LIB" or "build/lib"

--- The Lua of this run, by the name that pkg-config and the libraries use.
program.LUA = (os.getenv "LUA" or "lua5.4"):match "[^/]+$"

--- Whether this run uses sanitizers. They cannot be linked statically, for example.
program.sanitized = os.getenv "SANITIZE_REPORTS" ~= nil and os.getenv "SANITIZE_REPORTS" ~= ""

--- A directory for a spec's files, until program.remove().
function program.place()
  place = place or process.directory()
  return place
end

--- Runs make for this run's Lua, independent of the make that started this run, one at a time: goals share objects.
function program.make(...)
  return process.shell("flock", "build/make.turn", "env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "make",
    "LUA=" .. program.LUA, ...)
end

--- Builds one of the libraries with the thread sanitizer, whatever this run is built with; returns its directory.
function program.races(goal)
  program.make(goal, "VARIANT=-races", "SANITIZE=thread", "CFLAGS=-O0 -g1")
  return process.shell("pwd"):match "[^\n]+" .. "/build/lib-races"
end

--- TSAN_OPTIONS for these libraries. Without io_sync=0 a read from a socket counts as synchronised with all earlier
-- writes to other sockets.
program.RACES = ("io_sync=0:suppressions=%s/spec/support/races.txt"):format(process.shell("pwd"):match "[^\n]+")

program.lua_package = process.lua_package

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
  local words = { "-i", "-C", (process.shell("mktemp", "-d", "-p", program.place()):match "[^\n]+") }
  for name, value in pairs(environment) do table.insert(words, name .. "=" .. value) end
  for _, word in ipairs { path, ... } do table.insert(words, word) end
  return setmetatable(command.start({ program = "env" }, (table.unpack or unpack)(words)), program)
end

--- Its exit status, or 128 plus the signal that ended it; nil while it runs.
function program:status()
  local how, number = command.status(self)
  return how == "signal" and 128 + number or number
end

--- Waits until it has ended; returns its status and output.
function program:wait(seconds) return command.wait(self, seconds), self:output() end

--- Starts a program and waits for its end.
function program.run(...) return program.start(...):wait() end

--- Call this at the end of the file.
function program.remove()
  if place then process.shell("rm", "-rf", place) end
  place = nil
end

return program
