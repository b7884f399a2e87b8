-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Metrics of requests in nginx. nginx-lua-prometheus is in no Debian package: AMQPLOCKS_PROMETHEUS names the directory
-- of its files.
local scene = require "spec.broker.openresty_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local directory = os.getenv "AMQPLOCKS_PROMETHEUS"

after_each(scene.clear)
teardown(stage.check)

describe("nginx", function()
  it("tells the events of a request's connection, also of a lock that ends with the request", function()
    local name = stage.semaphore(1)
    local server = scene.start(false, { locations = {
      ["= /told"] = [[
        local conn = connect()
        conn:on_event(function(event)
          local key = "event-" .. event.what .. (event.kind or "")
          gates:incr(key, 1, 0)
        end)
        ngx.say(conn:semaphore(var.arg_name):acquire{ timeout = 5 }.slot)]],
      ["= /events"] = "ngx.say(gates:get 'event-acquiredslot', ' ', gates:get 'event-releasedslot')",
    } })
    for i = 1, 2 do
      assert.equal("1\n", (select(2, server:get("/told?name=" .. name))))
      until_true(function()
        local _, body = server:get "/events"
        return body == ("%d %d\n"):format(i, i), body
      end, 20)
    end
  end);

  (directory and it or pending)("has metrics by nginx-lua-prometheus (AMQPLOCKS_PROMETHEUS: its directory)", function()
    local name = stage.semaphore(1)
    local server = scene.start(false, { workers = 2, http = ([[
      lua_shared_dict prometheus_metrics 1m;
      init_by_lua_block { package.path = "%s/?.lua;" .. package.path }
      init_worker_by_lua_block {
        prometheus = require("prometheus").init("prometheus_metrics", { sync_interval = 0.1 })
        metrics = require("amqplocks.metrics").new()
        metrics.nginx(prometheus)
      }]]):format(directory), locations = {
      ["= /counted"] = [[
        local conn = connect()
        metrics.listen(conn)
        ngx.say(conn:semaphore(var.arg_name):acquire{ timeout = 5 }.slot)]],
      ["= /metrics"] = "prometheus:collect()",
    } })
    for _ = 1, 4 do assert.equal("1\n", (select(2, server:get("/counted?name=" .. name)))) end
    local labels = ('{kind="slot",name="%s"'):format(name)
    until_true(function()
      local _, body = server:get "/metrics"
      return body:find("amqplocks_held" .. labels .. "} 0", 1, true)
        and body:find("amqplocks_acquire_seconds_count" .. labels .. ',result="acquired"} 4', 1, true)
        and body:find("amqplocks_hold_seconds_count" .. labels .. "} 4", 1, true), body
    end, 20)
  end)
end)
