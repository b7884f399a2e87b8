-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The library's locks beside other locks, on this machine and in this run: Redis, by a key that expires and by a token
-- in a list; etcd, by its lock service; PostgreSQL and MariaDB, by locks of a session. Servers that are not installed
-- are left out. Each client is a Lua process. Servers have their default settings, and all are told the same bound: a
-- holder that is silent for ten seconds has lost its lock. Among three nodes (`make bench-cluster`) only what is
-- replicated is compared, with three of etcd; all clients are at the first node.
local bare = require "bare"
local process = require "spec.support.process"
local rows = require "tools.bench.parts.rows"

local WAITERS, SECONDS, ROUNDS, SETTLED, HOLD = 16, 2.5, 2, 0.5, 0.002
local BOUND, DEATHS, STOPS, PATIENCE = 10, 5, 2, 20
local WORKER = "return require('tools.bench.rivals.worker').%s(...)"
local name = ("bench-%d"):format(os.time())

local conn = assert(require("amqplocks").connect())
local raw = bare.connect(os.getenv "AMQP_URL")

-- What is compared ---------------------------------------------------------------------------------------------------

-- `lingers`: the lock of a killed holder is not free at once.
local in_cluster = os.getenv "CLUSTER_URLS" ~= nil
local all = in_cluster and {
  { label = "mutex for clusters", module = "ours", more = "quorum_mutex" },
  { label = "mutex", module = "ours", more = "mutex" },
  { label = "etcd, lock service", module = "etcd", lingers = true, nodes = 3 },
} or {
  { label = "fast mutex", module = "ours", more = "fast_mutex" },
  { label = "mutex", module = "ours", more = "mutex" },
  { label = "mutex, retained", module = "ours", more = "retained_mutex" },
  { label = "slot", module = "ours", more = "semaphore" },
  { label = "permit", module = "ours", more = "token_semaphore" },
  { label = "Redis, tries again in 0.2 s", module = "redis", more = "again", lingers = true },
  { label = "Redis, told by pub/sub", module = "redis", more = "told", lingers = true },
  { label = "Redis, token by BLPOP", module = "redis", more = "tokens", lingers = true },
  { label = "etcd, lock service", module = "etcd", lingers = true },
  { label = "PostgreSQL, advisory lock", module = "postgres" },
  { label = "MariaDB, GET_LOCK", module = "mariadb" },
}

local servers, kinds, versions = {}, {}, {}

for _, kind in ipairs(all) do
  if kind.module ~= "ours" then
    if servers[kind.module] == nil then
      local server, missing = require("tools.bench.rivals." .. kind.module).start(kind.nodes)
      servers[kind.module] = server or false
      table.insert(versions, missing or server.version)
    end
    kind.server = servers[kind.module]
  end
  if kind.module == "ours" or kind.server then table.insert(kinds, kind) end
end

print("beside: " .. table.concat(versions, ", "))

-- A fast mutex fails while the plain mutex of its name is held. So no two kinds use one name.
local function full_name(kind, suffix) return ("%s-%s-%s-%s"):format(name, kind.module, tostring(kind.more), suffix) end

-- The name of this kind's locks.
local function lock_name(kind, suffix)
  local this = full_name(kind, suffix)
  if kind.more == "semaphore" then assert(conn:admin(this):resize(1)) end
  if kind.more == "token_semaphore" then assert(conn:token_semaphore(this):resize(1)) end
  return this
end

local function clear_away(kind, suffix)
  local this = full_name(kind, suffix)
  if kind.more == "fast_mutex" or kind.more == "quorum_mutex" then raw:delete(this .. "-fastmutex") end
  if kind.more == "semaphore" then assert(conn:admin(this):destroy()) end
  if kind.more == "token_semaphore" then assert(conn:token_semaphore(this):destroy()) end
end

local function address(kind) return kind.server and kind.server.address or os.getenv "AMQP_URL" end

-- A process begins an operation on a lock; this does not wait for the end.
local function begin(one, what, kind, suffix)
  return one:begin(WORKER:format(what), kind.module, address(kind), lock_name(kind, suffix), BOUND, kind.more)
end

local function milliseconds(seconds)
  if not seconds then return "none" end
  return seconds == math.huge and ("> %d"):format(PATIENCE * 1e3) or ("%.2f"):format(seconds * 1e3)
end

local function heading(words, ...)
  print(("\n%s\n%-30s" .. ("%14s"):rep(select("#", ...))):format(words, "", ...))
