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
local NOWHERE = { AMQP_URL = URL, LUA_PATH = "", LUA_CPATH = "" }
local PACKAGES

setup(function() PACKAGES = ("amqplocks-%s %s"):format(program.LUA, program.lua_package()) end)
after_each(function()
  program.clear()
  stage.clear()
end)
teardown(program.remove)
teardown(stage.check)

describe("a host with two Lua states on two threads", function()
  local host

  setup(function() host = program.build("examples/embed/host.c", PACKAGES) end)

  it("has them work in turns, in a place where there is no file, and together with everybody else", function()
    local name = stage.semaphore(1)
    local held = stage.occupy(name, 1)
    local one = program.start(NOWHERE, host, name, "10")
    held:await_looks(2)
    assert.equal("", one:output())
    held:release()
    stage.ring(name, 1)
    assert.equal("worked 20 of 20 times, 0 times together\n", select(2, one:wait()))
    assert.is_true(stage.free(name, 1))
    assert.equal(1, stage.connect():admin(name):slots())
  end)

  it("says so when there is no broker", function()
    local nobody = { AMQP_URL = "amqp://127.0.0.1:1", LUA_PATH = "", LUA_CPATH = "" }
    local status, output = program.run(nobody, host, "none", "1")
    assert.equal(1, status, output)
    assert.matches("^host: .*unreachable: no broker at 127.0.0.1:1\n", output)
  end)

  it("says so in both states when the broker goes away under them", function()
    local name, between = stage.semaphore(1), proxy.start()
    local one = program.start({ AMQP_URL = between.url, LUA_PATH = "", LUA_CPATH = "" }, host, name, "1000000")
    until_true(function() return between:count() == 4 end) -- each state's two
    stage.until_held(name, 1, 20)
    between.server:kill()
    local status, output = one:wait()
    assert.equal(1, status, output)
    local told, lines = output:gsub("host: [^\n]*script:%d+: (%l+): [^\n]*\n", "%1\n")
    assert.equal(2, lines, output)
    local codes = { lost = true, unreachable = true, protocol = true } -- the last one amid a handshake
    for code in told:gmatch "%l+" do assert.is_true(codes[code], output) end
    stage.until_free(name, 1)
  end)

  it("is linked statically down to the last library", function()
    if program.sanitized then return pending("sanitizers are shared libraries") end
    local name = stage.semaphore(1)
    local static = program.build("examples/embed/host.c", PACKAGES, { static = true })
    local status, output = program.run(NOWHERE, static, name, "3")
    assert.equal(0, status, output)
    assert.equal("worked 6 of 6 times, 0 times together\n", output)
  end)

  it("has no data races, also over TLS", function()
    local watched = program.build("examples/embed/host.c", PACKAGES, { lib = program.races("lib-lua") })
    assert.matches("__tsan_init", process.shell("nm", "-u", watched))
    local urls = { URL }
    if os.getenv "AMQPS_URL" and os.getenv "BROKER_TLS" then
      urls[2] = ("%s?cacertfile=%s/ca.pem"):format(os.getenv "AMQPS_URL", os.getenv "BROKER_TLS")
    end
    for _, url in ipairs(urls) do
      local strict = { AMQP_URL = url, LUA_PATH = "", LUA_CPATH = "", TSAN_OPTIONS = program.RACES }
      local status, output = program.run(strict, watched, stage.semaphore(1), "10")
      assert.equal("worked 20 of 20 times, 0 times together\n", output)
      assert.equal(0, status)
    end
  end)
end)

describe("luaopen_amqplocks", function()
  local hosting

  setup(function() hosting = program.build("spec/support/programs/hosting.c", PACKAGES) end)

  -- Runs Lua code, which is given luaopen_amqplocks, in a host.
  local function run(code, environment)
    local path = program.place() .. "/script.lua"
    local file = assert(io.open(path, "w"))
    file:write(code)
    file:close()
    local status, output = program.run(environment or NOWHERE, hosting, path)
    assert.equal(0, status, output)
    return output
  end

  -- The modules of this checkout.
  local function modules()
    local names = { "amqplocks.core" }
    for path in process.shell("find", "lua", "-name", "*.lua"):gmatch "lua/(%S+)%.lua" do
      table.insert(names, (path:gsub("/init$", ""):gsub("/", ".")))
    end
    table.sort(names)
    return names
  end

  it("gives the module, once and for all, whose errors name the module and the line", function()
    local output = run [[
      local open = ...
      local module = open()
      assert(module == require "amqplocks" and module == open())
      assert(module._VERSION:find "^amqplocks %d")
      assert(module.connect()):close()
      print(debug.getinfo(module.connect, "S").short_src)
    ]]
    assert.equal("amqplocks/init.lua\n", output)
  end)

  it("may be what `require` calls", function()
    run [[
      package.preload["amqplocks"] = ...
      local module = require "amqplocks"
      assert(module == require "amqplocks" and module == package.loaded["amqplocks"])
      assert(module.connect)
    ]]
  end)

  it("registers every module there is, and each can be loaded", function()
    local listed = run [[
      local open = ...
      local before = {}
      for name in pairs(package.preload) do before[name] = true end
      open()
      local names = {}
      for name in pairs(package.preload) do
        if not before[name] then table.insert(names, name) end
      end
      table.sort(names)
      for _, name in ipairs(names) do
        print(name)
        if not name:find "%.drivers" and not name:find "%.nginx" then require(name) end -- those want their loops
      end
    ]]
    assert.equal(table.concat(modules(), "\n") .. "\n", listed)
  end)

  it("gives what is linked in, whatever is installed", function()
    local installed = program.place() .. "/installed/amqplocks"
    process.shell("mkdir", "-p", installed)
    for _, name in ipairs { "init", "core", "connection" } do
      process.shell("sh", "-c", "echo 'error \"this one is installed\"' >" .. installed .. "/" .. name .. ".lua")
    end
    local path = program.place() .. "/installed/?.lua;" .. program.place() .. "/installed/?/init.lua"
    run([[
      local open = ...
      assert(not pcall(require, "amqplocks"))
      open()
      assert(require "amqplocks".connect)
    ]], { AMQP_URL = URL, LUA_PATH = path, LUA_CPATH = "" })
  end)

  it("leaves a state alone that has loaded it from elsewhere", function()
    run [[
      local open = ...
      local other = {}
      package.loaded["amqplocks"] = other
      assert(open() == other)
      assert(package.preload["amqplocks.core"] == nil)
    ]]
  end)

  it("needs the libraries of Lua, and says so", function()
    local output = run "print((select(2, ...))())"
    assert.matches("luaL_openlibs", output)
  end)
end)
