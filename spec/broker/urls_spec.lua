-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Addresses of brokers: malformed URLs, the nodes of a cluster, functions that return URLs. spec/unit/base/url_spec and
-- nodes_spec have the details; here are real brokers. All event loops share the code; the test double stands for them.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local running = require("amqplocks.compat.pcall").running
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local URL = os.getenv "AMQP_URL"

after_each(stage.clear)

-- An address at which a listener takes connections and never says a word.
local function silent()
  local listener = assert(socket.bind("127.0.0.1", 0))
  stage.undo(function() listener:close() end)
  return "amqp://127.0.0.1:" .. select(2, listener:getsockname())
end

local DEAD = "amqp://127.0.0.1:1"

-- Fifty hosts, of which this is the first: its share of the time is a fiftieth.
local function behind(url)
  local list = { url }
  for i = 2, 50 do list[i] = URL end
  return list
end

describe("a malformed URL", function()
  it("is a result, which tells the cure and not the password", function()
    local message = stage.fails("url", amqplocks.connect("amqp://me:s3cr@t@127.0.0.1"))
    assert.equal('url: the user or the password in the URL holds an "@": write it as %40', message)
    stage.fails("url", amqplocks.connect "http://127.0.0.1")
    stage.fails("url", amqplocks.connect "amqp://127.0.0.1\0")
    stage.fails("url", amqplocks.connect {})
    assert.matches("URL 2 of 2", stage.fails("url", amqplocks.connect { URL, "amqp://127.0.0.1:port" }), 1, true)
    local words = process.start({ AMQP_URL = "amqp://127.0.0.1:port" }):run(
      "return select(2, require('amqplocks').connect())")
    assert.matches("^url: AMQP_URL: a port in the URL is not a whole number", words)
  end)
end)

operated_it("a password may be as long as a token of OAuth 2", function()
  local user, password = client.unique "user", ("t"):rep(3455)
  stage.undo(function() return broker.suite:delete_user(user) end)
  local url = broker.suite:add_user(user, ".*", ".*", ".*"):gsub("password@", password .. "@")
  broker.suite:change_password(user, password)
  local lock = assert(stage.connect(url):mutex(stage.mutex()):acquire())
  assert.is_true(lock:release())
end)

-- ---- one connection -------------------------------------------------------------------------------------------------

local loop = loops.select

local drivers = {
  native = { option = "native", it = it, operated_it = operated_it, until_true = until_true },
  select = { option = loop.option, it = loop.it(it), operated_it = loop.it(operated_it), until_true = loop.until_true },
}

local function specs(driver_it, option, until_true_there)
  local function connect(url, options)
    options = options or {}
    options.driver = option
    return amqplocks.connect(url, options)
  end

  local function works(conn)
    local name = stage.mutex()
    local lock = assert(conn:mutex(name):try_acquire())
    stage.fails("busy", stage.connect():mutex(name):try_acquire())
    assert.is_true(lock:release())
    assert.is_true(conn:close())
  end

  driver_it("takes the second host of a list when nobody listens at the first", function()
    works(assert(connect { DEAD, URL }))
    local place = URL:match "@([^/]*)"
    works(assert(connect((URL:gsub("@[^/]*", function() return "@" .. DEAD:match "//(.*)" .. "," .. place end)))))
    works(assert(connect({ DEAD, URL }, { order = "random" })))
  end)

  driver_it("gives a host that takes the connection and never answers no more than its share", function()
    works(assert(connect(behind(silent()), { timeout = 100 }))) -- a loop is given a minute
    local message = stage.fails("unreachable", connect({ silent(), DEAD }, { timeout = 0.2 }))
    assert.matches("unreachable: none of 2 hosts: 127.0.0.1:", message, 1, true)
  end)

  driver_it("tries no other host after wrong credentials", function()
    local wrong = URL:gsub("//.-@", "//guest:s3cret@")
    local message = stage.fails("auth", connect { wrong, URL })
    assert.is_nil(message:find("s3cret", 1, true))
  end)

  driver_it("calls a function for its URL before each connection", function()
    local asked = 0
    local conn = assert(connect(function()
      asked = asked + 1
      return asked % 2 == 1 and URL or { URL }
    end))
    assert.equal(1, asked)
    for _ = 1, 2 do
      stage.fails("not_found", conn:semaphore(stage.name()):try_acquire()) -- by the prober
      assert.equal(2, asked)
    end
    conn:close()
  end)

  local faults = {
    { function() error("the vault is shut", 0) end, "the function for the URL raised an error: the vault is shut" },
    { function() error(setmetatable({}, { __tostring = error })) end, "raised an error: a table" },
    { function() return nil, "the vault is shut" end, "returned none: the vault is shut" },
    { function() end, "returned nothing, not a URL" },
    { function() return 5672 end, "returned a number, not a URL" },
    { function() return { URL, nil, URL } end, "returned a table, not a URL" },
    { function() return {} end, "returned a wrong one: the list of URLs is empty" },
    { function() return "amqp://me:s3cr#t@h" end,
      'returned a wrong one: the password in the URL holds a "#": write it as %23' },
  }
  driver_it("says what is wrong with a function, or what it gives", function()
    for i, fault in ipairs(faults) do
      assert.matches(fault[2], stage.fails("url", connect(fault[1])), 1, true)
      local is_wrong = false
      local conn = assert(connect(function()
        if is_wrong then return fault[1]() end
        return URL
      end))
      is_wrong = true
      local sem = conn:semaphore(stage.name())
      local message = stage.fails("url", sem:try_acquire()) -- by the prober
      assert.matches(fault[2], message, 1, true)
      assert.is_nil(message:find("s3cr", 1, true))
      is_wrong = false
      if i == 1 then stage.fails("not_found", sem:acquire { timeout = 60 }) end
      conn:close()
    end
  end)

  driver_it("keeps a function from leading to another virtual host", function()
    local url = URL
    local conn = assert(connect(function() return url end))
    url = URL:gsub("/$", "") .. "/elsewhere"
    assert.matches("another virtual host", stage.fails("url", conn:semaphore(stage.name()):try_acquire()), 1, true)
    conn:close()
  end)

  driver_it("does not hang when the function waits for the connection it is called for", function()
    local conn, inner
    conn = assert(connect(function()
      if conn then inner = { conn:semaphore("any"):acquire() } end
      return URL
    end, { timeout = 3 }))
    stage.fails("url", conn:semaphore(stage.name()):acquire())
    until_true_there(function() return inner end)
    assert.equal("url", inner[3])
    conn:close()
  end)
