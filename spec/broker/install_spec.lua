-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- make env, install, uninstall and deps, in a copy of the tree: a program finds the module and uses the broker; what
-- make does if something is missing, and which variables for packagers it honours. (release_spec has LuaRocks.)
local client = require "spec.support.client"
local process = require "spec.support.process"

local LUA = (os.getenv "LUA" or "lua5.4"):match "[^/]+$"
local VERSION = _VERSION:match "%d+%.%d+"

local PROGRAM = [[
  local amqplocks = require "amqplocks"
  local conn = assert(amqplocks.connect())
  assert(conn:admin(arg[1]):create(2) == 2)
  assert(assert(conn:semaphore(arg[1]):try_acquire()):release())
  assert(conn:admin(arg[1]):destroy())
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

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function list(path) return process.shell("sh", "-c", 'cd "$1" && find . | LC_ALL=C sort', "sh", path) end

describe("the module", function()
  local place -- a directory with two copies of the tree in it, and whatever is made from them
  local tools -- variables for make: tools that note how they are called, and flags
  local settings -- what the first `make env` printed, which had to build

  -- Runs a command in an environment of its own, from the given directory below `place`, and gives what it printed to
  -- standard output. It must succeed.
  local function run(directory, words, environment)
    local log = place .. "/log"
    local fine, output = pcall(process.shell, "sh", "-c",
      ("cd %s && exec env -i PATH=\"$PATH\" HOME=%s AMQP_URL=%s %s sh -c %s 2>%s"):format(quote(place .. directory),
        quote(place), quote(os.getenv "AMQP_URL"), environment or "", quote(words), quote(log)))
    if not fine then error(words .. ":\n" .. output .. io.open(log):read("*a"), 2) end
    return output
  end

  local function make(goal, environment)
    return run("/tree", ("make LUA=%s CFLAGS=-O0 %s"):format(quote(LUA), goal), environment)
  end

  -- What a program finds when these are its paths, having done its work.
  local function program(path, cpath)
    return run("/elsewhere", ("%s program.lua %s"):format(quote(LUA), client.unique "install"),
      ("LUA_PATH=%s LUA_CPATH=%s"):format(quote(path), quote(cpath)))
  end

  local function write_program(name, text)
    process.write(place .. name, "#!/bin/sh\n" .. text)
    process.shell("chmod", "+x", place .. name)
  end

  -- One file of the module has changed since this checkout was built, from which the rest is copied, if it was.
  setup(function()
    place = process.directory()
    process.shell("sh", "-c", [[
      cd "$1" && mkdir -p elsewhere programs tools tree/spec tree/docs tree/build && cd "$OLDPWD" || exit
      cp -Rp Makefile LICENSE lua src "$1/tree" && cp -Rp spec/support "$1/tree/spec" && cp -Rp docs/man "$1/tree/docs"
      cp -Rp "$1/tree" "$1/bare"
      for built in "$2" objects lib cli; do [ ! -d "build/$built" ] || cp -Rp "build/$built" "$1/tree/build"; done
      rm -f "$1"/tree/build/lib/*.pc && touch "$1/tree/src/core/base/code_name.c"]], "sh", place, LUA)
    process.write(place .. "/elsewhere/program.lua", PROGRAM)
    for _, tool in ipairs { "cc", "ar" } do
      write_program("/tools/" .. tool, ('echo "%s $*" >>%s\nexec %s "$@"\n'):format(tool, quote(place .. "/calls"),
        tool))
    end
    tools = ("CC=%s/cc AR=%s/ar CPPFLAGS='-D_FORTIFY_SOURCE=2 -Wdate-time' CFLAGS='-O0 -fstack-protector-strong' "
      .. "LDFLAGS='-Wl,-z,relro -Wl,-z,now'"):format(quote(place .. "/tools"), quote(place .. "/tools"))
    settings = run("/tree", ("make -s LUA=%s env"):format(LUA), tools)
  end)
  teardown(function() os.execute("rm -rf " .. quote(place)) end)

  it("is found anywhere in a shell that took the settings of make env, which prints nothing else", function()
    local exported = {}
    for line in settings:gmatch "[^\n]+" do
      table.insert(exported, line:match "^export ([%w_]+)='[^']*'\"[^\"]*\"$" or line)
    end
    assert.same({ "LUA_PATH", "LUA_CPATH" }, exported)
    local found = run("/elsewhere", ('eval "$(make -s -C ../tree LUA=%s env)" && %s program.lua %s'):format(LUA, LUA,
      client.unique "install"))
    assert.equal(place .. "/tree/lua/amqplocks/init.lua\n" .. place .. "/tree/build/" .. LUA .. "/amqplocks/core.so\n",
      found)
  end)

  it("is found with its own settings in front of those that were there, whichever Lua looks at", function()
    for _, suffix in ipairs { "", "_" .. VERSION:gsub("%.", "_") } do
      local there = ("LUA_PATH%s=before/?.lua LUA_CPATH%s=before/?.so"):format(suffix, suffix)
      local path = run("", make("-s env", there) .. ('printf %%s "$LUA_PATH%s"'):format(suffix), there)
      local own = ("@/lua/?.lua;@/lua/?/init.lua;@/db-locks/?.lua;@/db-locks/?/init.lua;"):gsub("@", place .. "/tree")
      assert.equal(own .. "before/?.lua", path)
    end
  end)

  it("is built by the tools and with the flags that are set, in the environment or on the command line", function()
    run("/tree", ("make LUA=%s lib"):format(LUA), tools)
    local calls, compiled, linked = process.contents(place .. "/calls"), 0, 0
    for call in calls:gmatch "cc ([^\n]*)\n" do
      if call:find(" -c ", 1, true) then
        compiled = compiled + 1
        assert.matches("%-O0 %-fstack%-protector%-strong [^\n]*%-D_FORTIFY_SOURCE=2 %-Wdate%-time [^\n]*%-c ", call)
      elseif call:find("-shared", 1, true) then
        linked = linked + 1
        assert.matches("-Wl,-z,relro -Wl,-z,now", call, 1, true)
      end
    end
    assert.is_true(compiled >= 1)
    assert.equal(2, linked)
    assert.matches("ar rcs build/lib/libamqplocks.a", calls, 1, true)
    process.shell("rm", place .. "/calls")
    run("/tree", ("make -B LUA=%s build/objects/core/base/code_name.o %s"):format(LUA, tools))
    assert.matches("%-O0 %-fstack%-protector%-strong [^\n]*%-D_FORTIFY_SOURCE=2 %-Wdate%-time [^\n]*%-c ",
      process.contents(place .. "/calls"))
  end)

  -- ---- in place, and away again ----

  local ALL = "install install-lib install-lib-lua install-cli"

  it("is put in place by make install, and leaves what was there before, or came from others, when it goes", function()
    local prefix = place .. "/prefix"
    local share, lib = prefix .. "/share/lua/" .. VERSION, prefix .. "/lib/lua/" .. VERSION
    process.shell("mkdir", "-p", prefix .. "/include", prefix .. "/lib/pkgconfig", share .. "/other")
    local before = list(prefix)
    assert.matches("find libamqplocks%.so%S+ after ldconfig", make(ALL .. " PREFIX=" .. quote(prefix)))
    assert.equal(process.shell("sh", "-c", "cd lua && find . -name '*.lua' | LC_ALL=C sort"),
      process.shell("sh", "-c", 'cd "$1" && find . -type f -perm 644 | LC_ALL=C sort', "sh", share))
    assert.equal("./amqplocks/core.so\n", process.shell("sh", "-c", 'cd "$1" && find . -type f -perm 755', "sh", lib))
    assert.equal(share .. "/amqplocks/init.lua\n" .. lib .. "/amqplocks/core.so\n",
      program(share .. "/?.lua;" .. share .. "/?/init.lua", lib .. "/?.so"))
    process.shell("touch", share .. "/amqplocks/foreign.lua")
    make("uninstall PREFIX=" .. quote(prefix))
    assert.equal(("./share/lua/%s/amqplocks\n./share/lua/%s/amqplocks/foreign.lua\n"):format(VERSION, VERSION),
      (list(prefix):gsub("[^\n]+\n", function(line) return before:find(line, 1, true) and "" or nil end)))
    process.shell("rm", "-r", share .. "/amqplocks")
    assert.equal(before, list(prefix))
  end)

  it("goes below DESTDIR where LUA_LDIR and LUA_CDIR say, in the environment or as arguments", function()
    make("install DESTDIR='../staged here/root' LUA_LDIR=/opt/lua", "PREFIX=/usr LUA_CDIR=/opt/c")
    for _, file in ipairs { "opt/lua/amqplocks/init.lua", "opt/c/amqplocks/core.so" } do
      assert.is_string(process.contents(place .. "/staged here/root/" .. file), file)
    end
  end)

  it("goes away by make uninstall, all of it, with the directories that were made for it", function()
    local where = "PREFIX=/usr LIBDIR=/usr/lib/multi DESTDIR='../to go/away'"
    assert.not_matches("ldconfig", make("-j4 " .. ALL .. " " .. where))
    local listed = list(place .. "/to go")
    for _, file in ipairs { "/multi/libamqplocks.a", ("/multi/lua/%s/amqplocks/core.so"):format(VERSION),
      "/multi/libamqplocks.so", "/usr/include/amqplocks.h", ("/multi/libamqplocks-%s.a"):format(LUA),
      "/usr/share/man/man3/amqplocks.3", "/usr/bin/amqp-lock", "/usr/share/man/man1/amqp-lock.1",
      "/usr/share/bash-completion/completions/amqp-lock-admin", "/usr/share/zsh/site-functions/_amqp-lock",
      "/usr/share/fish/vendor_completions.d/amqp-lock-admin.fish" } do
      assert.is_truthy(listed:find(file .. "\n", 1, true), file)
    end
    make("uninstall " .. where)
    assert.is_false((pcall(list, place .. "/to go")))
    make("uninstall " .. where) -- there is nothing to be removed, and that is no error
    -- When what was made is not known any more, DESTDIR itself stays.
    make "install DESTDIR='../to go'"
    process.shell("rm", place .. "/tree/build/directories")
    make "uninstall DESTDIR='../to go'"
    assert.equal(".\n", list(place .. "/to go"))
  end)

  -- ---- where something is missing ----

  -- A system on which no package is installed and pkg-config finds nothing; its apt-get only notes what it is called
  -- with. Gives the environment for run().
  local function bare_system()
    for _, tool in ipairs { "apt-get", "apt", "apt-cache" } do
      write_program("/programs/" .. tool, ('echo "%s $*" >>%s\n'):format(tool, quote(place .. "/called")))
    end
    write_program("/programs/sudo", 'exec "$@"\n')
    write_program("/programs/dpkg-query", "exit 1\n")
    return ("PATH=%s:\"$PATH\" PKG_CONFIG_LIBDIR=/nonexistent"):format(quote(place .. "/programs"))
  end

  -- What apt-get has been called with since the last time, or nil.
  local function called()
    local lines = process.contents(place .. "/called")
    os.remove(place .. "/called")
    return lines
  end

  local function make_fails(goal, environment)
    local fine, output = pcall(run, "/bare", ("make LUA=%s %s"):format(quote(LUA), goal), environment)
    assert.is_false(fine, goal)
    return output
  end

  it("needs packages: make names what it lacks and the line that installs it, and installs nothing", function()
    local environment = bare_system()
    for _, goal in ipairs { "", "cli", "-j4 install install-lib DESTDIR=../none", "-s env" } do
      local said = make_fails(goal, environment)
      assert.matches("\n  rabbitmq%-c %(", said)
      local line, packages = said:match "\n`(make deps[^\n]*)` installs it, by: apt%-get install ([^\n]*)"
      assert.matches("librabbitmq%-dev", packages)
      assert.is_nil(called())
      assert.is_nil(process.contents(place .. "/none"))
      assert.not_matches("export", said)
      run("/bare", line, environment)
      local got = called()
      for package in packages:gmatch "%S+" do assert.is_truthy(got:find(" " .. package, 1, true), package) end
    end
  end)

  it("needs a compiler and a Lua: make names the one that is not there, and only that", function()
    local said = make_fails("", "CC='no-such-cc -m64'")
    assert.matches("\n  a C compiler %(no%-such%-cc%)\n", said)
    assert.not_matches("rabbitmq%-c", said)
    assert.matches("\n  [^\n]*, for musl\n`make deps FOR=musl` ", make_fails "cli STATIC=1 LIBC=musl")
    local fine, told = pcall(run, "/bare", "make LUA=lua5.9")
    assert.is_false(fine)
    assert.matches("LUA=lua5%.9: this builds for lua5%.5, lua5%.4, lua5%.3, lua5%.1 or luajit", told)
  end)

  it("has its packages installed by make deps, those for building unless it is told what else they are for", function()
    local environment = bare_system()
    run("/bare", "make deps", environment)
    local got = called()
    assert.matches("apt%-get install [^\n]*librabbitmq%-dev", got)
    assert.matches("liblua5%.4%-dev", got)
    assert.not_matches("rabbitmq%-server", got)
    run("/bare", "make deps FOR=lib", environment)
    assert.not_matches("lua", called())
    assert.matches("FOR=tset: ", make_fails("deps FOR=tset", environment))
  end)
end)
