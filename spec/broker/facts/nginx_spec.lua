-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The behaviour of nginx and its Lua module on which locks held there depend: sockets, semaphores, timers, and their
-- ends.
local nginx = require "spec.support.nginx"
local socket = require "socket"
local until_true = require "spec.support.until"

local PRELUDE = [[
  local semaphore = require "ngx.semaphore"
  local PEER, keep = {PEER}, package.loaded.keep or {}
  package.loaded.keep = keep
  local function show(...)
    local words = {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    return table.concat(words, " ")
  end
  local function connect(milliseconds)
    local new = ngx.socket.tcp()
    new:settimeouts(5000, 5000, milliseconds or 20000)
    assert(new:connect("127.0.0.1", PEER))
    return new
  end
]]

local peer -- what they connect to

before_each(function()
  peer = assert(socket.bind("127.0.0.1", 0))
  peer:settimeout(10)
end)

after_each(function()
  nginx.clear()
  peer:close()
end)

local function start(locations, options)
  options = options or {}
  options.prelude = PRELUDE:gsub("{PEER}", (select(2, peer:getsockname())))
  options.locations, options.http = locations, (options.http or "") .. "lua_socket_log_errors off;"
  return nginx.start(options)
end

local function accept()
  local new = assert(peer:accept())
  new:settimeout(10)
  return new
end

local function body(server, path) return (select(2, server:get(path)):gsub("\n$", "")) end

describe("a socket in nginx", function()
  it("has lost nothing after a read that took too long", function()
    local server = start{ ["= /read"] = [[
      local one = connect(20)
      ngx.say(show(one:receiveany(100)))
      one:send("ready\n")
      one:settimeouts(5000, 5000, 5000)
      ngx.say(show(one:receiveany(3)), " ", show(one:receiveany(100)))
      ngx.say(show(one:receiveany(100)))]] }
    local request = server:begin("/read")
    local other = accept()
    assert.equal("ready", other:receive())
    other:send("hello")
    other:close()
    assert.equal("nil timeout \nhel lo\nnil closed \n", select(2, request:finish()))
  end)

  it("is not closed by who finds it being read, and is by the end of its reader", function()
    local server = start{ ["= /close"] = [[
      local one = connect()
      local reader = ngx.thread.spawn(function() return one:receiveany(100) end)
      ngx.say(show(one:close()), "; ", show(one:send("still there\n")), "; ", show(ngx.thread.kill(reader)), "; ",
        show(one:send("gone")))
      ngx.flush(true)
      while not keep.go do ngx.sleep(0.005) end]], ["= /go"] = "keep.go = true ngx.say(1)" }
    local request = server:begin("/close")
    local other = accept()
    assert.equal("still there", other:receive())
    assert.equal("closed", select(2, other:receive())) -- while the request goes on
    server:get("/go")
    assert.equal("nil socket busy reading; 12; 1; nil closed\n", select(2, request:finish()))
    other:close()
  end)

  it("belongs to its request: in another, and in a subrequest, using it throws", function()
    local use = "ngx.say(show(pcall(keep.one.send, keep.one, 'x')), ' ', show(pcall(keep.one.close, keep.one)))"
    local server = start{
      ["= /keep"] = [[
        keep.one = connect()
        local sub = ngx.location.capture("/use").body
        ngx.print(sub)
        keep.one:receiveany(100)]],
      ["= /use"] = use,
    }
    local request = server:begin("/keep")
    local other = accept()
    until_true(function() return body(server, "/use") == "false bad request false bad request" end)
    other:close()
    assert.equal("false bad request false bad request\n", select(2, request:finish()))
  end)

  it("survives ngx.exec, which takes ngx.ctx away", function()
    local server = start{
      ["= /exec"] = "ngx.ctx.mark = 1 keep.one = connect() ngx.exec('/target')",
      ["= /target"] = "ngx.say(show(ngx.ctx.mark, keep.one:send('hello\\n')), ' ', show(keep.one:receiveany(9)))",
    }
    local request = server:begin("/exec")
    local other = accept()
    other:send(assert(other:receive()))
    assert.equal("nil 6 hello\n", select(2, request:finish()))
    other:close()
  end)

  it("is there in some phases only", function()
    local try = [[
      local said = show(pcall(function() connect():close() end))
      ngx.log(ngx.WARN, "tried in ", ngx.get_phase(), ": ", said, "!")]]
    local server = start{ ["= /all"] = {
      set = try .. " return 1", rewrite = try, access = try, content = try .. " ngx.say(1)", header_filter = try,
      body_filter = try, log = try,
    } }
    assert.equal("1\n", select(2, server:get("/all")))
    for phase, works in pairs{ set = false, rewrite = true, access = true, content = true, header_filter = false,
      body_filter = false, log = false } do
      local said = works and "true!" or ("false [^\n]*API disabled in the context of %s_by_lua"):format(phase)
      until_true(function() return server:errors():match("tried in " .. phase .. ": " .. said) end)
    end
  end)

  it("asks a resolver for localhost, and wants brackets around the colons of an address", function()
    local server = start{ ["= /names"] = [[
      for _, name in ipairs{ "localhost", "::1" } do
        local one = ngx.socket.tcp()
        ngx.say(show(one:connect(name, PEER)))
      end]] }
    assert.equal('nil no resolver defined to resolve "localhost"\nnil failed to parse host name "::1": invalid port\n',
      select(2, server:get("/names")))
  end)
end)

describe("a semaphore in nginx", function()
  local LOCATIONS = {
    ["= /wait"] = "keep.bell = keep.bell or semaphore.new() ngx.say(show(keep.bell:wait(20)))",
    ["= /watched"] = { more = "lua_check_client_abort on;", content = "ngx.say(show(keep.bell:wait(20)))" },
    ["= /exit"] = "ngx.thread.spawn(function() ngx.sleep(0.02) ngx.exit(200) end) keep.bell:wait(20)",
    ["= /fail"] = "ngx.thread.spawn(function() keep.bell:wait(20) end) error('oh')",
    ["= /count"] = "ngx.say(keep.bell and keep.bell:count())",
    ["= /post"] = "keep.bell:post(-keep.bell:count()) ngx.say(1)",
    ["= /log"] = { content = "ngx.say(1)", log = "keep.bell:post(1)" },
    ["= /collect"] = [[
      local forgotten = newproxy(true)
      getmetatable(forgotten).__gc = function() keep.bell:post(1) end
      forgotten = nil
      collectgarbage()
      collectgarbage()
      ngx.say(1)]],
  }

  local function until_count(server, number)
    until_true(function() return body(server, "/count") == tostring(number) end)
  end

  it("knows how many wait, and wakes them all", function()
    local server, requests = start(LOCATIONS), {}
    for i = 1, 100 do requests[i] = server:begin("/wait") end
    until_count(server, -100)
    server:get("/post")
    for i = 1, 100 do assert.equal("true nil\n", select(2, requests[i]:finish())) end
    until_count(server, 0)
  end)

  for where, path in pairs{ ["the log phase"] = "/log", ["a finalizer"] = "/collect" } do
    it("is rung from " .. where, function()
      local server = start(LOCATIONS)
      local request = server:begin("/wait")
      until_count(server, -1)
      server:get(path)
      assert.equal("true nil\n", select(2, request:finish()))
    end)
  end

  it("forgets who waits when the request ends", function()
    local server = start(LOCATIONS)
    local first = server:begin("/wait")
    until_count(server, -1)
    server:get("/exit")
    server:get("/fail")
    until_count(server, -1)
    local watched = server:begin("/watched")
    until_count(server, -2)
    watched:abort()
    until_count(server, -1)
    server:get("/post")
    first:finish()
  end)
end)

describe("the end of a worker", function()
  -- Both kinds of timers say in the log how they ended.
  local LOCATIONS = {
    ["= /timer"] = [[
      ngx.timer.at(0, function()
        local one = connect()
        local reader = ngx.thread.spawn(function() one:receiveany(100) end)
        while not ngx.worker.exiting() do ngx.sleep(0.01) end
        ngx.thread.kill(reader)
        ngx.timer.at(0, function(premature)
          ngx.log(ngx.WARN, "a new timer: ", show(premature, pcall(connect)), "!")
        end)
      end)
      ngx.say(1)]],
    ["= /late"] = [[
      while not ngx.worker.exiting() do ngx.sleep(0.01) end
      ngx.say(show(ngx.timer.at(1, function() end)))]],
  }

  for signal, how in pairs{ HUP = "a reload", QUIT = "a quit" } do
    it("waits for its timers, which see it and may begin others: " .. how, function()
      local server = start(LOCATIONS)
      server:get("/timer")
      local first, old = accept(), server:workers()[1]
      local late = server:begin("/late")
      assert.equal(404, (server:get("/nothing"))) -- it has seen the request before
      server:signal(signal)
      assert.equal("closed", select(2, first:receive()))
      accept():close()
      assert.equal("nil process exiting\n", select(2, late:finish()))
      server:await_end(old)
      assert.matches("a new timer: false true table: ", server:errors())
      first:close()
    end)
  end
end)
