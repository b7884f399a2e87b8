-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Requests per second through nginx, with two workers and eight clients: with a lock for each request, on a connection
-- of the request's own or on the worker's. They are compared with the same handler without a lock, and with rabbitmq-c
-- alone on eight connections that each declare and delete. There are as many slots as clients, so no request waits for
-- long.
local socket = require "socket"

local amqplocks = require "amqplocks"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local rows = require "spec.support.rows"

local SECONDS, CLIENTS, ROUNDS = 3, 8, 3
local name = ("bench-%d"):format(os.time())

local HANDLER = ([[
  local conn = assert(amqplocks.connect(nil, { shared = %%s }))
  local lock = assert(conn:%s:acquire{ timeout = 10 })
  ngx.say(lock:held())
  %%s
]])

local function handler(kind, shared, last) return HANDLER:format(kind):format(shared, last) end

local semaphore = ("semaphore('%s', { strategy = 'random' })"):format(name)
local mutex = ("mutex('%s-' .. ngx.var.connection)"):format(name)

local server = nginx.start{
  workers = 2, main = "env AMQP_URL;", http = "lua_socket_log_errors off; keepalive_requests 1000000;",
  prelude = "local amqplocks = require 'amqplocks'",
  locations = {
    ["/none"] = "ngx.say(true)",
    ["/own"] = handler(semaphore, "nil", ""),
    ["/shared"] = handler(semaphore, "true", "lock:release()"),
    ["/own-mutex"] = handler(mutex, "nil", ""),
    ["/shared-mutex"] = handler(mutex, "true", "lock:release()"),
  },
}

-- Answers per second; all of them must be 200.
local function through(path)
  local report = process.shell("wrk", "-t1", "-c" .. CLIENTS, ("-d%ds"):format(SECONDS), "--timeout", "20s",
    ("http://127.0.0.1:%d%s"):format(server.port, path))
  assert(not report:find("Non-2xx", 1, true) and not report:find("Socket errors", 1, true), report)
  return tonumber(report:match("Requests/sec:%s*([%d.]+)"))
end

local function start_clients()
  local clients = {}
  for i = 1, CLIENTS do
    clients[i] = process.start()
    clients[i]:run("raw = require('bare').connect(os.getenv 'AMQP_URL')")
  end
  return clients
end

local LOOP = [[
  local name, seconds = ...
  local bare, count = require "bare", 0
  local finish = bare.now() + seconds
  while bare.now() < finish do
    raw:declare_delete(name, 10)
    count = count + 10
  end
  return count
]]

-- Pairs of declare and delete per second, by all clients together.
local function floor(clients)
  local count = 0
  for i, client in ipairs(clients) do client:begin(LOOP, ("%s-bare-%d"):format(name, i), SECONDS) end
  for _, client in ipairs(clients) do count = count + client:finish() end
  return count / SECONDS
end

local conn = assert(amqplocks.connect())
assert(conn:admin(name):create(CLIENTS))
local clients = start_clients()
local measured = { floor = {} }
local paths = { "/none", "/own", "/shared", "/own-mutex", "/shared-mutex" }
for round = 1, ROUNDS do
  measured.floor[round] = floor(clients)
  for _, path in ipairs(paths) do
    measured[path] = measured[path] or {}
    measured[path][round] = through(path)
  end
  socket.sleep(0.5) -- the broker cleans up after connections of ended requests
end

local function rate(what) return rows.median(measured[what]) end

local function row(what, path)
  rows.plain(what, ("%.2f"):format(rate(path) / rate "floor"))
  rows.plain("", ("%.0f requests a second"):format(rate(path)))
end

rows.plain("nginx: requests a second without a lock", ("%.0f"):format(rate "/none"))
rows.plain("rabbitmq-c: declare + delete a second, 8 connections", ("%.0f"):format(rate "floor"))
row("a slot for each, own connection / declare + delete", "/own")
row("a slot for each, shared connection / the same", "/shared")
row("a mutex for each, own connection / the same", "/own-mutex")
row("a mutex for each, shared connection / the same", "/shared-mutex")

process.clear()
nginx.clear()
assert(conn:admin(name):destroy())
conn:close()
