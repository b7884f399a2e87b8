-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Requests per second through nginx, with two workers and eight clients: with a lock for each request. They are
-- compared with the same handler without a lock, and with rabbitmq-c alone on eight connections: slots and mutexes with
-- declare and delete, permits and fast mutexes with consume, cancel and nack. There are as many slots and permits as
-- clients, and each client has a mutex of its own. So no request waits for long. Beside each row stands the processor
-- time that one request took in the broker and in nginx.
local amqplocks = require "amqplocks"
local bare = require "bare"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local rows = require "tools.bench.parts.rows"

local SECONDS, CLIENTS, ROUNDS = 3, 8, 3
local name = ("bench-%d"):format(os.time())

local HANDLER = [[
  local lock = assert(assert(amqplocks.connect()):%s:acquire{ timeout = 10 })
  ngx.say(lock:held())
  lock:release()
]]

local semaphore = ("semaphore('%s', { strategy = 'last' })"):format(name)
local mutex = ("mutex('%s-' .. ngx.var.connection)"):format(name)
local permit = ("token_semaphore('%s')"):format(name)
-- The queue of a fast mutex stays; the names are kept, to delete the queues at the end.
local fast = ("fast_mutex((function() local name = '%s-' .. ngx.var.connection "
  .. "ngx.shared.names:set(name, true) return name end)())"):format(name)

local server = nginx.start{
  workers = 2, main = "env AMQP_URL;",
  http = "keepalive_requests 1000000; lua_shared_dict names 1m;",
  prelude = "local amqplocks = require 'amqplocks'",
  locations = {
    ["/none"] = "ngx.say(true)",
    ["/slot"] = HANDLER:format(semaphore),
    ["/mutex"] = HANDLER:format(mutex),
    ["/permit"] = HANDLER:format(permit),
    ["/fast"] = HANDLER:format(fast),
    ["/names"] = "ngx.say(table.concat(ngx.shared.names:get_keys(0), ' '))",
  },
}

-- Processor seconds so far of the broker (0: it is not this bench's own, and may be on another machine) and of nginx.
local function processors()
  local broker, workers = tonumber(os.getenv "BROKER_PID"), 0
  for _, pid in ipairs(server:workers()) do workers = workers + process.processor_seconds(pid) end
  return broker and process.processor_seconds(broker) or 0, workers
end

local measured = {} -- for each thing that was measured, a list of { rate, broker, workers }, one for each round

-- fn returns how many times it did the thing, and in how many seconds.
local function measure(what, fn)
  local broker, workers = processors()
  local count, seconds = fn()
  local broker_then, workers_then = processors()
  measured[what] = measured[what] or {}
  table.insert(measured[what], { rate = count / seconds, broker = (broker_then - broker) / count,
    workers = (workers_then - workers) / count })
end

-- The answers to requests, and the seconds; all answers must be 200.
local function through(path)
  local report = process.shell("wrk", "-t1", "-c" .. CLIENTS, ("-d%ds"):format(SECONDS), "--timeout", "20s",
    ("http://127.0.0.1:%d%s"):format(server.port, path))
  assert(not report:find("Non-2xx", 1, true) and not report:find("Socket errors", 1, true), report)
  local count = tonumber(report:match("(%d+) requests in "))
  return count, count / tonumber(report:match("Requests/sec:%s*([%d.]+)"))
end

local function bare_name(client) return ("%s-bare-%d"):format(name, client) end

local function start_clients()
  local clients = {}
  for i = 1, CLIENTS do
    clients[i] = process.start()
    clients[i]:run("raw = require('bare').connect(os.getenv 'AMQP_URL')")
  end
  return clients
end

local LOOP = [[
  local method, queue, seconds = ...
  local bare, count = require "bare", 0
  local finish = bare.now() + seconds
  while bare.now() < finish do
    raw[method](raw, queue, 10)
    count = count + 10
  end
  return count
]]

-- How many pairs all clients do together, each with a queue of its own, and the seconds.
local function floor(clients, method, suffix)
  local count = 0
  for i, client in ipairs(clients) do client:begin(LOOP, method, bare_name(i) .. suffix, SECONDS) end
  for _, client in ipairs(clients) do count = count + client:finish() end
  return count, SECONDS
end

local conn, raw = assert(amqplocks.connect()), bare.connect(os.getenv "AMQP_URL")
assert(conn:admin(name):create(CLIENTS))
assert(conn:token_semaphore(name):create(CLIENTS))
for i = 1, CLIENTS do assert(assert(conn:fast_mutex(bare_name(i)):acquire()):release()) end -- makes queue and token
local clients = start_clients()
local paths = { "/none", "/slot", "/mutex", "/permit", "/fast" }
for _ = 1, ROUNDS do
  measure("declare", function() return floor(clients, "declare_delete", "") end)
  measure("take", function() return floor(clients, "take_nack", "-fastmutex") end)
  for _, path in ipairs(paths) do measure(path, function() return through(path) end) end
end

-- The median of all rounds.
local function median(what, key)
  local list = {}
  for i, one in ipairs(measured[what]) do list[i] = one[key] end
  return rows.median(list)
end

local function rate(what) return median(what, "rate") end

local function processor_time(what)
  rows.plain("", ("processor time of each: broker %.0f us, nginx %.0f us"):format(median(what, "broker") * 1e6,
    median(what, "workers") * 1e6))
end

local function absolute(what, key)
  rows.plain(what, ("%.0f"):format(rate(key)))
  processor_time(key)
end

local function row(what, path, floor_key)
  rows.plain(what, ("%.2f"):format(rate(path) / rate(floor_key)))
  rows.plain("", ("%.0f requests a second"):format(rate(path)))
  processor_time(path)
end

absolute("nginx: requests a second without a lock", "/none")
absolute("rabbitmq-c: declare + delete a second, 8 connections", "declare")
row("a slot for each, shared connection / the same", "/slot", "declare")
row("a mutex for each, shared connection / the same", "/mutex", "declare")
absolute("rabbitmq-c: consume + cancel and nack a second, 8 conns.", "take")
row("a permit for each, shared connection / the same", "/permit", "take")
row("a fast mutex for each, shared connection / the same", "/fast", "take")

-- The rate of one thing as a part of another's in the same round must be at least this.
local function compare(title, what, other, least)
  local ratios = {}
  for i, one in ipairs(measured[what]) do ratios[i] = one.rate / measured[other][i].rate end
  local ratio = rows.median(ratios)
  rows.row(title, (">= %.2f"):format(least), ratio >= least, ("%.2f"):format(ratio), rows.spread(ratios, "%.2f"))
end

compare("nginx, shared: a fast mutex for each / a mutex, rate", "/fast", "/mutex", 5)

process.clear()
for one in select(2, server:get "/names"):gmatch "%S+" do raw:delete(one .. "-fastmutex") end
for i = 1, CLIENTS do raw:delete(bare_name(i) .. "-fastmutex") end
nginx.clear()
assert(conn:token_semaphore(name):destroy())
assert(conn:admin(name):destroy())
raw:close()
conn:close()
