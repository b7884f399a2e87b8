-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The fencing token of a mutex: drawn from the fence while the mutex is held, and handed over only if it still is. How
-- a fence is made, and how failures of the connections for this end.

local fences = require "spec.unit.acquire.fence_scene"
local scene = require "spec.unit.locks.rwlock_scene"

local MUTEX, FENCE = "db-mutex", "db-mutexfence"
local BASE, TRIES = fences.BASE, fences.TRIES

describe("the fencing token of a mutex", function ()
  local peer, mutex, fence

  local function open()
    peer, mutex = scene.open("mutex", nil, { fenced = true })
    fence = fences.of(peer, FENCE)
  end

  before_each(open)

  -- The core claims the mutex, and the broker grants it. Returns the claim.
  local function claims()
    local claim = scene.shuts(peer, MUTEX)
    assert.is_true(peer.fence:wanted() or peer.fence:state() == "open")
    return claim
  end

  -- An acquire that has the mutex, and whose connection for drawing is open. Returns operation and claim.
  local function begins(timeout)
    local op = mutex:acquire(timeout or 0)
    local claim = claims()
    fence.connects(peer.fence)
    return op, claim
  end

  -- The mutex is still its own, as the broker says, and so it has it. Returns the operation's lock.
  local function has(op, claim, number)
    peer.holder:expect("queue.declare", { channel = claim.channel, queue = MUTEX, passive = true })
    assert.is_false(op:done())
    peer.holder:declared(claim.channel, MUTEX)
    local lock = peer:result(op)
    assert.equal(number, lock:fence())
    assert.is_true(lock:held())
    return lock
  end

  -- Failed, and gives the mutex back.
  local function fails(op, claim, code, ...)
    peer:failed(op, code, ...)
    peer.holder:expect("queue.delete", { channel = claim.channel, queue = MUTEX })
  end

  -- The fence is made anew, and a number drawn from it.
  local function made_anew(op, claim)
    local channel, base = fence.publishes()
    assert.equal(math.floor(peer:wall() * 1e6), base)
    fence.confirm(channel)
    fence.finishes()
    fence.draws(TRIES)
    has(op, claim, BASE + TRIES + 1)
  end

  -- There is no fence, and one is published, which is not confirmed. Returns the operation, claim and channel.
  local function publishes(timeout)
    local op, claim = begins(timeout)
    fence.is_absent()
    fence.enters()
    fence.looks(false)
    return op, claim, (fence.publishes())
  end

  it("is drawn when the mutex is held, and there when it is certain that it still is", function ()
    local op = mutex:acquire(0)
    local claim = claims()
    fence.connects(peer.fence)
    fence.draws(4)
    has(op, claim, BASE + 5)
    assert.equal("idle", peer.maker:state())
  end)

  local UNUSABLE = {
    ["with a base of 0"] = { { ["x-amqplocks-base"] = 0 } },
    ["that has returned a negative number of times"] = { { ["x-amqplocks-base"] = BASE, ["x-delivery-count"] = -2 } },
    ["beside another"] = { { ["x-amqplocks-base"] = BASE - TRIES, ["x-delivery-count"] = TRIES }, 1 },
    ["whose count began anew, or whose maker did not come to its end"] = { { ["x-amqplocks-base"] = BASE } },
    ["that came back once too few times for its maker"] = {
      { ["x-amqplocks-base"] = BASE, ["x-delivery-count"] = TRIES - 1 } },
    ["that has a count and was not delivered before"] = {
      { ["x-amqplocks-base"] = BASE, ["x-delivery-count"] = TRIES }, 0, true },
  }
  local MANY = 2 ^ 53
  for what, counts in pairs{ ["large"] = { MANY * 2, 0 }, ["large together"] = { MANY * 512, MANY * 512 },
    ["negative"] = { TRIES + 10, -1 } } do
    UNUSABLE["with counts that no broker counts: " .. what] = { { ["x-amqplocks-base"] = BASE,
      ["x-delivery-count"] = counts[1], ["x-acquired-count"] = counts[2] } }
  end
  for _, header in ipairs{ "x-death", "x-shovelled", "x-received-from" } do
    UNUSABLE["with the header " .. header] = { { ["x-amqplocks-base"] = BASE, ["x-delivery-count"] = TRIES,
      [header] = header == "x-death" and { queue = "retry" } or "1" } }
  end

  for what, how in pairs(UNUSABLE) do
    it("is not read from a message " .. what .. ": the fence is made anew", function ()
      local op, claim = begins()
      fence.message(peer.fence, fence.peeks(peer.fence), how[1], how[2], how[3])
      fence.enters()
      fence.looks(true)
      fence.message(peer.maker, fence.peeks(peer.maker), how[1], how[2], how[3])
      peer.maker:delete(FENCE)
      made_anew(op, claim)
    end)
  end

  it("is not had from a queue whose message has no base, or a text as its base: squatted", function ()
    for _, base in ipairs{ false, "1000000" } do
      open()
      local op, claim = begins()
      local headers = { ["x-amqplocks-base"] = base or nil }
      fence.message(peer.fence, fence.peeks(peer.fence), headers)
      fence.enters()
      fence.looks(true)
      fence.message(peer.maker, fence.peeks(peer.maker), headers)
      fails(op, claim, "squatted", FENCE)
    end
  end)

  it("is not had where this user may not draw: refused", function ()
    local op, claim = begins()
    peer.fence:refuse(fence.peeks(peer.fence), 403, "ACCESS_REFUSED - read access", "basic.get")
    fails(op, claim, "refused", FENCE, "read access")
  end)

  local MOST = 9007199254740992 -- 2^53
  local USED_UP = { ["x-amqplocks-base"] = MOST - 40, ["x-delivery-count"] = 39 }

  it("is less than 2^53, and there is none after the last: conflict, and no smaller one instead", function ()
    local op, claim = begins()
    fence.message(peer.fence, fence.peeks(peer.fence), { ["x-amqplocks-base"] = MOST - 40,
      ["x-delivery-count"] = 38 })
    has(op, claim, MOST - 1):release()
    scene.goes(peer, claim, "db-mutexbell")
    op = mutex:acquire(0)
    claim = scene.shuts(peer, MUTEX)
    fence.message(peer.fence, fence.peeks(peer.fence), USED_UP)
    fails(op, claim, "conflict", "2^53", FENCE)
    assert.is_false(peer.maker:wanted())
  end)

  it("is not had where another client has made a fence whose numbers are used up: conflict", function ()
    local op, claim = begins()
    fence.is_absent()
    fence.enters()
    fence.looks(true)
    fence.message(peer.maker, fence.peeks(peer.maker), USED_UP)
    fails(op, claim, "conflict", "2^53", FENCE)
  end)

  describe("where there is no fence", function ()
    it("begins anew, on another connection, if that of the maker is lost", function ()
      local op, claim = publishes()
      peer.maker:down()
      peer:pass(0.2)
      fence.enters()
      fence.looks(true)
      fence.draws(0 - TRIES, peer.maker) -- it was published, and not tried
      peer.maker:delete(FENCE)
      made_anew(op, claim)
    end)

    it("is not had where a fence is deleted again and again: conflict", function ()
      local op, claim = begins()
      for _ = 1, 2 do
        fence.is_absent()
        peer:pass(0.2)
        fence.is_made()
      end
      fence.is_absent()
      fails(op, claim, "conflict", "expires")
    end)

    it("is not had where making one is refused: limit", function ()
      local op, claim, channel = publishes()
      local text = "PRECONDITION_FAILED - cannot declare queue: queue limit in vhost '/' (9) is reached"
      peer.maker:refuse(channel, 406, text, "queue.declare")
      fails(op, claim, "limit", FENCE, text)
    end)

    it("ends with the caller's time, and the maker's connection at once", function ()
      local op, claim = publishes(1)
      peer:pass(1)
      fails(op, claim, "timeout", "was granted, and no number could be drawn within 1 s: the broker did not answer")
      assert.equal("down", peer.maker:state())
    end)
  end)

  describe("on a connection that fails", function ()
    it("or is silent, is drawn on the next one", function ()
      for _, is_silent in ipairs{ false, true } do
        open()
        local op, claim = begins()
        fence.peeks(peer.fence)
        if is_silent then peer:pass(2.5) else peer.fence:down() end
        assert.is_true(not op:done() and peer.fence:wanted())
        peer:pass(0.2)
        fence.connects(peer.fence)
        fence.draws(7)
        has(op, claim, BASE + 8)
      end
    end)

    it("again and again, is not had: unavailable", function ()
      local op = mutex:acquire(0)
      local claim = claims()
      peer:live(20, function ()
        if peer.fence:due() then peer.session:fail("fence", "unreachable", "nobody is there") end
        return op:done()
      end)
      fails(op, claim, "unavailable", FENCE, "nobody is there", "within 5 s")
    end)
  end)

  it("is not had if it is not larger than one seen before: conflict", function ()
    local op, claim = begins()
    fence.draws(7)
    has(op, claim, BASE + 8):release()
    scene.goes(peer, claim, "db-mutexbell")
    op = mutex:acquire(0)
    claim = scene.shuts(peer, MUTEX)
    fence.draws(7)
    fails(op, claim, "conflict", tostring(BASE + 8))
  end)

  -- The end of the deletion, and the code and message of forget_fence; no code: it succeeds.
  for what, row in pairs{
    ["is answered"] = { function (channel) peer.fence:deleted(channel) end },
    ["is refused"] = { function (channel) peer.fence:refuse(channel, 403, "ACCESS_REFUSED", "queue.delete") end,
      "refused", FENCE },
    ["is cut off"] = { function () peer.fence:down "reset by peer" end, "unreachable", "reset by peer" },
    ["is not answered"] = { function (channel)
      peer:pass(5)
      peer.fence:expect("channel.close", { channel = channel })
    end, "unreachable", "within 5 s" },
  } do
    it("has both queues of its fence deleted when that is forgotten, which " .. what, function ()
      local op = peer.session:forget_fence("mutex", "db")
      fence.connects(peer.fence)
      local channel = peer.fence:opened()
      peer.fence:expect("queue.delete", { channel = channel, queue = FENCE })
      peer.fence:expect("queue.delete", { channel = channel, queue = FENCE .. "-unfinished" })
      peer.fence:deleted(channel)
      assert.is_false(op:done())
      row[1](channel)
      peer.fence:silent()
      if row[2] then peer:failed(op, row[2], row[3]) else assert.is_true(peer:result(op)) end
    end)
  end

  it("costs no connection when it was not drawn for a minute", function ()
    local op, claim = begins()
    fence.draws(0)
    has(op, claim, BASE + 1)
    peer:pass(59)
    assert.equal("open", peer.fence:state())
    peer.fence:ignore() -- heartbeats
    peer:pass(1)
    peer.fence:expect("connection.close")
    peer.fence:send{ channel = 0, method = "connection.close-ok" }
    assert.is_false(peer.fence:wanted())
  end)
end)
