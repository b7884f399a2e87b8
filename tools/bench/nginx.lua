-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Requests per second through nginx, with two workers and eight clients: with a lock for each request, on a connection
-- of the request's own, which ends with the request or is kept for the next one, or on the worker's. They are compared
-- with the same handler without a lock, and with rabbitmq-c alone on eight connections: slots and mutexes with declare
-- and delete, permits and fast mutexes with consume, cancel and nack. There are as many slots and permits as clients,
-- and each client has a mutex of its own. So no request waits for long. Beside each row stands the processor time that
-- one request took in the broker and in nginx.
local socket = require "socket"

local amqplocks = require "amqplocks"
local bare = require "bare"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local rows = require "tools.bench.parts.rows"

local SECONDS, CLIENTS, ROUNDS = 3, 8, 3
local name = ("bench-%d"):format(os.time())

local HANDLER = ([[
  local conn = assert(amqplocks.connect(nil, { shared = %%s }))
  local lock = assert(conn:%s:acquire{ timeout = 10 })
  ngx.say(lock:held())
  %%s
]])

local function handler(kind, shared, last) return HANDLER:format(kind):format(shared, last) end

local semaphore = ("semaphore('%s', { strategy = 'last' })"):format(name)
local mutex = ("mutex('%s-' .. ngx.var.connection)"):format(name)
local permit = ("token_semaphore('%s')"):format(name)
-- The queue of a fast mutex stays; the names are kept, to delete the queues at the end.
local fast = ("fast_mutex((function() local name = '%s-' .. ngx.var.connection "
  .. "ngx.shared.names:set(name, true) return name end)())"):format(name)

local server = nginx.start{
  workers = 2, main = "env AMQP_URL;",
  http = "lua_socket_log_errors off; keepalive_requests 1000000; lua_shared_dict names 1m;",
  prelude = "local amqplocks = require 'amqplocks'",
  locations = {
    ["/none"] = "ngx.say(true)",
    ["/own"] = handler(semaphore, "nil", ""),
    ["/shared"] = handler(semaphore, "true", "lock:release()"),
    ["/own-mutex"] = handler(mutex, "nil", ""),
    ["/shared-mutex"] = handler(mutex, "true", "lock:release()"),
    ["/kept-mutex"] = handler(mutex, "nil", "conn:close()"),
    ["/kept"] = handler(semaphore, "nil", "conn:close()"),
    ["/own-permit"] = handler(permit, "nil", ""),
    ["/shared-permit"] = handler(permit, "true", "lock:release()"),
    ["/own-fast"] = handler(fast, "nil", ""),
    ["/kept-fast"] = handler(fast, "nil", "conn:close()"),
    ["/shared-fast"] = handler(fast, "true", "lock:release()"),
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
local paths = { "/none", "/own", "/kept", "/shared", "/own-mutex", "/kept-mutex", "/shared-mutex", "/own-permit",
  "/shared-permit", "/own-fast", "/kept-fast", "/shared-fast" }
for _ = 1, ROUNDS do
  measure("declare", function() return floor(clients, "declare_delete", "") end)
  measure("take", function() return floor(clients, "take_nack", "-fastmutex") end)
  for _, path in ipairs(paths) do measure(path, function() return through(path) end) end
  socket.sleep(0.5) -- the broker cleans up after connections of ended requests
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
row("a slot for each, own connection / declare + delete", "/own", "declare")
row("a slot for each, own connection, kept / the same", "/kept", "declare")
row("a slot for each, shared connection / the same", "/shared", "declare")
row("a mutex for each, own connection / the same", "/own-mutex", "declare")
row("a mutex for each, own connection, kept / the same", "/kept-mutex", "declare")
row("a mutex for each, shared connection / the same", "/shared-mutex", "declare")
absolute("rabbitmq-c: consume + cancel and nack a second, 8 conns.", "take")
row("a permit for each, own connection / consume + nack", "/own-permit", "take")
row("a permit for each, shared connection / the same", "/shared-permit", "take")
row("a fast mutex for each, own connection / the same", "/own-fast", "take")
row("a fast mutex for each, own connection, kept / the same", "/kept-fast", "take")
row("a fast mutex for each, shared connection / the same", "/shared-fast", "take")

-- The rate of one thing as a part of another's in the same round must be at least this.
local function compare(title, what, other, least)
  local ratios = {}
  for i, one in ipairs(measured[what]) do ratios[i] = one.rate / measured[other][i].rate end
  local ratio = rows.median(ratios)
  rows.row(title, (">= %.2f"):format(least), ratio >= least, ("%.2f"):format(ratio), rows.spread(ratios, "%.2f"))
end

compare("nginx, own mutex for each: kept / not kept, rate", "/kept-mutex", "/own-mutex", 1.25)
compare("nginx, own fast mutex for each: kept / not kept, rate", "/kept-fast", "/own-fast", 2.5)
compare("nginx, shared: a fast mutex for each / a mutex, rate", "/shared-fast", "/shared-mutex", 5)

process.clear()
for one in select(2, server:get "/names"):gmatch "%S+" do raw:delete(one .. "-fastmutex") end
for i = 1, CLIENTS do raw:delete(bare_name(i) .. "-fastmutex") end
nginx.clear()
assert(conn:token_semaphore(name):destroy())
assert(conn:admin(name):destroy())
raw:close()
conn:close()
