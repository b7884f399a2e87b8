-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local socket = require "socket"
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local frames = require "spec.support.frames"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local unpack = table.unpack or unpack
local operated_it = broker.operated_it(it, pending)
local tls_it = os.getenv "AMQPS_URL" and it or pending

local url, tls_url, tls = os.getenv "AMQP_URL", os.getenv "AMQPS_URL", os.getenv "BROKER_TLS" or ""

local function pem(name) return tls .. "/" .. name .. ".pem" end

-- A URL like this one, for another user, host and port, or virtual host.
local function url_with(user, place, vhost)
  local scheme, old_user, old_place = url:match("^(%w+://)(.-)@([^/]*)")
  return scheme .. (user or old_user) .. "@" .. (place or old_place) .. "/" .. (vhost or "")
end

after_each(stage.clear)
teardown(stage.check)

describe("connect", function()
  it("takes $AMQP_URL by default, gives a connection, and closes it once", function()
    local conn = assert(amqplocks.connect())
    assert.is_true(conn:close())
    assert.is_true(conn:close())
  end)

  it("takes its own default where $AMQP_URL is empty", function()
    local words = process.start({ AMQP_URL = "" }):run(
      "return tostring(select(2, require('amqplocks').connect(nil, { timeout = 0.5 })))")
    assert.not_matches("URL", words)
  end)

  it("says that nobody is there", function()
    local listener = assert(socket.bind("127.0.0.1", 0))
    local _, port = listener:getsockname()
    listener:close()
    assert.matches("127.0.0.1:" .. port, stage.fails("unreachable",
      amqplocks.connect("amqp://127.0.0.1:" .. port)), 1, true)
    stage.fails("unreachable", amqplocks.connect("amqps://127.0.0.1:" .. port))
    stage.fails("unreachable", amqplocks.connect("amqp://nowhere.invalid"))
  end)

  it("gives up on who never answers", function()
    local listener = assert(socket.bind("127.0.0.1", 0))
    local _, port = listener:getsockname()
    for _, scheme in ipairs{ "amqp", "amqps" } do
      local address = scheme .. "://127.0.0.1:" .. port
      stage.fails("unreachable", amqplocks.connect(address, { timeout = 0.1 }))
      stage.fails("unreachable", amqplocks.connect(address .. "?connection_timeout=100"))
    end
    listener:close()
  end)

  local strangers = {
    ["HTTP"] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    ["SSH, and waits"] = "SSH-2.0-OpenSSH_9.2\r\n",
    ["AMQP 1.0"] = "AMQP\0\1\0\0",
    ["AMQP 0-9-1 out of order"] = "\1\0\0\0\0\0\4\0\10\0\41\206",
    ["zeros"] = ("\0"):rep(100),
    ["nothing, and hangs up"] = "",
  }
  -- A peer that answers our greeting with these words; where it is.
  local function stranger(words, waits)
    local peer = process.start()
    peer:run("server = assert(require('socket').bind('127.0.0.1', 0))")
    local port = peer:run("return (select(2, server:getsockname()))")
    peer:begin([[
      local words, waits = ...
      local guest = server:accept()
      guest:receive(8)
      guest:send(words)
      if waits then guest:receive("*a") end
      guest:close()
    ]], words, waits)
    return "amqp://127.0.0.1:" .. port
  end

  for what, words in pairs(strangers) do
    it("knows that a peer that speaks " .. what .. " is no broker", function()
      -- A peer that says nothing may be a proxy whose broker is down.
      stage.fails(words == "" and "unreachable" or "protocol",
        amqplocks.connect(stranger(words, #words > 0), { timeout = 5 }))
    end)
  end

  -- 0x15 is how a TLS alert begins. The greeting is longer than what is read at once, and whatever read follows the
  -- first one begins within these bytes.
  it("does not take the middle of a broker's greeting for TLS", function()
    local greeting = frames.encode { channel = 0, method = "connection.start", version_major = 0, version_minor = 9,
      server_properties = { motd = ("\21"):rep(40000) }, mechanisms = "NONE", locales = "en_US" }
    stage.fails("auth", amqplocks.connect(stranger(greeting, true), { timeout = 5 }))
  end)

  it("says that the password is wrong, and not which it was", function()
    for _, user in ipairs{ "guest:s3cret", client.unique("nobody") .. ":s3cret" } do
      local message = stage.fails("auth", amqplocks.connect(url_with(user)))
      assert.is_nil(message:find("s3cret", 1, true))
    end
  end)

  it("says that the virtual host is wrong", function()
    local message = stage.fails("vhost", amqplocks.connect(url_with(nil, nil, "n%6fwhere")))
    assert.matches("nowhere", message, 1, true)
  end)

  operated_it("says that the user has no access to the virtual host", function()
    local user = client.unique("user")
    stage.undo(function() broker.suite:delete_user(user) end)
    stage.fails("vhost", amqplocks.connect(broker.suite:add_user(user)))
  end)

  operated_it("names its connections for the operator", function()
    local label, name = client.unique("the name"), stage.semaphore(1)
    local conn, anonymous = stage.connect(nil, { name = label }), stage.process(name)
    assert(stage.take(conn:semaphore(name)):release())
    broker.suite:assert_connected(label .. " holder")
    broker.suite:assert_connected(label .. " prober")
    local own = anonymous:run("return tostring(conn)"):match("^amqplocks%.connection %((.*), open%)$")
    assert.matches(("[%d]@"):format(anonymous.pid), own, 1, true)
    broker.suite:assert_connected(own .. " holder")
  end)

  -- Under the sanitizers, Lua is a script, which gives itself its own name.
  local plain_it = (os.getenv "SANITIZE_REPORTS" or "") == "" and it or pending
  plain_it("has a name that tools can show, whatever the name of the program", function()
    local code = "print(assert(require('amqplocks').connect()))"
    for program, shown in pairs{ ["a\255b\n"] = "a?b?", [("\195\164"):rep(21)] = ("\195\164"):rep(20),
      ["a" .. ("\195\164"):rep(21)] = "a" .. ("\195\164"):rep(19) .. "?" } do
      local words = { "bash", program, os.getenv "LUA" or "lua", code }
      local text = process.shell("bash", "-c", 'exec -a "$1" "$2" -e "$3"', unpack(words))
      assert.equal(shown, text:match "^amqplocks%.connection %((.*)%[%d+%]@")
    end
  end)

  operated_it("says that the limit of the virtual host is reached", function()
    local vhost, name = client.unique("vhost"), "spec.limited"
    stage.undo(function() broker.suite:delete_vhost(vhost) end)
    local address = broker.suite:add_vhost(vhost, { connections = 2 })
    local holding = stage.client(address)
    assert(holding:declare(stage.slot(name, 1), { durable = true }))
    local conn = stage.connect(address)
    until_true(function() return not client.connect(address) end) -- they are counted a moment after they have opened
    stage.fails("limit", amqplocks.connect(address))
    stage.fails("limit", conn:semaphore(name):try_acquire())
    assert.is_false(holding:exists(stage.holder(name, 1)))
    local lock = assert(conn:semaphore(name, { probe = "passive" }):try_acquire())
    assert.is_true(holding:locked(stage.holder(name, 1)))
    assert(lock:release())
  end)
end)

describe("a connection that was closed", function()
  it("does nothing any more, and says so", function()
    local name, conn = stage.semaphore(1), stage.connect()
    local sem, admin = conn:semaphore(name), conn:admin(name)
    assert.is_true(conn:close())
    for _, call in ipairs{ { sem, "try_acquire" }, { sem, "acquire" }, { sem, "with", print }, { admin, "slots" },
      { admin, "resize", 2 }, { conn:semaphore(name), "acquire", { timeout = 5 } } } do
      stage.fails("closed", call[1][call[2]](call[1], call[3]))
    end
    assert.is_true(conn:close())
    assert.is_true(stage.free(name, 1))
  end)
end)

describe("TLS", function()
  local function connect(options, address, timeout)
    return amqplocks.connect(address or tls_url, { tls = options, timeout = timeout })
  end

  tls_it("carries locks, with the certificate verified", function()
    local name = stage.semaphore(1)
    local conn = assert(connect{ ca = pem "ca" })
    local lock = assert(conn:semaphore(name):try_acquire())
    assert.is_true(lock:verify() and stage.held(name, 1))
    stage.fails("busy", stage.connect():semaphore(name):try_acquire())
    assert.is_true(lock:release())
    assert.is_true(conn:close())
  end)

  tls_it("takes its files from the URL", function()
    local conn = assert(amqplocks.connect(("%s?cacertfile=%s&certfile=%s&keyfile=%s/client.key"):format(tls_url,
      pem "ca", pem "client", tls)))
    assert.is_true(conn:close())
    stage.fails("tls", amqplocks.connect(tls_url .. "?cacertfile=" .. pem "unknown-ca"))
    assert.is_true(assert(amqplocks.connect(tls_url .. "?verify=verify_none")):close())
  end)

  tls_it("is verified by name or address, unless that is not wanted, and shows its own certificate", function()
    local address = tls_url:gsub("localhost", "127.0.0.1")
    for _, case in ipairs{ { { ca = pem "ca" }, address }, { { ca = pem "ca", server_name = "localhost" }, address },
      { { verify = false } }, { { verify = false, ca = pem "unknown-ca", server_name = "elsewhere.invalid" } },
      { { ca = pem "ca", cert = pem "client", key = tls .. "/client.key" } } } do
      assert.is_true(assert(connect(unpack(case))):close())
    end
  end)

  for what, case in pairs{
    ["an authority that did not sign"] = { "certificate", { ca = pem "unknown-ca" } },
    ["the system's own authorities"] = { "certificate", {} },
    ["the system's own authorities, when told to verify"] = { "certificate", { verify = true } },
    ["another name"] = { "[Nn]ame", { ca = pem "ca", server_name = "elsewhere.invalid" } },
    ["a file that cannot be read"] = { "/none.pem", { ca = pem "none" } },
    ["another certificate's key"] = { "", { ca = pem "ca", cert = pem "client", key = tls .. "/server.key" } },
    ["a certificate that is not there"] = { "", { ca = pem "ca", cert = pem "none", key = tls .. "/none.key" } },
  } do
    tls_it("is refused with " .. what, function() assert.matches(case[1], stage.fails("tls", connect(case[2]))) end)
  end

  tls_it("is told from a plain port, and a plain port from it", function()
    stage.fails("tls", connect({ ca = pem "ca" }, (url:gsub("^amqp:", "amqps:"))))
    assert.matches("amqps://", stage.fails("tls", amqplocks.connect((tls_url:gsub("^amqps:", "amqp:")))), 1, true)
  end)

  -- OpenSSL's own server, as the broker of the suite shows one certificate only. Gives its port. Further arguments
  -- are options.
  local function serve(certificate, ...)
    local log = os.tmpname()
    local pid = process.shell("sh", "-c", [[
      certificate=$1 log=$2
      shift 2
      openssl s_server -www -accept 127.0.0.1:0 -cert "$certificate.pem" -key "$certificate.key" "$@" </dev/null \
        >"$log" 2>&1 &
      echo $!
    ]], "sh", tls .. "/" .. certificate, log, ...):match("%d+")
    stage.undo(function()
      process.shell("kill", pid)
      os.remove(log)
    end)
    return until_true(function()
      local text = process.shell("cat", log)
      return text:match("ACCEPT [^\n]*:(%d+)\n"), text
    end)
  end

  tls_it("asks for the certificate of its host, or of server_name", function()
    local port = serve("wrong-name", "-servername", "localhost", "-cert2", pem "server", "-key2", tls .. "/server.key")
    -- It speaks HTTP, and waits.
    stage.fails("unreachable", connect({ ca = pem "ca" }, "amqps://localhost:" .. port, 1))
    stage.fails("unreachable", connect({ ca = pem "ca", server_name = "localhost" }, "amqps://127.0.0.1:" .. port, 1))
    stage.fails("tls", connect({ ca = pem "ca" }, "amqps://127.0.0.1:" .. port))
  end)

  for certificate, words in pairs{ ["expired"] = "expired", ["wrong-name"] = "[Nn]ame", ["unknown"] = "issuer" } do
    tls_it("is refused for the certificate " .. certificate .. ", with the reason", function()
      local port = serve(certificate)
      assert.matches(words, stage.fails("tls", connect({ ca = pem "ca" }, "amqps://localhost:" .. port)))
    end)
  end
end)

describe("a user without the permission to", function()
  -- A connection of a user with these permissions, and a function to give it all of them.
  local function restricted(configure, write, read)
    local user = client.unique("user")
    stage.undo(function() broker.suite:delete_user(user) end)
    local conn = stage.connect(broker.suite:add_user(user, configure, write, read))
    return conn, function() broker.suite:permit(user, ".*", ".*", ".*") end
  end

  for what, permissions in pairs{ configure = { "", ".*", ".*" }, read = { ".*", ".*", "" } } do
    operated_it(what .. " is refused, leaves nothing standing, and goes on when it is permitted", function()
      local name = stage.semaphore(1)
      local conn, permit = restricted(unpack(permissions))
      local sem = conn:semaphore(name)
      assert.matches(name, stage.fails("refused", sem:try_acquire()), 1, true)
      stage.until_free(name, 1)
      stage.fails("not_found", conn:semaphore(name .. "-none"):try_acquire())
      stage.fails("refused", conn:semaphore(name, { probe = "passive" }):acquire{ timeout = 60 })
      stage.until_free(name, 1)
      assert(stage.take(stage.connect():semaphore(name)):release())
      permit()
      local lock = stage.take(sem, { timeout = 60 })
      assert.is_true(lock:verify() and stage.held(name, 1))
      assert.is_true(lock:release())
    end)
  end

  operated_it("write asks without writing, unless it was told to write", function()
    local name = stage.semaphore(2)
    local conn = restricted(".*", "", ".*")
    local told, sem = conn:semaphore(name, { probe = "publish" }), conn:semaphore(name)
    for _ = 1, 2 do
      stage.fails("refused", told:try_acquire())
      stage.fails("refused", told:acquire{ timeout = 60 })
      assert.is_true(stage.free(name, 1))
      local lock = assert(sem:try_acquire())
      assert.is_true(lock:verify() and stage.held(name, 1))
      local second = assert(sem:acquire{ timeout = 60 })
      assert.equal(2, second.slot)
      stage.fails("busy", sem:try_acquire())
      assert.is_true(lock:release() and second:release())
      assert.is_true(stage.free(name, 1) and stage.free(name, 2))
    end
    stage.fails("not_found", conn:semaphore(stage.name()):try_acquire())
  end)
end)

describe("a connection through a proxy", function()
  -- Whose prober is there already, so that connection 1 is the holder and 2 the prober.
  local function through_proxy(slots, options)
    local between, name = proxy.start(), stage.semaphore(slots)
    local conn = stage.connect(between.url, options)
    local sem = conn:semaphore(name)
    assert(sem:try_acquire()):release()
    assert.equal(2, between:count())
    return between, name, conn, sem
  end

  it("opens anew what it has lost, holder or prober", function()
    local between, name, _, sem = through_proxy(1)
    for number = 1, 2 do
      between:cut(number)
      local lock = assert(until_true(function() return sem:try_acquire() end))
      assert.is_true(lock:verify() and stage.held(name, 1))
      assert.is_true(lock:release())
      assert.equal(number + 2, between:count())
    end
  end)

  it("fails within its timeout when the broker does not answer, and works on when it does", function()
    local between, name, _, sem = through_proxy(1, { timeout = 2 })
    between:switch("down", "hold")
    stage.fails("unreachable", sem:try_acquire())
    stage.fails("unreachable", sem:acquire())
    between:switch("down", "pass")
    local lock = until_true(function() return sem:try_acquire() end)
    assert.is_true(lock:verify() and stage.held(name, 1))
  end)

  it("whose claim is not answered leaves nothing held", function()
    local between, name, conn, sem = through_proxy(1, { timeout = 2 })
    between:switch("down", "hold", 1)
    stage.fails("unreachable", sem:try_acquire())
    stage.until_free(name, 1)
    stage.take(stage.connect():semaphore(name), { timeout = 60 })
    between:switch("down", "pass", 1)
    stage.fails("busy", sem:try_acquire())
    assert.is_true(conn:close())
    assert.is_true(stage.held(name, 1))
  end)

  it("closes within its timeout though nobody answers", function()
    local between, name, conn, sem = through_proxy(2, { timeout = 2 })
    local lock = stage.take(sem)
    between:switch("down", "hold")
    assert.is_true(conn:close())
    stage.until_free(name, 1)
    assert.is_false((lock:held()))
  end)

  it("that loses its prober while it waits for a slot goes on waiting", function()
    local between, name = proxy.start(), stage.semaphore(1)
    local occupant, waiter = stage.occupy(name, 1), process.start()
    waiter:begin([[
      local url, name = ...
      return assert(assert(require("amqplocks").connect(url)):semaphore(name):acquire{ timeout = 20, poll = 0.1 }).slot
    ]], between.url, name)
    occupant:await_looks(2)
    between:cut(2)
    occupant:await_looks(2)
    occupant:release()
    assert.equal(1, waiter:finish())
  end)

  it("writes what the broker takes now, and the rest later", function()
    local between, name = proxy.start(), stage.name(("-long"):rep(40))
    local conn, operations = stage.connect(between.url, { timeout = 60 }), {}
    assert.equal(0, conn:admin(name):slots()) -- the connection to ask on is open
    between:switch("up", "hold")
    -- More than fits on the way; each takes a channel in the end, of which there are 2,047.
    for i = 1, 2000 do operations[i] = conn._session:administer("slots", name, { timeout = 60 }) end
    between:switch("up", "pass")
    for i = 1, #operations do assert.equal(0, stage.finish(conn, operations[i])) end
    assert.equal(2, between:count())
  end)
end)

describe("a user with a limit of channels", function()
  local LIMIT = 8

  -- The address for such a user, and a semaphore of more slots than that. All its connections count together.
  local function limited()
    local user, name = client.unique "user", stage.semaphore(3 * LIMIT)
    local address = broker.suite:add_user(user, ".*", ".*", ".*")
    stage.undo(function() broker.suite:delete_user(user) end)
    broker.suite:ctl("set_user_limits", user, ('{"max-channels": %d}'):format(LIMIT))
    return address, name
  end

  -- Takes slots until there is no more to be had; gives what the last answer was, and the locks.
  local function take_all(sem)
    local locks = {}
    local result, message, code
    repeat
      result, message, code = sem:try_acquire()
      table.insert(locks, result)
    until not result
    return locks, result, message, code
  end

  operated_it("loses the connection, with its locks, with one channel too many, and is told: limit", function()
    local address, name = limited()
    local told = {}
    local conn = stage.connect(address, { on_lost = function(lock, code) table.insert(told, { lock, code }) end })
    local sem = conn:semaphore(name)
    local locks, result, message, code = take_all(sem)
    assert.matches("number of channels opened", stage.fails("limit", result, message, code))
    assert.is_true(#locks > 0)
    assert.equal(#locks, #told)
    for i, lock in ipairs(locks) do
      assert.equal("lost", select(3, lock:held()))
      assert.equal("lost", told[i][2])
      stage.until_free(name, i)
    end
    local again = stage.take(sem)
    assert.is_true(again:verify())
    assert.is_true(again:release())
  end)

  operated_it("keeps its locks when channel_max leaves room for all its connections", function()
    local address, name = limited()
    local locks, result, message, code = take_all(stage.connect(address .. "?channel_max=6"):semaphore(name))
    stage.fails("limit", result, message, code)
    assert.is_true(#locks > 0)
    for i, lock in ipairs(locks) do
      assert.is_true(lock:verify())
      assert.is_true(stage.held(name, i))
      assert.is_true(lock:release())
    end
  end)
end)

describe("a broker with ten channels for each connection", function()
  local node

  setup(function() if broker.suite then node = broker.start("channel_max = 10") end end)
  teardown(function() if node then node:remove() end end)
  -- The name of a semaphore of twelve slots, made by hand on that node, and a function that counts those held.
  local function semaphore()
    local other, name = stage.client(node.url), client.unique("lock")
    for i = 1, 12 do assert(other:declare(stage.slot(name, i), { durable = true })) end
    return name, function()
      local held = 0
      for i = 1, 12 do held = held + (other:locked(stage.holder(name, i)) and 1 or 0) end
      return held
    end
  end

  for _, probe in ipairs{ "publish", "passive" } do
    operated_it("has a limit of locks, and those beyond it leave nothing behind; probing by " .. probe, function()
      local name, held = semaphore()
      local conn = stage.connect(node.url)
      local sem, most = conn:semaphore(name, { probe = probe }), nil
      for _ = 1, 3 do
        local locks = {}
        for i = 1, 10 do locks[i] = sem:try_acquire() end
        most = most or #locks
        assert.is_true(#locks >= 8 and #locks == most)
        for _ = 1, 3 do stage.fails("limit", sem:try_acquire()) end
        stage.fails("limit", sem:acquire{ timeout = 60 })
        assert.equal(#locks, held())
        for _, lock in ipairs(locks) do assert.is_true(lock:held() and lock:release()) end
        assert.equal(0, held())
      end
    end)
  end

  -- A lock on slot 1 of a semaphore on that node, whose other slots are held too, and a process that waits for one.
  local function one_holds_one_waits()
    local name = semaphore()
    local sem = stage.connect(node.url, { timeout = 5 }):semaphore(name)
    local lock, waiter, occupant = stage.take(sem), process.start(), nil
    for i = 2, 12 do occupant = stage.occupy(name, i, node.url) end
    waiter:run("sem = assert(require('amqplocks').connect((...))):semaphore((select(2, ...)))", node.url, name)
    waiter:begin("return sem:acquire()")
    occupant:await_looks(2)
    return lock, sem, waiter
  end

  local function assert_gone(lock, sem, waiter)
    until_true(function() return not lock:held() end) -- without having asked
    stage.fails("lost", lock:held())
    stage.fails("unreachable", waiter:finish())
    stage.fails("lost", lock:verify())
    stage.fails("lost", lock:held())
    stage.fails("unreachable", sem:try_acquire())
    stage.fails("unreachable", sem:acquire())
    stage.fails("unreachable", sem:with(print))
    stage.fails("unreachable", waiter:run("return sem:try_acquire()"))
    stage.fails("unreachable", amqplocks.connect(node.url))
  end

  operated_it("loses the locks when it is stopped; the connection works again when it is back", function()
    local lock, sem, waiter = one_holds_one_waits()
    node:stop()
    assert_gone(lock, sem, waiter)
    node:restart()
    local again = stage.take(sem)
    assert.equal(1, again.slot)
    stage.fails("lost", lock:release())
    assert.is_true(again:held() and again:verify())
    assert.equal(2, waiter:run("lock = assert(sem:try_acquire()) return lock.slot"))
  end)

  operated_it("loses the locks when it is killed", function()
    local lock, sem, waiter = one_holds_one_waits()
    node:kill()
    assert_gone(lock, sem, waiter)
  end)
end)
