-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Every way in which the module gets to where a program finds it, from a copy of the tree. Each time the program does
-- its work on the broker, and says where it found what it loaded.
local client = require "spec.support.client"
local process = require "spec.support.process"
local scene = require "spec.broker.facts.scene"

local LUA = (os.getenv "LUA" or "lua5.4"):match "[^/]+$"
local VERSION = _VERSION:match "%d+%.%d+"

local PROGRAM = [[
  local amqplocks = require "amqplocks"
  local conn = assert(amqplocks.connect())
  assert(conn:admin(arg[1]):create(2) == 2)
  local lock = assert(conn:semaphore(arg[1]):try_acquire())
  assert(lock:release())
  conn:close()
  local function found(name, path)  -- package.searchpath, which Lua 5.1 does not have
    for template in path:gmatch "[^;]+" do
      local file = template:gsub("%?", (name:gsub("%.", "/")))
      if io.open(file) then return file end
    end
  end
  print(found("amqplocks", package.path))
  print(found("amqplocks.core", package.cpath))
]]

describe("the module", function ()
  local place  -- a directory with a copy of the tree in it, and whatever is made from it
  local name

  local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

  -- Runs a command in an environment of its own, from the given directory below `place`, and gives what it printed to
  -- standard output. It must succeed.
  local function run(directory, command, environment)
    local log = place .. "/log"
    local fine, output = pcall(process.shell, "sh", "-c",
      ("cd %s && exec env -i PATH=\"$PATH\" HOME=%s AMQP_URL=%s %s sh -c %s 2>%s"):format(quote(place .. directory),
        quote(place), quote(os.getenv "AMQP_URL"), environment or "", quote(command), quote(log)))
    if not fine then error(command .. ":\n" .. output .. io.open(log):read("*a"), 2) end
    return output
  end

  local function make(goal) return run("/tree", ("make LUA=%s CFLAGS=-O0 %s"):format(quote(LUA), goal)) end

  -- What a program finds when these are its paths, having done its work.
  local function program(path, cpath)
    local output = run("/elsewhere", ("%s program.lua %s"):format(quote(LUA), quote(name)),
      ("LUA_PATH=%s LUA_CPATH=%s"):format(quote(path), quote(cpath)))
    return { output:match "^([^\n]*)\n([^\n]*)\n$" }
  end

  local function has_worked()
    local raw = scene.connect()
    assert.is_true(raw:exists(name .. "-2-A"))
    assert.is_false(raw:exists(name .. "-1-B"))
    return true
  end

  setup(function ()
    place = process.directory()
    process.shell("mkdir", "-p", place .. "/tree/spec", place .. "/elsewhere")
    process.shell("cp", "-R", "Makefile", "amqp-locks-scm-1.rockspec", "LICENSE", "lua", "src", place .. "/tree")
    process.shell("cp", "-R", "spec/support", place .. "/tree/spec")
    local file = assert(io.open(place .. "/elsewhere/program.lua", "w"))
    file:write(PROGRAM)
    file:close()
  end)
  teardown(function () os.execute("rm -rf " .. quote(place)) end)

  before_each(function ()
    name = client.unique("install")
    scene.undo(function ()
      local sweeper = assert(client.connect())
      for i = 1, 2 do sweeper:delete(("%s-%d-A"):format(name, i)) end
      sweeper:close()
    end)
  end)
  after_each(scene.clear)

  it("is found anywhere in a shell that took the settings of make env, which prints nothing else", function ()
    local settings = make "-s env"  -- from nothing, so it builds
    local exported = {}
    for line in settings:gmatch "[^\n]+" do
      table.insert(exported, line:match "^export ([%w_]+)='[^']*'\"[^\"]*\"$" or line)
    end
    assert.same({ "LUA_PATH", "LUA_CPATH" }, exported)
    local found = run("/elsewhere", ('eval "$(make -s -C ../tree LUA=%s CFLAGS=-O0 env)" && %s program.lua %s'):format(
      LUA, LUA, quote(name)))
    assert.equal(place .. "/tree/lua/amqplocks/init.lua\n" .. place .. "/tree/build/" .. LUA .. "/amqplocks/core.so\n",
      found)
    assert.is_true(has_worked())
  end)

  it("is found with its own settings in front of those that were there, whichever Lua looks at", function ()
    local suffix = "_" .. VERSION:gsub("%.", "_")
    for _, end_of_name in ipairs{ "", suffix } do
      local settings = run("/tree", ("make -s LUA=%s CFLAGS=-O0 env"):format(LUA),
        ("LUA_PATH%s=before/?.lua LUA_CPATH%s=before/?.so"):format(end_of_name, end_of_name))
      local path = run("", settings .. ('printf %%s "$LUA_PATH%s"'):format(end_of_name),
        ("LUA_PATH%s=before/?.lua"):format(end_of_name))
      assert.equal(("%s/tree/lua/?.lua;%s/tree/lua/?/init.lua;before/?.lua"):format(place, place), path)
    end
  end)

  it("is put in place by make install, all of it and nothing else", function ()
    make("install DESTDIR=../staged PREFIX=/usr")
    local root = place .. "/staged/usr"
    local share, lib = root .. "/share/lua/" .. VERSION, root .. "/lib/lua/" .. VERSION
    local expected = run("/tree/lua", "find . -name '*.lua' | LC_ALL=C sort")
    assert.equal(expected, run("/staged/usr/share/lua/" .. VERSION, "find . -type f -perm 644 | LC_ALL=C sort"))
    assert.equal("./amqplocks/core.so\n", run("/staged/usr/lib/lua/" .. VERSION, "find . -type f -perm 755"))
    local _, files = expected:gsub("\n", "")
    assert.equal(files + 1, tonumber(run("/staged", "find . -type f | wc -l")))
    assert.same({ share .. "/amqplocks/init.lua", lib .. "/amqplocks/core.so" },
      program(share .. "/?.lua;" .. share .. "/?/init.lua", lib .. "/?.so"))
    assert.is_true(has_worked())
  end)

  it("is built and installed from its rockspec by LuaRocks", function ()
    local rocks = place .. "/rocks"
    run("/tree", ("luarocks --lua-version %s make --tree %s CFLAGS='-O0 -fPIC'"):format(VERSION, quote(rocks)))
    local function path(kind)
      return run("", ("luarocks --lua-version %s --tree %s path --%s"):format(VERSION, quote(rocks), kind)):match "%S+"
    end
    local share, lib = rocks .. "/share/lua/" .. VERSION, rocks .. "/lib/lua/" .. VERSION
    assert.same({ share .. "/amqplocks/init.lua", lib .. "/amqplocks/core.so" },
      program(path "lr-path", path "lr-cpath"))
    assert.equal(run("/tree/lua", "find . -name '*.lua' | LC_ALL=C sort"),
      run("/rocks/share/lua/" .. VERSION, "find . -name '*.lua' | LC_ALL=C sort"))
    -- In a program that is linked with the C library it must not call the functions of that one.
    assert.equal("", run("/rocks", "nm -D lib/lua/" .. VERSION .. "/amqplocks/core.so | grep -w al_op_drop || true"))
    assert.is_true(has_worked())
  end)
end)
