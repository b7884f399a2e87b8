-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A caller that takes slots for free because their queues are absent, and claims none of them: before RabbitMQ 4.3 it
-- must also probe their bolts (the second queues that guard slots).

local Peer = require "spec.support.peer"

local SIX, EIGHT = "images-6-B-bolt", "images-8-B-bolt"

describe("an administrator who waits for holders", function ()
  local peer

  before_each(function () peer = Peer.open(nil, { version = "3.10.8" }) end)

  local function wait(options) return peer.session:wait_released("images", options or {}, { 6, 8 }) end

  -- Nobody's queue is there, for certain; then it is asked which of the bolts are.
  local function looks(bolts)
    assert.same({ "images-6-B", "images-8-B" }, peer.prober:look{})
    peer.prober:barrier()
    assert.same({ "images-6-B", "images-8-B" }, peer.prober:look{})
    assert.same({ SIX, EIGHT }, peer.prober:look(bolts))
  end

  -- How many consume from it.
  local function sees(bolt, consumers)
    local opened = peer.holder:next() == "channel.open" and peer.holder:opened()
    local look = peer.holder:expect("queue.declare", { queue = bolt, passive = true, channel = opened or nil })
    peer.holder:silent()
    peer.holder:send{ channel = look.channel, method = "queue.declare-ok", queue = bolt, consumer_count = consumers }
  end

  it("believes it where they are open", function ()
    local op = wait()
    looks{ SIX, EIGHT }
    sees(SIX, 0)
    assert.is_false(op:done())
    sees(EIGHT, 0)
    assert.is_true(peer:result(op))
  end)

  it("believes it where they are gone when they are looked at, or their node is down; not where another has one",
    function ()
      for text, is_released in pairs{ ["NOT_FOUND - no queue 'images-8-B-bolt' in vhost '/'"] = true,
        ["NOT_FOUND - home node 'rabbit@other' of durable queue 'images-8-B-bolt' in vhost '/' is down"] = true,
        ["RESOURCE_LOCKED"] = false } do
        local op = wait()
        looks{ EIGHT }
        if peer.holder:next() == "channel.open" then peer.holder:opened() end
        local look = peer.holder:expect("queue.declare", { queue = EIGHT, passive = true })
        peer.holder:refuse(look.channel, is_released and 404 or 405, text, "queue.declare")
        if is_released then assert.is_true(peer:result(op)) else peer:failed(op, "squatted", EIGHT) end
      end
    end)

  it("waits where one is shut, or takes no message just now, and asks for everything anew", function ()
    local op = wait()
    looks{ [SIX] = "nack", EIGHT }
    sees(SIX, 1)
    sees(EIGHT, 0)
    peer:pass(1)
    looks{ SIX }
    assert.is_false(op:done())
    sees(SIX, 0)
    assert.is_true(peer:result(op))
  end)

  it("asks by passive declares while the broker reads no publishers", function ()
    peer.prober:send{ channel = 0, method = "connection.blocked", reason = "low on memory" }
    local op = wait()
    peer.holder:again{ "images-6-B", "images-8-B" }
    peer.holder:barrier()
    peer.holder:again{ "images-6-B", "images-8-B" }
    peer.holder:again({ SIX, EIGHT }, { [EIGHT] = true })
    sees(EIGHT, 0)
    assert.is_true(peer:result(op))
    peer.prober:silent()
  end)

  it("fails with either connection", function ()
    local op = wait()
    looks{ EIGHT }
    peer.holder:down("timed out")
    peer:pass(1)
    peer:failed(op, "unreachable", "timed out")
    peer = Peer.open(nil, { version = "3.10.8" })
    op = wait()
    looks{ EIGHT }
    sees(EIGHT, 1)
    peer:pass(1)
    peer.prober:look{}
    peer.prober:barrier()
    peer.prober:look{}
    peer.prober:down("timed out")
    peer:pass(1)
    peer:failed(op, "unreachable", "timed out")
  end)
end)
