-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- `make prove`: clients, administrators and witnesses are processes on a real broker, while faults strike. Each
-- process keeps a journal (journal.lua). At the end the checker (checker.lua) reads them.
--
--     local real = require "tools.prove.real"
--     local result = real.run{ nodes = { node }, seconds = 60, seed = 7, directory = "build/prove/7" }
--     result.findings     -- violations, exceptions, hand-over times: see checker.lua
--
-- Settings, all optional except the first two:
--     nodes        the broker's nodes, see below; clients are spread over them
--     directory    for journals, report.txt and timeline.svg
--     seconds      how long faults strike (60)        quiet    how long there are no faults after that (10)
--     seed         of all random choices              kinds    of locks, a list of names in pools.lua
--     faults       a list of names of files in tools/prove/faults; by default all that are possible
--     every        mean time between strikes, in seconds (0.4)
--     keep_nodes   true: nodes are not restarted, since other programs use them, too
--     crowd        how many of each there are: plain, several, cramped, loop (clients), admins, witnesses, foreigners;
--                  proxied: how many of the clients are behind a proxy of their own
--     say          a function that gets progress messages
--     tidy         a function that is called with the prefix of the locks' names, when all processes are gone and
--                  before the check for leftovers
--
-- A node is an object of spec/support/broker.lua, or has the same methods:
--     url          its address
--     restart() kill()          end it, cleanly or not; restart() starts it in either case, and waits until it serves
--     freeze() thaw()           SIGSTOP and SIGCONT
--     tell() queues() ctl() delete_queue() close_connection() alarm()     actions of an operator; nil without one
--
-- A fault is a file of tools/prove/faults, which returns a table:
--     name         the file's
--     needs        its requirements, each "proxy" (clients behind proxies), "operator" (nodes with tell), "node" (one
--                  that may be restarted), or a key of the settings' `offers`, a set, such as "cluster"
--     weight       how often it is drawn, relative to the others (1)
--     quick        true: it belongs to the short form
--     without      members of the crowd that must be absent while it strikes, a list; it strikes only if named
--     after        seconds from the beginning before it may strike (0)
--     strike(stage, random)
--                  strikes, and returns how long it lasts, and a function over() that ends it; nothing: there was no
--                  target. `random` is math.random, from the seed. It calls stage:strike() before it does anything, and
--                  over() calls stage:over() with the number that stage:strike() returned. While strike() runs nothing
--                  else is drawn: a fault that lasts is ended by over(), which is also called when the time is up.
--
-- The stage offers to faults:
--     stage.nodes, stage.pools, stage.settings, stage.prefix (of all names), stage.journals (their directory)
--     stage.frozen must be set while a node is frozen, so that no operator action is tried meanwhile
--     stage:pick(random, role)
--                  a living process of role "client", "admin" or "witness" that is not being struck: { lane, role,
--                  flavour, process, proxy, node, connection }; nil if there is none. `connection` .. " holder" is the
--                  name of the connection that holds its locks
--     stage:pick_proxied(random)
--                  a client like that, behind a proxy
--     stage:strike{ fault =, lane = or one =, pool =, slot =, excuse =, robs =, hinders =, node = }
--                  writes a line of the journal, before the strike. lane: the target, "*" for all; one: the same, as a
--                  process that is not picked again before the end. pool, slot: the struck lock. excuse: the reason, as
--                  text, why this frees locks at once, while their holders are notified later (see README, "what no
--                  clock can cover"). robs: from now on any lock's queue may be removed, and the lock be kept by its
--                  bolt alone. hinders: the target may make no progress before the fault is over, and so many seconds
--                  after that. Returns a number
--     stage:over(number)
--     stage:kill(one)     SIGKILL; another process takes its place
local checker = require "tools.prove.checker"
local client = require "spec.support.client"
local journal = require "tools.prove.journal"
local lfs = require "lfs"
local pools = require "tools.prove.pools"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local report = require "tools.prove.report"
local socket = require "socket"
local timeline = require "tools.prove.timeline"

local real = {}

local CROWD = { plain = 8, several = 2, cramped = 1, loop = 2, proxied = 5, admins = 2, witnesses = 2, foreigners = 1 }

local stage = {}
stage.__index = stage

-- Seats -------------------------------------------------------------------------------------------------------------
--
-- A seat is a place for a process. A process that dies is replaced by another one, in a lane of its own.

local RUN = "return require('tools.prove.%s').run(spec, ...)"

local function begin(self, seat, module, ...)
  seat.process:begin(RUN:format(module), self.cpath, self.journals, seat.lane, seat.connection, ...)
end

local function sit(self, seat)
  seat.life = seat.life + 1
  seat.lane = ("%s.%d"):format(seat.name, seat.life)
  seat.connection, seat.ended = self.prefix .. "." .. seat.lane, nil
  seat.process = process.start()
  local seed, list = self.random(2 ^ 30), pools.encode(self.pools)
  local url = seat.proxy and seat.proxy.url or seat.node.url
  self.journal:note("sits", { about = seat.lane, role = seat.role, flavour = seat.flavour, pid = seat.process.pid,
    proxied = seat.proxy ~= nil })
  if seat.role == "client" then
    begin(self, seat, "client", seat.flavour, url, list, seed, self.settings.poll or 1)
  elseif seat.role == "foreigner" then
    begin(self, seat, "foreigner", url, list, seed)
  else
    begin(self, seat, seat.role, url, list, seed, seat.role == "admin" and 0.3 or 0.03)
  end
end

local function add(self, role, number, flavour, is_proxied)
  local seat = { name = ("%s-%d"):format(flavour or role, number), role = role, flavour = flavour, life = 0 }
  seat.node = self.nodes[(#self.seats % #self.nodes) + 1]
  if is_proxied then seat.proxy = proxy.start(seat.node.url) end
  table.insert(self.seats, seat)
  sit(self, seat)
end

local function has_administered(self)
  for _, pool in ipairs(self.pools) do
    if pools.is_administered(pool) then return true end
  end
end

local function fill(self, crowd)
  local proxied = crowd.proxied
  for _, flavour in ipairs{ "plain", "several", "loop", "cramped" } do
    for i = 1, crowd[flavour] or 0 do
      add(self, "client", i, flavour, proxied > 0)
      proxied = proxied - 1
    end
  end
  for i = 1, has_administered(self) and crowd.admins or 0 do add(self, "admin", i) end
  for i = 1, crowd.witnesses or 0 do add(self, "witness", i) end
  for i = 1, crowd.foreigners or 0 do add(self, "foreigner", i) end
end

-- A process may end in its own way ("exit"), or be killed, which its journal or a strike records first. Any other end
-- is a defect.
local function ended(self, seat)
  local output = seat.process:output()
  self.journal:note("dead", { about = seat.lane, from = seat.killed, message = output ~= "" and output or nil })
  seat.process:forget()
  seat.killed, seat.ended = nil, true
end

local function look_after(self)
  for _, seat in ipairs(self.seats) do
    if not seat.ended and (seat.killed and not seat.process:alive() or not seat.killed and seat.process:finished()) then
      ended(self, seat)
      if not self.is_ending then sit(self, seat) end
    end
  end
end

-- What faults are offered -------------------------------------------------------------------------------------------

-- Whether the process holds a lock just now, by the last lines of its journals.
local function holds(self, seat)
  for i = 0, seat.flavour == "loop" and 4 or 0 do
    local file = io.open(("%s/%s%s"):format(self.journals, seat.lane, i > 0 and ":" .. i or ""))
    if file then
      file:seek("end", -math.min(file:seek "end", 200))
      local act = file:read("*a"):match "[%d.]+\t(%a+)[^\n]*\n$"
      file:close()
      if act == "held" then return true end
    end
  end
end

local function one_of(list, random) return list[random(#list)] end

-- Holders are struck more often than waiters, which are more numerous.
local function pick(self, random, role, is_proxied)
  local some, holders = {}, {}
  for _, seat in ipairs(self.seats) do
    local is_there = seat.role == role and not seat.struck and not seat.ended and not seat.killed
    if is_there and (seat.proxy or not is_proxied) then table.insert(some, seat) end
  end
  if role == "client" and random() < 0.6 then
    for _, seat in ipairs(some) do
      if holds(self, seat) then table.insert(holders, seat) end
    end
  end
  if #holders > 0 then return one_of(holders, random) end
  return #some > 0 and one_of(some, random) or nil
end

function stage:pick(random, role) return pick(self, random, role) end

function stage:pick_proxied(random) return pick(self, random, "client", true) end

function stage:strike(what)
  local one = what.one
  local fields = { op = self.journal:number(), about = what.lane or one and one.lane }
  for name, value in pairs(what) do
    if name ~= "one" and name ~= "lane" then fields[name] = value end
  end
  if one then one.struck = fields.op end
  self.journal:note("strike", fields)
  self.strikes[fields.op] = one or true
  return fields.op
end

function stage:over(number)
  self.journal:note("over", { op = number })
  local one = self.strikes[number]
  if type(one) == "table" and one.struck == number then one.struck = nil end
  self.strikes[number] = nil
end

function stage:kill(one)
  one.killed = self.journal:note("kill", { about = one.lane })
  one.process:signal "KILL"
end

-- Faults ------------------------------------------------------------------------------------------------------------

local function is_possible(self, fault)
  for _, need in ipairs(fault.needs or {}) do
    if not self.offers[need] then return false end
  end
  return true
end

--- All faults, by name.
function real.faults()
  local all = {}
  for file in lfs.dir "tools/prove/faults" do
    local name = file:match "^([%w_]+)%.lua$"
    if name then table.insert(all, (require("tools.prove.faults." .. name))) end
  end
  table.sort(all, function(a, b) return a.name < b.name end)
  return all
end

local function choose(self, names)
  local wanted, some, left = {}, {}, 0
  for _, name in ipairs(names or {}) do
    wanted[name], left = true, left + 1
  end
  for _, fault in ipairs(real.faults()) do
    local is_meant = wanted[fault.name] or not names and not fault.without
    if is_meant and is_possible(self, fault) then
      table.insert(some, fault)
      left = left - 1
    end
  end
  if names and left > 0 then
    error("some of these faults do not exist, or are not possible here: " .. table.concat(names, ", "), 0)
  end
  return some
end

local function crowd_for(faults, crowd)
  local some = {}
  for role, number in pairs(crowd) do some[role] = number end
  for _, fault in ipairs(faults) do
    for _, role in ipairs(fault.without or {}) do some[role] = nil end
  end
  return some
end

local function draw(self)
  local total = 0
  for _, fault in ipairs(self.faults) do total = total + (fault.weight or 1) end
  local point = self.random() * total
  for _, fault in ipairs(self.faults) do
    point = point - (fault.weight or 1)
    if point < 0 then return fault end
  end
  return self.faults[#self.faults]
end

local function needs_operator(fault)
  for _, need in ipairs(fault.needs or {}) do
    if need == "operator" then return true end
  end
end

-- A frozen node accepts no operator actions: those strikes wait.
local function end_strikes(self, all)
  local now = journal.now()
  for i = #self.lasting, 1, -1 do
    local one = self.lasting[i]
    if (all or one.until_ <= now) and not (self.frozen and needs_operator(one.fault)) then
      table.remove(self.lasting, i)
      one.over()
    end
  end
end

local function strike_one(self)
  local fault = draw(self)
  if self.frozen and needs_operator(fault) or journal.now() < self.began + (fault.after or 0) then return end
  local seconds, over = fault.strike(self, self.random)
  if not seconds then return end
  self.counts[fault.name] = (self.counts[fault.name] or 0) + 1
  if over then table.insert(self.lasting, { until_ = journal.now() + seconds, over = over, fault = fault }) end
end

-- The run -----------------------------------------------------------------------------------------------------------

local TURN = 0.01

-- Sleeps for a moment. If that took much longer than it should, processors were short, which is recorded.
local function rest(self)
  local from = journal.now()
  socket.sleep(TURN)
  local late = journal.now() - from - TURN
  if late > 0.2 then self.journal:note("stall", { from = from, seconds = late }) end
end

local function go_on(self, seconds, strikes)
  local deadline, next_strike = journal.now() + seconds, journal.now()
  while journal.now() < deadline do
    look_after(self)
    end_strikes(self)
    if strikes and #self.faults > 0 and journal.now() >= next_strike then
      strike_one(self)
      next_strike = journal.now() - math.log(1 - self.random()) * self.every
    end
    rest(self)
  end
end

local PATIENCE = 45 -- seconds for which waiters may wait after all others have released

-- Whether the process has reported that it is done, after everything it was told.
local function is_done(seat)
  if not seat.process:alive() then return true end
  while not seat.ended and seat.process:finished() do
    seat.process:finish()
    seat.answers = (seat.answers or 0) + 1
    if seat.answers == 2 then return true end
  end
end

local function dismiss(self)
  self.is_ending = true
  self.journal:note "dismissed"
  for _, seat in ipairs(self.seats) do
    if not seat.ended then pcall(seat.process.begin, seat.process, "return true") end
  end
  local deadline = journal.now() + PATIENCE
  local left
  repeat
    socket.sleep(TURN)
    left = 0
    for _, seat in ipairs(self.seats) do
      if not seat.ended and is_done(seat) then
        seat.process.socket:shutdown() -- then the process ends itself; a restarted broker may have inherited the socket
        seat.process:await_end()
        ended(self, seat)
      end
      left = left + (seat.ended and 0 or 1)
    end
  until left == 0 or journal.now() > deadline
  for _, seat in ipairs(self.seats) do
    if not seat.ended then
      self.journal:note("stays", { about = seat.lane, message = seat.process:output() })
      seat.process:kill()
    end
  end
end

-- The end -----------------------------------------------------------------------------------------------------------

-- For a queue whose process is dead, which a cluster may leave behind, only the name is known.
local QUEUES = [=[
  [[N, "|", integer_to_list(C), "|", integer_to_list(U)] ||
    Q <- rabbit_amqqueue:list(), {resource, _, queue, N} <- [amqqueue:get_name(Q)], string:prefix(N, $1) =/= nomatch,
    [{_, C}, {_, U}] <- [try rabbit_amqqueue:info(Q, [consumers, messages_unacknowledged])
      catch _:_ -> [{none, 0}, {none, 0}] end]]]=]

local CONNECTIONS = [=[
  [string:replace(N, " ", "_") ||
    [{client_properties, All}] <- rabbit_networking:connection_info_all([client_properties]),
    {_, longstr, N} <- [lists:keyfind(<<"connection_name">>, 1, All)], string:prefix(N, $1) =/= nomatch]]=]

local function expected_queues(self)
  local names = {}
  for _, pool in ipairs(self.pools) do
    for slot = 1, pool.most do names[("%s-%d-A"):format(pool.name, slot)] = pools.is_numbered(pool) end
    names[pools.bell(pool) or pool.name .. ".semaphore"] = true
    names[pool.name .. ".semaphore-count"] = true
    local fence = pools.fence(pool)
    if fence then names[fence], names[fence .. "-unfinished"] = true, true end -- the last maker may have been killed
  end
  return names
end

-- Returns a list of texts: the leftovers in the broker.
local function leftovers(self)
  local node, list, expected = self.nodes[1], {}, expected_queues(self)
  for _, one in ipairs(node:strings(QUEUES, self.prefix)) do
    local queue, consumers, unacked = one:match "^(.*)|(%d+)|(%d+)$"
    local may_be = expected[queue] or queue:find "%-bolt$" -- a bolt, which expires after ten seconds without use
    if not may_be then table.insert(list, "queue " .. queue) end
    if consumers ~= "0" then table.insert(list, ("%s consumers of %s"):format(consumers, queue)) end
    if unacked ~= "0" then table.insert(list, ("%s unacknowledged of %s"):format(unacked, queue)) end
  end
  for _, one in ipairs(node:strings(CONNECTIONS, self.prefix)) do table.insert(list, "connection " .. one) end
  return list
end

local function look_for_leftovers(self)
  if not self.offers.operator then return end
  local deadline = journal.now() + 15
  local list
  repeat
    socket.sleep(0.1)
    local fine, found = pcall(leftovers, self)
    list = fine and found or { found } -- an error, for example of a node that has just rejoined its cluster
  until #list == 0 or journal.now() > deadline
  for _, what in ipairs(list) do self.journal:note("left", { message = what }) end
end

-- Runs in a process of its own, so that every process runs the same library code.
local function administer(code, ...)
  local other = process.start()
  local result = { other:begin("return require('tools.prove.admin')." .. code, ...):finish(120) }
  other:kill()
  return result[1]
end

local function say(self, ...)
  if self.settings.say then self.settings.say((...):format(select(2, ...))) end
end

local function new(settings)
  local self = setmetatable({ settings = settings, nodes = settings.nodes, seats = {}, strikes = {}, lasting = {},
    counts = {}, random = math.random, every = settings.every or 0.4, offers = {} }, stage)
  math.randomseed(settings.seed or 1)
  self.prefix = client.unique "prove"
  self.pools = pools.new(self.prefix, settings.kinds)
  self.journals = settings.directory .. "/journals"
  process.empty_directory(self.journals)
  self.cpath = process.c_module "clock"
  journal.use(self.cpath)
  self.journal = journal.open(self.journals, "stage")
  local first = self.nodes[1]
  self.offers = { operator = first.tell ~= nil, node = first.restart ~= nil and not settings.keep_nodes or nil }
  for name, value in pairs(settings.offers or {}) do self.offers[name] = value end
  return self
end

local function set_up(self)
  local crowd = self.settings.crowd or CROWD
  self.offers.proxy = (crowd.proxied or 0) > 0
  self.journal:note("begins", { seed = self.settings.seed, heartbeat = 1 })
  for _, pool in ipairs(self.pools) do
    self.journal:note("pool", { pool = pool.name, kind = pool.kind, least = pool.least, most = pool.most })
  end
  self.faults = choose(self, self.settings.faults)
  administer("create(...)", self.nodes[1].url, pools.encode(self.pools))
  fill(self, crowd_for(self.faults, crowd))
  self.began = journal.now()
end

local function run(self)
  set_up(self)
  say(self, "%d processes; faults for %g s", #self.seats, self.settings.seconds or 60)
  go_on(self, self.settings.seconds or 60, true)
  while #self.lasting > 0 do end_strikes(self, true) end
  self.journal:note "quiet"
  go_on(self, self.settings.quiet or 10)
  dismiss(self)
  say(self, "all processes have ended")
  if self.settings.tidy then self.settings.tidy(self.prefix) end
  local url, list = self.nodes[1].url, pools.encode(self.pools)
  administer("audit(...)", self.cpath, self.journals, "audit", self.prefix .. ".audit", url, list)
  look_for_leftovers(self)
  local fine, problem = pcall(administer, "destroy(...)", url, list)
  if not fine then self.journal:note("left", { message = "locks, not deleted: " .. problem }) end
  self.journal:note "end"
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

--- Runs, checks, and leaves journals, report.txt and timeline.svg in the directory.
function real.run(settings)
  local self = new(settings)
  local fine, problem = pcall(run, self)
  pcall(end_strikes, self, true)
  process.clear()
  if not fine then error(problem, 0) end
  local records = journal.read_all(self.journals)
  local findings = checker.check(records)
  local text = report.of(findings, self.counts)
  write(settings.directory .. "/report.txt", text)
  write(settings.directory .. "/timeline.svg", timeline.of(findings))
  return { findings = findings, report = text, counts = self.counts, records = records }
end

return real

