-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock-admin top: what it shows of a real broker's management API, how it draws, and what it says of an API that
-- refuses, is not there, or answers rubbish.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local command = require "spec.support.command"
local frames = require "spec.support.frames"
local kinds = require "spec.support.kinds"
local process = require "spec.support.process"
local server = require "spec.support.servers.server"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"
local values = require "spec.support.programs.values"
local waiting = require "spec.support.line"

local ADMIN = command.DIRECTORY .. "/amqp-lock-admin"
local PLUGIN = pcall(process.shell, "sh", "-c", "ls -d /usr/lib/rabbitmq/lib/*/plugins/rabbitmq_management-[0-9]*")
local managed_it = PLUGIN and broker.suite and it or pending

local SECONDS = 60
local API = "spec/support/programs/api.py"
local STATISTICS = 'ok = application:set_env(rabbit, collect_statistics_interval, %d, [{persistent, true}]), '
local PLUGINS = "{ok, _, _} = rabbit_plugins:ensure(binary_to_list($1)), ok."
local is_managed = false

-- Has the suite's node run these plugins.
local function run_plugins(names, erlang)
  local file = broker.suite.directory .. "/enabled_plugins"
  process.write(file, "[" .. names .. "].\n")
  broker.suite:tell(erlang .. PLUGINS, file)
end

-- The suite's node, with the management plugin, which it has until the end of this file.
local function the_node()
  local node = broker.suite
  if not is_managed then
    is_managed = true
    local port = server.free_port() -- that of the node's beginning may be another node's by now
    node.api = node.api:gsub(":%d+/", (":%d/"):format(port))
    run_plugins("rabbitmq_management", STATISTICS:format(200) .. ("ok = application:set_env(rabbitmq_management, "
      .. 'tcp_config, [{ip, "127.0.0.1"}, {port, %d}], [{persistent, true}]), '):format(port))
  end
  return node
end

-- The address of the node's API, as another user sees it.
local function address(user) return (the_node().api:gsub("//.-@", "//" .. user .. "@")) end

local function start(how, ...)
  how.program = ADMIN
  return command.start(how, "top", ...)
end

-- Runs `top --once`, which must end with this status; returns what it prints and what it tells.
local function once(status, api, ...)
  local errors = command.place() .. "/errors"
  local output = command.ends({ program = "/bin/sh" }, status, "-c", 'out=$1; shift; exec "$@" 2>"$out"', "sh", errors,
    ADMIN, "top", "--once", "--api", api, ...)
  return output, process.contents(errors)
end

-- Starts all of these, each `amqp-lock OPTIONS true`, by one shell.
local function start_all(...)
  local lines = {}
  for _, options in ipairs { ... } do
    table.insert(lines, ("%s/amqp-lock %s true </dev/null &"):format(command.DIRECTORY, options))
  end
  return command.start({ program = "/bin/sh", env = { AMQP_URL = the_node().url } }, "-c",
    table.concat(lines, "\n") .. "\nwait")
end

after_each(function()
  command.clear()
  stage.clear()
end)

teardown(function()
  if not is_managed then return end
  for _, user in ipairs { "hostile", "manager", "watcher" } do pcall(broker.suite.delete_user, broker.suite, user) end
  run_plugins("", STATISTICS:format(5000))
end)

