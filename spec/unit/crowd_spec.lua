-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Stories against the model broker, thousands: five processes want locks of one kind, and things happen to them. The
-- seed decides all of it. What must hold in each is in spec/support/model/watch.lua and at the end of crowd.lua.
--
--     AMQPLOCKS_STORY="death 17" make test SPEC=spec/unit/crowd_spec.lua       # one story again, all of it shown
--     AMQPLOCKS_STORY="death" make test SPEC=spec/unit/crowd_spec.lua          # all of its seeds, and no other story
--     AMQPLOCKS_SOAK=1 make test SPEC=spec/unit/crowd_spec.lua                 # fifty times as many
local Crowd = require "spec.support.model.crowd"

local unpack = table.unpack or unpack

-- loses_tokens: there may be fewer tokens than slots in the end, until somebody has rung for each that is missing. So
-- it is, too, where an administrator may die between the slots it makes and their tokens.
local BELL = { "purge", "surplus", "rubbish", "no bell", "new bell", "consumer timeout" }
local EVERYTHING = { "death", "lost holder", "lost prober", "alarm", "stranger", "robbed", "restart", "cut off",
  "stopped", unpack(BELL) }

local SEMAPHORE = {
  { name = "calm", text = "while nothing happens", seeds = 150, poll = 60, is_rung = true },
  { name = "shared", text = "twice in each process", seeds = 40, programs = 2, poll = 60, is_rung = true },
  { name = "callers", text = "by callers who share a session", seeds = 40, programs = 4, shares = true, poll = 60,
    is_rung = true },
  { name = "callers all", text = "by callers who share a session, while everything happens", seeds = 40, programs = 3,
    shares = true, troubles = EVERYTHING, count = 10, heartbeat = 2, loses_tokens = true },
  { name = "requests", text = "by requests that end as they like", seeds = 80, requests = true, programs = 3,
    loses_tokens = true },
  { name = "requests all", text = "by requests, while everything happens", seeds = 60, requests = true, programs = 2,
    troubles = EVERYTHING, count = 10, heartbeat = 2, loses_tokens = true },
  { name = "line", text = "in line, on a network that is near", seeds = 100, fair = 1, in_line = true,
    paces = Crowd.near, poll = 60, is_rung = true, waiting = { "for long" }, priorities = { 0 },
    letting_go = { "release" } },
  { name = "loss", text = "in line, though tokens are lost", seeds = 60, fair = 1, in_line = true, paces = Crowd.near,
    waiting = { "for long" }, priorities = { 0 }, letting_go = { "release" }, troubles = { "purge" }, poll = 1,
    loses_tokens = true },
  { name = "death", text = "while some of them are killed", seeds = 100, troubles = { "death" }, loses_tokens = true },
  { name = "lost", text = "while connections are lost", seeds = 100, troubles = { "lost holder", "lost prober" },
    loses_tokens = true },
  { name = "alarm", text = "while the broker has alarms", seeds = 80, troubles = { "alarm" }, loses_tokens = true },
  { name = "stranger", text = "while strangers hold slots too, and some are deaf", seeds = 80,
    troubles = { "stranger" }, deaf = 0.2, loses_tokens = true },
  { name = "robbed", text = "while an operator deletes their queues", seeds = 60, troubles = { "robbed" } },
  { name = "bell", text = "while the doorbell is broken", seeds = 150, troubles = BELL, loses_tokens = true },
  { name = "resize", text = "while administrators come, change the slots, and die", seeds = 80,
    troubles = { "resize" }, loses_tokens = true },
  { name = "restart", text = "while the broker is restarted", seeds = 80, count = 2, troubles = { "restart" },
    loses_tokens = true },
  { name = "cut", text = "while some are cut off or stopped", seeds = 100, heartbeat = 1, hold = 6,
    paces = Crowd.bad, troubles = { "cut off", "stopped" }, loses_tokens = true },
  { name = "all", text = "while everything happens at once", seeds = 100, heartbeat = 2, count = 12, deaf = 0.1,
    troubles = { "death", "lost holder", "lost prober", "alarm", "stranger", "robbed", "resize", "cut off", "stopped",
      unpack(BELL) }, loses_tokens = true },
}

