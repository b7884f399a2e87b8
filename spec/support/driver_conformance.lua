-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The requirements for every event loop that carries sessions over bytes (docs/drivers.md), as busted tests. In a spec
-- file:
--
--     local conformance = require "spec.support.driver_conformance"
--     describe("copas", function()
--       conformance(it, require "my.copas_driver", function(fn)
--         copas.addthread(fn)             -- runs fn in a coroutine of the loop,
--         copas.loop()                    -- and returns when the loop has ended
--       end)
--     end)
--
-- It needs LuaSocket, and `make test SPEC=…` or the settings of `make env`. The other end of each socket is in another
-- process, which runs the code that the test sends it.
local assert = require "luassert"
local protected = require "amqplocks.compat.pcall"
local process = require "spec.support.process"
local socket = require "socket"

local MEGABYTE = ("0123456789abcdef"):rep(65536)
local LONG = 60 -- seconds; no wait of this length runs out in a passing test

-- The other process, listening on `port`.
local function listen()
  local peer, port = process.listener()
  peer.port = math.floor(tonumber(port))
  return peer
end

-- nil, and words. Returns the third result.
local function fails(none, message, code)
  assert.is_nil(none)
  assert.is_string(message)
  return code
end

local function ended(none, message)
  fails(none, message)
  assert.is_not.equal("timeout", message)
end

