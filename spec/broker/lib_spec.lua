-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The results of `make lib` and `make lib-lua`: their exported symbols, their header, that they are found after
-- installation, and what programs in C do with them.
local broker = require "spec.support.broker"
local header = require "spec.support.header"
local kinds = require "spec.support.kinds"
local process = require "spec.support.process"
local program = require "spec.support.program"
local stage = require "spec.support.stage"

local operated_it = broker.operated_it(it, pending)

local HEADER, SYMBOLS = "src/amqplocks.h", "src/amqplocks.symbols"

stage.tidy(program.clear)
teardown(program.remove)

local function read(path) return assert(process.contents(path)) end

-- What nm lists, as sorted names; without what a sanitizer adds.
local function names(...)
  local found = {}
  for name in process.shell("nm", "-P", ...):gmatch "([^%s:]+) %a [^\n]*" do
    if not name:find "^__" then table.insert(found, name) end
  end
  table.sort(found)
  return found
end

describe("the C library", function()
  -- A name that is missing in src/amqplocks.symbols breaks programs that were linked before; the version then grows.
  it("shows the functions that amqplocks.h declares and src/amqplocks.symbols lists, and nothing else", function()
    local functions, listed = header.functions(), {}
    for name in read(SYMBOLS):gmatch "[^\n]+" do table.insert(listed, name) end
    assert.is_true(#functions > 50)
    assert.same(functions, names("-D", "--defined-only", program.LIB .. "/libamqplocks.so"))
    assert.same(functions, names("-g", "--defined-only", program.LIB .. "/libamqplocks.a"))
    assert.same(functions, listed)
  end)

  it("knows nothing of Lua", function()
    for _, name in ipairs(names("-D", "-u", program.LIB .. "/libamqplocks.so")) do assert.not_matches("^lua", name) end
    for _, name in ipairs(names("-u", program.LIB .. "/libamqplocks.a")) do assert.not_matches("^lua", name) end
    assert.not_matches("lua", process.shell("readelf", "-d", program.LIB .. "/libamqplocks.so"))
  end)

  it("calls its own functions, also in a program that has others by these names", function()
    for name in process.shell("readelf", "-rW", program.LIB .. "/libamqplocks.so"):gmatch "%sal_[%w_]+" do
      error("looked up in the program first:" .. name)
    end
  end)

  it("has its version in its names", function()
    local version = header.version()
    local dynamic = process.shell("readelf", "-d", program.LIB .. "/libamqplocks.so")
    assert.equal("libamqplocks.so." .. version:match "^%d+%.%d+", dynamic:match "soname: %[(.-)%]")
    assert.equal("libamqplocks.so." .. version,
      process.shell("readlink", "-f", program.LIB .. "/libamqplocks.so"):match "([^/]+)\n$")
    for _, name in ipairs { "amqplocks", "amqplocks-" .. program.LUA } do
      assert.equal(version .. "\n",
        process.shell("env", "PKG_CONFIG_PATH=" .. program.LIB, "pkg-config", "--modversion", name))
    end
  end)
end)

describe("the Lua module", function()
  -- Otherwise a program that links the library and loads the module would have the one call the other's functions.
  it("neither shows nor asks for anything of amqplocks.h", function()
    local core = assert(package.searchpath("amqplocks.core", package.cpath))
    assert.same({ "luaopen_amqplocks_core" }, names("-D", "--defined-only", core))
    for _, name in ipairs(names("-D", "-u", core)) do assert.not_matches("^al_", name) end
  end)

  it("as an archive for hosts shows its opener alone", function()
    local archive = ("%s/libamqplocks-%s.a"):format(program.LIB, program.LUA)
    assert.same({ "luaopen_amqplocks" }, names("-g", "--defined-only", archive))
    for _, name in ipairs(names("-u", archive)) do assert.not_matches("^al_", name) end
  end)
end)

describe("amqplocks.h", function()
  it("is a header by itself, of C11 and of C++", function()
    local path = program.place() .. "/header"
    process.write(path .. ".c", "#include <amqplocks.h>\n#include <amqplocks.h>\nextern int some;\n")
    process.write(path .. ".cc", "#include <amqplocks.h>\n#include <amqplocks.h>\n"
      .. "const char *name() { return al_code_name(AL_LOST); }\n")
    for standard, compiler in pairs { c11 = "${CC:-cc}", ["c++11"] = "${CXX:-c++}" } do
      process.shell("sh", "-c", compiler .. ' -std="$1" -Wall -Wextra -Wpedantic -Werror -I"$2" -c -o "$3.o" "$3"',
        "sh", standard, program.LIB, path .. (standard == "c11" and ".c" or ".cc"))
    end
    process.shell("sh", "-c", 'nm "$1" | grep -q " U al_code_name$"', "sh", path .. ".cc.o") -- by its name in C
  end)

  it("says of every function what it does", function()
    local paragraphs, functions = read(HEADER) .. "\n", 0
    for paragraph in paragraphs:gmatch "(.-)\n\n" do
      local code = paragraph:gsub("/%*.-%*/", "")
      for name in code:gmatch "(al_[%w_]+)%s*%([^()]*%)%s*;" do
        functions = functions + 1
        -- What ends a thing needs no words beside what is said of them all.
        if not name:find "_drop$" then assert.matches("/%*.-%*/", paragraph, name) end
      end
    end
    assert.equal(#header.functions(), functions)
  end)
end)

describe("the libraries, once they are installed", function()
  local root

  -- pkg-config, of what is installed below `root`.
  local function flags(...)
    return process.shell("env", "PKG_CONFIG_PATH=" .. root .. "/opt/lib 64/multi/pkgconfig", "pkg-config", ...)
  end

  setup(function()
    root = program.place() .. "/other root"
    program.make("install-lib", "install-lib-lua", "DESTDIR=" .. root, "PREFIX=/opt", "LIBDIR=/opt/lib 64/multi",
      "INCLUDEDIR=/opt/headers")
  end)

  it("are where pkg-config says, also where there is a blank in LIBDIR", function()
    local shared, archive = flags("--libs", "amqplocks"), "amqplocks-" .. program.LUA
    assert.matches("^%-I/opt/headers%s", flags("--cflags", "amqplocks"))
    assert.matches("^%-L/opt/lib\\ 64/multi %-lamqplocks", shared)
    assert.not_matches("%-lrabbitmq", shared)
    assert.matches("^%-L/opt/lib\\ 64/multi %-l" .. archive:gsub("%p", "%%%0") .. " ", flags("--libs", archive))
    for _, packages in ipairs { "amqplocks", archive } do
      assert.matches("%-lrabbitmq .*%-lssl .*%-lcrypto", flags("--static", "--libs", packages))
    end
  end)

  it("are what a program uses", function()
    local path = program.place() .. "/uses.c"
    process.write(path, "#include <amqplocks.h>\n#include <stdio.h>\n"
      .. "int main(void) { return puts(al_code_name(AL_NOT_FOUND)) < 0; }\n")
    local place = program.place()
    process.shell("sh", "-c", [[ln -s "$1/opt/lib 64/multi" "$2/lib" && ln -s "$1/opt/headers" "$2/include" &&
      sed -i "s|^libdir=.*|libdir=$2/lib|; s|^includedir=.*|includedir=$2/include|" "$2"/lib/pkgconfig/*.pc]], "sh",
      root, place) -- whose name has no blank
    local uses = program.build(path, "amqplocks", { lib = place .. "/lib/pkgconfig" })
    assert.same({ 0, "not_found\n" }, { program.run({ LD_LIBRARY_PATH = place .. "/lib" }, uses) })
    assert.not_equal(0, (program.run({}, uses)))
  end)
end)

-- Starts a program of amqplocks.h.
local function start(...)
  return program.start({ AMQP_URL = os.getenv "AMQP_URL", LD_LIBRARY_PATH = program.LIB }, ...)
end

-- A program with a name ends well, with these words.
local function says(words, ...)
  local status, output = start(...):wait()
  assert.same({ 0, words .. "\n" }, { status, output })
end

describe("a program in C", function()
  local interface

  setup(function() interface = program.build("spec/support/programs/interface.c", "amqplocks") end)

  it("from amqplocks(3) holds its mutex", function()
    local path = program.place() .. "/page.c"
    process.write(path, (read "docs/man/amqplocks.3":match "\n%.Bd %-literal[^\n]*\n(.-)%.Ed\n"))
    says("alone with the database", program.build(path, "amqplocks"), "none")
  end)

  it("has no connection afterwards when a session is closed by its thread while the program connects", function()
    says("nothing is open", program.build("spec/support/programs/closing.c", "amqplocks"), stage.mutex())
  end)

  -- What is given back in any order, names, and threads that take turns, as amqplocks.h says.
  it("drops what it has in any order, and has threads that take turns, also watched for data races", function()
    local lib = program.races "lib"
    for _, how in ipairs { { lib = program.LIB }, { lib = lib } } do
      local name = stage.semaphore(2)
      local habits = program.build("spec/support/programs/habits.c", "amqplocks", how)
      assert.same({ 0, "all so\n" }, { program.run({ AMQP_URL = os.getenv "AMQP_URL", LD_LIBRARY_PATH = how.lib,
        TSAN_OPTIONS = program.RACES }, habits, name) })
      assert.is_true(stage.free(name, 1) and stage.free(name, 2))
    end
  end)

  it("waits for a descriptor, a signal or a time as well, with an operation or without", function()
    says("all so", interface, "descriptors", stage.mutex())
  end)

  it("waits for what it has begun, in one call, and is told a failure once", function()
    says("all so", interface, "blocking", stage.mutex())
  end)

  operated_it("that only waits wakes when its lock is asked back, and when it is lost", function()
    local name = stage.mutex()
    local one = start(interface, "idle", name)
    one:await("held\n")
    assert.is_true(stage.connect():mutex(name):revoke())
    one:await("revoked\n")
    broker.suite:delete_queue(name .. "-mutex")
    local status, output = one:wait()
    assert.equal(0, status, output)
    local shown = name:gsub("%p", "%%%0")
    assert.matches("\nlost\n", output)
    assert.matches("\ninfo ok %[%] holder connection to [^\n]+ is open\n", output)
    assert.matches("\ninfo ok %[" .. shown .. '%] another client asks the holder of "' .. shown .. "%-mutex", output)
    assert.matches("\nwarning lost %[" .. shown .. '%] "' .. shown .. '%-mutex" was lost: ', output)
  end)

  it("that only waits wakes when its mutex for clusters is lost", function()
    if not kinds.all.quorum_mutex then return pending "from 4.3 on" end
    local name = kinds.all.quorum_mutex.name()
    local one = start(interface, "idle quorum", name)
    one:await("held\n")
    stage.fails("conflict", stage.connect():fast_mutex(name):try_acquire())
    stage.delete(name .. "-fastmutex")
    assert.matches("\nlost\n.*\nwarning lost [^\n]*%-fastmutex\" was lost: ", select(2, one:wait()))
  end)
end)
