-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- An action on a token semaphore that is interrupted, at every step. In every case collected permits go back, nothing
-- is published or removed from then on, the administrators' mutex is released, and the message names the action that
-- finishes the work.
local Peer = require "spec.support.peer"
local scene = require "spec.unit.tokens.token_admin_scene"

local PERMITS, MARKS, MUTEX = scene.PERMITS, scene.MARKS, scene.MUTEX

-- Each is told up to one of its stops: the core has asked for something, and the peer has not answered yet. A stop has:
--   finish    what the message says would finish what was begun; false: nothing was
--   waits     the link on which an answer is waited for
--   open      channels on that link that are closed when the action ends
--   mints     the messages under way
--   queue     the queue that is declared or deleted; asked: by which method
-- The story so far has `one`, the collector while its channel is open, and `has_some` while that has to give back.

local stop = coroutine.yield

local RESIZE, BOTH = "; resize(%d) finishes what was begun", "; repair() and then resize(%d) finish what was begun"
local REPAIR, DESTROY = "; repair() finishes what was begun", "; destroy() finishes what was begun"
local DONE = "; all else was done"

-- Up to the answers of both looks.
local function begin(peer, action, amount, options, seen)
  local s = { op = peer.session:administer_tokens(action, "images", options or {}, amount) }
  s.mutex = peer.holder:claim(MUTEX)
  stop(s, { at = "taking the mutex", finish = false, waits = "holder" })
  peer.holder:grant(s.mutex)
  scene.looks(peer, seen, function (channels)
    stop(s, { at = "reading the ledger", finish = false, waits = "holder", open = channels })
  end)
  return s
end

local function tries(peer, s, finish)
  local probes = peer.prober:probes()
  stop(s, { at = "trying to publish", finish = finish, waits = "prober", mints = probes, tries = true })
  peer.prober:answer(probes, { MUTEX })
end

local function barrier(peer, s, finish)
  local opened = peer.prober:next() == "channel.open" and peer.prober:opened()
  local channel = peer.prober:expect("queue.declare", { exclusive = true, channel = opened or nil }).channel
  peer.prober:expect("queue.delete", { channel = channel })
  stop(s, { at = "passing the barrier", finish = finish, waits = "prober", open = { channel } })
  peer.prober:declared(channel, "scratch")
  peer.prober:deleted(channel)
end

local function mints(peer, s, what, count, finish)
  local confirm, messages = scene["publishes_" .. what](peer, count)
  stop(s, { at = "publishing " .. what, finish = finish, waits = "prober", mints = messages })
  confirm()
end

local function on_mutex(peer, s, verb, queue, finish, refused)
  local answer = scene[verb](peer, s.mutex, queue)
  stop(s, { at = verb .. " " .. queue, finish = finish, refused = refused, waits = "holder", queue = queue,
    asked = verb == "declares" and "queue.declare" or "queue.delete" })
  answer()
end

-- Leaves the mutex, and then a collector that has thrown something away.
local function leaves(peer, s, finish)
  peer.holder:expect("queue.delete", { queue = MUTEX, channel = s.mutex.channel })
  stop(s, { at = "leaving", finish = finish, waits = "holder", is_left = true })
  peer.holder:deleted(s.mutex.channel)
  if not s.one then return end
  stop(s, { at = "staying", finish = finish, is_left = true, stays = true })
  s.one:lingers()
end

-- Collects so many; another look is under way then. It may have some from another queue in hand.
local function collects(peer, s, queue, room, count, finish, hand)
  local one = hand and hand:goes_on(queue) or scene.collects(peer, queue, room)
  if hand then one:say{ method = "queue.declare-ok", queue = PERMITS, message_count = 0, consumer_count = 1 } end
  s.one, s.has_some = one, false
  stop(s, { at = "beginning to collect from " .. queue, finish = finish, waits = "holder", consuming = true })
  one:consumes()
  peer.holder:expect("queue.declare", { passive = true, queue = queue, channel = one.channel })
  s.has_some = true
  for i = 1, count do
    stop(s, { at = ("collecting, with %d in hand, from %s"):format(i - 1, queue), finish = finish, waits = "holder" })
    one:deliver_some(1)
  end
  return one
end

-- Throws away all that was collected.
local function acknowledges(peer, s, one, finish, is_looking)
  one:ends("basic.ack", { delivery_tag = one.delivered, multiple = true })
  peer.holder:expect("basic.qos")
  s.has_some = false
  stop(s, { at = "acknowledging in " .. one.queue, finish = finish, waits = "holder" })
  if is_looking then one:say{ method = "queue.declare-ok", queue = one.queue, consumer_count = 1 } end
  one:say{ method = "basic.qos-ok" }
