-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Ways of installing the module, from a copy of the tree that is built once. Each time a program uses the broker, and
-- prints from where it loaded the module. Further: what make does if something is missing, which variables for
-- packagers it honours, and how installed files are removed. release_spec installs by LuaRocks.
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

  local function copy_tree(name_of_copy)
    local copy = place .. "/" .. name_of_copy
    process.shell("mkdir", "-p", copy .. "/spec", copy .. "/docs")
    process.shell("cp", "-R", "Makefile", "amqp-locks-scm-1.rockspec", "LICENSE", "lua", "src", copy)
    process.shell("cp", "-R", "spec/support", copy .. "/spec")
    process.shell("cp", "-R", "docs/man", copy .. "/docs")
  end

  local function write_program(path, text)
    process.shell("mkdir", "-p", path:match "^(.*)/")
    local file = assert(io.open(path, "w"))
    file:write("#!/bin/sh\n" .. text)
    file:close()
    process.shell("chmod", "+x", path)
  end

  local built_with -- the calls of the compiler and of ar by which the tree was built

  -- Builds it by the tools and with the flags of a packager.
  local function build()
    for _, tool in ipairs { "cc", "ar" } do
      write_program(place .. "/tools/" .. tool, ('echo "%s $*" >>%s\nexec %s "$@"\n'):format(tool,
        quote(place .. "/calls"), tool))
    end
    run("/tree", ("make -j2 LUA=%s all lib"):format(quote(LUA)),
      ("CC=%s/cc AR=%s/ar CPPFLAGS='-D_FORTIFY_SOURCE=2 -Wdate-time' CFLAGS='-O0 -fstack-protector-strong' "
        .. "LDFLAGS='-Wl,-z,relro -Wl,-z,now'"):format(quote(place .. "/tools"), quote(place .. "/tools")))
    built_with = process.contents(place .. "/calls")
  end

  setup(function ()
    place = process.directory()
    process.shell("mkdir", "-p", place .. "/elsewhere")
    copy_tree "tree"
    copy_tree "bare"  -- where nothing is built
    local file = assert(io.open(place .. "/elsewhere/program.lua", "w"))
    file:write(PROGRAM)
    file:close()
    build()
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
    process.shell("sh", "-c", 'rm "$1"/tree/build/*/amqplocks/core.so', "sh", place)  -- so it builds
    local settings = make "-s env"
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
      local own = ("@/lua/?.lua;@/lua/?/init.lua;@/db-locks/?.lua;@/db-locks/?/init.lua;"):gsub("@", place .. "/tree")
      assert.equal(own .. "before/?.lua", path)
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

  -- ---- where something is missing ----

  -- A system on which no package is installed and pkg-config finds nothing; its apt-get only notes what it is called
  -- with. Gives the environment for run().
  local function bare_system()
    process.shell("rm", "-rf", place .. "/called")
    for _, tool in ipairs { "apt-get", "apt", "apt-cache" } do
      write_program(place .. "/programs/" .. tool, ('echo "%s $*" >>%s\n'):format(tool, quote(place .. "/called")))
    end
    write_program(place .. "/programs/sudo", 'exec "$@"\n')
    write_program(place .. "/programs/dpkg-query", "exit 1\n")
    return ("PATH=%s:\"$PATH\" PKG_CONFIG_LIBDIR=/nonexistent"):format(quote(place .. "/programs"))
  end

  local function make_fails(goal, environment)
    local fine, output = pcall(run, "/bare", ("make LUA=%s %s"):format(quote(LUA), goal), environment)
    assert.is_false(fine, goal)
    return output
  end

  it("names what each goal lacks and the line that installs it, and installs nothing", function()
    local environment, tried = bare_system(), {}
    for _, goal in ipairs { "", "build", "lib", "lib-lua", "cli", "install DESTDIR=../none",
      "install-lib DESTDIR=../none", "install-cli DESTDIR=../none", "install-lib-lua DESTDIR=../none",
      "-j4 install install-lib DESTDIR=../none", "-s env" } do
      local said = make_fails(goal, environment)
      assert.matches("\n  rabbitmq%-c %(", said, goal)
      local line, packages = said:match "\n`(make deps[^\n]*)` installs it, by: apt%-get install ([^\n]*)"
      assert.matches("librabbitmq%-dev", packages, goal)
      assert.is_nil(process.contents(place .. "/called"), goal)
      assert.is_nil(process.contents(place .. "/none"), goal)
      assert.not_matches("export", said, goal)
      tried[line] = packages
    end
    for line, packages in pairs(tried) do
      run("/bare", line, environment)
      local called = process.contents(place .. "/called")
      for package in packages:gmatch "%S+" do assert.is_truthy(called:find(" " .. package, 1, true), package) end
      process.shell("rm", place .. "/called")
    end
  end)

  it("names a compiler that is not there, and only that", function ()
    local said = make_fails("", "CC='no-such-cc -m64'")
    assert.matches("\n  a C compiler %(no%-such%-cc%)\n", said)
    assert.not_matches("rabbitmq%-c", said)
  end)

  it("names the Luas that there are when asked for another", function ()
    local fine, said = pcall(run, "/bare", "make LUA=lua5.9")
    assert.is_false(fine)
    assert.matches("LUA=lua5%.9: this builds for lua5%.5, lua5%.4, lua5%.3, lua5%.1 or luajit", said)
  end)

  it("installs packages by make deps, those for building unless it is told what else they are for", function ()
    local environment = bare_system()
    run("/bare", "make deps", environment)
    local called = process.contents(place .. "/called")
    assert.matches("apt%-get install [^\n]*librabbitmq%-dev", called)
    assert.matches("liblua5%.4%-dev", called)
    assert.not_matches("rabbitmq%-server", called)
    process.shell("rm", place .. "/called")
    run("/bare", "make deps FOR=lib", environment)
    assert.not_matches("lua", process.contents(place .. "/called"))
    local said = make_fails("deps FOR=tset", environment)
    assert.matches("FOR=tset: ", said)
  end)

  -- ---- what packagers set ----

  it("is built by the tools and with the flags that are set, in the environment or on the command line", function ()
    local compiled, linked = 0, 0
    for call in built_with:gmatch "cc ([^\n]*)\n" do
      if call:find(" -c ", 1, true) then
        compiled = compiled + 1
        assert.matches("-D_FORTIFY_SOURCE=2 -Wdate-time", call, 1, true)
        assert.matches("-O0 -fstack-protector-strong", call, 1, true)
      elseif call:find("-shared", 1, true) then
        linked = linked + 1
        assert.matches("-Wl,-z,relro -Wl,-z,now", call, 1, true)
      end
    end
    assert.is_true(compiled > 50)
    assert.equal(2, linked)
    assert.matches("ar rcs build/lib/libamqplocks.a", built_with, 1, true)
    process.shell("rm", place .. "/calls")
    run("/tree", ("make -B LUA=%s build/%s/objects/core/base/code.o CC=%s/cc CPPFLAGS=-Wdate-time CFLAGS='-O0 -g3'")
      :format(LUA, LUA, quote(place .. "/tools")))
    assert.matches("%-O0 %-g3 [^\n]*%-Wdate%-time [^\n]*%-c ", process.contents(place .. "/calls"))
  end)

  it("goes below DESTDIR where LIBDIR, LUA_LDIR and LUA_CDIR say, in the environment or as arguments", function ()
    local usr = place .. "/staged here/usr"
    run("/tree", ("make LUA=%s install DESTDIR='../staged here'"):format(LUA),
      "PREFIX=/usr LIBDIR=/usr/lib/multi LUA_LDIR=/usr/share/modules CFLAGS=-O0")
    local lib = ("%s/lib/multi/lua/%s"):format(usr, VERSION)
    assert.same({ usr .. "/share/modules/amqplocks/init.lua", lib .. "/amqplocks/core.so" },
      program(usr .. "/share/modules/?.lua;" .. usr .. "/share/modules/?/init.lua", lib .. "/?.so"))
    make "install DESTDIR='../staged here' LUA_CDIR=/opt/c LUA_LDIR=/opt/lua"
    assert.is_string(process.contents(place .. "/staged here/opt/c/amqplocks/core.so"))
    assert.is_string(process.contents(place .. "/staged here/opt/lua/amqplocks/init.lua"))
  end)

  -- ---- going away again ----

  local function list(path) return process.shell("sh", "-c", 'cd "$1" && find . | LC_ALL=C sort', "sh", path) end

  local ALL = "install install-lib install-lib-lua install-cli"

  it("goes away by make uninstall, all of it, with the directories that were made for it", function ()
    local where = "PREFIX=/usr LIBDIR=/usr/lib/multi DESTDIR='../to go/away'"
    assert.not_matches("ldconfig", make("-j4 " .. ALL .. " " .. where))
    local listed = list(place .. "/to go")
    for _, file in ipairs { "/multi/libamqplocks.a", "/usr/bin/amqp-lock", "/usr/share/man/man1/amqp-lock.1",
      "/usr/share/bash-completion/completions/amqp-lock-admin" } do
      assert.is_truthy(listed:find(file .. "\n", 1, true), file)
    end
    make("uninstall " .. where)
    assert.is_false((pcall(list, place .. "/to go")))
    make("uninstall " .. where)  -- there is nothing to be removed, and that is no error
  end)

  it("goes away when what was made is not known any more, but for DESTDIR itself", function ()
    make(ALL .. " DESTDIR='../to go'")
    process.shell("rm", place .. "/tree/build/directories")
    make("uninstall DESTDIR='../to go'")
    assert.equal(".\n", list(place .. "/to go"))
    process.shell("rmdir", place .. "/to go")
  end)

  it("leaves what was there before, or came from others, when it goes", function ()
    local prefix = place .. "/prefix"
    for _, directory in ipairs { "include", "lib/pkgconfig", "share/lua/" .. VERSION .. "/other" } do
      process.shell("mkdir", "-p", prefix .. "/" .. directory)
    end
    local before = list(prefix)
    assert.matches("find libamqplocks%.so%S+ after ldconfig", make(ALL .. " PREFIX=" .. quote(prefix)))
    process.shell("touch", prefix .. "/share/lua/" .. VERSION .. "/amqplocks/foreign.lua")
    make("uninstall PREFIX=" .. quote(prefix))
    assert.equal(("./share/lua/%s/amqplocks\n./share/lua/%s/amqplocks/foreign.lua\n"):format(VERSION, VERSION),
      (list(prefix):gsub("[^\n]+\n", function (line) return before:find(line, 1, true) and "" or nil end)))
    process.shell("rm", "-r", prefix .. "/share/lua/" .. VERSION .. "/amqplocks")
    assert.equal(before, list(prefix))
  end)
end)
