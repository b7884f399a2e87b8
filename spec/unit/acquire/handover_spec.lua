-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The last moment of an acquire: a lock that is not certain by then is not returned. The heartbeat is 10 s everywhere,
-- so a confirmed claim is certain for 19.5 s.

local Peer = require "spec.support.peer"
local gates = require "spec.unit.locks.rwlock_scene"
local permits = require "spec.unit.tokens.permit_scene"

local HEARTBEAT = { channel = 0, heartbeat = true }
local DOOR = "db-writer"

-- Each begins an acquire with so many seconds, 0 unless told. They give the operation, what grants it all that it has
-- asked for so far, and what it asks about when that was late.
local kinds = {}

kinds["a slot"] = function (peer, timeout)
  local op, claim = peer:claiming("images", nil, timeout)
  return op, function () peer.holder:grant(claim) end, claim
end

-- As far as the count of readers. Returns the claim of the door, the operation, the probes.
local function writing(peer, timeout)
  local op = peer:rwlock("db"):write(timeout or 0)
  gates.looks(peer, DOOR, "free")
  local claim = gates.is_granted(peer, DOOR)
  peer.prober:barrier()
  local probes = gates.counts(peer, claim)
  peer.holder:declared(claim.channel, DOOR)
  return claim, op, probes
end

kinds["to write"] = function (peer, timeout)
  local claim, op, probes = writing(peer, timeout)
  return op, function () peer.prober:answer(probes, {}) end, claim
end

kinds["a permit"] = function (peer, timeout)
  local op, taker = permits.asking(peer, timeout or 0)
  taker.queue = permits.QUEUE
  return op, function () permits.deliver(peer, taker) end, taker
end

-- Time passes, while the broker sends heartbeats and answers nothing.
local function pass(peer, seconds)
  for _ = 1, math.ceil(seconds / 10) do
    peer.holder:send(HEARTBEAT)
    peer.prober:send(HEARTBEAT)
    peer:pass(seconds / math.ceil(seconds / 10))
  end
end

-- What the core asks about a queue, beside heartbeats and the pulse; nil: nothing.
local function asked(peer)
  local opened, question = {}, nil
  peer.holder:pull()
  for _, frame in ipairs(peer.holder.frames) do
    if frame.method == "channel.open" then opened[frame.channel] = true end
    if frame.method == "queue.declare" then
      assert.is_nil(question)
      assert.is_true(frame.passive)
      question = frame
    end
  end
  peer.holder:ignore()
  if question and opened[question.channel] then
    peer.holder:send{ channel = question.channel, method = "channel.open-ok" }
  end
  return question
end

local function open() return Peer.open({ heartbeat = 10, timeout = 30 }) end

for kind, begin in pairs(kinds) do
  describe(kind .. ",", function ()
    local peer, op, grant, claim

    before_each(function ()
      peer = open()
      op, grant, claim = begin(peer)
    end)

    -- Granted so late that the broker may have given it to another; the core asks. Returns the question.
    local function doubt()
      pass(peer, 19.51)
      peer.holder:ignore()
      grant()
      assert.is_false(op:done())
      local question = asked(peer)
      assert.equal(claim.queue, question.queue)
      return question
    end

    it("is handed over as long as it is certain, without another word", function ()
      pass(peer, 19.49)
      peer.holder:ignore()
      grant()
      assert.is_true(peer:result(op):held())
      assert.is_nil(asked(peer))
    end)

    it("is not handed over by answers that are late, each of them, and given up in time", function ()
      local question = doubt()
      for _ = 1, 3 do
        pass(peer, 19.51)
        if not op:done() then
          peer.holder:declared(question.channel, question.queue)
          question = asked(peer) or question
        end
      end
      peer:failed(op, "unreachable", "the broker did not answer within 30 s")
    end)

    it("is given back when the time is over meanwhile", function ()
      peer = open()
      op, grant, claim = begin(peer, 25)
      doubt()
      pass(peer, 5.5)
      peer:failed(op, "timeout", ('"%s" was granted late, and not confirmed within 25 s'):format(claim.queue))
      local method, found = kind == "a permit" and "basic.nack" or "queue.delete", false
      peer.holder:pull()
      for _, frame in ipairs(peer.holder.frames) do found = found or frame.method == method end
      assert.is_true(found)
    end)

    it("has all the time for an answer, however long the one before took", function ()
      local question = doubt()
      pass(peer, 19.49)
      assert.is_false(op:done())
      peer.holder:declared(question.channel, question.queue)
      assert.is_true(peer:result(op):held())
    end)
  end)
