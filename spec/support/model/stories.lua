-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The stories: simulated runs against the model broker. In each, five processes acquire locks of one kind, and faults
-- occur.
--
--     for _, story in ipairs(stories.all) do … end   -- { name =, kind =, what =, text =, seeds =, … }
--     local crowd, err = stories.play(story, 17)     -- err: what was wrong; nil if it ended well
--
-- A story's other fields are the options of crowd.lua. `seeds` is how many seeds the specs play, from 1 on. `often` is
-- how many seeds tools/prove/breakages plays in a turn (1): more for stories about rare events. watch.lua and the end
-- of crowd.lua check what must hold in each story.
local Crowd = require "spec.support.model.crowd"

local unpack = table.unpack or unpack

local stories = { all = {} }

-- loses_tokens: at the end there may be fewer tokens than slots, until a client has rung (published a token) for each
-- that is missing. The same goes for stories in which an administrator may die between creating slots and their tokens.
-- spare: each process may have rung once for a lock that it held without a token; a waiter that waits in vain removes
-- superfluous tokens.
local BELL = { "purge", "surplus", "rubbish", "no bell", "new bell", "consumer timeout" }
local EVERYTHING = { "death", "dies claiming", "lost holder", "lost prober", "alarm", "stranger", "robbed", "restart",
  "cut off", "stopped", "stall", unpack(BELL) }

-- For waiters that would otherwise wait for ever for a slot that is deleted, or lost.
local IMPATIENT = { "a while", "at once", "and gives up" }

