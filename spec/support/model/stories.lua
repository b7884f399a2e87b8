-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The stories: simulated runs against the model broker. In each, five processes acquire locks of one kind, and faults
-- occur.
--
--     for _, story in ipairs(stories.all) do … end   -- { name =, kind =, what =, text =, seeds =, … }
--     local crowd, err = stories.play(story, 17)     -- err: what was wrong; nil if it ended well
--
-- A story's other fields are the options of crowd.lua. `seeds` is how many seeds the specs play, from `first` (1) on.
-- `often` is how many seeds tools/prove/breakages plays in a turn (1): more for stories about rare events. watch.lua
-- and the end of crowd.lua check what must hold in each story.
local Crowd = require "spec.support.model.crowd"

local unpack = table.unpack or unpack

local stories = { all = {} }

local BELL = { "purge", "surplus", "rubbish", "no bell", "new bell", "consumer timeout" }
local EVERYTHING = { "death", "dies claiming", "lost holder", "lost prober", "alarm", "stranger", "robbed", "restart",
  "cut off", "stopped", "stall", unpack(BELL) }

-- For waiters that would otherwise wait for ever for a slot that is deleted, or lost.
local IMPATIENT = { "a while", "at once", "and gives up" }
local NEAR = { Crowd.near[1] }

-- Stories of several kinds, by what follows the kind in their names: what happens, and options.
local COMMON = {
  [""] = { "while nothing happens", poll = 60, is_rung = true, seeds = 4 },
  shared = { "twice in each process", programs = 2, poll = 60, is_rung = true },
  callers = { "by callers who share a session", programs = 4, shares = true },
  ["callers all"] = { "by callers who share a session, while everything happens", programs = 2, shares = true,
    troubles = EVERYTHING, count = 10, heartbeat = 2 },
  line = { "in line", fair = 1, in_line = true, paces = Crowd.near, poll = 60, is_rung = true,
    waiting = { "for long" }, priorities = { 0 }, letting_go = { "release" } },
  death = { "while some of them are killed", troubles = { "death" } },
  orphans = { "while some of them die as they claim", workers = 8, version = "3.10.8", rounds = 5, count = 60,
    hold = 0.2, poll = 0.1, lags = { 0.5 }, paces = Crowd.near, waiting = { "for long" },
    troubles = { "dies claiming" } },
  bolts = { "while an operator deletes their bolts", version = "3.10.8", count = 60, hold = 0.2,
    troubles = { "no bolt" } },
  lost = { "while connections are lost", troubles = { "lost holder", "lost prober" } },
  settle = { "that settles when it was not released", settle = 3, rounds = 5, hold = 0.2, count = 10,
    troubles = { "death", "dies claiming", "lost holder", "lost prober" } },
  bell = { "while the doorbell is broken", troubles = BELL },
  ["dead bell"] = { "while the node of the bell is dead", count = 12, hold = 0.3, seeds = 3, troubles = { "dead bell" },
    is_dead = true },
  denied = { "while they may not consume, now and then", count = 10, rounds = 6, troubles = { "denied" } },
  silent = { "while a queue that none of them wants does not answer", troubles = { "silent queue" },
    is_silenced = true },
  nodes = { "through different nodes, though connections are lost", nodes = 3, stale = 0.2, count = 12, hold = 0.2,
    troubles = { "death", "lost holder", "lost prober" } },
  again = { "again and again", workers = 4, rounds = 40, hold = 0.01, channels = 8,
    troubles = { "death", "lost prober", "stranger" }, seeds = 1 },
  news = { "while they hear late that queues are gone", rounds = 10, hold = 0.01, notice = 0.1 },
  resize = { "while administrators come, change their number, and die", troubles = { "resize" } },
  restart = { "while the broker is restarted", count = 2, troubles = { "restart" } },
  stopping = { "while the broker is told to stop, and takes its time", rounds = 10, hold = 0.01, count = 2,
    troubles = { "stopping" } },
  cut = { "while some are cut off or stopped", heartbeat = 1, hold = 6, paces = Crowd.bad,
    troubles = { "cut off", "stopped" } },
  late = { "while answers are late, and some never come", heartbeat = 1, hold = 6, count = 20, paces = Crowd.bad,
    troubles = { "stall", "cut off" } },
  stall = { "while the network keeps things back", troubles = { "stall" } },
  seldom = { "seldom, by the same object each time", workers = 3, rounds = 40, hold = 0.05, idle = 2, fair = 0,
    poll = 1, count = 12, same_object = true, waiting = { "for long", "at once", "at once" },
    troubles = { "death", "dies claiming", "lost holder", "lost prober", "stranger", "robbed", "alarm", "stall" } },
  long = { "while the broker lets nobody hold one for so long", troubles = { "too long", "stranger", "alarm" } },
  fenced = { "with numbers, while some are killed or stopped", fenced = true, heartbeat = 1, hold = 0.1, rounds = 6,
    count = 30, paces = { Crowd.near[1], Crowd.far[1] },
    troubles = { "death", "stopped", "stopped", "dies making", "no fence", "moved fence" } },
  ["at once"] = { "all of them several", gathers = 1, rounds = 6, hold = 0.2, idle = 0.1, poll = 60, is_rung = true,
    waiting = { "for long" } },
  limit = { "and more than there are", most = 5 },
  races = { "while all are late, now and then", count = 60, rounds = 8, hold = 0.01, lags = { 0.05, 0.1 },
    inner = 0.05, paces = NEAR, troubles = { "hiccup" }, writers = 0.4 },
  destroy = { "while all is destroyed and made anew", troubles = { "destroy" } },
  stopped = { "while they are stopped, again and again", often = 4, heartbeat = 1, hold = 2, count = 40,
    troubles = { "stopped" }, waiting = { "for long" } },
  ["far and stopped"] = { "while they are stopped, again and again", heartbeat = 1, rounds = 10, hold = 0.1,
    count = 120, paces = Crowd.far, troubles = { "stopped" } },
  all = { "while everything happens at once", heartbeat = 2, count = 12, troubles = EVERYTHING, seeds = 4 },
}

