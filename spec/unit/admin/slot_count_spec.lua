-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"
local scene = require "spec.unit.admin.admin_scene"

local unpack = table.unpack or unpack

local slots = scene.slots

describe("a survey", function ()
  local peer

  before_each(function () peer = Peer.open() end)

  local function counted(exists)
    peer = Peer.open()
    local op = peer.session:administer("slots", "images", {})
    scene.survey(peer, exists)
    peer.holder:silent()
    return op
  end

  -- The slots given exist: number = "down" if the node is. Such a slot seems to be absent until a passive declare.
  local function with(states)
    local exists = {}
    for slot, state in pairs(states) do
      local queue = slots(slot)[1]
      if state == "down" then exists[queue] = state else table.insert(exists, queue) end
    end
    return exists
  end

  local function all_down(count)
    local states = {}
    for slot = 1, count do states[slot] = "down" end
    return states
  end

  it("counts the slots in a row, without the mutex, also those whose node is down", function ()
    for _, states in ipairs{ { true, true, true, true, true }, {}, { true, true, "down" }, { "down", true },
      { true, "down", true, "down", true }, all_down(1), all_down(16), all_down(17), all_down(150) } do
      local op = counted(with(states))
      assert.equal(#states, peer:result(op))
    end
  end)

  it("counts a slot that refuses probes as one that exists", function ()
    local op = counted{ "images-1-A", ["images-2-A"] = "nack", "images-3-A" }
    assert.equal(3, peer:result(op))
  end)

  it("calls a gap a conflict, and names it", function ()
    for stray, states in pairs{ [5] = { true, true, [5] = true }, [6] = { true, "down", [5] = "down", [6] = true } } do
      local op = counted(with(states))
      peer:failed(op, "conflict", ('"images-%d-A" exists'):format(stray), '"images-3-A" does not', "repair()")
    end
  end)

  it("decides nothing when the holder is lost, or the broker denies a passive declare", function ()
    for code, answer in pairs{
      unreachable = function () peer.holder:down("timed out") end,
      refused = function (look) peer.holder:refuse(look.channel, 403, "ACCESS_REFUSED", "queue.declare") end,
    } do
      peer = Peer.open()
      local op = peer.session:administer("slots", "images", {})
      peer.prober:look{}
      peer.prober:look{}
      peer.holder:opened()
      answer(peer.holder:expect("queue.declare", { queue = "images-1-A", passive = true }))
      peer:failed(op, code)
    end
  end)

  it("is not kept by the prober, lost meanwhile, which it no longer needs", function ()
    local op = peer.session:administer("slots", "images", {})
    peer.prober:look{}
    peer.prober:look{}
    peer.prober:down("timed out")
    peer.holder:again(slots(1))
    assert.equal(0, peer:result(op))
  end)

  it("shows what is held, gaps and strays, and slots whose node is down", function ()
    local op = peer.session:administer("status", "images", {})
    local names = scene.survey(peer, { "images-1-A", "images-1-B", "images-2-A", "images-4-B", ["images-5-A"] = "down",
      "images-6-A" })
    assert.same({ "images-1-A", "images-1-B", "images-2-A", "images-2-B" }, { unpack(names, 1, 4) })
    local function slot(exists, held) return { exists = exists, held = held } end
    assert.same({ slot(true, true), slot(true, false), slot(false, false), slot(false, true), slot(true, false),
      slot(true, false) }, peer:result(op))
  end)
end)

describe("waiting for holders", function ()
  local peer

  before_each(function () peer = Peer.open() end)

  it("asks for B alone, passes a barrier and asks again, and goes on if a holder shows up then", function ()
    local op = peer.session:wait_released("images", {}, { 6, 8 })
    for _, seen in ipairs{ { "images-6-B" }, {} } do
      assert.same({ "images-6-B", "images-8-B" }, peer.prober:look{})
      assert.matches("^images%-scratch%-%x+$", peer.prober:barrier())
      assert.is_false(op:done())
      assert.same({ "images-6-B", "images-8-B" }, peer.prober:look(seen))
      peer.prober:silent()
      if #seen > 0 then
        assert.is_false(op:done())
        peer:pass(1)
      end
    end
    assert.is_true(peer:result(op))
    peer.holder:silent()
  end)

  it("looks again after milliseconds at first, seldom in the end, and names whom it waited for in vain", function ()
    local op, looks = peer.session:wait_released("images", { timeout = 4 }, { 2, 3, 4 }), 0
    peer:live(4, function ()
      if peer.prober:next() == "nothing" then return end
      peer.prober:look{ "images-2-B", "images-4-B" }
      looks = looks + 1
    end)
    assert.is_true(looks >= 12 and looks <= 28, looks .. " looks")
    peer:failed(op, "timeout", 'still held in "images" after 4 s: slot 2 4')
  end)

  it("for no slots at all is done at once", function ()
    assert.is_true(peer:result(peer.session:wait_released("images", {}, {})))
  end)
end)
