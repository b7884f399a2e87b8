-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Common functions of the specs of locks in nginx: servers whose handlers hold a lock as long as the spec wants, and a
-- check of what is left afterwards.
--
--     scene.tidy()
--     local server = scene.start{ workers = 2 }
--     local request, gate = scene.inside(server, "/hold", name, 1)   -- holds slot 1
--     assert.equal("200 1 true\n", scene.open(server, gate, request)) -- and goes on
--     scene.assert_all_there(name, 1)
local assert = require "luassert"
local nginx = require "spec.support.nginx"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local scene = {}

-- What every handler may use. A gate is opened by the spec, and seen by every worker of that nginx, also by new ones.
local PRELUDE = [[
  local amqplocks = require "amqplocks"
  local var, gates = ngx.var, ngx.shared.gates
  local function await_gate(name) while not gates:get(name) do ngx.sleep(0.005) end end
  local function connect() return assert(amqplocks.connect(nil, { $connect })) end
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
  ["= /exec"] = "take() ngx.exec('/slow', { gate = var.arg_gate })",
  ["= /watched"] = { more = "lua_check_client_abort on;", content = "take() await_gate(var.arg_gate) ngx.say(1)" },
  ["= /proxied"] = { access = "take()", more = "proxy_pass http://itself/slow?gate=$arg_gate;" },
  ["= /slow"] = "await_gate(var.arg_gate) ngx.say('slow')",
  -- alone in there, as far as all requests of this nginx can tell
  ["= /alone"] = [[
    take()
    local inside = gates:incr("inside", 1, 0)
    ngx.sleep(0.001)
    gates:incr("inside", -1)
    ngx.say(inside == 1 and "alone" or "not alone")]],
}

--- A server. Options as for nginx.start; `locations` come beside those above, and `connect` is options for
-- amqplocks.connect, as Lua source.
function scene.start(options)
  options = options or {}
  options.prelude = PRELUDE:gsub("$connect", options.connect or "")
  local locations = {}
  for path, what in pairs(LOCATIONS) do locations[path] = what end
  for path, what in pairs(options.locations or {}) do locations[path] = what end
  options.locations = locations
  options.main = "env AMQP_URL;\n" .. (options.main or "")
  options.http = "lua_shared_dict gates 1m;\nupstream itself { server 127.0.0.1:{PORT}; }\n"
    .. (options.http or "")
  return nginx.start(options)
end

local gates = 0
function scene.gate()
  gates = gates + 1
  return "gate" .. gates
end

--- Begins a request that takes a slot and waits at a gate, and waits until it is inside.
function scene.inside(server, path, name, slot)
  local gate = scene.gate()
  local request = server:begin(("%s?name=%s&gate=%s"):format(path, name, gate))
  until_true(function() return select(2, server:get("/seen?gate=in-" .. gate)) == "true\n", server:errors() end)
  if slot then assert.is_true(stage.held(name, slot)) end
  return request, gate
end

--- The body of the answer to a request, without its last newline.
function scene.body(server, path) return (select(2, server:get(path)):gsub("\n$", "")) end

--- Waits for the answer; gives status and body.
function scene.answer(request, seconds)
  local status, body = request:finish(seconds)
  return ("%s %s"):format(status, body)
end

--- Opens a gate. Returns the answer to the request that waits there, if one is given.
function scene.open(server, gate, request)
  assert.equal(200, (server:get("/open?gate=" .. gate)))
  return request and scene.answer(request)
end

--- No slot is lost, and none is there twice: an outsider can take each once.
function scene.assert_all_there(name, slots)
  local sem, locks, seen = stage.connect():semaphore(name), {}, {}
  for i = 1, slots do
    locks[i] = stage.take(sem, { timeout = 60 })
    seen[locks[i].slot] = true
  end
  for i = 1, slots do assert.is_true(seen[i]) end
  stage.fails("busy", sem:try_acquire())
  for _, lock in ipairs(locks) do assert(lock:release()) end
end

--- Call this at the beginning of a file, as stage.tidy.
function scene.tidy() stage.tidy(nginx.clear) end

return scene