-- Adds stories of a family: the names of those that are as above, and { name, what happens, options }. `like`: such a
-- one is as another one above; false: as none.
local function add(family, list)
  for _, own in ipairs(list) do
    if type(own) == "string" then own = { own } end
    local common, story = COMMON[own.like == nil and own[1] or own.like] or {}, { seeds = 2 }
    for _, options in ipairs{ common, family, own } do
      for key, value in pairs(options) do story[key] = value end
    end
    local text = own[2] or common[1]
    story.name = (family.prefix .. " " .. own[1]):match "^ *(.-) *$"
    story.text = family.text and family.text .. ", " .. text or text
    story[1], story[2], story.like = nil, nil, nil
    table.insert(stories.all, story)
  end
end

local function with(options, more)
  local all = {}
  for _, some in ipairs{ options, more } do
    for key, value in pairs(some) do all[key] = value end
  end
  return all
end

-- Slots. loses_tokens: at the end there may be fewer tokens than slots, until a client has rung (published a token) for
-- each that is missing. The same goes for stories in which an administrator may die between creating slots and their
-- tokens. spare: each process may have rung once for a lock that it held without a token; a waiter that waits in vain
-- removes superfluous tokens.
add({ kind = "semaphore", what = "three slots", prefix = "", loses_tokens = false }, {
  "line", "bolts", "silent", "stopping", "stall",
  { "calm", like = "", spare = 5 },
  { "shared", often = 3 },
  { "callers", poll = 60, is_rung = true },
  { "robbed", "while an operator deletes their queues", troubles = { "robbed" } },
  { "again", spare = 4 },
  { "news", spare = 5 },
})
add({ kind = "semaphore", what = "three slots", prefix = "", loses_tokens = true }, {
  "bell", "death", "lost", "dead bell", "resize", "denied", "nodes", "restart", "cut", "late", "fenced",
  { "callers all", programs = 3, seeds = 3 },
  { "loss", "in line, though tokens are lost", like = "line", is_rung = false, troubles = { "purge" }, poll = 1 },
  { "orphans", slots = 1 },
  { "orphans beside", "while some of them die as they claim, and other slots are free", like = "orphans", often = 2,
    count = 120, hold = 6, slots = 3, seeds = 3 },
  { "orphans asked", "while some of them die as they claim, and administrators ask", like = "orphans", workers = 6,
    count = 120, hold = 2, troubles = { "dies claiming", "dies claiming", "inquiry" }, slots = 1, first = 3 },
  { "alarm", "while the broker has alarms", troubles = { "alarm" } },
  { "stranger", "while strangers hold slots too, and some are deaf", troubles = { "stranger" }, deaf = 0.2 },
  { "asked", "while administrators ask, and change the slots", count = 30, waiting = IMPATIENT,
    troubles = { "inquiry", "inquiry", "inquiry", "resize" } },
  { "down", "while slots are out of reach, and administrators ask, and change them", count = 30, hold = 1,
    waiting = IMPATIENT, troubles = { "slot down", "slot down", "inquiry", "resize" } },
  { "nodes asked", "through nodes that are far behind, while administrators ask, and change the slots", nodes = 3,
    stale = 2, count = 30, troubles = { "inquiry", "inquiry", "resize", "lost prober" }, waiting = IMPATIENT,
    hold = 0.5 },
  { "stopped", like = "far and stopped" },
  { "fenced all", "with numbers, while everything happens at once", fenced = true, heartbeat = 2, count = 16,
    troubles = { "lost fence", "cut fence", "no fence", unpack(EVERYTHING) } },
  { "all", deaf = 0.1, troubles = { "inquiry", "stall", "death", "lost holder", "lost prober", "alarm", "stranger",
    "robbed", "resize", "cut off", "stopped", unpack(BELL) } },
})

