-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Clients, each in a process of its own. They acquire locks at random, check again and again whether they hold them,
-- and record everything (see journal.lua):
--
--     ask op pool way within probe…     got op slot kind ticket fence permit | none op code message
--     held op from                checked, not before `from`: it was held. Recorded are the first check, the last one
--                                 before one with another result, and one each 10 ms in between
--     gone op from code           checked: it was not held; recorded once, until it is held again
--     let op how within           releases it, and   free op [code]
--     verify op within            verified op [code]
--     downgrade op into within    downgraded op [code]: from then on the lock is held as `into`
--     connect within              connected [code];   close within   closed
--
-- `within`: the limit in seconds that the library states for the call. An error in this code ends the process.
local amqplocks = require "amqplocks"
local journal = require "tools.prove.journal"
local pools = require "tools.prove.pools"
local socket = require "socket"

local client = {}

local TIMEOUT = 3 -- of each exchange with the broker
local PAUSE_MOST = 5 -- before the library reconnects
local NOTED = 0.01 -- seconds between recorded checks

local caller = {}
caller.__index = caller

local function chance(p) return math.random() < p end

-- Checking ----------------------------------------------------------------------------------------------------------

local hold = {}
hold.__index = hold

local function hold_new(self, op, pool, lock)
  return setmetatable({ journal = self.journal, op = op, pool = pool, lock = lock, noted = 0 }, hold)
end

-- Whether it is held. The last check that returned true may not be recorded yet.
function hold:look()
  local from = journal.now()
  local held, _, code = self.lock:held()
  if held and (self.denied or from - self.noted >= NOTED) then
    self.journal:note("held", { op = self.op, from = from })
    self.noted, self.unwritten, self.denied = from, nil, nil
  elseif held then
    self.unwritten = from
  elseif not self.denied then
    self:write()
    self.journal:note("gone", { op = self.op, from = from, code = code })
    self.denied = code
  end
  return held, code
end

function hold:write()
  if self.unwritten then self.journal:note("held", { op = self.op, from = self.unwritten }) end
  self.unwritten = nil
end

-- Acting ------------------------------------------------------------------------------------------------------------

local function within(self, act, fields, seconds, fn, after)
  fields.within = seconds
  self.journal:note(act, fields)
  local result, message, code = fn()
  local failed = not result
  self.journal:note(after, { op = fields.op, code = failed and code or nil, message = failed and message or nil })
  return result, code
end

function caller:connect()
  local conn
  within(self, "connect", { op = self.journal:number() }, TIMEOUT + PAUSE_MOST, function()
    local message, code
    conn, message, code = amqplocks.connect(self.url,
      { name = self.name, heartbeat = 1, timeout = TIMEOUT, driver = self.driver })
    return conn, message, code
  end, "connected")
  return conn
end

function caller:verify(one)
  within(self, "verify", { op = one.op }, 2 * TIMEOUT, function() return one.lock:verify() end, "verified")
end

function caller:downgrade(one)
  one:write()
  local into = self.journal:number()
  local done = within(self, "downgrade", { op = one.op, into = into }, 3 * TIMEOUT,
    function() return one.lock:downgrade() end, "downgraded")
  if not done then return one end
  local lock = one.lock
  one.lock = nil -- a caller that drops a lock drops the last reference
  return hold_new(self, into, one.pool, lock)
end

function caller:release(one)
  one:look()
  one:write()
  within(self, "let", { op = one.op, how = "release" }, TIMEOUT, function() return one.lock:release() end, "free")
  assert(not one.lock:held(), "held after its release")
end

function caller:drop(one)
  one:look()
  one:write()
  within(self, "let", { op = one.op, how = "drop" }, 1, function()
    one.lock = nil
    collectgarbage()
    collectgarbage()
    return true
  end, "free")
end

-- Ends the process without closing anything.
function caller:exit(one)
  one:look()
  one:write()
  self.journal:note("let", { op = one.op, how = "exit" })
  os.exit(0, false)
end

local function close(conn, writing)
  within({ journal = writing }, "close", { op = writing:number() }, TIMEOUT, function() return conn:close() end,
    "closed")
end

-- A turn ------------------------------------------------------------------------------------------------------------

local function options(self, is_holding)
  local draw, timeout = math.random(), nil
  if draw < 0.25 then
    timeout = 0.02 + math.random() * 0.2
  elseif draw < 0.7 or is_holding then
    timeout = 0.5 + math.random() * 2.5
  end
  return { timeout = timeout, fair = chance(0.25), priority = chance(0.2) and math.random(3) or nil,
    poll = self.poll * (0.5 + math.random()) }
end

-- Mostly the same object as before, for an object remembers what it need not ask again: that others waited lately,
-- and that the queue of a fast mutex was there.
local function object_of(shared, pool, choices)
  if not shared.objects or shared.objects.conn ~= shared.conn then shared.objects = { conn = shared.conn } end
  local key = ("%s %s %s"):format(pool.name, choices.probe or "", choices.strategy or "")
  if not shared.objects[key] or chance(0.1) then shared.objects[key] = pools.lock(shared.conn, pool, choices) end
  return shared.objects[key]
end

local function lock_of(self, pool)
  if not pools.is_probed(pool) then return object_of(self.shared, pool, {}), nil end
  local probe = chance(0.6) and "auto" or chance(0.5) and "publish" or "passive"
  local strategy = pools.is_numbered(pool) and ({ "ascending", "random", "last" })[math.random(3)] or nil
  return object_of(self.shared, pool, { probe = probe, strategy = strategy }), probe
end

