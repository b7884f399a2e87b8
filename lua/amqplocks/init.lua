-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Distributed locks held in RabbitMQ: semaphores, mutexes and readers–writer locks.
--
-- Programming errors (a wrong type, an unknown option, a bad name) raise an error. All other failures are returned as
-- nil, message, code. The message is for people and begins with the code; the code is for programs. Times are seconds.
--
--     local amqplocks = require "amqplocks"
--     local conn = assert(amqplocks.connect("amqp://guest:guest@localhost"))
--     assert(conn:admin("images"):resize(3))
--     assert(conn:semaphore("images"):with({ timeout = 5 }, function(lock) print("slot", lock.slot) end))
--     conn:close()
local connection = require "amqplocks.connection"
local core = require "amqplocks.core"
local drivers = require "amqplocks.drivers"
local options = require "amqplocks.options"
local urls = require "amqplocks.urls"

local checks = options.checks

local amqplocks = { _VERSION = "amqplocks " .. core.version }

local schema = {
  name = function(value)
    local fine = type(value) == "string" and #value > 0 and #value <= 100 and not core.text_error(value)
    return not fine and "a string of 1 to 100 bytes of UTF-8 without control characters" or nil
  end,
  heartbeat = checks.whole(1, 65535),
  timeout = checks.timeout,
  driver = drivers.check,
  shared = function() return "nil (delete it: in nginx every connection is the worker's)" end,
  order = checks.one_of("listed", "random"),
  trace = checks.text(255),
  log = checks.callable,
  on_lost = function(value)
    return value ~= false and checks.callable(value) and "a function or false" or nil
  end,
  tls = checks.table_of {
    ca = checks.text(1023),
    cert = checks.text(1023),
    key = checks.text(1023),
    verify = checks.boolean,
    server_name = checks.text(255),
  },
}

-- An empty variable counts as unset, as is usual.
local function url_of_environment()
  local url = os.getenv "AMQP_URL"
  return url ~= "" and url or nil
end

-- Messages about a URL from the environment name the variable.
local function settings_of(url)
  if url == nil then return urls.settings(url_of_environment(), "AMQP_URL: ") end
  return urls.settings(url)
end

-- Opens no connection yet.
local function new(url, opts)
  local settings = settings_of(url)
  for _, name in ipairs { "name", "heartbeat", "timeout", "tls", "order", "trace" } do settings[name] = opts[name] end
  local session, driver, code = drivers.session(opts.driver, settings)
  if not session then return nil, driver, code end
  if opts.tls and not session:is_tls() then error("connect: option tls needs an amqps:// URL", 0) end
  driver.log = opts.log
  driver.losses:on(opts.on_lost or nil)
  return session, driver
end

---@alias amqplocks.Code
---| "timeout"      # the time that the caller gave is over
---| "busy"         # every slot is held
---| "contended"    # other clients were faster, max_attempts times
---| "deadlock"     # every slot is held by this connection itself
---| "not_found"    # the semaphore does not exist
---| "exists"       # the semaphore exists already
---| "lost"         # the lock is no longer held, and was not released by its holder
---| "suspect"      # the lock may be lost: the broker was silent for too long
---| "removed"      # an administrator has removed the slot
---| "not_held"     # the lock was released before
---| "closed"       # the connection was closed
---| "refused"      # the broker denies a permission
---| "auth"         # wrong user or password
---| "vhost"        # the virtual host does not exist, or the user has no access to it
---| "unreachable"  # there is no broker, or it does not answer
---| "unavailable"  # a queue exists but its node is down, or the queue refuses messages
---| "tls"          # no TLS with the broker
---| "blocked"      # the broker has a memory or disk alarm
---| "conflict"     # a queue is in the way, a slot is missing in the row, or a broker of another cluster
---| "squatted"     # a queue has a name of this library, but not the kind that belongs to it
---| "limit"        # a limit of channels, queues or connections is reached
---| "phase"        # not allowed here, in an event loop or in nginx
---| "forked"       # this process is a child of the one that opened the connection
---| "protocol"     # the peer does not speak AMQP, or broke it
---| "no_memory"    # this process has no memory left
---| "url"          # the URL is malformed

--- amqp:// or amqps://, by RabbitMQ's URI specification and query parameters. A list, or commas between hosts, names
-- nodes of one cluster. A function is called before each connection, and returns a URL or a list, or nil and the
-- reason.
---@alias amqplocks.Url string|string[]|(fun(): string|string[]|nil, string?)

---@class amqplocks.ConnectOptions
---@field name? string of the connection and the holder in the broker's tools (program, process and host)
---@field heartbeat? integer seconds, 1 to 65535 (10; in nginx 60)
---@field timeout? number seconds for each exchange with the broker (5)
---@field tls? amqplocks.TlsOptions for amqps:// only
---@field order? "listed"|"random" the order in which the nodes of a list are tried ("listed")
---@field driver? "native"|"cqueues"|"luv"|"resty"|amqplocks.Loop the sockets to use ("resty" in nginx, else "native")
---@field shared? nil is refused: delete it
---@field trace? string path of a file to which a trace is appended (the environment's AMQPLOCKS_TRACE, if any)
---@field log? fun(level: "info"|"warning", message: string) called for connections opened and lost, locks lost and
---  alarms, inside calls that may wait
---@field on_lost? amqplocks.OnLost|false see conn:on_lost

---@class amqplocks.TlsOptions
---@field ca? string path of a PEM file (the system's certificates)
---@field cert? string path of a PEM file
---@field key? string path of a PEM file
---@field verify? boolean check the broker's certificate and the name in it (true)
---@field server_name? string the name that the certificate must have (the host of the URL)

--- Connects to a broker.
---@param url? amqplocks.Url by default the environment's AMQP_URL if that is not empty, else
---  amqp://guest:guest@localhost:5672
---@param opts? amqplocks.ConnectOptions
---@return amqplocks.Connection|nil, string? message, amqplocks.Code? code "url", "auth", "vhost", "unreachable", "tls",
---  "protocol", "limit", "conflict"
function amqplocks.connect(url, opts)
  if url == amqplocks then
    error("connect: must be called with a dot, amqplocks.connect(…), not with a colon", 0)
  end
  opts = options.check(opts or {}, schema, "connect")
  if url ~= nil then options.argument(url, urls.check, "the URL", "connect") end
  local session, driver, code = new(url, opts)
  if not session then return nil, driver, code end
  return connection.open(session, driver)
end

return amqplocks
