-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A proxy in front of a broker, in a process of its own, for connections that go wrong on the way.
--
--     local proxy = require "spec.support.proxy".start()     -- in front of $AMQP_URL
--     local conn = stage.connect(proxy.url)                   -- its holder is connection 1, its prober then 2
--     local apart = proxy.start(url, other_url)              -- a holder's and its prober's connection lead apart
--     proxy:switch("down", "hold")     -- what the broker sends waits on the way, on every connection, until "pass"
--     proxy:switch("up", "drop", 1)    -- what connection 1 sends gets lost, also that it ended
--     proxy:let("up", 3)               -- three more frames, of whichever connection, arrive; the others are kept
--     proxy:let("up", 0, 1)            -- none more of connection 1
--     proxy:kept()                     -- whether there are any
--     proxy:cut(1)                     -- ends connection 1 on both sides;
--     proxy:cut(1, "broker")           -- for the broker only: the client is told nothing
--     proxy:lose("queue.declare-ok")   -- the next of these, on whichever connection, gets lost, and all after it
--     proxy:cut_claiming()             -- the next declare of an exclusive queue arrives, and ends its connection
--
-- It ends with the process.clear() of the test, or, and all connections with it, by close().
local url = require "socket.url"
local process = require "spec.support.process"
local values = require "spec.support.programs.values"

local proxy = {}
proxy.__index = proxy

--- Connections lead to these addresses in turn, or all to $AMQP_URL.
function proxy.start(...)
  local addresses, targets = { (...) or os.getenv "AMQP_URL", select(2, ...) }, {}
  for _, address in ipairs(addresses) do
    local parts = url.parse(address)
    table.insert(targets, parts.host)
    table.insert(targets, tonumber(parts.port) or 5672)
  end
  local parts, server = url.parse(addresses[1]), process.start()
  server:begin("require('spec.support.programs.proxy').serve(spec, ...)", values.unpack(targets))
  local port = server:finish()
  parts.host, parts.port, parts.authority = "127.0.0.1", ("%d"):format(port), nil
  return setmetatable({ server = server, url = url.build(parts) }, proxy)
end

local function tell(self, ...)
  assert(self.server.socket:send(values.message(...)))
  return self.server:finish()
end

--- Has a direction, "up" to the broker or "down" from it, "pass", "hold" or "drop" what comes, on this connection, or
-- on all there are and will be, or ("new") on those that will be. "endless": it passes what comes, but not that it
-- ended; "trickle": it passes some bytes at a time, a thousand a second; "short": it passes all but the last bytes of
-- the next message's header, and holds these, and what comes after.
function proxy:switch(direction, mode, index)
  tell(self, "switch", index == "new" and -1 or index or 0, direction, mode)
end

--- Passes so many more frames in a direction, on this connection, or on all together, heartbeats apart. What comes
-- after them is kept until more are let through, or "pass"; it is lost when the connection ends on either side.
function proxy:let(direction, frames, index) tell(self, "let", index or 0, direction, frames) end

--- Whether there is anything that was kept.
function proxy:kept() return select(4, tell(self, "count")) > 0 end

function proxy:cut(index, side) tell(self, "cut", index, side or "both") end

--- Cuts all there are.
function proxy:cut_all(side) self:cut(0, side) end

local LOST = { ["queue.declare-ok"] = { 50, 11 }, ["queue.delete-ok"] = { 50, 41 }, ["basic.consume-ok"] = { 60, 21 } }

--- Has the broker's next answer of this kind get lost, on whichever connection, with all that comes after it there: the
-- connection is silent both ways from then on, or is cut.
function proxy:lose(method, cuts)
  local ids = LOST[method]
  tell(self, "lose", ids[1], ids[2], cuts or false)
end

--- Cuts a connection, whichever, as soon as an exclusive queue was declared on it: the broker knows of both at once.
function proxy:cut_claiming() tell(self, "cut claiming") end

--- Has no connection end by what passes on it, after all.
function proxy:lose_nothing() tell(self, "lose nothing") end

--- How many connections there have been.
function proxy:count() return tell(self, "count") end

--- How many AMQP frames came from both sides, heartbeats apart; and how many heartbeats.
function proxy:frames() return select(2, tell(self, "count")) end

--- Ends the proxy, and with it all connections: from here on nobody listens.
function proxy:close()
  self.server:kill()
  self.server:forget()
end

return proxy