local MUTEX = {
  { name = "mutex", text = "while nothing happens", seeds = 100, poll = 60, is_rung = true },
  { name = "mutex shared", text = "twice in each process", seeds = 40, programs = 2, poll = 60, is_rung = true },
  { name = "mutex callers", text = "by callers who share a session", seeds = 40, programs = 4, shares = true },
  { name = "mutex requests", text = "by requests, while everything happens", seeds = 60, requests = true, programs = 2,
    troubles = EVERYTHING, count = 10, heartbeat = 2 },
  { name = "mutex line", text = "in line, on a network that is near", seeds = 60, fair = 1, in_line = true,
    is_used = true, paces = Crowd.near, poll = 60, is_rung = true, waiting = { "for long" }, priorities = { 0 },
    letting_go = { "release" } },
  { name = "mutex death", text = "while some of them are killed", seeds = 80, troubles = { "death" } },
  { name = "mutex lost", text = "while connections are lost", seeds = 60, troubles = { "lost holder", "lost prober" } },
  { name = "mutex restart", text = "while the broker is restarted", seeds = 60, count = 2, troubles = { "restart" } },
  { name = "mutex cut", text = "while some are cut off or stopped", seeds = 60, heartbeat = 1, hold = 6,
    paces = Crowd.bad, troubles = { "cut off", "stopped" } },
  { name = "mutex bell", text = "while the doorbell is broken", seeds = 60, troubles = BELL },
  { name = "mutex all", text = "while everything happens at once", seeds = 80, heartbeat = 2, count = 12,
    troubles = EVERYTHING },
}

local RWLOCK = {
  { name = "rw", text = "while nothing happens", seeds = 100, poll = 60, is_rung = true, downgrades = 0.3 },
  { name = "rw shared", text = "twice in each process", seeds = 40, programs = 2, poll = 60, is_rung = true },
  { name = "rw callers", text = "by callers who share a session", seeds = 60, programs = 4, shares = true,
    downgrades = 0.3 },
  { name = "rw callers races", text = "by callers who share a session, while all are late", seeds = 100, count = 60,
    rounds = 8, hold = 0.01, programs = 2, shares = true, writers = 0.4, downgrades = 0.3, inner = 0.05,
    lags = { 0.05, 0.1 }, paces = { Crowd.near[1] }, troubles = { "hiccup" } },
  { name = "rw requests", text = "by requests, while everything happens", seeds = 60, requests = true, programs = 2,
    troubles = EVERYTHING, count = 10, heartbeat = 2, downgrades = 0.3 },
  { name = "rw death", text = "while some of them are killed", seeds = 80, troubles = { "death" }, downgrades = 0.3 },
  { name = "rw lost", text = "while connections are lost", seeds = 60, troubles = { "lost holder", "lost prober" },
    downgrades = 0.3 },
  { name = "rw restart", text = "while the broker is restarted", seeds = 60, count = 2, troubles = { "restart" },
    downgrades = 0.3 },
  { name = "rw cut", text = "while some are cut off or stopped", seeds = 60, heartbeat = 1, hold = 6,
    paces = Crowd.bad, troubles = { "cut off", "stopped" }, downgrades = 0.3 },
  { name = "rw forsaken", text = "while the broker is restarted and not all can hear of it", seeds = 100, count = 10,
    heartbeat = 4, hold = 2, paces = Crowd.near, troubles = { "cut off", "restart" }, writers = 0.5 },
  { name = "rw races", text = "while all are late, now and then", seeds = 250, count = 60, rounds = 8, hold = 0.01,
    writers = 0.4, downgrades = 0.3, inner = 0.05, lags = { 0.05, 0.1 }, paces = { Crowd.near[1] },
    troubles = { "hiccup" } },
  { name = "rw stale", text = "through different nodes, though connections are lost", seeds = 80, count = 12,
    troubles = { "death", "lost holder", "lost prober", "lost prober" }, downgrades = 0.3, stale = 0.2, hold = 0.2 },
  { name = "rw bell", text = "while the doorbell is broken", seeds = 60, troubles = BELL, downgrades = 0.3 },
  { name = "rw all", text = "while everything happens at once", seeds = 80, heartbeat = 2, count = 12,
    troubles = EVERYTHING, downgrades = 0.3 },
}