local SEMAPHORE = {
  { name = "calm", text = "while nothing happens", seeds = 150, poll = 60, is_rung = true, spare = 5 },
  { name = "shared", text = "twice in each process", seeds = 40, often = 3, programs = 2, poll = 60, is_rung = true },
  { name = "callers", text = "by callers who share a session", seeds = 40, programs = 4, shares = true, poll = 60,
    is_rung = true },
  { name = "callers all", text = "by callers who share a session, while everything happens", seeds = 40, programs = 3,
    shares = true, troubles = EVERYTHING, count = 10, heartbeat = 2, loses_tokens = true },
  { name = "requests", text = "by requests that end as they like", seeds = 80, requests = true, programs = 3 },
  { name = "requests all", text = "by requests, while everything happens", seeds = 60, requests = true, programs = 2,
    troubles = EVERYTHING, count = 10, heartbeat = 2, loses_tokens = true },
  { name = "line", text = "in line, on a network that is near", seeds = 100, fair = 1, in_line = true,
    paces = Crowd.near, poll = 60, is_rung = true, waiting = { "for long" }, priorities = { 0 },
    letting_go = { "release" } },
  { name = "loss", text = "in line, though tokens are lost", seeds = 60, fair = 1, in_line = true, paces = Crowd.near,
    waiting = { "for long" }, priorities = { 0 }, letting_go = { "release" }, troubles = { "purge" }, poll = 1,
    loses_tokens = true },
  { name = "death", text = "while some of them are killed", seeds = 100, troubles = { "death" }, loses_tokens = true },
  { name = "orphans", text = "while some of them die as they claim", seeds = 40, workers = 8, version = "3.10.8",
    rounds = 5, count = 60, hold = 0.2, poll = 0.1, lags = { 0.5 }, paces = Crowd.near, waiting = { "for long" },
    troubles = { "dies claiming" }, slots = 1, loses_tokens = true },
  { name = "orphans beside", text = "while some of them die as they claim, and other slots are free", seeds = 20,
    often = 2, workers = 8, version = "3.10.8", rounds = 5, count = 120, hold = 6, poll = 0.1, lags = { 0.5 },
    paces = Crowd.near, waiting = { "for long" }, troubles = { "dies claiming" }, slots = 3, loses_tokens = true },
  { name = "orphans asked", text = "while some of them die as they claim, and administrators ask", seeds = 40,
    workers = 6, version = "3.10.8", rounds = 5, count = 120, hold = 2, poll = 0.1, lags = { 0.5 }, paces = Crowd.near,
    waiting = { "for long" }, troubles = { "dies claiming", "dies claiming", "inquiry" }, slots = 1,
    loses_tokens = true },
  { name = "lost", text = "while connections are lost", seeds = 100, troubles = { "lost holder", "lost prober" },
    loses_tokens = true },
  { name = "dead bell", text = "while the node of the bell is dead", seeds = 60, count = 12, hold = 0.3,
    troubles = { "dead bell" }, is_dead = true, loses_tokens = true },
  { name = "alarm", text = "while the broker has alarms", seeds = 80, troubles = { "alarm" }, loses_tokens = true },
  { name = "stranger", text = "while strangers hold slots too, and some are deaf", seeds = 80,
    troubles = { "stranger" }, deaf = 0.2, loses_tokens = true },
  { name = "robbed", text = "while an operator deletes their queues", seeds = 60, troubles = { "robbed" } },
  { name = "bolts", text = "while an operator deletes their bolts", seeds = 40, version = "3.10.8", count = 60,
    hold = 0.2, troubles = { "no bolt" } },
  { name = "bell", text = "while the doorbell is broken", seeds = 150, troubles = BELL, loses_tokens = true },
  { name = "resize", text = "while administrators come, change the slots, and die", seeds = 80,
    troubles = { "resize" }, loses_tokens = true },
  { name = "asked", text = "while administrators ask, and change the slots", seeds = 40, count = 30,
    waiting = IMPATIENT, troubles = { "inquiry", "inquiry", "inquiry", "resize" }, loses_tokens = true },
  { name = "down", text = "while slots are out of reach, and administrators ask, and change them", seeds = 15,
    count = 30, hold = 1, waiting = IMPATIENT, troubles = { "slot down", "slot down", "inquiry", "resize" },
    loses_tokens = true },
  { name = "denied", text = "while they may not consume, now and then", seeds = 20, count = 10, rounds = 6,
    troubles = { "denied" }, loses_tokens = true },
  { name = "silent", text = "while a queue that none of them wants does not answer", seeds = 20,
    troubles = { "silent queue" }, is_silenced = true },
  { name = "nodes", text = "through different nodes, though connections are lost", seeds = 40, nodes = 3, stale = 0.2,
    count = 12, troubles = { "death", "lost holder", "lost prober" }, hold = 0.2, loses_tokens = true },
  { name = "nodes asked", text = "through nodes that are far behind, while administrators ask, and change the slots",
    seeds = 40, nodes = 3, stale = 2, count = 30, troubles = { "inquiry", "inquiry", "resize", "lost prober" },
    waiting = IMPATIENT, hold = 0.5, loses_tokens = true },
  { name = "again", text = "again and again", seeds = 10, workers = 4, rounds = 40, hold = 0.01, channels = 8,
    troubles = { "death", "lost prober", "stranger" }, spare = 4 },
  { name = "news", text = "while they hear late that queues are gone", seeds = 20, rounds = 10, hold = 0.01,
    notice = 0.1, spare = 5 },
  { name = "restart", text = "while the broker is restarted", seeds = 80, count = 2, troubles = { "restart" },
    loses_tokens = true },
  { name = "stopping", text = "while the broker is told to stop, and takes its time", seeds = 20, rounds = 10,
    hold = 0.01, count = 2, troubles = { "stopping" } },
  { name = "cut", text = "while some are cut off or stopped", seeds = 100, heartbeat = 1, hold = 6,
    paces = Crowd.bad, troubles = { "cut off", "stopped" }, loses_tokens = true },
  { name = "stopped", text = "while they are stopped, again and again", seeds = 20, heartbeat = 1, rounds = 10,
    hold = 0.1, count = 120, paces = Crowd.far, troubles = { "stopped" }, loses_tokens = true },
  { name = "late", text = "while answers are late, and some never come", seeds = 20, heartbeat = 1, hold = 6,
    count = 20, paces = Crowd.bad, troubles = { "stall", "cut off" }, loses_tokens = true },
  { name = "stall", text = "while the network keeps things back", seeds = 60, troubles = { "stall" } },
  { name = "fenced", text = "with numbers, while some are killed or stopped", seeds = 60, fenced = true, heartbeat = 1,
    hold = 0.1, rounds = 6, count = 30, paces = { Crowd.near[1], Crowd.far[1] },
    troubles = { "death", "stopped", "stopped", "dies making", "no fence", "moved fence" },
    loses_tokens = true },
  { name = "fenced all", text = "with numbers, while everything happens at once", seeds = 60, fenced = true,
    heartbeat = 2, count = 16, troubles = { "lost fence", "cut fence", "no fence", unpack(EVERYTHING) },
    loses_tokens = true },
  { name = "all", text = "while everything happens at once", seeds = 100, heartbeat = 2, count = 12, deaf = 0.1,
    troubles = { "inquiry", "stall", "death", "lost holder", "lost prober", "alarm", "stranger", "robbed", "resize",
      "cut off", "stopped", unpack(BELL) }, loses_tokens = true },
}

