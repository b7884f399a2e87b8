-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Acquiring a slot: which probes it sends, in which order, and how it ends. semaphore_race_spec.lua is about lost races
-- and waiting.

local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.semaphore_scene"

local unpack = table.unpack or unpack

-- The queues of slots first to last, A and B each, in the order they are asked for.
local function window(first, last)
  local names = {}
  for slot = first, last do
    table.insert(names, ("images-%d-A"):format(slot))
    table.insert(names, ("images-%d-B"):format(slot))
  end
  return names
end

-- The same where the search begins elsewhere: the first slot is asked for as well.
local function window_and_first(first, last)
  local names = window(first, last)
  table.insert(names, "images-1-A")
  return names
end

-- Slots 1 to count exist; those in `held`, or all, are held.
local function row(count, held)
  local names = {}
  for slot = 1, count do
    table.insert(names, ("images-%d-A"):format(slot))
    if held == "all" then table.insert(names, ("images-%d-B"):format(slot)) end
  end
  if held ~= "all" then
    for _, slot in ipairs(held or {}) do table.insert(names, ("images-%d-B"):format(slot)) end
  end
  return names
end

-- The core asks by passive declares, until it does something else: queue = true is there, queue = code refused; others
-- are absent. Returns their names, sorted.
local function asked_passively(peer, states)
  local names, looks = {}, {}
  while true do
    while peer.holder:next() ~= "nothing" do
      if peer.holder:next() == "channel.open" then peer.holder:opened() end
      if not peer.holder.frames[1].passive then break end
      table.insert(looks, peer.holder:expect("queue.declare"))
    end
    local look = table.remove(looks, 1)
    if not look then break end
    table.insert(names, look.queue)
    if states[look.queue] == true then
      peer.holder:declared(look.channel, look.queue)
    else
      peer.holder:refuse(look.channel, states[look.queue] or 404, "NOT_FOUND - no queue", "queue.declare")
    end
  end
  table.sort(names)
  return names
end

