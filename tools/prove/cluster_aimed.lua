-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories of `make prove-cluster` about mutexes for clusters, and permits of quorum queues, that are held for long,
-- while faults are aimed at the node to which a holder is connected, and processes are killed and stopped. Judged by
-- held() of all processes, and their histories by porcupine (`make prove-porcupine`).
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local cluster = require "tools.prove.three_nodes"
local contest = require "tools.prove.cluster_contest"
local kinds = require "tools.prove.cluster_kinds"
local process = require "spec.support.process"
local socket = require "socket"

local KINDS = {
  quorum_mutex = { words = "mutexes for clusters", queue = "%s-fastmutex" },
  ["token-quorum"] = { words = "permits of a quorum queue", queue = "%s.semaphore" },
}
local NAMES, SEATS = 6, 5 -- so many processes for each name
local HEARTBEATS, TIMEOUTS = { 10, 10, 2, 60 }, { 10, 60, 300 }
local LASTS = { 3, 8, 12, 20, 40 } -- seconds; the tick is 8 s, the certainty 14.5 s, the queue's patience 15 s
local QUIET = 30 -- seconds after a fault, at most
local DRAIN = 0.5 -- seconds: the broker ends a holder's channel, and only the connection tells the holder

local nodes = cluster.nodes

local drains = {} -- { from, to }
local stopped = {} -- processes, and when they go on