end

describe("a lock that is verified", function ()
  -- A lock of this kind, of which the answer was late, so that the broker is asked once more. Returns the peer, the
  -- operation, the lock, and that question.
  local function doubting(kind)
    local peer = open()
    local op, grant = kinds[kind](peer)
    grant()
    local lock = peer:result(op)
    peer.holder:ignore()
    op = peer:keep(lock:verify())
    if kind == "a slot" then peer.prober:look{ "images-1-A" } end
    local question = asked(peer)
    pass(peer, 19.51)
    peer.holder:ignore()
    peer.holder:declared(question.channel, question.queue)
    assert.is_false(op:done())
    return peer, op, lock, assert(asked(peer))
  end

  for kind in pairs(kinds) do
    it("is held by the time it is said to be: " .. kind, function ()
      local peer, op, lock, question = doubting(kind)
      pass(peer, 19.49) -- it has all the time for another answer
      peer.holder:declared(question.channel, question.queue)
      assert.is_true(peer:result(op))
      assert.is_true(lock:held())
    end)

    it("is not held if it goes while that is asked: " .. kind, function ()
      local peer, op, lock, question = doubting(kind)
      peer.holder:refuse(question.channel, 404, ("NOT_FOUND - no queue '%s' in vhost '/'"):format(question.queue),
        "queue.declare")
      peer:failed(op, "lost", "NOT_FOUND")
      assert.equal("lost", select(3, lock:held()))
    end)
  end
end)

it("an acquire judges by when it has read the answer, not by when it began to read", function ()
  local peer = open()
  local op, grant = kinds["a slot"](peer)
  peer.reads_at = peer.now + 19.51
  grant()
  assert.is_false(op:done())
  assert.equal("images-1-B", asked(peer).queue)
end)

it("an acquire that waits on, as its claim was gone, does not fail for an answer that came", function ()
  local peer = open()
  local op = peer:semaphore("images", { max_attempts = 1 }):acquire(600, false, 0, 600)
  peer.prober:look{ "images-1-A" }
  local claim = peer.holder:claim("images-1-B", "images-1-A")
  pass(peer, 19.51)
  peer.holder:ignore()
  peer.holder:grant(claim)
  peer.holder:refuse(asked(peer).channel, 404, "NOT_FOUND - no queue 'images-1-B' in vhost '/'", "queue.declare")
  pass(peer, 60)
  assert.is_false(op:done())
end)

it("a permit with no channel left to ask on is not handed over, and the message says so", function ()
  local peer = permits.open({ heartbeat = 10, timeout = 30 }, { channel_max = 1 })
  local op, taker = permits.asking(peer, 0)
  for _ = 1, 2 do
    peer.holder:send(HEARTBEAT)
    peer:pass(9.76)
  end
  permits.deliver(peer, taker)
  peer:failed(op, "limit", 'no channel is left on the connection to ask for "images.semaphore"')
end)

-- What came all at once is read all at once.
it("a permit that came while its process was stopped for longer than it waits for an answer is asked for, and says so",
  function ()
    local peer = permits.open({ heartbeat = 10, timeout = 5 })
    local op, taker = permits.waiting(peer, 600)
    assert.equal("every permit is taken", select(2, op:waiting()))
    peer.now = peer.now + 19.51
    permits.deliver(peer, taker)
    assert.equal("a permit has come, and is being confirmed", select(2, op:waiting()))
    local question = asked(peer)
    peer.holder:declared(question.channel, question.queue)
    assert.is_true(peer:result(op):held())
  end)
