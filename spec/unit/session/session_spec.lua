-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local core = require "amqplocks.core"
local lfs = require "lfs"
local Peer = require "spec.support.peer"

local GOODBYE = { channel = 0, method = "connection.close-ok" }

describe("a session", function ()
  local peer

  local function open(settings) peer = Peer.open(settings) end

  before_each(function () open() end)

  -- As by SIGSTOP: time passes while it reads the one connection, and what came on the other lies there still.
  it("stopped while it reads does not take for unanswered, or for silent, what it has yet to read", function ()
    open{ heartbeat = 10, timeout = 5 }
    local op = peer:mutex("db"):acquire(0)
    peer.prober:look{}
    local claim = peer.holder:claim("db-mutex")
    peer.reads_at = peer.now + 5.01
    peer.prober:send{ channel = 0, heartbeat = true }
    assert.is_false(op:done())
    peer.holder:send({ channel = claim.channel, method = "queue.declare-ok", queue = "db-mutex" },
      { channel = claim.channel, method = "basic.consume-ok", consumer_tag = claim.tag })
    assert.is_true(peer:result(op):held())
    open{ heartbeat = 10, timeout = 60 }
    peer.reads_at = peer.now + 20.5
    peer.holder:send{ channel = 0, heartbeat = true }
    assert.equal("open", peer.prober:state())
  end)

  it("wants the holder only when it is opened, which is done when the handshake is", function ()
    peer = Peer.new()
    assert.is_false(peer.holder:wanted())
    local op = peer.session:open()
    assert.same({ true, false }, { peer.holder:wanted(), peer.prober:wanted() })
    peer.holder:handshake()
    assert.is_true(peer:result(op))
    assert.same({ false, false }, { peer.holder:wanted(), peer.prober:wanted() })
  end)

  describe("closing", function ()
    it("deletes what is held, awaits that, says goodbye on both links and awaits that too", function ()
      local lock, claim = peer:acquire("images")
      local op = peer.session:close()
      peer.holder:expect("queue.delete", { channel = claim.channel, queue = claim.queue })
      peer:silent()
      peer.holder:deleted(claim.channel)
      peer.holder:expect("connection.close", { channel = 0, reply_code = 200 })
      peer.prober:expect("connection.close", { channel = 0, reply_code = 200 })
      peer.holder:send(GOODBYE)
      assert.is_false(op:done())
      peer.prober:send(GOODBYE)
      assert.is_true(peer:result(op))
      assert.equal("not_held", select(3, lock:held()))
    end)

    it("has let go of everything, even if the connection breaks before the broker has said so", function ()
      local lock, waiting = peer:acquire("images"), peer:mutex("db"):acquire(60)
      peer.prober:probes()
      local op = peer.session:close()
      peer:failed(waiting, "closed")
      peer.holder:down()
      assert.equal("not_held", select(3, lock:held()))
      peer.prober:expect("connection.close")
      peer.prober:send(GOODBYE)
      assert.is_true(peer:result(op))
    end)

    it("does not say goodbye to a prober that is not read", function ()
      peer.prober:send{ channel = 0, method = "connection.blocked", reason = "low on memory" }
      local op = peer.session:close()
      assert.equal("down", peer.prober:state())
      peer.holder:expect("connection.close")
      peer.holder:send(GOODBYE)
      assert.is_true(peer:result(op))
    end)

    it("leaves nothing to be done: later operations say closed, closing again succeeds", function ()
      peer.session:close()
      peer.holder:send(GOODBYE)
      peer.prober:send(GOODBYE)
      peer:failed(peer.session:open(), "closed")
      peer:failed(peer:semaphore("images"):acquire(0), "closed")
      peer:failed(peer.session:administer("slots", "images", {}), "closed")
      peer:failed(peer.session:wait_released("images", {}, { 1 }), "closed")
      assert.is_true(peer:result(peer.session:close()))
      assert.is_false(peer.holder:wanted())
    end)
  end)

  it("whose closing is abandoned is closed at once", function ()
    local _ = peer:acquire("images")
    peer.session:close():drop()
    assert.same({ "down", "down" }, { peer.holder:state(), peer.prober:state() })
  end)

  it("aborting writes nothing, and ends every operation and every lock", function ()
    local lock = peer:acquire("images")
    local waiting = peer:semaphore("other"):acquire()
    peer.session:abort()
    peer:failed(waiting, "closed")
    assert.is_false(lock:held())
    assert.same({ "down", "down" }, { peer.holder:state(), peer.prober:state() })
    for _ = 1, 2 do
      peer:failed(peer:semaphore("images"):acquire(5), "closed")
      assert.same({ false, false }, { peer.holder:wanted(), peer.prober:wanted() })
    end
    peer.session:fail("holder", "unreachable", "the collector came between")
    peer.session:attach "holder"
    assert.is_false(peer.session:is_up "holder")
    peer:failed(peer.session:open(), "closed")
    peer.session:abort()
  end)

  it("that is shared takes nothing for a squatter that another caller has got, or let go of, meanwhile", function ()
    for _, is_released in ipairs{ false, true } do
      peer = Peer.open({ shared = true })
      local op = peer:semaphore("images"):acquire(60)
      peer.prober:look{ "images-1-A", "images-1-B" }
      local channel = peer.holder:opened()
      peer.holder:expect("queue.declare", { channel = channel, queue = "images-1-B", passive = true })
      local lock, claim = peer:acquire("images")
      local told = { { channel = channel, method = "queue.declare-ok", queue = "images-1-B" } } -- said before
      if is_released then
        lock:release()
        peer.holder:expect("queue.delete", { queue = "images-1-B" })
        table.insert(told, 1, { channel = claim.channel, method = "queue.delete-ok" })
      end
      peer.holder:send((table.unpack or unpack)(told))
      assert.is_false(op:done())
    end
  end)

  it("alerts of locks that are lost, and of nothing that its owner does", function ()
    for ending, alerts in pairs{ down = 1, abort = 0, close = 0 } do
      open()
      local lock = peer:acquire("images")
      assert.equal(0, peer.session:alerts())
      if ending == "abort" then peer.session:abort() end
      if ending == "close" then peer.session:close() end
      peer.holder:ignore()
      if ending ~= "abort" then peer.holder:down() end
      assert.same({ false, alerts }, { (lock:held()), peer.session:alerts() }, ending)
    end
  end)

  it("has news: links that open, alarms, links and locks that are lost, in their order, each told once", function ()
    peer = Peer.new({ url = "amqp://me:secret@broker.example:5673" })
    peer.holder:handshake()
    peer.prober:handshake()
    peer:acquire("images")
    peer.prober:send{ channel = 0, method = "connection.blocked", reason = "low on memory" }
    peer.holder:down("timed out")
    assert.same({
      "info: holder connection to broker.example:5673 is open",
      "info: prober connection to broker.example:5673 is open",
      "warning: the broker has an alarm and reads no publishers",
      'warning: "images-1-B" was lost: timed out',
      "warning: holder connection to broker.example:5673: timed out",
    }, peer:news())
    assert.same({}, peer:news())
  end)
end)

it("native sessions close their descriptors, also where there are hundreds", function ()
  local function count()
    local all = 0
    collectgarbage() -- what earlier specs have left open
    for _ in lfs.dir "/proc/self/fd" do all = all + 1 end
    return all
  end
  local before, sessions = count(), {}
  for i = 1, 300 do
    sessions[i] = core.native{}
    assert.is_number(sessions[i]:pollfd())
  end
  assert.equal(before + 300, count())
  for _, session in ipairs(sessions) do session:abort() end
  assert.equal(before, count())
end)
