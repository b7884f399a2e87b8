-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Stories of `make prove-cluster` about many short locks: the hammer (hammer.lua) through all three nodes, while nodes
-- are struck.
local broker = require "spec.support.broker"
local cluster = require "tools.prove.three_nodes"
local hammer = require "tools.prove.hammer"
local heal = require "tools.prove.cluster_heal"
local kinds = require "tools.prove.cluster_kinds"
local socket = require "socket"

local nodes = cluster.nodes
local stories = {}

local function times(kind, count)
  local list = {}
  for i = 1, count do list[i] = kind end
  return list
end

-- The names of each kind: what they are (hammer_client.lua), and the queue whose node is struck. So many mutexes that
-- some acquires meet nobody.
local NAMES = {
  fenced = { words = "fenced locks", queue = "-mutexfence" },
  mutex = { words = "mutexes", kinds = times("plain", 24) },
  fast_mutex = { words = "fast mutexes", queue = "-fastmutex", kinds = times("fast_mutex", 6) },
  quorum_mutex = { words = "quorum mutexes", queue = "-fastmutex", kinds = times("quorum_mutex", 6) },
}

local NEWS = 3 -- seconds after which a holder has read that it lost its lock in a partition, with heartbeats of 1 s

local function begin_start(one) one:begin_start() end

local function end_start(one)
  one:await_start()
  cluster.until_whole()
end

-- Returns a function of the seconds since the beginning which calls each function of a list at its time: { { at =
-- seconds, function }, … }.
local function schedule(list)
  local next_one = 1
  return function(seconds)
    local one = list[next_one]
    if not one or seconds < one.at then return end
    next_one = next_one + 1
    one[1]()
  end
end

-- The number of the node on which a queue is, or its leader.
local function home(queue)
  local found = nodes[2]:ask("begin " .. broker.LOOKUP
    .. "case amqqueue:get_pid(Q) of {_, Node} -> Node; Pid -> node(Pid) end end.", queue)
  return tonumber(found:match "rabbit@n(%d)")
end

-- `acts(pools)`: the list for schedule(); `parts`: nodes are cut off from each other.
local function add(kind, name, seconds, acts, parts)
  local about, number = NAMES[kind], #stories + 1
  table.insert(stories, {
    name = ("%s through three nodes, and processes get SIGKILL and SIGSTOP; %s"):format(about.words, name),
    kind = kind,
    tell = function(say, fail, _, _, seed)
      local urls = {}
      for i, one in ipairs(nodes) do urls[i] = one.url end
      local pools = {}
      local result = hammer.run{ urls = urls, seed = seed, seconds = seconds, every = 0.2, pools = pools,
        kinds = about.kinds,
        directory = ("%s/%s-%d.%d"):format(os.getenv "PROVE" or "build/prove", kind, seed, number),
        during = schedule(acts(pools)),
        at_once = parts and kind ~= "fast_mutex" and not cluster.has_khepri(),
        may_overlap = parts and not kinds.is_exclusive(kind, true) }
      hammer.tell(result, function(...) say("  " .. ..., select(2, ...)) end)
      for _, text in ipairs(result.violations) do fail("%s", text) end
      cluster.until_whole()
      for _, pool in ipairs(pools) do
        local left = kinds.leftovers(nodes[1].url, kind, pool.name)
        if left then fail("left of a mutex: %s", left) end
      end
    end,
  })
end

local function nothing() return {} end

local function each_in_turn()
  local list = {}
  for i, one in ipairs(nodes) do
    table.insert(list, { at = 25 * i - 20, function() one:kill() end })
    table.insert(list, { at = 25 * i - 12, function() begin_start(one) end })
    table.insert(list, { at = 25 * i - 11, function() end_start(one) end })
  end
  return list
end

-- The node of the first name's queue is killed, four times.
local function four_times(kind)
  return function(pools)
    local list, struck = {}, nil
    for i = 1, 4 do
      table.insert(list, { at = 20 * i - 15, function()
        struck = nodes[home(pools[1].name .. NAMES[kind].queue)]
        struck:kill()
      end })
      table.insert(list, { at = 20 * i - 11, function() begin_start(struck) end })
      table.insert(list, { at = 20 * i - 10, function() end_start(struck) end })
    end
    return list
  end
end

local function cut_off()
  return { { at = 8, function() cluster.cut(1, { 2, 3 }) end }, { at = 33, heal } }
end

-- The judge is told when the nodes are not connected: what a fast mutex promises depends on that.
local function cut_off_and_told(pools)
  local cut, whole = cut_off()[1], cut_off()[2]
  return {
    { at = cut.at, function()
      hammer.tell_judge(pools, "parted")
      cut[1]()
    end },
    { at = whole.at, function()
      whole[1]()
      socket.sleep(NEWS)
      hammer.tell_judge(pools, "whole")
    end },
  }
end

add("fenced", "no node is struck", 60, nothing)
add("fenced", "each node is killed in turn", 75, each_in_turn)
add("fenced", "the node with a fence's leader is killed, four times", 80, four_times "fenced")
add("fenced", "node 1 is cut off", 60, cut_off, true)
add("mutex", "each node is killed in turn", 75, each_in_turn)
add("fast_mutex", "no node is struck", 30, nothing)
add("fast_mutex", "each node is killed in turn", 75, each_in_turn)
add("fast_mutex", "the node with a mutex's queue is killed, four times", 80, four_times "fast_mutex")
add("fast_mutex", "node 1 is cut off", 60, cut_off_and_told, true)
add("quorum_mutex", "each node is killed in turn", 100, each_in_turn)
add("quorum_mutex", "the node with a mutex's leader is killed, four times", 100, four_times "quorum_mutex")
add("quorum_mutex", "node 1 is cut off", 80, cut_off, true)

return stories
