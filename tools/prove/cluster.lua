-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- `make prove-cluster`: three nodes, which are cut off, frozen, killed and stopped while locks are held through one
-- node and wanted through all. docs/proving.md describes what it shows; measurements are printed.
local cluster = require "tools.prove.three_nodes"
local contest = require "tools.prove.cluster_contest"
local kinds = require "tools.prove.cluster_kinds"
local process = require "spec.support.process"
local settings = require "tools.prove.settings"
local stories = require "tools.prove.cluster_stories"

local seconds = settings.seconds(os.getenv "SECONDS") or 0
local seed = settings.seed(os.getenv "SEED") or os.time()
local wanted = os.getenv "STORY" or ""
local failed, ghosts = 0, 0

-- STORY: words of a story's name; several, separated by commas. A story about one kind is told if that is wanted.
local function is_wanted(story)
  if story.kind and #kinds.wanted_of{ story.kind } == 0 then return false end
  if wanted == "" then return true end
  for words in wanted:gmatch "[^,]+" do
    if story.name:find(words, 1, true) then return true end
  end
end

-- A STORY that matches no story is an error; otherwise a run without stories would succeed.
local function check_story()
  local names = {}
  for i, story in ipairs(stories) do
    if is_wanted(story) then return end
    names[i] = "  " .. story.name
  end
  settings.refuse("no story's name contains %q; the stories are:\n%s", wanted, table.concat(names, "\n"))
end

io.stdout:setvbuf "line"

local function say(...) print((...):format(select(2, ...))) end

local function fail(...)
  failed = failed + 1
  say("  FAILED: " .. ..., select(2, ...))
end

local function time(value) return value and ("%.2f s"):format(value) or "-" end

local function tell(kind, result)
  local overlap = result.overlap > 0 and ("%.0f ms"):format(result.overlap * 1000) or "none"
  say("  %-13s overlap %-9s others in at %-9s told at %-9s %-8s verify %-8s release %-12s free again %-8s "
    .. "acquires: %s", kind, overlap, time(result.entered), time(result.told),
    result.code or "", result.asked or "-", result.let and ("%s %.1fs"):format(result.let, result.let_seconds) or "-",
    result.fine and time(result.after) or "NEVER", contest.words(result.none))
end

-- Ghosts (queues of dead connections) are a defect of RabbitMQ's that only an operator can repair. They break no
-- promise of this library.
local function note_ghosts(kind, names)
  ghosts = ghosts + #names
  if #names > 0 then
    say("  LEFT by RabbitMQ, and deleted by the operator, for %s: %s, of connections that are gone", kind,
      table.concat(names, " "))
  end
end

-- Checks what no cluster may do, and what this cluster promises. `tolerated`: an overlap of so many seconds is no
-- failure. `are_parted`: nodes were cut off or frozen.
local function judge(kind, result, tolerated, are_parted)
  if not result.fine then fail("%s cannot be acquired any more: %s", kind, result.after) end
  note_ghosts(kind, result.ghosts)
  for _, words in ipairs(result.falls) do fail("%s: a fencing token falls: %s", kind, words) end
  if result.count and result.count > 1 then fail("%d hold it at once, without a fault", result.count) end
  if result.left then fail("left of the %s lock: %s", kind, result.left) end
  if result.late > 0 and kinds.is_exclusive(kind) then
    fail("two processes held the %s lock for %.2f s when the cluster was whole again", kind, result.late)
  end
  if not kinds.is_exclusive(kind, are_parted) then return end
  if result.overlap > tolerated then fail("two processes held the %s lock at once", kind) end
  if result.misled > 0 then fail("verify() says that the %s lock is held, which somebody else has", kind) end
end

check_story()
settings.check("kind", kinds.wanted(), kinds.all)
process.clear()
contest.begin()
say("RabbitMQ %s, three nodes, metadata in %s", cluster.version, cluster.has_khepri() and "Khepri" or "Mnesia")
say("seed %d", seed)
math.randomseed(seed)
local began, round = contest.now(), 0
repeat
  round = round + 1
  for _, story in ipairs(stories) do
    if is_wanted(story) then
      say("%s", story.name)
      story.tell(say, fail, function(results, tolerated, are_parted)
        for _, kind in ipairs(kinds.names) do
          if results[kind] then
            tell(kind, results[kind])
            judge(kind, results[kind], tolerated or 0, are_parted)
          end
        end
      end, note_ghosts, seed + round)
    end
  end
until contest.now() - began >= seconds
process.clear()
process.remove_modules()
if ghosts > 0 then say("RabbitMQ left %d exclusive queues of dead connections behind", ghosts) end
if failed == 0 then
  say("prove-cluster: no promise was broken, in %d %s", round, round == 1 and "round" or "rounds")
else
  say("prove-cluster: FAILED, %d %s", failed, failed == 1 and "time" or "times")
end
os.exit(failed == 0 and 0 or 1)