-- Several slots at once. Two who gather never wait for each other, and nothing is kept of those that a dead one had.
local MANY = { kind = "semaphore", what = "slots", prefix = "many", text = "some of them several at once",
  gathers = 0.4 }
add(MANY, {
  "", "shared", "limit",
  { "callers", programs = 3, gathers = 0.3, slots = 5 },
  { "line", slots = 5, rounds = 8 },
  { "at once", gathers = 1 },
  { "robbed", "while an operator deletes their queues", count = 20, hold = 0.2,
    troubles = { "robbed", "robbed gathering" } },
})
add(with(MANY, { loses_tokens = true }), {
  "callers all", "lost", "cut",
  { "death", rounds = 6, count = 20, hold = 0.2, troubles = { "death", "dies claiming" } },
  { "resize", count = 12, hold = 0.2, rounds = 6 },
  "stall", -- a client that takes a late bell for absent rings for none of its slots
  { "all", deaf = 0.1 },
})

add({ kind = "mutex", what = "a mutex", prefix = "mutex" }, {
  "", "shared", "callers", "callers all", "death", "orphans", "bolts", "lost", "restart", "cut", "bell", "dead bell",
  "silent", "stall", "nodes", "again", "seldom", "news", "all",
  { "line", is_used = true },
  { "retained", "that sessions keep after the release", retain = 0.5, workers = 4, rounds = 30, hold = 0.02, idle = 0.2,
    count = 10, poll = 1, paces = NEAR, waiting = { "for long", "at once" },
    troubles = { "death", "dies claiming", "lost holder", "lost prober", "stranger", "alarm", "stall" } },
  { "retained callers", "that sessions keep, by callers who share a session", retain = 0.5, workers = 3, programs = 3,
    shares = true, rounds = 20, hold = 0.02, idle = 0.2, paces = NEAR, waiting = { "for long", "at once" },
    troubles = { "death", "stopped", "cut off" }, heartbeat = 1, count = 10 },
  { "retained long", "that a session would keep for longer than the others have time", retain = 90, seconds = 60,
    workers = 3, rounds = 10, hold = 0.02, idle = 0.2, paces = NEAR, waiting = { "for long" },
    troubles = { "lost holder" }, count = 4 },
  { "retained line", "that some would keep for long, while waiters hardly ever look by themselves", spared = "a",
    retain = 90, seconds = 60, poll = 60, workers = 5, rounds = 10, hold = 0.05, idle = 0.1, paces = NEAR,
    waiting = { "for long" }, troubles = { "lost holder" }, count = 4, version = "4.3.0" },
  { "settle retained", "that settles, and that sessions keep after the release", like = "settle", retain = 0.5 },
  { "settle", troubles = { "death", "dies claiming", "lost holder", "lost prober", "robbed", "alarm", "stall" } },
  { "killed", "while holders are killed, and no waiter may waste the token", often = 2, version = "3.10.8",
    is_used = true, workers = 3, rounds = 5, hold = 2, count = 40, paces = NEAR, poll = 60, is_rung = true,
    waiting = { "for long" }, troubles = { "death" } },
  { "stopping", rounds = 20, count = 4, version = "4.3.0" },
  { "late", rounds = 5 },
  { "silent callers", "by callers who share a session, while a queue that none of them wants does not answer",
    like = "silent", shares = true, programs = 2 },
})
add({ kind = "mutex", what = "a mutex with numbers", prefix = "mutex fenced", fenced = true }, {
  "",
  { "death", count = 10, troubles = { "death", "dies making", "no fence" } },
  { "moved", "while the message that counts is moved away and back", count = 20, rounds = 8,
    troubles = { "moved fence", "moved fence", "death", "dies making" } },
  { "stopped", "while some of them are stopped", like = "fenced", rounds = 8, count = 60,
    troubles = { "stopped", "stopped", "no fence" } },
  { "making", "while makers are stopped between declare and publish", like = "fenced", rounds = 8, count = 40,
    troubles = { "stopped making", "stopped making", "no fence" } },
  { "lost", heartbeat = 2, count = 20, troubles = { "lost holder", "lost prober", "lost fence", "cut fence" } },
  { "robbed", "while an operator deletes the mutex as they draw", rounds = 8, hold = 0.01, count = 60, paces = NEAR,
    troubles = { "robbed drawing" } },
  { "callers", programs = 2, heartbeat = 60, troubles = { "death", "lost fence", "no fence" } },
})

