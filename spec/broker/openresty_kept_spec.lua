-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- In nginx: a request that closes its own connection leaves it, empty, to the next request.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local kinds = require "spec.support.kinds"
local process = require "spec.support.process"
local scene = require "spec.broker.openresty_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local CLOSES = {
  ["= /closed"] = [[
    local conn = connect()
    local makes = { permit = "token_semaphore", slot = "semaphore", fast = "fast_mutex", write = "rwlock" }
    local object = conn[makes[var.arg_kind] or "mutex"](conn, var.arg_name)
    if object.writer then object = object:writer() end
    assert(object:acquire{ timeout = 10 })
    conn:close()
    ngx.say(1)]],
  ["= /unclosed"] = "assert(connect():mutex(var.arg_name):acquire()) ngx.say(1)",
}

local function start(label, options)
  options = options or {}
  options.connect = ("name = %q, "):format(label) .. (options.connect or "")
  local locations = {}
  for path, what in pairs(CLOSES) do locations[path] = what end
  for path, what in pairs(options.locations or {}) do locations[path] = what end
  options.locations = locations
  return scene.start(false, options)
end

local body = scene.body

-- The processes of the broker that serve connections of this name, as one text.
local function serving(name)
  local pids = broker.suite:strings([[
    [list_to_binary(pid_to_list(Pid)) || [{pid, Pid}, {client_properties, All}]
      <- rabbit_networking:connection_info_all([pid, client_properties]),
      lists:keyfind(<<"connection_name">>, 1, All) =:= {<<"connection_name">>, longstr, $1}] ]], name)
  table.sort(pids)
  return table.concat(pids, " ")
end

-- How many connections of the holder have ended, by the broker's log; `abruptly`: without AMQP's handshake.
local function ends(label, abruptly)
  local text = assert(process.contents(broker.suite.directory .. "/log/rabbit.log"))
  return select(2, text:gsub(abruptly and label .. " holder[^\n]*\n[^\n]*client unexpectedly closed"
    or "closing AMQP connection[^\n]*" .. label .. " holder", ""))
end