describe("amqp-lock-admin top", function()
  -- cli_listing_spec has the other kinds.
  managed_it("shows who holds, who waits, and since when, in the rows of ls", function()
    local name, before = client.unique "lock", os.time()
    local quorum = kinds.all.quorum_mutex
    local fast, option = quorum or kinds.all.fast_mutex, quorum and "--fast --quorum " or "--fast "
    local conn = stage.connect(the_node().url, { name = "holder" })
    stage.undo(function() stage.connect():token_semaphore(name):destroy() end)
    stage.undo(function() stage.delete(name .. "-fastmutex") end)
    assert(conn:token_semaphore(name):resize(1))
    local held = { stage.take(conn:token_semaphore(name)), stage.take(fast.over(conn, name)),
      stage.take(conn:mutex(name)) }
    start_all("--name waiter -P " .. name, "--name waiter " .. name, "--name waiter " .. option .. name)
    local output
    until_true(function()
      output = once(0, the_node().api, "--json-output", "--lock", name)
      for _, kind in ipairs { "permit", "mutex", "fast_mutex" } do
        for state, holder in pairs { holds = "holder", waits = "waiter" } do
          local row = ('"kind":"%s","state":"%s","what":"[^"]+","holder":"%s","since":'):format(kind, state, holder)
          if not output:find(row) then return nil, row .. " is not in\n" .. output end
        end
      end
      for _, lock in ipairs(held) do -- the API lists a connection some time later
        local told = ('"ticket":"%s","user":"guest","connection":"127.0.0.1:'):format(lock.ticket)
        if not output:find(told, 1, true) then return nil, told .. " is not in\n" .. output end
      end
      local counts = ('"name":"%s","kind":"token_semaphore","total":1,"free":0'):format(name)
      return output:find(counts, 1, true), counts .. " is not in\n" .. output
    end, SECONDS)
    assert.equal(7, select(2, output:gsub("\n", "")), output)
    for since in output:gmatch '"since":(%d+)' do assert.is_true(stage.is_since(before - 1, tonumber(since))) end

    local rows
    until_true(function()
      rows = process.shell("sh", "-c", 'curl -sf "$1/queues" "$1/consumers" "$1/channels" | "$2" ls --json -', "sh",
        the_node().api, ADMIN)
      return rows == once(0, the_node().api), rows
    end, SECONDS)
    assert.matches("^NAME +WHAT +HOLDER +SINCE +TICKET +USER +CONNECTION\n", rows)
    assert.is_nil(once(0, the_node().api, "--lock", "none"):find(name, 1, true))
  end)

  managed_it("names a deadlock of two processes, as `who` does, whose command for a holder ends it", function()
    local names, sessions = { client.unique "lock", client.unique "lock" }, {}
    for i, label in ipairs { 'on"e \226\152\131', "other" } do
      sessions[i] = waiting.process(names[i], ("{ name = [[%s]] }"):format(label), the_node().url)
      sessions[i]:run("first = assert(conn:mutex(...):acquire())", names[i])
    end
    for i = 1, 2 do
      sessions[i]:begin("return conn:mutex(...):acquire{ timeout = 7200, poll = 600 } ~= nil", names[3 - i])
    end
    local told = ('deadlock: on"e ☃ waits for the mutex %s of other, other waits for the mutex %s of on"e ☃\n'):format(
      names[2], names[1])
    local one = start({}, "--interval", "0.2", "--api", the_node().api)
    one:await("Z  http://127[^\n]+\n\ndeadlock: ", SECONDS)
    local output
    until_true(function() -- the API lists a connection some time later
      output = command.ends({ program = ADMIN }, 0, "who", "--api", the_node().api, names[2])
      return output:sub(1, #told) == told and output:find "\n# [^\n]+\n# ask it first: [^\n]+\ncurl [^\n]+\n$", output
    end, SECONDS)
    local closing, count = output:match("\ncurl [^\n]+"):gsub(" %-u 'guest' ", " -u guest:guest ") -- curl asks for it
    assert.equal(1, count)
    process.shell("sh", "-c", closing)
    assert.is_true(sessions[1]:finish(SECONDS))
  end)

  -- The consumers show the same, as their arguments are listed, too.
  managed_it("shows the locks of others, whatever a user puts into arguments of its own queues", function()
    local lock, hostile = client.unique "lock", client.unique "hostile"
    local user = the_node():add_user("hostile", "^hostile", "^$", "^hostile")
    local conn = stage.connect(the_node().url, { name = "honest" })
    local held = stage.take(conn:mutex(lock))
    local deep = {}
    for _ = 1, 2100 do deep = { a = deep } end
    for i, arguments in ipairs {
      { ["a\0b"] = 1, ["a\\u0000b"] = 2, ["\0"] = "\0" }, { a = frames.as("T", -1) }, { a = deep },
      { a = ("\1"):rep(100000) }, { ["items"] = { { name = "x" } } }, { ["x-amqplocks-holder"] = "a\226\128\174b" },
      { ["x-amqplocks-holder"] = { a = "\"]}\\" } }, { ["x-amqplocks-acquired-at"] = frames.as("T", -1) },
    } do
      local queue = ("%s-%d-mutex"):format(hostile, i)
      local channel = stage.client(user):channel()
      assert(channel:call { method = "queue.declare", queue = queue, exclusive = true, arguments = arguments })
      assert(channel:call { method = "basic.consume", queue = queue, arguments = arguments })
    end
    local output, told
    until_true(function()
      output, told = once(0, the_node().api)
      local _, shown = output:gsub("\nhostile[^\n]+ 127%.0%.0%.1:", "")
      return shown == 8, output .. told
    end, SECONDS)
    assert.matches("\n" .. lock:gsub("%p", "%%%0") .. " +mutex +honest +%d+%-[^\n]+" .. held.ticket, output)
    assert.equal("", told)
    local _, rows = until_true(function() -- rabbitmqctl may fail by itself on a busy machine
      return pcall(process.shell, "sh", "-c", [[
        spec/support/broker ctl "$1" -q --formatter=json list_queues name arguments | "$2" ls -]], "sh",
        the_node().directory, ADMIN)
    end, 1800)
    assert.equal(8, select(2, rows:gsub("\nhostile", "")), rows)
    assert.matches("\n" .. lock:gsub("%p", "%%%0") .. " +mutex +honest +%d+%-[^\n]+" .. held.ticket, rows)
  end)

  managed_it("prints one table below the other where there is no terminal, until a signal", function()
    local name = client.unique "lock"
    local conn = stage.connect(the_node().url, { name = "holder" })
    local lock = stage.take(conn:mutex(name))
    local one = start({}, "--interval", "0.2", "--lock", name, "--api", address "guest:guest")
    local heading = "%d+%-%d+%-%d+T%d+:%d+:%d+Z  " .. the_node().api:gsub("//.-@", "//"):gsub("%p", "%%%0")
    local table_of = heading .. "  %d hold, 0 wait\n\nNAME[^\n]+\n"
    one:await(table_of .. name:gsub("%p", "%%%0") .. "  mutex  holder [^\n]+\n\n" .. table_of)
    local words = process.contents(("/proc/%d/cmdline"):format(one.pid))
    assert.is_truthy(words:find("--api", 1, true))
    assert.is_nil(words:find("guest", 1, true), words)
    assert(lock:release())
    one:await(table_of .. "\n")
    assert.is_nil(one:output():find("\27", 1, true))
    one:signal "TERM"
    assert.same({ "signal", 15 }, { one:wait() })
  end)

  managed_it("draws on a terminal in place, cut to its size, at once when that changes, and ends at ^C", function()
    local name = client.unique "lock"
    local conn = stage.connect(the_node().url, { name = ("☃"):rep(30) })
    for i = 1, 8 do stage.take(conn:mutex(name .. i)) end
    until_true(function() return once(0, the_node().api):find(name .. "8", 1, true) end, SECONDS)
    local one = command.start({ program = "/bin/sh", pty = true, env = { TERM = "xterm" } }, "-c",
      'stty rows 8 cols 60; exec "$@"', "sh", ADMIN, "top", "--interval", "600", "--api", the_node().api)
    one:await "more lines%)"
    one:signal "WINCH"
    one:await "\27%[J.*\27%[J"
    local drawn = one:output():match "\27%[H(.-)\27%[J"
    local lines = {}
    for line in drawn:gmatch "(.-)\27%[K\r?\n" do table.insert(lines, line) end
    assert.equal(7, #lines, drawn)
    assert.matches("^%d+%-%d+%-%d+T%d+:%d+:%d+Z  http://127", lines[1])
    assert.is_true(tonumber(lines[7]:match "^%((%d+) more lines%)$") >= 5) -- there may be semaphores of other tests
    for _, line in ipairs(lines) do assert.is_true(#line:gsub("[\128-\191]", "") <= 60, line) end
    assert.is_truthy(lines[6]:find("☃", 1, true), drawn)
    assert.is_nil(one:output():find("guest", 1, true))
    one:write "\3"
    assert.same({ "signal", 2 }, { one:wait() })
  end)

  managed_it("ends when its output cannot be written, and says so", function()
    for _, option in ipairs { "", "--once" } do
      local told = command.ends({ program = "/bin/sh" }, 0, "-c", '{ "$@" ' .. option
        .. ' >/dev/full; echo "status $?"; } 2>&1 | cat', "sh", "timeout", "120", ADMIN, "top", "--api", the_node().api)
      assert.matches("^amqp%-lock%-admin: cannot write the output[^\n]*\nstatus 70\n$", told)
    end
  end)

  managed_it("says what a user is not shown who has only the tag management", function()
    the_node():tell([[
      ok = rabbit_auth_backend_internal:add_user($1, <<"secret">>, <<"o">>),
      rabbit_auth_backend_internal:set_tags($1, [monitoring], <<"o">>),
      rabbit_auth_backend_internal:set_permissions($1, <<"/">>, <<"^$">>, <<"^$">>, <<"^$">>, <<"o">>).]], "manager")
    local name, output, told = client.unique "lock", nil, nil
    local conn = stage.connect(the_node().url, { name = "holder" })
    stage.take(conn:mutex(name))
    start_all("--name waiter " .. name)
    until_true(function()
      output, told = once(0, address "manager:secret", "--lock", name)
      return output:find("waiter", 1, true), output
    end, SECONDS)
    assert.equal("", told)
    the_node():tell('rabbit_auth_backend_internal:set_tags($1, [management], <<"o">>).', "manager")
    output, told = once(0, address "manager:secret", "--lock", name)
    assert.matches("holder", output)
    assert.not_matches("waiter", output)
    assert.equal('amqp-lock-admin: the user manager does not have the tag "monitoring": waiters, and holders of '
      .. "permits and fast mutexes, are not shown\n", told)
  end)

  -- The node is told directly what rabbitmqctl would tell it, in a hundredth of the time.
  local CTL = {
    add_user = 'ok = rabbit_auth_backend_internal:add_user($1, <<"secret">>, <<"o">>).',
    set_user_tags = 'ok = rabbit_auth_backend_internal:set_tags($1, [binary_to_atom($2)], <<"o">>).',
    set_permissions = 'ok = rabbit_auth_backend_internal:set_permissions($1, <<"/">>, $2, $3, $4, <<"o">>).',
  }

  managed_it("runs as docs/operators.md says, for the user that it says", function()
    local place, asking, api = command.place(), {}, the_node().api:gsub("//.-@", "//")
    for block in process.contents("docs/operators.md"):gmatch "\n```console\n(.-)\n```\n" do
      for line in ("\n" .. block):gmatch "\n%$ ([^\n]+)" do
        local verb, rest = line:match "^rabbitmqctl (%S+) (.*)"
        local words = {}
        for word in (rest or ""):gmatch "[^%s']+" do table.insert(words, word) end
        if verb then
          the_node():tell(CTL[verb], values.unpack(words))
        else
          line = line:gsub("http://rabbit.example.org:15672", api)
          table.insert(asking, (line:gsub(" who ", "%0--api " .. api .. " ")))
        end
      end
    end
    assert.equal(2, #asking)
    process.write(place .. "/.netrc", "machine 127.0.0.1 login watcher password secret\n")
    local conn = stage.connect(the_node().url, { name = "holder" })
    stage.take(conn:mutex "nightly-report")
    local how = { program = "/bin/sh", env = { HOME = place, PATH = command.DIRECTORY .. ":/usr/bin:/bin" } }
    local one = command.start(how, "-c", "exec " .. asking[2])
    one:await "Z  http://127[^\n]+ 1 hold, 0 wait\n\nNAME.+nightly%-report +mutex +holder "
    one:signal "INT"
    assert.same({ "signal", 2 }, { one:wait() })
    assert.matches("nightly%-report +mutex +holder.*\n# ask it first: amqp%-lock%-admin revoke %-m 'nightly%-report'\n",
      command.ends(how, 0, "-c", asking[1]))
  end)
end)

describe("amqp-lock-admin top, of an API that", function()
  local port, secure_port, wrong_port, services = nil, nil, nil, {}

  local function serve(...)
    local free, words = nil, { process.PYTHON, process.shell("realpath", API):match "[^\n]+", ... }
    table.insert(services, server.start(function(directory)
      return words, function()
        free = (process.contents(directory .. "/log") or ""):match "^(%d+)\n"
        return free
      end
    end))
    return free
  end

  setup(function()
    port = serve()
    if broker.suite then
      local tls = broker.suite.directory .. "/tls/"
      secure_port = serve(tls .. "server.pem", tls .. "server.key")
      wrong_port = serve(tls .. "wrong-name.pem", tls .. "wrong-name.key")
    end
  end)

  teardown(function()
    for _, one in ipairs(services) do one:stop() end
  end)

  for _, case in ipairs {
    { "has no listener", 69, "unreachable: http://127.0.0.1:1/x: Failed to connect", "http://u:secret@127.0.0.1:1/x" },
    { "has no host", 69, "unreachable: http://none.invalid/api: Could not resolve", "http://u:secret@none.invalid" },
    { "does not answer", 69, "unreachable: URL/silent: .*timed out", "silent" },
    { "cannot serve", 69, "unavailable: URL/503: status 503: because %?%[31m\n", "503" },
    { "lets the user not in", 77, "auth: URL/401: status 401: a valid user and password are needed", "401" },
    { "forbids", 77, "refused: URL/403: status 403: because", "403" },
    { "is at another path", 66, "not_found: URL/404: status 404: there is no management API; the plugin", "404" },
    { "is somewhere else", 70, "protocol: URL/301: status 301: it points to https://elsewhere.invalid/api\n", "301" },
    { "is a page", 70, "protocol: URL/page: no JSON at byte 1: ", "page" },
    { "is another JSON", 70, "protocol: URL/object: it lists neither queues nor consumers nor channels\n", "object" },
    { "says nothing", 70, "protocol: URL/none: an empty answer\n", "none" },
    { "speaks no TLS", 78, "tls: https://127.0.0.1:%d+/api: ", "https://u:secret@127.0.0.1:PORT" },
    { "has another scheme", 64, "option %-%-api takes an address such as http://", "ftp://u:secret@127.0.0.1:PORT/" },
    { "has no host in its URL", 64, "option %-%-api takes an address such as http://", "http://u:secret@:1/" },
  } do
    it(("%s, tells it with --once, and not the password, and ends with status %d"):format(case[1], case[2]), function()
      local api = case[4]:find(":", 1, true) and case[4]:gsub("PORT", port)
        or ("http://u:secret@127.0.0.1:%s/%s/"):format(port, case[4])
      local output, told = once(case[2], api, "-w", case[4] == "silent" and "0.3" or "10")
      assert.equal("", output)
      assert.matches("^amqp%-lock%-admin: " .. case[3]:gsub("URL", "http://127.0.0.1:" .. port), told)
      assert.is_nil(told:find("secret", 1, true), told)
    end)
  end

  -- Starts it on turns of the API; returns it and a function that waits for `tables` tables.
  local function start_on(turns)
    local one = start({}, "--interval", "0.1", "--api", ("http://u:secret@127.0.0.1:%s/turns,%s"):format(port, turns))
    return one, function(tables)
      until_true(function() return select(2, one:output():gsub("\nNAME ", "")) >= tables, one:output() end, SECONDS)
    end
  end

  -- A request on a kept connection that is closed meanwhile is sent again on a new one: a failure takes two of these.
  it("fails for a while, is asked again, and each failure is told once", function()
    local one, await_tables = start_on "closed,closed,fine,503,503,closed,closed,page,404,fine"
    await_tables(3)
    local told = {}
    for code, rest in one:output():gmatch "amqp%-lock%-admin: ([%l_]+): ([^\n]+)\n" do
      table.insert(told, code)
      assert.matches("; asking again$", rest)
    end
    assert.same({ "unreachable", "unavailable", "unreachable", "protocol", "not_found" }, told)
    one:signal "INT"
    assert.same({ "signal", 2 }, { one:wait() })
  end)

  it("does not let the user in any more ends it, as one that is none from the beginning does", function()
    local one = start_on "fine,fine,401"
    assert.same({ "exit", 77 }, { one:wait() })
    assert.matches("NAME.+NAME.+\namqp%-lock%-admin: auth: [^\n]+: a valid user and password [^\n]+\n$", one:output())
    one = start_on "page,fine"
    assert.same({ "exit", 70 }, { one:wait() })
    assert.matches("^amqp%-lock%-admin: protocol: [^\n]+\n$", one:output())
  end)

  it("fails is told on a terminal above the last table, in as many lines as it takes", function()
    local one = command.start({ program = "/bin/sh", pty = true, env = { TERM = "xterm" } }, "-c",
      'stty rows 20 cols 30; exec "$@"', "sh", ADMIN, "top", "--interval", "0.1", "--api",
      ("http://127.0.0.1:%s/turns,fine,502"):format(port))
    one:await "unavailable.-\27%[J"
    local drawn = one:output():match("\27%[H(unavailable.-)\27%[J"):gsub("\27%[K\r?\n", "\n")
    for line in drawn:gmatch "[^\n]+" do assert.is_true(#line <= 30, line) end
    assert.matches("^unavailable: http://127.0.0.1:" .. port .. "/turns,fine,502: status 502: because %?%[31m; "
      .. "asking again%d+%-%d+%-%d+T.*NAME ", (drawn:gsub("\n", "")))
  end)

  it("is that of the broker in AMQP_URL is asked with its user; another user falls back to rabbitmqctl", function()
    local host = ("127.%d.%d.%d"):format(math.random(1, 254), math.random(0, 255), math.random(2, 254))
    serve(host)
    local function ask(user, status, ...)
      return command.ends({ program = ADMIN, env = { AMQP_URL = ("amqp://%s@%s"):format(user, host),
        PATH = "/usr/bin:/bin" } }, status, ...)
    end
    local api = ("http://%s:15672/api"):format(host)
    assert.matches("^amqp%-lock%-admin: told by " .. api .. "\nNAME ", ask("fine:p%40ss%2F", 0, "ls", "-v"))
    command.start({ program = ADMIN, env = { AMQP_URL = "amqp://fine:p%40ss%2F@" .. host } }, "top"):await("^%d[^ ]+Z  "
      .. api .. "  0 hold, 0 wait\n")
    assert.matches("^amqp%-lock%-admin: auth: " .. api .. ": status 401: [^\n]+; rabbitmqctl: ", ask("u:secret", 77,
      "who", "x", "-w", "5"))
  end)

  it("has a certificate of the authority in SSL_CERT_FILE is asked by TLS, and no other one is", function()
    if not secure_port then return pending("no certificate") end
    local function ask(status, to, authority)
      return command.ends({ program = ADMIN, env = { SSL_CERT_FILE = authority
        and ("%s/tls/%s.pem"):format(broker.suite.directory, authority) } }, status, "top", "--once", "--api",
        ("https://localhost:%s/fine"):format(to))
    end
    assert.matches("^NAME ", ask(0, secure_port, "ca"))
    assert.matches("tls: https://localhost:%d+/fine: SSL certificate", ask(78, secure_port, "unknown-ca"))
    assert.matches("tls: https://localhost:%d+/fine: SSL certificate", ask(78, secure_port, false))
    assert.matches("tls: https://localhost:%d+/fine: SSL: no alternative", ask(78, wrong_port, "ca"))
  end)
end)

it("amqp-lock-admin says that it was built without libcurl, where top or who would ask the management API", function()
  local program = command.place() .. "/without"
  local objects = process.objects "src/cli/admin/[!h]*.c src/cli/common/*.c src/core/*/*.c src/transport/*.c"
  process.shell("sh", "-c", ("${CC:-cc} -D_GNU_SOURCE -Isrc -pthread -o '%s' src/cli/admin/http_none.c %s -ljansson "
    .. "$(pkg-config --libs librabbitmq libssl libcrypto)"):format(program, objects))
  assert.matches("built without libcurl", command.ends({ program = program }, 70, "top"))
  assert.matches("built without libcurl [^\n]+; rabbitmqctl: ", command.ends({ program = program, env = {
    AMQP_URL = "amqp://192.0.2.1" } }, 69, "who", "x"))
end)
