-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- In nginx: what belongs to a request and what to its worker, in which phases locks may be used, and TLS.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local kinds = require "spec.support.kinds"
local line = require "spec.support.line"
local scene = require "spec.broker.openresty_scene"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

scene.tidy()

local body = scene.body

-- What a handler keeps where other requests find it.
local KEEP = [[
  local kept = package.loaded.kept or {}
  package.loaded.kept = kept
]]

it("a connection, its objects and locks are worth nothing in another request or subrequest", function()
  local name, closed = stage.semaphore(2), ("closed "):rep(6) .. "closed"
  local KEPT = KEEP .. [[
    kept.conn = connect()
    kept.semaphore = kept.conn:semaphore(var.arg_name)
    kept.lock = assert(kept.semaphore:try_acquire()) ]]
  local server = scene.start{ locations = {
    ["= /keep"] = KEPT .. [[
      gates:set("kept", true)
      await_gate("go")
      ngx.say(tostring(kept.lock:verify()), " ", tostring(kept.lock:release()))]],
    ["= /sub"] = KEPT .. "ngx.print(ngx.location.capture('/use').body)",
    ["= /use"] = KEEP .. [[
      local function code(...) return select(3, ...) or "fine" end
      ngx.say(table.concat({
        code(kept.semaphore:try_acquire()), code(kept.semaphore:acquire{ timeout = 1 }),
        code(kept.conn:mutex("lock"):try_acquire()), code(kept.conn:admin("lock"):slots()),
        code(kept.lock:verify()), code(kept.lock:release()),
        code(kept.semaphore:with(function() return true end)),
      }, " "))]],
    ["= /close"] = KEEP .. "ngx.say(tostring(kept.conn:close()))",
  } }
  local request = server:begin("/keep?name=" .. name)
  until_true(function() return body(server, "/seen?gate=kept") == "true" end)
  assert.equal(closed, body(server, "/use"))
  assert.is_true(stage.held(name, 1))
  assert.equal("200 true true\n", scene.open(server, "go", request))
  assert.equal(closed, body(server, "/use")) -- and when it is over
  assert.equal("true", body(server, "/close"))
  assert.equal(closed, body(server, "/sub?name=" .. name))
  scene.assert_all_there(name, 2)
end)

it("every kind of lock is administered, and free at a request's end", function()
  local mutex, slots, permits = stage.mutex(), stage.semaphore(1), kinds.all.permit.name()
  local fast, quorum = kinds.all.fast_mutex.name(), kinds.all.quorum_mutex and kinds.all.quorum_mutex.name() or ""
  local function others()
    local conn = stage.connect()
    return { conn:mutex(mutex), conn:rwlock(mutex):reader(), conn:semaphore(slots), conn:token_semaphore(permits),
      conn:fast_mutex(fast), quorum ~= "" and conn:fast_mutex(quorum, { queue_type = "quorum" }) or nil }
  end
  local server = scene.start{ locations = { ["= /kinds"] = [[
    local conn = connect()
    for _, admin in ipairs{ conn:admin(var.arg_slots), conn:token_semaphore(var.arg_permits) } do
      assert(admin:resize(2) == 2 and admin:resize(1) == 1)
    end
    for _, lockable in ipairs{ conn:mutex(var.arg_mutex), conn:rwlock(var.arg_mutex):writer(),
      conn:semaphore(var.arg_slots), conn:token_semaphore(var.arg_permits), conn:fast_mutex(var.arg_fast),
      var.arg_quorum ~= "" and conn:fast_mutex(var.arg_quorum, { queue_type = "quorum" }) or nil } do
      assert(lockable:acquire{ timeout = 60 })
    end
    gates:set("kept", true)
    await_gate("go")
    ngx.say(require("amqplocks.nginx.links").look().silence > 0 and "over")]] } }
  local request = server:begin(("/kinds?mutex=%s&slots=%s&permits=%s&fast=%s&quorum=%s"):format(mutex, slots, permits,
    fast, quorum))
  until_true(function() return body(server, "/seen?gate=kept") == "true" end)
  for _, lockable in ipairs(others()) do stage.fails("busy", lockable:try_acquire()) end
  assert.equal("200 over\n", scene.open(server, "go", request))
  for _, lockable in ipairs(others()) do assert.is_true(stage.take(lockable, { timeout = 60 }):release()) end
end)