--- Tries to acquire; returns the hold, or nil.
function caller:take(pool, is_holding)
  local ways = pools.ways(pool)
  local way, op, object, probe = ways[math.random(#ways)], self.journal:number(), lock_of(self, pool)
  local lock, message, code
  if chance(0.2) then
    self.journal:note("ask", { op = op, pool = pool.name, way = "try_" .. way, probe = probe,
      within = PAUSE_MOST + (pools.fence(pool) and 6 or 3) * TIMEOUT }) -- its number, and making the fence
    lock, message, code = object["try_" .. way](object)
  else
    local opts = options(self, is_holding)
    self.journal:note("ask", { op = op, pool = pool.name, way = way, within = opts.timeout, poll = opts.poll,
      fair = opts.fair, priority = opts.priority, probe = probe })
    lock, message, code = object[way](object, opts)
  end
  if not lock then
    self.journal:note("none", { op = op, code = code, message = message })
    return nil, code
  end
  self.journal:note("got", { op = op, slot = lock.slot, kind = lock.kind, ticket = lock.ticket,
    fence = lock.fence, permit = lock.permit })
  return hold_new(self, op, pool, lock)
end

-- Checks for a while, or until it is lost.
function caller:keep(one, seconds)
  local deadline = journal.now() + seconds
  repeat
    local _, code = one:look()
    if code == "lost" then return end
    self.sleep(0.001)
  until journal.now() >= deadline or self:is_over()
end

local function a_while() -- how long a lock is held: mostly briefly, sometimes for longer than most faults last
  return chance(0.05) and 0.3 + math.random() * 3 or math.random() ^ 2 * 0.04
end

function caller:let_go(one)
  local draw = math.random()
  if draw < 0.03 and not self.shared.is_for_many then
    self:exit(one)
  elseif draw < 0.1 then
    self:drop(one)
  else
    self:release(one)
  end
end

function caller:hold(one)
  self:keep(one, a_while())
  if chance(0.15) then self:verify(one) end
  if one.lock.kind == "write" and chance(0.4) then
    one = self:downgrade(one)
    self:keep(one, a_while())
  end
  self:let_go(one)
end

local function any(self) return self.pools[math.random(#self.pools)] end

-- Acquires another lock while it holds one.
function caller:hold_more(one, depth)
  self:keep(one, a_while() / 2)
  local other = depth > 0 and not self:is_over() and self:take(any(self), true)
  if other then self:hold_more(other, depth - 1) end
  self:hold(one)
end

function caller:is_over() return socket.select({ self.spec }, nil, 0)[self.spec] ~= nil end

-- A connection of the caller's own is closed now and then, while it holds locks.
local function close_and_connect(self, one)
  if one then
    one:look()
    one:write()
    self.journal:note("let", { op = one.op, how = "close", within = TIMEOUT })
    one = one.op
  end
  close(self.shared.conn, self.journal)
  if one then self.journal:note("free", { op = one }) end
  self.shared.conn = nil
end

function caller:turn()
  if not self.shared.conn then
    self.shared.conn = self:connect()
    if not self.shared.conn then return self.sleep(0.1) end
  end
  local one, code = self:take(any(self))
  if one and not self.shared.is_for_many and chance(0.04) then
    self:keep(one, a_while())
    close_and_connect(self, one)
  elseif one and self.depth > 0 and chance(0.5) then
    self:hold_more(one, self.depth)
  elseif one then
    self:hold(one)
  elseif code == "unreachable" then
    self.sleep(0.05)
  end
  if chance(0.3) then self.sleep(math.random() ^ 2 * 0.03) end
end

-- Running -----------------------------------------------------------------------------------------------------------

local function caller_new(settings, lane, shared, sleep)
  return setmetatable({
    lane = lane, name = settings.name, url = settings.url, driver = settings.driver, spec = settings.spec,
    pools = settings.pools, depth = settings.depth, poll = settings.poll, shared = shared, sleep = sleep,
    journal = journal.open(settings.directory, lane),
  }, caller)
end

local function run_alone(settings)
  local self = caller_new(settings, settings.lane, {}, socket.sleep)
  while not self:is_over() do self:turn() end
  if self.shared.conn then close(self.shared.conn, self.journal) end
  self.journal:note "end"
end

-- Several callers in coroutines of a loop, on one connection.
local function run_together(settings, callers)
  local cqueues = require "cqueues"
  local loop, shared, left = cqueues.new(), { is_for_many = true }, callers
  local first = caller_new(settings, settings.lane, shared, cqueues.sleep)
  loop:wrap(function()
    while not shared.conn and not first:is_over() do shared.conn = first:connect() end
    for i = 1, callers do
      local self = caller_new(settings, ("%s:%d"):format(settings.lane, i), shared, cqueues.sleep)
      loop:wrap(function()
        while shared.conn and not self:is_over() do self:turn() end
        self.journal:note "end"
        left = left - 1
      end)
    end
    while left > 0 do cqueues.sleep(0.01) end
    if shared.conn then close(shared.conn, first.journal) end
    first.journal:note "end"
  end)
  assert(loop:loop())
end

--- Runs until the spec sends something. `flavour`: "plain"; "several" holds more than one lock at a time; "cramped" is
-- the same, on a connection of few channels; "loop" is four callers on one connection.
function client.run(spec, cpath, directory, lane, name, flavour, url, list, seed, poll)
  journal.use(cpath)
  math.randomseed(seed)
  local settings = { spec = spec, directory = directory, lane = lane, name = name, url = url,
    pools = pools.decode(list), poll = poll,
    depth = (flavour == "several" or flavour == "cramped") and 2 or 0, driver = flavour == "loop" and "cqueues" or nil }
  if flavour == "cramped" then settings.url = url .. "?channel_max=3" end
  if flavour == "loop" then run_together(settings, 4) else run_alone(settings) end
  return true
end

return client
