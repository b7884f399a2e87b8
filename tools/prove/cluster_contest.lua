-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A contest: a lock of each kind is held through one node, other processes want it through each of the three nodes,
-- and a node is struck.
--
--     local result = contest.run{ holder = 1, home = 1, seconds = 20, heartbeat = 10,
--       strike = function() … end, recover = function() … end }
--     result.mutex.overlap      -- seconds for which two processes had it, by held() of both
--
-- Other fields of each kind, with times in seconds after the strike (nil: never): `entered`, when another process had
-- it; `told`, when the holder's held() became false and stayed so, with `code`. `asked`: the result of verify() at the
-- end for a holder whose held() was still true, "held" or a code. `misled`: seconds for which a process had a lock of
-- which verify() said that another one held it. `after`: seconds from the end of all processes until it could be
-- acquired through every node, one after the other. `ghosts`: the queues that had to be deleted for that, which the
-- cluster kept for a connection that was gone. `over`: by how much an acquire exceeded its timeout, at most. `none`:
-- failed acquires of the others, by code. `let`: the result of the holder's release. `falls`: fencing tokens that
-- are smaller than that of an earlier holder, as text. `late`: seconds for which two processes had it after the cluster
-- was whole again. `left`: what is wrong with its queue at the end, as text.
local amqplocks = require "amqplocks"
local client = require "spec.support.client"
local cluster = require "tools.prove.three_nodes"
local history = require "tools.prove.history"
local kinds = require "tools.prove.cluster_kinds"
local process = require "spec.support.process"
local socket = require "socket"
local until_true = require "spec.support.until"

local contest = {}

local cpath, clock

--- Call this once, before all contests.
function contest.begin()
  cpath = process.c_module "clock"
  clock = assert(package.loadlib((cpath:gsub("%?%.so;$", "clock.so")), "luaopen_clock"))()
end

function contest.now() return clock.now() end

local RUN = [[
  local spec, act, cpath, url, kind, name, heartbeat, timeout, poll, path = spec, ...
  local rival = require "tools.prove.cluster_rival".new(spec, cpath, { url = url, kind = kind, name = name,
    heartbeat = heartbeat, timeout = timeout, poll = poll, path = path })
  return rival[act](rival)
]]

--- Starts a process that runs `act` of cluster_rival.lua. The remaining arguments: heartbeat, timeout, poll and path.
function contest.start(act, url, kind, name, ...)
  local one = process.start()
  one:begin(RUN, act, cpath, url, kind, name, ...)
  return one
end