-- Two who gather never wait for each other, and nothing is kept of those that a dead one had.
local MANY = {
  { name = "many", text = "some of them several at once", seeds = 100, poll = 60, is_rung = true },
  { name = "many shared", text = "twice in each process, some of them several at once", seeds = 40, programs = 2,
    poll = 60, is_rung = true },
  { name = "many callers", text = "by callers who share a session, some of them several at once", seeds = 40,
    programs = 3, shares = true, gathers = 0.3, slots = 5 },
  { name = "many requests", text = "by requests, some of them several at once, while everything happens", seeds = 60,
    requests = true, programs = 2, troubles = EVERYTHING, count = 10, heartbeat = 2, loses_tokens = true },
  { name = "many line", text = "in line, some of them several at once", seeds = 100, slots = 5, rounds = 8, fair = 1,
    in_line = true, paces = Crowd.near, poll = 60, is_rung = true, waiting = { "for long" }, priorities = { 0 },
    letting_go = { "release" } },
  { name = "many at once", text = "all of them several at once", seeds = 60, gathers = 1, rounds = 6, hold = 0.2,
    idle = 0.1, poll = 60, is_rung = true, waiting = { "for long" } },
  { name = "many death", text = "some of them several at once, while some are killed", seeds = 100, rounds = 6,
    count = 20, hold = 0.2, troubles = { "death", "dies claiming" }, loses_tokens = true },
  { name = "many lost", text = "some of them several at once, while connections are lost", seeds = 60,
    troubles = { "lost holder", "lost prober" }, loses_tokens = true },
  { name = "many limit", text = "some of them more at once than there are", seeds = 60, most = 5 },
  { name = "many resize", text = "some of them several at once, while administrators change the slots, and die",
    seeds = 80, count = 12, hold = 0.2, rounds = 6, troubles = { "resize" }, loses_tokens = true },
  { name = "many cut", text = "some of them several at once, while some are cut off or stopped", seeds = 60,
    heartbeat = 1, hold = 6, paces = Crowd.bad, troubles = { "cut off", "stopped" }, loses_tokens = true },
  { name = "many stall", text = "some of them several at once, while the network keeps things back", seeds = 60,
    troubles = { "stall" }, loses_tokens = true }, -- who takes a late bell for absent rings for none of its slots
  { name = "many robbed", text = "some of them several at once, while an operator deletes their queues", seeds = 60,
    count = 20, hold = 0.2, troubles = { "robbed", "robbed gathering" } },
  { name = "many all", text = "some of them several at once, while everything happens", seeds = 100, heartbeat = 2,
    count = 12, deaf = 0.1, troubles = EVERYTHING, loses_tokens = true },
}

