-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Locks held by requests of a real nginx: they wait without keeping others waiting, and whatever ends the request, or
-- the worker, leaves no slot behind and gives none twice. What a slot's state is, is asked by a client without this
-- library; that nobody else is inside, by a directory that only one can make.
local nginx = require "spec.support.nginx"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

after_each(function()
  nginx.clear()
  stage.clear()
end)
teardown(stage.check)

-- What every handler may use. A gate is opened by the spec, and seen by every worker of that nginx, also by new ones.
local PRELUDE = [[
  local amqplocks = require "amqplocks"
  local var, gates = ngx.var, ngx.shared.gates
  local function await_gate(name) while not gates:get(name) do ngx.sleep(0.005) end end
  local function connect() return assert(amqplocks.connect(nil, { shared = $shared })) end
  local function fail(message, code)
    ngx.status = 503
    ngx.say(code, " ", message)
    return ngx.exit(200)
  end
  local function take()
    local lock, message, code = connect():semaphore(var.arg_name):acquire{ timeout = tonumber(var.arg_timeout) }
    if not lock then return fail(message, code) end
    ngx.ctx.lock = lock
    gates:set("in-" .. (var.arg_gate or ""), true)
    return lock
  end
]]

local LOCATIONS = {
  ["= /hello"] = "ngx.say('hello')",
  ["= /open"] = "gates:set(var.arg_gate, true) ngx.say(1)",
  ["= /seen"] = "ngx.say(tostring(gates:get(var.arg_gate)))",
  ["= /try"] = [[
    local lock, message, code = connect():semaphore(var.arg_name):try_acquire()
    ngx.say(lock and lock.slot or code)]],
  -- holds until its gate is open, then ends as it is told
  ["= /hold"] = [[
    local lock = take()
    await_gate(var.arg_gate)
    ngx.say(lock.slot, " ", tostring(lock:held()))]],
  ["= /release"] = [[
    local lock = take()
    ngx.say(lock.slot, " ", tostring(lock:release()), " ", select(3, lock:release()))
    ngx.flush(true)
    await_gate(var.arg_gate)]],
  ["= /error"] = "take() await_gate(var.arg_gate) error('oh')",
  ["= /exit"] = "take() await_gate(var.arg_gate) ngx.exit(403)",
  ["= /exit_elsewhere"] = [[
    ngx.thread.spawn(function() await_gate(var.arg_gate) ngx.exit(403) end)
    take()
    ngx.sleep(60)]],
  ["= /exec"] = "take() await_gate(var.arg_gate) ngx.exec('/hello')",
  ["= /watched"] = { more = "lua_check_client_abort on;", content = "take() await_gate(var.arg_gate) ngx.say(1)" },
  ["= /proxied"] = { access = "take()", more = "proxy_pass http://itself/slow?gate=$arg_gate;" },
  ["= /slow"] = "await_gate(var.arg_gate) ngx.say('slow')",
  -- alone in there, as far as the file system can tell
  ["= /alone"] = [[
    local lock = take()
    local ffi = require "ffi"
    if not pcall(function() return ffi.C.rmdir end) then
      ffi.cdef "int mkdir(const char *, unsigned); int rmdir(const char *);"
    end
    local path = var.arg_path
    local mine = ffi.C.mkdir(path, 448) == 0
    ngx.sleep(0.001)
    if mine then ffi.C.rmdir(path) end
    ngx.say(mine and "alone" or "not alone")]],
}

local function start(shared, options)
  options = options or {}
  options.prelude = PRELUDE:gsub("$shared", tostring(shared))
  options.locations = options.locations or LOCATIONS
  options.main = "env AMQP_URL;\n" .. (options.main or "")
  options.http = "lua_shared_dict gates 1m;\nlua_socket_log_errors off;\nupstream itself { server 127.0.0.1:{PORT}; }\n"
    .. (options.http or "")
  return nginx.start(options)
end

local gates = 0
local function new_gate()
  gates = gates + 1
  return "gate" .. gates
end

local function open(server, gate) assert.equal(200, (server:get("/open?gate=" .. gate))) end

-- Begins a request that takes a slot and waits at a gate, and waits until it is inside.
local function inside(server, path, name, slot)
  local gate = new_gate()
  local request = server:begin(("%s?name=%s&gate=%s"):format(path, name, gate))
  until_true(function() return select(2, server:get("/seen?gate=in-" .. gate)) == "true\n", server:errors() end, 20)
  if slot then assert.is_true(stage.held(name, slot)) end
  return request, gate
end

local function answer(request, seconds)
  local status, body = request:finish(seconds)
  return ("%s %s"):format(status, body)
end

-- No slot is lost, and none is there twice: an outsider can take each once.
local function assert_all_there(name, slots)
  local sem, seen = stage.connect():semaphore(name), {}
  for _ = 1, slots do seen[stage.take(sem, { timeout = 15 }).slot] = true end
  for i = 1, slots do assert.is_true(seen[i]) end
  stage.fails("busy", sem:try_acquire())
end