--- Reads the report of a process.
function contest.read(text)
  local said = { held = {}, verified = {}, none = {}, let = {}, over = 0 }
  for line in text:gmatch "[^\n]+" do
    local words = {}
    for word in line:gmatch "%S+" do table.insert(words, word) end
    if words[1] == "held" then
      local last, from = said.held[#said.held], tonumber(words[2])
      if last and last.from == from then table.remove(said.held) end -- it said so before, and was held on
      table.insert(said.held, { from = from, to = tonumber(words[3]), slot = words[4], why = words[5],
        fence = tonumber(words[6]) })
    elseif words[1] == "none" then
      said.none[words[2]] = tonumber(words[3])
    elseif words[1] == "asked" then
      said.asked = words[2]
      if words[2] == "held" then
        table.insert(said.verified, { from = tonumber(words[3]), to = tonumber(words[4]), slot = words[5] })
      end
    elseif words[1] == "let" then
      table.insert(said.let, { seconds = tonumber(words[2]), code = words[3] })
    else
      said.over = tonumber(words[2])
    end
  end
  return said
end

--- Ends the processes, and returns the report of each, with its kind: { kind, held = { { from, to, slot, why }, … },
-- none = { code = count }, over, let = { { seconds, code }, … } }
function contest.finish(all)
  local list = {}
  for _, one in ipairs(all) do one:begin "return true" end
  for i, one in ipairs(all) do
    list[i] = contest.read(one:finish(90))
    list[i].kind = one.kind
    one:kill()
  end
  return list
end

-- For how many seconds, at most, both held the same slot, by these lists of what they held; since a moment, beyond
-- what tolerated(the moment at which the second one came) says.
local function common(these, those, since, tolerated)
  local most = 0
  for _, a in ipairs(these) do
    for _, b in ipairs(those) do
      local from = math.max(a.from, b.from, since)
      if a.slot == b.slot then most = math.max(most, math.min(a.to, b.to) - from - tolerated(from)) end
    end
  end
  return most
end

local function nothing() return 0 end

local function exclude_each_other(one, other) return one.kind ~= "read" or other.kind ~= "read" end

--- For how many seconds, at most, a process of `all` and another process held the same slot; readers share it. By
-- held(), or by verify(): "verified"; since a moment, or at any time; beyond what tolerated(the moment at which the
-- second one came) says, if it is given.
function contest.overlap(all, what, since, tolerated)
  what, since, tolerated = what or "held", since or 0, tolerated or nothing
  local most = 0
  for i, one in ipairs(all) do
    for j = i + 1, #all do
      if exclude_each_other(one, all[j]) then
        most = math.max(most, common(one[what], all[j][what], since, tolerated))
      end
    end
  end
  return most
end

-- The result of verify() counts for the time since the lock was acquired. The first holder held it before all others.
-- One of the others may still believe in a lock that another process has long acquired; then verify() is right about
-- that.
local function misled(all)
  local most = contest.overlap(all, "verified")
  for i = 2, #all do
    if exclude_each_other(all[1], all[i]) then
      most = math.max(most, common(all[1].verified, all[i].held, 0, nothing))
    end
  end
  return most
end

-- The fencing tokens that are smaller than that of an earlier holder, as text; both may hold the lock at once.
local function falling(said)
  local all, numbers, largest = {}, {}, nil
  for _, one in ipairs(said) do
    local last
    for _, held in ipairs(one.held) do
      if held.fence ~= last then table.insert(all, held) end -- the same lock may be held again after a doubt
      last = held.fence
    end
  end
  table.sort(all, function(a, b) return a.from < b.from end)
  for _, held in ipairs(all) do
    if largest and held.fence < largest then table.insert(numbers, ("%.0f after %.0f"):format(held.fence, largest)) end
    if not largest or held.fence > largest then largest = held.fence end
  end
  return numbers
end

-- A contest ---------------------------------------------------------------------------------------------------------

local function crew(about, kind, name)
  local all = {}
  all[1] = contest.start("hold", cluster.nodes[about.holder].url, kind, name, about.heartbeat, 30, 0.5)
  assert(all[1]:finish(60))
  all[1].kind = kind
  for i, node in ipairs(cluster.nodes) do
    local wanted = kinds.rival(kind, i)
    all[i + 1] = contest.start("compete", node.url, wanted, name, 1, 1, 0.3)
    all[i + 1].kind = wanted
    assert(all[i + 1]:finish(60))
  end
  return all
end

--- The failed acquires of some processes, by code.
function contest.none(said)
  local counts = {}
  for _, one in ipairs(said) do
    for code, count in pairs(one.none) do counts[code] = (counts[code] or 0) + count end
  end
  return counts
end

--- The same, as text.
function contest.words(counts)
  local words = {}
  for code, count in pairs(counts) do table.insert(words, ("%s %d"):format(code, count)) end
  table.sort(words)
  return table.concat(words, ", ")
end

local function sum_up(said, struck, whole)
  local holder = said[1]
  local let = holder.let[1] or {}
  local result = { overlap = contest.overlap(said), misled = misled(said), over = 0, none = contest.none(said),
    falls = falling(said), late = contest.overlap(said, "held", whole),
    asked = holder.asked, let = let.code, let_seconds = let.seconds }
  local kept = holder.held[#holder.held]
  if kept.why ~= "told" then result.told, result.code = kept.to - struck, kept.why end
  for i, one in ipairs(said) do
    result.over = math.max(result.over, one.over)
    if i > 1 then
      for _, held in ipairs(one.held) do result.entered = math.min(result.entered or math.huge, held.from - struck) end
    end
  end
  return result
end

-- For a judge that is not ours. A lock that a rival took was asked for after its last one ended.
function contest.write_history(name, said, is_naive)
  local locks = {}
  for i, one in ipairs(said) do
    local asked = 0
    for _, held in ipairs(one.held) do
      table.insert(locks, { client = i, asked = asked, first = held.from * 1e6, last = held.to * 1e6 })
      asked = held.to * 1e6
    end
  end
  history.write(("%s/%s"):format(os.getenv "PROVE" or "build/prove", name), locks, is_naive)
end

local function take_everywhere(kind, name)
  local began = clock.now()
  for _, node in ipairs(cluster.nodes) do
    until_true(function()
      local conn, message = amqplocks.connect(node.url, { timeout = 5 })
      if not conn then return false, message end
      local lock
      lock, message = kinds.lock(conn, kind, name)(1, 0.3)
      local fine = lock and lock:release()
      conn:close()
      return fine, message
    end, 40)
  end
  return clock.now() - began
end

local DEAD = [[
  begin
    Lives = fun(P) -> true =:= rpc:call(node(P), erlang, is_process_alive, [P], 5000) end,
    [N || Q <- rabbit_amqqueue:list(),
      {resource, _, queue, N} <- [amqqueue:get_name(Q)], string:prefix(N, $1) =/= nomatch,
      Owner <- [amqqueue:get_exclusive_owner(Q)], is_pid(Owner), not Lives(Owner), not Lives(amqqueue:get_pid(Q))]
  end]]

--- Deletes, as an operator can, the exclusive queues with names that begin with `name` whose connection is gone;
-- returns their names. Queues that go by themselves, at once or within so many seconds, are not among them.
function contest.delete_ghosts(name, seconds)
  local ghosts, found, problem = {}, nil, nil
  pcall(until_true, function()
    local fine, dead = pcall(cluster.nodes[2].strings, cluster.nodes[2], DEAD, name)
    if fine then found = dead else problem = dead end
    return fine and #dead == 0
  end, seconds or 0)
  for _, ghost in ipairs(found or error(problem, 0)) do
    if pcall(cluster.nodes[2].ctl, cluster.nodes[2], "delete_queue", ghost) then table.insert(ghosts, ghost) end
  end
  return ghosts
end

--- Whether it can be acquired through every node, one after the other, and how long that took, or why not; and which
-- queues had to be deleted before.
function contest.is_free(kind, name)
  local fine, after = pcall(take_everywhere, kind, name)
  if fine or not cluster.has_khepri() then return fine, after, {} end
  local ghosts = contest.delete_ghosts(name)
  if #ghosts > 0 then fine, after = pcall(take_everywhere, kind, name) end
  return fine, after, ghosts
end

-- How many can be acquired at once: more than one if there are permits twice.
local function count(kind, name)
  local conns, locks = {}, {}
  for i = 1, 3 do
    conns[i] = assert(amqplocks.connect(cluster.nodes[i].url))
    table.insert(locks, (kinds.lock(conns[i], kind, name)(0.2, 0.1)))
  end
  for _, conn in ipairs(conns) do conn:close() end
  return #locks
end

--- Runs a contest; see the head of this file.
function contest.run(about)
  local names, crews, results = {}, {}, {}
  local home = assert(amqplocks.connect(cluster.nodes[about.home].url))
  for _, kind in ipairs(kinds.wanted()) do
    names[kind] = client.unique("cluster") .. "." .. kind
    kinds.make(home, kind, names[kind])
  end
  home:close()
  for kind, name in pairs(names) do crews[kind] = crew(about, kind, name) end
  local began = clock.now()
  local struck = about.strike() or began
  socket.sleep(about.seconds)
  about.recover()
  cluster.until_whole()
  socket.sleep(1) -- the news of a loss
  local whole = clock.now()
  socket.sleep(2)
  for kind, all in pairs(crews) do
    local said = contest.finish(all)
    results[kind] = sum_up(said, struck, whole)
    if kinds.is_judged_twice(kind) then contest.write_history(names[kind], said, kinds.is_permit(kind)) end
  end
  for kind, name in pairs(names) do
    local result = results[kind]
    result.fine, result.after, result.ghosts = contest.is_free(kind, name)
    result.count = result.fine and kind ~= "read" and count(kind, name) or nil
  end
  for kind, name in pairs(names) do
    results[kind].left = kinds.leftovers(cluster.nodes[1].url, kind, name)
    local conn = assert(amqplocks.connect(cluster.nodes[1].url))
    pcall(kinds.unmake, conn, kind, name)
    conn:close()
  end
  return results
end

return contest
