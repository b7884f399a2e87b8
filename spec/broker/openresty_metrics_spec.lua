-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Metrics of requests in nginx, which a real Prometheus asks. Its answers are compared with the numbers of requests,
-- and with the broker's connections. nginx-lua-prometheus is in no Debian package: `make metrics-rock` installs it in
-- build/rocks, or AMQPLOCKS_PROMETHEUS names the directory of its files.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local prometheus = require "spec.support.servers.prometheus"
local scene = require "spec.broker.openresty_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local HERE = process.shell("pwd"):match "[^\n]+"
local directory = os.getenv "AMQPLOCKS_PROMETHEUS" or HERE .. "/build/rocks/share/lua/5.1"
local has_rock = io.open(directory .. "/prometheus.lua") ~= nil

teardown(stage.check)

it("nginx tells the events of a request's connection, also of a lock that ends with the request", function()
  finally(function()
    nginx.clear()
    stage.clear()
  end)
  local name = stage.semaphore(1)
  local server = scene.start{ locations = {
    ["= /told"] = [[
      local conn = connect()
      conn:on_event(function(event) gates:incr("event-" .. event.what .. (event.kind or ""), 1, 0) end)
      ngx.say(conn:semaphore(var.arg_name):acquire{ timeout = 60 }.slot)]],
    ["= /events"] = "ngx.say(gates:get 'event-acquiredslot', ' ', gates:get 'event-releasedslot')",
  } }
  for i = 1, 2 do
    assert.equal("1", scene.body(server, "/told?name=" .. name))
    until_true(function()
      local body = scene.body(server, "/events")
      return body == ("%d %d"):format(i, i), body
    end)
  end
end)

-- ---- with nginx-lua-prometheus --------------------------------------------------------------------------------------

local HTTP = [[
  lua_shared_dict prometheus_metrics 1m;
  init_by_lua_block { package.path = "%s/?.lua;" .. package.path }
  init_worker_by_lua_block {
    prometheus = require("prometheus").init("prometheus_metrics", { sync_interval = 0.1 })
    metrics = require("amqplocks.metrics").new()
    metrics.nginx(prometheus)
  }
]]

-- A worker has its own name at the broker. So it is known whose connection is closed.
local CONNECT = [[
  local name = ("%s-%d"):format(var.arg_label, ngx.worker.id())
  local conn = assert(amqplocks.connect(nil, { name = name }))
  metrics.listen(conn)
  local lock, _, code = conn:semaphore(var.arg_name):acquire{ timeout = tonumber(var.arg_timeout) or 20 }
]]

local LOCATIONS = {
  ["= /once"] = CONNECT .. "ngx.say(lock and lock.slot or code)",
  -- waits at a gate, and looks then whether its lock was lost
  ["= /inside"] = CONNECT .. [[
    gates:set("in-" .. var.arg_gate, name)
    await_gate(var.arg_gate)
    ngx.say(select(3, lock:verify()) or "held")]],
  -- waits at a gate, and does not look
  ["= /careless"] = CONNECT .. 'gates:set("in-" .. var.arg_gate, name) await_gate(var.arg_gate) ngx.say("over")',
  ["= /metrics"] = "prometheus:collect()",
}

-- Has each worker in turn serve alone, while the other ones are stopped.
local function by_each_worker(server, fn)
  local workers = server:workers()
  for i in ipairs(workers) do
    for j, pid in ipairs(workers) do
      server:signal(i == j and "CONT" or "STOP", pid)
      if i ~= j then process.of(pid):await_state "T" end
    end
    local fine, problem = pcall(fn)
    for _, pid in ipairs(workers) do server:signal("CONT", pid) end
    if not fine then error(problem, 0) end
  end
end

local function ends_with(number)
  return function(values, count)
    local _, value = next(values)
    return count == 1 and value == number
  end
end

