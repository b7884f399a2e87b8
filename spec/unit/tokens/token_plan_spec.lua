-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local deciders = require "spec.support.deciders"

teardown(deciders.remove)

-- The two queues: how many permits are free, how many marks there are.
local function semaphore(permits, marks)
  return { permits = { exists = true, ready = permits }, marks = { exists = true, ready = marks } }
end
local function foreign(permits) return { permits = { exists = true, ready = permits }, marks = {} } end
local function only_marks(marks) return { permits = {}, marks = { exists = true, ready = marks } } end
local NOTHING = { permits = {}, marks = {} }

-- Each row: a rule, the queues, the action, and either the way and what it computes, as far as that is not 0, or the
-- code and a part of the words.
local function run(rows)
  for _, row in ipairs(rows) do
    local rule, queues, action, amount = row[1], row[2], row[3], row[4]
    it(("%s: %s%s"):format(rule, action, amount and " " .. amount or ""), function ()
      local plan = { action = action, amount = amount, waits = row.waits }
      local code, words = deciders.token_plan_make(plan, queues, "images")
      if row.code then
        assert.same({ row.code, true }, { code, words:find(row.words, 1, true) ~= nil }, words)
        assert.same({ 0, 0, 0 }, { plan.takes, plan.marks, plan.permits })
      else
        assert.same({ "ok", nil }, { code, words })
        assert.same({ way = row.way, count = row.count or 0, target = row.target or 0, takes = row.takes or 0,
            marks = row.marks or 0, permits = row.permits or 0 },
          { way = plan.way, count = plan.count, target = plan.target, takes = plan.takes,
            marks = plan.marks, permits = plan.permits })
      end
    end)
  end
end

describe("the plan of a token semaphore that does not exist", function ()
  local words = 'there is no token semaphore "images"'
  run{
    { "is to make it", NOTHING, "create", 3, way = "makes", target = 3, marks = 3, permits = 3 },
    { "is to make it", NOTHING, "resize", 3, way = "makes", target = 3, marks = 3, permits = 3 },
    { "is to make as many as there may be", NOTHING, "create", 65535, way = "makes", target = 65535, marks = 65535,
      permits = 65535 },
    { "is to delete what may be there", NOTHING, "resize", 0, way = "deletes" },
    { "is none", NOTHING, "add", 1, code = "not_found", words = words },
    { "is none", NOTHING, "remove", 1, code = "not_found", words = words },
    { "is none", NOTHING, "destroy", nil, code = "not_found", words = words },
    { "is none", NOTHING, "repair", nil, code = "not_found", words = words },
  }
end)

describe("the plan where an administrator that died has left marks", function ()
  local words = 'there is no token semaphore "images"'
  run{
    { "is to make all anew", only_marks(2), "create", 3, way = "makes", target = 3, marks = 3, permits = 3 },
    { "is to make all anew", only_marks(2), "resize", 3, way = "makes", target = 3, marks = 3, permits = 3 },
    { "is to delete them", only_marks(2), "resize", 0, way = "deletes" },
    { "is to delete them", only_marks(2), "destroy", nil, way = "deletes" },
    { "is to delete them, as nobody holds a permit", only_marks(2), "destroy", nil, waits = true, way = "deletes" },
    { "is none", only_marks(2), "add", 1, code = "not_found", words = words },
  }
end)

describe("the plan of a token semaphore", function ()
  run{
    { "is not to make it again", semaphore(1, 2), "create", 3, code = "exists",
      words = 'token semaphore "images" has 2 permits already; resize(3) changes that' },
    { "is to add permits, and as many marks", semaphore(1, 2), "add", 3, way = "adds", count = 2, target = 5, marks = 3,
      permits = 3 },
    { "is to take permits", semaphore(1, 5), "remove", 2, way = "takes", count = 5, target = 3, takes = 2 },
    { "is to empty it", semaphore(1, 5), "remove", 5, way = "empties", count = 5, takes = 5 },
    { "is to empty it, if there are fewer", semaphore(1, 5), "remove", 6, way = "empties", count = 5, takes = 5 },
    { "is to add permits", semaphore(1, 2), "resize", 5, way = "adds", count = 2, target = 5, marks = 3, permits = 3 },
    { "is to leave it", semaphore(1, 2), "resize", 2, way = "leaves", count = 2, target = 2 },
    { "is to take permits", semaphore(1, 5), "resize", 2, way = "takes", count = 5, target = 2, takes = 3 },
    { "is to empty it", semaphore(1, 5), "resize", 0, way = "empties", count = 5, takes = 5 },
    { "is to delete it, also if permits are held", semaphore(1, 5), "destroy", nil, way = "deletes", count = 5 },
    { "is to empty it first, if the administrator waits", semaphore(1, 5), "destroy", nil, waits = true,
      way = "empties", count = 5, takes = 5 },
    { "is to mend it", semaphore(1, 5), "repair", nil, way = "mends", count = 5, target = 5 },
  }
end)