return function(it, driver, run)
  -- Returns a socket; its other end is the global `client` in another process.
  local function connect()
    local peer = listen()
    local one = assert(driver.connect("127.0.0.1", peer.port, nil, LONG))
    peer:run "client = server:accept() client:setoption('tcp-nodelay', true)"
    return one, peer
  end

  local function sleep(seconds)
    local deadline, nothing = socket.gettime() + seconds, driver.condition()
    repeat nothing:wait(math.max(0, deadline - socket.gettime())) until socket.gettime() >= deadline
  end

  -- Runs fn in a coroutine of its own. Returns a function that waits for its end and returns its results.
  local function start(fn)
    local over, results = driver.condition(), nil
    driver.spawn(function()
      results = { protected.pcall(fn) }
      over:signal()
    end)
    return function()
      while not results do over:wait(LONG) end
      if not results[1] then error(results[2], 0) end
      return results[2], results[3], results[4]
    end
  end

  local function read_bytes(one, count)
    local parts, got = {}, 0
    while got < count do
      local bytes = assert(one:read(LONG))
      assert(#bytes > 0, "nothing was read")
      table.insert(parts, bytes)
      got = got + #bytes
    end
    return table.concat(parts)
  end

  -- Runs the test in the loop. No process is left afterwards, also after a failure.
  local function loop_it(what, fn)
    it(what, function()
      local fine, problem = pcall(function()
        local inside, trouble = nil, nil
        run(function() inside, trouble = protected.pcall(fn) end)
        if not inside then error(trouble or "the loop ended before the test", 0) end
      end)
      process.clear()
      if not fine then error(problem, 0) end
    end)
  end

  if driver.resolve then
    loop_it("tells the addresses of a name, or why there are none", function()
      local is_there = false
      for _, address in ipairs(assert(driver.resolve("localhost", LONG))) do
        is_there = is_there or address == "127.0.0.1"
      end
      assert.is_true(is_there)
      fails(driver.resolve("none.invalid", LONG))
    end)
  end

  loop_it("connects to an address and to a name, and reads what has come, as soon as it has", function()
    for _, host in ipairs { "127.0.0.1", "localhost" } do
      local peer = listen()
      local one = assert(driver.connect(host, peer.port, nil, LONG))
      peer:run "client = server:accept() client:send('a')"
      assert.equal("a", one:read(LONG))
      peer:run "client:send('b\\0\\r\\n\\255')"
      assert.equal("b\0\r\n\255", read_bytes(one, 5))
      one:close()
    end
  end)

  loop_it("says that nobody listens", function()
    for _, host in ipairs { "127.0.0.1", "nowhere.invalid" } do
      assert.equal("unreachable", fails(driver.connect(host, 1, nil, LONG)))
    end
  end)

  loop_it("gives up on who does not answer, and the others run meanwhile", function()
    local port = process.start():run [[ -- which accepts no more connections: its backlog is full
      local socket = require "socket"
      server, guests = assert(socket.bind("127.0.0.1", 0, 1)), {}
      local _, port = server:getsockname()
      repeat
        local guest = socket.tcp()
        guest:settimeout(0.3)
        table.insert(guests, guest)
      until not guest:connect("127.0.0.1", port)
      return math.floor(port)
    ]]
    local turns, has_ended = 0, false
    local ticker = start(function()
      while not has_ended do
        sleep(0.01)
        turns = turns + 1
      end
    end)
    for _ = 1, 20 do
      assert.is_true(turns > 1 or fails(driver.connect("127.0.0.1", port, nil, 0.5)) == "unreachable")
    end
    assert.is_true(turns > 1)
    has_ended = true
    ticker()
  end)

  loop_it("loses nothing that comes when the time for a read is over", function()
    local one, peer = connect()
    assert.equal("timeout", select(2, one:read(0)))
    peer:begin [[
      for i = 1, 300 do
        client:send(("%03d"):format(i))
        require("socket").sleep(0.002)
      end
    ]]
    local parts, all = {}, ""
    while #all < 900 do
      local bytes, why = one:read(0.001)
      if not bytes then assert.equal("timeout", why) end
      table.insert(parts, bytes or "")
      all = table.concat(parts)
    end
    peer:finish()
    for i = 1, 300 do assert.equal(("%03d"):format(i), all:sub(3 * i - 2, 3 * i)) end
    one:close()
  end)

  loop_it("leaves what nobody reads on the way, and lets others have their turns while there is always more", function()
    local one, peer = connect()
    assert.is_nil((one:read(0.01)))
    peer:begin [[
      client:settimeout(0.3)
      return select(2, client:send(("x"):rep(16 * 2 ^ 20)))
    ]]
    while not peer:finished() do sleep(0.05) end
    assert.equal("timeout", (peer:finish()))
    local others = 0
    local other = start(function() others = 1 end)
    read_bytes(one, 2 ^ 20)
    assert.equal(1, others)
    other()
    one:close()
  end)

  loop_it("reads what came before the peer hung up, and then that it did", function()
    local one, peer = connect()
    peer:run "client:send('the end') client:close()"
    assert.equal("the end", read_bytes(one, 7))
    for _ = 1, 2 do ended(one:read(LONG)) end
    one:close()
  end)

  loop_it("writes a megabyte, in its order, beside one who reads, and reads beside one who writes", function()
    local one, peer = connect()
    local idle_reader = start(function() return read_bytes(one, #MEGABYTE) == MEGABYTE end)
    sleep(0.02)
    peer:begin [[
      local left = 2 ^ 20
      while left > 0 do
        local bytes = client:receive(math.min(left, 4096))
        client:send(bytes)
        left = left - #bytes
      end
    ]]
    assert.is_true(one:write(MEGABYTE, LONG)) -- more than the socket buffers of both sides hold
    assert.is_true(one:write("", LONG))
    assert.is_true(idle_reader())
    peer:finish()
    one:close()
  end)

  loop_it("gives up writing to one who does not read, and says that who it writes to has gone, and lives", function()
    local one = connect()
    fails(one:write(MEGABYTE:rep(16), 0.2))
    one:close()
    local other, peer = connect()
    peer:kill()
    local written, message
    for _ = 1, 50 do
      written, message = other:write("x", LONG)
      if not written then break end
      sleep(0.01)
    end
    fails(written, message)
    other:close()
  end)

  loop_it("closes a socket under one who reads it or writes to it, and does nothing more with it", function()
    local one, peer = connect()
    local reader = start(function() return one:read() end)
    sleep(0.02)
    one:close()
    ended(reader())
    assert.equal("closed", select(2, peer:run "client:settimeout(10) return client:receive(1)"))
    local two = connect()
    local writer = start(function() return two:write(MEGABYTE:rep(16)) end)
    sleep(0.05)
    two:close()
    fails(writer())
    for _ = 1, 2 do
      assert.is_nil((two:close()))
      ended(two:read(LONG))
      fails(two:write("x", LONG))
    end
  end)

  loop_it("wakes all who wait for a condition, and runs none of them at once", function()
    local condition, standing, woken, waiters = driver.condition(), 0, 0, {}
    for i = 1, 5 do
      waiters[i] = start(function()
        standing = standing + 1
        while woken == 0 do condition:wait(i % 2 == 0 and LONG or nil) end
        woken = woken + 1
      end)
    end
    while standing < 5 do sleep(0.01) end
    assert.equal(0, woken)
    driver.condition():signal() -- no coroutine waits: no effect
    sleep(0.01)
    assert.equal(0, woken)
    woken = 1
    condition:signal()
    assert.equal(1, woken)
    for i = 1, 5 do waiters[i]() end
    assert.equal(6, woken)
  end)

  loop_it("takes a signal from a finalizer", function()
    local condition, is_collected = driver.condition(), false
    local function finalizer()
      is_collected = true
      condition:signal()
    end
    local waiter = start(function()
      while not is_collected do condition:wait(LONG) end
    end)
    sleep(0.01)
    local proxy = rawget(_G, "newproxy") -- Lua 5.1 and LuaJIT have no finalizers for tables
    local owner = proxy and proxy(true) or setmetatable({}, { __gc = finalizer })
    if proxy then getmetatable(owner).__gc = finalizer end
    owner = nil -- luacheck: ignore
    for _ = 1, 2 do collectgarbage() end
    waiter()
  end)

  loop_it("keeps who waits for a condition of which nobody else knows", function()
    local known, is_woken, over = setmetatable({}, { __mode = "v" }), false, driver.condition()
    driver.spawn(function()
      local condition = driver.condition()
      known[1] = condition
      over:signal()
      condition:wait()
      is_woken = true
      over:signal()
    end)
    over:wait(LONG)
    for _ = 1, 3 do collectgarbage() end
    assert.is_table(known[1])
    known[1]:signal()
    while not is_woken do over:wait(LONG) end
  end)

  loop_it("runs soon, and not at once, what is spawned, also by what was spawned", function()
    local order, over = {}, driver.condition()
    driver.spawn(function()
      driver.spawn(function()
        sleep(0.01)
        table.insert(order, "third")
        over:signal()
      end)
      table.insert(order, "second")
    end)
    table.insert(order, "first")
    while #order < 3 do over:wait(LONG) end
    assert.same({ "first", "second", "third" }, order)
  end)

  loop_it("keeps nothing for who was spawned but what it uses itself, and nothing of who has ended", function()
    local over, seen = driver.condition(), setmetatable({}, { __mode = "k" })
    local is_over = false
    driver.spawn(function()
      local mine = {}
      seen[mine] = "of the one who spawned"
      driver.spawn(function()
        local own = {}
        seen[own] = "of the one that was spawned"
        while not is_over do over:wait(LONG) end
        assert(own)
      end)
      sleep(0.01)
      assert(mine)
    end)
    local function left()
      for _ = 1, 2 do collectgarbage() end
      local first = next(seen)
      return first and (next(seen, first) and "both" or seen[first])
    end
    local function await(expected)
      local deadline = socket.gettime() + LONG
      repeat sleep(0.02) until left() == expected or socket.gettime() > deadline
      assert.equal(expected, left())
    end
    await "of the one that was spawned"
    is_over = true
    over:signal()
    await(nil)
  end)

  it("knows, if it can know anything of the kind, where it can wait: in the loop, and not outside", function()
    if not driver.check then return end
    local inside
    run(function() inside = { driver.check() } end)
    assert.is_nil(inside[1])
    local message, code = driver.check()
    assert.is_string(message)
    assert.is_string(code)
  end)

  it("ends when its sockets are closed, and runs again", function()
    for _ = 1, 2 do
      local reader
      run(function()
        local one = connect()
        reader = start(function() return one:read() end)
        sleep(0.01)
        one:close()
      end)
      assert.is_function(reader)
    end
    process.clear()
  end)
end
