-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The stories of `make prove-cluster`, in the order in which they run. Each has a name and a function. The function is
-- called with functions that report a line, a failure, the result of a contest, and the queues left behind for a kind,
-- and with a seed.
local amqplocks = require "amqplocks"
local client = require "spec.support.client"
local cluster = require "tools.prove.three_nodes"
local contest = require "tools.prove.cluster_contest"
local heal = require "tools.prove.cluster_heal"
local kinds = require "tools.prove.cluster_kinds"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local rival = require "tools.prove.cluster_rival"
local socket = require "socket"
local until_true = require "spec.support.until"

local nodes = cluster.nodes
local stories = {}

-- Node 1 is struck during a contest ---------------------------------------------------------------------------------

local function cut_off() cluster.cut(1, { 2, 3 }) end

local ACTS = {
  ["cut off"] = { seconds = 25, strike = cut_off, recover = heal },
  ["not heard by the others"] = { seconds = 25, strike = function() cluster.deafen(1, { 2, 3 }) end, recover = heal },
  -- RabbitMQ 4.3 gives up a consumer of a quorum queue, if no argument says otherwise, 60 s after its node.
  ["cut off for long"] = { seconds = 80, strike = cut_off, recover = heal },
  frozen = { seconds = 16, strike = function() nodes[1]:freeze() end,
    recover = function()
      nodes[1]:thaw()
      if not cluster.has_khepri() then nodes[1]:restart() end -- pause_minority does not detect this
    end },
  killed = { seconds = 6, strike = function() nodes[1]:kill() end, recover = function() nodes[1]:restart() end,
    ends = true },
  stopped = { seconds = 6, strike = function() nodes[1]:stop() end, recover = function() nodes[1]:restart() end,
    ends = true },
}

-- The time in seconds in which a holder on a busy machine checks its connection after its node has ended. No clock
-- tells it of that.
local HEARS = 0.5

-- The holder is connected to node 1, or to another one. Slots, permits, bells and the queues of fast mutexes are on
-- node 1, or on another one.
local function add_contest(act, holder, home, words)
  table.insert(stories, {
    name = ("node 1 is %s, %s the holder%s"):format(act, holder == 1 and "with" or "without", words or ""),
    tell = function(_, _, judge)
      local about = { holder = holder, home = home, heartbeat = 10 }
      for name, value in pairs(ACTS[act]) do about[name] = value end
      judge(contest.run(about), about.ends and holder == 1 and HEARS, not about.ends)
    end,
  })
end

for _, act in ipairs{ "cut off", "frozen", "killed", "stopped", "not heard by the others" } do
  add_contest(act, 1, 1)
  add_contest(act, 2, 1)
end

for _, act in ipairs{ "cut off", "killed", "cut off for long" } do
  add_contest(act, 1, 2, "; the queues are on node 2")
end

-- The holder's node is frozen until the other nodes regard it as down, while another one comes back. Then RabbitMQ
-- takes exclusive queues there for those of dead connections, and deletes them. Afterwards the node that was frozen may
-- do the same with the others': docs/reliability.md. A holder whose heartbeat fails before the others regard the node
-- as down knows in time; any other holder, only by verify().
local function freeze_while_another_starts()
  nodes[3]:kill()
  until_true(function() return cluster.seen_by(nodes[1]) == 2 end, 60)
  nodes[3]:begin_start()
  nodes[2]:freeze()
  return contest.now()
end

local function add_return(heartbeat, knows_in_time)
  table.insert(stories, {
    name = ("node 2, with the holder, is frozen while node 3 comes back; heartbeats of %d s"):format(heartbeat),
    tell = function(_, fail, judge)
      local function recover()
        nodes[2]:thaw()
        nodes[3]:await_start()
        if not cluster.has_khepri() then nodes[2]:restart() end
      end
      local results = contest.run{ holder = 2, home = 1, heartbeat = heartbeat, seconds = 12,
        strike = freeze_while_another_starts, recover = recover }
      judge(results, math.huge, true)
      for kind, result in pairs(results) do
        local is_late = result.entered and result.entered < (result.told or math.huge)
        if is_late and knows_in_time and not kinds.is_permit(kind) then
          fail("the holder of %s was told after somebody else had it", kind)
        end
      end
    end,
  })
end

add_return(2, true)
add_return(10, false)

-- Probers are connected to other nodes than holders -----------------------------------------------------------------