end

-- Collects the one permit that is free, and sees that all others are lost.
local function finds_one(peer, s, room)
  local one = collects(peer, s, PERMITS, room, 1, false)
  one:sees(0, 0)
  assert.is_true(one:keeps_looking(2, 0, 0) > 0)
  return one
end

local stories = {}

function stories.create(peer)
  local s = begin(peer, "create", 2, {}, { marks = 1 })
  tries(peer, s, false)
  on_mutex(peer, s, "deletes", MARKS, false)
  on_mutex(peer, s, "declares", MARKS, RESIZE:format(2))
  barrier(peer, s, RESIZE:format(2))
  mints(peer, s, "marks", 2, RESIZE:format(2))
  on_mutex(peer, s, "declares", PERMITS, BOTH:format(2), RESIZE:format(2))
  barrier(peer, s, BOTH:format(2))
  mints(peer, s, "permits", 2, REPAIR)
  leaves(peer, s, DONE)
end

function stories.add(peer)
  local s = begin(peer, "add", 2, {}, { permits = 1, marks = 3, consumers = 2 })
  tries(peer, s, false)
  barrier(peer, s, false)
  mints(peer, s, "marks", 2, BOTH:format(5))
  mints(peer, s, "permits", 2, REPAIR)
  leaves(peer, s, DONE)
end

function stories.remove(peer)
  local s = begin(peer, "remove", 2, {}, { permits = 3, marks = 5, consumers = 2 })
  local one = collects(peer, s, PERMITS, 2, 2, false)
  acknowledges(peer, s, collects(peer, s, MARKS, 2, 2, false, one), BOTH:format(3), true)
  leaves(peer, s, BOTH:format(3))
end

function stories.empty(peer)
  local s = begin(peer, "resize", 0, {}, { permits = 2, marks = 2 })
  local one = collects(peer, s, PERMITS, 2, 2, false)
  s.has_some = false -- the queue goes with it
  on_mutex(peer, s, "deletes", PERMITS, DESTROY)
  peer.holder:expect("channel.close", { channel = one.channel })
  s.one = nil
  on_mutex(peer, s, "deletes", MARKS, DESTROY)
  leaves(peer, s, DONE)
end

function stories.repair(peer)
  local s = begin(peer, "repair", nil, {}, { permits = 1, marks = 2 })
  local one = finds_one(peer, s, 3)
  tries(peer, s, false)
  barrier(peer, s, false)
  mints(peer, s, "permits", 1, REPAIR)
  one:returns()()
  s.one, s.has_some = nil, false
  leaves(peer, s, DONE)
end

function stories.renew(peer)
  local s = begin(peer, "repair", nil, { queue_type = "quorum" }, { permits = 1, marks = 2 })
  local one = finds_one(peer, s, 3)
  tries(peer, s, false)
  barrier(peer, s, false)
  acknowledges(peer, s, one, REPAIR)
  one:lingers()
  s.one = nil
  mints(peer, s, "permits", 2, REPAIR)
  leaves(peer, s, DONE)
end

function stories.adopt(peer)
  local s = begin(peer, "resize", 2, {}, { permits = 1 })
  tries(peer, s, false)
  local one = finds_one(peer, s, 65535)
  acknowledges(peer, s, one, RESIZE:format(2))
  on_mutex(peer, s, "declares", MARKS, RESIZE:format(2))
  barrier(peer, s, RESIZE:format(2))
  mints(peer, s, "marks", 2, BOTH:format(2))
  mints(peer, s, "permits", 2, REPAIR)
  leaves(peer, s, REPAIR)
end

-- Tells a story up to its n-th stop. Returns the peer, the story so far, and the stop; nil for that: it is over before.
local function tell(story, n)
  local peer = scene.open()
  local teller, s, at = coroutine.create(stories[story]), nil, nil
  for _ = 1, n do
    local fine, so_far, stopped_at = coroutine.resume(teller, peer)
    if not fine then error(debug.traceback(teller, tostring(so_far)), 0) end
    if coroutine.status(teller) == "dead" then return peer, s, nil end
    s, at = so_far, stopped_at
  end
  return peer, s, at
end

