-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The driver for cqueues (docs/drivers.md). A waiting coroutine yields to its controller. A spawned function becomes a
-- coroutine of that controller. TLS needs luaossl.
local condition = require "cqueues.condition"
local cqueues = require "cqueues"
local dns = require "cqueues.dns.resolver"
local errno = require "cqueues.errno"
local luaossl = require "amqplocks.drivers.luaossl"
local socket = require "cqueues.socket"

local SHARE = 8192 -- bytes read at a time, at most
local FULL_READS = 16 -- in a row, before other coroutines run
local MODE = "bnA" -- of a socket: binary, no buffering, and reading does not write

local function left(deadline) return deadline and math.max(0, deadline - cqueues.monotime()) end

-- ---- sockets --------------------------------------------------------------------------------------------------------

local Socket = {}
Socket.__index = Socket

-- Repeats a step whenever the socket may be ready, until it returns a result, or nil and the reason.
local function insist(self, seconds, step)
  local deadline = seconds and cqueues.monotime() + seconds
  while not self._closed do
    local result, why = step(self._raw)
    if result then return result end
    if why ~= errno.EAGAIN then return nil, why and errno.strerror(why) or "the peer closed the connection" end
    if deadline and deadline <= cqueues.monotime() then return nil, "timeout" end
    cqueues.poll(self._raw, left(deadline))
  end
  return nil, "the socket was closed"
end

local function receive(raw) return raw:recv(-SHARE) end

-- A peer that never pauses would be read from for ever, and no other coroutine would run.
function Socket:read(seconds)
  if self._full_reads >= FULL_READS then
    self._full_reads = 0
    cqueues.poll(0)
  end
  local bytes, why = insist(self, seconds, receive)
  self._full_reads = bytes and #bytes == SHARE and self._full_reads + 1 or 0
  return bytes, why
end

function Socket:write(bytes, seconds)
  local at = 1
  return insist(self, seconds, function(raw)
    local taken, why = raw:send(bytes, at, #bytes)
    at = at + taken -- these bytes may still be in the buffer of the socket
    if why then return nil, why end
    return true
  end)
end

-- Closing wakes the coroutines that poll the socket.
function Socket:close()
  if self._closed then return end
  self._closed = true
  pcall(self._raw.close, self._raw)
end

-- ---- connecting -----------------------------------------------------------------------------------------------------

local function words(why) return why == errno.ETIMEDOUT and "no answer in time" or errno.strerror(why) end

local function dial(host, port, seconds)
  local raw, why = socket.connect { host = host, port = ("%d"):format(port), nodelay = true }
  if raw then
    raw:setmode(MODE, MODE)
    raw:onerror(function(_, _, code) return code end) -- not raised, whatever handler the program has set
    local connected
    connected, why = raw:connect(seconds)
    if connected then return raw end
    raw:close()
  end
  return nil, words(why)
end

-- Why a handshake fails in which the peer has refused nothing: it may have gone.
local ENDED = { [errno.ETIMEDOUT] = true, [errno.ECONNRESET] = true, [errno.EPIPE] = true }

local function secure(raw, session, seconds)
  local secured, why = raw:starttls(session, seconds)
  if secured then return true end
  raw:close()
  if ENDED[why] then return nil, words(why), "unreachable" end
  local complaint = luaossl.complaint(session)
  if complaint then return nil, "the certificate is not accepted: " .. complaint, "tls" end
  return nil, "no TLS: " .. words(why), "tls"
end

local loop = {}

-- Adds the addresses of one kind. Neither kind of question may take more than half of the time: a server may answer one
-- of them, and not the other.
local function ask(resolver, host, kind, addresses, deadline)
  local time = left(deadline)
  local packet, why = resolver:query(host, kind, "IN", time and time / 2)
  if not packet then return why end
  for record in packet:grep { section = "answer", type = kind } do table.insert(addresses, record:addr()) end
end

--- A resolver of its own, as the hosts file may have changed.
function loop.resolve(host, seconds)
  local resolver, deadline, addresses = dns.stub(), seconds and cqueues.monotime() + seconds, {}
  local why = ask(resolver, host, "A", addresses, deadline)
  why = ask(resolver, host, "AAAA", addresses, deadline) or why
  resolver:close()
  if addresses[1] then return addresses end
  return nil, why and words(why) or "the name cannot be resolved"
end

function loop.connect(host, port, tls, seconds)
  local deadline, session = seconds and cqueues.monotime() + seconds, nil
  if tls then
    local problem
    session, problem = luaossl.session(tls)
    if not session then return nil, problem, "tls" end
  end
  local raw, message = dial(host, port, seconds)
  if not raw then return nil, message, "unreachable" end
  if session then
    local secured, why, code = secure(raw, session, left(deadline))
    if not secured then return nil, why, code end
  end
  return setmetatable({ _raw = raw, _full_reads = 0 }, Socket)
end

-- ---- the loop -------------------------------------------------------------------------------------------------------

local Condition = {}
Condition.__index = Condition

function Condition:wait(seconds) cqueues.poll(self._raw, seconds) end

function Condition:signal() self._raw:signal() end

function loop.condition() return setmetatable({ _raw = condition.new() }, Condition) end

local OUTSIDE = "no cqueues controller runs here (cq:wrap(…), cq:loop())"

local function spawn(controller, fn)
  if not controller then return nil, OUTSIDE end
  controller:wrap(fn)
end

function loop.spawn(fn) return spawn(cqueues.running() or nil, fn) end

--- Returns the loop for one connection. Its coroutines belong to the controller in which it was opened, also if another
-- controller, nested in that one, runs when they are spawned.
function loop.here()
  local home = setmetatable({ (cqueues.running()) }, { __mode = "v" })
  return setmetatable({ spawn = function(fn) return spawn(home[1], fn) end }, { __index = loop })
end

function loop.check()
  if not cqueues.running() then return OUTSIDE, "phase" end
end

return loop