for _, way in ipairs(Peer.all_ways) do
  describe("an acquire, fed " .. way, function ()
    local function open(settings) return Peer.open(way, settings) end

    local function searches(seen, ...) return scene.searches(way, seen, ...) end

    -- The claim of a slot is granted; the operation then has it.
    local function gets(peer, op, slot)
      peer.holder:grant(peer.holder:claim(("images-%d-B"):format(slot), ("images-%d-A"):format(slot)))
      local lock = peer:result(op)
      assert.equal(slot, (lock:info()))
      assert.is_true(lock:held())
      peer.holder:silent()
      peer.prober:silent()
      return lock
    end

    -- The same, and it lets go of it at once.
    local function has(peer, op, slot)
      gets(peer, op, slot):drop()
      peer.holder:delete(("images-%d-B"):format(slot))
    end

    it("looks at no slot above the highest it may take, however many there are: a mutex", function ()
      local peer = open()
      local mutex = peer:semaphore("images", { most = 1 })
      local op = mutex:acquire(0)
      assert.same({ "images-1-A", "images-1-B" }, peer.prober:look(row(3, { 1 })))
      scene.no_squatters(peer)
      peer:failed(op, "busy", "images")
      op = mutex:acquire(0)
      assert.same({ "images-1-A", "images-1-B" }, peer.prober:look(row(3)))
      gets(peer, op, 1)
      op = mutex:acquire(5)
      peer.prober:look(row(3, { 1 }))
      peer:failed(op, "deadlock")
    end)

    it("takes two round trips: a window of probes, and the claim of the first free slot", function ()
      local peer = open()
      local op = peer:semaphore("images"):acquire()
      peer.holder:silent()
      assert.same(window(1, 16), peer.prober:look(row(3, { 1 })))
      peer.prober:silent()
      gets(peer, op, 2)
    end)

    it("connects first, the holder before the prober", function ()
      local peer = Peer.new(way)
      local op = peer:semaphore("images"):acquire(0)
      assert.same({ true, false }, { peer.holder:wanted(), peer.prober:wanted() })
      peer.holder:handshake()
      peer.holder:silent()
      assert.is_true(peer.prober:wanted())
      peer.prober:handshake()
      peer.prober:look(row(1))
      gets(peer, op, 1)
    end)

    it("asks for a window just past the slots it has counted, next time", function ()
      local peer = open()
      local semaphore = peer:semaphore("images")
      local op = semaphore:acquire(0)
      peer.prober:look(row(3, "all"))
      scene.no_squatters(peer)
      peer:failed(op, "busy")
      op = semaphore:acquire(0)
      assert.same(window(1, 4), peer.prober:look(row(3, "all")))
      peer:failed(op, "busy", 'all 3 slots of "images" are held')
    end)

    it("asks for two slots first when it took the first of them, and then for as many as it has seen", function ()
      local peer = open()
      local semaphore = peer:semaphore("images")
      local op = semaphore:acquire(0)
      peer.prober:look(row(3))
      local lock = gets(peer, op, 1)
      op = semaphore:acquire(0)
      assert.same(window(1, 2), peer.prober:look(row(3, { 2 })))
      assert.same(window(3, 6), peer.prober:look(row(3, { 2 })))
      gets(peer, op, 3)
      assert.is_true(lock:held())
      op = semaphore:acquire(0)
      assert.same(window(1, 4), peer.prober:look(row(3, { 3 })))
      gets(peer, op, 2)
    end)

    it("asks for sixteen behind two when it has seen so many", function ()
      local peer = open()
      local semaphore = peer:semaphore("images")
      for slot, windows in ipairs{ { window(1, 16) }, { window(1, 2) }, { window(1, 2), window(3, 18) } } do
        local op = semaphore:acquire(0)
        for _, queues in ipairs(windows) do assert.same(queues, peer.prober:look(row(20))) end
        gets(peer, op, slot)
      end
    end)

    it("asks for more than two slots again once it has lost a race", function ()
      local peer = open()
      local semaphore = peer:semaphore("images")
      local op = semaphore:acquire(0)
      peer.prober:look(row(3))
      has(peer, op, 1)
      op = semaphore:acquire(0)
      assert.same(window(1, 2), peer.prober:look(row(3)))
      peer.holder:refuse(peer.holder:claim("images-1-B", "images-1-A").channel, 405, "RESOURCE_LOCKED", "queue.declare")
      peer:pass(0.01)
      assert.same(window(1, 4), peer.prober:look(row(3, { 1 })))
      gets(peer, op, 2)
    end)

    it("asks on in windows that double when there are more slots than it knew", function ()
      local peer = open()
      local semaphore = peer:semaphore("images")
      local op = semaphore:acquire(0)
      peer.prober:look(row(2, "all"))
      scene.no_squatters(peer)
      peer:failed(op, "busy")
      op = semaphore:acquire(0)
      assert.same(window(1, 3), peer.prober:look(row(12, "all")))
      assert.same(window(4, 9), peer.prober:look(row(12, "all")))
      assert.same(window(10, 21), peer.prober:look(row(12, "all")))
      peer:failed(op, "busy", "all 12 slots")
    end)

    it("asks for as many slots as it has seen, also when there are fewer by now, until that is certain", function ()
      local peer = open()
      local semaphore = peer:semaphore("images")
      local op = semaphore:acquire(0)
      peer.prober:look(row(5, "all"))
      scene.no_squatters(peer)
      peer:failed(op, "busy")
      for _, count in ipairs{ 3, 4 } do
        op = semaphore:acquire(0)
        assert.same(window(1, 6), peer.prober:look(row(count, "all")))
        peer:failed(op, "busy", ("all %d slots"):format(count))
      end
      op = semaphore:acquire(0)
      assert.same(window(1, 6), peer.prober:look{ "images-1-A", "images-1-B", "images-3-A" })
      peer.holder:again{ "images-2-A" }
      peer:failed(op, "busy", "all 1 slots")
      semaphore:acquire(0)
      assert.same(window(1, 2), peer.prober:look(row(1)))
    end)

    it("fails when there is no first slot, whatever comes after", function ()
      for _, exists in ipairs{ {}, { "images-2-A", "images-1-B" } } do
        local peer, op = searches(exists)
        peer.holder:again{ "images-1-A" }
        peer:failed(op, "not_found", 'no semaphore "images"')
        peer.holder:silent()
      end
    end)

    describe("with slots whose node is down, which seem to be absent until they are declared passively", function ()
      it("is refused by the broker, and does not say that there is no semaphore", function ()
        local peer, op = searches({}, 0)
        assert.is_false(op:done())
        peer.holder:again({ "images-1-A" }, { ["images-1-A"] = "down" })
        peer:failed(op, "unavailable", "1 of 1 slots", "node down")
        peer.holder:silent()
      end)

      it("waits for them if it waits at all, and looks again", function ()
        local peer, op = searches({}, 60)
        peer.holder:again({ "images-1-A" }, { ["images-1-A"] = "down" })
        assert.is_false(op:done())
        peer:live(10, function () return peer.prober:next() ~= "nothing" end)
        peer.prober:look{ "images-1-A" }
        gets(peer, op, 1)
      end)

      it("takes one behind them", function ()
        local peer, op = searches({ "images-1-A", "images-1-B", "images-4-A" }, 0)
        peer.holder:again({ "images-2-A", "images-3-A" }, { ["images-2-A"] = "down", ["images-3-A"] = "down" })
        gets(peer, op, 4)
      end)

      it("takes one behind them also when it has taken one before them", function ()
        local peer = open()
        local semaphore = peer:semaphore("images")
        local op = semaphore:acquire(0)
        peer.prober:look{ "images-1-A", "images-3-A" }
        local lock = gets(peer, op, 1)
        op = semaphore:acquire(0)
        assert.same(window(1, 2), peer.prober:look{ "images-1-A", "images-1-B", "images-3-A" })
        assert.same(window(1, 4), peer.prober:look{ "images-1-A", "images-1-B", "images-3-A" })
        peer.holder:again({ "images-2-A" }, { ["images-2-A"] = "down" })
        gets(peer, op, 3)
        assert.is_true(lock:held())
      end)

      it("looks on behind them, and may lose the prober there if it waits", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(60)
        local queues = row(17, "all")
        table.remove(queues, 3)  -- 2-A
        for _, is_lost in ipairs{ true, false } do
          assert.same(window(1, 16), peer.prober:look(queues))
          peer.holder:again({ "images-2-A" }, { ["images-2-A"] = "down" })
          local probes = peer.prober:probes()
          assert.equal("images-17-A", probes[1].queue)
          if is_lost then
            peer.prober:down("timed out")
            assert.is_false(op:done())
            peer:live(10, function () return peer.prober:due() end)
            peer.prober:handshake()
          else
            peer.prober:answer(probes, { "images-17-A" })
          end
        end
        gets(peer, op, 17)
      end)

      it("asks for those that seem to be absent, and for no others between them", function ()
        local peer, op = searches({ "images-1-A", "images-1-B", "images-3-A", "images-3-B", "images-6-A" }, 0)
        peer.holder:again({ "images-2-A", "images-4-A", "images-5-A" }, { ["images-2-A"] = "down",
          ["images-4-A"] = "down", ["images-5-A"] = true })
        gets(peer, op, 5)
      end)

      it("takes none behind a gap, also if one of them is in it", function ()
        local peer, op = searches({ "images-1-A", "images-1-B", "images-4-A" }, 0)
        peer.holder:again({ "images-2-A", "images-3-A" }, { ["images-2-A"] = "down" })
        scene.no_squatters(peer)
        peer:failed(op, "busy", "all 2 slots")
      end)

      it("does not ask for them where one is free", function ()
        local peer, op = searches({ "images-1-A" }, 0)
        gets(peer, op, 1)
      end)

      it("is no deadlock, although all others are its own connection's", function ()
        local peer = open()
        local _ = peer:acquire("images")
        local op = peer:semaphore("images"):acquire(60)
        for _ = 1, 2 do peer.prober:look{ "images-1-A", "images-1-B" } end -- two slots, and then more
        peer.holder:again({ "images-2-A" }, { ["images-2-A"] = "down" })
        assert.is_false(op:done())
      end)

      it("is a deadlock where there are no others", function ()
        local peer = open()
        local _ = peer:acquire("images")
        local op = peer:semaphore("images"):acquire(60)
        for _ = 1, 2 do peer.prober:look{ "images-1-A", "images-1-B" } end -- two slots, and then more
        peer.holder:again{ "images-2-A" }
        peer:failed(op, "deadlock", "all 1 slots")
      end)

      it("takes a slot that was made between the two questions", function ()
        local peer, op = searches({}, 0)
        peer.holder:again({ "images-1-A" }, { ["images-1-A"] = true })
        gets(peer, op, 1)
      end)

      it("decides nothing when the connection is lost, or the broker denies the question, and says so", function ()
        for code, case in pairs{
          unreachable = { "timed out", function (peer) peer.holder:down("timed out") end },
          refused = { "access to queue", function (peer, look)
            peer.holder:refuse(look.channel, 403, "ACCESS_REFUSED - access to queue refused", "queue.declare")
          end },
        } do
          local words, answer = unpack(case)
          local peer, op = searches({}, 0)
          peer.holder:opened()
          answer(peer, peer.holder:expect("queue.declare", { queue = "images-1-A", passive = true }))
          peer:failed(op, code, words)
          peer.prober:silent()
          peer.holder:silent()
        end
      end)

      it("decides nothing when one of them in a gap is not answered for, whatever the others are", function ()
        local peer, op = searches({ "images-1-A", "images-1-B", "images-4-A" }, 0)
        local looks = {}
        for i = 1, 2 do
          peer.holder:opened()
          looks[i] = peer.holder:expect("queue.declare", { queue = ("images-%d-A"):format(i + 1), passive = true })
        end
        peer.holder:refuse(looks[1].channel, 404, "NOT_FOUND - no queue 'images-2-A' in vhost '/'", "queue.declare")
        peer.holder:refuse(looks[2].channel, 403, "ACCESS_REFUSED - access to queue refused", "queue.declare")
        peer:failed(op, "refused", "access to queue")
        peer.holder:silent()
      end)

      it("lets go of the question when its time is over, not only with the operation", function ()
        for code, timeout in pairs{ timeout = 2, unreachable = 60 } do
          local peer, op = searches({}, timeout)
          local channel = peer.holder:opened()
          peer.holder:expect("queue.declare", { queue = "images-1-A", passive = true })
          peer:pass(5)
          peer:failed(op, code)
          peer.holder:closes(channel)
          peer.holder:silent()
        end
      end)

      it("can be abandoned while it asks", function ()
        local peer, op = searches({}, 0)
        local channel = peer.holder:opened()
        peer.holder:expect("queue.declare", { queue = "images-1-A", passive = true })
        op:drop()
        peer.holder:closes(channel)
        peer.holder:silent()
      end)
    end)

    it("takes no slot past a gap", function ()
      local peer, op = searches({ "images-1-A", "images-1-B", "images-3-A" }, 0)
      peer.holder:again{ "images-2-A" }
      scene.no_squatters(peer)
      peer:failed(op, "busy", "all 1 slots")
    end)

    it("is busy once, looking once", function ()
      local peer, op = searches(row(3, "all"), 0)
      scene.no_squatters(peer)
      peer:failed(op, "busy", 'all 3 slots of "images" are held')
      peer.prober:silent()
    end)

    describe("meeting queues that refuse", function ()
      it("does not claim a slot whose A is unavailable", function ()
        local peer, op = searches({ ["images-1-A"] = "nack", "images-2-A" }, 0)
        gets(peer, op, 2)
      end)

      it("does not claim a slot whose B is unavailable", function ()
        local peer, op = searches({ "images-1-A", ["images-1-B"] = "nack", "images-2-A" }, 0)
        gets(peer, op, 2)
      end)

      it("is unavailable when every slot is", function ()
        local peer, op = searches({ ["images-1-A"] = "nack", ["images-2-A"] = "nack" }, 0)
        peer:failed(op, "unavailable", '2 of 2 slots of "images"')
      end)

      it("is busy when the others are held", function ()
        local peer, op = searches({ ["images-1-A"] = "nack", "images-2-A", "images-2-B" }, 0)
        scene.no_squatters(peer)
        peer:failed(op, "busy")
      end)
    end)

    describe("starting elsewhere", function ()
      -- A semaphore of `count` slots that was held before at `slot`.
      local function held_before(strategy, count, slot, settings)
        local peer = open(settings)
        local semaphore = peer:semaphore("images", { strategy = strategy })
        local op, held = semaphore:acquire(0), {}
        for other = 1, slot - 1 do held[other] = other end
        while peer.prober:next() ~= "nothing" do peer.prober:look(row(count, held)) end
        has(peer, op, slot)
        return peer, semaphore
      end

      -- The same, by who begins where it was last, and is asked for again. Returns peer, op.
      local function asks_again(count, slot)
        local peer, semaphore = held_before("last", count, slot)
        return peer, semaphore:acquire(0)
      end

      -- The same of the second slot, by who asks passively.
      local function asks_again_passively()
        local peer = open()
        local semaphore = peer:semaphore("images", { probe = "passive", strategy = "last" })
        local op = semaphore:acquire(0)
        asked_passively(peer, { ["images-1-A"] = true, ["images-1-B"] = 405, ["images-2-A"] = true })
        has(peer, op, 2)
        return peer, semaphore:acquire(0)
      end

      it("begins where it was last, and asks for the first slot along with that", function ()
        local peer, op = asks_again(5, 3)
        assert.same(window_and_first(3, 8), peer.prober:look(row(5)))
        gets(peer, op, 3)
      end)

      it("asks for nothing else where that is the first slot", function ()
        local peer, op = asks_again(5, 1)
        assert.same(window(1, 2), peer.prober:look(row(5)))
        gets(peer, op, 1)
      end)

      it("takes two round trips where one is free that is not far behind", function ()
        local peer, op = asks_again(30, 10)
        assert.same(window_and_first(10, 25), peer.prober:look(row(30, { 10, 11, 12, 13, 14 })))
        gets(peer, op, 15)
      end)

      it("takes one, whatever is not answered behind it", function ()
        local peer = open()
        local semaphore = peer:semaphore("images", { probe = "passive", strategy = "last" })
        for _ = 1, 2 do
          local op = semaphore:acquire(0)
          asked_passively(peer, { ["images-1-A"] = true, ["images-1-B"] = 405, ["images-2-A"] = true,
            ["images-3-A"] = 541 })
          has(peer, op, 2)
        end
      end)

      it("goes round: to the end, then from the first up to where it began", function ()
        local peer, op = asks_again(5, 3)
        assert.same(window_and_first(3, 8), peer.prober:look(row(5, { 3, 4, 5 })))
        assert.same(window(1, 2), peer.prober:look(row(5, { 1, 3, 4, 5 })))
        gets(peer, op, 2)
      end)

      it("asks on in windows that double, also where it goes round, and for the first slot once", function ()
        local peer, op = asks_again(100, 60)
        local held = {}
        for slot = 1, 100 do held[slot] = slot ~= 59 and slot or 100 end
        assert.same(window_and_first(60, 75), peer.prober:look(row(100, held)))
        assert.same(window(76, 107), peer.prober:look(row(100, held)))
        assert.same(window(1, 59), peer.prober:look(row(100, held)))
        gets(peer, op, 59)
      end)

      it("has been all round: busy, every slot counted once", function ()
        local peer, op = asks_again(5, 3)
        peer.prober:look(row(5, "all"))
        peer.prober:look(row(5, "all"))
        scene.no_squatters(peer)
        peer:failed(op, "busy", "all 5 slots")
      end)

      it("goes round when the slots end before where it was last", function ()
        local peer, op = asks_again(5, 5)
        peer.prober:look(row(2))
        assert.same(window(1, 4), peer.prober:look(row(2, { 1 })))
        gets(peer, op, 2)
      end)

      it("does not go round when there is no semaphore any more: not_found", function ()
        local peer, op = asks_again(5, 5)
        peer.prober:look{}
        peer.holder:again{ "images-1-A" }
        peer:failed(op, "not_found")
        peer.prober:silent()
        peer.holder:silent()
      end)

      it("takes no stray slot when the first is gone: not_found", function ()
        local peer, op = asks_again(5, 3)
        peer.prober:look{ "images-3-A" }
        peer.holder:again{ "images-1-A" }
        peer:failed(op, "not_found")
        peer.prober:silent()
        peer.holder:silent()
      end)

      it("takes a slot although the first refuses, as its node is down", function ()
        local peer, op = asks_again(5, 3)
        peer.prober:look{ ["images-1-A"] = "nack", "images-3-A" }
        gets(peer, op, 3)
      end)

      it("takes a slot although the first seems to be absent, as its node is down", function ()
        local peer, op = asks_again(5, 3)
        peer.prober:look{ "images-3-A", "images-3-B", "images-4-A" }
        peer.holder:again({ "images-1-A" }, { ["images-1-A"] = "down" })
        gets(peer, op, 4)
      end)

      it("takes nothing where the broker denies asking for the first passively", function ()
        local peer, op = asks_again_passively()
        asked_passively(peer, { ["images-1-A"] = 403, ["images-2-A"] = true })
        peer:failed(op, "refused")
        peer.holder:silent()
      end)

      it("asks once more for the first, and for a gap behind, each in its turn", function ()
        local peer, op = asks_again(5, 3)
        peer.prober:look{ "images-3-A", "images-3-B", "images-5-A" }
        peer.holder:again({ "images-1-A" }, { ["images-1-A"] = "down" })
        assert.is_false(op:done())
        peer.holder:again({ "images-4-A" }, { ["images-4-A"] = "down" })
        gets(peer, op, 5)
      end)

      it("takes nothing where the question for the first is denied", function ()
        local peer, op = asks_again(5, 3)
        peer.prober:look{ "images-3-A" }
        local look = peer.holder:expect("queue.declare", { queue = "images-1-A", passive = true })
        peer.holder:refuse(look.channel, 403, "ACCESS_REFUSED - access to queue refused", "queue.declare")
        peer:failed(op, "refused", "access to queue")
        peer.holder:silent()
      end)

      it("begins by chance farther and farther on, where it has not seen the end of the row", function ()
        local peer, semaphore = held_before("random", 100, 16)
        local farthest = 1
        for _ = 1, 60 do
          local op = semaphore:acquire(0)
          local start = tonumber(peer.prober:look(row(100))[1]:match("%-(%d+)%-A$"))
          has(peer, op, start)
          assert.is_true(start <= farthest + 15)
          farthest = math.max(farthest, start)
        end
        assert.is_true(farthest > 60)
      end)

      it("begins by chance among those in a row, whatever is seen behind a gap", function ()
        local peer, semaphore = held_before("random", 2, 2)
        for _ = 1, 20 do
          local op = semaphore:acquire(0)
          local first = peer.prober:look{ "images-1-A", "images-2-A", "images-4-A" }[1]
          local start = tonumber(first:match("%-(%d+)%-A$"))
          assert.is_true(start <= 2)
          has(peer, op, start)
        end
      end)

      it("begins by chance among as many as the last look saw in a row, though there were more", function ()
        local peer, semaphore = held_before("random", 5, 5)
        local asked_for_squatters
        local function starts_at()
          local op = semaphore:acquire(0)
          local first = peer.prober:look(row(2, "all"))[1]
          if peer.prober:next() ~= "nothing" then peer.prober:look(row(2, "all")) end
          if not asked_for_squatters then scene.no_squatters(peer) end
          asked_for_squatters = true
          peer:failed(op, "busy", "all 2 slots")
          return tonumber(first:match("%-(%d+)%-A$"))
        end
        local first
        repeat first = starts_at() until first > 2  -- whose window told that the row had ended before
        for _ = 1, 20 do assert.is_true(starts_at() <= 2) end
      end)

      it("asks for the first once with each window where it asks passively", function ()
        local peer, op = asks_again_passively()
        -- twice, the second time to see whether anything is behind
        assert.same({ "images-1-A", "images-1-A", "images-2-A", "images-2-A", "images-2-B", "images-2-B", "images-3-A",
          "images-3-A", "images-3-B", "images-3-B" }, asked_passively(peer, {}))
        peer:failed(op, "not_found")
        peer.holder:silent()
      end)

      it("begins by chance, anywhere among the slots it knows, and the seed decides", function ()
        local function starts(seed)
          local list = {}
          local peer, semaphore = held_before("random", 5, 5, { seed = seed })
          for i = 1, 40 do
            local op = semaphore:acquire(0)
            list[i] = tonumber(peer.prober:look(row(5, "all"))[1]:match("%-(%d+)%-A$"))
            if list[i] > 1 then peer.prober:look(row(5, "all")) end
            if i == 1 then scene.no_squatters(peer) end
            peer:failed(op, "busy", "all 5 slots")
          end
          return list
        end
        local met = {}
        for _, start in ipairs(starts(7)) do met[start] = true end
        assert.same({ true, true, true, true, true }, met)
        assert.same(starts(8), starts(8))
        assert.are_not.same(starts(8), starts(9))
      end)
    end)

    it("starting elsewhere, loses the prober where it would go round: unreachable, and the next begins cleanly",
      function ()
        local peer = open()
        local semaphore = peer:semaphore("images", { strategy = "last" })
        local op = semaphore:acquire(0)
        peer.prober:look(row(2, { 1 }))
        gets(peer, op, 2)
        op = semaphore:acquire(0)
        local probes = peer.prober:probes()  -- 2-A, 2-B, 3-A, …
        peer.prober:answer({ unpack(probes, 1, 3) }, { "images-2-A", "images-2-B" })
        peer.prober:down("timed out")
        peer:failed(op, "unreachable", "timed out")
        semaphore:acquire(0)
        peer.prober:handshake()
        assert.equal("channel.open", peer.prober:next())
      end)

    it("starting elsewhere, loses the prober while it asks once more, and somebody else begins: it waits for another",
      function ()
        local peer = open()
        local semaphore = peer:semaphore("images", { strategy = "last" })
        local op = semaphore:acquire(0)
        peer.prober:look(row(2, { 1 }))
        has(peer, op, 2)
        op = semaphore:acquire(60)
        for _ = 1, 2 do peer.prober:look{ "images-2-A", "images-2-B" } end -- two slots, and then more
        local look = peer.holder:expect("queue.declare", { queue = "images-1-A", passive = true })
        peer.prober:down("timed out")
        peer:semaphore("other", { probe = "passive" }):acquire(0):drop()
        peer.holder:ignore()
        peer.holder:declared(look.channel, look.queue)
        assert.is_false(op:done())
        peer:live(10, function () return peer.prober:due() end)
        peer.prober:handshake()
        peer.holder:ignore()
        peer.prober:look(row(2))
        gets(peer, op, 2)
      end)

    it("loses the holder while it looks: unreachable, and nothing is claimed in the dark", function ()
      local peer = open()
      local op = peer:semaphore("images"):acquire(0)
      local probes = peer.prober:probes()
      peer.holder:down("timed out")
      peer.prober:answer(probes, row(1))
      peer:failed(op, "unreachable", "timed out")
      op = peer:semaphore("images"):acquire(0)
      peer.holder:handshake()
      peer.prober:look(row(1))
      assert.equal(1, peer.holder:expect("channel.open").channel)
      assert.is_false(op:done())
    end)

    it("loses the holder while it looks at many: unreachable, and no more of them are asked for", function ()
      local peer = open()
      local op = peer:semaphore("images"):acquire(0)
      local probes = peer.prober:probes()
      peer.holder:down("timed out")
      peer.prober:answer(probes, row(40, "all"))
      peer:failed(op, "unreachable", "timed out")
      peer.prober:silent()
    end)

    it("loses the holder while it looks, and somebody else connects it again: no lock comes of it", function ()
      for _, steps in ipairs{ {}, { "attach" }, { "greeted" }, { "tuned" } } do
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        local probes = peer.prober:probes()
        peer.holder:down("timed out")
        local other = peer.session:open()
        if steps[1] then peer.holder[steps[1]](peer.holder) end
        peer.prober:answer(probes, row(1))
        peer:failed(op, "unreachable")
        assert.is_false(other:done())
      end
    end)

    it("waits for its own timeout while it connects, too", function ()
      local peer = Peer.new(way)
      local op = peer:semaphore("images"):acquire(2)
      peer.holder:greeted()
      peer:pass(2)
      peer:failed(op, "timeout", 'no slot of "images" came free within 2 s')
    end)
  end)
