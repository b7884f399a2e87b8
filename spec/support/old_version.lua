-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Version 0.1.0 of this library, for specs in which clients of both versions meet. It is taken out of the history of
-- this checkout, and built once for each Lua, in build/.
--
--     local old_it = old_version.it(it, pending)     -- pending, with the reason, where it cannot be built
--     local one = process.start(old_version.environment())
local lfs = require "lfs"
local process = require "spec.support.process"
local program = require "spec.support.program"

local old_version = {}

local COMMIT = "b4ad7ce" -- the last one of version 0.1.0
local PLACE = "build/version-0.1.0"
local LUAS = { ["lua5.4"] = true, ["lua5.3"] = true, ["lua5.1"] = true, luajit = true }

local function git(...) return pcall(process.shell, "git", "-c", "safe.directory=*", ...) end

local function missing()
  if not LUAS[program.LUA] then return "version 0.1.0 cannot be built for " .. program.LUA end
  if program.sanitized then return "version 0.1.0 is not built with the sanitizers" end
  if lfs.attributes(PLACE) or git("cat-file", "-e", COMMIT .. "^{commit}") then return nil end
  return "this checkout has no history with version 0.1.0"
end

-- One at a time, as several runs may share build/. What is there is whole.
local function extract()
  process.shell("sh", "-ec", [[
    mkdir -p build
    exec 9>"$2.turn"
    flock 9
    [ ! -e "$2" ] || exit 0
    rm -rf "$2.new"
    mkdir "$2.new"
    git -c safe.directory='*' archive "$1" | tar -x -C "$2.new"
    mv "$2.new" "$2"
  ]], "extract", COMMIT, PLACE)
end

--- `it`, or `pending` where version 0.1.0 cannot be built; the reason is then part of the test's name.
function old_version.it(it, pending)
  local why = missing()
  if not why then return it end
  return function(what) pending(what .. " (" .. why .. ")") end
end

--- The variables with which a second process finds version 0.1.0. Builds it if it is not built.
function old_version.environment()
  local root = process.shell("pwd"):match "[^\n]+" .. "/" .. PLACE
  extract()
  process.shell("flock", PLACE .. ".turn", "env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "-u", "SANITIZE", "-u", "WERROR",
    "make", "-s", "-j2", "-C", PLACE, "LUA=" .. program.LUA, "build")
  return {
    LUA_PATH = root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua;./?.lua;;",
    LUA_CPATH = root .. "/build/" .. program.LUA .. "/?.so;;",
  }
end

return old_version