describe("a connection that a request has closed", function()
  after_each(scene.clear)
  teardown(stage.check)

  operated_it("is the next request's, for each kind of lock, until nginx ends", function()
    local label = client.unique "worker"
    local server, pid = start(label), nil
    for kind, make in pairs{ mutex = stage.mutex, slot = kinds.all.slot.name, write = stage.name,
      fast = kinds.all.fast_mutex.name, permit = kinds.all.permit.name } do
      local path = ("/closed?kind=%s&name=%s"):format(kind, make())
      for _ = 1, 3 do
        assert.equal("1", body(server, path))
        pid = pid or serving(label .. " holder")
        assert.equal(pid, serving(label .. " holder"), kind)
      end
    end
    assert.matches("^%S+$", pid)
    server:signal("QUIT")
    until_true(function() return not server:alive() end)
    stage.until_connected(label .. " holder", 0)
  end)

  operated_it("holds nothing, and its objects stay closed while another request uses it", function()
    local label, name, other = client.unique "worker", stage.mutex(), stage.mutex()
    local server = start(label, { locations = {
      ["= /first"] = [[
        local kept = {}
        package.loaded.kept = kept
        kept.conn, kept.told = connect(), 0
        kept.conn:on_lost(function() kept.told = kept.told + 1 end)
        kept.mutex = kept.conn:mutex(var.arg_name)
        kept.lock = assert(kept.mutex:acquire())
        kept.conn:close()
        ngx.say(kept.told)]],
      ["= /second"] = [[
        local kept, conn = package.loaded.kept, connect()
        local lock = assert(conn:mutex(var.arg_name):acquire())
        local function code(...) return tostring(select(3, ...)) end
        ngx.say(table.concat({
          code(kept.mutex:try_acquire()), code(kept.lock:held()), code(kept.lock:release()), code(kept.lock:verify()),
          tostring(kept.conn:close()), tostring(kept.conn), tostring(lock:verify()), tostring(lock:held()), kept.told,
        }, " "))
        gates:set("in", true)
        await_gate("go")
        ngx.say(tostring(lock:verify()))]],
    } })
    assert.equal("0", body(server, "/first?name=" .. name))
    local pid = serving(label .. " holder")
    assert.is_true(stage.take(stage.connect():mutex(name)):release())
    local request = server:begin("/second?name=" .. other)
    until_true(function() return body(server, "/seen?gate=in") == "true" end)
    assert.equal(pid, serving(label .. " holder"))
    stage.fails("busy", stage.connect():mutex(other):try_acquire())
    scene.open(server, "go")
    assert.equal(("200 closed not_held closed closed true amqplocks.connection (%s holder, closed) true true 0\ntrue\n")
      :format(label):gsub(" holder", ""), scene.answer(request))
    assert.is_true(stage.take(stage.connect():mutex(other)):release())
  end)

  operated_it("is not used after the broker has closed it", function()
    local label, name = client.unique "worker", stage.mutex()
    local server = start(label)
    assert.equal("1", body(server, "/closed?name=" .. name))
    for _ = 1, 3 do
      local pid = serving(label .. " holder")
      broker.suite:close_connection(label .. " holder")
      stage.until_connected(label .. " holder", 0)
      assert.equal("1", body(server, "/closed?name=" .. name))
      assert.is_true(serving(label .. " holder") ~= pid)
      assert.equal("1", body(server, "/closed?name=" .. name))
      stage.until_connected(label .. " holder", 1)
    end
  end)

  operated_it("is one of at most 32 that a worker keeps", function()
    local label, name, requests = client.unique "worker", stage.name(), {}
    local server = start(label, { locations = { ["= /many"] = [[
      local conn = connect()
      assert(conn:mutex(var.arg_name):acquire())
      gates:incr("many", 1, 0)
      await_gate("go")
      conn:close()
      ngx.say(1)]] } })
    for i = 1, 40 do requests[i] = server:begin(("/many?name=%s-%d"):format(name, i)) end
    until_true(function() return body(server, "/seen?gate=many") == "40" end)
    scene.open(server, "go")
    for i = 1, 40 do assert.equal("200 1\n", scene.answer(requests[i])) end
    stage.until_connected(label .. " holder", 32)
    for _, pid in ipairs(server:reload()) do server:await_end(pid) end
    stage.until_connected(label .. " holder", 0)
  end)

  operated_it("is closed, in order, when no request has taken it; one that was not closed is not kept", function()
    local label, name = client.unique "worker", stage.mutex()
    local server = start(label, { connect = "heartbeat = 15" }) -- kept for a third of it: the broker waits for half
    assert.equal("1", body(server, "/unclosed?name=" .. name))
    until_true(function() return ends(label, true) == 1 end) -- which shows how the broker logs it
    assert.equal("1", body(server, "/closed?name=" .. name))
    stage.until_connected(label .. " holder", 1)
    until_true(function() return ends(label) == 2 end)
    assert.equal(1, ends(label, true))
  end)

  operated_it("is not used by requests with another user", function()
    local label, name = client.unique "worker", stage.mutex()
    local user = client.unique "user"
    local url = broker.suite:add_user(user, ".*", ".*", ".*")
    stage.undo(function() broker.suite:delete_user(user) end)
    local server = start(label, { locations = { ["= /as"] = ([[
      local url = var.arg_other and %q or %q
      local conn = amqplocks.connect(function() return url end, { name = %q })
      assert(conn:mutex(var.arg_name):acquire())
      conn:close()
      ngx.say(1)]]):format(url, broker.suite.url, label) } })
    assert.equal("1", body(server, "/as?name=" .. name))
    local first = serving(label .. " holder")
    assert.equal("1", body(server, "/as?other=1&name=" .. name))
    stage.until_connected(label .. " holder", 2)
    assert.equal("1", body(server, "/as?name=" .. name))
    assert.equal("1", body(server, "/as?other=1&name=" .. name))
    stage.until_connected(label .. " holder", 2)
    assert.is_not_nil(serving(label .. " holder"):find(first, 1, true))
  end)
end)
