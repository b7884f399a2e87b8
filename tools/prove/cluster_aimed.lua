-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The story of `make prove-cluster` about mutexes for clusters that are held for long, while faults are aimed at the
-- node to which a holder is connected, and processes are killed. Judged by held() of all processes, and their histories
-- by porcupine (`make prove-porcupine`).
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local cluster = require "tools.prove.three_nodes"
local contest = require "tools.prove.cluster_contest"
local kinds = require "tools.prove.cluster_kinds"
local process = require "spec.support.process"
local socket = require "socket"

local KIND, NAMES, SEATS = "quorum_mutex", 6, 5 -- so many processes for each name
local HEARTBEATS, TIMEOUTS = { 10, 10, 2, 60 }, { 10, 60, 300 }
local LASTS = { 3, 8, 12, 20, 40 } -- seconds; the tick is 8 s, the certainty 14.5 s, the queue's patience 15 s
local QUIET = 30 -- seconds after a fault, at most

local nodes = cluster.nodes

local function any(list) return list[math.random(#list)] end

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

local function holder_of(queue)
  return number_of("[node(element(1, C)) || C <- rabbit_amqqueue:consumers(Q), element(5, C) =:= true]", queue, 1)
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
  socket.sleep(seconds)
  nodes[number]:thaw()
end

-- Each with the node of the holder and the queue; afterwards the network is whole.
local FAULTS = {
  { "cut off", function(number)
    cut(number)
    socket.sleep(any(LASTS))
  end },
  { "cut off twice", function(number)
    cut(number)
    socket.sleep(6 + 7 * math.random())
    cluster.heal()
    socket.sleep(6 * math.random())
    cut(number)
    socket.sleep(any(LASTS))
  end },
  { "cut off from the leader", function(number, queue)
    cluster.cut(number, { leader_beside(number, queue) })
    socket.sleep(any(LASTS))
  end },
  { "not heard", function(number)
    cluster.deafen(number, others(number))
    socket.sleep(any(LASTS))
  end },
  { "deaf", function(number)
    for _, other in ipairs(others(number)) do cluster.deafen(other, { number }) end
    socket.sleep(any(LASTS))
  end },
  { "frozen", function(number) frozen(number, any(LASTS)) end },
  { "killed", function(number)
    nodes[number]:kill()
    socket.sleep(20 * math.random())
    nodes[number]:restart()
  end },
  { "well, and the leader frozen", function(number, queue) frozen(leader_beside(number, queue), any(LASTS)) end },
  { "cut off, and the leader frozen", function(number, queue)
    local leader = leader_beside(number, queue)
    cut(number)
    socket.sleep(1 + 12 * math.random())
    nodes[leader]:freeze()
    socket.sleep(1 + 6 * math.random())
    cluster.heal()
    socket.sleep(10 * math.random())
    nodes[leader]:thaw()
  end },
  { "disconnected, again and again", function(number, queue)
    for _ = 1, 2 + math.random(3) do
      disconnect(leader_beside(number, queue), number)
      socket.sleep(4 * math.random())
    end
  end },
  { "cut off, and the leadership moves to and fro", function(number, queue)
    cut(number)
    socket.sleep(0.5 + 4 * math.random())
    move_leader(number, queue)
    socket.sleep(0.5 + 4 * math.random())
    cluster.heal()
    move_leader(number, queue)
  end },
}

-- Processes ---------------------------------------------------------------------------------------------------------

local function sit(seat)
  seat.life = seat.life + 1
  local path = ("%s/%d.%d.%d"):format(seat.directory, seat.name_number, seat.number, seat.life)
  table.insert(seat.paths, path)
  seat.process = contest.start("use", nodes[seat.number % 3 + 1].url, KIND, seat.name, HEARTBEATS[seat.number % 4 + 1],
    any(TIMEOUTS), 5, path)
  assert(seat.process:finish(60))
end

local function kill(seat)
  if math.random() < 0.5 then
    seat.process:signal "STOP"
    socket.sleep(4 * math.random())
  end
  seat.process:kill()
  seat.process:forget()
  sit(seat)
end

local function crew(directory)
  local names, conn = {}, assert(require("amqplocks").connect(nodes[1].url))
  for i = 1, NAMES do
    local one = { name = client.unique("aimed") .. "." .. i, seats = {}, paths = {} }
    names[i], one.queue = one, one.name .. "-fastmutex"
    kinds.make(conn, KIND, one.name)
    for number = 1, SEATS do
      one.seats[number] = { name = one.name, name_number = i, number = number, life = 0, paths = one.paths,
        directory = directory }
      sit(one.seats[number])
    end
  end
  conn:close()
  return names
end

-- Ends the processes. Returns how often each name was held, and for how many seconds by two at once.
local function judge(one)
  local said = {}
  for _, seat in ipairs(one.seats) do seat.process:begin "return true" end
  for _, seat in ipairs(one.seats) do
    seat.process:finish(90)
    seat.process:kill()
  end
  local held = 0
  for i, path in ipairs(one.paths) do
    said[i] = contest.read(process.contents(path) or "")
    held = held + #said[i].held
  end
  contest.write_history(one.name, said)
  return held, contest.overlap(said)
end

local function strike(say, one)
  local number = holder_of(one.queue)
  if not number then return socket.sleep(1) end
  local fault = any(FAULTS)
  say("  the node of a holder is %s", fault[1])
  if math.random() < 0.4 then kill(any(one.seats)) end
  fault[2](number, one.queue)
  cluster.heal()
  cluster.until_whole()
  if math.random() < 0.3 then kill(any(one.seats)) end
  socket.sleep(QUIET * math.random())
end

local function tell(say, fail, _, _, seed)
  local seconds = tonumber(os.getenv "AIMED" or "") or 300
  local directory = ("%s/aimed-%d"):format(os.getenv "PROVE" or "build/prove", seed)
  process.empty_directory(directory)
  local names, began, faults, locks = crew(directory), contest.now(), 0, 0
  while contest.now() - began < seconds do
    strike(say, any(names))
    faults = faults + 1
  end
  for _, one in ipairs(names) do
    local held, overlap = judge(one)
    locks = locks + held
    if overlap > 0 then fail("two processes held a mutex for clusters for %.3f s: %s", overlap, one.name) end
    local fine, problem = contest.is_free(KIND, one.name)
    if not fine then fail("a mutex cannot be acquired any more: %s", problem) end
    local left = kinds.leftovers(nodes[1].url, KIND, one.name)
    if left then fail("left of a mutex: %s", left) end
  end
  say("  %d times held, %d faults", locks, faults)
end

return { { name = "mutexes for clusters are held for long, and faults are aimed at the node of a holder", kind = KIND,
  tell = tell } }
