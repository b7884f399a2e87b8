-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The three nodes of tools/prove/three-nodes, for programs that run inside of it.
--
--     local cluster = require "tools.prove.three_nodes"
--     cluster.nodes[2].url                      -- and the other methods of nodes in spec/support/broker.lua
--     cluster.cut(1, { 2, 3 })                  -- drops packets between node 1 and the others, both ways
--     cluster.deafen(1, { 2, 3 })               -- drops packets from node 1 only
--     cluster.heal()
--     cluster.until_whole()
local broker = require "spec.support.broker"
local process = require "spec.support.process"
local until_true = require "spec.support.until"
local values = require "spec.support.programs.values"

local cluster = { nodes = {}, version = os.getenv "CLUSTER_VERSION" }

local SECONDS = 90

local function script(...) return process.shell("tools/prove/three-nodes", ...) end

local node = {}

-- Other nodes see whether the Erlang node ends: spec/support/broker.lua's own stop() and restart() keep its process.
function node:stop() process.shell("spec/support/broker", "stop", self.directory) end

function node:restart()
  self:stop()
  self:begin_start()
  self:await_start()
end

--- Begins a start; await_start() waits for it.
function node:begin_start() process.shell("spec/support/broker", "launch", self.directory) end
function node:await_start() process.shell("spec/support/broker", "await", self.directory) end

for number = 1, os.getenv "CLUSTER_DIR" and 3 or 0 do
  local one = broker.open(("%s/%d"):format(os.getenv "CLUSTER_DIR", number))
  one.number = ("%d"):format(number)
  for name, method in pairs(node) do one[name] = method end
  cluster.nodes[number] = one
end

--- Writes the logs of all nodes, including those from before the last restart, to node-1.log … in the directory.
function cluster.write_logs(directory)
  for _, one in ipairs(cluster.nodes) do
    process.shell("sh", "-c", 'cat "$1"/log/rabbit.log.before "$1"/log/rabbit.log >"$2" 2>/dev/null || :', "sh",
      one.directory, ("%s/node-%s.log"):format(directory, one.number))
  end
end

--- Whether RabbitMQ is of this version, or later.
function cluster.is_since(major, minor)
  local found, after = cluster.version:match "^(%d+)%.(%d+)"
  return tonumber(found) > major or tonumber(found) == major and tonumber(after) >= minor
end

--- Whether the cluster keeps its metadata in Khepri, not in Mnesia.
function cluster.has_khepri() return cluster.is_since(4, 2) end

local function numbers(list)
  local words = {}
  for i, number in ipairs(list) do words[i] = ("%d"):format(number) end
  return values.unpack(words)
end

--- Silently drops packets between these nodes and the others, both ways.
function cluster.cut(from, to) script("cut", ("%d"):format(from), numbers(to)) end

--- Silently drops packets from one node to the others; packets from the others arrive.
function cluster.deafen(from, to) script("deafen", ("%d"):format(from), numbers(to)) end

function cluster.heal() script "heal" end

-- RabbitMQ 4.3 has no all_running any more, and 3.10 has no list_running yet. A node that has just restarted may be too
-- busy to answer.
local RUNNING = "length([N || N <- [node() | nodes()], true =:= rpc:call(N, rabbit, is_running, [], 2000)])"

--- How many running nodes this node sees, itself included.
function cluster.seen_by(one)
  local fine, answer = pcall(process.shell, "env", "HOME=" .. one.directory, "ERL_EPMD_PORT=4369", "sh", "-c",
    'echo "$1." | erl_call -e -n "$2" -timeout 5', "sh", RUNNING, "rabbit@n" .. one.number)
  return fine and tonumber(answer:match "{ok, (%d+)}") or 0, answer
end

--- Moves the leadership of a quorum queue to a node, if the node `through` can; returns whether it has begun.
function cluster.move_leader(queue, to, through)
  local one = cluster.nodes[through]
  local fine, answer = pcall(one.ask, one, "begin " .. broker.LOOKUP .. "{Name, _} = amqqueue:get_pid(Q), "
    .. "ra:transfer_leadership(ra_leaderboard:lookup_leader(Name), {Name, binary_to_atom($2)}) end.", queue,
    ("rabbit@n%d"):format(to))
  return fine and answer == "ok"
end

--- Waits until every node sees all three.
function cluster.until_whole(seconds)
  until_true(function()
    for _, one in ipairs(cluster.nodes) do
      local seen = cluster.seen_by(one)
      if seen < 3 then return false, ("node %s sees %d"):format(one.number, seen) end
    end
    return true
  end, seconds or SECONDS)
end

return cluster