end

local function line(kind, ...) print(("%-30s" .. ("%14s"):rep(select("#", ...))):format(kind.label, ...)) end

-- Without contention -------------------------------------------------------------------------------------------------

local function uncontended()
  local TIMES, open, times = 20, {}, {}
  for i, kind in ipairs(kinds) do
    local module = require("tools.bench.rivals." .. kind.module)
    open[i], times[i] = module.open(address(kind), lock_name(kind, "alone"), BOUND, kind.more), {}
  end
  for round = 0, rows.rounds do
    for i, lock in ipairs(open) do
      local took = rows.seconds(function()
        for _ = 1, TIMES do
          lock:acquire()
          lock:release()
        end
      end)
      if round > 0 then times[i][round] = took / TIMES end
    end
  end
  heading("uncontended: acquire + release, ms", "median", "quartiles", "/ mutex")
  local mutex
  for i, kind in ipairs(kinds) do mutex = kind.more == "mutex" and rows.median(times[i]) or mutex end
  for i, kind in ipairs(kinds) do
    local median = rows.median(times[i])
    for j, took in ipairs(times[i]) do times[i][j] = took * 1e3 end
    line(kind, milliseconds(median), rows.spread(times[i], "%.2f"), ("%.2f"):format(median / mutex))
    open[i]:close()
    clear_away(kind, "alone")
  end
end

-- The same beside what a message of a quorum queue costs at least, without a proof. The budget is what the proof's five
-- round trips to the queue cost beside two.
local function beside_bare()
  local TIMES, permits, mutex = 20, conn:token_semaphore(name), conn:fast_mutex(name, { queue_type = "quorum" })
  assert(permits:create(1, { queue_type = "quorum" }))
  rows.ratio("mutex for clusters / consume + cancel and nack", 4, TIMES, function()
    for _ = 1, TIMES do assert(assert(mutex:acquire()):release()) end
  end, function() raw:take_nack(name .. ".semaphore", TIMES) end)
  assert(permits:destroy())
  raw:delete(name .. "-fastmutex")
end

-- Sixteen processes compete -------------------------------------------------------------------------------------------

local workers, path = {}, os.tmpname()

-- The times at which each process held the lock, in order; fails if two held it at once.
local function intervals(kind)
  local list = {}
  for i, one in ipairs(workers) do
    for got, released in one:finish(60):gmatch "(%S+) (%S+)" do
      table.insert(list, { got = tonumber(got), released = tonumber(released), who = i })
    end
  end
  table.sort(list, function(a, b) return a.got < b.got end)
  for i = 2, #list do assert(list[i].got >= list[i - 1].released, kind.label .. ": two held it at the same time") end
  return list
end

-- All intervals, and the times between which they count.
local function contend(kind, suffix, hold)
  for _, one in ipairs(workers) do begin(one, "prepare", kind, suffix) end
  for _, one in ipairs(workers) do one:finish() end
  local start = bare.now() + 0.1
  local counted = start + SETTLED
  local finish = counted + SECONDS
  for _, one in ipairs(workers) do one:begin(WORKER:format "contend", start, finish, hold, path) end
  local list = intervals(kind)
  clear_away(kind, suffix)
  return list, counted, finish
end

-- From the beginning of a release until the next process holds the lock.
local function hand_overs(times, list, counted, finish)
  for i = 2, #list do
    if list[i].got >= counted and list[i].got < finish then table.insert(times, list[i].got - list[i - 1].released) end
  end
end