it("a worker retains a mutex from request to request, however these end, until somebody asks for it", function()
  local name = gate.name()
  local server = scene.start{ locations = { ["= /work"] = [[
    local conn = connect()
    local lock = assert(conn:mutex(var.arg_name, { retain = 600 }):acquire{ timeout = 60 })
    ngx.print(conn:stats().retained)
    if var.arg_i % 2 == 0 then assert(lock:release()) end]] } }
  local function work(i) return body(server, ("/work?name=%s&i=%d"):format(name, i)) end
  for i = 0, 4 do assert.equal(tostring(i), work(i)) end
  assert.is_true(gate.held("mutex", name))
  assert(stage.take(stage.connect():mutex(name), { poll = 600 }):release())
  assert.equal("4", work(5))
end)

it("a timer holds as a request does", function()
  local name = stage.semaphore(1)
  local server = scene.start{ locations = { ["= /timer"] = [[
    local name = var.arg_name
    ngx.timer.at(0, function()
      local lock = assert(connect():semaphore(name):try_acquire())
      gates:set("taken", true)
      await_gate("go")
      gates:set("held", (lock:held()))
      error("oh")
    end)
    ngx.say(1)]] } }
  server:get("/timer?name=" .. name)
  stage.until_held(name, 1)
  scene.open(server, "go")
  scene.assert_all_there(name, 1)
  assert.equal("true", body(server, "/seen?gate=held"))
end)

it("of two light threads that wait the other goes on when one is killed, and nothing is left", function()
  local names = { stage.semaphore(1), stage.semaphore(1) }
  local server = scene.start{ locations = { ["= /kill"] = [[
    local conn, threads = connect(), {}
    for i = 1, 2 do
      threads[i] = ngx.thread.spawn(function()
        conn:semaphore(var["arg_name" .. i]):acquire{ poll = 600 }
      end)
    end
    local i = tonumber(var.arg_i)
    await_gate("go" .. i)
    ngx.thread.kill(threads[i])
    ngx.thread.wait(threads[3 - i])
    ngx.say("over")]] } }
  for i = 1, 2 do
    local locks = {}
    for k, name in ipairs(names) do locks[k] = stage.take(stage.connect():semaphore(name)) end
    local request = server:begin(("/kill?name1=%s&name2=%s&i=%d"):format(names[1], names[2], i))
    for _, name in ipairs(names) do line.until_at(name, 0, 2) end -- its holder, which keeps its token, and a waiter
    scene.open(server, "go" .. i)
    assert(locks[3 - i]:release())
    assert.equal("200 over\n", scene.answer(request))
    assert(locks[i]:release())
    for _, name in ipairs(names) do scene.assert_all_there(name, 1) end
  end
end)

it("several locks are free when a light thread is killed in release, or in close; its request goes on", function()
  for _, what in ipairs{ "locks:release()", "conn:close()" } do
    local mutex, name = gate.name(), stage.semaphore(1)
    local server = scene.start{ locations = { ["= /killed"] = [[
      local conn, is_over = connect(), nil
      local locks = assert(conn:all{ conn:mutex(var.arg_mutex), conn:semaphore(var.arg_name),
        conn:rwlock(var.arg_mutex):writer() }:acquire{ timeout = 60 })
      ngx.ctx.locks = locks
      local thread = ngx.thread.spawn(function()
        ]] .. what .. [[
        is_over = true
      end)
      local killed = ngx.thread.kill(thread)
      gates:set("killed", true)
      await_gate("go")
      ngx.say(tostring(killed and not is_over), " ", tostring(locks:held()))]] } }
    local request = server:begin(("/killed?mutex=%s&name=%s"):format(mutex, name))
    until_true(function() return body(server, "/seen?gate=killed") == "true", server:errors() end)
    until_true(function()
      return not gate.held("mutex", mutex) and not gate.held("write", mutex) and stage.free(name, 1)
    end)
    assert.equal("200 true false\n", scene.open(server, "go", request))
  end
end)

