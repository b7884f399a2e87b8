-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local core = require "amqplocks.core"
local deciders = require "spec.support.deciders"
local lua53 = require "spec.support.lua53"

teardown(deciders.remove)

local bytes, char = lua53.bytes, lua53.utf8.char

describe("a lock's name", function ()
  it("may be almost anything", function ()
    for _, name in ipairs{ "a", "images/small", "a b", "-", "x-1-A", "x-admin", "図書館", "🔒", "amq", "amq-locks",
      "AMQ.x", "x.amq.", ("n"):rep(230), ("ø"):rep(115), "~" } do
      assert.is_nil(core.name_error(name), name)
    end
  end)

  it("is refused, with the reason", function ()
    for words, names in pairs{
      ["is empty"] = { "" },
      ["too long: at most 230 bytes"] = { ("n"):rep(231), ("ø"):rep(116) },
      ['starts with "amq."'] = { "amq.images", "amq." },
      ["control character"] = { "a\0b", "images\n", "images\rB", "\t", "\27[2J", "a\127", "a" .. char(0x85) },
      ["not UTF-8"] = { bytes "61 80", bytes "E6 72 F8", bytes "61 E2 82", bytes "C0 80", bytes "F8 88 80 80 80",
        bytes "ED A0 80", bytes "F4 90 80 80" },
    } do
      for _, name in ipairs(names) do
        local why = core.name_error(name)
        assert.matches("^the name ", why)
        assert.is_truthy(why:find(words, 1, true), why)
      end
    end
  end)
end)

local TICKET = "0123456789abcdef"

