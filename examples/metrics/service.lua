-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- A service with metrics. Three coroutines import files, one at a time; two read a catalogue, which one of them
-- rewrites now and then. Prometheus asks http://127.0.0.1:PORT/metrics how they are.
--
--   service.lua PORT
--
-- The broker is AMQP_URL, or on localhost. prometheus.yml, alerts.yml and dashboard.json are for this service, and for
-- any other. docs/monitoring.md explains them.

local amqplocks = require "amqplocks"
local cqueues = require "cqueues"
local metrics = require("amqplocks.metrics").new()
local socket = require "cqueues.socket"

local PORT = assert(tonumber(arg[1]), "service.lua PORT")

local function say(...)
  print(...)
  io.stdout:flush()
end

-- ---- the work -------------------------------------------------------------------------------------------------------

-- A failure is printed, and counted by the metrics. The worker goes on.
local function work(lockable, opts, seconds)
  local had, problem = lockable:with(opts, function() cqueues.sleep(seconds) end)
  if not had then
    say(problem)
    cqueues.sleep(1)
  end
end

local function import(conn)
  local mutex = conn:mutex "metrics-import"
  while true do
    work(mutex, { timeout = 5, patient = true }, 0.05)
    cqueues.sleep(math.random() * 0.3)
  end
end

local function read(conn, rewrites)
  local catalogue = conn:rwlock "metrics-catalogue"
  for round = 1, math.huge do
    local side = rewrites and round % 10 == 0 and catalogue:writer() or catalogue:reader()
    work(side, { timeout = 5, patient = true }, 0.02)
    cqueues.sleep(math.random() * 0.3)
  end
end

-- ---- Prometheus -----------------------------------------------------------------------------------------------------

-- Answers one request. HTTP/1.0: the end of the connection ends the answer.
local function answer(client)
  client:onerror(function(_, _, why) return why end) -- it may go away at any time
  client:settimeout(5)
  client:setmode("tl", "bf") -- as written, and at once at the flush
  local path = (client:read "*l" or ""):match "^GET (%S+)"
  repeat local line = client:read "*l" until not line or line:match "^%s*$"
  if path == "/metrics" then
    client:write("HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n", metrics.text())
  else
    client:write "HTTP/1.0 404 Not Found\r\n\r\n"
  end
  client:flush()
  client:close()
end

local loop = cqueues.new()

loop:wrap(function()
  local function connect(name)
    local conn = assert(amqplocks.connect(nil, {
      driver = "cqueues", name = name, log = function(level, message) say(level .. " " .. message) end,
    }))
    metrics.listen(conn)
    return conn
  end
  local importer, reader, writer = connect "importer", connect "reader", connect "writer"
  for _ = 1, 3 do loop:wrap(import, importer) end
  loop:wrap(read, reader)
  loop:wrap(read, writer, true)
  local server = socket.listen("127.0.0.1", PORT)
  while true do loop:wrap(answer, (assert(server:accept()))) end
end)

assert(loop:loop())