it("a request enters its reentrant mutex again, and another request does not", function()
  local mutex = gate.name()
  local server = scene.start{ locations = { ["= /reentrant"] = [[
    local conn = connect()
    local mutex = conn:mutex(var.arg_mutex, { reentrant = true })
    local outer, message, code = mutex:acquire{ timeout = tonumber(var.arg_timeout) }
    if not outer then return fail(message, code) end
    assert(assert(conn:mutex(var.arg_mutex, { reentrant = true }):try_acquire()):release())
    gates:set("inside", true)
    await_gate("go")
    ngx.say(tostring(outer:held()), " ", tostring(outer:release()))]] } }
  local request = server:begin("/reentrant?timeout=60&mutex=" .. mutex)
  until_true(function() return body(server, "/seen?gate=inside") == "true", server:errors() end)
  assert.equal(503, (server:get("/reentrant?timeout=0.2&mutex=" .. mutex)))
  assert.is_true(gate.held("mutex", mutex))
  assert.equal("200 true true\n", scene.open(server, "go", request))
  gate.until_free("mutex", mutex)
end)

it("closing a connection ends what other light threads wait for, and its objects", function()
  local name = stage.semaphore(1)
  local server = scene.start{ locations = { ["= /close"] = [[
    local conn = connect()
    local semaphore, lock = conn:semaphore(var.arg_name), assert(conn:mutex(var.arg_name):acquire())
    local function code(...) return select(3, ...) or "fine" end
    local thread = ngx.thread.spawn(function() return code(semaphore:acquire{ timeout = 60 }) end)
    await_gate("go")
    conn:close()
    ngx.say(select(2, ngx.thread.wait(thread)), " ", code(semaphore:try_acquire()), " ", code(lock:held()), " ",
      code(lock:release()), " ", code(lock:verify()), " ", tostring(conn:close()))]] } }
  local occupant = stage.occupy(name, 1)
  local request = server:begin("/close?name=" .. name)
  occupant:await_looks(1)
  assert.equal("200 closed closed not_held closed closed true\n", scene.open(server, "go", request))
  occupant:release()
  scene.assert_all_there(name, 1)
end)

-- With a request ends who would be told of what no call finds.
for call, find in pairs{
  verify = "select(3, lock:verify())", release = "select(3, lock:release())", with = "code", close = "conn:close()",
  ["no call"] = "nil",
} do
  operated_it("a loss is told once, to the request whose lock it was, by the call that finds it: " .. call, function()
    local label, name, requests = client.unique("worker"), stage.semaphore(2), {}
    local server = scene.start{
      connect = ("name = %q"):format(label),
      locations = { ["= /lose"] = ([[
        local conn = connect()
        conn:on_lost(function(lock, code) gates:incr(("told%s-%s%d"):format(var.arg_who, code, lock.slot), 1, 0) end)
        local lock, code
        local function work(mine)
          lock = mine
          gates:set("in" .. var.arg_who, true)
          await_gate("lost")
        end
        local sem = conn:semaphore(var.arg_name)
        if $with then code = select(3, sem:with(work)) else work(assert(sem:acquire())) end
        local found = $find
        ngx.say(tostring(found), " ", tostring(found == nil or lock:held()))
        if found == nil then return end
        lock:release()
        conn:close()]]):gsub("$(%l+)", { with = tostring(call == "with"), find = find }) },
    }
    for i = 1, 2 do
      requests[i] = server:begin(("/lose?name=%s&who=%d"):format(name, i))
      until_true(function() return body(server, "/seen?gate=in" .. i) == "true" end)
    end
    broker.suite:close_connection(label .. " holder")
    for i = 1, 2 do stage.until_free(name, i) end
    scene.open(server, "lost")
    local found = call == "close" and "true false" or call == "no call" and "nil true" or "lost false"
    for i = 1, 2 do assert.equal(("200 %s\n"):format(found), scene.answer(requests[i])) end
    until_true(function() return body(server, "/try?name=" .. name) == "1" end)
    for i = 1, 4 do -- each of its own
      local who, slot = math.ceil(i / 2), i % 2 + 1
      local times = who == slot and call ~= "no call" and "1" or "nil"
      assert.equal(times, body(server, ("/seen?gate=told%d-lost%d"):format(who, slot)))
    end
    scene.assert_all_there(name, 2)
  end)
