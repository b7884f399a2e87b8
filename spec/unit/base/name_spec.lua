-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Peer = require "spec.support.peer"
local Random = require "spec.support.model.random"
local core = require "amqplocks.core"
local lua53 = require "spec.support.lua53"

local bytes, char = lua53.bytes, lua53.utf8.char

describe("a lock's name", function ()
  local fine = {
    "a", "images", "images/small", "a b", "-", "1", "x-1", "x-1-A", "x-admin", "Ærøskøbing", "図書館", "🔒",
    "amq", "amq-locks", "AMQ.x", "x.amq.", ("n"):rep(230), ("ø"):rep(115), char(0xA0), char(0xD7FF), char(0xE000),
    char(0xFFFD), char(0x10FFFF), "~",
  }
  for _, name in ipairs(fine) do
    it(("may be %q"):format(#name > 40 and #name .. " bytes" or name), function ()
      assert.is_nil(core.name_error(name))
    end)
  end

  local refused = {
    { "empty", "", "is empty" },
    { "too long", ("n"):rep(231), "too long: at most 230 bytes" },
    { "too long in bytes", ("ø"):rep(116), "too long" },
    { "RabbitMQ's own", "amq.images", 'starts with "amq."' },
    { "RabbitMQ's own, the shortest", "amq.", 'starts with "amq."' },
    { "a NUL", "a\0b", "control character" },
    { "a line feed", "images\n", "control character" },
    { "a carriage return", "images\rB", "control character" },
    { "a tab", "\t", "control character" },
    { "an escape", "\27[2J", "control character" },
    { "DEL", "a\127", "control character" },
    { "a C1 control", "a" .. char(0x85), "control character" },
    { "the last C1 control", "a" .. char(0x9F), "control character" },
    { "a lone continuation byte", bytes "61 80", "not UTF-8" },
    { "Latin-1", bytes "E6 72 F8", "not UTF-8" },
    { "a character cut short", bytes "61 E2 82", "not UTF-8" },
    { "a character cut short in the middle", bytes "E2 82 61", "not UTF-8" },
    { "an overlong slash", bytes "C0 AF", "not UTF-8" },
    { "an overlong three-byte form", bytes "E0 80 AF", "not UTF-8" },
    { "an overlong four-byte form", bytes "F0 80 80 AF", "not UTF-8" },
    { "an overlong NUL", bytes "C0 80", "not UTF-8" },
    { "a surrogate", bytes "ED A0 80", "not UTF-8" },
    { "the last surrogate", bytes "ED BF BF", "not UTF-8" },
    { "beyond Unicode", bytes "F4 90 80 80", "not UTF-8" },
    { "five bytes", bytes "F8 88 80 80 80", "not UTF-8" },
    { "0xFF", bytes "FF", "not UTF-8" },
  }
  for _, case in ipairs(refused) do
    it("may not hold " .. case[1], function ()
      assert.matches("^the name ", core.name_error(case[2]))
      assert.is_truthy(core.name_error(case[2]):find(case[3], 1, true))
    end)
  end

  it("is judged like Lua's own utf8 does, whatever the bytes", function ()
    local random, utf8 = Random.new(42), lua53.utf8
    local alphabet = { 0x20, 0x41, 0x7E, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xEF,
      0xF0, 0xF4, 0xF5, 0xFF }
    for _ = 1, 5000 do
      local name = {}
      for i = 1, random:below(5) do name[i] = string.char(random:pick(alphabet)) end
      name = table.concat(name)
      local is_fine = utf8.len(name) ~= nil
      for _, point in utf8.codes(is_fine and name or "") do
        local is_control = point >= 0x7F and point < 0xA0
        local is_surrogate = point >= 0xD800 and point < 0xE000  -- Lua 5.3 lets these pass
        is_fine = is_fine and not is_control and not is_surrogate
      end
      assert.equal(is_fine, core.name_error(name) == nil, ("%q"):format(name))
    end
  end)
end)

-- What the core itself writes is the judge: every queue it asks for or declares, for every lock.
describe("the queues of two locks", function ()
  -- The next of these among the frames written.
  local function find(link, method)
    local frame
    repeat frame = link:expect(link:next()) until frame.method == method
    return frame
  end

  -- One who waits for a gate, and therefore makes a bell. Returns the gate, the bell.
  local function waits(peer, op)
    local gate = peer.prober:probes()[1]
    peer.prober:answer({ gate }, { gate.queue })
    peer.holder:refuse(find(peer.holder, "queue.declare").channel, 405, "RESOURCE_LOCKED", "queue.declare")
    local bell = find(peer.holder, "queue.declare").queue
    op:drop()
    peer.holder:ignore()
    return gate.queue, bell
  end

  -- Returns a reader's queue, what it is bound with.
  local function reads(peer, op)
    peer.prober:answer(peer.prober:probes(), {})
    local bind = find(peer.holder, "queue.bind")
    op:drop()
    peer.holder:ignore()
    return bind.queue, bind.routing_key
  end

  -- The queues of a lock, by kind, and the beginnings of those that end in a ticket. Windows of sixteen slots, so that
  -- there are slots of one digit and of two.
  local function queues(peer, name)
    local list = {}
    local function add(queue, what)
      assert.is_nil(list[queue])
      list[queue] = what .. " of " .. name
    end
    local op = peer:semaphore(name, { bell = true }):acquire(0)
    add(find(peer.holder, "basic.consume").queue, "the bell")
    local probes = peer.prober:probes()
    peer.prober:answer(probes, { [name .. "-1-A"] = "nack" })
    for _, probe in ipairs(probes) do list[probe.queue] = "a slot of " .. name end
    peer:failed(op, "unavailable")
    peer.holder:ignore()
    local gate, bell = waits(peer, peer:mutex(name):acquire(60))
    add(gate, "the mutex")
    add(bell, "the mutex's bell")
    gate, bell = waits(peer, peer:rwlock(name):write(60))
    add(gate, "the door")
    add(bell, "the readers' and writers' bell")
    local reader, key = reads(peer, peer:rwlock(name):read(60))
    add(reader, "a reader")
    assert.equal(name .. "-readers", key)
    op = peer.session:administer("create", name, {}, 1)
    local mutex = peer.holder:claim(name .. "-admin")
    peer.holder:grant(mutex)
    add(mutex.queue, "the administration mutex")
    local scratch = peer.prober:barrier()
    add(scratch, "a barrier")
    local tokens = peer.session:administer_tokens("slots", name, {})
    peer.holder:opened()
    for i = 1, 2 do
      if i == 2 then peer.holder:opened() end
      add(peer.holder:expect("queue.declare", { passive = true }).queue, "the permits")
    end
    tokens:drop()
    peer.holder:ignore()
    tokens = peer.session:administer_tokens("destroy", name, {})
    local token_mutex = peer.holder:claim(name .. "-tokenadmin")
    add(token_mutex.queue, "the permits' mutex")
    op:drop()
    tokens:drop()
    peer.prober:ignore()
    peer.holder:ignore()
    peer.holder:deleted(mutex.channel)
    return list, { [reader:sub(1, -17)] = list[reader], [scratch:sub(1, -17)] = list[scratch] }
  end

  -- Names made of parts that are, or look like, the parts of queue names.
  local function nasty()
    local parts = { "x", "-", "-1", "-2-A", "-admin", "-scratch-", ".semaphore", "-count", "-tokenadmin", "-mutex",
      "-bell", "bell", "-writer", "-reader-", "s", "0123456789abcdef" }
    local names, list = {}, {}
    for _, a in ipairs(parts) do
      names[a] = true
      for _, b in ipairs(parts) do
        names[a .. b] = true
        names["x" .. a .. b] = true
      end
    end
    for name in pairs(names) do table.insert(list, name) end
    table.sort(list)
    return list
  end

  it("are never the same, nor could a ticket make them so", function ()
    local owner, owner_of, peer, count = {}, {}, nil, 0
    for i, name in ipairs(nasty()) do
      if i % 50 == 1 then peer = Peer.open("whole") end
      local list, beginnings = queues(peer, name)
      for beginning, whose in pairs(beginnings) do
        assert.is_nil(owner_of[beginning])
        owner_of[beginning] = whose
      end
      for queue, whose in pairs(list) do
        if owner[queue] then error(("%s is %s and %s"):format(queue, whose, owner[queue])) end
        owner[queue] = whose
        count = count + 1
      end
    end
    assert.is_true(count > 5000, count .. " queues")
    for queue, whose in pairs(owner) do  -- what another ticket could have been
      local beginning, ticket = queue:sub(1, -17), queue:sub(-16)
      if owner_of[beginning] and ticket:find("^[0-9a-f]+$") then assert.equal(owner_of[beginning], whose) end
    end
  end)

  it("fit into 255 bytes, the longest name and the highest slot included", function ()
    local peer, name = Peer.open("whole"), ("n"):rep(230)
    local longest = 0
    for queue in pairs(queues(peer, name)) do longest = math.max(longest, #queue) end
    assert.equal(255, longest)
    assert.is_true(#(name .. "-65535-A") <= 255)
    assert.equal(65535, core.slots_max)
  end)
end)