-- A test of each stop of all stories at which `matters` says so.
local function at_every_stop(what, matters, test)
  it(what .. ", at every step of each action where that matters", function ()
    local met = 0
    for story in pairs(stories) do
      local n = 1
      local peer, s, at = tell(story, n)
      while at do
        if matters(at, s) then
          local fine, problem = pcall(test, peer, s, at)
          if not fine then error(("%s, %s: %s"):format(story, at.at, tostring(problem)), 0) end
          met = met + 1
        end
        n = n + 1
        peer, s, at = tell(story, n)
      end
    end
    assert.is_true(met > 0)
  end)
end

-- All that a link writes from now on gives something back, or closes a channel. Returns a set of the methods, and of
-- the channels that are closed.
local function undoes(link)
  local done = {}
  while link:next() ~= "nothing" do
    local frame = link:expect(link:next())
    done[frame.method] = true
    if frame.method == "queue.delete" then
      assert.equal(MUTEX, frame.queue)
    elseif frame.method == "basic.nack" then
      assert.same({ 0, true, true }, { frame.delivery_tag, frame.multiple, frame.requeue })
    elseif frame.method == "channel.close" then
      done[frame.channel] = true
    else
      assert.equal("basic.cancel", frame.method)
    end
  end
  return done
end

-- Whatever was under way is undone, and nothing else is written, then or later.
local function ends(peer, s, at, mutex_is_gone)
  local done = { holder = undoes(peer.holder), prober = undoes(peer.prober) }
  assert.equal(not mutex_is_gone and not at.is_left, done.holder["queue.delete"] or false)
  assert.equal(s.has_some or false, done.holder["basic.nack"] or false)
  if s.one then assert.is_true(done.holder[s.one.channel]) end
  for _, channel in ipairs(at.open or {}) do assert.is_true(done[at.waits][channel]) end
  if at.mints and peer.prober:state() == "open" then
    for _, message in ipairs(at.mints) do peer.prober:send(peer.prober.ack(message)) end
  end
  peer:pass(1)
  peer.holder:silent()
  peer.prober:silent()
end

