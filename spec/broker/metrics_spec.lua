-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A real Prometheus asks the service of examples/metrics, and answers the queries of the dashboard.
local broker = require "spec.support.broker"
local process = require "spec.support.process"
local prometheus = require "spec.support.servers.prometheus"
local server = require "spec.support.servers.server"
local socket = require "socket"
local stage = require "spec.support.stage"

local operated_it = broker.operated_it(it, pending)
local HERE = process.shell("pwd"):match "[^\n]+"

local service, scraper, port

setup(function()
  port = server.free_port()
  service = server.start(function()
    return { os.getenv "LUA" or "lua5.4", HERE .. "/examples/metrics/service.lua", ("%d"):format(port) },
      function() return server.listens(port) end
  end)
  scraper = prometheus.start({ port }, HERE .. "/examples/metrics/alerts.yml")
end)

teardown(function()
  scraper:stop()
  service:stop()
  for _, bell in ipairs { "metrics-import-mutexbell", "metrics-catalogue-rwbell" } do stage.delete(bell) end
  stage.clear()
  stage.check()
end)

describe("examples/metrics", function()
  it("has alert rules that pass their tests", function()
    assert.matches("SUCCESS", prometheus.tool("check", "rules", "examples/metrics/alerts.yml"), 1, true)
    assert.matches("SUCCESS", prometheus.tool("test", "rules", "examples/metrics/alerts_test.yml"), 1, true)
    assert.matches("SUCCESS", prometheus.tool("check", "config", "examples/metrics/prometheus.yml"), 1, true)
  end)

  it("is asked by Prometheus, which counts what the workers do", function()
    scraper:await("up", function(values) return values[""] == 1 end)
    scraper:await('amqplocks_acquire_seconds_count{result="acquired"}', function(values)
      return (values["kind=mutex,name=metrics-import,result=acquired"] or 0) > 20
        and (values["kind=read,name=metrics-catalogue,result=acquired"] or 0) > 20
        and (values["kind=write,name=metrics-catalogue,result=acquired"] or 0) > 1
    end)
    local held = scraper:query "amqplocks_held"
    assert.is_true(held["kind=mutex,name=metrics-import"] <= 1)
    assert.equal(3, scraper:query('amqplocks_connection_up{link="holder"}')["link=holder"])
  end)

  operated_it("tells of a loss, which fires an alert", function()
    scraper:await("amqplocks_lost_total", function(values) -- at that moment perhaps no worker had the mutex
      if (values["code=lost,kind=mutex,name=metrics-import"] or 0) > 0 then return true end
      pcall(broker.suite.close_connection, broker.suite, "importer holder") -- it may be connecting anew
      socket.sleep(1) -- until Prometheus has asked
      return false
    end)
    scraper:await('ALERTS{alertstate="firing"}', function(values)
      return values["alertname=AmqplocksLost,alertstate=firing,kind=mutex,name=metrics-import,severity=page"] == 1
    end)
    scraper:await('amqplocks_opened_total{link="holder"}', function(values) return values["link=holder"] > 3 end)
  end)

  it("has a dashboard of which each query has an answer", function()
    local queries = prometheus.queries("examples/metrics/dashboard.json", "10s")
    assert.is_true(#queries >= 10)
    for _, query in ipairs(queries) do
      scraper:await(query.expression, function(_, answers) return answers > 0 end)
    end
  end)
end)