end

operated_it("each worker has one holder and one prober, which a quit takes along", function()
  local label, name = client.unique("worker"), stage.semaphore(1)
  -- Whose socket a connection is for, chance decides, and not who was quick.
  local server = scene.start{ workers = 2, listen = "reuseport", connect = ("name = %q"):format(label) }
  local requests = {}
  for i = 1, 60 do requests[i] = server:begin("/hold?gate=go&timeout=60&name=" .. name) end -- both are busy
  scene.open(server, "go")
  for i = 1, 60 do assert.equal("200 1 true\n", scene.answer(requests[i], 60)) end
  stage.until_connected(label .. " prober", 2)
  stage.until_connected(label .. " holder", 2)
  for _, pid in ipairs(server:reload()) do server:await_end(pid) end
  stage.until_connected(label .. " prober", 0)
  assert.equal("1", body(server, "/try?name=" .. name))
  stage.until_connected(label .. " prober", 1)
  server:signal("QUIT")
  until_true(function() return not server:alive() end)
  stage.until_connected(label .. " prober", 0)
  stage.until_connected(label .. " holder", 0)
  scene.assert_all_there(name, 1)
end)

operated_it("fenced locks have numbers that grow, drawn on one connection of the worker", function()
  local name, label = stage.mutex(), client.unique "worker"
  stage.undo(function() client.shared():delete(name .. "-mutexfence") end)
  local server = scene.start{ connect = ("name = %q"):format(label), locations = { ["= /fenced"] = [[
    local conn = connect()
    local _, fence = assert(conn:mutex(var.arg_name, { fenced = true }):with({ timeout = 60 }, function(lock)
      return lock.fence
    end))
    ngx.say(("%.0f"):format(fence))
    conn:close()]] } }
  local last = 0
  for _ = 1, 5 do
    local fence = tonumber(body(server, "/fenced?name=" .. name))
    assert.is_true(fence > last)
    last = fence
    local worker_has = { fence = 1, prober = 1, holder = 1, maker = 0 }
    for role, number in pairs(worker_has) do stage.until_connected(label .. " " .. role, number) end
  end
  local outside = assert(stage.connect():mutex(name, { fenced = true }):try_acquire())
  assert.is_true(outside.fence > last)
end)

it("a worker without room for timers works as soon as it has some", function()
  local name = stage.semaphore(1)
  local server = scene.start{ http = "lua_max_running_timers 4;", locations = {
    ["= /fill"] = [[
      for _ = 1, 4 do ngx.timer.at(0, function() await_gate("go") end) end
      ngx.sleep(0.05)
      ngx.say(1)]],
  } }
  body(server, "/fill")
  local request = server:begin("/release?gate=end&name=" .. name)
  until_true(function() return server:errors():find("lua_max_running_timers are not enough", 1, true) end)
  scene.open(server, "go")
  assert.equal("200 1 true not_held\n", scene.open(server, "end", request))
  assert.equal("1", body(server, "/try?name=" .. name)) -- and lets go of what a request leaves
  scene.assert_all_there(name, 1)
end)

operated_it("the worker's prober comes back when the broker has closed it", function()
  local label, name = client.unique("worker"), stage.semaphore(1)
  local server = scene.start{ connect = ("name = %q"):format(label) }
  assert.equal("1", body(server, "/try?name=" .. name))
  stage.until_connected(label .. " prober", 1)
  for _ = 1, 3 do
    until_true(function() return pcall(broker.suite.close_connection, broker.suite, label .. " prober") end)
    until_true(function() return body(server, "/try?name=" .. name) == "1" end)
    stage.until_connected(label .. " prober", 1)
  end
  scene.assert_all_there(name, 1)
end)