local function any(list) return list[math.random(#list)] end

local function go_on(by)
  for one, at in pairs(stopped) do
    if at <= by then
      one:signal "CONT"
      stopped[one] = nil
    end
  end
end

-- All pauses of the runner.
local function rest(seconds)
  local over = contest.now() + seconds
  repeat
    go_on(contest.now())
    socket.sleep(0.05)
  until contest.now() >= over
end

local function others(number)
  local list = {}
  for i = 1, 3 do
    if i ~= number then table.insert(list, i) end
  end
  return list
end

-- Queues ------------------------------------------------------------------------------------------------------------

-- The number of a node, from Erlang in one that answers; nil: it is not known.
local function number_of(erlang, queue, through)
  local fine, found = pcall(nodes[through].ask, nodes[through], "begin " .. broker.LOOKUP .. erlang .. " end.",
    queue)
  return fine and tonumber(found:match "rabbit@n(%d)") or nil
end

local function leader_of(queue, through)
  return number_of("{Name, _} = amqqueue:get_pid(Q), ra_leaderboard:lookup_leader(Name)", queue, through)
end

-- The leader, or another node, but not this one.
local function leader_beside(number, queue)
  local leader = leader_of(queue, number)
  return leader ~= number and leader or any(others(number))
end

-- From one of the two other nodes to the other one.
local function move_leader(number, queue)
  local one, other = others(number)[1], others(number)[2]
  cluster.move_leader(queue, leader_of(queue, one) == one and other or one, one)
end

-- Connections between nodes end at once, and are made again.
local function disconnect(from, to)
  pcall(nodes[from].ask, nodes[from], "erlang:disconnect_node(binary_to_atom($1)).", ("rabbit@n%d"):format(to))
end

-- Faults ------------------------------------------------------------------------------------------------------------

local function cut(number)
  cluster.cut(number, others(number))
  if math.random() < 0.5 then
    for _, other in ipairs(others(number)) do disconnect(other, number) end
  end
end

local function frozen(number, seconds)
  nodes[number]:freeze()
  rest(seconds)
  nodes[number]:thaw()
end

local MEMBER = "begin " .. broker.LOOKUP .. "{Name, _} = amqqueue:get_pid(Q), "

-- The queue's member on a node does nothing. The other nodes do not notice it by themselves.
local function suspended(number, queue)
  nodes[number]:tell(MEMBER .. "sys:suspend(Name, 60000) end.", queue)
  rest(4 * math.random())
  if math.random() < 0.5 then
    pcall(nodes[number].ask, nodes[number], MEMBER .. "ra:trigger_election({Name, binary_to_atom($2)}) end.", queue,
      ("rabbit@n%d"):format(any(others(number))))
  end
  rest(any(LASTS))
  nodes[number]:tell(MEMBER .. "sys:resume(Name, 60000) end.", queue)
end

-- Each with the node of the holder and the queue; afterwards the network is whole.
local FAULTS = {
  { "cut off", function(number)
    cut(number)
    rest(any(LASTS))
  end },
  { "cut off twice", function(number)
    cut(number)
    rest(6 + 7 * math.random())
    cluster.heal()
    rest(6 * math.random())
    cut(number)
    rest(any(LASTS))
  end },
  { "cut off from the leader", function(number, queue)
    cluster.cut(number, { leader_beside(number, queue) })
    rest(any(LASTS))
  end },
  { "not heard", function(number)
    cluster.deafen(number, others(number))
    rest(any(LASTS))
  end },
  { "deaf", function(number)
    for _, other in ipairs(others(number)) do cluster.deafen(other, { number }) end
    rest(any(LASTS))
  end },
  { "frozen", function(number) frozen(number, any(LASTS)) end },
  { "killed", function(number)
    nodes[number]:kill()
    rest(20 * math.random())
    nodes[number]:restart()
  end },
  { "drained, and revived", function(number)
    go_on(math.huge) -- a client that is stopped is told when it goes on
    local drain = { from = contest.now(), to = math.huge }
    table.insert(drains, drain)
    nodes[number]:tell "ok = rabbit_maintenance:drain(), ok."
    drain.to = contest.now() + DRAIN
    rest(20 * math.random())
    nodes[number]:tell "rabbit_maintenance:revive(), ok."
  end },
  { "well, and a member of the queue suspended", function(_, queue) suspended(math.random(3), queue) end },
  { "well, and the leader suspended", function(number, queue)
    suspended(leader_of(queue, number) or number, queue)
  end },
  { "well, and the leader frozen", function(number, queue) frozen(leader_beside(number, queue), any(LASTS)) end },
  { "cut off, and the leader frozen", function(number, queue)
    local leader = leader_beside(number, queue)
    cut(number)
    rest(1 + 12 * math.random())
    nodes[leader]:freeze()
    rest(1 + 6 * math.random())
    cluster.heal()
    rest(10 * math.random())
    nodes[leader]:thaw()
  end },
  { "disconnected, again and again", function(number, queue)
    for _ = 1, 2 + math.random(3) do
      disconnect(leader_beside(number, queue), number)
      rest(4 * math.random())
    end
  end },
  { "cut off, and the leadership moves to and fro", function(number, queue)
    cut(number)
    rest(0.5 + 4 * math.random())
    move_leader(number, queue)
    rest(0.5 + 4 * math.random())
    cluster.heal()
    move_leader(number, queue)
  end },
}

-- Processes ---------------------------------------------------------------------------------------------------------

local function sit(seat)
  seat.life = seat.life + 1
  seat.path = ("%s/%d.%d.%d"):format(seat.directory, seat.name_number, seat.number, seat.life)
  table.insert(seat.paths, seat.path)
  seat.process = contest.start("use", nodes[seat.node].url, seat.kind, seat.name, HEARTBEATS[seat.number % 4 + 1],
    any(TIMEOUTS), 5, seat.path)
  assert(seat.process:finish(60))
end

local function kill(seat)
  if math.random() < 0.5 then
    seat.process:signal "STOP"
    rest(4 * math.random())
  end
  seat.process:kill()
  seat.process:forget()
  sit(seat)
end

local function stop(seat)
  stopped[seat.process] = contest.now() + 5 + 20 * math.random()
  seat.process:signal "STOP"
end

local function crew(directory, kind)
  local names, conn = {}, assert(require("amqplocks").connect(nodes[1].url))
  -- Permits are as soon another client's as mutexes for clusters are, and not after a minute.
  nodes[1]:set_policy("/", "aimed", "aimed.*[.]semaphore$", '{"consumer-disconnected-timeout":15000}')
  for i = 1, NAMES do
    local one = { name = client.unique("aimed") .. "." .. i, kind = kind, seats = {}, paths = {} }
    names[i], one.queue = one, KINDS[kind].queue:format(one.name)
    kinds.make(conn, kind, one.name)
    for number = 1, SEATS do
      one.seats[number] = { name = one.name, name_number = i, number = number, life = 0, paths = one.paths,
        directory = directory, kind = kind, node = number % 3 + 1 }
      sit(one.seats[number])
    end
  end
  conn:close()
  return names
end

-- The holder, by its own report, which it goes on with every 50 ms.
local function holder_of(one)
  for _, seat in ipairs(one.seats) do
    local last = process.contents(seat.path):match "held %S+ (%S+) %S+ still[^\n]*\n$"
    if last and contest.now() - tonumber(last) < 0.2 then return seat end
  end
end

local function tolerated(moment)
  for _, drain in ipairs(drains) do
    if drain.from < moment and moment < drain.to then return DRAIN end
  end
  return 0
end

-- Ends the processes. Returns how often each name was held, and what they said.
local function dismiss(one)
  local said, held = {}, 0
  for _, seat in ipairs(one.seats) do
    seat.process:signal "CONT"
    seat.process:begin "return true"
  end
  for _, seat in ipairs(one.seats) do
    seat.process:finish(90)
    seat.process:kill()
  end
  for i, path in ipairs(one.paths) do
    said[i] = contest.read(process.contents(path) or "")
    held = held + #said[i].held
  end
  return held, said
end

-- `wrong`: what is done about a promise that is not kept.
local function judge(one, said, wrong)
  local overlap, is_wrong = contest.overlap(said), contest.overlap(said, "held", 0, tolerated) > 0
  -- Porcupine tolerates nothing.
  if is_wrong or overlap == 0 then contest.write_history(one.name, said, kinds.is_permit(one.kind)) end
  if is_wrong then
    wrong("two processes held a %s for %.3f s: %s", one.kind, overlap, one.name)
  end
  local fine, problem = contest.is_free(one.kind, one.name)
  if not fine then wrong("a %s cannot be acquired any more: %s", one.kind, problem) end
  local left = kinds.leftovers(nodes[1].url, one.kind, one.name)
  if left then wrong("left of a %s: %s", one.kind, left) end
  return overlap
end

local function strike(say, one)
  local seat = holder_of(one)
  if not seat then return rest(1) end
  local fault = any(FAULTS)
  say("  the node of a holder is %s", fault[1])
  if math.random() < 0.4 then kill(any(one.seats)) end
  if math.random() < 0.4 then stop(any{ seat, any(one.seats) }) end
  fault[2](seat.node, one.queue)
  cluster.heal()
  cluster.until_whole()
  if math.random() < 0.3 then kill(any(one.seats)) end
  rest(QUIET * math.random())
  return true
end

local function teller(kind)
  return function(say, fail, _, _, seed)
    local seconds = tonumber(os.getenv "AIMED" or "") or 300
    local directory = ("%s/aimed-%s-%d"):format(os.getenv "PROVE" or "build/prove", kind, seed)
    process.empty_directory(directory)
    local names, began, faults, locks, most = crew(directory, kind), contest.now(), 0, 0, 0
    while contest.now() - began < seconds do
      if strike(say, any(names)) then faults = faults + 1 end
    end
    for _, one in ipairs(names) do
      local held, said = dismiss(one)
      locks = locks + held
      most = math.max(most, judge(one, said, kinds.is_exclusive(kind) and fail or function(...)
        say("  no promise: " .. ..., select(2, ...))
      end))
    end
    say("  %d times held, %d faults, at most %.3f s by two at once", locks, faults, most)
  end
end

local stories = {}
for kind, about in pairs(KINDS) do
  table.insert(stories, { name = about.words .. " are held for long, and faults are aimed at the node of a holder",
    kind = kind, tell = teller(kind) })
end

return stories
