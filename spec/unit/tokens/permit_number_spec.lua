-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The fencing token of a permit: which messages have one, and what happens where one is needed and there is none.
local scene = require "spec.unit.tokens.permit_scene"

local ID, BASE = "0123456789abcdef", 1000000
local MOST = 9007199254740991 -- an integer, as 2 ^ 53 - 1 is not

-- The properties of a permit that this library published, and that a quorum queue delivers, with changes.
local function permit(headers, changes)
  local properties = { delivery_mode = 2, type = "amqplocks.permit", message_id = ID,
    headers = { ["x-amqplocks-base"] = BASE } }
  for name, value in pairs(headers or {}) do properties.headers[name] = value end
  for name, value in pairs(changes or {}) do properties[name] = value end
  return properties
end

describe("the fencing token of a permit", function ()
  local peer

  before_each(function () peer = scene.open() end)

  -- An acquire gets this message. Returns the operation, the consumer, and the delivery tag.
  local function takes(properties, redelivered, quorum, fenced)
    local op = scene.semaphore(peer, quorum ~= false or fenced, { fenced = fenced }):acquire(60)
    local taker = scene.consumes(peer)
    local message, delivery = scene.message(taker, properties, redelivered)
    peer.holder:send(message)
    scene.welcome(peer, taker)
    return op, taker, delivery
  end

  local function has(number, id, ...)
    local lock = peer:result((takes(...)))
    assert.same({ number, id }, { lock:fence(), lock:permit() })
    peer.holder:silent()
    return lock
  end

  it("is its base, its count, and one; both counts are added", function ()
    has(BASE + 1, ID, permit(), false)
    has(BASE + 2, ID, permit{ ["x-delivery-count"] = 1 }, true)
    has(BASE + 8, ID, permit{ ["x-acquired-count"] = 7 }, true)
    has(BASE + 11, ID, permit{ ["x-acquired-count"] = 7, ["x-delivery-count"] = 3 }, true)
    has(BASE + 1, ("f"):rep(16), permit({ ["x-delivery-count"] = 0 }, { message_id = ("f"):rep(16) }), false)
  end)

  it("is smaller than 2^53", function ()
    has(MOST, ID, permit{ ["x-amqplocks-base"] = MOST - 2, ["x-delivery-count"] = 1 }, true)
    has(nil, nil, permit{ ["x-amqplocks-base"] = MOST - 2, ["x-delivery-count"] = 2 }, true)
  end)

  -- What has none: { the message, whether it was delivered before, quorum = false of a classic semaphore }.
  local NONE = {
    ["of version 0.1.0, which has no base"] = { { delivery_mode = 2, type = "amqplocks.permit", message_id = ID } },
    ["whose base is a text"] = { permit{ ["x-amqplocks-base"] = "1000000" } },
    ["whose base is below one"] = { permit{ ["x-amqplocks-base"] = 0 } },
    ["whose count is below zero"] = { permit{ ["x-delivery-count"] = -1 } },
    ["of other software, with a base and no type"] = { permit(nil, { type = "" }) },
    ["of other software, with a base and another type"] = { permit(nil, { type = "amqplocks.token" }) },
    ["with another kind of id"] = { permit(nil, { message_id = "0123456789ABCDEF" }) },
    ["with a long id"] = { permit(nil, { message_id = ID .. "0" }) },
    ["with an id that is text"] = { permit(nil, { message_id = "\1\255\0<script>!!!!" }) },
    ["with nothing"] = { {} },
    ["of a queue that does not count"] = { permit(), true },
    ["of a semaphore that is said to be classic"] = { permit(), quorum = false },
    ["that was dead-lettered and came back"] = { permit{ ["x-death"] = { queue = "retry" } } },
    ["that a shovel has moved"] = { permit({ ["x-shovelled"] = "1", ["x-delivery-count"] = 7 }), true },
    ["that has a count and was not delivered before"] = { permit{ ["x-acquired-count"] = 7 } },
  }

  for what, case in pairs(NONE) do
    it("is not had from a permit " .. what .. ", which is held all the same; where required: conflict", function ()
      local lock = has(nil, nil, case[1], case[2] or false, case.quorum)
      assert.is_true(lock:held())
      if case.quorum == false then return end
      local op, taker, delivery = takes(case[1], case[2] or false, true, true)
      scene.gives_back(peer, taker, delivery)
      scene.asks(peer, taker)
      peer:failed(op, "conflict", "images.semaphore", "resize(0)")
      assert.is_false(op:done())
      scene.answer(peer, taker)
      assert.is_true(op:done())
    end)
  end

  it("is not had where it is not larger than one that this session has seen of this permit: conflict", function ()
    has(BASE + 8, ID, permit{ ["x-delivery-count"] = 7 }, true)
    for count = 0, 7 do
      local op, taker, delivery = takes(permit{ ["x-delivery-count"] = count }, count > 0, true, true)
      scene.gives_back(peer, taker, delivery)
      scene.asks(peer, taker)
      peer:failed(op, "conflict", "images.semaphore", "published again", "repair()")
      scene.answer(peer, taker)
    end
    has(BASE + 1, ("f"):rep(16), permit(nil, { message_id = ("f"):rep(16) }), false)
    has(BASE + 9, ID, permit{ ["x-delivery-count"] = 8 }, true)
  end)
end)
