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

-- A URL like this one, for another user or virtual host.
local function url_with(user, vhost)
  local scheme, old_user, place = url:match("^(%w+://)(.-)@([^/]*)")
  return scheme .. (user or old_user) .. "@" .. place .. "/" .. (vhost or "")
end

stage.tidy()

describe("connect", function()
  it("takes $AMQP_URL by default, its own default where that is empty, and closes once", function()
    local conn = assert(amqplocks.connect())
    assert.is_true(conn:close() and conn:close())
    local words = process.start({ AMQP_URL = "" }):run(
      "return tostring(select(2, require('amqplocks').connect(nil, { timeout = 0.5 })))")
    assert.not_matches("URL", words)
  end)

  it("says that nobody is there, and gives up on who never answers", function()
    local listener = assert(socket.bind("127.0.0.1", 0))
    local _, port = listener:getsockname()
    local address = "amqp://127.0.0.1:" .. port
    for _, never in ipairs{ address, (address:gsub("amqp", "amqps")) } do
      stage.fails("unreachable", amqplocks.connect(never, { timeout = 0.1 }))
      stage.fails("unreachable", amqplocks.connect(never .. "?connection_timeout=100"))
    end
    listener:close()
    assert.matches("127.0.0.1:" .. port, stage.fails("unreachable", amqplocks.connect(address)), 1, true)
    stage.fails("unreachable", amqplocks.connect "amqp://nowhere.invalid")
  end)

  -- What a peer answers to our greeting, and what it is. One that says nothing may be a proxy whose broker is down.
  local strangers = {
    ["HTTP"] = { "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "protocol" },
    ["SSH, and waits"] = { "SSH-2.0-OpenSSH_9.2\r\n", "protocol" },
    ["AMQP 1.0"] = { "AMQP\0\1\0\0", "protocol" },
    ["AMQP 0-9-1 out of order"] = { "\1\0\0\0\0\0\4\0\10\0\41\206", "protocol" },
    ["zeros"] = { ("\0"):rep(100), "protocol" },
    ["nothing, and hangs up"] = { "", "unreachable" },
    -- 0x15 is how a TLS alert begins. The greeting is longer than what is read at once, and whatever read follows the
    -- first one begins within these bytes.
    ["what looks like TLS in the middle of its greeting"] = { frames.encode { channel = 0, method = "connection.start",
      version_major = 0, version_minor = 9, server_properties = { motd = ("\21"):rep(40000) }, mechanisms = "NONE",
      locales = "en_US" }, "auth" },
  }

  it("knows peers that are no broker, or an odd one", function()
    local peer, port = process.listener()
    for what, stranger in pairs(strangers) do
      peer:begin([[
        local words = ...
        local guest = server:accept()
        guest:receive(8)
        guest:send(words)
        if words ~= "" then guest:receive("*a") end
        guest:close()
      ]], stranger[1])
      local conn, message, code = amqplocks.connect("amqp://127.0.0.1:" .. port, { timeout = 60 })
      assert.same({ what, nil, stranger[2] }, { what, conn, code }, message)
      peer:finish()
    end
  end)

  it("says that the password is wrong, and not which it was; or that the virtual host is", function()
    for _, user in ipairs{ "guest:s3cret", client.unique("nobody") .. ":s3cret" } do
      assert.is_nil(stage.fails("auth", amqplocks.connect(url_with(user))):find("s3cret", 1, true))
    end
    assert.matches("nowhere", stage.fails("vhost", amqplocks.connect(url_with(nil, "n%6fwhere"))), 1, true)
  end)

  operated_it("says that the user has no access to the virtual host", function()
    stage.fails("vhost", amqplocks.connect((stage.user())))
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
    for program, shown in pairs{ ["a\255b\n"] = "a?b?",
      ["a" .. ("\195\164"):rep(21)] = "a" .. ("\195\164"):rep(19) .. "?" } do
      local words = { "bash", program, os.getenv "LUA" or "lua", code }
      local text = process.shell("bash", "-c", 'exec -a "$1" "$2" -e "$3"', unpack(words))
      assert.equal(shown, text:match "^amqplocks%.connection %((.*)%[%d+%]@")
    end
  end)

  operated_it("says that the limit of the virtual host is reached", function()
    local address, name = stage.vhost{ connections = 2 }, "spec.limited"
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

describe("TLS", function()
  local function connect(options, address, timeout)
    return amqplocks.connect(address or tls_url, { tls = options, timeout = timeout })
  end

  tls_it("is verified by name or address, unless that is not wanted, and shows its own certificate", function()
    local address = tls_url:gsub("localhost", "127.0.0.1")
    local files = ("?cacertfile=%s&certfile=%s&keyfile=%s/client.key"):format(pem "ca", pem "client", tls)
    for _, case in ipairs{ { { ca = pem "ca" }, address }, { { ca = pem "ca", server_name = "localhost" }, address },
      { { verify = false } }, { { verify = false, ca = pem "unknown-ca", server_name = "elsewhere.invalid" } },
      { { ca = pem "ca", cert = pem "client", key = tls .. "/client.key" } }, { nil, tls_url .. files },
      { nil, tls_url .. "?verify=verify_none" } } do
      assert.is_true(assert(connect(case[1], case[2])):close())
    end
  end)

  tls_it("is refused with the wrong authorities, names or files, with the reason", function()
    for what, case in pairs{
      ["an authority that did not sign"] = { "certificate", { ca = pem "unknown-ca" } },
      ["one by the URL"] = { "certificate", nil, tls_url .. "?cacertfile=" .. pem "unknown-ca" },
      ["the system's own authorities"] = { "certificate", {} },
      ["the system's own authorities, when told to verify"] = { "certificate", { verify = true } },
      ["another name"] = { "[Nn]ame", { ca = pem "ca", server_name = "elsewhere.invalid" } },
      ["a file that cannot be read"] = { "/none.pem", { ca = pem "none" } },
      ["another certificate's key"] = { "", { ca = pem "ca", cert = pem "client", key = tls .. "/server.key" } },
      ["a certificate that is not there"] = { "", { ca = pem "ca", cert = pem "none", key = tls .. "/none.key" } },
    } do
      assert.matches(case[1], stage.fails("tls", connect(case[2], case[3])), what)
    end
  end)

  tls_it("is told from a plain port, and a plain port from it", function()
    assert.matches("does not speak TLS", stage.fails("tls", connect({ ca = pem "ca" }, (url:gsub("^amqp:", "amqps:")))))
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

  tls_it("is refused for a wrong certificate, with the reason", function()
    for certificate, words in pairs{ ["expired"] = "expired", ["wrong-name"] = "[Nn]ame", ["unknown"] = "issuer" } do
      local port = serve(certificate)
      assert.matches(words, stage.fails("tls", connect({ ca = pem "ca" }, "amqps://localhost:" .. port)))
    end
  end)
end)

describe("a user without the permission to", function()
  for what, permissions in pairs{ configure = { "", ".*", ".*" }, read = { ".*", ".*", "" } } do
    operated_it(what .. " is refused, leaves nothing standing, and goes on when it is permitted", function()
      local name = stage.semaphore(1)
      local address, user = stage.user(unpack(permissions))
      local conn = stage.connect(address)
      local sem = conn:semaphore(name)
      assert.matches(name, stage.fails("refused", sem:try_acquire()), 1, true)
      stage.until_free(name, 1)
      stage.fails("not_found", conn:semaphore(name .. "-none"):try_acquire())
      stage.fails("refused", conn:semaphore(name, { probe = "passive" }):acquire{ timeout = 60 })
      stage.until_free(name, 1)
      assert(stage.take(stage.connect():semaphore(name)):release())
      broker.suite:permit(user, ".*", ".*", ".*")
      local lock = stage.take(sem, { timeout = 60 })
      assert.is_true(lock:verify() and stage.held(name, 1))
    end)
  end

  operated_it("write asks without writing, unless it was told to write", function()
    local name = stage.semaphore(2)
    local conn = stage.connect_as(".*", "", ".*")
    local told, sem = conn:semaphore(name, { probe = "publish" }), conn:semaphore(name)
    for _ = 1, 2 do
      stage.fails("refused", told:try_acquire())
      stage.fails("refused", told:acquire{ timeout = 60 })
      assert.is_true(stage.free(name, 1))
      local lock, second = assert(sem:try_acquire()), assert(sem:acquire{ timeout = 60 })
      assert.is_true(lock:verify() and stage.held(name, 1) and stage.held(name, 2))
      stage.fails("busy", sem:try_acquire())
      assert.is_true(lock:release() and second:release())
    end
    stage.fails("not_found", conn:semaphore(stage.name()):try_acquire())
  end)
end)

describe("a connection through a proxy", function()
  -- Whose prober is there already, so that connection 1 is the holder and 2 the prober.
  local function through_proxy()
    local between, name = proxy.start(), stage.semaphore(1)
    local conn = stage.connect(between.url, { timeout = 2 })
    local sem = conn:semaphore(name)
    assert(sem:try_acquire()):release()
    assert.equal(2, between:count())
    return between, name, conn, sem
  end

  it("fails within its timeout when nobody answers, leaves nothing held, works on, and closes", function()
    local between, name, conn, sem = through_proxy()
    between:switch("down", "hold", 1)
    stage.fails("unreachable", sem:try_acquire())
    stage.until_free(name, 1)
    local rival = stage.take(stage.connect():semaphore(name), { timeout = 60 })
    between:switch("down", "pass", 1)
    stage.fails("busy", sem:try_acquire())
    assert.is_true(rival:release())
    local lock = until_true(function() return sem:try_acquire() end)
    assert.is_true(lock:verify() and stage.held(name, 1))
    between:switch("down", "hold")
    stage.fails("unreachable", sem:acquire())
    assert.is_true(conn:close())
    stage.until_free(name, 1)
    assert.is_false((lock:held()))
  end)

  it("writes what the broker takes now, and the rest later", function()
    local between, name = proxy.start(), stage.name(("-long"):rep(40))
    local conn, operations = stage.connect(between.url, { timeout = 600 }), {}
    assert.equal(0, conn:admin(name):slots()) -- the connection to ask on is open
    between:switch("up", "hold")
    -- More than fits on the way; each takes a channel in the end, of which there are 2,047.
    for i = 1, 2000 do operations[i] = conn._session:administer("slots", name, { timeout = 600 }) end
    between:switch("up", "pass")
    for i = 1, #operations do assert.equal(0, stage.finish(conn, operations[i])) end
    assert.equal(2, between:count())
  end)
end)

describe("a user with a limit of channels", function()
  operated_it("loses the connection, with its locks, with one channel too many, and is told: limit", function()
    for _, has_room in ipairs{ false, true } do -- for the channels of all its connections
      local address, user = stage.user(".*", ".*", ".*")
      broker.suite:tell([[
        ok = rabbit_auth_backend_internal:set_user_limits($1, <<"{\"max-channels\": 8}">>, <<"the operator">>), ok.
      ]], user)
      local name, told, locks = stage.semaphore(24), {}, {}
      local conn = stage.connect(address .. (has_room and "?channel_max=6" or ""),
        { on_lost = function(lock, code) table.insert(told, { lock, code }) end })
      local sem = conn:semaphore(name)
      local last
      repeat
        last = { sem:try_acquire() }
        table.insert(locks, last[1])
      until not last[1]
      local message = stage.fails("limit", unpack(last, 1, 3))
      assert.is_true(#locks > 0)
      assert.equal(has_room and 0 or #locks, #told)
      for i, lock in ipairs(locks) do
        if has_room then
          assert.is_true(lock:verify() and stage.held(name, i) and lock:release())
        else
          assert.same({ "lost", "lost" }, { select(3, lock:held()), told[i][2] })
          stage.until_free(name, i)
        end
      end
      if not has_room then
        assert.matches("number of channels opened", message)
        assert.is_true(stage.take(sem):verify())
      end
      conn:close()
    end
  end)
end)

describe("a broker with ten channels for each connection", function()
  operated_it("has a limit of locks, and those beyond it leave nothing behind, however they ask", function()
    local function allow(channels)
      broker.suite:tell(("application:set_env(rabbit, channel_max, %d), ok."):format(channels))
    end
    stage.undo(function() allow(2047) end)
    local name, conn, most = stage.name(), nil, nil
    stage.add(name, 1, 12) -- without a doorbell, for which each lock takes a channel more
    allow(10)
    for i, probe in ipairs{ "publish", "publish", "passive", "passive" } do
      if i % 2 == 1 then conn, most = stage.connect(), nil end
      local sem, locks, held = conn:semaphore(name, { probe = probe }), {}, 0
      for take = 1, 10 do locks[take] = sem:try_acquire() end
      most = most or #locks
      assert.is_true(#locks >= 8 and #locks == most, ("%d locks, then %d"):format(most, #locks))
      for _ = 1, 3 do stage.fails("limit", sem:try_acquire()) end
      stage.fails("limit", sem:acquire{ timeout = 60 })
      for slot = 1, 12 do held = held + (stage.held(name, slot) and 1 or 0) end
      assert.equal(#locks, held)
      for slot, lock in ipairs(locks) do
        assert.is_true(lock:held() and lock:release() and stage.free(name, slot))
      end
    end
  end)
end)
