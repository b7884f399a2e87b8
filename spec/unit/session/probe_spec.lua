-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Probing by publishing. spec/unit/session/passive_spec.lua is about passive declares.

local Peer = require "spec.support.peer"
local lua53 = require "spec.support.lua53"

-- Looks at the status of "images", which shows every answer: A and B of sixteen slots are asked for.
local function ask(peer)
  local op = peer.session:administer("status", "images", {})
  return op, peer.prober:probes()
end

-- The slots seen to exist, or to be held, as text: "1 A, 3 AB".
local function seen(peer, op)
  local list = {}
  if peer.prober:next() == "basic.publish" then peer.prober:look{} end  -- the next window
  peer.holder:absent()
  for slot, state in ipairs(peer:result(op)) do
    local letters = (state.exists and "A" or "") .. (state.held and "B" or "")
    if letters ~= "" then table.insert(list, slot .. " " .. letters) end
  end
  return table.concat(list, ", ")
end

describe("a probe", function ()
  local peer

  before_each(function () peer = Peer.open() end)

  it("is an empty, transient, mandatory message that expires at once, to a queue of each half of a slot", function ()
    peer.session:administer("status", "images", {})
    local channel = peer.prober:opened()
    peer.prober:expect("confirm.select", { channel = channel, no_wait = false })
    for _, half in ipairs{ "A", "B" } do
      peer.prober:expect("basic.publish", { exchange = "", mandatory = true, routing_key = "images-1-" .. half })
      local properties = peer.prober:expect("header", { channel = channel, size = 0 }).properties
      assert.same({ "0", 1 }, { properties.expiration, properties.delivery_mode })
    end
  end)

  it("is answered with absent by return and ack, present by ack, there by nack", function ()
    local op, probes = ask(peer)
    peer.prober:answer(probes, { "images-1-A", "images-2-A", "images-2-B", ["images-3-A"] = "nack",
      ["images-4-B"] = "nack" })
    assert.equal("1 A, 2 AB, 3 A, 4 B", seen(peer, op))
  end)

  it("is answered many at a time after some were answered alone, and once more", function ()
    local op, probes = ask(peer)
    local said = {}
    for _, probe in ipairs(probes) do table.insert(said, peer.prober.returned(probe)) end
    for _, n in ipairs{ 5, 2, 1, 30 } do table.insert(said, peer.prober.ack(probes[n])) end
    table.insert(said, peer.prober.ack(probes[2], true))
    table.insert(said, peer.prober.ack(probes[20], true))
    table.insert(said, peer.prober.ack(probes[20], true))
    table.insert(said, peer.prober.ack(probes[32], true))
    peer.prober:send((table.unpack or unpack)(said))
    assert.equal("", seen(peer, op))
    assert.equal("open", peer.prober:state())
  end)

  it("is not taken for absent by a return that is another's", function ()
    local op, probes = ask(peer)
    for _, id in ipairs{ "0", "33", "65", "97", "129", "18446744073709551615", "99999999999999999999999", "", "one",
      "-1", ("1"):rep(39), ("1"):rep(200) } do
      peer.prober:send(peer.prober.returned{ channel = probes[1].channel, queue = "images-1-A", id = id })
    end
    peer.prober:answer(probes, { "images-1-A", "images-1-B" })
    assert.equal("1 AB", seen(peer, op))
  end)

  -- Tag 33 is the first that was not published.
  it("confirmed with a tag that was not published, or twice, brings the link down: protocol", function ()
    for _, tag in ipairs{ 0, 33, 34, 0x100000000, lua53.maxinteger, -1, 1 } do
      for _, multiple in ipairs(tag == 1 and { false } or { false, true }) do
        peer = Peer.open()
        local op, probes = ask(peer)
        local ack = { channel = probes[1].channel, method = "basic.ack", delivery_tag = tag, multiple = multiple }
        peer.prober:send(ack, tag == 1 and ack or "")
        peer:failed(op, "protocol", "confirmed a message that was not published")
        assert.same({ "down", "open" }, { peer.prober:state(), peer.holder:state() })
      end
    end
  end)

  -- As by RabbitMQ, where it goes to a quorum queue without a leader. What comes later on that channel waits, too.
  it("that is not answered in time keeps nobody waiting who asks later; the next goes by another channel", function ()
    local op, probes = ask(peer)
    peer:fails_after(5, op, "unreachable", "did not answer within 5 s")
    peer.prober:silent()
    local other = peer.session:administer("status", "others", {})
    assert.equal(probes[1].channel, peer.prober:probes()[1].channel)
    peer:pass(0.001)
    peer.prober:expect("channel.close", { channel = probes[1].channel })
    peer.holder:opened()
    peer.holder:expect("queue.declare", { queue = "others-1-A", passive = true })
    assert.is_false(other:done())
    local _, more = ask(peer)
    assert.not_equal(probes[1].channel, more[1].channel)
    assert.same({ 1, "65" }, { more[1].tag, more[1].id })
    local all = {}
    for i, probe in ipairs(more) do all[i] = probe.queue end
    peer.prober:answer(more, all)
    assert.equal("basic.publish", peer.prober:next()) -- they count: it goes on with the next
  end)
end)