for _, story in ipairs(MANY) do story.gathers = story.gathers or 0.4 end

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
  { name = "mutex killed", text = "while holders are killed, and no waiter may waste the token", seeds = 60, often = 2,
    version = "3.10.8", is_used = true, workers = 3, rounds = 5, hold = 2, count = 40, paces = { Crowd.near[1] },
    poll = 60, is_rung = true, waiting = { "for long" }, troubles = { "death" } },
  { name = "mutex orphans", text = "while some of them die as they claim", seeds = 40, workers = 8, version = "3.10.8",
    rounds = 5, count = 60, hold = 0.2, poll = 0.1, lags = { 0.5 }, paces = Crowd.near, waiting = { "for long" },
    troubles = { "dies claiming" } },
  { name = "mutex bolts", text = "while an operator deletes their bolts", seeds = 40, version = "3.10.8",
    count = 60, hold = 0.2, troubles = { "no bolt" } },
  { name = "mutex lost", text = "while connections are lost", seeds = 60, troubles = { "lost holder", "lost prober" } },
  { name = "mutex restart", text = "while the broker is restarted", seeds = 60, count = 2, troubles = { "restart" } },
  { name = "mutex stopping", text = "while the broker is told to stop, and takes its time", seeds = 20, rounds = 20,
    hold = 0.01, count = 4, troubles = { "stopping" }, version = "4.3.0" },
  { name = "mutex cut", text = "while some are cut off or stopped", seeds = 60, heartbeat = 1, hold = 6,
    paces = Crowd.bad, troubles = { "cut off", "stopped" } },
  { name = "mutex late", text = "while answers are late, and some never come", seeds = 20, heartbeat = 1, hold = 6,
    count = 20, rounds = 5, paces = Crowd.bad, troubles = { "stall", "cut off" } },
  { name = "mutex bell", text = "while the doorbell is broken", seeds = 60, troubles = BELL },
  { name = "mutex dead bell", text = "while the node of the bell is dead", seeds = 60, count = 12, hold = 0.3,
    troubles = { "dead bell" }, is_dead = true },
  { name = "mutex silent", text = "while a queue that none of them wants does not answer", seeds = 20,
    troubles = { "silent queue" }, is_silenced = true },
  { name = "mutex silent requests", text = "by requests, while a queue that none of them wants does not answer",
    seeds = 20, requests = true, programs = 2, troubles = { "silent queue" }, is_silenced = true },
  { name = "mutex stall", text = "while the network keeps things back", seeds = 40, troubles = { "stall" } },
  { name = "mutex nodes", text = "through different nodes, though connections are lost", seeds = 40, nodes = 3,
    stale = 0.2, count = 12, troubles = { "death", "lost holder", "lost prober" }, hold = 0.2 },
  { name = "mutex again", text = "again and again", seeds = 10, workers = 4, rounds = 40, hold = 0.01, channels = 8,
    troubles = { "death", "lost prober", "stranger" } },
  { name = "mutex bold", text = "seldom, so that most claims follow no search", seeds = 40, workers = 3, rounds = 40,
    hold = 0.05, idle = 2, fair = 0, poll = 1, count = 12, same_object = true,
    waiting = { "for long", "at once", "at once" },
    troubles = { "death", "dies claiming", "lost holder", "lost prober", "stranger", "robbed", "alarm", "stall" } },
  { name = "mutex news", text = "while they hear late that queues are gone", seeds = 20, rounds = 10, hold = 0.01,
    notice = 0.1 },
  { name = "mutex fenced", text = "with numbers", seeds = 60, fenced = true, poll = 60, is_rung = true },
  { name = "mutex fenced death", text = "with numbers, while some of them are killed", seeds = 60, fenced = true,
    count = 10, troubles = { "death", "dies making", "no fence" } },
  { name = "mutex fenced moved", text = "with numbers, while the message that counts is moved away and back",
    seeds = 60, fenced = true, count = 20, rounds = 8,
    troubles = { "moved fence", "moved fence", "death", "dies making" } },
  { name = "mutex fenced stopped", text = "with numbers, while some of them are stopped", seeds = 80, fenced = true,
    heartbeat = 1, hold = 0.1, rounds = 8, count = 60, paces = { Crowd.near[1], Crowd.far[1] },
    troubles = { "stopped", "stopped", "no fence" } },
  { name = "mutex fenced making", text = "with numbers, while makers are stopped between declare and publish",
    seeds = 80, fenced = true, heartbeat = 1, hold = 0.1, rounds = 8, count = 40,
    paces = { Crowd.near[1], Crowd.far[1] },
    troubles = { "stopped making", "stopped making", "no fence" } },
  { name = "mutex fenced lost", text = "with numbers, while connections are lost", seeds = 60, fenced = true,
    heartbeat = 2, count = 20, troubles = { "lost holder", "lost prober", "lost fence", "cut fence" } },
  { name = "mutex fenced robbed", text = "with numbers, while an operator deletes the mutex as they draw", seeds = 60,
    fenced = true, rounds = 8, hold = 0.01, count = 60, paces = { Crowd.near[1] }, troubles = { "robbed drawing" } },
  { name = "mutex fenced requests", text = "by requests, with numbers", seeds = 40, fenced = true, requests = true,
    programs = 2, count = 10, troubles = { "death", "lost fence", "no fence" } },
  { name = "mutex all", text = "while everything happens at once", seeds = 80, heartbeat = 2, count = 12,
    troubles = EVERYTHING },
}

