-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Acquiring a slot: which slots it asks for, and how it ends. acquire/semaphore_race_spec.lua is about lost races and
-- waiting.

local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.rwlock_scene"

local unpack = table.unpack or unpack

local row = Peer.row

-- The slots before and after one of `count`.
local function others(count, slot)
  local list = {}
  for other = 1, count do
    if other ~= slot then table.insert(list, other) end
  end
  return list
end

-- An acquire with these options has asked once which queues exist: `seen`. Returns peer, op.
local function searches(seen, ...)
  local peer = Peer.open()
  local op = peer:semaphore("images"):acquire(...)
  peer.prober:look(seen)
  return peer, op
end

-- The claim of a slot is granted; the operation then has it.
local function gets(peer, op, slot)
  peer.holder:grant(peer:claims(slot))
  local lock = peer:result(op)
  assert.equal(slot, (lock:info()))
  assert.is_true(lock:held())
  peer:silent()
  return lock
end

-- The same, and it lets go of it at once.
local function has(peer, op, slot)
  gets(peer, op, slot):drop()
  peer.holder:delete(("images-%d-B"):format(slot))
end

-- Nothing is free. Whether the holders are true ones may be asked.
local function is_busy(peer, op, words)
  if peer.holder:next() ~= "nothing" then scene.no_squatters(peer) end
  peer:failed(op, "busy", words)
  peer:silent()
end

-- A semaphore of `count` slots that was held before at `slot`.
local function held_before(strategy, count, slot, settings)
  local peer = Peer.open(settings)
  local semaphore = peer:semaphore("images", { strategy = strategy })
  local op = semaphore:acquire(0)
  while peer.prober:next() ~= "nothing" do peer.prober:look(row(count, others(slot - 1))) end
  has(peer, op, slot)
  return peer, semaphore
end

-- An acquire begins where its semaphore was held last. Returns peer, op.
local function begins_at(slot)
  local peer, semaphore = held_before("last", 5, slot)
  return peer, semaphore:acquire(0)
end

describe("an acquire asks for", function ()
  -- One after the other by one semaphore: of so many slots, these are held; at which slot the search begins, or the
  -- last it asks for; which slot is taken. None: busy.
  local rows = {
    { "no slot above the highest it may take, however many there are", options = { most = 1 },
      { 3, { 1 }, last = 1 }, { 3, {}, last = 1, takes = 1 } },
    { "the slot that it had last, first of all", options = { strategy = "last" },
      { 5, { 1, 2 }, takes = 3 }, { 5, { 1 }, begins = 3, takes = 3 } },
    { "those up to the end, and then from the first to where it began", options = { strategy = "last" },
      { 5, { 1, 2 }, takes = 3 }, { 5, { 1, 3, 4, 5 }, begins = 3, takes = 2 }, { 2, "all", begins = 2 } },
    { "those from the first where the row ends before the slot that it had last", options = { strategy = "last" },
      { 5, { 1, 2, 3, 4 }, takes = 5 }, { 2, { 1 }, begins = 5, takes = 2 }, { 2, {}, begins = 2, takes = 2 } },
    { "those that were added since", options = { strategy = "last" }, { 2, { 1 }, takes = 2 },
      { 5, { 1, 2, 3 }, begins = 2, takes = 4 } },
    { "those of a new semaphore from the first", options = { strategy = "last" }, { 5, { 1, 2 }, takes = 3 },
      { 0, {}, begins = 3, fails = "not_found" }, { 5, {}, takes = 1 } },
  }

  for _, case in ipairs(rows) do
    it(case[1], function ()
      local peer = Peer.open()
      local semaphore = peer:semaphore("images", case.options)
      for _, step in ipairs{ unpack(case, 2) } do
        local op, asked = semaphore:acquire(0), {}
        while peer.prober:next() ~= "nothing" do
          for _, queue in ipairs(peer.prober:look(row(step[1], step[2]))) do
            table.insert(asked, tonumber(queue:match "%-(%d+)%-"))
          end
        end
        assert.equal(step.begins or 1, asked[1])
        if step.last then assert.equal(step.last, math.max(unpack(asked))) end
        if step.takes then
          has(peer, op, step.takes)
        elseif step.fails then
          peer:failed(op, step.fails)
        else
          is_busy(peer, op, "images")
        end
      end
    end)
  end

  it("at most as many as takes nine round trips with the claim, of 1,000 slots, wherever it begins", function ()
    -- The round trips until the only free slot is had, and released.
    local function trips(peer, semaphore, free)
      local op, count = semaphore:acquire(0), 1
      while peer.prober:next() ~= "nothing" do
        peer.prober:look(row(1000, others(1000, free)))
        count = count + 1
      end
      has(peer, op, free)
      assert.is_true(count <= 9, ("%d round trips"):format(count))
      return count
    end
    for _, start in ipairs{ 1, 505, 1000 } do
      local peer = Peer.open()
      local semaphore = peer:semaphore("images", { strategy = "last" })
      trips(peer, semaphore, start)
      trips(peer, semaphore, start > 1 and start - 1 or 1000)
      trips(peer, semaphore, start)
      if start < 1000 then assert.equal(2, trips(peer, semaphore, start + 1)) end
    end
  end)
end)

