-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A throw-away Prometheus, which asks some targets every second.
local process = require "spec.support.process"
local server = require "spec.support.servers.server"
local socket = require "socket"
local until_true = require "spec.support.until"

local prometheus = {}

local CONFIG = [[
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["%s"]
scrape_configs:
  - job_name: amqplocks
    static_configs: [{targets: ["%s"]}]
]]

--- Runs promtool; returns its output. It must succeed.
function prometheus.tool(...) return process.shell(assert(server.find "promtool"), ...) end

--- Starts one that asks 127.0.0.1:PORT for each of these ports, and has the rules of a file.
function prometheus.start(ports, rules)
  local port, targets = server.free_port(), {}
  for i, one in ipairs(ports) do targets[i] = ("127.0.0.1:%d"):format(one) end
  local self = server.start(function(directory)
    process.write(directory .. "/prometheus.yml", CONFIG:format(rules, table.concat(targets, '", "')))
    return {
      assert(server.find "prometheus"), "--config.file=" .. directory .. "/prometheus.yml",
      "--storage.tsdb.path=" .. directory .. "/data", ("--web.listen-address=127.0.0.1:%d"):format(port),
    }, function() return pcall(process.shell, "curl", "-sf", ("http://127.0.0.1:%d/-/ready"):format(port)) end
  end)
  self.url = ("http://127.0.0.1:%d"):format(port)
  for _, name in ipairs{ "get", "query", "await" } do self[name] = prometheus[name] end
  return self
end

--- Returns the answer of its API, as JSON. Each parameter is a text "name=value".
function prometheus:get(path, ...)
  local words = { "curl", "-sS", "--max-time", "10", "-G", self.url .. path }
  for _, parameter in ipairs { ... } do
    table.insert(words, "--data-urlencode")
    table.insert(words, parameter)
  end
  return process.shell((table.unpack or unpack)(words))
end

local PANELS = [[
import json, sys
for panel in json.load(open(sys.argv[1]))["panels"]:
    for target in panel["targets"]:
        words = panel["title"], panel["fieldConfig"]["defaults"]["unit"], target["legendFormat"], target["expr"]
        print(*words, sep="\t")
]]

--- Returns the queries of a dashboard's panels, for all jobs: a list of { title, unit, legend, expression }. `interval`
-- stands for Grafana's $__rate_interval.
function prometheus.queries(path, interval)
  local list = {}
  for title, unit, legend, expression in process.shell(process.PYTHON, "-c", PANELS, path)
    :gmatch "([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\n]*)\n" do
    expression = expression:gsub("%$__rate_interval", interval):gsub("%$job", ".*")
    table.insert(list, { title = title, unit = unit, legend = legend, expression = expression })
  end
  return list
end

local OF_THE_TARGET = { instance = true, job = true, __name__ = true }

--- Evaluates a query; returns a table of numbers by labels, such as ["kind=mutex,name=db"], and how many there are.
function prometheus:query(expression)
  local values, count, answer = {}, 0, self:get("/api/v1/query", "query=" .. expression)
  if not answer:find('"status":"success"', 1, true) then error(answer) end
  for metric, value in answer:gmatch '"metric":{([^}]*)},"value":%[[^,]*,"([^"]*)"%]' do
    local labels = {}
    for name, text in metric:gmatch '"([%w_]+)":"([^"]*)"' do
      if not OF_THE_TARGET[name] then table.insert(labels, name .. "=" .. text) end
    end
    table.sort(labels)
    values[table.concat(labels, ",")], count = tonumber(value) or 0 / 0, count + 1
  end
  return values, count
end

--- Evaluates a query again and again, until its answer fulfils a condition. `is_fine` gets what query() returns.
function prometheus:await(expression, is_fine)
  until_true(function()
    local values, count = self:query(expression)
    if is_fine(values, count) then return true end
    local seen = {}
    for labels, value in pairs(values) do table.insert(seen, ("{%s} %g"):format(labels, value)) end
    socket.sleep(0.3) -- it asks its targets once a second
    return false, expression .. ": " .. table.concat(seen, ", ")
  end, 60)
end

return prometheus