local RWLOCK = {
  { name = "rw", text = "while nothing happens", seeds = 100, poll = 60, is_rung = true, downgrades = 0.3 },
  { name = "rw shared", text = "twice in each process", seeds = 40, programs = 2, poll = 60, is_rung = true },
  { name = "rw fenced", text = "with numbers, while some are killed or stopped", seeds = 60, fenced = true,
    heartbeat = 1, hold = 0.1, rounds = 6, count = 30, paces = { Crowd.near[1], Crowd.far[1] }, downgrades = 0.3,
    writers = 0.5, troubles = { "death", "stopped", "stopped", "dies making", "no fence", "moved fence" } },
  { name = "rw callers", text = "by callers who share a session", seeds = 60, programs = 4, shares = true,
    downgrades = 0.3 },
  { name = "rw callers races", text = "by callers who share a session, while all are late", seeds = 100, count = 60,
    rounds = 8, hold = 0.01, programs = 2, shares = true, writers = 0.4, downgrades = 0.3, inner = 0.05,
    version = "4.3.0", lags = { 0.05, 0.1 }, paces = { Crowd.near[1] }, troubles = { "hiccup" } },
  { name = "rw requests", text = "by requests, while everything happens", seeds = 60, requests = true, programs = 2,
    troubles = EVERYTHING, count = 10, heartbeat = 2, downgrades = 0.3 },
  { name = "rw denied", text = "while they may not consume, now and then", seeds = 20, count = 10, rounds = 6,
    troubles = { "denied" }, downgrades = 0.3 },
  { name = "rw silent", text = "while a queue that none of them wants does not answer", seeds = 20, count = 12,
    troubles = { "silent queue" }, is_silenced = true, writers = 0.7, downgrades = 0.3 },
  { name = "rw death", text = "while some of them are killed", seeds = 80, troubles = { "death" }, downgrades = 0.3 },
  { name = "rw orphans", text = "while some of them die as they claim", seeds = 200, often = 3, workers = 8,
    version = "3.10.8", rounds = 10, count = 60, hold = 0.4, poll = 0.1, lags = { 0.5 }, paces = Crowd.near,
    waiting = { "for long" }, troubles = { "dies claiming" }, writers = 0.8, downgrades = 0.3 },
  { name = "rw bolts", text = "while an operator deletes their bolts", seeds = 60, version = "3.10.8", count = 60,
    hold = 0.2, troubles = { "no bolt" }, writers = 0.6, downgrades = 0.3 },
  { name = "rw lost", text = "while connections are lost", seeds = 60, troubles = { "lost holder", "lost prober" },
    downgrades = 0.3 },
  { name = "rw restart", text = "while the broker is restarted", seeds = 60, count = 2, troubles = { "restart" },
    downgrades = 0.3 },
  { name = "rw stopping", text = "while the broker is told to stop, and takes its time", seeds = 20, rounds = 10,
    hold = 0.01, count = 2, troubles = { "stopping" }, downgrades = 0.3 },
  { name = "rw cut", text = "while some are cut off or stopped", seeds = 60, heartbeat = 1, hold = 6,
    paces = Crowd.bad, troubles = { "cut off", "stopped" }, downgrades = 0.3 },
  { name = "rw forsaken", text = "while the broker is restarted and not all can hear of it", seeds = 100, count = 10,
    heartbeat = 4, hold = 2, paces = Crowd.near, troubles = { "cut off", "restart" }, writers = 0.5 },
  { name = "rw races", text = "while all are late, now and then", seeds = 250, count = 60, rounds = 8, hold = 0.01,
    writers = 0.4, downgrades = 0.3, inner = 0.05, lags = { 0.05, 0.1 }, paces = { Crowd.near[1] },
    troubles = { "hiccup" } },
  { name = "rw stopped", text = "while they are stopped, again and again", seeds = 20, heartbeat = 1, rounds = 10,
    hold = 0.1, count = 120, paces = Crowd.far, troubles = { "stopped" }, writers = 0.6, downgrades = 1, nods = true },
  { name = "rw downgrades", text = "to become readers, while all are late", seeds = 40, count = 60, rounds = 20,
    hold = 0.01, writers = 0.6, downgrades = 1, version = "4.3.0", inner = 0.05, lags = { 0.05, 0.1 },
    paces = { Crowd.near[1] }, troubles = { "hiccup" } },
  { name = "rw robbed", text = "to become readers, while an operator deletes their queues, of which they hear late",
    seeds = 40, count = 30, hold = 0.2, writers = 0.6, downgrades = 1, notice = 0.2,
    paces = { Crowd.near[1] }, troubles = { "robbed" } },
  { name = "rw nodes", text = "through different nodes, though connections are lost", seeds = 80, nodes = 3,
    stale = 0.2, count = 12, troubles = { "death", "lost holder", "lost prober" }, downgrades = 0.3, hold = 0.2 },
  { name = "rw nodes far", text = "through nodes that are far behind", seeds = 40, nodes = 3, stale = 3, count = 4,
    troubles = { "lost holder", "lost prober" }, downgrades = 0.3, hold = 0.2 },
  { name = "rw bell", text = "while the doorbell is broken", seeds = 60, troubles = BELL, downgrades = 0.3 },
  { name = "rw dead bell", text = "while the node of the bell is dead", seeds = 60, count = 12, hold = 0.3,
    troubles = { "dead bell" }, is_dead = true, downgrades = 0.3 },
  { name = "rw stall", text = "while the network keeps things back", seeds = 40, troubles = { "stall" },
    downgrades = 0.3 },
  { name = "rw again", text = "again and again", seeds = 10, workers = 4, rounds = 40, hold = 0.01, channels = 8,
    downgrades = 0.3, troubles = { "death", "lost prober", "stranger" } },
  { name = "rw bold", text = "seldom, so that most writers follow no search", seeds = 40, workers = 3, rounds = 40,
    hold = 0.05, idle = 2, fair = 0, poll = 1, count = 12, same_object = true, writers = 0.6, downgrades = 0.2,
    waiting = { "for long", "at once", "at once" },
    troubles = { "death", "dies claiming", "lost holder", "lost prober", "stranger", "robbed", "alarm", "stall" } },
  { name = "rw bold callers", text = "seldom, by callers who share a session, and by the same object", seeds = 20,
    workers = 2, programs = 3, shares = true, rounds = 30, hold = 0.2, idle = 3, fair = 0, poll = 1, same_object = true,
    writers = 0.6, downgrades = 0.2, waiting = { "for long", "at once" } },
  { name = "rw news", text = "while they hear late that queues are gone", seeds = 20, rounds = 10, hold = 0.01,
    notice = 0.1, downgrades = 0.3 },
  { name = "rw all", text = "while everything happens at once", seeds = 80, heartbeat = 2, count = 12,
    troubles = EVERYTHING, downgrades = 0.3 },
}

