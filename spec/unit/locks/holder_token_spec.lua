-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The holder of a mutex for which others wait; that of a door does the same. It is notified of waiters and takes a
-- token from the bell that they declared, so that its death wakes the next waiter. It lines up behind them when it
-- acquires again.

local scene = require "spec.unit.locks.rwlock_scene"

local FIRST = 2147483647 -- the priority of who comes before all that wait

local MUTEX, BELL = "db-mutex", "db-mutexbell"

describe("the holder of a mutex", function ()
  local peer, mutex, lock, claim

  local function is_told() scene.tell(peer, claim, "amqplocks.waiting") end

  before_each(function ()
    peer, mutex = scene.open("mutex", { heartbeat = 600 })
    local op = mutex:acquire(0)
    claim = scene.shuts(peer, MUTEX)
    lock = peer:result(op)
  end)

  -- Let go, and gone. The token, if it has one, goes back then; otherwise it is rung for.
  local function goes(bell, token)
    lock:release()
    peer.holder:delete(MUTEX, claim.channel)
    if token then scene.returns(peer, bell, token) else scene.rings(peer, BELL) end
    peer:silent()
    scene.all_channels_are_back(peer)
  end

  local function gets_none(bell) peer.holder:send{ channel = bell.channel, method = "basic.qos-ok" } end

  -- Told by somebody who waits, and at the bell, before all others.
  local function comes()
    is_told()
    local bell = scene.makes_bell(peer, BELL, FIRST)
    peer.holder:silent()
    scene.welcome(peer, bell)
    peer.holder:expect("basic.qos", { channel = bell.channel })
    peer.holder:silent()
    return bell
  end

  -- The same, with a token that it has rung for itself. Returns bell, token.
  local function keeps()
    local bell = comes()
    gets_none(bell)
    scene.rings(peer, BELL)
    return bell, scene.deliver(peer, bell)
  end

  it("and is told that somebody waits comes to the bell, once, and takes the token that lies there", function ()
    local bell = comes()
    is_told()
    local token = scene.deliver(peer, bell)
    gets_none(bell)
    is_told()
    peer:silent()
    goes(bell, token)
  end)

  it("and may not come to the bell rings in the end, and is not asked for it again and again", function ()
    is_told()
    local bell = scene.makes_bell(peer, BELL, FIRST)
    peer.holder:refuse(bell.channel, 403, scene.DENIED, "queue.declare")
    peer:silent()
    goes()
  end)

  it("under an alarm takes no token that it cannot ring for, but the one that comes", function ()
    local bell = comes()
    scene.alarm(peer)
    gets_none(bell)
    peer:silent()
    local token = scene.deliver(peer, bell)
    lock:release()
    peer.holder:delete(MUTEX, claim.channel)
    scene.returns(peer, bell, token)
  end)

  it("and whose bell is deleted under it comes to the next one, told once more", function ()
    local bell = keeps()
    scene.is_robbed(peer, bell)
    peer:silent()
    assert.is_true(lock:held())
    local again = comes()
    local token = scene.deliver(peer, again)
    gets_none(again)
    goes(again, token)
  end)

  it("and comes again leaves it to those who wait, with a token at once", function ()
    goes(keeps())
    peer:pass(20)
    local op = mutex:acquire(60)
    local bell = scene.makes_bell(peer, BELL)
    scene.looks(peer, MUTEX, "free", true)
    peer:silent() -- until the bell has said whether others wait
    scene.welcome(peer, bell)
    scene.looks(peer, MUTEX, "free", true)
    peer:silent()
    scene.deliver(peer, bell)
    scene.shuts(peer, MUTEX, true)
    assert.is_true(peer:result(op):held())
  end)

  it("and is told so while it leaves the bell, where it had waited, comes back to it", function ()
    peer, mutex = scene.open("mutex")
    mutex:acquire(60, true)
    local bell = scene.makes_bell(peer, BELL)
    scene.looks(peer, MUTEX, "free", true)
    scene.welcome(peer, bell, true)
    claim = scene.shuts(peer, MUTEX, true)
    peer.holder:expect("basic.cancel", { channel = bell.channel, consumer_tag = bell.tag })
    is_told()
    peer.holder:silent()
    peer.holder:send{ channel = bell.channel, method = "basic.cancel-ok", consumer_tag = bell.tag }
    scene.makes_bell(peer, BELL, FIRST)
  end)

  for timeout, rests in pairs{ [0] = 0, [60] = 60 } do
    it(("and comes again takes it: with a timeout of %d s, %d s later"):format(timeout, rests), function ()
      goes(keeps())
      peer:pass(rests)
      mutex:acquire(timeout)
      scene.looks(peer, MUTEX, "free")
      scene.claim(peer, MUTEX)
    end)
  end
end)