local function handed_over()
  local times = {}
  for i = 1, #kinds do times[i] = {} end
  for round = 1, ROUNDS do
    for i, kind in ipairs(kinds) do hand_overs(times[i], contend(kind, "queue-" .. round, HOLD)) end
  end
  heading(("%d wait, each holds it for %.0f ms: from release until the next holds, ms"):format(WAITERS, HOLD * 1e3),
    "median", "p99", "a second")
  for i, kind in ipairs(kinds) do
    line(kind, milliseconds(rows.median(times[i])), milliseconds(rows.quantile(times[i], 0.99)),
      ("%.0f"):format(#times[i] / SECONDS / ROUNDS))
  end
end

-- Acquisitions per second, how many processes took part, and the longest time that one of them did not hold the lock.
local function speed(list, counted, finish)
  local count, served, last, longest = 0, 0, {}, 0
  for _, one in ipairs(list) do
    if one.got >= counted and one.got < finish then
      count = count + 1
      if not last[one.who] then served = served + 1 end
      longest = math.max(longest, one.got - (last[one.who] or counted))
      last[one.who] = one.got
    end
  end
  for i = 1, #workers do longest = math.max(longest, finish - (last[i] or counted)) end
  return ("%.0f"):format(count / SECONDS), ("%d"):format(served), milliseconds(longest)
end

local function at_full_speed()
  heading(("%d processes at full speed, nothing in between; waits in ms"):format(#workers), "a second", "served",
    "longest wait")
  for _, kind in ipairs(kinds) do line(kind, speed(contend(kind, "speed", 0))) end
end

local function contended()
  for i = 1, WAITERS + 1 do workers[i] = process.start() end
  handed_over()
  at_full_speed()
  process.clear()
end

-- The holder dies, or is silent ---------------------------------------------------------------------------------------

-- Seconds from the strike until the waiter held the lock; math.huge: it still waited after PATIENCE seconds.
local function waited(one)
  while not one.waiter:finished() do
    if bare.now() > one.at + PATIENCE then return math.huge end
    bare.sleep(0.05)
  end
  return one.waiter:finish() - one.at
end

-- Stopped processes do not notice the end of the bench. This guard does, and kills those that are still stopped.
local GUARD = [[
  bench=$1; shift
  setsid sh -c 'tail -f /dev/null --pid="$0"; for pid; do
    grep -qs "^State:.T" "/proc/$pid/status" && kill -KILL "$pid"
  done' "$bench" "$@" </dev/null >/dev/null 2>&1 &
]]

local function guard(list)
  local pids = {}
  for i, one in ipairs(list) do pids[i] = tostring(one.holder.pid) end
  process.shell("bash", "-c", process.LAUNCH, "launch", "sh", "-c", GUARD, "sh", tostring(process.id()),
    (table.unpack or unpack)(pids))
end

-- All holders, or waiters, do this at the same time.
local function together(list, who, what)
  for _, one in ipairs(list) do begin(one[who], what, one.kind, one.suffix) end
  for _, one in ipairs(list) do one[who]:finish() end
end

-- A holder and a waiter for each entry of the list; the holders are struck, one right after the other. Adds to each
-- kind's times how long it took until the waiter held the lock. Times to live begin with `hold`: all is ready before.
local function strike(times, list, signal)
  for _, one in ipairs(list) do one.holder, one.waiter = process.start(), process.start() end
  if signal == bare.stop then guard(list) end
  together(list, "waiter", "prepare")
  together(list, "holder", "hold")
  for _, one in ipairs(list) do one.waiter:begin(WORKER:format "wait") end
  bare.sleep(SETTLED)
  for _, one in ipairs(list) do
    one.at = bare.now()
    signal(one.holder.pid)
  end
  for _, one in ipairs(list) do
    times[one.kind] = times[one.kind] or {}
    table.insert(times[one.kind], waited(one))
  end
  process.clear()
  for _, one in ipairs(list) do clear_away(one.kind, one.suffix) end
end

-- The entries of `count` strikes for each kind for which `wanted` is true; `what` is part of their locks' names.
local function entries(what, wanted, count)
  local list = {}
  for _, kind in ipairs(kinds) do
    for i = 1, wanted(kind) and count or 0 do table.insert(list, { kind = kind, suffix = what .. i }) end
  end
  return list
end

-- Holders whose locks linger are killed all at once, the others one by one.
local function deaths()
  local times = {}
  for _, one in ipairs(entries("dies-", function(kind) return not kind.lingers end, DEATHS)) do
    strike(times, { one }, bare.kill)
  end
  strike(times, entries("dies-", function(kind) return kind.lingers end, DEATHS), bare.kill)
  return times
end

local function stops()
  local times = {}
  strike(times, entries("stops-", function() return true end, STOPS), bare.stop)
  return times
end

local function lost()
  local killed, stopped = deaths(), stops()
  heading(("a holder ends: until the next holds, ms; bound for a silent one: %d s"):format(BOUND), "SIGKILL", "worst",
    "SIGSTOP")
  for _, kind in ipairs(kinds) do
    line(kind, milliseconds(rows.median(killed[kind])), milliseconds(rows.quantile(killed[kind], 1)),
      milliseconds(rows.median(stopped[kind])))
  end
end

uncontended()
if in_cluster then beside_bare() end
contended()
lost()
raw:close()
conn:close()
os.remove(path)
for _, one in pairs(servers) do
  if one then one:stop() end
end
