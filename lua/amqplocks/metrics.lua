-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Metrics for Prometheus, made from the events of connections.
--
--     local metrics = require("amqplocks.metrics").new()
--     metrics.listen(conn)                      -- for each connection
--     socket:write(metrics.text())              -- when Prometheus asks
--
-- In nginx, where the workers share the numbers by nginx-lua-prometheus:
--
--     init_worker_by_lua_block {
--       local prometheus = require("prometheus").init("prometheus_metrics")
--       metrics = require("amqplocks.metrics").new()
--       metrics.nginx(prometheus)
--     }
--
-- and metrics.listen(conn) in each handler that has connected.
local amqplocks = require "amqplocks"
local options = require "amqplocks.options"
local registry = require "amqplocks.metrics.registry"

local BUCKETS = { .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300 } -- seconds
local NAMES = 100 -- label values for names of locks; further ones become OTHER
local OTHER = "other"

local function is_rising(value)
  if type(value) ~= "table" or #value == 0 then return false end
  for i, bound in ipairs(value) do
    if type(bound) ~= "number" or bound ~= bound or i > 1 and bound <= value[i - 1] then return false end
  end
  return true
end

local schema = {
  buckets = function(value)
    return not is_rising(value) and "a list of numbers of seconds, each larger than before" or nil
  end,
  label = options.checks.callable,
}

---@class amqplocks.MetricsOptions
---@field buckets? number[] seconds: the upper bounds of the histograms' buckets (.001 to 300)
---@field label? fun(name: string): string the label for the name of a lock (the name). Names that contain numbers of
---  jobs or customers should become one label

---@class amqplocks.Metrics
---@field listen fun(conn: amqplocks.Connection): fun() counts the events of a connection; the result ends this
---@field observe fun(event: amqplocks.Event) counts an event
---@field text fun(): string all metrics in Prometheus' text format; not for nginx
---@field nginx fun(prometheus: table) counts by an object of nginx-lua-prometheus from now on

local KIND_AND_NAME, LINK = { "kind", "name" }, { "link" }
local STATS = { "contended", "retained" } -- of conn:stats(), which no event tells
local LINKS = { "holder", "prober", "quorum" }

-- `by`: one more label, for numbers that each process has of its own.
local function define(to, buckets, by)
  local link = { "link", by }
  local all = {
    acquire = to:histogram("amqplocks_acquire_seconds", "Time that acquires took, by result.",
      { "kind", "name", "result" }, buckets),
    hold = to:histogram("amqplocks_hold_seconds", "Time that locks were held.", KIND_AND_NAME, buckets),
    held = to:gauge("amqplocks_held", "Locks that are held.", KIND_AND_NAME),
    waiting = to:gauge("amqplocks_waiting", "Acquires that wait for other holders.", KIND_AND_NAME),
    lost = to:counter("amqplocks_lost_total", "Locks that were lost before their release.", { "kind", "name", "code" }),
    revoked = to:counter("amqplocks_revoked_total", "Locks that an administrator has asked for.", KIND_AND_NAME),
    contended = to:counter("amqplocks_contended_total", "Claims that another client was faster with.", KIND_AND_NAME),
    retained = to:counter("amqplocks_retained_total", "Acquires of mutexes that were retained.", KIND_AND_NAME),
    up = to:gauge("amqplocks_connection_up", "Connections to the broker that are open.", link),
    opened = to:counter("amqplocks_opened_total", "Connections to the broker that were opened.", LINK),
    blocked = to:gauge("amqplocks_blocked", "Connections to a broker that has an alarm.", link),
    silence = to:gauge("amqplocks_broker_silence_seconds",
      "Time since the broker was last heard, while a lock is held; the longest of all connections.", { by }),
    info = to:gauge("amqplocks_info", "The version of amqp-locks.", { "version" }),
  }
  all.info:set(1, { amqplocks._VERSION:match "%S+$" })
  return all
end

local metrics = {}