-- A lost permit cannot be replaced while there are waiters.
local TOKENS = { kind = "tokens", what = "three permits", prefix = "tokens", is_rung = true }
add(TOKENS, {
  "", "shared", "death", "lost", "restart", "cut", "late", "long", "stall", "again", "stopped", "destroy",
  { "beside", "of a quorum queue, beside another lock of the same session", queue_types = { "quorum" },
    beside = true },
  { "line", fair = false, paces = false },
  { "resize", mends = true },
  { "asked", "while administrators ask, and change their number", count = 30,
    troubles = { "inquiry", "inquiry", "inquiry", "resize" }, mends = true },
  { "repair", "while others take permits away, or bring more", troubles = { "purge", "surplus", "rubbish" },
    surplus = true, mends = true, waiting = IMPATIENT },
  { "nodes", "through different nodes, while administrators ask, change their number, and die",
    troubles = { "death", "lost holder", "inquiry", "resize" }, mends = true },
  { "all", surplus = true, mends = true, waiting = IMPATIENT,
    troubles = { "death", "lost holder", "lost prober", "alarm", "stranger", "restart", "cut off", "stopped", "resize",
      "inquiry", "stall", "too long", "purge", "surplus", "rubbish" } },
})
add(with(TOKENS, { what = "permits with numbers", prefix = "tokens fenced", fenced = true, rounds = 8,
  queue_types = { "quorum" } }), {
  { "", hold = 0.1, idle = 0.1 },
  { "death", "while some are killed, stopped or cut off", heartbeat = 1, hold = 0.2, count = 40,
    troubles = { "death", "lost holder", "stopped", "cut off", "too long", "stranger" } },
  { "beside", "beside another lock of the same session", beside = true, hold = 0.1 },
  { "restart", count = 3, hold = 0.2 },
  { "resize", hold = 0.2, count = 12, slots = 1, mends = true },
  { "destroy", slots = 1, hold = 0.1 },
})
add(with(TOKENS, { what = "permits", prefix = "tokens many", text = "some of them several at once", gathers = 0.4 }), {
  "",
  { "line", slots = 5, rounds = 8, paces = false },
  { "at once", gathers = 1 },
  { "death", rounds = 6, count = 20, hold = 0.2 },
  { "limit", seeds = 3, is_rung = false },
  { "resize", count = 12, hold = 0.2, rounds = 6, mends = true, waiting = IMPATIENT },
  { "all", waiting = IMPATIENT, is_rung = false,
    troubles = { "death", "lost holder", "lost prober", "robbed gathering", "stranger", "restart", "cut off", "stopped",
      "stall", "too long" } },
})