end

for which, driver in pairs(drivers) do
  describe("a connection by " .. which, function() specs(driver.it, driver.option, driver.until_true) end)
end

describe("a connection in an event loop", function()
  local loop_it = loop.it(it)

  loop_it("waits no longer than its timeout for a function that does not return", function()
    local never, asked = loop.driver.condition(), 0
    local conn = assert(amqplocks.connect(function()
      asked = asked + 1
      if asked == 2 then never:wait(20) end
      return URL
    end, { driver = loop.option, timeout = 3 }))
    local message = stage.fails("url", conn:semaphore(stage.name()):acquire())
    assert.matches("did not return within 3 s", message, 1, true)
    stage.fails("url", conn:semaphore(stage.name()):acquire())
    assert.equal(2, asked, "it is not called again while it has not returned")
    never:signal()
    conn:close()
  end)

  -- The loop, but that nothing can be spawned, while `room.is_full`, by what was spawned.
  local function full_loop(room)
    local spawned = setmetatable({}, { __mode = "k" })
    local function spawn(fn)
      if room.is_full and spawned[running()] then return nil, "there is no room" end
      return loop.driver.spawn(function()
        spawned[running()] = true
        fn()
      end)
    end
    return setmetatable({ spawn = spawn, here = false }, { __index = loop.driver })
  end

  -- For the function, or then for what reads the connection.
  for asked_last, code in pairs{ "url", "unreachable" } do
    loop_it("says so where no coroutine can be had, and asks again when one can: " .. code, function()
      local room, asked = {}, 0
      local conn = assert(amqplocks.connect(function()
        asked = asked + 1
        room.is_full = code == "unreachable" and asked == 2
        return URL
      end, { driver = full_loop(room), timeout = 10 }))
      room.is_full = code == "url"
      local message = stage.fails(code, conn:semaphore(stage.name()):acquire{ timeout = 60 })
      assert.matches("there is no room", message, 1, true)
      assert.equal(asked_last, asked)
      room.is_full = false
      stage.fails("not_found", conn:semaphore(stage.name()):acquire{ timeout = 60 })
      conn:close()
    end)
  end
end)

-- ---- nodes, and passwords that change -------------------------------------------------------------------------------

-- Here one node stands for two: each has a proxy of its own, and tells the name of its cluster to who connects.
for which, driver in pairs(drivers) do
  describe("two nodes, by " .. which, function()
    local function connect()
      broker.suite:name_cluster "spec-1"
      local first, second = proxy.start(), proxy.start()
      local conn = assert(amqplocks.connect({ first.url, second.url }, { driver = driver.option }))
      return first, second, conn, conn:mutex(stage.mutex())
    end

    driver.operated_it("of one cluster: a lock lost with the first is acquired anew at the second", function()
      local first, second, conn, mutex = connect()
      local lock = assert(mutex:try_acquire())
      assert.equal(0, second:count())
      first:close()
      assert.is_false((lock:verify() or false))
      local again = assert(mutex:acquire { timeout = 60 })
      assert.is_true(second:count() > 0 and again:verify())
      stage.fails("lost", lock:held())
      assert(again:release())
      conn:close()
    end)

    driver.operated_it("of two clusters are a conflict, which names both", function()
      local first, _, conn, mutex = connect()
      assert(assert(mutex:try_acquire()):release())
      broker.suite:name_cluster "spec-2"
      first:close()
      local message
      until_true(function()
        local _, words, code = mutex:try_acquire()
        message = words
        return code == "conflict", words
      end)
      for i = 1, 2 do assert.matches("spec-" .. i, message, 1, true) end
      conn:close()
    end)
  end)

  driver.operated_it("a password that changes is no matter where a function tells it, by " .. which, function()
    local _, user = stage.user(".*", ".*", ".*")
    local between, password = proxy.start(), "password"
    local function url() return (between.url:gsub("//.-@", "//" .. user .. ":" .. password .. "@")) end
    local conn = assert(amqplocks.connect(url, { driver = driver.option }))
    local set = assert(amqplocks.connect(url(), { driver = driver.option }))
    local name = stage.mutex()
    assert(assert(conn:mutex(name):try_acquire()):release())
    password = "another"
    broker.suite:change_password(user, password)
    between:cut_all()
    until_true(function() -- the end of the old connection may be found only by the first call
      local lock, message = conn:mutex(name):try_acquire()
      return lock and lock:release(), message
    end)
    until_true(function()
      local _, message, code = set:mutex(name):try_acquire()
      return code == "auth", message
    end)
    conn:close()
    set:close()
  end)
end
