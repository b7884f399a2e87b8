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

-- An address at which nobody listens; and one that takes connections and never says a word.
local function dead() return "amqp://127.0.0.1:" .. select(2, (function()
  local listener = assert(socket.bind("127.0.0.1", 0))
  local host, port = listener:getsockname()
  listener:close()
  return host, port
end)()) end

local function silent()
  local listener = assert(socket.bind("127.0.0.1", 0))
  stage.undo(function() listener:close() end)
  return "amqp://127.0.0.1:" .. select(2, listener:getsockname())
end

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
  end)

  it("is one of $AMQP_URL's, if that is what is wrong", function()
    local words = process.start({ AMQP_URL = "amqp://127.0.0.1:port" }):run(
      "return select(2, require('amqplocks').connect())")
    assert.matches("^url: AMQP_URL: a port in the URL is not a whole number", words)
  end)

  it("is misuse only if it is nothing that could be a URL", function()
    for _, value in ipairs { 5672, true, { 1 }, { URL, nil, URL }, { url = URL }, io.stdout } do
      assert.error_matches(function() amqplocks.connect(value) end,
        "^connect: the URL must be a string, a list of strings without holes, or a function that returns either.*, " ..
        "not ")
    end
    assert.error_matches(function() amqplocks.connect(URL, { order = "sorted" }) end, 'one of "listed", "random"')
  end)
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
    works(assert(connect { dead(), URL }))
    local place = URL:match "@([^/]*)"
    works(assert(connect((URL:gsub("@[^/]*", function() return "@" .. dead():match "//(.*)" .. "," .. place end)))))
    works(assert(connect({ dead(), URL }, { order = "random" })))
  end)

  driver_it("gives a host that takes the connection and never answers no more than its share", function()
    works(assert(connect(behind(silent()), { timeout = 100 }))) -- a loop is given a minute
    local message = stage.fails("unreachable", connect({ silent(), dead() }, { timeout = 0.2 }))
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
    { "throws", function() error("the vault is shut", 0) end,
      "the function for the URL raised an error: the vault is shut" },
    { "throws what has no text", function() error(setmetatable({}, { __tostring = error })) end,
      "raised an error: a table" },
    { "says why it has none", function() return nil, "the vault is shut" end, "returned none: the vault is shut" },
    { "gives nothing", function() end, "returned nothing, not a URL" },
    { "gives a number", function() return 5672 end, "returned a number, not a URL" },
    { "gives a list with holes", function() return { URL, nil, URL } end, "returned a table, not a URL" },
    { "gives an empty list", function() return {} end, "returned a wrong one: the list of URLs is empty" },
    { "gives what is malformed", function() return "amqp://me:s3cr#t@h" end,
      'returned a wrong one: the password in the URL holds a "#": write it as %23' },
  }
  for _, fault in ipairs(faults) do
    driver_it("says so of a function that " .. fault[1], function()
      assert.matches(fault[3], stage.fails("url", connect(fault[2])), 1, true)
      local is_wrong = false
      local conn = assert(connect(function()
        if is_wrong then return fault[2]() end
        return URL
      end))
      is_wrong = true
      local sem = conn:semaphore(stage.name())
      local message = stage.fails("url", sem:try_acquire()) -- by the prober
      assert.matches(fault[3], message, 1, true)
      assert.is_nil(message:find("s3cr", 1, true))
      is_wrong = false
      stage.fails("not_found", sem:acquire { timeout = 20 })
      conn:close()
    end)
  end

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
    end, { timeout = 1 }))
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
    end, { driver = loop.option, timeout = 1 }))
    local message = stage.fails("url", conn:semaphore(stage.name()):acquire())
    assert.matches("did not return within 1 s", message, 1, true)
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

  loop_it("says so where no coroutine can be had for the function, and calls it when one can", function()
    local room, asked = {}, 0
    local conn = assert(amqplocks.connect(function()
      asked = asked + 1
      return URL
    end, { driver = full_loop(room), timeout = 10 }))
    room.is_full = true
    local message = stage.fails("url", conn:semaphore(stage.name()):acquire{ timeout = 60 })
    assert.matches("there is no room", message, 1, true)
    assert.equal(1, asked)
    room.is_full = false
    stage.fails("not_found", conn:semaphore(stage.name()):acquire{ timeout = 60 })
    assert.equal(2, asked)
    conn:close()
  end)

  loop_it("is given up where no coroutine can be had that reads it", function()
    local room, asked = {}, 0
    local conn = assert(amqplocks.connect(function()
      asked = asked + 1
      room.is_full = asked == 2
      return URL
    end, { driver = full_loop(room), timeout = 10 }))
    local message = stage.fails("unreachable", conn:semaphore(stage.name()):acquire{ timeout = 60 })
    assert.matches("there is no room", message, 1, true)
    room.is_full = false
    stage.fails("not_found", conn:semaphore(stage.name()):acquire{ timeout = 60 })
    conn:close()
  end)
