-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A mutex, or the door of a readers–writer lock, that is claimed without a look before. boldness_spec.lua is about how
-- many wins that takes, broker/bold_claim_spec.lua about what other clients see.

local scene = require "spec.unit.locks.rwlock_scene"

local MUTEX, BELL = "db-mutex", "db-mutexbell"

describe("a mutex that was free each time", function()
  local peer, mutex

  local function open(...) peer, mutex = scene.open("mutex", ...) end

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

  local function is_bold(...) has_it((mutex:acquire(...))) end

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

  it("is looked at by a fair acquire, which joins the line first", function()
    mutex:acquire(60, true)
    scene.makes_bell(peer, BELL)
    scene.looks(peer, MUTEX, "free", true)
    peer.holder:silent()
  end)

  it("and is held now is looked at: that is none of its attempts", function()
    open(nil, { max_attempts = 1 })
    wins(3)
    local op = mutex:acquire(0)
    scene.is_late(peer, scene.claim(peer, MUTEX))
    scene.is_late(peer, scene.claims(peer, MUTEX))
    peer:failed(op, "contended", 'other claims of "db" were faster 1 times')
    scene.all_channels_are_back(peer)
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
    peer:pass(0.01)
    scene.looks(peer, MUTEX, "free")
    has_it(op)
    wins(3)
    is_bold(0)
  end)
end)

describe("a door that was open each time", function()
  local DOOR = "db-writer"

  it("is shut at once by a writer, and looked at by readers, which delete an empty queue that is no door", function()
    local peer, rwlock = scene.open("rwlock")
    local function read()
      local op = rwlock:read(0)
      scene.looks(peer, DOOR, "free")
      local claim = scene.reader(peer)
      scene.replies(peer, claim)
      peer:result(op):drop()
      scene.goes(peer, claim, DOOR)
    end
    for _ = 1, 3 do read() end
    local op = rwlock:write(0)
    local door = scene.is_granted(peer, DOOR)
    scene.writes(peer, op, door):drop()
    scene.goes(peer, door, "db-rwbell")
    read()
  end)
end)