describe("the plan of a token semaphore with more free permits than marks", function ()
  local words = '"images" has 3 free permits, more than the 2 that it should have: repair() removes the surplus'
  run{
    { "is none", semaphore(3, 2), "add", 1, code = "conflict", words = words },
    { "is none", semaphore(3, 2), "remove", 1, code = "conflict", words = words },
    { "is none", semaphore(3, 2), "resize", 2, code = "conflict", words = words },
    { "is not to make it again", semaphore(3, 2), "create", 3, code = "exists", words = "has 2 permits already" },
    { "is to mend it", semaphore(3, 2), "repair", nil, way = "mends", count = 2, target = 2 },
    { "is to delete it", semaphore(3, 2), "destroy", nil, way = "deletes", count = 2 },
    { "is to empty it first, if the administrator waits", semaphore(3, 2), "destroy", nil, waits = true,
      way = "empties", count = 2, takes = 2 },
  }
end)

describe("the plan of a token semaphore with as many free permits as marks", function ()
  run{
    { "is to add permits", semaphore(2, 2), "add", 1, way = "adds", count = 2, target = 3, marks = 1, permits = 1 },
    { "is to take permits", semaphore(2, 2), "remove", 1, way = "takes", count = 2, target = 1, takes = 1 },
  }
end)

describe("the plan for permits without marks", function ()
  local words = 'queue "images.semaphore" has no count of its permits'
  run{
    { "is to adopt it", semaphore(0, 0), "resize", 3, way = "adopts", target = 3, marks = 3, permits = 3 },
    { "is none", semaphore(7, 0), "add", 1, code = "conflict", words = words },
    { "is to adopt it", foreign(7), "resize", 3, way = "adopts", target = 3, marks = 3, permits = 3 },
    { "is to adopt it for nothing, which deletes it", foreign(7), "resize", 0, way = "adopts" },
    { "is to delete it", foreign(7), "destroy", nil, way = "deletes" },
    { "is to empty it first, if the administrator waits", foreign(7), "destroy", nil, waits = true,
      way = "empties" },
    { "is none, and it does not count as made", foreign(7), "create", 3, code = "conflict", words = words },
    { "is none", foreign(7), "add", 1, code = "conflict", words = words },
    { "is none", foreign(7), "remove", 1, code = "conflict", words = words },
    { "is none", foreign(7), "repair", nil, code = "conflict", words = words },
  }
end)

describe("the plan of a token semaphore of as many permits as there may be", function ()
  run{
    { "is none that begins with one more", NOTHING, "create", 65536, code = "limit",
      words = '"images" would have 65536 permits; the most is 65535' },
    { "is none that makes one more", semaphore(0, 65535), "add", 1, code = "limit",
      words = '"images" would have 65536 permits; the most is 65535' },
    { "may begin with one permit less", semaphore(0, 65534), "add", 1, way = "adds", count = 65534, target = 65535,
      marks = 1, permits = 1 },
    { "is none that ends with one more", semaphore(0, 2), "resize", 65536, code = "limit", words = "would have 65536" },
    { "is none that adopts one more", foreign(7), "resize", 65536, code = "limit", words = "would have 65536" },
    { "is to take the last", semaphore(0, 65535), "remove", 1, way = "takes", count = 65535, target = 65534,
      takes = 1 },
    { "is to mend it", semaphore(0, 65535), "repair", nil, way = "mends", count = 65535, target = 65535 },
    { "is none if it has more already", semaphore(0, 65536), "remove", 1, code = "limit",
      words = '"images" has 65536 permits; the most is 65535' },
    { "is none if it has more already", semaphore(0, 65536), "add", 1, code = "limit", words = "would have 65537" },
    { "is to delete it if it has more", semaphore(0, 65536), "destroy", nil, way = "deletes", count = 65536 },
  }
end)