--- Makes a set of metrics, in which several connections may be counted.
---@param opts? amqplocks.MetricsOptions
---@return amqplocks.Metrics
function metrics.new(opts)
  opts = options.check(opts or {}, schema, "metrics.new")
  local buckets, label = opts.buckets or BUCKETS, opts.label
  local own = registry.new()
  local all = define(own, buckets)
  local silence = all.silence
  local names, count = {}, 0
  local heard = setmetatable({}, { __mode = "k" }) -- the connections that are listened to
  local stats = setmetatable({}, { __mode = "k" }) -- session -> its conn:stats() so far

  local function name_of(event)
    local name = tostring(label and label(event.name) or event.name)
    if not names[name] and count >= NAMES then return OTHER end
    if not names[name] then count = count + 1 end
    names[name] = true
    return name
  end

  -- A counter that appears with its first event is not seen to grow from 0 by Prometheus' increase().
  local known = {}
  local function begin_at_zero(place)
    local key = table.concat(place, "\0")
    if known[key] then return end
    known[key] = true
    all.lost:inc(0, { place[1], place[2], "lost" })
    all.revoked:inc(0, place)
    for _, stat in ipairs(STATS) do all[stat]:inc(0, place) end
    all.waiting:inc(0, place)
  end

  -- What each event changes. `place`: kind and name.
  local changes = {
    waiting = function(_, place) all.waiting:inc(1, place) end,
    acquired = function(event, place)
      all.acquire:observe(event.waited, { place[1], place[2], "acquired" })
      all.held:inc(1, place)
      if event.in_line then all.waiting:inc(-1, place) end
    end,
    failed = function(event, place)
      all.acquire:observe(event.waited, { place[1], place[2], event.code })
      if event.in_line then all.waiting:inc(-1, place) end
    end,
    released = function(event, place)
      all.hold:observe(event.held, place)
      all.held:inc(-1, place)
    end,
    lost = function(event, place)
      all.lost:inc(1, { place[1], place[2], event.code })
      all.hold:observe(event.held, place)
      all.held:inc(-1, place)
    end,
    revoked = function(_, place) all.revoked:inc(1, place) end,
    up = function(event)
      all.up:inc(1, { event.link })
      all.opened:inc(1, { event.link })
      all.blocked:inc(0, { event.link })
    end,
    down = function(event) all.up:inc(-1, { event.link }) end,
    blocked = function(event) all.blocked:inc(1, { event.link }) end,
    unblocked = function(event) all.blocked:inc(-1, { event.link }) end,
  }

  local self = {}

  --- A listener for conn:on_event, which counts an event. Ignores events that it does not know, as of a newer library.
  function self.observe(event)
    local change = changes[event.what]
    if not change then return end
    local place = event.name and { event.kind, name_of(event) }
    if place then begin_at_zero(place) end
    change(event, place)
  end

  --- Counts the events of a connection, and asks it for its silence and its lost claims. Returns a function that ends
  -- this.
  function self.listen(conn)
    local session = conn._session -- in nginx that of several connections
    stats[session] = stats[session] or conn:stats()
    heard[conn] = true
    local weak = setmetatable({ conn }, { __mode = "v" })
    return conn:on_event(function(event)
      self.observe(event)
      local one = weak[1]
      if not one or event.what ~= "acquired" and event.what ~= "failed" then return end
      local now, before = one:stats(), stats[session]
      for _, stat in ipairs(STATS) do
        if now[stat] > before[stat] then all[stat]:inc(now[stat] - before[stat], { event.kind, name_of(event) }) end
      end
      stats[session] = now
    end)
  end

  --- Returns all metrics in Prometheus' text format. Not for nginx, where nginx-lua-prometheus does that.
  function self.text()
    local longest = 0
    for conn in pairs(heard) do longest = math.max(longest, conn:stats().silence or 0) end
    silence:set(longest)
    return own:text()
  end

  -- In nginx an event of one request tells nothing of the worker's connections.
  local function observe_links()
    local told = { holder = 0, prober = 0, quorum = 0 }
    for _, what in ipairs { "up", "down", "blocked", "unblocked" } do changes[what] = function() end end
    require("amqplocks.nginx.links").watch(function(seen)
      for _, link in ipairs(LINKS) do
        all.up:set(seen.up[link], { link, seen.worker })
        all.opened:inc(seen.opened[link] - told[link], { link })
        told[link] = seen.opened[link]
      end
      all.blocked:set(seen.blocked, { "prober", seen.worker })
      all.silence:set(seen.silence, { seen.worker })
    end)
  end

  --- From now on counts by an object of nginx-lua-prometheus. To be called in init_worker_by_lua_block.
  function self.nginx(prometheus)
    all, known = define(prometheus, buckets, "worker"), {}
    observe_links()
  end

  return self
end

return metrics