-- Fast mutexes. is_rung: waiters are served by the broker, without a ring (the publishing of a token) after `poll`.
-- This is so where the queue has its token from the beginning (is_used), and none is taken away. If there is no queue,
-- the client that declares it rings at once, unless it gives up or dies before. During an alarm nobody can ring, so no
-- story has alarms and loses tokens.
local FAST = { kind = "fast_mutex", what = "a fast mutex", prefix = "fast", same_object = true }
add(with(FAST, { is_used = true, poll = 60, is_rung = true }), {
  "", "shared", "callers", "death",
  { "line", fair = false, paces = false },
  { "tries", "mostly at once, or for a moment", rounds = 10, hold = 0.01,
    waiting = { "at once", "at once", "a while", "and gives up", "for long" } },
  { "alarm", "while the broker has alarms", troubles = { "alarm", "death" } },
  { "new", "of which nobody has made the queue", is_used = false, seeds = 4,
    waiting = { "for long", "for long", "at once" } },
  { "new nodes", "of which nobody has made the queue, through different nodes", is_used = false, nodes = 3,
    stale = 0.2, waiting = { "for long", "for long", "at once" } },
})
add(FAST, {
  "lost", "cut", "stopped",
  "settle",
  { "restart", rounds = 5, count = 3 },
  { "late", rounds = 6 },
  { "long", troubles = { "too long", "death" } },
  { "strangers", "while strangers take tokens away, and bring more", count = 12,
    troubles = { "purge", "surplus", "rubbish", "stranger" } },
  { "purged", "while the queue is purged, and probers are lost", count = 20, hold = 0.2, rounds = 6,
    troubles = { "purge", "purge", "death", "lost prober" } },
  { "robbed", "while strangers take the token from those who wait, and probers are lost", workers = 3, count = 120,
    rounds = 4, hold = 2, poll = 1, waiting = { "for long" },
    troubles = { "stranger", "lost prober", "lost prober" } },
  { "deleted", "while the queue is deleted", troubles = { "queue deleted" } },
  { "foreign", "while other software has its queue, in another shape", rounds = 20, hold = 0.1, count = 30,
    troubles = { "foreign queue" } },
  { "news", troubles = { "queue deleted" } },
  -- Before 4.0 a role that passes by a cancel, while a token is ready, wakes nobody before the nack of the client that
  -- has cancelled, and rings are refused. That client may be kept waiting for long.
  { "stall", version = "4.3.0" },
  { "nodes", rounds = 6, count = 24 },
  { "again", troubles = { "death", "lost prober", "surplus" } },
  { "all", rounds = 8, count = 20, waiting = IMPATIENT,
    troubles = { "death", "lost holder", "lost prober", "stranger", "restart", "cut off", "stopped", "stall",
      "too long", "purge", "surplus", "rubbish", "queue deleted" } },
})

