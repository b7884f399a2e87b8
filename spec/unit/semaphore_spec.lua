-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Acquiring: what is asked, in which order, and how it ends. semaphore_race_spec.lua is about losing and waiting.

local Peer = require "spec.support.peer"

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

-- Whether the holders of slots found busy are true ones is asked once a minute: they are.
local function no_squatters(peer)
  local channel = peer.holder:next() == "channel.open" and peer.holder:opened()
  while peer.holder:next() == "queue.declare" do
    channel = peer.holder:expect("queue.declare", { passive = true }).channel
  end
  peer.holder:refuse(channel, 405, "RESOURCE_LOCKED", "queue.declare")
end

for _, way in ipairs(Peer.all_ways) do
  describe("an acquire, fed " .. way, function ()
    local function open(settings) return Peer.open(way, settings) end

    -- The claim of a slot is granted; the operation then has it.
    local function gets(peer, op, slot, ...)
      peer.holder:grant(peer.holder:claim(("images-%d-B"):format(slot), ("images-%d-A"):format(slot), ...))
      local lock = peer:result(op)
      assert.equal(slot, (lock:info()))
      assert.is_true(lock:held())
      peer.holder:silent()
      peer.prober:silent()
      return lock
    end

    it("looks at no slot above the highest it may take, however many there are: a mutex", function ()
      local peer = open()
      local mutex = peer:semaphore("images", { most = 1 })
      local op = mutex:acquire(0)
      assert.same({ "images-1-A", "images-1-B" }, peer.prober:look(row(3, { 1 })))
      no_squatters(peer)
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
      no_squatters(peer)
      peer:failed(op, "busy")
      op = semaphore:acquire(0)
      assert.same(window(1, 4), peer.prober:look(row(3, "all")))
      peer:failed(op, "busy", 'all 3 slots of "images" are held')
    end)

    it("asks for a window just past the slots it has seen, also when it took the first of them", function ()
      local peer = open()
      local semaphore = peer:semaphore("images")
      local op = semaphore:acquire(0)
      peer.prober:look(row(3))
      local lock = gets(peer, op, 1)
      op = semaphore:acquire(0)
      assert.same(window(1, 4), peer.prober:look(row(3, { 2 })))
      gets(peer, op, 3)
      assert.is_true(lock:held())
    end)

    it("asks for sixteen when it has seen so many, whichever it took", function ()
      local peer = open()
      local semaphore = peer:semaphore("images")
      for slot = 1, 3 do
        local op = semaphore:acquire(0)
        assert.same(window(1, 16), peer.prober:look(row(20)))
        gets(peer, op, slot)
      end
    end)

    it("asks on in windows that double when there are more slots than it knew", function ()
      local peer = open()
      local semaphore = peer:semaphore("images")
      local op = semaphore:acquire(0)
      peer.prober:look(row(2, "all"))
      no_squatters(peer)
      peer:failed(op, "busy")
      op = semaphore:acquire(0)
      assert.same(window(1, 3), peer.prober:look(row(12, "all")))
      assert.same(window(4, 9), peer.prober:look(row(12, "all")))
      assert.same(window(10, 21), peer.prober:look(row(12, "all")))
      peer:failed(op, "busy", "all 12 slots")
    end)

    it("fails when there is no first slot, whatever comes after", function ()
      for _, exists in ipairs{ {}, { "images-2-A", "images-1-B" } } do
        local peer = open()
        local op = peer:semaphore("images"):acquire()
        peer.prober:look(exists)
        peer.holder:again{ "images-1-A" }
        peer:failed(op, "not_found", 'no semaphore "images"')
        peer.holder:silent()
      end
    end)

    describe("with slots whose node is down, which seem to be absent until they are declared passively", function ()
      it("is refused by the broker, and does not say that there is no semaphore", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{}
        assert.is_false(op:done())
        peer.holder:again({ "images-1-A" }, { ["images-1-A"] = "down" })
        peer:failed(op, "unavailable", "1 of 1 slots", "node down")
        peer.holder:silent()
      end)

      it("waits for them if it waits at all, and looks again", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(60)
        peer.prober:look{}
        peer.holder:again({ "images-1-A" }, { ["images-1-A"] = "down" })
        assert.is_false(op:done())
        peer:live(10, function () return peer.prober:next() ~= "nothing" end)
        peer.prober:look{ "images-1-A" }
        gets(peer, op, 1)
      end)

      it("takes one behind them", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{ "images-1-A", "images-1-B", "images-4-A" }
        peer.holder:again({ "images-2-A", "images-3-A" }, { ["images-2-A"] = "down", ["images-3-A"] = "down" })
        gets(peer, op, 4)
      end)

      it("takes none behind a gap, also if one of them is in it", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{ "images-1-A", "images-1-B", "images-4-A" }
        peer.holder:again({ "images-2-A", "images-3-A" }, { ["images-2-A"] = "down" })
        no_squatters(peer)
        peer:failed(op, "busy", "all 2 slots")
      end)

      it("does not ask for them where one is free", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{ "images-1-A" }
        gets(peer, op, 1)
      end)

      it("is no deadlock, although all others are its own connection's", function ()
        local peer = open()
        local _ = peer:acquire("images")
        local op = peer:semaphore("images"):acquire(60)
        peer.prober:look{ "images-1-A", "images-1-B" }
        peer.holder:again({ "images-2-A" }, { ["images-2-A"] = "down" })
        assert.is_false(op:done())
      end)

      it("is a deadlock where there are no others", function ()
        local peer = open()
        local _ = peer:acquire("images")
        local op = peer:semaphore("images"):acquire(60)
        peer.prober:look{ "images-1-A", "images-1-B" }
        peer.holder:again{ "images-2-A" }
        peer:failed(op, "deadlock", "all 1 slots")
      end)

      it("takes a slot that was made between the two questions", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{}
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
          local peer = open()
          local op = peer:semaphore("images"):acquire(0)
          peer.prober:look{}
          peer.holder:opened()
          answer(peer, peer.holder:expect("queue.declare", { queue = "images-1-A", passive = true }))
          peer:failed(op, code, words)
          peer.prober:silent()
          peer.holder:silent()
        end
      end)

      it("decides nothing when one of them in a gap is not answered for, whatever the others are", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{ "images-1-A", "images-1-B", "images-4-A" }
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
          local peer = open()
          local op = peer:semaphore("images"):acquire(timeout)
          peer.prober:look{}
          local channel = peer.holder:opened()
          peer.holder:expect("queue.declare", { queue = "images-1-A", passive = true })
          peer:pass(5)
          peer:failed(op, code)
          peer.holder:closes(channel)
          peer.holder:silent()
        end
      end)

      it("can be abandoned while it asks", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{}
        local channel = peer.holder:opened()
        peer.holder:expect("queue.declare", { queue = "images-1-A", passive = true })
        op:drop()
        peer.holder:closes(channel)
        peer.holder:silent()
      end)
    end)

    it("takes no slot past a gap", function ()
      local peer = open()
      local op = peer:semaphore("images"):acquire(0)
      peer.prober:look{ "images-1-A", "images-1-B", "images-3-A" }
      peer.holder:again{ "images-2-A" }
      no_squatters(peer)
      peer:failed(op, "busy", "all 1 slots")
    end)

    it("is busy once, looking once", function ()
      local peer = open()
      local op = peer:semaphore("images"):acquire(0)
      peer.prober:look(row(3, "all"))
      no_squatters(peer)
      peer:failed(op, "busy", 'all 3 slots of "images" are held')
      peer.prober:silent()
    end)

    describe("meeting queues that refuse", function ()
      it("does not claim a slot whose A is unavailable", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{ ["images-1-A"] = "nack", "images-2-A" }
        gets(peer, op, 2)
      end)

      it("does not claim a slot whose B is unavailable", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{ "images-1-A", ["images-1-B"] = "nack", "images-2-A" }
        gets(peer, op, 2)
      end)

      it("is unavailable when every slot is", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{ ["images-1-A"] = "nack", ["images-2-A"] = "nack" }
        peer:failed(op, "unavailable", '2 of 2 slots of "images"')
      end)

      it("is busy when the others are held", function ()
        local peer = open()
        local op = peer:semaphore("images"):acquire(0)
        peer.prober:look{ ["images-1-A"] = "nack", "images-2-A", "images-2-B" }
        no_squatters(peer)
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
        peer.prober:look(row(count, held))
        gets(peer, op, slot, slot > 1 and "images-1-A" or nil):drop()
        peer.holder:delete(("images-%d-B"):format(slot))
        return peer, semaphore
      end

      it("begins where it was last, and looks at the first slot behind the claim", function ()
        local peer, semaphore = held_before("last", 5, 3)
        local op = semaphore:acquire(0)
        assert.same(window(3, 8), peer.prober:look(row(5)))
        gets(peer, op, 3, "images-1-A")
      end)

      it("needs only one look behind the claim where that is the first slot", function ()
        local peer, semaphore = held_before("last", 5, 1)
        local op = semaphore:acquire(0)
        peer.prober:look(row(5))
        gets(peer, op, 1)
      end)

      it("goes round: to the end, then from the first up to where it began", function ()
        local peer, semaphore = held_before("last", 5, 3)
        local op = semaphore:acquire(0)
        peer.prober:look(row(5, { 3, 4, 5 }))
        assert.same(window(1, 2), peer.prober:look(row(5, { 1, 3, 4, 5 })))
        gets(peer, op, 2, "images-1-A")
      end)

      it("has been all round: busy, every slot counted once", function ()
        local peer, semaphore = held_before("last", 5, 3)
        local op = semaphore:acquire(0)
        peer.prober:look(row(5, "all"))
        peer.prober:look(row(5, "all"))
        no_squatters(peer)
        peer:failed(op, "busy", "all 5 slots")
      end)

      it("goes round when the slots end before where it was last", function ()
        local peer, semaphore = held_before("last", 5, 5)
        local op = semaphore:acquire(0)
        peer.prober:look(row(2))
        assert.same(window(1, 4), peer.prober:look(row(2, { 1 })))
        gets(peer, op, 2, "images-1-A")
      end)

      it("goes round when there is no semaphore any more: not_found", function ()
        local peer, semaphore = held_before("last", 5, 5)
        local op = semaphore:acquire(0)
        peer.prober:look{}
        peer.prober:look{}
        peer.holder:again{ "images-1-A" }
        peer:failed(op, "not_found")
      end)

      it("takes a stray slot for one, but not when the first is gone: looks again", function ()
        local peer, semaphore = held_before("last", 5, 3)
        local op = semaphore:acquire(0)
        peer.prober:look{ "images-3-A" }
        local claim = peer.holder:claim("images-3-B", "images-3-A", "images-1-A")
        peer.holder:declared(claim.channel, "images-3-B")
        peer.holder:declared(claim.channel, "images-3-A")
        peer.holder:refuse(claim.channel, 404, "NOT_FOUND - no queue 'images-1-A'", "queue.declare")
        assert.is_false(op:done())
        peer.holder:delete("images-3-B", peer.holder:opened())
        peer:pass(0.01)
        peer.prober:look{}
        peer.prober:look{}
        peer.holder:again{ "images-1-A" }
        peer:failed(op, "not_found")
      end)

      it("begins by chance, anywhere among the slots it knows, and the seed decides", function ()
        local function starts(seed)
          local list = {}
          local peer, semaphore = held_before("random", 5, 5, { seed = seed })
          for i = 1, 40 do
            local op = semaphore:acquire(0)
            list[i] = tonumber(peer.prober:look(row(5, "all"))[1]:match("%-(%d+)%-A$"))
            if list[i] > 1 then peer.prober:look(row(5, "all")) end
            if i == 1 then no_squatters(peer) end
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
        gets(peer, op, 2, "images-1-A")
        op = semaphore:acquire(0)
        local probes = peer.prober:probes()  -- 2-A, 2-B, 3-A, …
        peer.prober:answer({ unpack(probes, 1, 3) }, { "images-2-A", "images-2-B" })
        peer.prober:down("timed out")
        peer:failed(op, "unreachable", "timed out")
        semaphore:acquire(0)
        peer.prober:handshake()
        assert.equal("channel.open", peer.prober:next())
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
  it("takes at most nine round trips", function ()
    local peer = Peer.open("whole")
    local op = peer:semaphore("images"):acquire(0)
    local held, sizes = {}, {}
    for slot = 1, 999 do held[slot] = slot end
    while peer.prober:next() ~= "nothing" do table.insert(sizes, #peer.prober:look(row(1000, held)) / 2) end
    assert.same({ 16, 32, 64, 128, 256, 512 }, sizes)
    peer.holder:grant(peer.holder:claim("images-1000-B", "images-1000-A"))
    assert.equal(1000, (peer:result(op):info()))
    assert.is_true(#sizes + 1 <= 9)
  end)
end)
