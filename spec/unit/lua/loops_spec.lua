-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Every event loop meets the requirements of sessions over bytes; then tests for single drivers.
local conformance = require "spec.support.driver_conformance"
local loops = require "spec.support.loops"
local process = require "spec.support.process"

after_each(process.clear)

for _, loop in ipairs(loops) do
  describe("the event loop of " .. loop.name, function()
    if loop.driver then
      conformance(it, loop.driver, loop.run)
    else
      pending("is not there")
    end
  end)
end

-- A socket, connected to another process.
local function connect(loop)
  local _, port = process.listener()
  return assert(loop.driver.connect("127.0.0.1", port, nil, 10))
end

local function is_close_on_exec(fd)
  local flags
  for line in io.lines(("/proc/self/fdinfo/%d"):format(fd)) do flags = flags or line:match "^flags:%s*(%d+)" end
  return tonumber(flags, 8) % 2 ^ 20 >= 2 ^ 19
end

-- Runs code in another process, which has nothing loaded yet; throws what it said if it failed. Not even SIGPIPE is
-- ignored, as LuaSocket has it and programs inherit.
local function run(code)
  process.shell("env", "--default-signal=PIPE", "timeout", "60", os.getenv "LUA" or "lua5.4", "-e", code)
end

for name, descriptor in pairs {
  cqueues = function(socket) return socket._raw:pollfd() end, luv = function(socket) return socket._tcp:fileno() end,
} do
  loops[name].it(it, pending)("the driver for " .. name .. " has sockets that no program inherits", function()
    local one = connect(loops[name])
    assert.is_true(is_close_on_exec(descriptor(one)))
    one:close()
  end)
end

describe("the driver for cqueues", function()
  local loop = loops.cqueues
  local loop_it = loop.it(it, pending)

  loop_it("returns errors, whatever a program has said of its sockets", function()
    local socket = require "cqueues.socket"
    local handler = socket.onerror(function() error "not here" end)
    local fine, none, _, code = pcall(loop.driver.connect, "127.0.0.1", 1, nil, 10)
    socket.onerror(handler)
    assert.is_true(fine)
    assert.is_nil(none)
    assert.equal("unreachable", code)
  end)

  loop_it("spawns where a connection was opened, whoever asks for it", function()
    local cqueues = require "cqueues"
    local home, here, seen = cqueues.running(), loop.driver.here(), nil
    local inner = cqueues.new()
    inner:wrap(function()
      here.spawn(function() seen = cqueues.running() end)
    end)
    assert(inner:step(0))
    loop.until_true(function() return seen end)
    assert.equal(home, seen)
  end)

  it("cannot spawn where no controller runs, and says so", function()
    for _, driver in ipairs { loop.driver, loop.driver and loop.driver.here() } do
      local none, message = driver.spawn(print)
      assert.is_nil(none)
      assert.is_string(message)
    end
  end)
end)

describe("the driver for luv", function()
  local loop = loops.luv
  local luv_it = loop.driver and it or pending

  luv_it("leaves nothing in the loop of those who have waited", function()
    local uv = require "luv"
    local one
    local function wait_and_count(rounds)
      loop.run(function()
        one = one or connect(loop)
        for _ = 1, rounds do
          assert.equal("timeout", select(2, one:read(0.001)))
          assert.is_true(one:write("x", 10))
          loop.driver.condition():wait(0.001)
          loop.sleep(0.001)
        end
      end)
      local count = 0
      uv.walk(function() count = count + 1 end) -- here, as luv 1.51 ruins the coroutine in which it walks
      return count
    end
    local before = wait_and_count(5)
    local after = wait_and_count(15)
    assert.is_true(after <= before, after .. " handles, and no more than " .. before)
    loop.run(function() one:close() end)
  end)

  -- A program whose coroutine has a socket `one` to its own server, whose connections are `guest`.
  local function connected(code, ending)
    run([[
      local uv, driver = require "luv", require "amqplocks.drivers.luv"
      local server, other = uv.new_tcp(), uv.new_tcp()
      assert(server:bind("127.0.0.1", 0) and other:bind("127.0.0.1", 0)) -- nobody listens to the other one
      server:listen(1, function()
        guest = uv.new_tcp()
        server:accept(guest)
      end)
      local closed_port = other:getsockname().port
      driver.spawn(function()
        one = assert(driver.connect("127.0.0.1", server:getsockname().port, nil, 10))
        ]] .. code .. [[

      end)
      uv.run()
      ]] .. (ending or ""))
  end

  luv_it("lives when the peer of a socket has gone, where nobody else has seen to that", function()
    connected [[
      local writes = 0
      while one:write("x", 10) do
        if guest and not guest:is_closing() then guest:close() end
        writes = writes + 1
        assert(writes < 500)
        driver.condition():wait(0.01)
      end
      os.exit(0, true)
    ]]
  end)

  luv_it("ends with its loop, or in a coroutine, whatever is still open or being closed", function()
    for _, ending in ipairs { "", "one:close()", "one = nil collectgarbage()", "one:close() os.exit(0, true)" } do
      connected("uv.stop() one:read()", ending)
    end
    connected("assert(not driver.connect('127.0.0.1', closed_port, nil, 10)) os.exit(0, true)", "os.exit(1)")
    connected("one:close() driver.spawn(function() os.exit(0, true) end)", "os.exit(1)")
  end)

  luv_it("goes on when a coroutine empties the loop and begins anew, and works again in the new one", function()
    local uv, handles, done = require "luv", {}, {}
    local function does(name) loop.driver.spawn(function() table.insert(done, name) end) end
    uv.walk(function(handle) table.insert(handles, handle) end) -- here: luv 1.53 cannot in a coroutine
    loop.driver.spawn(function()
      for _, handle in ipairs(handles) do
        if not handle:is_closing() then handle:close() end
      end
      does "new"
    end)
    does "one"
    does "two"
    uv.run()
    assert.same({ "one", "two", "new" }, done)
    loop.run(function()
      loop.sleep(0.01)
      connect(loop):close()
    end)
  end)

  luv_it("refuses to be the first that loads luv inside a coroutine, and works once luv was loaded outside", function()
    run [[
      local function connect()
        return require "amqplocks".connect("amqp://127.0.0.1:1", { driver = "luv" })
      end
      for _, fn in ipairs { connect, function() require "amqplocks.drivers.luv" end } do
        local fine, problem = coroutine.resume(coroutine.create(fn))
        assert(not fine and problem:find('require "luv" outside of coroutines', 1, true), problem)
        assert(not package.loaded.luv)
      end
      local uv, code = require "luv", nil
      coroutine.wrap(function() code = select(3, connect()) end)()
      uv.run()
      assert(code == "unreachable", code)
    ]]
  end)

  -- luv 1.53 can resume it.
  luv_it("ends the program rather than never resume the coroutine in which the program has loaded luv", function()
    local fine, problem = pcall(run, [[
      local is_resumed = false
      coroutine.wrap(function()
        require "luv"
        require "amqplocks.drivers.luv".condition():wait(0.01)
        is_resumed = true
      end)()
      require "luv".run()
      assert(is_resumed, "it was not resumed")
    ]])
    assert.is_true(fine or problem:find('require "luv" outside of coroutines', 1, true) ~= nil, problem)
  end)

  luv_it("ends the program with an error of a coroutine that has waited, as luv does with its callbacks", function()
    assert.error_matches(function()
      run [[
        local driver = require "amqplocks.drivers.luv"
        driver.spawn(function()
          driver.condition():wait(0.01)
          error "it was I"
        end)
        require "luv".run()
      ]]
    end, "it was I")
  end)
end)
