-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A proxy in front of a broker, in a process of its own, for connections with network faults.
--
--     local proxy = require "spec.support.proxy".start()     -- in front of $AMQP_URL
--     local conn = stage.connect(proxy.url)                   -- its holder is connection 1, its prober then 2
--     local apart = proxy.start(url, other_url)              -- holder and prober connect to different brokers
--     proxy:switch("down", "hold")     -- holds the broker's bytes, on every connection, until "pass"
--     proxy:switch("up", "drop", 1)    -- drops the bytes of connection 1, and the notice of its end
--     proxy:cut(1)                     -- ends connection 1 on both sides;
--     proxy:cut(1, "broker")           -- for the broker only: the client is not notified
--     proxy:lose("queue.declare-ok")   -- drops the next of these, on any connection, and everything after it
--     proxy:cut_claiming()             -- passes the next declare of an exclusive queue, and ends its connection
--
-- It ends by the process.clear() of the test, or by close(), which also ends all its connections.
local url = require "socket.url"
local process = require "spec.support.process"
local values = require "spec.support.programs.values"

local proxy = {}
proxy.__index = proxy

local function start(host, is_shut, ...)
  local targets, server = { (...) or os.getenv "AMQP_URL", select(2, ...) }, process.start()
  local parts = url.parse(targets[1])
  server:begin("require('spec.support.programs.proxy').serve(spec, ...)", host, is_shut, values.unpack(targets))
  local port = server:finish()
  parts.host, parts.port, parts.authority = host, ("%d"):format(port), nil
  return setmetatable({ server = server, url = url.build(parts) }, proxy)
end

--- Connections lead to these addresses in turn, or all to $AMQP_URL by default.
function proxy.start(...) return start("127.0.0.1", false, ...) end

--- The same, at this address.
function proxy.at(host, ...) return start(host, false, ...) end

--- The same, but its port refuses connections until open(). Nobody else gets the port meanwhile.
function proxy.shut(...) return start("127.0.0.1", true, ...) end

local function tell(self, ...)
  assert(self.server.socket:send(values.message(...)))
  return self.server:finish()
end

--- Sets the mode of a direction, "up" to the broker or "down" from it: it can "pass", "hold" or "drop" bytes. This
-- applies to one connection, or to all current and future ones, or ("new") to future ones. "endless": it passes bytes,
-- but not the end of the connection; "trickle": it passes a few bytes at a time, a thousand a second.
function proxy:switch(direction, mode, index)
  tell(self, "switch", index == "new" and -1 or index or 0, direction, mode)
end

--- Opens the port of a proxy that proxy.shut() made.
function proxy:open() tell(self, "open") end

--- Whether to hang up on new connections at once.
function proxy:refuse(is_on) tell(self, "refuse", is_on) end

function proxy:cut(index, side) tell(self, "cut", index, side or "both") end

--- Cuts all current connections.
function proxy:cut_all(side) self:cut(0, side) end

local LOST = { ["queue.declare-ok"] = { 50, 11 }, ["queue.delete-ok"] = { 50, 41 }, ["basic.consume-ok"] = { 60, 21 } }

--- Drops the broker's next answer of this kind, on any connection, and everything after it there. The connection is
-- then silent in both directions, or is cut.
function proxy:lose(method, cuts)
  local ids = LOST[method]
  tell(self, "lose", ids[1], ids[2], cuts or false)
end

--- Cuts the next connection on which an exclusive queue is declared. The broker gets the declare and the end together.
function proxy:cut_claiming() tell(self, "cut claiming") end

--- Cancels lose() and cut_claiming().
function proxy:lose_nothing() tell(self, "lose nothing") end

--- How many connections there have been.
function proxy:count() return tell(self, "count") end

--- How many AMQP frames both sides have sent without heartbeats, and how many heartbeats.
function proxy:frames() return select(2, tell(self, "count")) end

--- Ends the proxy and all its connections: its port is closed from then on.
function proxy:close()
  self.server:kill()
  self.server:forget()
end

return proxy