-- A lost permit cannot be replaced while there are waiters.
local TOKENS = {
  { name = "tokens", text = "while nothing happens", seeds = 100, poll = 60, is_rung = true },
  { name = "tokens shared", text = "twice in each process", seeds = 40, programs = 2, poll = 60, is_rung = true },
  { name = "tokens beside", text = "of a quorum queue, beside another lock on the same connection", seeds = 40,
    queue_types = { "quorum" }, beside = true, is_rung = true },
  { name = "tokens line", text = "in line", seeds = 60, in_line = true, poll = 60, is_rung = true,
    waiting = { "for long" }, priorities = { 0 }, letting_go = { "release" } },
  { name = "tokens death", text = "while some of them are killed", seeds = 80, troubles = { "death" }, is_rung = true },
  { name = "tokens lost", text = "while connections are lost", seeds = 60, troubles = { "lost holder", "lost prober" },
    is_rung = true },
  { name = "tokens restart", text = "while the broker is restarted", seeds = 60, count = 2, troubles = { "restart" },
    is_rung = true },
  { name = "tokens cut", text = "while some are cut off or stopped", seeds = 60, heartbeat = 1, hold = 6,
    paces = Crowd.bad, troubles = { "cut off", "stopped" }, is_rung = true },
  { name = "tokens stopped", text = "while they are stopped, again and again", seeds = 60, often = 4, heartbeat = 1,
    hold = 2, count = 40, troubles = { "stopped" }, waiting = { "for long" }, is_rung = true },
  { name = "tokens late", text = "while answers are late, and some never come", seeds = 20, heartbeat = 1, hold = 6,
    count = 20, paces = Crowd.bad, troubles = { "stall", "cut off" }, is_rung = true },
  { name = "tokens long", text = "while the broker lets nobody hold one for so long", seeds = 60,
    troubles = { "too long", "stranger", "alarm" }, is_rung = true },
  { name = "tokens resize", text = "while administrators come, change their number, and die", seeds = 80,
    troubles = { "resize" }, is_rung = true, mends = true },
  { name = "tokens asked", text = "while administrators ask, and change their number", seeds = 40, count = 30,
    troubles = { "inquiry", "inquiry", "inquiry", "resize" }, is_rung = true, mends = true },
  { name = "tokens destroy", text = "while all is destroyed and made anew", seeds = 60, troubles = { "destroy" },
    is_rung = true },
  { name = "tokens repair", text = "while others take permits away, or bring more", seeds = 60,
    troubles = { "purge", "surplus", "rubbish" }, is_rung = true, surplus = true, mends = true, waiting = IMPATIENT },
  { name = "tokens stall", text = "while the network keeps things back", seeds = 40, troubles = { "stall" },
    is_rung = true },
  { name = "tokens nodes", text = "through different nodes, while administrators ask, change their number, and die",
    seeds = 40, nodes = 3, stale = 0.2, count = 12, troubles = { "death", "lost holder", "inquiry", "resize" },
    hold = 0.2, is_rung = true, mends = true },
  { name = "tokens again", text = "again and again", seeds = 10, workers = 4, rounds = 40, hold = 0.01, channels = 8,
    troubles = { "death", "lost prober", "stranger" }, is_rung = true },
  { name = "tokens fenced", text = "with numbers", seeds = 60, queue_types = { "quorum" }, fenced = true,
    rounds = 8, hold = 0.1, idle = 0.1, poll = 60, is_rung = true },
  { name = "tokens fenced death", text = "with numbers, while some are killed, stopped or cut off", seeds = 80,
    queue_types = { "quorum" }, fenced = true, heartbeat = 1, hold = 0.2, rounds = 8, count = 40,
    troubles = { "death", "lost holder", "stopped", "cut off", "too long", "stranger" }, is_rung = true },
  { name = "tokens fenced beside", text = "with numbers, beside another lock on the same connection", seeds = 40,
    queue_types = { "quorum" }, fenced = true, beside = true, rounds = 8, hold = 0.1, is_rung = true },
  { name = "tokens fenced restart", text = "with numbers, while the broker is restarted", seeds = 40, count = 3,
    queue_types = { "quorum" }, fenced = true, rounds = 8, hold = 0.2, troubles = { "restart" }, is_rung = true },
  { name = "tokens fenced resize", text = "with numbers, while administrators change how many there are, and die",
    seeds = 60, queue_types = { "quorum" }, fenced = true, rounds = 8, hold = 0.2, count = 12, slots = 1,
    troubles = { "resize" }, is_rung = true, mends = true },
  { name = "tokens fenced destroy", text = "with numbers, while all is destroyed and made anew", seeds = 60, slots = 1,
    queue_types = { "quorum" }, fenced = true, rounds = 8, hold = 0.1, troubles = { "destroy" }, is_rung = true },
  { name = "tokens all", text = "while everything happens at once", seeds = 80, heartbeat = 2, count = 12,
    troubles = { "death", "lost holder", "lost prober", "alarm", "stranger", "restart", "cut off", "stopped", "resize",
      "inquiry", "stall", "too long", "purge", "surplus", "rubbish" }, is_rung = true, surplus = true, mends = true,
    waiting = IMPATIENT },
}

