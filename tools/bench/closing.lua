-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Closing a connection that holds many mutexes, as a ratio to connection.close by rabbitmq-c, of a connection with as
-- many queues, consumers and channels.
local amqplocks = require "amqplocks"
local bare = require "bare"
local rows = require "tools.bench.parts.rows"

local MANY, TIMES = 1000, math.ceil(rows.rounds / 3)
local url = os.getenv "AMQP_URL"
local name = ("bench-%d"):format(os.time())

local function ours()
  local conn, locks = assert(amqplocks.connect(nil, { timeout = 60 })), {}
  for i = 1, MANY do locks[i] = assert(conn:mutex(("%s-%d"):format(name, i)):try_acquire()) end
  local seconds = rows.seconds(conn.close, conn)
  assert(not locks[MANY]:held())
  return seconds
end

local function theirs(needs_bolts)
  local raw = bare.connect(url)
  raw:hold(name .. "-bare", MANY, needs_bolts)
  return rows.seconds(raw.goodbye, raw)
end

local raw = bare.connect(url)
local major, minor = raw:server():match " (%d+)%.(%d+)"
raw:close()
local needs_bolts = tonumber(major) * 100 + tonumber(minor) < 403

local list, bares = {}, {}
for i = 1, TIMES do list[i], bares[i] = ours(), theirs(needs_bolts) end
rows.compare(("closing with %d mutexes / connection.close"):format(MANY), 1.3, list, bares)
