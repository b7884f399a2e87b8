-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A story of `make prove-cluster` about fenced locks: what a partition lets each side do.
local amqplocks = require "amqplocks"
local client = require "spec.support.client"
local cluster = require "tools.prove.three_nodes"
local contest = require "tools.prove.cluster_contest"
local heal = require "tools.prove.cluster_heal"
local socket = require "socket"

local nodes = cluster.nodes
local stories = {}

local FENCED = { fenced = true }
local TICK = tonumber((os.getenv "CLUSTER_TICK")) or 8

-- A partition, step by step -------------------------------------------------------------------------------------------

local function words(lock, message)
  return lock and ("has the number %.0f"):format(lock.fence) or message
end

-- Acquires it on a connection of its own.
local function take(url, name, timeout)
  local conn, message, code = amqplocks.connect(url, { heartbeat = 10, timeout = 5 })
  if not conn then return nil, message, code end
  return conn:mutex(name, FENCED):acquire{ timeout = timeout, poll = 0.5 }
end

-- The same, again and again: a node may not answer while the nodes find out which of them are there.
local function take_in_the_end(url, name, seconds)
  local deadline = contest.now() + seconds
  local lock, message
  repeat
    lock, message = take(url, name, 10)
  until lock or contest.now() > deadline
  return lock, message
end

-- The codes that a client gets which asks a node without a majority.
local NOT_THERE = { unavailable = true, unreachable = true, timeout = true }

local function ask_minority(say, fail, name, what)
  local began = contest.now()
  local lock, message, code = take(nodes[1].url, name, 20)
  say("  node 1, %s: %s, after %.1f s", what, words(lock, message), contest.now() - began)
  if lock then fail("the minority acquired a fenced lock anew") end
  if not lock and not NOT_THERE[code] then fail("the minority was told %s", code) end
end

local function check_larger(say, fail, what, number, last)
  say("  %s has the number %.0f, %.0f more", what, number, number - last)
  if number <= last then fail("the number of the newer holder, %.0f, is not larger than %.0f", number, last) end
end

table.insert(stories, {
  name = "node 1 is cut off: its side acquires no fenced lock anew, and the newer holder's number is larger",
  kind = "fenced",
  tell = function(say, fail)
    local name, other, unmade = client.unique "cluster", client.unique "cluster", client.unique "cluster"
    local first = assert(take(nodes[3].url, other, 20))
    first:release()
    local old = assert(take(nodes[1].url, name, 20))
    say("  the holder on node 1 has the number %.0f", old.fence)
    cluster.cut(1, { 2, 3 })
    socket.sleep(TICK + 4)
    local new, message = take_in_the_end(nodes[2].url, name, 30)
    say("  node 2, the lock that is held on node 1: %s; there held() says %s, verify() says %s", words(new, message),
      tostring(old:held()), tostring((old:verify())))
    if new then check_larger(say, fail, "the newer holder", new.fence, old.fence) end
    -- On 4.0.5 no node answered declares of this mutex before the partition was over.
    if not new and cluster.version:find "^3" then fail("the majority could not acquire it: %s", message) end
    ask_minority(say, fail, other, "another lock, with a fence")
    ask_minority(say, fail, unmade, "another lock, without a fence")
    if old:release() then ask_minority(say, fail, name, "the lock that was held there, after its release") end
    local last = new and new.fence or old.fence
    if new then new:release() end
    heal()
    for i, one in ipairs(nodes) do
      local lock
      lock, message = take_in_the_end(one.url, name, 60)
      if not lock then fail("node %d, after the partition: %s", i, message) end
      if lock then
        check_larger(say, fail, ("node %d, after the partition,"):format(i), lock.fence, last)
        last = lock.fence
        lock:release()
      end
    end
  end,
})

return stories