end

describe("an acquire of the only free slot of 1,000", function ()
  -- How many slots are asked for at a time, until slot `free` is claimed; all others are held.
  local function sizes_of(peer, op, free)
    local held, sizes = {}, {}
    for slot = 1, 1000 do held[slot] = slot ~= free and slot or nil end
    held[free] = free == 1 and 2 or 1
    while peer.prober:next() ~= "nothing" do
      table.insert(sizes, math.floor(#peer.prober:look(row(1000, held)) / 2))
    end
    peer.holder:grant(peer.holder:claim(("images-%d-B"):format(free), ("images-%d-A"):format(free)))
    local lock = peer:result(op)
    assert.equal(free, (lock:info()))
    return sizes, lock
  end

  it("takes at most nine round trips", function ()
    local peer = Peer.open("whole")
    local sizes = sizes_of(peer, peer:semaphore("images"):acquire(0), 1000)
    assert.same({ 16, 32, 64, 128, 256, 512 }, sizes)
    assert.is_true(#sizes + 1 <= 9)
  end)

  it("takes at most nine wherever it begins", function ()
    local most = 0
    for _, start in ipairs{ 1, 2, 17, 18, 400, 505, 506, 985, 999, 1000 } do
      local peer = Peer.open("whole")
      local semaphore = peer:semaphore("images", { strategy = "last" })
      for _, free in ipairs{ start > 1 and start - 1 or 1000, start < 1000 and start + 1 or 1 } do
        local _, before = sizes_of(peer, semaphore:acquire(0), start)
        before:drop()
        peer.holder:delete(("images-%d-B"):format(start))
        local sizes, lock = sizes_of(peer, semaphore:acquire(0), free)
        lock:drop()
        peer.holder:delete(("images-%d-B"):format(free))
        most = math.max(most, #sizes + 1)
        if free == start + 1 then assert.equal(1, #sizes) end
      end
    end
    assert.is_true(most <= 9, ("%d round trips"):format(most))
  end)
end)
