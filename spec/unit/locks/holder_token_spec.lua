-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The holder of a mutex for which others wait; that of a door does the same. It is notified of waiters and takes a
-- token from the bell that they declared, so that its death wakes the next waiter. It lines up behind them when it
-- acquires again.

local scene = require "spec.unit.locks.rwlock_scene"

local FIRST = 2147483647 -- the priority of who comes before all that wait

local MUTEX, BELL = "db-mutex", "db-mutexbell"

describe("whoever has a mutex", function ()
  local peer, mutex

  local function open(...) peer, mutex = scene.open("mutex", ...) end

  before_each(function () open() end)

  local function silent() scene.silent(peer) end
  local function sees(state, waits) scene.looks(peer, MUTEX, state, waits) end
  local function is_told(claim) scene.tell(peer, claim, "amqplocks.waiting") end

  local function acquire()
    local op = mutex:acquire(0)
    local claim = scene.shuts(peer, MUTEX)
    return peer:result(op), claim
  end

  -- Let go, and gone. The token, if it has one, goes back then; otherwise it is rung for.
  local function goes(lock, claim, bell, token)
    lock:release()
    peer.holder:delete(MUTEX, claim.channel)
    if token then scene.returns(peer, bell, token) else scene.rings(peer, BELL) end
    silent()
  end

  local function asks_for_token(bell)
    peer.holder:expect("basic.qos", { channel = bell.channel })
    peer.holder:silent()
  end

  local function gets_none(bell) peer.holder:send{ channel = bell.channel, method = "basic.qos-ok" } end

  -- At the bell, before all others.
  local function comes()
    local bell = scene.makes_bell(peer, BELL, FIRST)
    peer.holder:silent()
    scene.welcome(peer, bell)
    asks_for_token(bell)
    return bell
  end

  -- Told by somebody who waits, and at the bell. Returns lock, claim, bell.
  local function acquires_and_comes()
    local lock, claim = acquire()
    is_told(claim)
    return lock, claim, comes()
  end

  -- With a token that it has rung for itself.
  local function keeps()
    local lock, claim, bell = acquires_and_comes()
    gets_none(bell)
    scene.rings(peer, BELL)
    return lock, claim, bell, scene.deliver(peer, bell)
  end

  describe("told that somebody waits for it,", function ()
    it("comes to the bell before all others, and takes the token that lies there", function ()
      local lock, claim, bell = acquires_and_comes()
      local token = scene.deliver(peer, bell)
      gets_none(bell)
      silent()
      assert.is_true(lock:held())
      goes(lock, claim, bell, token)
      scene.all_channels_are_back(peer)
    end)

    it("is told again and again: once is enough", function ()
      local _, claim = acquire()
      is_told(claim)
      local bell = scene.makes_bell(peer, BELL, FIRST)
      is_told(claim)
      scene.welcome(peer, bell)
      asks_for_token(bell)
      is_told(claim)
      gets_none(bell)
      scene.rings(peer, BELL)
      is_told(claim)
      scene.deliver(peer, bell)
      is_told(claim)
      silent()
    end)

    it("and lets go before it knows whether a token lay there: rings, and gives that one back", function ()
      local lock, claim, bell = acquires_and_comes()
      lock:release()
      peer.holder:delete(MUTEX, claim.channel)
      peer.holder:expect("basic.cancel", { channel = bell.channel, consumer_tag = bell.tag, no_wait = false })
      scene.rings(peer, BELL)
      gets_none(bell)
      local token = scene.deliver(peer, bell)
      peer.holder:expect("basic.nack", { channel = bell.channel, delivery_tag = token, requeue = true })
      peer.holder:send{ channel = bell.channel, method = "basic.cancel-ok", consumer_tag = bell.tag }
      silent()
      scene.all_channels_are_back(peer)
    end)

    it("but by a message to whoever had its channel before: that means nothing, nor does any other", function ()
      local first, claim = acquire()
      goes(first, claim)
      local lock, again = acquire()
      assert.equal(claim.channel, again.channel)
      for _, type in ipairs{ "amqplocks.waiting", "amqplocks.revoke", "amqplocks.token" } do
        scene.tell(peer, claim, type)
      end
      silent()
      assert.same({ true, false }, { lock:held(), lock:revoked() })
    end)

    it("and may not come to the bell: rings in the end, and is not asked for it again and again", function ()
      local lock, claim = acquire()
      is_told(claim)
      local bell = scene.makes_bell(peer, BELL, FIRST)
      peer.holder:refuse(bell.channel, 403, scene.DENIED, "queue.declare")
      silent()
      assert.is_true(lock:held())
      goes(lock, claim)
      scene.all_channels_are_back(peer)
    end)

    it("under an alarm: takes no token that it cannot ring for, but the one that comes", function ()
      local lock, claim, bell = acquires_and_comes()
      scene.alarm(peer)
      gets_none(bell)
      silent()
      local token = scene.deliver(peer, bell)
      silent()
      goes(lock, claim, bell, token)
    end)

    it("whose bell is deleted under it: rings in the end; told once more, comes to the next one", function ()
      local lock, claim, bell = keeps()
      scene.is_robbed(peer, bell)
      silent()
      assert.is_true(lock:held())
      is_told(claim)
      local again = comes()
      local token = scene.deliver(peer, again)
      gets_none(again)
      goes(lock, claim, again, token)
      scene.all_channels_are_back(peer)
    end)

    it("and is closed with the session: gone first, then the token, then goodbye", function ()
      local _, claim, bell, token = keeps()
      peer.session:close()
      peer.holder:delete(MUTEX, claim.channel)
      scene.returns(peer, bell, token)
      peer.holder:expect("connection.close")
    end)
  end)

  describe("and comes again,", function ()
    -- Having been told, and let go.
    local function was_told()
      local lock, claim, bell, token = keeps()
      goes(lock, claim, bell, token)
    end

    it("lines up: leaves it to those who wait, with a token at once", function ()
      was_told()
      scene.rests(peer, 20)
      local op = mutex:acquire(60)
      local bell = scene.makes_bell(peer, BELL)
      sees("free", true)
      silent() -- until the bell has said whether others wait
      scene.welcome(peer, bell)
      sees("free", true)
      peer:pass(0.035)
      sees("free", true)
      silent()
      local token = scene.deliver(peer, bell)
      local claim = scene.shuts(peer, MUTEX, true)
      local lock = peer:result(op)
      goes(lock, claim, bell, token)
      scene.all_channels_are_back(peer)
    end)

    it("does not if it may not wait", function ()
      was_told()
      local op = mutex:acquire(0)
      scene.shuts(peer, MUTEX)
      peer:result(op)
    end)

    it("does not after a minute", function ()
      was_told()
      scene.rests(peer, 30)
      scene.rests(peer, 30)
      local op = mutex:acquire(60)
      scene.shuts(peer, MUTEX)
      if peer.holder:next() == "basic.qos" then peer.holder:expect("basic.qos") end -- the pulse
      peer:result(op)
    end)
  end)
end)
