-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Programs that host Lua and have amqp-locks linked in. They run in an empty directory, and their Lua has no search
-- path for files.
local process = require "spec.support.process"
local program = require "spec.support.program"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local URL = os.getenv "AMQP_URL"
local PACKAGES

setup(function() PACKAGES = ("amqplocks-%s %s"):format(program.LUA, process.lua_package()) end)
stage.tidy(program.clear)
teardown(program.remove)

local function environment(url, path) return { AMQP_URL = url, LUA_PATH = path or "", LUA_CPATH = "" } end

describe("a host with two Lua states on two threads", function()
  local host

  setup(function() -- statically, down to the last library
    host = program.build("examples/embed/host.c", PACKAGES, { static = not program.sanitized })
  end)

  it("has them work in turns, in a place where there is no file, and together with everybody else", function()
    local name = stage.semaphore(1)
    local held = stage.occupy(name, 1)
    local one = program.start(environment(URL), host, name, "10")
    held:await_looks(2)
    assert.equal("", one:output())
    held:release()
    stage.ring(name, 1)
    assert.equal("worked 20 of 20 times, 0 times together\n", select(2, one:wait()))
    assert.is_true(stage.free(name, 1))
    assert.equal(1, stage.connect():admin(name):slots())
  end)

  it("says so in both states when there is no broker, or it goes away under them", function()
    local status, output = program.run(environment "amqp://127.0.0.1:1", host, "none", "1")
    assert.equal(1, status, output)
    assert.matches("^host: .*unreachable: no broker at 127.0.0.1:1\n", output)
    local name, between = stage.semaphore(1), proxy.start()
    local one = program.start(environment(between.url), host, name, "1000000")
    until_true(function() return between:count() == 4 end) -- each state's two
    stage.until_held(name, 1)
    between.server:kill()
    status, output = one:wait()
    assert.equal(1, status, output)
    local told, lines = output:gsub("host: [^\n]*script:%d+: (%l+): [^\n]*\n", "%1\n")
    assert.equal(2, lines, output)
    local codes = { lost = true, unreachable = true, protocol = true } -- the last one amid a handshake
    for code in told:gmatch "%l+" do assert.is_true(codes[code], output) end
    stage.until_free(name, 1)
  end)

  it("has no data races, over TLS, linked with shared libraries", function()
    local watched = program.build("examples/embed/host.c", PACKAGES, { lib = program.races("lib-lua") })
    assert.matches("__tsan_init", process.shell("nm", "-u", watched))
    local tls, certificates = os.getenv "AMQPS_URL", os.getenv "BROKER_TLS"
    local strict = environment(tls and certificates and ("%s?cacertfile=%s/ca.pem"):format(tls, certificates) or URL)
    strict.TSAN_OPTIONS = program.RACES
    local status, output = program.run(strict, watched, stage.semaphore(1), "10")
    assert.same({ 0, "worked 20 of 20 times, 0 times together\n" }, { status, output })
  end)
end)

describe("luaopen_amqplocks", function()
  local hosting

  setup(function() hosting = program.build("spec/support/programs/hosting.c", PACKAGES) end)

  -- Runs Lua code, which is given luaopen_amqplocks as `open`, in a host.
  local function run(code, path)
    local script = program.place() .. "/script.lua"
    process.write(script, "local open, open_bare = ...\n" .. code)
    local status, output = program.run(environment(URL, path), hosting, script)
    assert.equal(0, status, output)
    return output
  end

  it("gives the module, once and for all, whose errors name the module and the line", function()
    assert.equal("amqplocks/init.lua\n", run [[
      local module = open()
      assert(module == require "amqplocks" and module == open())
      assert(module._VERSION:find "^amqplocks %d")
      assert(module.connect()):close()
      print(debug.getinfo(module.connect, "S").short_src)
    ]])
    run [[ -- `require` may call it
      package.preload["amqplocks"] = open
      local module = require "amqplocks"
      assert(module == require "amqplocks" and module == package.loaded["amqplocks"])
      assert(module.connect)
    ]]
  end)

  it("registers every module there is, and each can be loaded", function()
    local names = { "amqplocks.core" }
    for path in process.shell("find", "lua", "-name", "*.lua"):gmatch "lua/(%S+)%.lua" do
      table.insert(names, (path:gsub("/init$", ""):gsub("/", ".")))
    end
    table.sort(names)
    assert.equal(table.concat(names, "\n") .. "\n", run [[
      local before, names = {}, {}
      for name in pairs(package.preload) do before[name] = true end
      open()
      for name in pairs(package.preload) do
        if not before[name] then table.insert(names, name) end
      end
      table.sort(names)
      for _, name in ipairs(names) do
        print(name)
        if not name:find "%.drivers" and not name:find "%.nginx" then require(name) end -- those want their loops
      end
    ]])
  end)

  it("gives what is linked in, whatever is installed, but leaves a state alone that has loaded another", function()
    local installed = program.place() .. "/installed/"
    process.shell("mkdir", "-p", installed .. "amqplocks")
    for _, name in ipairs { "init", "core", "connection" } do
      process.write(installed .. "amqplocks/" .. name .. ".lua", 'error "this one is installed"')
    end
    run([[
      assert(not pcall(require, "amqplocks"))
      open()
      assert(require "amqplocks".connect)
    ]], installed .. "?.lua;" .. installed .. "?/init.lua")
    run [[
      local other = {}
      package.loaded["amqplocks"] = other
      assert(open() == other)
      assert(package.preload["amqplocks.core"] == nil)
    ]]
  end)

  it("needs the libraries of Lua, and says so", function()
    assert.matches("luaL_openlibs", run "print(open_bare())")
  end)
end)