-- Mutexes of quorum queues. A lock that is lost unseen is passed on after a quarter of a minute.
add({ kind = "quorum_mutex", what = "a quorum mutex", prefix = "quorum", version = "4.3.6", poll = 60, nodes = 3,
  seconds = 3600, workers = 4, hold = 12, is_used = true, paces = NEAR,
  letting_go = { "release", "release", "drop", "verify" } }, {
  "",
  { "death", rounds = 5 },
  { "tries", "mostly at once, or for a moment", rounds = 10, hold = 3,
    waiting = { "at once", "at once", "a while", "and gives up", "for long" } },
  { "new", "of which nobody has made the queue", is_used = false, rounds = 5 },
  { "cut", "while nodes are cut off", rounds = 5, count = 10, troubles = { "partition", "partition", "death" } },
  { "cut twice", "while nodes are cut off, and leaders move", often = 3, rounds = 5, count = 10,
    is_doubled = true, poll = 20, troubles = { "partition", "partition", "death" } },
  { "clocks", "while clocks differ, nodes are cut off, and clients end", often = 3, rounds = 8, count = 40, poll = 20,
    cuts = { 14 }, troubles = { "clock", "partition" } },
  { "cut in time", "while nodes are cut off in the middle of a proof", seeds = 3, often = 3, rounds = 3, count = 10,
    hold = 60, cuts = { 14 }, notices = { 0.1 }, is_doubled = true, poll = 20, waiting = { "for long" },
    troubles = { "partition in time" } },
  { "stale", "while what one node delivers is far behind", often = 3, rounds = 8, count = 40, hold = 3,
    cuts = { 1, 5 }, notices = { 0.1 }, lags_for = 120, is_doubled = true, poll = 20, waiting = { "for long" },
    troubles = { "partition", "partition in time", "lag" } },
  { "two tokens", "while nodes are cut off, and there is a token more", seeds = 3, often = 4, rounds = 3, count = 20,
    hold = 60, cuts = { 14 }, notices = { 0.1 }, is_doubled = true, poll = 20, waiting = { "for long" },
    troubles = { "partition in time", "partition", "another token" } },
  { "all", rounds = 5, count = 12, is_doubled = true, keeps_time = true, poll = 20,
    troubles = { "partition", "partition", "lag", "no majority", "death", "lost holder", "lost prober", "stopped" } },
})

add({ kind = "rwlock", what = "to read or to write", prefix = "rw", downgrades = 0.3 }, {
  "", "shared", "callers", "callers all", "denied", "death", "lost", "restart", "stopping", "cut", "bell",
  "dead bell", "stall", "again", "news", "all",
  { "fenced", writers = 0.5 },
  { "callers races", "by callers who share a session, while all are late", like = "races", programs = 2,
    shares = true, version = "4.3.0", seeds = 4 },
  { "silent", count = 12, writers = 0.7 },
  { "nodes", often = 6 },
  { "orphans", first = 30, often = 3, rounds = 10, hold = 0.4, writers = 0.8 },
  { "bolts", writers = 0.6 },
  { "forsaken", "while the broker is restarted and not all can hear of it", seeds = 8, count = 10, heartbeat = 4,
    hold = 2, paces = Crowd.near, troubles = { "cut off", "restart" }, writers = 0.5, downgrades = 0 },
  { "races", seeds = 8 },
  { "stopped", like = "far and stopped", writers = 0.6, downgrades = 1, nods = true },
  { "downgrades", "to become readers, while all are late", like = "races", rounds = 20, writers = 0.6,
    downgrades = 1, version = "4.3.0" },
  { "robbed", "to become readers, while an operator deletes their queues, of which they hear late", count = 30,
    hold = 0.2, writers = 0.6, downgrades = 1, notice = 0.2, paces = NEAR, troubles = { "robbed" } },
  { "nodes far", "through nodes that are far behind", nodes = 3, stale = 3, count = 4, hold = 0.2,
    troubles = { "lost holder", "lost prober" } },
})

--- The story of that name, or nil.
function stories.named(name)
  for _, story in ipairs(stories.all) do
    if story.name == name then return story end
  end
end

--- Plays a story by one seed. Returns the crowd, with a trace of events on request, and the broken rule. Ctrl-C, which
-- the interpreter turns into an error, is no result of the story, and is thrown again.
function stories.play(story, seed, traced)
  local crowd = Crowd.new(seed, story, traced)
  local fine, err = pcall(crowd.play, crowd)
  if not fine and tostring(err):find("interrupted!", 1, true) then error("interrupted!", 0) end
  return crowd, not fine and err or nil
end

--- For a program that only plays stories: LuaJIT may compile more than by default, and does so later, and garbage is
-- collected seldom, and then quickly. (A story leaves little.) LuaJIT compiles no loop in which a function is
-- made, so the model makes none where it is busy.
function stories.hurry()
  collectgarbage("setpause", 1000)
  collectgarbage("setstepmul", 2000)
  local has_options, options = pcall(require, "jit.opt")
  if has_options then options.start("maxtrace=60000", "maxmcode=262144", "hotloop=120", "hotexit=100") end
end

return stories