describe("an acquire", function ()
  -- What is there at the one look, what of it is asked for again, and what becomes of it.
  local cases = {
    { "is busy once, looking once", row(3, "all"), "busy", 'all 3 slots of "images" are held' },
    { "fails when there is no first slot, whatever comes after", { "images-2-A", "images-1-B" }, "not_found",
      'no semaphore "images"' },
    { "takes no slot past a gap", { "images-1-A", "images-1-B", "images-3-A" }, "busy", "all 1 slots" },
    { "does not claim a slot whose A is unavailable", { ["images-1-A"] = "nack", "images-2-A" }, 2 },
    { "does not claim a slot whose B is unavailable", { "images-1-A", ["images-1-B"] = "nack", "images-2-A" }, 2 },
    { "is unavailable when every slot is", { ["images-1-A"] = "nack", ["images-2-A"] = "nack" }, "unavailable",
      '2 of 2 slots of "images"' },
    { "is busy when the others are held", { ["images-1-A"] = "nack", "images-2-A", "images-2-B" }, "busy", "images" },
  }

  for _, case in ipairs(cases) do
    local title, seen, outcome, words = unpack(case)
    it(title, function ()
      local peer, op = searches(seen, 0)
      if type(outcome) == "number" then
        gets(peer, op, outcome)
      else
        if peer.holder:next() ~= "nothing" then scene.no_squatters(peer) end
        peer:failed(op, outcome, words)
        peer.holder:silent()
      end
      peer.prober:silent()
    end)
  end

  describe("that begins elsewhere", function ()
    it("takes nothing where the first slot is gone, also no stray one: not_found", function ()
      for _, seen in ipairs{ {}, { "images-3-A" } } do
        local peer, op = begins_at(3)
        peer.prober:look(seen)
        peer:failed(op, "not_found")
        peer:silent()
      end
    end)

    it("takes a slot although the first refuses", function ()
      local peer, op = begins_at(3)
      peer.prober:look{ ["images-1-A"] = "nack", "images-3-A" }
      gets(peer, op, 3)
    end)
  end)

  it("that begins by chance begins anywhere among the slots it knows, and the seed decides", function ()
    local function starts(seed)
      local list = {}
      local peer, semaphore = held_before("random", 5, 5, { seed = seed })
      for i = 1, 40 do
        local op = semaphore:acquire(0)
        list[i] = tonumber(peer.prober:look(row(5, "all"))[1]:match("%-(%d+)%-A$"))
        if list[i] > 1 then peer.prober:look(row(5, "all")) end
        is_busy(peer, op, "all 5 slots")
      end
      return list
    end
    local met = {}
    for _, start in ipairs(starts(7)) do met[start] = true end
    assert.same({ true, true, true, true, true }, met)
    assert.same(starts(8), starts(8))
    assert.are_not.same(starts(8), starts(9))
  end)

  it("that begins by chance, and knows no slots, takes any one of the free ones that it sees", function ()
    local met = {}
    for seed = 1, 40 do
      local peer = Peer.open{ seed = seed }
      peer:semaphore("images", { strategy = "random" }):acquire(0)
      peer.prober:look(row(4, { 2 }))
      peer.holder:opened()
      met[tonumber(peer.holder:expect("queue.declare").queue:match "(%d+)-B$")] = true
    end
    assert.same({ [1] = true, [3] = true, [4] = true }, met)
  end)

  it("loses the holder while it looks: unreachable, and nothing is claimed in the dark, or asked for", function ()
    for _, seen in ipairs{ row(1), row(40, "all") } do
      local peer = Peer.open()
      local op = peer:semaphore("images"):acquire(0)
      local probes = peer.prober:probes()
      peer.holder:down("timed out")
      peer.prober:answer(probes, seen)
      peer:failed(op, "unreachable", "timed out")
      peer.prober:silent()
    end
  end)

  it("that waits loses the prober while it looks, and looks again by another", function ()
    local peer = Peer.open()
    local op = peer:semaphore("images"):acquire(60)
    peer.prober:probes()
    peer.prober:down()
    peer:pass(1)
    peer.prober:handshake()
    peer.prober:look(row(1))
    gets(peer, op, 1)
  end)

  it("waits for its own timeout while it connects, too", function ()
    local peer = Peer.new()
    local op = peer:semaphore("images"):acquire(2)
    peer.holder:greeted()
    peer:fails_after(2, op, "timeout", 'no slot of "images" came free within 2 s')
  end)
end)

describe("a session", function ()
  -- It has had these slots of five, each by a new object, as in requests of nginx, the last one latest.
  local function has_had(...)
    local peer = Peer.open()
    for _, slot in ipairs{ ... } do
      local op = peer:semaphore("images"):acquire(0)
      while peer.prober:next() ~= "nothing" do peer.prober:look(row(5, others(slot - 1))) end
      has(peer, op, slot)
    end
    return peer
  end

  -- The slot at which a new object begins.
  local function start(peer, most)
    peer:semaphore("images", { strategy = "last", most = most }):acquire(0)
    return tonumber(peer.prober:probes()[1].queue:match "%-(%d+)%-A$")
  end

  it("lets each of its callers begin at another slot that it had", function ()
    local peer = has_had(1, 2, 4, 3)
    for _, slot in ipairs{ 3, 4, 2, 1, 3 } do assert.equal(slot, start(peer)) end
  end)

  it("takes no slot beyond the most that an object may take, though it had one", function ()
    assert.equal(1, start(has_had(3), 2))
  end)

  it("remembers 64 names, the latest", function ()
    local peer = has_had(3)
    for i = 1, 63 do peer:semaphore("other-" .. i) end
    assert.equal(3, start(peer))
    for i = 64, 127 do peer:semaphore("other-" .. i) end
    assert.equal(1, start(peer))
  end)
end)
