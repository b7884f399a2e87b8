-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The event loop of nginx as a table of functions (docs/drivers.md): cosockets, semaphores, timers. A cosocket belongs
-- to the request or timer that opened it, and is closed with it.
local semaphore = require "ngx.semaphore"

local LONG = 86400 -- seconds: nginx has no wait without a limit
local SHARE = 8192 -- bytes read at a time, at most
local FULL = 4096 -- a read returns at least so many bytes if more are ready: nginx's buffers are as large, or larger
local FULL_READS = 16 -- in a row, before other requests run
local PATIENCE = 1 -- seconds until a timer that did not start is requested again

-- The phases in which nginx allows a handler to wait, and to use cosockets.
local MAY_WAIT = { rewrite = true, server_rewrite = true, access = true, content = true, timer = true }

local function milliseconds(seconds) return math.max(1, math.ceil(math.min(seconds or LONG, LONG) * 1000)) end

-- ---- sockets --------------------------------------------------------------------------------------------------------

local Socket = {}
Socket.__index = Socket

-- nginx reads available bytes without running its loop: a peer that never pauses would block the worker.
function Socket:read(seconds)
  if self._full_reads >= FULL_READS then
    self._full_reads = 0
    ngx.sleep(0.001)
  end
  self._raw:settimeout(milliseconds(seconds))
  self._reader = coroutine.running()
  local bytes, why = self._raw:receiveany(SHARE)
  self._reader = nil
  self._full_reads = bytes and #bytes >= FULL and self._full_reads + 1 or 0
  return bytes, why
end

function Socket:write(bytes, seconds)
  self._raw:settimeout(milliseconds(seconds))
  local sent, why = self._raw:send(bytes)
  if sent then return true end
  return nil, why
end

-- nginx cannot close a cosocket during a read. The thread that closes has spawned the reader, so it may kill it.
function Socket:close()
  if self._closed then return end
  self._closed = true
  if self._reader then pcall(ngx.thread.kill, self._reader) end
  pcall(self._raw.close, self._raw)
end

-- ---- TLS ------------------------------------------------------------------------------------------------------------

local function read_file(path)
  local file, why = io.open(path, "rb")
  if not file then return nil, why end
  local text = file:read "*a"
  file:close()
  return text
end

local function parse(path, how)
  local text, why = read_file(path)
  if not text then return nil, why end
  local parsed, problem = require("ngx.ssl")[how](text)
  if not parsed then return nil, ("%s: %s"):format(path, problem) end
  return parsed
end

local function identify(raw, tls)
  if not tls.cert then return true end
  local cert, why = parse(tls.cert, "parse_pem_cert")
  if not cert then return nil, why end
  local key, problem = parse(tls.key or tls.cert, "parse_pem_priv_key")
  if not key then return nil, problem end
  return raw:setclientcert(cert, key)
end

local function secure(raw, tls)
  if tls.ca then
    return nil, "tls.ca has no effect here: nginx takes the authorities from lua_ssl_trusted_certificate"
  end
  local identified, why = identify(raw, tls)
  if not identified then return nil, why end
  -- If a handshake succeeds at once and the certificate is refused, lua-resty-core fails an assertion of its own when
  -- the session argument is `nil`. When it is `false`, it returns true, with the socket closed.
  local fine, secured, problem = pcall(raw.sslhandshake, raw, nil, tls.server_name, tls.verify)
  if not fine then return nil, "the certificate is not trusted, or is another host's" end
  if not secured then return nil, problem end
  return true
end

-- ---- the loop -------------------------------------------------------------------------------------------------------

local events = {}

--- `localhost` is replaced by 127.0.0.1: it is a name, and nginx does not read the hosts file.
function events.connect(host, port, tls, seconds)
  local raw, deadline = ngx.socket.tcp(), ngx.now() + seconds
  raw:settimeout(milliseconds(seconds))
  if host == "localhost" then host = "127.0.0.1" end
  if host:find(":", 1, true) then host = "[" .. host .. "]" end
  local connected, why = raw:connect(host, port)
  if not connected then return nil, why, "unreachable" end
  if tls then
    raw:settimeout(milliseconds(math.max(0, deadline - ngx.now())))
    local secured, problem = secure(raw, tls)
    if not secured then
      raw:close()
      return nil, problem, problem == "timeout" and "unreachable" or "tls"
    end
  end
  return setmetatable({ _raw = raw, _full_reads = 0 }, Socket)
end

-- nginx drops a timer that exceeds lua_max_running_timers, and only writes that to its log. So the coroutines that wait
-- request such a timer again.
local unborn = {}

local function start(pending)
  pending.since = ngx.now()
  return ngx.timer.at(0, function()
    if not unborn[pending] then return end
    unborn[pending] = nil
    pending.fn()
  end)
end

local function start_again()
  for pending in pairs(unborn) do
    if ngx.now() - pending.since >= PATIENCE then start(pending) end
  end
end

--- Runs fn in a timer, which outlives the request.
function events.spawn(fn)
  local pending = { fn = fn }
  unborn[pending] = true
  local begun, why = start(pending)
  if begun then return true end
  unborn[pending] = nil
  return nil, "nginx starts no timer: " .. why
end

--- Runs fn in the same timer or request, and so with the same cosockets.
function events.beside(fn) return ngx.thread.spawn(fn) end

--- Kills a thread that is not waited for any more, as it would keep its request from ending.
function events.abandon(thread) pcall(ngx.thread.kill, thread) end

local Condition = {}
Condition.__index = Condition

function Condition:wait(seconds)
  self._raw:wait(math.min(seconds or LONG, next(unborn) and PATIENCE or LONG))
  start_again()
end

function Condition:signal()
  local sleepers = -self._raw:count()
  if sleepers > 0 then self._raw:post(sleepers) end
end

function events.condition() return setmetatable({ _raw = assert(semaphore.new()) }, Condition) end

-- Only timers end what they own. A finalizer would run at the end of the worker, when the request of a cosocket does
-- not exist any more.
events.keeps = true

function events.check()
  local phase = ngx.get_phase()
  if MAY_WAIT[phase] then return nil end
  return ("nginx allows no waiting in its phase %s"):format(phase), "phase"
end

return events
