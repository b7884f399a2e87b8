-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local deciders = require "spec.support.deciders"

teardown(deciders.remove)

describe("a set of message ids", function ()
  -- Each row: a rule, and the ids that are added one after the other, each with whether it was new.
  local rows = {
    { "adds a new id", { "0123456789abcdef", true } },
    { "knows an id again", { "0123456789abcdef", true }, { "0123456789abcdef", false }, { "0123456789abcdef", false } },
    { "tells ids apart by their last digit", { "0000000000000001", true }, { "0000000000000002", true },
      { "0000000000000001", false }, { "0000000000000002", false } },
    { "knows the greatest id", { "ffffffffffffffff", true }, { "ffffffffffffffff", false } },
    { "ignores an id that is too short", { "123456789abcdef", true }, { "123456789abcdef", true } },
    { "ignores an id that is too long", { "0123456789abcdef0", true }, { "0123456789abcdef0", true } },
    { "ignores upper-case digits", { "0123456789ABCDEF", true }, { "0123456789ABCDEF", true } },
    { "ignores what is no digit", { "0123456789abcdeg", true }, { "0123456789abcdeg", true } },
    { "ignores a sign and a blank", { " +23456789abcdef", true }, { " +23456789abcdef", true } },
    { "ignores an empty id", { "", true }, { "", true } },
    { "ignores 0, which no permit has", { "0000000000000000", true }, { "0000000000000000", true } },
  }
  for _, row in ipairs(rows) do
    it(row[1], function ()
      local ids = deciders.ids(2)
      for i = 2, #row do assert.equal(row[i][2], deciders.ids_add(ids, row[i][1]), i) end
    end)
  end

  it("knows each of as many as there is room for", function ()
    for _, most in ipairs{ 1, 2, 3, 5, 1000, 65535 } do
      local ids, random, list = deciders.ids(most), deciders.random(most), {}
      for i = 1, most do
        list[i] = deciders.next_random(random)
        assert(deciders.ids_add(ids, list[i]), list[i])
      end
      for _, id in ipairs(list) do assert(not deciders.ids_add(ids, id), id) end
    end
  end)
end)
