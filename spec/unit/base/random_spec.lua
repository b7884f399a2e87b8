-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local deciders = require "spec.support.deciders"

teardown(deciders.remove)

describe("random numbers", function ()
  it("are those of SplitMix64, of the state and of nothing else", function ()
    local state = deciders.random(1234567)
    for _, number in ipairs{ "599ed017fb08fc85", "2c73f08458540fa5", "883ebce5a3f27c77", "3fbef740e9177b3f",
      "e3b8346708cb5ecd" } do
      assert.equal(number, deciders.next_random(state))
    end
  end)

  local rows = {
    { "are below the bound", draw = 9, bound = 10, is = 9 },
    { "wrap at the bound", draw = 10, bound = 10, is = 0 },
    { "wrap often", draw = 1000003, bound = 10, is = 3 },
    { "may be 0", draw = 0, bound = 10, is = 0 },
    { "are 0 below 1", draw = 7, bound = 1, is = 0 },
    { "are 0 below 0", draw = 7, bound = 0, is = 0 },
    { "are 0 below a negative bound", draw = 7, bound = -5, is = 0 },
    { "are any below the greatest bound", draw = "9223372036854775806", bound = math.huge, is = "9223372036854775806" },
  }
  for _, row in ipairs(rows) do
    it(row[1], function () assert.equal(row.is, deciders.random_below(deciders.drawing(row.draw), row.bound)) end)
  end
end)
