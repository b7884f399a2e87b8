-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A mutex, or the door of a readers–writer lock, that is claimed without a look before. boldness_spec.lua is about how
-- many wins that takes, broker/bold_claim_spec.lua about what other clients see.

local scene = require "spec.unit.locks.rwlock_scene"

local MUTEX, BELL = "db-mutex", "db-mutexbell"

describe("a mutex that was free each time", function()
  local peer, mutex

  local function open(...) peer, mutex = scene.open("mutex", ...) end

  local function silent() scene.silent(peer) end

  -- The claim is granted, and released again.
  local function has_it(op)
    local claim = scene.is_granted(peer, MUTEX)
    local release = peer:result(op):release()
    scene.goes(peer, claim, BELL)
    assert.is_true(peer:result(release))
  end

  -- Acquired and released so many times, each time with a look.
  local function wins(times)
    for _ = 1, times do
      local op = mutex:acquire(0)
      scene.looks(peer, MUTEX, "free")
      has_it(op)
    end
  end

  -- Begins an acquire that claims without a look. Returns the operation, the claim.
  local function dares(...)
    local op = mutex:acquire(...)
    local claim = scene.claim(peer, MUTEX)
    silent()
    return op, claim
  end

  local function is_bold(...) has_it((mutex:acquire(...))) end

  -- A bold claim is lost to a holder. Returns the operation, which looks.
  local function loses(...)
    local op, claim = dares(...)
    scene.is_late(peer, claim)
    return op
  end

  before_each(function()
    open()
    wins(3)
  end)

  it("is claimed at once the fourth time, and from then on, waiting or not", function()
    is_bold(0)
    is_bold()
    is_bold(60)
  end)

  it("is looked at by another object, whose wins these are not", function()
    local op = peer:mutex("db"):acquire(0)
    scene.looks(peer, MUTEX, "free")
    has_it(op)
  end)

  it("and is held now is looked at: a look that finds it free takes it", function()
    local op = loses(0)
    scene.looks(peer, MUTEX, "free")
    has_it(op)
  end)

  it("and is lost: that is none of its attempts", function()
    open(nil, { max_attempts = 1 })
    wins(3)
    local op = loses(0)
    scene.is_late(peer, scene.claims(peer, MUTEX))
    peer:failed(op, "contended", 'other claims of "db" were faster 1 times')
    scene.all_channels_are_back(peer)
  end)

  it("refuses the consumer: what was made is deleted first, and no look follows", function()
    local op, claim = dares(0)
    scene.reply(peer, claim, "declared")
    peer.holder:refuse(claim.channel, 403, scene.DENIED, "basic.consume")
    peer:failed(op, "refused", '"db-mutex" could not be claimed')
    scene.goes(peer, claim, BELL, peer.holder:opened())
  end)

  it("loses the prober under the bold claim: goes on", function()
    local op, claim = dares(0)
    peer.prober:down("timed out")
    scene.replies(peer, claim)
    assert.is_true(peer:result(op):held())
  end)

  it("is looked at by a fair acquire", function()
    local op = mutex:acquire(60, true)
    local bell = scene.makes_bell(peer, BELL)
    scene.looks(peer, MUTEX, "free", true)
    scene.welcome(peer, bell, true)
    scene.looks(peer, MUTEX, "free", true)
    scene.is_granted(peer, MUTEX)
    scene.cancels(peer, bell)
    assert.is_true(peer:result(op):held())
  end)

  it("is looked at after a waiter told the holder: until three more wins", function()
    local op, claim = dares(0)
    scene.replies(peer, claim)
    scene.tell(peer, claim, "amqplocks.waiting")
    local bell = scene.makes_bell(peer, BELL, 2147483647)
    peer:result(op):release()
    peer.holder:delete(MUTEX, claim.channel)
    peer.holder:closes(bell.channel)
    scene.rings(peer, BELL)
    for _ = 1, 2 do scene.rests(peer, 30) end
    local first = mutex:acquire(0)
    scene.looks(peer, MUTEX, "free")
    claim = scene.is_granted(peer, MUTEX)
    peer.holder:ignore() -- the pulse
    peer:result(first):release()
    scene.goes(peer, claim, BELL)
    wins(3)
    is_bold(0)
  end)

  it("counts from the last time that it was held, or that a race was lost", function()
    open()
    wins(2)
    local op = mutex:acquire(0)
    scene.finds_held(peer, MUTEX)
    peer:failed(op, "busy")
    wins(2)
    op = mutex:acquire(0)
    scene.is_late(peer, scene.claims(peer, MUTEX))
    silent()
    peer:pass(0.01)
    scene.looks(peer, MUTEX, "free")
    has_it(op)
    wins(3)
    is_bold(0)
  end)
end)

describe("a door that was open each time", function()
  local DOOR = "db-writer"
  local peer, rwlock

  -- Written and released, with a look or without one.
  local function writes(times, is_bold)
    for _ = 1, times do
      local op = rwlock:write(0)
      local door = (is_bold and scene.is_granted or scene.shuts)(peer, DOOR)
      scene.writes(peer, op, door):drop()
      scene.goes(peer, door, "db-rwbell")
    end
  end

  -- Read and released, with a look each time.
  local function reads(times)
    for _ = 1, times do
      local op = rwlock:read(0)
      scene.looks(peer, DOOR, "free")
      local claim = scene.reader(peer)
      scene.replies(peer, claim)
      peer:result(op):drop()
      scene.goes(peer, claim, DOOR)
    end
  end

  before_each(function() peer, rwlock = scene.open("rwlock") end)

  it("is shut at once by a writer, and looked at by readers, which delete an empty queue that is no door", function()
    reads(3)
    writes(1, true)
    reads(1)
  end)

  it("is shut, and somebody reads: waits for readers, who are no contest for the door", function()
    writes(3)
    local op = rwlock:write(60)
    local door = scene.is_granted(peer, DOOR)
    scene.makes_sure(peer, door, "reader")
    scene.silent(peer)
    scene.tell(peer, door, "amqplocks.token")
    scene.count(peer)
    scene.makes_sure(peer, door)
    peer:result(op):drop()
    scene.goes(peer, door, "db-rwbell")
    writes(1, true)
  end)
end)