describe("the name of", function ()
  local names = deciders.names
  local longest = ("n"):rep(deciders.lock_name_max)
  local rows = {
    { "a slot", "slot", "images", 3, is = "images-3-A" },
    { "the highest slot", "slot", "images", core.slots_max, is = "images-65535-A" },
    { "a slot's holder", "holder", "images", 3, is = "images-3-B" },
    { "the administration's mutex", "admin", "images", is = "images-admin" },
    { "a semaphore's bell", "bell", "images", is = "images-bell" },
    { "a barrier's queue", "scratch", "images", TICKET, is = "images-scratch-0123456789abcdef" },
    { "the permits", "permits", "images", is = "images.semaphore" },
    { "the marks, of the permits' queue", "marks", "images.semaphore", is = "images.semaphore-count" },
    { "the permits' administration's mutex", "token_admin", "images", is = "images-tokenadmin" },
    { "a client that takes several slots", "many", "images", is = "images-many" },
    { "the bell of such clients", "many_bell", "images", is = "images-manybell" },
    { "a client that takes several permits", "token_many", "images", is = "images-tokenmany" },
    { "the bell of such clients, for permits", "token_many_bell", "images", is = "images-tokenmanybell" },
    { "a mutex", "mutex", "images", is = "images-mutex" },
    { "a mutex's bell", "mutex_bell", "images", is = "images-mutexbell" },
    { "a fast mutex", "fast_mutex", "images", is = "images-fastmutex" },
    { "a bolt", "bolt", "images-mutex", is = "images-mutex-bolt" },
    { "a seal", "seal", "images-mutex", is = "images-mutex-seal" },
    { "a reader", "reader", "images", TICKET, is = "images-reader-0123456789abcdef" },
    { "the key of all readers", "readers", "images", is = "images-readers" },
    { "the door", "door", "images", is = "images-writer" },
    { "the bell of readers and writers", "rw_bell", "images", is = "images-rwbell" },
    { "a semaphore's fence", "fence", "images", is = "images-fence" },
    { "a mutex's fence", "mutex_fence", "images", is = "images-mutexfence" },
    { "a readers–writer lock's fence", "rw_fence", "images", is = "images-rwfence" },
    { "the maker of a fence", "fence_maker", "images-mutexfence", is = "images-mutexfence-maker" },
    { "the mark of an unfinished fence", "fence_unfinished", "images-rwfence", is = "images-rwfence-unfinished" },
    { "a lock with a percent sign", "slot", "100%s", 1, is = "100%s-1-A" },
    { "a lock beyond ASCII", "mutex", "図書館", is = "図書館-mutex" },
    { "the longest lock's longest bolt", "bolt", longest .. "-tokenadmin", is = longest .. "-tokenadmin-bolt" },
  }
  it("each kind of queue is not changed", function ()
    local tried = {}
    for _, row in ipairs(rows) do
      tried[row[2]] = true
      assert.equal(row.is, names[row[2]](row[3], row[4]), row[1])
      assert.is_true(#row.is <= 255)
    end
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
  local function add(part, queue, slot) table.insert(list, { part = part, queue = queue, slot = slot or 0 }) end
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
  for _, part in ipairs{ "admin", "token_admin", "mutex", "door", "many" } do add_exclusive(part, names[part](name)) end
  for _, part in ipairs{ "bell", "mutex_bell", "rw_bell", "permits", "fast_mutex", "many_bell" } do
    add(part, names[part](name))
  end
  for _, part in ipairs{ "mutex", "fast_mutex" } do add("seal", names.seal(names[part](name))) end
  add("marks", names.marks(names.permits(name)))
  add_exclusive("many", names.token_many(name))
  add("many_bell", names.token_many_bell(name))
  for _, part in ipairs{ "fence", "mutex_fence", "rw_fence" } do
    add(part, names[part](name))
    add("fence_maker", names.fence_maker(names[part](name)))
    add("fence_maker", names.fence_unfinished(names[part](name)))
  end
  return list
end

describe("a queue's name is read as", function ()
  local parse, hex, longest = deciders.queue_parse, TICKET, ("n"):rep(deciders.lock_name_max)

  -- queue, part, name of the lock, slot
  local rows = {
    { "images-fast-mutex", "mutex", "images-fast" },
    { "images-fence-unfinished", "fence_maker", "images" },
    { "a-3-3-A", "slot", "a-3", 3 },
    { "a b-mutex", "mutex", "a b" },
    { "amq-mutex", "mutex", "amq" },
    { "images--3-A", "slot", "images-", 3 },
    { "images.semaphore-bell", "bell", "images.semaphore" },
    { longest .. "-65535-B-bolt", "bolt", longest, 65535 },
  }
  it("a queue of a lock", function ()
    for _, row in ipairs(rows) do assert.same({ row[2], row[3], row[4] or 0 }, { parse(row[1]) }) end
  end)

  it("no lock's", function ()
    for _, queue in ipairs{
      -- numbers
      "images-65536-A", "images-4294967297-A", "images-18446744073709551617-A", "images-" .. ("9"):rep(200) .. "-A",
      "images-0-A", "images-03-A", "images-+3-A", "images-3 -A", "images-٣-A", "images3-A", "images-A",
      "images-3-C", "images-3-a",
      -- no name, or one that is not allowed
      "", "-3-A", "3-A", "-mutex", "mutex", ".semaphore", "-reader-" .. hex, "-B-bolt", "amq.x-3-A", "a\n-mutex",
      "a\255-mutex", longest .. "n-mutex", ("n"):rep(1000) .. "-3-A",
      -- tickets, and a key
      "images-reader-" .. hex:upper(), "images-reader-" .. hex:sub(2), "images-reader-0" .. hex,
      "images-reader-" .. hex:sub(2) .. "g", "images-readers", hex,
      -- almost
      "images", "images-bells", "images-bolt", "images-3-A-bolt", "images-bell-bolt",
      "images-reader-" .. hex .. "-bolt", "images-maker", "images-mutex-maker", "imagesmutex", "images-Mutex",
    } do assert.same({ "other", "", 0 }, { parse(queue) }, queue) end
  end)

  -- So no two queues have the same name.
  it("what name.c makes of any lock's name, also of names that are those of queues or end like them", function ()
    local locks, owner, count = { "x", "x-", "-", "x-1", "x-11", "x-1-", "x1", "x-A", "-1-A", "1-A", "1", "A",
      "x-scratch-", "x-reader-", "x-scratch", "x-reader", "-scratch-" .. TICKET, "x-mutexbell-bolt",
      "x.semaphore-count-count", "図書館", longest }, {}, 0
    for _, of in ipairs{ "x", "-", "" } do
      for _, this in ipairs(queues(of)) do table.insert(locks, this.queue) end
    end
    local set = {}
    for _, lock in ipairs(locks) do set[lock] = true end
    for lock in pairs(set) do
      for _, this in ipairs(queues(lock)) do
        assert.same({ this.part, lock, this.slot }, { parse(this.queue) }, this.queue)
        count = count + 1
        assert.is_true(owner[this.queue] == nil, this.queue)
        owner[this.queue] = true
      end
    end
    assert.is_true(count > 4000, count .. " queues")
  end)
end)