describe(has_rock and "Prometheus" or "Prometheus (make metrics-rock)", function()
  local it = has_rock and it or pending
  local operated_it = has_rock and broker.operated_it(it, pending) or pending
  local label = client.unique "metered"
  local server, scraper, name

  local function path_of(path, more) return ("%s?name=%s&label=%s%s"):format(path, name, label, more or "") end

  local function get(path, more) return scene.body(server, path_of(path, more)) end

  -- Begins a request that has the slot; returns it, its gate, and the name of its worker at the broker.
  local function inside(path)
    local gate, worker = scene.gate(), nil
    local request = server:begin(path_of(path or "/inside", "&gate=" .. gate))
    until_true(function()
      worker = select(2, server:get("/seen?gate=in-" .. gate)):match "%S+"
      return worker ~= "nil", server:errors()
    end)
    return request, gate, worker
  end

  -- Waits until the broker has two connections of this role: one for each worker.
  local function until_connected(role)
    until_true(function() return broker.suite:ask([[
      length([Name || [{client_properties, P}] <- rabbit_networking:connection_info_all([client_properties]),
        {<<"connection_name">>, longstr, Name} <- P, string:prefix(Name, $1) =/= nomatch,
        string:find(Name, $2) =/= nomatch]).]], label, role) == "2" end)
  end

  setup(function()
    if not has_rock then return end
    name = stage.semaphore(1)
    server = scene.start{
      workers = 2, http = HTTP:format(directory), locations = LOCATIONS, sleeper = "/metrics",
    }
    scraper = prometheus.start({ server.port }, HERE .. "/examples/metrics/alerts.yml")
  end)

  teardown(function()
    if not has_rock then return end
    scraper:stop()
    nginx.clear()
    stage.clear()
  end)

  it("counts what the requests of both workers do", function()
    by_each_worker(server, function() assert.equal("1", get "/once") end)
    local holder, gate = inside()
    for _ = 1, 2 do assert.equal("timeout", get("/once", "&timeout=0.1")) end
    local waiter = server:begin(path_of "/once")
    scraper:await(('amqplocks_waiting{name="%s"}'):format(name), ends_with(1))
    scraper:await(('amqplocks_held{kind="slot",name="%s"}'):format(name), ends_with(1))
    assert.equal("200 held\n", scene.open(server, gate, holder))
    assert.equal("200 1\n", scene.answer(waiter))
    for query, number in pairs{
      ['amqplocks_acquire_seconds_count{name="%s",result="acquired"}'] = 4,
      ['amqplocks_acquire_seconds_count{name="%s",result="timeout"}'] = 2,
      ['amqplocks_hold_seconds_count{name="%s"}'] = 4,
      ['amqplocks_held{name="%s"}'] = 0, ['amqplocks_waiting{name="%s"}'] = 0,
      ['amqplocks_lost_total{name="%s"}'] = 0,
    } do scraper:await(query:format(name), ends_with(number)) end
  end)

  operated_it("counts the connections of all workers", function()
    for _, link in ipairs{ "prober", "holder" } do
      scraper:await(('sum(amqplocks_connection_up{link="%s"})'):format(link), ends_with(2))
      until_connected(link)
    end
    local before = scraper:query 'sum(amqplocks_opened_total{link="holder"})'[""]
    local request, gate, worker = inside()
    broker.suite:close_connection(worker .. " holder")
    assert.equal("200 lost\n", scene.open(server, gate, request))
    by_each_worker(server, function() assert.equal("1", get "/once") end)
    scraper:await('sum(amqplocks_opened_total{link="holder"})', ends_with(before + 1))
    scraper:await('sum(amqplocks_connection_up{link="holder"})', ends_with(2))
    until_connected "holder"
  end)

  operated_it("tells of losses, which fire an alert, also of one that no call finds", function()
    scraper:await(('amqplocks_lost_total{name="%s"}'):format(name), ends_with(1))
    scraper:await(('ALERTS{alertname="AmqplocksLost",alertstate="firing",name="%s"}'):format(name), ends_with(1))
    local request, gate, worker = inside "/careless"
    broker.suite:close_connection(worker .. " holder")
    stage.until_free(name, 1)
    assert.equal("200 over\n", scene.open(server, gate, request))
    scraper:await(('amqplocks_lost_total{name="%s"}'):format(name), ends_with(2))
  end)

  it("sees that the connections of a killed worker are gone", function()
    local _, _, worker = inside()
    scraper:await(('amqplocks_connection_up{link="holder",worker="%s"}'):format(worker:sub(-1)), function(values)
      return (select(2, next(values)) or 0) > 0
    end)
    server:kill_worker()
    scraper:await("sum(amqplocks_connection_up)", ends_with(0))
  end)
end)
