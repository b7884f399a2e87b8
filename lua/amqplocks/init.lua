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
local memory = require "amqplocks.compat.no_memory"
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
  shared = checks.boolean,
  order = checks.one_of("listed", "random"),
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
  for _, name in ipairs { "name", "heartbeat", "timeout", "tls", "order" } do settings[name] = opts[name] end
  local session, driver, code = drivers.session(opts.driver, settings, opts.shared)
  if not session then return nil, driver, code end
  if opts.tls and not session:is_tls() then error("connect: option tls needs an amqps:// URL", 0) end
  driver.log = opts.log
  driver.losses:on(opts.on_lost or nil)
  return session, driver
end

--- Connects to a broker.
---@param url? string|string[]|fun(): string|string[]|nil, string? amqp:// or amqps://, by RabbitMQ's URI specification
---  and query parameters; by default the environment's AMQP_URL if that is not empty, else
---  amqp://guest:guest@localhost:5672. A list, or commas between hosts, names nodes of one cluster. A function is
---  called before each connection, and returns a URL or a list, or nil and the reason
---@param opts? { name?: string, heartbeat?: integer, timeout?: number, order?: "listed"|"random",
---  driver?: "native"|"cqueues"|"luv"|"resty"|table, shared?: boolean,
---  log?: fun(level: "info"|"warning", message: string), tls?: { ca?: string, cert?: string, key?: string,
---  verify?: boolean, server_name?: string },
---  on_lost?: false|fun(lock: amqplocks.Lock, code: "lost", message: string) }
---  `driver`: the sockets to use; by default resty in nginx, native elsewhere; a table: see docs/drivers.md
---  `order` ("listed"): the order in which the nodes of a list are tried
---  `shared`: in nginx, over the connection of the worker
---  `log` is called for connections opened and lost, locks lost and alarms, inside calls that may wait;
---  `on_lost`: see conn:on_lost
---@return amqplocks.Connection|nil, string? message, string? code "url", "auth", "vhost", "unreachable", "tls",
---  "protocol", "limit", "conflict"
function amqplocks.connect(url, opts)
  if url == amqplocks then
    error("connect: must be called with a dot, amqplocks.connect(…), not with a colon", 0)
  end
  opts = options.check(opts or {}, schema, "connect")
  if url ~= nil then options.argument(url, urls.check, "the URL", "connect") end
  local session, driver, code = memory.results(pcall(new, url, opts))
  if not session then return nil, driver, code end
  return connection.open(session, driver)
end

return amqplocks
