-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local deciders = require "spec.support.deciders"

teardown(deciders.remove)

local function range(from, to)
  local list = {}
  for slot = from, to do list[slot - from + 1] = slot end
  return list
end

-- The slots as they were counted: some more were asked for than there are.
local function counted(exists)
  local row = { exists = exists, count = 0, highest = exists[#exists] or 0 }
  while exists[row.count + 1] == row.count + 1 do row.count = row.count + 1 end
  row.seen = row.highest + 16
  return row
end

local function without(list, gone)
  local left, is_gone = {}, {}
  for _, slot in ipairs(gone) do is_gone[slot] = true end
  for _, slot in ipairs(list) do
    if not is_gone[slot] then table.insert(left, slot) end
  end
  return left
end

-- Each row: a rule, the slots that exist, the action, and either the slots at the end and those deleted, in this order,
-- or the code and a part of the words.
local function run(rows)
  for _, row in ipairs(rows) do
    local rule, slots, action, amount = row[1], row[2], row[3], row[4]
    it(("%s: %s%s"):format(rule, action, amount and " " .. amount or ""), function ()
      local change = { action = action, amount = amount, overshoot = row.overshoot, ascending = row.ascending }
      local counts = counted(slots)
      local code, words = deciders.slot_plan_plan(change, counts, "images", row.starved)
      if row.code then
        assert.same({ row.code, true }, { code, words:find(row.words, 1, true) ~= nil }, words)
        assert.same({ row.target or -1, {}, slots }, { change.target, change.deletes, counts.exists })
      else
        assert.same({ "ok", nil }, { code, words })
        assert.same({ row.target, row.deletes or {} }, { change.target, change.deletes })
        assert.same(without(slots, change.deletes), counts.exists)
      end
    end)
  end
end

local NONE, GAP, ALL = {}, { 1, 2, 5 }, range(1, 65535)

describe("the plan of a semaphore that does not exist", function ()
  run{
    { "is to make the slots", NONE, "create", 3, target = 3 },
    { "is to make the slots", NONE, "resize", 3, target = 3 },
    { "is to make as many as there may be", NONE, "create", 65535, target = 65535 },
    { "is to do nothing", NONE, "resize", 0, target = 0 },
    { "is none", NONE, "add", 1, code = "not_found", words = 'there is no semaphore "images"' },
    { "is none", NONE, "remove", 1, code = "not_found", words = 'there is no semaphore "images"' },
    { "is none", NONE, "destroy", nil, code = "not_found", words = 'there is no semaphore "images"' },
    { "is none", NONE, "repair", nil, code = "not_found", words = 'there is no semaphore "images"' },
  }
end)

describe("the plan of a semaphore without a gap", function ()
  run{
    { "is not to make it again", { 1, 2 }, "create", 3, code = "exists",
      words = 'semaphore "images" has 2 slots already; resize(3) changes that' },
    { "is to make more slots", { 1, 2 }, "add", 3, target = 5 },
    { "is to delete the last slots, from the end", range(1, 5), "remove", 2, target = 3, deletes = { 5, 4 } },
    { "is to delete the last slots, upwards", range(1, 5), "remove", 2, ascending = true, target = 3,
      deletes = { 4, 5 } },
    { "is to delete all, if there are fewer", { 1, 2, 3 }, "remove", 4, target = 0, deletes = { 3, 2, 1 } },
    { "is to make more slots", { 1, 2 }, "resize", 4, target = 4 },
    { "is to do nothing", { 1, 2 }, "resize", 2, target = 2 },
    { "is to delete the last slots, from the end", { 1, 2, 3 }, "resize", 1, target = 1, deletes = { 3, 2 } },
    { "is to delete all", { 1, 2 }, "resize", 0, target = 0, deletes = { 2, 1 } },
    { "is to delete all, from the end", { 1, 2, 3 }, "destroy", nil, target = 0, deletes = { 3, 2, 1 } },
    { "is to do nothing", { 1, 2 }, "repair", nil, target = 2 },
    { "is to delete what there is, however far it may", { 1, 2 }, "remove", 1, overshoot = 100, target = 1,
      deletes = { 2 } },
  }
end)

describe("the plan of a semaphore with a gap", function ()
  local words = 'queue "images-5-A" exists but "images-3-A" does not: repair() makes the row whole, resize(n) settles'
  run{
    { "is none", GAP, "add", 1, code = "conflict", words = words },
    { "is none", GAP, "remove", 1, code = "conflict", words = words },
    { "is none, before it is said to exist", GAP, "create", 1, code = "conflict", words = words },
    { "is none, if its first slot is missing", { 3 }, "remove", 1, code = "conflict",
      words = 'queue "images-3-A" exists but "images-1-A" does not' },
    { "is none, and names the first stray", { 1, 4, 6, 9 }, "add", 1, code = "conflict",
      words = 'queue "images-4-A" exists but "images-2-A" does not' },
    { "is to fill it", GAP, "repair", nil, target = 5 },
    { "is to fill it, and to delete nothing, however far it may", GAP, "repair", nil, overshoot = 100, target = 5 },
    { "is to settle on more slots than it has", GAP, "resize", 7, target = 7 },
    { "is to settle on slots in the gap", GAP, "resize", 4, target = 4, deletes = { 5 } },
    { "is to settle on those before the gap", GAP, "resize", 2, target = 2, deletes = { 5 } },
    { "is to settle on fewer, from the end", GAP, "resize", 1, target = 1, deletes = { 5, 2 } },
    { "is to settle on fewer, upwards", GAP, "resize", 1, ascending = true, target = 1, deletes = { 2, 5 } },
    { "is to settle on none", GAP, "resize", 0, target = 0, deletes = { 5, 2, 1 } },
    { "is to delete all", GAP, "destroy", nil, target = 0, deletes = { 5, 2, 1 } },
  }
end)

describe("the plan of a semaphore with strays that may be deleted", function ()
  run{
    { "is none for a stray one too far", GAP, "add", 1, overshoot = 2, code = "conflict",
      words = 'queue "images-5-A" exists but "images-3-A" does not' },
    { "is to delete the last of them", GAP, "add", 1, overshoot = 3, target = 3, deletes = { 5 } },
    { "is to delete them, from the end", { 1, 3, 4 }, "add", 2, overshoot = 3, target = 3, deletes = { 4, 3 } },
    { "is to delete them, upwards", { 1, 3, 4 }, "add", 2, overshoot = 3, ascending = true, target = 3,
      deletes = { 3, 4 } },
    { "is to delete them, though more slots are made than they are far", GAP, "add", 9, overshoot = 3, target = 11,
      deletes = { 5 } },
    { "is to delete them with the last slots", GAP, "remove", 1, overshoot = 3, target = 1, deletes = { 5, 2 } },
    { "is to delete them alone, if there is no row", { 3 }, "remove", 1, overshoot = 3, target = 0, deletes = { 3 } },
    { "is to delete them, and to make the slots", { 3 }, "create", 2, overshoot = 3, target = 2, deletes = { 3 } },
    { "is not to make it again", GAP, "create", 4, overshoot = 3, code = "exists", words = "has 2 slots already" },
  }
end)

describe("the plan of a semaphore of as many slots as there may be", function ()
  local words = '"images" would have 65536 slots; the most is 65535'
  run{
    { "is none that makes one more", ALL, "add", 1, code = "limit", words = words },
    { "may begin with one slot less", range(1, 65534), "add", 1, target = 65535 },
    { "is none that begins with one more", NONE, "create", 65536, code = "limit", words = words },
    { "is none that ends with one more", { 1 }, "resize", 65536, code = "limit", words = words },
    { "is to do nothing", ALL, "repair", nil, target = 65535 },
    { "is to delete the last", ALL, "remove", 1, target = 65534, deletes = { 65535 } },
    { "is to delete all", ALL, "destroy", nil, ascending = true, target = 0, deletes = ALL },
  }
end)

describe("a plan without memory", function ()
  run{
    { "deletes nothing", { 1, 2, 3 }, "remove", 1, starved = true, code = "no_memory", target = 2,
      words = 'planning for "images"' },
    { "is fine if nothing is to be deleted", { 1, 2, 3 }, "add", 1, starved = true, target = 4 },
  }
end)
