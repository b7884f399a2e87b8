-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A mutex that its session keeps after the release, for its own next acquire, until another client asks for it.
-- broker/retained_spec.lua is about what other clients see.

local scene = require "spec.unit.locks.rwlock_scene"

local MUTEX, BELL = "db-mutex", "db-mutexbell"

describe("a mutex that is retained", function()
  local peer, mutex, claim

  -- Acquired by an object, without a word to the broker.
  local function takes(of)
    local op = (of or mutex):acquire(0)
    peer.holder:silent()
    return peer:result(op)
  end

  local function releases(lock)
    assert.is_true(peer:result(lock:release()))
    peer.holder:silent()
  end

  before_each(function()
    peer, mutex = scene.open("mutex", { heartbeat = 600 }, { retain = 60 })
    local op = mutex:acquire(0)
    scene.looks(peer, MUTEX, "free")
    claim = scene.is_granted(peer, MUTEX)
    releases(peer:result(op))
    scene.rings(peer, BELL) -- for those whose question came before the claim had a consumer
  end)

  it("is taken again without a word, by any object of that name; the lock is another one", function()
    local first = takes()
    releases(first)
    local second = takes(peer:mutex "db")
    assert.is_true(second:held())
    assert.is_false(first:held())
    assert.is_nil(first:loss())
    local _, _, first_ticket = first:info()
    local _, _, second_ticket = second:info()
    assert.is_true(first_ticket ~= second_ticket and first_ticket ~= claim.tag)
    first:drop()
    peer.holder:silent()
    assert.is_true(second:held())
    second:release()
    scene.goes(peer, claim, BELL) -- that object does not retain
  end)

  for _, kind in ipairs{ "a question", "amqplocks.waiting", "amqplocks.revoke" } do
    it("is released when " .. kind .. " comes", function()
      scene.tell(peer, claim, kind ~= "a question" and kind or nil)
      scene.goes(peer, claim, BELL)
    end)
  end

  it("is released when its time is over, and not before", function()
    peer:pass(59.9)
    peer:silent()
    peer:pass(0.2)
    scene.goes(peer, claim, BELL)
  end)

  it("is released when its time is over although it was taken again and again", function()
    for _ = 1, 3 do
      peer:pass(19)
      releases(takes())
    end
    peer:pass(3.1)
    scene.goes(peer, claim, BELL)
  end)

  it("is one of sixteen at most: another one is released at its release", function()
    for i = 2, 17 do
      local name = "db" .. i
      local op = peer:mutex(name, { retain = 60 }):acquire(0)
      scene.looks(peer, name .. "-mutex", "free")
      local other = scene.is_granted(peer, name .. "-mutex")
      local lock = peer:result(op)
      if i <= 16 then
        releases(lock)
        scene.rings(peer, name .. "-mutexbell")
      else
        lock:release()
        scene.deletes(peer, other)
      end
    end
  end)

  it("that somebody waits for is released at the release", function()
    local lock = takes()
    scene.tell(peer, claim, "amqplocks.waiting")
    scene.makes_bell(peer, BELL, 2147483647)
    local release = lock:release()
    scene.deletes(peer, claim)
    assert.is_false(release:done())
  end)

  it("and was lost is nobody's loss, and is asked for again", function()
    scene.is_robbed(peer, claim)
    scene.rings(peer, BELL)
    assert.same({}, peer:news "lost")
    local op = mutex:acquire(0)
    scene.looks(peer, MUTEX, "free")
    scene.is_granted(peer, MUTEX)
    assert.is_true(peer:result(op):held())
  end)
end)

describe("a caller that does not wait, of a mutex that others may retain,", function()
  it("asks again with growing pauses, and finds it free or, after 62 ms, held", function()
    for _, is_free in ipairs{ true, false } do
      local peer, mutex = scene.open("mutex", nil, { retain = 60 })
      local op = mutex:acquire(0)
      for _, pause in ipairs{ 0.002, 0.004, 0.008, 0.016, 0.032 } do
        scene.looks(peer, MUTEX, "held")
        peer:silent()
        peer:pass(pause - 0.0001)
        peer:silent()
        peer:pass(0.0002)
        if is_free then break end
      end
      if is_free then
        scene.shuts(peer, MUTEX)
        assert.is_true(peer:result(op):held())
      else
        scene.finds_held(peer, MUTEX)
        peer:failed(op, "busy")
      end
    end
  end)
end)