local MANY_TOKENS = {
  { name = "tokens many", text = "some of them several at once", seeds = 100, poll = 60, is_rung = true },
  { name = "tokens many line", text = "in line, some of them several at once", seeds = 60, slots = 5, rounds = 8,
    fair = 1, in_line = true, poll = 60, is_rung = true, waiting = { "for long" }, priorities = { 0 },
    letting_go = { "release" } },
  { name = "tokens many at once", text = "all of them several at once", seeds = 40, gathers = 1, rounds = 6, hold = 0.2,
    idle = 0.1, poll = 60, is_rung = true, waiting = { "for long" } },
  { name = "tokens many death", text = "some of them several at once, while some are killed", seeds = 80, rounds = 6,
    count = 20, hold = 0.2, troubles = { "death" }, is_rung = true },
  { name = "tokens many limit", text = "some of them more at once than there are", seeds = 40, most = 5 },
  { name = "tokens many resize", text = "some of them several at once, while administrators change their number",
    seeds = 60, count = 12, hold = 0.2, rounds = 6, troubles = { "resize" }, is_rung = true, mends = true,
    waiting = IMPATIENT },
  { name = "tokens many all", text = "some of them several at once, while everything happens", seeds = 80,
    heartbeat = 2, count = 12,
    troubles = { "death", "lost holder", "lost prober", "robbed gathering", "stranger", "restart", "cut off", "stopped",
      "stall", "too long" }, waiting = IMPATIENT },
}

for _, story in ipairs(MANY_TOKENS) do story.gathers = story.gathers or 0.4 end

-- is_rung: waiters are served by the broker, without a ring (the publishing of a token) after `poll`. This is so where
-- the queue has its token from the beginning (is_used), and none is taken away. If there is no queue, the client that
-- declares it rings at once, unless it gives up or dies before.
-- During an alarm nobody can ring, so no story has alarms and loses tokens.
local PATIENT = { "for long", "for long", "at once" }

