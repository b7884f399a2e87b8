-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A fence, step by step: how the core draws a number from it, and makes it, and the peer's answers. For the specs of
-- what draws numbers.
local assert = require "luassert"
local frames = require "spec.support.frames"

--- BASE: of the message that peers have. TRIES: how many numbers a maker draws.
local fences = { BASE = 1000000, TRIES = 22 }
local BASE, TRIES = fences.BASE, fences.TRIES

local SHAPE = { ["x-queue-type"] = "quorum", ["x-delivery-limit"] = -1, ["x-max-length"] = 1,
  ["x-overflow"] = "drop-head", ["x-consumer-disconnected-timeout"] = 1000 }

--- The steps of the fence of this name, of a peer.
function fences.of(peer, FENCE)
  local MAKER, UNFINISHED = FENCE .. "-maker", FENCE .. "-unfinished"
  local NO_FENCE = ("NOT_FOUND - no queue '%s' in vhost '/'"):format(FENCE)
  local fence = {}

  --- A connection of the fence, or of its maker, is wanted, and opened.
  function fence.connects(link, limits)
    assert.is_true(link:due())
    link:handshake(limits)
  end

  --- The core gets the message of the fence and gives it back, in one write. Returns the channel.
  function fence.peeks(link)
    if link:next() == "channel.open" then link:opened() end
    local get = link:expect("basic.get", { queue = FENCE, no_ack = false })
    link:expect("basic.nack", { channel = get.channel, delivery_tag = 0, multiple = true, requeue = true })
    link:silent()
    return get.channel
  end

  -- `is_new`: not delivered before, whatever the headers count.
  function fence.message(link, channel, headers, others, is_new)
    local returns = (headers["x-delivery-count"] or 0) + (headers["x-acquired-count"] or 0)
    link:send(frames.encode_content({ channel = channel, method = "basic.get-ok", delivery_tag = 1,
      redelivered = returns ~= 0 and not is_new, exchange = "", routing_key = FENCE, message_count = others or 0 },
      { delivery_mode = 2, headers = headers }, ""))
  end

  --- The headers of a message that has come back so many times, of which its maker saw to the first ones.
  function fence.headers(returns)
    return { ["x-amqplocks-base"] = BASE - TRIES, ["x-delivery-count"] = returns + TRIES }
  end

  --- The message is there, and has come back so many times.
  function fence.draws(returns, link)
    fence.message(link or peer.fence, fence.peeks(link or peer.fence), fence.headers(returns))
  end

  --- The maker declares its queue, which it gets; on a connection that it has, or on a new one.
  function fence.enters(again)
    if not again then fence.connects(peer.maker) end
    local channel = peer.maker:opened()
    peer.maker:expect("queue.declare", { channel = channel, queue = MAKER, exclusive = true, auto_delete = true })
    peer.maker:silent()
    peer.maker:declared(channel, MAKER)
    return channel
  end

  function fence.looks(is_there)
    if peer.maker:next() == "channel.open" then peer.maker:opened() end
    local look = peer.maker:expect("queue.declare", { queue = FENCE, passive = true })
    if is_there then peer.maker:declared(look.channel, FENCE) end
    if not is_there then peer.maker:refuse(look.channel, 404, NO_FENCE, "queue.declare") end
  end

  --- Declares the fence, and publishes its message, which is not confirmed yet. Returns the channel, and the base.
  function fence.publishes()
    if peer.maker:next() == "channel.open" then peer.maker:opened() end
    local channel = peer.maker:expect("queue.declare", { queue = MAKER, exclusive = true }).channel
    peer.maker:expect("queue.declare", { channel = channel, queue = UNFINISHED, durable = true, exclusive = false })
    peer.maker:expect("queue.declare", { channel = channel, queue = FENCE, durable = true, arguments = SHAPE })
    peer.maker:expect("confirm.select", { channel = channel })
    peer.maker:expect("basic.publish", { channel = channel, routing_key = FENCE, exchange = "", mandatory = true })
    local header = peer.maker:expect("header", { channel = channel, size = 0 })
    assert.equal(2, header.properties.delivery_mode)
    peer.maker:silent()
    return channel, header.properties.headers["x-amqplocks-base"]
  end

  function fence.confirm(channel)
    peer.maker:declared(channel, MAKER)
    peer.maker:declared(channel, UNFINISHED)
    peer.maker:declared(channel, FENCE)
    peer.maker:send{ channel = channel, method = "confirm.select-ok" }
    peer.maker:send{ channel = channel, method = "basic.ack", delivery_tag = 1 }
  end

  --- Tries whether the message lasts, by drawing numbers at once, and takes its leave.
  function fence.finishes()
    for i = 0, TRIES - 1 do
      local get = peer.maker:expect("basic.get", { queue = FENCE })
      peer.maker:expect("basic.nack", { channel = get.channel, delivery_tag = 0, multiple = true, requeue = true })
      fence.message(peer.maker, get.channel, fence.headers(i - TRIES))
    end
    local delete = peer.maker:expect("queue.delete", { queue = UNFINISHED })
    peer.maker:deleted(delete.channel)
    peer.maker:expect("connection.close")
    peer.maker:send{ channel = 0, method = "connection.close-ok" }
  end

  --- The fence is absent, and made.
  function fence.is_made()
    fence.enters()
    fence.looks(false)
    fence.confirm((fence.publishes()))
    fence.finishes()
  end

  function fence.is_absent() peer.fence:refuse(fence.peeks(peer.fence), 404, NO_FENCE) end

  return fence
end

return fences