end)

-- ---- nodes ----------------------------------------------------------------------------------------------------------

describe("two nodes", function()
  local nodes = {}

  setup(function()
    if not broker.suite then return end
    nodes = { broker.start(), broker.suite }
  end)
  teardown(function()
    if nodes[1] then nodes[1]:remove() end
  end)

  local function call(name)
    for _, node in ipairs(nodes) do node:name_cluster(name or "spec-" .. node.port) end
  end

  -- Whether the mutex of this name is held at that node, as another client sees it.
  local function is_held(node, name)
    local other = assert(client.connect(node.url))
    local held = other:locked(name .. "-mutex")
    other:close()
    return held
  end

  for which, driver in pairs(drivers) do
    local driver_it, option = driver.operated_it, driver.option

    driver_it("of one cluster: what was lost with the first is had anew at the second, by " .. which, function()
      call("spec")
      local first = proxy.start(nodes[1].url)
      local conn, name = assert(amqplocks.connect({ first.url, nodes[2].url }, { driver = option })), stage.mutex()
      local db = conn:mutex(name)
      local lock = assert(db:try_acquire())
      assert.is_true(is_held(nodes[1], name))
      first:close()
      assert.is_false((lock:verify() or false))
      local again = assert(db:acquire { timeout = 30 })
      assert.is_true(is_held(nodes[2], name))
      assert.is_true(again:verify())
      stage.fails("lost", lock:held())
      assert(again:release())
      conn:close()
    end)

    driver_it("of two clusters are a conflict, which names both, by " .. which, function()
      call()
      local first = proxy.start(nodes[1].url)
      local conn, name = assert(amqplocks.connect({ first.url, nodes[2].url }, { driver = option })), stage.mutex()
      assert(conn:mutex(name):try_acquire())
      first:close()
      local message
      until_true(function()
        local _, words, code = conn:mutex(name):try_acquire()
        message = words
        return code == "conflict", words
      end)
      for _, node in ipairs(nodes) do assert.matches("spec-" .. node.port, message, 1, true) end
      assert.is_false(is_held(nodes[2], name))
      conn:close()
    end)
  end
end)

-- ---- passwords that change ------------------------------------------------------------------------------------------

describe("a password that changes", function()
  for which, driver in pairs(drivers) do
    local driver_it, option = driver.operated_it, driver.option

    driver_it("is no matter where a function tells it, by " .. which, function()
      local user = client.unique "rotating"
      stage.undo(function() broker.suite:delete_user(user) end)
      broker.suite:add_user(user, ".*", ".*", ".*")
      local between, password = proxy.start(), "password"
      local function url() return (between.url:gsub("//.-@", "//" .. user .. ":" .. password .. "@")) end
      local conn = assert(amqplocks.connect(url, { driver = option }))
      local set = assert(amqplocks.connect(url(), { driver = option }))
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
end)
