-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- `make prove`: processes that lock, administer and look on, on a real broker, while faults strike. Everybody keeps a
-- journal (journal.lua); when all is over the checker (checker.lua) reads them.
--
--     local real = require "tools.prove.real"
--     local result = real.run{ nodes = { node }, seconds = 60, seed = 7, directory = "build/prove/7" }
--     result.findings     -- violations, exceptions, hand-over times: see checker.lua
--
-- Settings, all but the first two optional:
--     nodes        the broker's nodes, see below; clients are spread over them
--     directory    for journals, report.txt and timeline.svg
--     seconds      how long faults strike (60)        quiet    how long nobody is struck after that (10)
--     seed         of all that is drawn               kinds    of locks, a list of names in pools.lua
--     faults       a list of names of files in tools/prove/faults; all that are possible, unless given
--     every        seconds between strikes, in the mean (0.4)
--     keep_nodes   true: nodes are not restarted, as others use them, too
--     crowd        how many of each there are: plain, several, cramped, loop (clients), admins, witnesses, foreigners;
--                  proxied: how many of the clients are behind a proxy of their own
--     say          a function that is told, in words, what is going on
--     tidy         a function that is called with what the locks' names begin with, when all processes are gone and
--                  before anybody looks what is left
--
-- A node is what spec/support/broker.lua gives, or anything like it:
--     url          where it is
--     restart() kill()          end it, in good order or not; restart() starts it in any case, and waits for it
--     freeze() thaw()           SIGSTOP and SIGCONT
--     tell() queues() ctl() delete_queue() close_connection() alarm()     what operators do; nil, if there is none
--
-- A fault is a file of tools/prove/faults, which gives a table:
--     name         the file's
--     needs        what there must be, each "proxy" (clients behind proxies), "operator" (nodes with tell), "node" (one
--                  that may be restarted), or what the settings' `offers`, a set, has, such as "cluster"
--     weight       how often it is drawn, beside the others' (1)
--     quick        true: it belongs to the short form
--     without      who of the crowd is not there while it strikes, a list; it strikes only if it is named, then
--     after        seconds from the beginning before it may strike (0)
--     strike(stage, random)
--                  strikes, and gives how long it lasts, and a function over() that ends it; nothing: there was nobody
--                  to strike. `random` is math.random, from the seed. It says what it does by stage:strike(), before it
--                  does anything, and over() ends with stage:over() of what that gave. Nothing more is drawn while it
--                  runs: what lasts is ended by over(), which is also called when the time is up.
--
-- What a stage offers to faults:
--     stage.nodes, stage.pools, stage.settings, stage.prefix (of all names), stage.journals (their directory)
--     stage.frozen is to be set while a node is, so that nobody tries to operate it meanwhile
--     stage:pick(random, role)
--                  one of role "client", "admin" or "witness" who lives and has not been struck yet: { lane, role,
--                  flavour, process, proxy, node, connection }; nil if there is none. `connection` .. " holder" is the
--                  name of the connection its locks are on
--     stage:pick_proxied(random)
--                  a client like that, behind a proxy
--     stage:strike{ fault =, lane = or one =, pool =, slot =, excuse =, robs =, hinders =, node = }
--                  a line of the journal, before the blow. lane: who is struck, "*" for everybody; one: the same, who
--                  is not picked again before the end. pool, slot: what is struck. excuse: this frees locks at
--                  once, whose holders know when the news arrive (see README, "what no clock can cover"), in words.
--                  robs: from now on anybody's queue may be gone, and the lock be kept by its bolt alone. hinders:
--                  whoever is struck cannot be expected to get anywhere before it is over, and so many seconds after
--                  that. Gives a number
--     stage:over(number)
--     stage:kill(one)     SIGKILL; somebody else sits down in its place
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
-- A seat is a place for a process. Who dies is followed by another, in a lane of its own.

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

-- Ends its own way ("exit"), or was killed: then that was said before. Anything else is a defect, whoever's.
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

-- Whether somebody holds something just now, by the last lines of his journals.
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

-- Those who hold something are struck more often than those who wait, of whom there are more.
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

--- All there are, by name.
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
    error("not all of these faults are there, or possible here: " .. table.concat(names, ", "), 0)
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

-- Nobody operates a node that is frozen: those strikes wait.
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

-- A rest; that it took much longer than it should, that is that processors were short, is written down.
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

local PATIENCE = 45 -- for those who wait for something when all others let go

-- Whether it has said that it is done, after all that it was told.
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
        seat.process.socket:shutdown() -- then it ends itself; a broker that was restarted may have the socket, too
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

-- Of a queue whose process is dead, which a cluster may leave behind, only the name.
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
  end
  return names
end

-- What is in the broker that should not be: a list of words.
local function leftovers(self)
  local node, list, expected = self.nodes[1], {}, expected_queues(self)
  for _, one in ipairs(node:strings(QUEUES, self.prefix)) do
    local queue, consumers, unacked = one:match "^(.*)|(%d+)|(%d+)$"
    local may_be = expected[queue] or queue:find "%-bolt$" -- which goes when it was not used for ten seconds
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
    list = fine and found or { found } -- what a node says that has just come back to its cluster, for one
  until #list == 0 or journal.now() > deadline
  for _, what in ipairs(list) do self.journal:note("left", { message = what }) end
end

-- In a process of its own, so that the library's code is the same for all.
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
  process.shell("sh", "-c", 'rm -rf "$1" && mkdir -p "$1"', "sh", self.journals)
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
  say(self, "all are gone")
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