-- A permit that is lost cannot be replaced while anybody waits.
local IMPATIENT = { "a while", "at once", "and gives up" }
local TOKENS = {
  { name = "tokens", text = "while nothing happens", seeds = 100, poll = 60, is_rung = true },
  { name = "tokens shared", text = "twice in each process", seeds = 40, programs = 2, poll = 60, is_rung = true },
  { name = "tokens line", text = "in line", seeds = 60, in_line = true, poll = 60, is_rung = true,
    waiting = { "for long" }, priorities = { 0 }, letting_go = { "release" } },
  { name = "tokens death", text = "while some of them are killed", seeds = 80, troubles = { "death" }, is_rung = true },
  { name = "tokens lost", text = "while connections are lost", seeds = 60, troubles = { "lost holder", "lost prober" },
    is_rung = true },
  { name = "tokens restart", text = "while the broker is restarted", seeds = 60, count = 2, troubles = { "restart" },
    is_rung = true },
  { name = "tokens cut", text = "while some are cut off or stopped", seeds = 60, heartbeat = 1, hold = 6,
    paces = Crowd.bad, troubles = { "cut off", "stopped" }, is_rung = true },
  { name = "tokens long", text = "while the broker lets nobody hold one for so long", seeds = 60,
    troubles = { "too long", "stranger", "alarm" }, is_rung = true },
  { name = "tokens resize", text = "while administrators come, change their number, and die", seeds = 80,
    troubles = { "resize" }, is_rung = true, mends = true },
  { name = "tokens destroy", text = "while all is destroyed and made anew", seeds = 60, troubles = { "destroy" },
    is_rung = true },
  { name = "tokens repair", text = "while others take permits away, or bring more", seeds = 60,
    troubles = { "purge", "surplus", "rubbish" }, is_rung = true, surplus = true, mends = true, waiting = IMPATIENT },
  { name = "tokens all", text = "while everything happens at once", seeds = 80, heartbeat = 2, count = 12,
    troubles = { "death", "lost holder", "lost prober", "alarm", "stranger", "restart", "cut off", "stopped", "resize",
      "too long", "purge", "surplus", "rubbish" }, is_rung = true, surplus = true, mends = true, waiting = IMPATIENT },
}

local FACTOR = os.getenv "AMQPLOCKS_SOAK" and 50 or 1
local ONE_NAME, ONE_SEED = (os.getenv "AMQPLOCKS_STORY" or ""):match("^(.-) ?(%d*)$")
local SHOWN = 60  -- lines of a story that ended badly

local function play(story, seed, traced)
  local crowd = Crowd.new(seed, story, traced)
  local fine, err = pcall(crowd.play, crowd)
  if seed % 10 == 0 then collectgarbage() end  -- the sessions' memory is not Lua's, and so does not hurry it
  return crowd, not fine and err or nil
end

-- Told again, what was wrong comes with what went before.
local function fail(story, seed, err)
  local trace = play(story, seed, true).world.trace
  error(("AMQPLOCKS_STORY=%q: %s\n%s"):format(story.name .. " " .. seed, err,
    table.concat(trace, "\n", math.max(1, #trace - SHOWN))), 0)
end

local function play_all(story)
  local grants = 0
  for seed = 1, story.seeds * FACTOR do
    local crowd, err = play(story, seed)
    if err then fail(story, seed, err) end
    grants = grants + crowd.watch.grants
  end
  assert.is_true(grants > 5 * story.seeds * FACTOR, "only " .. grants .. " locks were taken")
end

local function show(story, seed)
  local crowd, err = play(story, seed, true)
  print(table.concat(crowd.world.trace, "\n"))
  assert.is_nil(err)
end

local function tell(kind, what, stories)
  for _, story in ipairs(stories) do
    story.kind = kind
    local is_wanted = ONE_NAME == "" or ONE_NAME == story.name
    if is_wanted and ONE_SEED ~= "" then
      it(story.name .. " " .. ONE_SEED .. " ends well", function () show(story, tonumber(ONE_SEED)) end)
    elseif is_wanted then
      it(("%s %s never share it, never sleep beside a free one, and leave nothing"):format(what, story.text),
        function () play_all(story) end)
    end
  end
end

describe("five processes that want", function ()
  tell("semaphore", "three slots", SEMAPHORE)
  tell("mutex", "a mutex", MUTEX)
  tell("tokens", "three permits", TOKENS)
  tell("rwlock", "to read or to write", RWLOCK)
end)