local APART = {
  rwlock = { { "write", 1, 2 }, { "write", 3, 2 }, { "read", 1, 2 }, { "read", 3, 2 }, { "read", 2, 2 } },
  mutex = { { "mutex", 1, 2 }, { "mutex", 3, 2 }, { "mutex", 2, 1 } },
  classic = { { "classic", 1, 2 }, { "classic", 3, 2 }, { "classic", 2, 1 } },
  fast_mutex = { { "fast_mutex", 1, 2 }, { "fast_mutex", 3, 2 }, { "fast_mutex", 2, 1 } },
}

local function entries(said)
  local count = 0
  for _, one in ipairs(said) do count = count + #one.held end
  return count
end

-- Starts processes that hand a lock on to each other, one for each { kind, node of its holder connection, node of its
-- prober's } of a list. Returns a function that ends them and returns their reports.
local function crowd(name, list, timeout, poll)
  local all = {}
  for i, one in ipairs(list) do
    local url = one[2] == one[3] and nodes[one[2]].url or proxy.start(nodes[one[2]].url, nodes[one[3]].url).url
    all[i] = contest.start("hand_on", url, one[1], name, 10, timeout, poll)
    all[i].kind = one[1]
    assert(all[i]:finish(60))
  end
  return function() return contest.finish(all) end
end

table.insert(stories, {
  name = "holders ask through node 2, which lags: frozen for a second, again and again",
  tell = function(say, fail)
    local ends, maker = {}, assert(amqplocks.connect(nodes[3].url))
    for kind, list in pairs(APART) do
      local name = client.unique("cluster") .. "." .. kind
      kinds.make(maker, list[1][1], name)
      ends[kind] = crowd(name, list, 3, 0.2)
    end
    maker:close()
    for _ = 1, 12 do
      socket.sleep(0.2 + math.random())
      nodes[2]:freeze()
      socket.sleep(1)
      nodes[2]:thaw()
    end
    for kind, finish in pairs(ends) do
      local said = finish()
      local overlap, count = contest.overlap(said), entries(said)
      say("  %-8s taken %d times, overlap %s", kind, count,
        overlap > 0 and ("%.1f ms"):format(overlap * 1000) or "none")
      if count < 20 then fail("%s was acquired only %d times", kind, count) end
      if overlap > 0 and kinds.is_exclusive(APART[kind][1][1]) then
        fail("two processes held the %s lock at once", kind)
      end
    end
  end,
})

-- Not the leader of Khepri: while that is frozen there would be no reader.
local function lagging_node()
  local fine, leader = pcall(nodes[1].ask, nodes[1], "element(2, ra_leaderboard:lookup_leader(rabbitmq_metadata)).")
  return fine and leader:match "rabbit@n2" and 3 or 2
end

-- A reader acquires while a node is frozen, and keeps the lock. A writer's probe waits at that node, which answers it
-- from its old state when it continues. (A writer without the metadata write of its own acquired, too, 3 times of 15.)
table.insert(stories, {
  name = "a writer asks through a node that was frozen when the reader came",
  tell = function(say, fail)
    local rounds, together, slow, lagging = 20, 0, 0, lagging_node()
    local reading, name = assert(amqplocks.connect(nodes[1].url)), client.unique "cluster"
    local writer = process.start()
    local between = proxy.start(nodes[5 - lagging].url, nodes[lagging].url)
    writer:run([[
      local url, name = ...
      rwlock = assert(require("amqplocks").connect(url, { timeout = 10 })):rwlock(name)
      function write(timeout)
        local lock = rwlock:write{ timeout = timeout, poll = 0.2 }
        local is_in = lock and lock:held()
        if lock then lock:release() end
        return is_in or false
      end
    ]], between.url, name)
    for _ = 1, rounds do
      assert(writer:run "return write(20)")
      nodes[lagging]:freeze()
      local lock = reading:rwlock(name):read{ timeout = 3, poll = 0.2 }
      writer:begin "return write(2)"
      socket.sleep(1)
      nodes[lagging]:thaw()
      if writer:finish(30) and lock and lock:held() then together = together + 1 end
      if lock then lock:release() else slow = slow + 1 end
    end
    reading:close()
    say("  %d rounds, %d without a reader, %d with both inside", rounds, slow, together)
    if together > 0 and cluster.has_khepri() then fail("a writer and a reader held it at once, %d times", together) end
    -- With Mnesia no queue can be declared while a node is frozen.
    if slow == rounds and cluster.has_khepri() then fail "no reader ever acquired the lock" end
  end,
})

-- Waiting -----------------------------------------------------------------------------------------------------------

local POLL = 1

-- The longest time without a holder between two holders, since a moment or at any time; and the median.
local function gaps(said, since)
  local all, list = {}, {}
  for _, one in ipairs(said) do
    for _, held in ipairs(one.held) do table.insert(all, held) end
  end
  table.sort(all, function(a, b) return a.from < b.from end)
  for i = 2, #all do
    if all[i].from >= (since or 0) then table.insert(list, all[i].from - math.max(all[i - 1].to, since or 0)) end
  end
  table.sort(list)
  return list[#list] or math.huge, list[math.floor(#list / 2) + 1] or math.huge
end

-- The longest time that a release took, in seconds.
local function slowest_release(said)
  local most = 0
  for _, one in ipairs(said) do
    for _, let in ipairs(one.let) do most = math.max(most, let.seconds) end
  end
  return most
end

-- The first waiter declares the bell, so the bell is on node 1.
local function make_bell(kind, name)
  local one, two = assert(amqplocks.connect(nodes[1].url)), assert(amqplocks.connect(nodes[1].url))
  local lock = assert(kinds.lock(one, kind, name)(10, POLL))
  kinds.lock(two, kind, name)(0.2, POLL)
  assert(lock:release())
  one:close()
  two:close()
end

local function nothing() end

-- Processes that hand a lock on to each other, through these nodes. Beside them, for each kind, a process acquires and
-- releases a lock of its own through node 2, which shows for how long the cluster itself does not answer. A lock that
-- is held through a struck node stays taken until the node is back; other locks are still handed on. A fast mutex,
-- whose queue is on node 1, waits for that node in any case. `parted`: the strike cuts the nodes off from each other.
local function add_hand_over(act, through, strike, recover, parted)
  table.insert(stories, {
    name = ("hand-overs through nodes %s; %s"):format(table.concat(through, ", "), act),
    kind = parted and "fast_mutex",
    tell = function(say, fail)
      local ends, maker = {}, assert(amqplocks.connect(nodes[1].url))
      local handed_on = parted and { "fast_mutex" } or { "mutex", "fast_mutex", "write", "quorum", "token-quorum" }
      for _, kind in ipairs(kinds.wanted_of(handed_on)) do
        local name, list = client.unique("cluster") .. "." .. kind, {}
        kinds.make(maker, kind, name .. ".all")
        kinds.make(maker, kind, name .. ".one")
        make_bell(kind, name .. ".all")
        for i, node in ipairs(through) do list[i] = { kind, node, node } end
        ends[kind] = { crowd(name .. ".all", list, 30, POLL), crowd(name .. ".one", { { kind, 2, 2 } }, 30, POLL) }
      end
      maker:close()
      socket.sleep(3)
      local struck = contest.now()
      strike()
      socket.sleep(parted and 20 or 6)
      recover()
      local down = through[1] == 1 and strike ~= nothing and contest.now() - struck or 0
      cluster.until_whole()
      socket.sleep(1) -- the news of a loss
      local whole = contest.now()
      socket.sleep(6)
      for kind, two in pairs(ends) do
        local all, alone = two[1](), two[2]()
        local longest, median = gaps(all)
        local stall, overlap = gaps(alone), contest.overlap(all, "held", parted and whole)
        local last, last_stall = gaps(all, whole), gaps(alone, whole)
        say("  %-13s taken %d times; from hand to hand %.1f ms (median), %.2f s at most, %.2f s when the cluster was "
          .. "whole; alone %.2f s, a release %.2f s at most; overlap %.1f ms; acquires: %s", kind, entries(all),
          median * 1000, longest, last, stall, slowest_release(all), contest.overlap(all) * 1000,
          contest.words(contest.none(all)))
        -- A queue without a leader confirms nothing: a prober waits for its timeout.
        local unconfirmed = kind == "quorum" and rival.TIMEOUT or 0
        if longest > math.max(stall, down) + unconfirmed + 1.5 * POLL + 1 then
          fail("no process held %s for %.2f s, though some waited", kind, longest)
        end
        if last > last_stall + unconfirmed + 1.5 * POLL + 1 then
          fail("no process held %s for %.2f s, though some waited, and the cluster was whole", kind, last)
        end
        local is_ended = strike ~= nothing and not parted and through[1] == 1
        if kinds.is_exclusive(kind) and overlap > (is_ended and HEARS or 0) then
          fail("two processes held the %s lock at once", kind)
        end
      end
    end,
  })
end

local function kill() nodes[1]:kill() end
local function stop() nodes[1]:stop() end
local function restart() nodes[1]:restart() end
add_hand_over("nothing happens", { 1, 2, 3 }, nothing, nothing)
add_hand_over("node 1 is killed and started", { 1, 2, 3 }, kill, restart)
add_hand_over("node 1, where the bell is, is killed and started", { 2, 2, 3 }, kill, restart)
add_hand_over("node 1, where the bell is, is stopped and started", { 2, 2, 3 }, stop, restart)
add_hand_over("node 1, where the queue is, is cut off", { 1, 2, 3 }, cut_off, heal, true)

-- Administering -----------------------------------------------------------------------------------------------------

-- An administrator's ack reaches a queue on another node a moment later, or never if the channel or the connection ends
-- at once. (A core that closed the channel left two permits or marks too many in 20 of 5,088 rounds beside two busy
-- programs, and in one of 400 without these.)
table.insert(stories, {
  name = "permits are added and removed through another node than theirs, while the processors are busy",
  tell = function(say, fail)
    local one, name, rounds, wrong = assert(amqplocks.connect(nodes[1].url)), client.unique "cluster", 250, 0
    assert(one:token_semaphore(name):resize(2))
    for _ = 1, 2 do process.start():begin "while true do end" end
    for _ = 1, rounds do
      local three = assert(amqplocks.connect(nodes[3].url))
      assert(three:token_semaphore(name):resize(4))
      assert(three:token_semaphore(name):resize(2))
      three:close()
      socket.sleep(0.05)
      local count, free = one:token_semaphore(name):slots()
      if count ~= 2 or free ~= 2 then
        wrong = wrong + 1
        one:token_semaphore(name):destroy()
        assert(one:token_semaphore(name):resize(2))
      end
    end
    say("  %d rounds, %d with a number that was not requested", rounds, wrong)
    if wrong > 0 then fail("permits that were removed came back, %d times", wrong) end
    assert(one:token_semaphore(name):destroy())
    one:close()
  end,
})

table.insert(stories, {
  name = "a slot's node is killed: slots are counted, removed, added",
  tell = function(say, fail)
    if not cluster.has_khepri() then return say "  not told: with Mnesia such a slot counts as absent" end
    local one, two = assert(amqplocks.connect(nodes[1].url)), assert(amqplocks.connect(nodes[2].url))
    local name = client.unique "cluster"
    local admin = two:admin(name)
    assert(admin:resize(2))
    assert(one:admin(name):resize(3))
    one:close()
    nodes[1]:kill()
    until_true(function() return cluster.seen_by(nodes[2]) == 2 end, 60)
    local count, message = admin:slots()
    say("  3 slots, the last one's node is down: slots() is %s", tostring(count or message))
    if count and count ~= 3 then fail("a slot whose node is down is not counted") end
    local left, why = admin:remove(1)
    say("  remove(1): %s", tostring(left or why))
    if left and left < 2 then fail("one slot was to be removed, and %d of 3 are left", left) end
    nodes[1]:restart()
    cluster.until_whole()
    count, message = admin:slots()
    say("  the node is back: slots() is %s", tostring(count or message))
    if not count then fail("the row is broken: %s", message) end
    until_true(function() return admin:destroy() end, 60)
    two:close()
  end,
})

table.insert(stories, {
  name = "the slots' node is killed: a held one is verified, and one is wanted",
  tell = function(say, fail)
    if not cluster.has_khepri() then return say "  not told: with Mnesia such a slot counts as absent" end
    local one, two = assert(amqplocks.connect(nodes[1].url)), assert(amqplocks.connect(nodes[2].url))
    local name = client.unique "cluster"
    assert(one:admin(name):resize(2))
    one:close()
    local semaphore = two:semaphore(name)
    local lock = assert(semaphore:try_acquire())
    nodes[1]:kill()
    until_true(function() return cluster.seen_by(nodes[2]) == 2 end, 60)
    local fine, message, code = lock:verify()
    say("  2 slots, one of them held, and their node is down: verify() says %s", tostring(message or fine))
    if code == "removed" then fail("verify() says that the slot was removed, which it was not") end
    lock:release()
    lock, message, code = semaphore:try_acquire()
    say("  try_acquire(): %s", tostring(message or lock))
    if code ~= "unavailable" then fail("a slot whose node is down is unavailable, not %s", tostring(code)) end
    nodes[1]:restart()
    cluster.until_whole()
    lock, message = semaphore:acquire{ timeout = 30 }
    if not lock then fail("the node is back, and there is no slot: %s", message) end
    two:close()
  end,
})

-- A client dies while its node is cut off ---------------------------------------------------------------------------

table.insert(stories, {
  name = "node 1 is cut off, and its client is killed",
  tell = function(say, fail, _, note_ghosts)
    local all, names, maker = {}, {}, assert(amqplocks.connect(nodes[1].url))
    for _, kind in ipairs(kinds.wanted()) do
      names[kind] = client.unique("cluster") .. "." .. kind
      kinds.make(maker, kind, names[kind])
      all[kind] = contest.start("hold", nodes[1].url, kind, names[kind], 10, 30, 0.5)
      assert(all[kind]:finish(60))
    end
    maker:close()
    cluster.cut(1, { 2, 3 })
    socket.sleep(12)
    for _, one in pairs(all) do one:kill() end
    socket.sleep(3)
    heal()
    cluster.until_whole()
    for _, kind in ipairs(kinds.wanted()) do
      local fine, after, ghosts = contest.is_free(kind, names[kind])
      note_ghosts(kind, ghosts)
      say("  %-13s free %s", kind, fine and ("%.2f s after the cluster was whole"):format(after) or "NEVER")
      if not fine then fail("%s stays taken: %s", kind, tostring(after)) end
    end
  end,
})

-- Without a majority ------------------------------------------------------------------------------------------------

for _, story in ipairs(require "tools.prove.cluster_majority") do table.insert(stories, story) end

-- Many short locks, and processes that die ---------------------------------------------------------------------------

for _, story in ipairs(require "tools.prove.cluster_hammer") do table.insert(stories, story) end

-- Fencing tokens ----------------------------------------------------------------------------------------------------

for _, story in ipairs(require "tools.prove.cluster_fences") do table.insert(stories, story) end

-- Mutexes for clusters -----------------------------------------------------------------------------------------------

for _, story in ipairs(require "tools.prove.cluster_facts") do table.insert(stories, story) end
for _, story in ipairs(require "tools.prove.cluster_aimed") do table.insert(stories, story) end

-- Random locking and random faults ----------------------------------------------------------------------------------

-- The kinds that are wanted, as tools/prove/pools.lua calls them; nil: all.
local function random_kinds()
  if (os.getenv "KINDS" or "") == "" then return nil end
  local list, known = {}, {}
  for _, kind in ipairs(kinds.wanted()) do
    kind = (kind == "read" or kind == "write") and "rwlock" or kind
    if not known[kind] then table.insert(list, kind) end
    known[kind] = true
  end
  return list
end

-- The processes of `make prove`, through three nodes, with their checker. A cluster that may give a lock to two clients
-- in a partition is not partitioned.
table.insert(stories, {
  name = "processes that lock at random, and nodes that are struck at random",
  tell = function(say, fail, _, note_ghosts, seed)
    local function tidy(prefix)
      if cluster.has_khepri() then note_ghosts("them", contest.delete_ghosts(prefix, 15)) end
    end
    local faults = { "node_kill", "node_stop", "kill", "stop" }
    if cluster.has_khepri() then
      table.insert(faults, "partition")
      table.insert(faults, "node_freeze")
    end
    local directory = ("%s/cluster-%d"):format(os.getenv "PROVE" or "build/prove", seed)
    local result = require("tools.prove.real").run{ nodes = nodes, seed = seed, seconds = 120, quiet = 20, every = 6,
      directory = directory, tidy = tidy, kinds = random_kinds(),
      faults = faults, offers = { cluster = true },
      crowd = { plain = 6, several = 1, loop = 1, admins = 1, witnesses = 1, proxied = 0 },
      say = function(words) say("  %s", words) end }
    cluster.write_logs(directory)
    for line in result.report:gmatch "[^\n]+" do say("  %s", line) end
    local permits = 0
    for _, violation in ipairs(result.findings.violations) do
      if violation.text:find(".token", 1, true) then permits = permits + 1 else fail("%s", violation.text) end
    end
    if permits > 0 then say("  %d of these are about permits, and no failure: see docs/proving.md", permits) end
  end,
})

for _, story in ipairs(stories) do
  local tell = story.tell
  story.tell = function(...)
    tell(...)
    process.clear()
  end
end

return stories
