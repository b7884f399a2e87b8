-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Runs the service of examples/metrics on a throw-away broker, with a real Prometheus that asks it, and has three
-- things happen to it. Prints what Prometheus answers to the queries of the dashboard, with tabs between the columns:
--
--     seconds    70
--     happens    12      another client holds the mutex for 12 s
--     panel      Locks that are held     short
--     series     mutex metrics-import
--     value      0       1                           -- seconds since the beginning; one line for each second
--
-- tools/dashboard.lua draws that; `make picture-dashboard` runs both.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local process = require "spec.support.process"
local prometheus = require "spec.support.servers.prometheus"
local server = require "spec.support.servers.server"
local socket = require "socket"

local WARM_UP = 6 -- seconds until rates of the first seconds have values; they are not shown
local PAUSE = 10 -- seconds before each thing that happens, and after the last one
local RATE_INTERVAL = "4s" -- that of Grafana, where Prometheus asks each second
local HERE = process.shell("pwd"):match "[^\n]+"

assert(broker.suite, "AMQP_URL is set, but this closes connections and stops the broker: it needs one of its own")

local service, scraper

local SERIES = [[
import json, sys
answer = json.loads(sys.argv[1])
if answer["status"] != "success":
    sys.exit(answer["error"])
for one in answer["data"]["result"]:
    print("series", *("%s=%s" % item for item in one["metric"].items()), sep="\t")
    for at, value in one["values"]:
        print("value", at, value, sep="\t")
]]

-- Evaluates a query for each second between two times, in seconds since the epoch. Returns a list of series: { labels,
-- values }, where a value is { at, text }.
local function range(expression, from, to)
  local list = {}
  local answer = scraper:get("/api/v1/query_range", "query=" .. expression, ("start=%d"):format(from),
    ("end=%d"):format(to), "step=1s")
  for line in process.shell("python3", "-c", SERIES, answer):gmatch "[^\n]+" do
    local at, text = line:match "^value\t(%S+)\t(%S+)"
    if at then
      table.insert(list[#list].values, { at = tonumber(at), text = text })
    else
      local labels = {}
      for name, value in line:gmatch "\t([^=]+)=([^\t]*)" do labels[name] = value end
      table.insert(list, { labels = labels, values = {} })
    end
  end
  return list
end

-- What happens, in order.
local story = {
  { "another client holds the mutex metrics-import for 12 s", function()
    local conn = assert(amqplocks.connect())
    local lock = assert(conn:mutex("metrics-import"):acquire{ timeout = 20 })
    socket.sleep(12)
    lock:release()
    conn:close()
  end },
  { "the broker closes the importers' connection, until a lock is lost by that", function()
    repeat -- at that moment nobody may have the mutex
      pcall(broker.suite.close_connection, broker.suite, "importer holder")
      socket.sleep(1.5)
    until (scraper:query "sum(amqplocks_lost_total)"[""] or 0) > 0
  end },
  { "the broker has an alarm for 6 s: its memory is full", function()
    broker.suite:alarm(true)
    socket.sleep(6)
    broker.suite:alarm(false)
  end },
}

local function put(...)
  print(table.concat({ ... }, "\t"))
  io.stdout:flush()
end

local function put_answers(from, to)
  local last
  for _, query in ipairs(prometheus.queries("examples/metrics/dashboard.json", RATE_INTERVAL)) do
    if query.title ~= last then put("panel", query.title, query.unit) end
    last = query.title
    for _, series in ipairs(range(query.expression, from, to)) do
      put("series", (query.legend:gsub("{{(%w+)}}", series.labels)))
      for _, value in ipairs(series.values) do put("value", ("%d"):format(value.at - from), value.text) end
    end
  end
end

local function run()
  scraper:await("amqplocks_held", function(_, count) return count > 1 end)
  socket.sleep(WARM_UP)
  local from, happened = math.floor(socket.gettime()), {}
  for i, one in ipairs(story) do
    socket.sleep(PAUSE)
    happened[i] = { at = socket.gettime() - from, words = one[1] }
    one[2]()
  end
  socket.sleep(PAUSE)
  local to = math.floor(socket.gettime())
  put("seconds", ("%d"):format(to - from))
  for _, one in ipairs(happened) do put("happens", ("%.1f"):format(one.at), one.words) end
  put_answers(from, to)
end

local port = server.free_port()
service = server.start(function()
  return { os.getenv "LUA" or "lua5.4", HERE .. "/examples/metrics/service.lua", ("%d"):format(port) },
    function() return server.listens(port) end
end)
scraper = prometheus.start({ port }, HERE .. "/examples/metrics/alerts.yml")
local fine, problem = pcall(run)
scraper:stop()
service:stop()
if not fine then error(problem, 0) end