local function fails(peer, s, at, code, ...)
  local message = peer:failed(s.op, code, ...)
  if at.finish then
    assert.equal(at.finish, message:sub(-#at.finish))
  else
    assert.is_nil(message:find("; [a-z]+%(", 1), message)
  end
end

describe("an administrator of permits in trouble", function ()
  local function any() return true end
  local function has_mutex(at) return at.at ~= "taking the mutex" and not at.is_left end

  at_every_stop("loses the mutex", has_mutex, function (peer, s, at)
    peer.holder:send{ channel = s.mutex.channel, method = "basic.cancel", consumer_tag = s.mutex.tag, no_wait = true }
    peer.holder:expect("channel.close", { channel = s.mutex.channel })
    fails(peer, s, at, "lost", 'the administration mutex of "images"', "deleted, but not by this client")
    ends(peer, s, at, true)
  end)

  at_every_stop("loses the connection that holds", any, function (peer, s, at)
    peer.holder:down("timed out")
    if at.is_left and not at.stays then return end
    fails(peer, s, at, has_mutex(at) and "lost" or "unreachable", "timed out")
    undoes(peer.prober)
  end)

  it("has its result otherwise", function ()
    for story, result in pairs{ create = 2, add = 5, remove = 3, empty = 0, repair = 2, renew = 2, adopt = 2 } do
      local peer, s = tell(story, math.huge)
      assert.equal(result, peer:result(s.op), story)
      peer.holder:silent()
      peer.prober:silent()
    end
  end)

  local function publishes(at) return at.mints and not at.tries end

  -- Trouble on the link that publishes, the stops at which it matters, the code and words of the failure, and whether
  -- the broker has answered all messages.
  for _, row in ipairs{
    { "loses the connection that publishes", function (at) return at.waits == "prober" end, function (prober, at)
      prober:down("timed out")
      at.open = nil
    end, "unreachable", "timed out" },
    { "meets an alarm", function (at) return at.waits == "prober" end, function (prober)
      prober:send{ channel = 0, method = "connection.blocked", reason = "low on memory" }
    end, "blocked", "reads no publishers" },
    { "is denied publishing", function (at) return at.mints end, function (prober, at)
      prober:refuse(at.mints[1].channel, 403, "ACCESS_REFUSED - write access", "basic.publish")
    end, "refused", "write access", is_answered = true },
    { "publishes what the broker does not take", publishes, function (prober, at)
      for i, message in ipairs(at.mints) do prober:send((i == #at.mints and prober.nack or prober.ack)(message)) end
    end, "unavailable", "did not accept", is_answered = true },
    { "publishes to a queue that somebody deleted", publishes, function (prober, at)
      for _, message in ipairs(at.mints) do prober:send(scene.returned(message), prober.ack(message)) end
    end, "not_found", "deleted", is_answered = true },
  } do
    at_every_stop(row[1], row[2], function (peer, s, at)
      row[3](peer.prober, at)
      fails(peer, s, at, row[4], row[5], publishes(at) and row.is_answered and at.mints[1].queue or "")
      if row.is_answered then at.mints = nil end
      ends(peer, s, at)
    end)
  end

  at_every_stop("gets no answer in time", function (at) return not at.stays end, function (peer, s, at)
    peer:pass(4.9)
    assert.is_false(s.op:done())
    peer:pass(0.2)
    fails(peer, s, at, "unreachable", "did not answer within 5 s")
    ends(peer, s, at)
  end)

  at_every_stop("is given up", any, function (peer, s, at)
    s.op:drop()
    ends(peer, s, at)
  end)

  local NODE_DOWN = "NOT_FOUND - home node 'rabbit@other' of durable queue is down or inaccessible"

  for _, row in ipairs{ { "conflict", 406, "PRECONDITION_FAILED - inequivalent arg 'x-queue-type'" },
    { "unavailable", 404, NODE_DOWN } } do
    at_every_stop("is refused a queue: " .. row[1], function (at) return at.queue end, function (peer, s, at)
      at.finish = at.refused or at.finish
      peer.holder:refuse(s.mutex.channel, row[2], row[3], at.asked)
      fails(peer, s, at, row[1], ('queue "%s": %s'):format(at.queue, row[3]))
      if peer.holder:next() == "channel.open" then peer.holder:opened() end
      peer.holder:delete(MUTEX) -- its channel is gone, but maybe not itself
      undoes(peer.holder)
    end)
  end

  at_every_stop("has the mutex's channel closed for other reasons, while it asks for a queue", function (at)
    return at.queue
  end, function (peer, s, at)
    peer.holder:refuse(s.mutex.channel, 406, "PRECONDITION_FAILED - timed out")
    fails(peer, s, at, "lost", 'the administration mutex of "images"', "timed out")
  end)

  at_every_stop("goes on behind the answer only, though the other connection is lost", function (at)
    return at.queue
  end, function (peer, s)
    peer.prober:down("timed out")
    peer.holder:silent()
    assert.is_false(s.op:done())
  end)

  local function has_some(_, s) return s.one and s.has_some end

  at_every_stop("has a queue deleted under it from which it collects", has_some, function (peer, s, at)
    local one = s.one
    one:say{ method = "basic.cancel", consumer_tag = one.other or one.tag, no_wait = true }
    peer.holder:expect("channel.close", { channel = one.channel })
    fails(peer, s, at, "lost", one.other and PERMITS or one.queue, "deleted")
    s.one, s.has_some = nil, false
    ends(peer, s, at)
  end)

  -- The broker closes the collector's channel: the stops at which it matters, and why.
  for _, row in ipairs{
    { "has what it collected taken by the broker", has_some, 406, "PRECONDITION_FAILED - timed out", "lost" },
    { "may not read", function (at) return at.consuming end, 403, "ACCESS_REFUSED", "refused" },
    { "finds another client's own queue", function (at) return at.consuming end, 405, "RESOURCE_LOCKED", "squatted" },
    { "finds the node of a queue down", function (at) return at.consuming end, 404, NODE_DOWN, "unavailable" },
    { "finds no queue", function (at) return at.consuming end, 404, "NOT_FOUND - no queue 'q'", "not_found" },
  } do
    at_every_stop(row[1], row[2], function (peer, s, at)
      local queue = row[5] == "lost" and s.one.other and PERMITS or s.one.queue
      peer.holder:refuse(s.one.channel, row[3], row[4], row[5] ~= "lost" and "basic.consume" or nil)
      fails(peer, s, at, row[5], ('queue "%s"'):format(queue), row[4])
      s.one, s.has_some = nil, false
      ends(peer, s, at)
    end)
  end

  it("is out of time, also that for holders, which comes on top", function ()
    local peer = scene.open()
    local op = scene.begin(peer, "add", 2, { timeout = 2 }, { permits = 1, marks = 3 })
    peer:pass(2)
    peer:failed(op, "timeout", 'add of "images" took longer than 2 s')
    peer = scene.open()
    op = scene.begin(peer, "remove", 2, { timeout = 2, wait = 3 }, { permits = 1, marks = 3, consumers = 1 })
    peer:pass(4.9)
    assert.is_false(op:done())
    peer:pass(0.1)
    peer:failed(op, "timeout", 'remove of "images" took longer than 5 s')
  end)

  -- Its marks may be there already, or come yet: a second time they would be too many.
  it("publishes nothing again that was behind a question which is not answered: unreachable", function ()
    local peer = scene.open()
    local other = peer.session:administer("status", "others", {})
    local stuck = peer.prober:probes()
    peer:pass(3)
    local op, mutex = scene.begin(peer, "add", 2, {}, { permits = 3, marks = 3 })
    scene.tries(peer)
    peer.prober:barrier()
    scene.publishes_marks(peer, 2)
    peer:pass(2.001)
    peer:failed(other, "unreachable", "within 5 s")
    peer.prober:expect("channel.close", { channel = stuck[1].channel })
    peer.prober:silent()
    peer:failed(op, "unreachable")
    scene.leaves(peer, mutex)
  end)

  it("finds too few marks to remove: conflict, and gives all back", function ()
    local peer = scene.open()
    local op, mutex = scene.begin(peer, "remove", 2, {}, { permits = 3, marks = 3 })
    local one = scene.collects(peer, PERMITS, 2):consumes()
    peer.holder:expect("queue.declare", { queue = PERMITS, passive = true })
    one:deliver_some(2)
    one:goes_on(MARKS)
    one:say{ method = "queue.declare-ok", queue = PERMITS, message_count = 1, consumer_count = 1 }
    one:consumes()
    one:deliver_some(1)
    one:looks(0, 0)
    one:keeps_looking(6, 0, 0)
    peer:failed(op, "conflict", MARKS, "of 2", "only 1")
    one:ends("basic.nack", { delivery_tag = 0, multiple = true, requeue = true })
    peer.holder:expect("channel.close", { channel = one.channel })
    peer.holder:expect("queue.delete", { queue = MUTEX, channel = mutex.channel })
  end)

  it("does not count while a dead administrator is seen to have marks, and waits for its end until the time is over",
    function ()
      local peer, seen = scene.open(), { permits = 1, marks = 1, takers = 1 }
      local op, mutex = scene.begin(peer, "resize", 3, { timeout = 2 }, seen)
      peer:live(2, function ()
        if peer.holder:next() ~= "nothing" then scene.looks(peer, seen) end
      end)
      peer:failed(op, "timeout", ('another client consumes from queue "%s"'):format(MARKS))
      scene.leaves(peer, mutex)
    end)

  it("gives back at once what comes too late", function ()
    local peer = scene.open()
    scene.begin(peer, "repair", nil, {}, { permits = 2, marks = 2, consumers = 1 })
    local one = scene.collects(peer, PERMITS, 3):consumes()
    one:asks()
    for _ = 1, 2 do one:deliver(scene.permit(1)) end
    one:throws(2)
    one:sees(0, 1)
    local settled = one:returns()
    one:deliver_some(1) -- behind the nack, or before it
    settled()
    peer.holder:expect("basic.nack", { channel = one.channel, delivery_tag = 0, multiple = true, requeue = true })
  end)

  -- The prober does not end with the mutex; so a stopped administrator could publish what another has by now.
  it("publishes nothing more while it is not certain of the mutex: asks for that, and goes on when it is", function ()
    local peer = scene.open()
    local op, mutex = scene.begin(peer, "add", 600, { timeout = 600 }, { permits = 1, marks = 1 })
    scene.tries(peer)
    peer.prober:barrier()
    local answers = scene.publishes_marks(peer, 512)
    peer.reads_at = peer.now + 200 -- heartbeats are 60
    answers()
    peer.now, peer.reads_at = peer.reads_at, nil
    peer.prober:pull()
    for _, frame in ipairs(peer.prober.frames) do assert.not_equal("basic.publish", frame.method) end
    peer.prober:ignore()
    peer.holder:expect("queue.declare", { queue = MUTEX, passive = true, channel = mutex.channel })
    peer.holder:declared(mutex.channel, MUTEX)
    scene.publishes_marks(peer, 88)
    assert.is_false(op:done())
  end)

  it("has no channel left", function ()
    local peer = Peer.open(nil, { channel_max = 2 })
    local op = peer.session:administer_tokens("add", "images", {}, 1)
    peer.holder:grant(peer.holder:claim(MUTEX))
    peer:failed(op, "limit", "no channel is left")
    peer.holder:ignore()
  end)
end)