operated_it("a light thread that is killed while it is told of a loss leaves the next loss to others", function()
  local label, name = client.unique("worker"), stage.semaphore(2)
  local server = scene.start{ connect = ("name = %q"):format(label), locations = { ["= /lose"] = [[
    local conn, told = connect(), {}
    conn:on_lost(function(lock)
      table.insert(told, lock.slot)
      if #told == 1 then ngx.sleep(60) end
    end)
    local sem = conn:semaphore(var.arg_name)
    local locks = { assert(sem:acquire()), assert(sem:acquire()) }
    gates:set("in", true)
    await_gate("lost")
    local thread = ngx.thread.spawn(function() locks[1]:verify() end)
    while #told == 0 do ngx.sleep(0.01) end
    locks[2]:release()
    local before = #told
    ngx.thread.kill(thread)
    locks[2]:verify()
    ngx.say(before, " ", #told, " ", tostring(told[1] ~= told[2]))]] } }
  local request = server:begin("/lose?name=" .. name)
  until_true(function() return body(server, "/seen?gate=in") == "true" end)
  broker.suite:close_connection(label .. " holder")
  stage.until_free(name, 1)
  assert.equal("200 1 2 true\n", scene.open(server, "lost", request))
end)

it("nothing can be had where nginx lets nobody wait", function()
  local name = stage.semaphore(1)
  local try = [[
    local amqplocks = require "amqplocks"
    local fine, conn, message, code = pcall(amqplocks.connect)
    local said = tostring(fine) .. " " .. tostring(conn) .. " " .. tostring(code or message)
    ngx.log(ngx.WARN, "phase ", ngx.get_phase(), ": ", said, "!")
  ]]
  local held = [[
    local lock = ngx.ctx.lock
    local _, _, code = lock:verify()
    local _, _, again = lock._connection:semaphore(lock.name):try_acquire()
    ngx.log(ngx.WARN, "held in ", ngx.get_phase(), ": ", code, " ", again, " ", tostring(lock:held()), "!")
  ]]
  local server = scene.start{
    http = "init_by_lua_block { " .. try .. " }\ninit_worker_by_lua_block { " .. try .. " }",
    locations = { ["= /phases"] = {
      set = try .. " return 1", rewrite = "take()", content = "ngx.say('content')", header_filter = try .. held,
      body_filter = try .. held, log = try .. held,
    } },
  }
  assert.equal("content", body(server, "/phases?name=" .. name))
  local function until_logged(words)
    until_true(function() return server:errors():find(words, 1, true), server:errors() end)
  end
  for _, phase in ipairs{ "init", "init_worker", "set", "header_filter", "body_filter", "log" } do
    until_logged(("phase %s: true nil phase!"):format(phase))
  end
  for _, phase in ipairs{ "header_filter", "body_filter", "log" } do
    until_logged(("held in %s: phase phase true!"):format(phase))
  end
  scene.assert_all_there(name, 1)
end)

it("the option shared is refused, with what to do about it", function()
  local server = scene.start{ locations = { ["= /refused"] =
    "ngx.say(select(2, pcall(amqplocks.connect, nil, { shared = var.arg_value == 'true' })))" } }
  for _, value in ipairs{ "true", "false" } do
    assert.equal("connect: option shared must be nil (delete it: in nginx every connection is the worker's), not "
      .. value, body(server, "/refused?value=" .. value))
  end
end)

it("lua_code_cache off costs connections, and nothing else; nor does the name of nginx's own driver", function()
  local name = stage.semaphore(1)
  local server = scene.start{ http = "lua_code_cache off;", connect = "driver = 'resty'" }
  for _ = 1, 3 do
    assert.equal("1", body(server, "/try?name=" .. name))
    stage.until_free(name, 1)
  end
  local request, its = scene.inside(server, "/hold", name, 1)
  assert.equal("busy", body(server, "/try?name=" .. name))
  assert.equal("200 1 true\n", scene.open(server, its, request))
  scene.assert_all_there(name, 1)
end)

describe("TLS", function()
  local encrypted = os.getenv "AMQPS_URL" and it or pending
  local tls = os.getenv "BROKER_TLS" or ""
  local TRUST = ("lua_ssl_trusted_certificate %s/ca.pem;"):format(tls)

  -- What a request says that connects with these options, and tries to acquire.
  local function says(options, directives, more)
    local server = scene.start{
      main = ("env AMQPS_URL=%s;"):format(os.getenv "AMQPS_URL"), http = directives,
      locations = { ["= /tls"] = ([[
        local url = os.getenv "AMQPS_URL"
        if var.arg_silent then url = { "amqps://127.0.0.1:" .. var.arg_silent, url } end
        local fine, conn, message, code = pcall(amqplocks.connect, url, { %s })
        if not fine then return ngx.say("thrown ", conn) end
        if not conn then return ngx.say(code, " ", message) end
        local lock, message, code = conn:semaphore(var.arg_name):try_acquire()
        ngx.say(lock and lock.slot or code .. " " .. message)]]):format(options) },
    }
    return body(server, ("/tls?name=%s%s"):format(stage.semaphore(1), more or ""))
  end

  for what, case in pairs{
    ["is trusted by what nginx trusts"] = { "^1$", "", TRUST },
    ["is not verified where nobody wants it"] = { "^1$", "tls = { verify = false }" },
    ["shows a certificate of its own"] = { "^1$",
      ("tls = { cert = %q, key = %q }"):format(tls .. "/client.pem", tls .. "/client.key"), TRUST },
    ["with another authority is refused"] = { "^tls tls: .*certificate", "", TRUST:gsub("/ca", "/unknown-ca") },
    ["without an authority is refused"] = { "^tls tls: .*certificate", "" },
    ["with another name is refused"] = { "^tls tls: .*certificate",
      "tls = { server_name = 'elsewhere.invalid' }", TRUST },
    ["with a certificate that is not there is refused"] = { "^tls tls: .*none.pem",
      ("tls = { cert = %q, key = %q }"):format(tls .. "/none.pem", tls .. "/client.key"), TRUST },
    ["with an authority of its own is more than nginx can do"] = { "tls%.ca",
      ("tls = { ca = %q }"):format(tls .. "/ca.pem") },
  } do
    encrypted(what, function() assert.matches(case[1], says(case[2], case[3])) end)
  end

  encrypted("is given up with a host that never answers, and the next one is tried", function()
    local silent = assert(socket.bind("127.0.0.1", 0))
    assert.equal("1", says("timeout = 20", TRUST, "&silent=" .. select(2, silent:getsockname())))
    silent:close()
  end)
end)

it("nobody waits longer for a connection than he has time himself, and a broker that is not there is unreachable",
  function()
    local deaf, callers = assert(socket.tcp()), {}
    assert(deaf:bind("127.0.0.1", 0) and deaf:listen(0))
    local _, port = deaf:getsockname()
    for i = 1, 3 do -- as many as the system takes on before somebody accepts them, and more
      callers[i] = socket.tcp()
      callers[i]:settimeout(0)
      callers[i]:connect("127.0.0.1", port)
    end
    local server = scene.start{ locations = { ["= /try_port"] = [[
      local conn, message, code = amqplocks.connect("amqp://" .. var.arg_at, { timeout = tonumber(var.arg_timeout) })
      if conn then conn, message, code = conn:mutex("lock"):acquire{ timeout = tonumber(var.arg_within) } end
      ngx.say(code, " ", message)]] } }
    assert.matches("^timeout ", body(server, "/try_port?timeout=600&within=0.1&at=127.0.0.1:" .. port))
    assert.matches("^unreachable .*refused", body(server, "/try_port?timeout=60&at=localhost:1"))
    for _, one in ipairs{ deaf, (table.unpack or unpack)(callers) } do one:close() end
  end)
