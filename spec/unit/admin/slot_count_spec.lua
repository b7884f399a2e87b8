-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"
local deciders = require "spec.support.deciders"
local scene = require "spec.unit.admin.admin_scene"

teardown(deciders.remove)

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

  it("counts the slots in a row, without the mutex", function ()
    for _, count in ipairs{ 0, 1, 5, 16, 17, 150 } do
      assert.equal(count, peer:result(counted(scene.row(1, count))))
    end
  end)

  it("shows no slot but those that it has seen", function ()
    for slot = 0, 2 do assert.equal(slot == 1, deciders.op_shows(slot)) end
  end)

  it("counts a slot that refuses probes as one that exists", function ()
    local op = counted{ "images-1-A", ["images-2-A"] = "nack", "images-3-A" }
    assert.equal(3, peer:result(op))
  end)

  it("calls a gap a conflict, and names it", function ()
    local op = counted(slots(1, 2, 5))
    peer:failed(op, "conflict", '"images-5-A" exists', '"images-3-A" does not', "repair()")
  end)

  it("shows what is held, gaps and strays", function ()
    local op = peer.session:administer("status", "images", {})
    local names = scene.survey(peer, { "images-1-A", "images-1-B", "images-2-A", "images-4-B", "images-5-A" })
    assert.same({ "images-1-A", "images-1-B", "images-2-A", "images-2-B" }, { (table.unpack or unpack)(names, 1, 4) })
    local function slot(exists, held) return { exists = exists, held = held } end
    assert.same({ slot(true, true), slot(true, false), slot(false, false), slot(false, true), slot(true, false) },
      peer:result(op))
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