for _, shared in ipairs{ false, true } do
  describe(shared and "on the worker's connection" or "on a connection of its own", function()
    it("a request that waits keeps nobody waiting", function()
      local name = stage.semaphore(1)
      local server, occupant = start(shared), stage.occupy(name, 1)
      local waiting = server:begin("/hold?gate=1&timeout=20&name=" .. name)
      open(server, 1)
      occupant:await_looks(1)
      for _ = 1, 20 do assert.equal("hello\n", select(2, server:get("/hello"))) end
      assert.is_false(waiting:finished())
      occupant:release()
      assert.equal("200 1 true\n", answer(waiting))
      stage.until_free(name, 1)
    end)

    it("hundreds wait at once in one worker, and each is alone inside", function()
      local name = stage.semaphore(1)
      local server, requests = start(shared), {}
      local path = server.directory .. "/inside"
      local occupant = stage.occupy(name, 1)
      for i = 1, 250 do requests[i] = server:begin(("/alone?timeout=60&name=%s&path=%s"):format(name, path)) end
      assert.equal("hello\n", select(2, server:get("/hello")))
      occupant:release()
      for i = 1, 250 do
        assert.equal("200 alone\n", answer(requests[i], 60))
      end
      assert_all_there(name, 1)
    end)

    it("a request that runs out of time says so", function()
      local name = stage.semaphore(1)
      local server, occupant = start(shared), stage.occupy(name, 1)
      local status, body = server:get("/hold?gate=1&timeout=0.2&name=" .. name)
      assert.equal(503, status)
      assert.matches("^timeout timeout: ", body)
      assert.equal("busy\n", select(2, server:get("/try?name=" .. name)))
      occupant:release()
      assert_all_there(name, 1)
    end)

    it("workers, and two nginx, exclude each other", function()
      local name = stage.semaphore(1)
      local one, two = start(shared, { workers = 2 }), start(shared, { workers = 2 })
      local path, requests = one.directory .. "/inside", {}
      for i = 1, 80 do
        requests[i] = (i % 2 == 0 and one or two):begin(("/alone?timeout=60&name=%s&path=%s"):format(name, path))
      end
      for i = 1, 80 do
        assert.equal("200 alone\n", answer(requests[i], 60))
      end
      assert_all_there(name, 1)
    end)

    for path, status in pairs{ ["/hold"] = 200, ["/error"] = 500, ["/exit"] = 403, ["/exit_elsewhere"] = 403,
      ["/exec"] = 200, ["/proxied"] = 200 } do
      it("the end of a request leaves its slot: " .. path, function()
        local name = stage.semaphore(2)
        local server = start(shared)
        local request, gate = inside(server, path, name, 1)
        assert.equal("2\n", select(2, server:get("/try?name=" .. name)))
        open(server, gate)
        assert.equal(status, (request:finish()))
        assert_all_there(name, 2)
      end)
    end

    it("what a request releases is free while the request goes on", function()
      local name = stage.semaphore(1)
      local server = start(shared)
      local request, gate = inside(server, "/release", name)
      stage.until_free(name, 1)
      assert_all_there(name, 1)
      assert.is_false(request:finished())
      open(server, gate)
      assert.equal("1 true not_held\n", select(2, request:finish()))
    end)

    it("a client that goes away leaves the slot at once, where nginx is told to look", function()
      local name = stage.semaphore(1)
      local server = start(shared)
      local request = inside(server, "/watched", name, 1)
      request:abort()
      assert_all_there(name, 1)
    end)

    it("a client that goes away leaves the slot when the handler ends, elsewhere", function()
      local name = stage.semaphore(1)
      local server = start(shared)
      local request, gate = inside(server, "/hold", name, 1)
      request:abort()
      assert.equal("busy\n", select(2, server:get("/try?name=" .. name)))
      open(server, gate)
      assert_all_there(name, 1)
    end)

    it("a client that goes away while its request waits leaves nothing", function()
      local name = stage.semaphore(1)
      local server, occupant = start(shared), stage.occupy(name, 1)
      local request = server:begin("/watched?gate=1&timeout=60&name=" .. name)
      occupant:await_looks(1)
      request:abort()
      occupant:release()
      assert_all_there(name, 1)
      assert.equal("hello\n", select(2, server:get("/hello")))
    end)

    it("HUP leaves a slot with the request that holds it, and a request that waits in its place", function()
      local name = stage.semaphore(1)
      local server = start(shared, { workers = 2 })
      local holder, gate = inside(server, "/hold", name, 1)
      local early = server:begin("/hold?gate=later&timeout=60&name=" .. name)
      local old = server:reload()
      local late = server:begin("/hold?gate=later&timeout=60&name=" .. name)
      assert.equal("busy\n", select(2, server:get("/try?name=" .. name)))
      assert.is_true(stage.held(name, 1))
      assert.is_false(holder:finished() or early:finished() or late:finished())
      open(server, gate)
      open(server, "later")
      for _, request in ipairs{ holder, early, late } do
        assert.equal("200 1 true\n", answer(request))
      end
      assert_all_there(name, 1)
      for _, pid in ipairs(old) do server:await_end(pid) end
    end)

    it("a worker that is killed leaves its slots to those who wait elsewhere", function()
      local name = stage.semaphore(2)
      local server, other = start(shared), start(shared)
      inside(server, "/hold", name, 1)
      inside(server, "/hold", name, 2)
      local waiting = {}
      for i = 1, 2 do waiting[i] = other:begin("/hold?gate=later&timeout=60&name=" .. name) end
      server:kill_worker()
      open(other, "later")
      for i = 1, 2 do assert.equal(200, (waiting[i]:finish())) end
      assert_all_there(name, 2)
      assert.equal("1\n", select(2, server:get("/try?name=" .. stage.semaphore(1)))) -- the new worker
    end)
  end)
end
