-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local Random = require "spec.support.model.random"
local core = require "amqplocks.core"
local deciders = require "spec.support.deciders"
local lua53 = require "spec.support.lua53"

teardown(deciders.remove)

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

local TICKET = "0123456789abcdef"

describe("the name of", function ()
  local names = deciders.names
  local longest = ("n"):rep(deciders.lock_name_max)
  local rows = {
    { "a slot", "slot", "images", 3, is = "images-3-A" },
    { "the first slot", "slot", "images", 1, is = "images-1-A" },
    { "the highest slot", "slot", "images", core.slots_max, is = "images-65535-A" },
    { "a slot's holder", "holder", "images", 3, is = "images-3-B" },
    { "the highest slot's holder", "holder", "images", core.slots_max, is = "images-65535-B" },
    { "the administration's mutex", "admin", "images", is = "images-admin" },
    { "a semaphore's bell", "bell", "images", is = "images-bell" },
    { "a barrier's queue", "scratch", "images", TICKET, is = "images-scratch-0123456789abcdef" },
    { "the permits", "permits", "images", is = "images.semaphore" },
    { "the marks", "permit_count", "images", is = "images.semaphore-count" },
    { "the marks, of the permits' queue", "marks", "images.semaphore", is = "images.semaphore-count" },
    { "the permits' administration's mutex", "token_admin", "images", is = "images-tokenadmin" },
    { "a mutex", "mutex", "images", is = "images-mutex" },
    { "a mutex's bell", "mutex_bell", "images", is = "images-mutexbell" },
    { "a fast mutex", "fast_mutex", "images", is = "images-fastmutex" },
    { "a bolt", "bolt", "images-mutex", is = "images-mutex-bolt" },
    { "a reader", "reader", "images", TICKET, is = "images-reader-0123456789abcdef" },
    { "the key of all readers", "readers", "images", is = "images-readers" },
    { "the door", "door", "images", is = "images-writer" },
    { "the bell of readers and writers", "rw_bell", "images", is = "images-rwbell" },
    { "a semaphore's fence", "fence", "images", is = "images-fence" },
    { "a mutex's fence", "mutex_fence", "images", is = "images-mutexfence" },
    { "a readers–writer lock's fence", "rw_fence", "images", is = "images-rwfence" },
    { "the maker of a fence", "fence_maker", "images-mutexfence", is = "images-mutexfence-maker" },
    { "the mark of an unfinished fence", "fence_unfinished", "images-rwfence", is = "images-rwfence-unfinished" },
    { "the shortest lock's mutex", "mutex", "a", is = "a-mutex" },
    { "a lock with a percent sign", "slot", "100%s", 1, is = "100%s-1-A" },
    { "a lock beyond ASCII", "mutex", "図書館", is = "図書館-mutex" },
    { "the longest lock's barrier's queue", "scratch", longest, TICKET, is = longest .. "-scratch-" .. TICKET },
    { "the longest lock's reader", "reader", longest, TICKET, is = longest .. "-reader-" .. TICKET },
    { "the longest lock's highest slot", "slot", longest, core.slots_max, is = longest .. "-65535-A" },
    { "the longest lock's marks", "permit_count", longest, is = longest .. ".semaphore-count" },
    { "the longest lock's longest bolt", "bolt", longest .. "-tokenadmin", is = longest .. "-tokenadmin-bolt" },
  }
  local tried = {}
  for _, row in ipairs(rows) do
    tried[row[2]] = true
    it(row[1], function ()
      assert.equal(row.is, names[row[2]](row[3], row[4]))
      assert.is_true(#row.is <= 255)
    end)
  end

  it("every kind is above", function ()
    for kind in pairs(names) do assert.is_true(tried[kind], kind) end
  end)

  it("the longest lock leaves room for the longest suffix, and no more", function ()
    assert.equal(230, deciders.lock_name_max)
    assert.equal(deciders.suffix_max, #names.scratch("", TICKET))
    assert.equal(255, #names.scratch(longest, TICKET))
  end)
end)

-- All queues of a lock: { part =, queue =, slot = }. Slots and tickets are some of those that there may be. Each queue
-- that a client holds exclusively may have a bolt.
local function queues(name)
  local names, list = deciders.names, {}
  local function add(part, queue, slot)
    table.insert(list, { part = part, name = name, queue = queue, slot = slot or 0 })
  end
  local function add_exclusive(part, queue, slot)
    add(part, queue, slot)
    add("bolt", names.bolt(queue), slot)
  end
  for _, slot in ipairs{ 1, 2, 10, 11, 12, 21, 111, 65535 } do
    add("slot", names.slot(name, slot), slot)
    add_exclusive("holder", names.holder(name, slot), slot)
  end
  for _, ticket in ipairs{ TICKET, ("a"):rep(16), ("b"):rep(16), ("1"):rep(16) } do
    for _, part in ipairs{ "scratch", "reader" } do add(part, names[part](name, ticket)) end
  end
  for _, part in ipairs{ "admin", "token_admin", "mutex", "door" } do add_exclusive(part, names[part](name)) end
  for _, part in ipairs{ "bell", "mutex_bell", "rw_bell", "permits", "permit_count", "fast_mutex" } do
    add(part, names[part](name))
  end
  for _, part in ipairs{ "fence", "mutex_fence", "rw_fence" } do
    add(part, names[part](name))
    add("fence_maker", names.fence_maker(names[part](name)))
    add("fence_maker", names.fence_unfinished(names[part](name)))
  end
  return list
end

describe("the names of the queues of all kinds", function ()
  it("differ, whatever queue's name a lock's name is or ends like", function ()
    local locks = { "x", "x-", "-", "x-1", "x-11", "x-1-", "x1", "x-A", "-1-A", "1-A", "A", "x-scratch-", "x-reader-",
      "x-scratch", "x-reader", "-scratch-" .. TICKET, "x-mutexbell-bolt", "x.semaphore-count-count" }
    for _, of in ipairs{ "x", "" } do
      for _, queue in ipairs(queues(of)) do table.insert(locks, queue.queue) end
    end
    local owner, count, is_known = {}, 0, {}
    for _, lock in ipairs(locks) do
      for _, this in ipairs(is_known[lock] and {} or queues(lock)) do
        local other = owner[this.queue]
        if other then
          error(("%s: %s of %s, and %s of %s"):format(this.queue, this.part, this.name, other.part, other.name))
        end
        owner[this.queue] = this
        count = count + 1
      end
      is_known[lock] = true
    end
    assert.is_true(count > 4000, count .. " queues")
  end)
end)

describe("a queue's name is read as", function ()
  local parse, hex, longest = deciders.queue_parse, TICKET, ("n"):rep(deciders.lock_name_max)

  -- queue, part, name of the lock, slot
  local rows = {
    { "images-fast-mutex", "mutex", "images-fast" },
    { "images-fence-unfinished", "fence_maker", "images" },
    -- names that contain suffixes
    { "a-mutex-3-A", "slot", "a-mutex", 3 },
    { "a-mutex-bell", "bell", "a-mutex" },
    { "a-3-A-mutex", "mutex", "a-3-A" },
    { "a-3-B-3-B", "holder", "a-3-B", 3 },
    { "a-3-3-A", "slot", "a-3", 3 },
    { "a-bell-bell", "bell", "a-bell" },
    { "a.semaphore.semaphore", "permits", "a.semaphore" },
    { "a.semaphore-count.semaphore-count", "permit_count", "a.semaphore-count" },
    { "a-fence-fence", "fence", "a-fence" },
    { "a-maker-fence-maker", "fence_maker", "a-maker" },
    { "a-reader-" .. hex .. "-reader-" .. hex, "reader", "a-reader-" .. hex },
    { "x-B-bolt-mutex-bolt", "bolt", "x-B-bolt" },
    { "amq-mutex", "mutex", "amq" },
    { "図書館-12-B", "holder", "図書館", 12 },
    { "a b-mutex", "mutex", "a b" },
    { "--1-A", "slot", "-", 1 },
    { "1-1-A", "slot", "1", 1 },
    -- numbers
    { "images-1-A", "slot", "images", 1 },
    { "images-65535-A", "slot", "images", 65535 },
    { "images-65535-B-bolt", "bolt", "images", 65535 },
    { "images-65536-A", "other" },
    { "images-99999-A", "other" },
    { "images-100000-A", "other" },
    { "images-4294967297-A", "other" },
    { "images-18446744073709551617-A", "other" },
    { "images-" .. ("9"):rep(200) .. "-A", "other" },
    { "images-0-A", "other" },
    { "images-03-A", "other" },
    { "images-00003-B", "other" },
    { "images-+3-A", "other" },
    { "images--3-A", "slot", "images-", 3 },
    { "images-3 -A", "other" },
    { "images-3.0-A", "other" },
    { "images-٣-A", "other" },
    { "images3-A", "other" },
    { "images-A", "other" },
    { "images-3-C", "other" },
    { "images-3-a", "other" },
    -- no name, or one that is not allowed
    { "", "other" },
    { "-3-A", "other" },
    { "3-A", "other" },
    { "-mutex", "other" },
    { "mutex", "other" },
    { ".semaphore", "other" },
    { "-reader-" .. hex, "other" },
    { "-B-bolt", "other" },
    { "amq.-mutex", "other" },
    { "amq.x-3-A", "other" },
    { "a\n-mutex", "other" },
    { "a\255-mutex", "other" },
    { longest .. "-mutex", "mutex", longest },
    { longest .. "-65535-B-bolt", "bolt", longest, 65535 },
    { longest .. "n-mutex", "other" },
    { ("n"):rep(249) .. "-mutex", "other" },
    { ("n"):rep(1000) .. "-3-A", "other" },
    -- tickets
    { "images-reader-" .. hex:upper(), "other" },
    { "images-reader-" .. hex:sub(2), "other" },
    { "images-reader-0" .. hex, "other" },
    { "images-reader-" .. hex:sub(2) .. "g", "other" },
    { "images-readers", "other" },  -- a key, not a queue
    { hex, "other" },
    { "r-" .. hex, "other" },
    -- almost
    { "images", "other" },
    { "images-bells", "other" },
    { "images-bolt", "other" },
    { "images-3-A-bolt", "other" },
    { "images-bell-bolt", "other" },
    { "images-reader-" .. hex .. "-bolt", "other" },
    { "images-maker", "other" },
    { "images-unfinished", "other" },
    { "images-mutex-maker", "other" },
    { "images-semaphore", "other" },
    { "images.semaphore-bell", "bell", "images.semaphore" },
    { "imagesmutex", "other" },
    { "images-Mutex", "other" },
    { "images-mutex ", "other" },
  }
  for _, row in ipairs(rows) do
    local queue, part = row[1], row[2]
    it(("%s: %q"):format(part, #queue > 60 and queue:sub(-40) .. ", with " .. #queue .. " bytes" or queue), function ()
      assert.same({ part, row[3] or "", row[4] or 0 }, { parse(queue) })
    end)
  end

  it("what name.c makes of any lock's name, also of names like those of queues", function ()
    local locks, count = { "x", "x-", "-", "x-1", "1", "A", "x-reader-", "x-scratch-", "図書館", longest }, 0
    for _, of in ipairs{ "x", "-" } do
      for _, this in ipairs(queues(of)) do table.insert(locks, this.queue) end
    end
    for _, lock in ipairs(locks) do
      for _, this in ipairs(queues(lock)) do
        assert.same({ this.part, lock, this.slot }, { parse(this.queue) }, this.queue)
        count = count + 1
      end
    end
    assert.is_true(count > 2500, count .. " queues")
  end)
end)