local FAST_MUTEX = {
  { name = "fast", text = "while nothing happens", seeds = 80, is_used = true, poll = 60, is_rung = true },
  { name = "fast new", text = "of which nobody has made the queue", seeds = 100, poll = 60, is_rung = true,
    waiting = PATIENT },
  { name = "fast shared", text = "twice in each process", seeds = 40, programs = 2, is_used = true, poll = 60,
    is_rung = true },
  { name = "fast callers", text = "by callers who share a session", seeds = 40, programs = 4, shares = true,
    is_used = true, poll = 60, is_rung = true },
  { name = "fast requests", text = "by requests that end as they like", seeds = 40, requests = true, programs = 2,
    is_used = true, poll = 60, is_rung = true },
  { name = "fast line", text = "in line", seeds = 60, in_line = true, is_used = true, poll = 60, is_rung = true,
    waiting = { "for long" }, priorities = { 0 }, letting_go = { "release" } },
  { name = "fast tries", text = "mostly at once, or for a moment", seeds = 60, rounds = 10, hold = 0.01, is_used = true,
    poll = 60, is_rung = true, waiting = { "at once", "at once", "a while", "and gives up", "for long" } },
  { name = "fast death", text = "while some of them are killed", seeds = 80, troubles = { "death" }, is_used = true,
    poll = 60, is_rung = true },
  { name = "fast lost", text = "while connections are lost", seeds = 60, troubles = { "lost holder", "lost prober" } },
  { name = "fast alarm", text = "while the broker has alarms", seeds = 40, troubles = { "alarm", "death" },
    is_used = true, poll = 60, is_rung = true },
  { name = "fast restart", text = "while the broker is restarted", seeds = 60, rounds = 5, count = 3,
    troubles = { "restart" } },
  { name = "fast cut", text = "while some are cut off or stopped", seeds = 60, heartbeat = 1, hold = 6,
    paces = Crowd.bad, troubles = { "cut off", "stopped" } },
  { name = "fast stopped", text = "while they are stopped, again and again", seeds = 60, often = 4, heartbeat = 1,
    hold = 2, count = 40, troubles = { "stopped" }, waiting = { "for long" } },
  { name = "fast late", text = "while answers are late, and some never come", seeds = 20, heartbeat = 1, hold = 6,
    count = 20, rounds = 6, paces = Crowd.bad, troubles = { "stall", "cut off" } },
  { name = "fast long", text = "while the broker lets nobody hold it for so long", seeds = 40,
    troubles = { "too long", "death" } },
  { name = "fast strangers", text = "while strangers take tokens away, and bring more", seeds = 60, count = 12,
    troubles = { "purge", "surplus", "rubbish", "stranger" } },
  { name = "fast purged", text = "while the queue is purged, and probers are lost", seeds = 60, count = 20, hold = 0.2,
    rounds = 6, troubles = { "purge", "purge", "death", "lost prober" } },
  { name = "fast robbed", text = "while strangers take the token from those who wait, and probers are lost", seeds = 40,
    workers = 3, count = 120, rounds = 4, hold = 2, poll = 1, waiting = { "for long" },
    troubles = { "stranger", "lost prober", "lost prober" } },
  { name = "fast deleted", text = "while the queue is deleted", seeds = 80, troubles = { "queue deleted" } },
  { name = "fast news", text = "while they hear late that the queue is gone", seeds = 20, rounds = 10, hold = 0.01,
    notice = 0.1, troubles = { "queue deleted" } },
  -- Before 4.0 a role that passes by a cancel, while a token is ready, wakes nobody before the nack of the client that
  -- has cancelled, and rings are refused. That client may be kept waiting for long.
  { name = "fast stall", text = "while the network keeps things back", seeds = 40, version = "4.3.0",
    troubles = { "stall" } },
  { name = "fast nodes", text = "through different nodes, though connections are lost", seeds = 40, nodes = 3,
    stale = 0.2, rounds = 6, count = 24, troubles = { "death", "lost holder", "lost prober" }, hold = 0.2 },
  { name = "fast new nodes", text = "of which nobody has made the queue, through different nodes", seeds = 40,
    nodes = 3, stale = 0.2, poll = 60, is_rung = true, waiting = PATIENT },
  { name = "fast again", text = "again and again", seeds = 10, workers = 4, rounds = 40, hold = 0.01, channels = 8,
    troubles = { "death", "lost prober", "surplus" } },
  { name = "fast all", text = "while everything happens at once", seeds = 80, heartbeat = 2, rounds = 8, count = 20,
    troubles = { "death", "lost holder", "lost prober", "stranger", "restart", "cut off", "stopped", "stall",
      "too long", "purge", "surplus", "rubbish", "queue deleted" }, waiting = IMPATIENT },
}

-- All of them -------------------------------------------------------------------------------------------------------

local function add(kind, what, list)
  for _, story in ipairs(list) do
    story.kind, story.what = kind, what
    table.insert(stories.all, story)
  end
end

add("semaphore", "three slots", SEMAPHORE)
add("semaphore", "slots", MANY)
add("mutex", "a mutex", MUTEX)
add("tokens", "three permits", TOKENS)
add("tokens", "permits", MANY_TOKENS)
add("fast_mutex", "a fast mutex", FAST_MUTEX)
add("rwlock", "to read or to write", RWLOCK)

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
