-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local deciders = require "spec.support.deciders"

teardown(deciders.remove)

local MS, S, NEVER = 1e6, 1e9, math.huge
local LAST = "9223372036854775806"  -- the last time that comes

describe("a deadline", function ()
  local rows = {
    { "is a time after now", now = 3 * S, time = 5 * S, is = 8 * S },
    { "is now, after no time", now = 3 * S, time = 0, is = 3 * S },
    { "is over already, after a negative time", now = 3 * S, time = -1, is = 3 * S - 1 },
    { "never comes, if the time is never", now = 0, time = NEVER, is = NEVER },
    { "is the last that comes, if the sum still fits", now = 1, time = "9223372036854775805", is = LAST },
    { "never comes, if the sum is one more than fits", now = 2, time = LAST, is = NEVER },
  }
  for _, row in ipairs(rows) do
    it(row[1], function () assert.equal(row.is, deciders.deadline_after(row.now, row.time)) end)
  end
end)

describe("the time to wait", function ()
  -- `draw`: the number that is drawn; `next`: the delay of the attempt after this one.
  local rows = {
    { "is half of `first` at least", first = 8, most = 100, draw = 0, is = 4, next = 16 },
    { "is all of `first` at most", first = 8, most = 100, draw = 4, is = 8, next = 16 },
    { "is never more than all", first = 8, most = 100, draw = 5, is = 4, next = 16 },
    { "is of the next delay after the first attempt", first = 8, given = 16, most = 100, draw = 8, is = 16, next = 32 },
    { "doubles as long as that is less than `most`", first = 8, given = 49, most = 100, draw = 0, is = 24, next = 98 },
    { "doubles to `most`", first = 8, given = 50, most = 100, draw = 0, is = 25, next = 100 },
    { "is rounded down", first = 9, most = 100, draw = 4, is = 8, next = 18 },
    { "may be nothing, for the shortest delay", first = 1, most = 100, draw = 1, is = 0, next = 2 },
  }
  for _, row in ipairs(rows) do
    it(row[1], function ()
      local wait = { first = row.first, most = row.most, next = row.given }
      assert.equal(row.is, deciders.backoff_next(wait, deciders.drawing(row.draw)))
      assert.same({ first = row.first, most = row.most, next = row.next }, wait)
    end)
  end
end)

describe("the delays, in milliseconds, of", function ()
  local rows = {
    { "a slot that is held", "slot", 5, 10, 20, 40, 80, 160, 320, 500, 500 },
    { "another administrator's work", "admin", 5, 10, 20, 40, 80, 160, 200, 200 },
    { "a broker that is away", "reconnect", 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000 },
    { "a queue that was deleted", "queue", 100, 200, 400, 800, 1000, 1000 },
    { "a queue that should go", "undo", 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10000, 10000 },
    { "readers that a writer waits for", "readers", 10, 20, 40, 80, 160, 320, 640, 1000, 1000 },
    { "a free slot that a token promised", "token", 2, 4, 8, 16, 32, 64, 100, 100 },
  }

  it("every backoff are below", function ()
    local left = deciders.backoffs()
    for _, row in ipairs(rows) do left[row[2]] = nil end
    assert.is_nil(next(left))
  end)

  for _, row in ipairs(rows) do
    it(row[1] .. " double from the first to the most", function ()
      local wait = deciders.backoffs()[row[2]]
      for i = 3, #row do
        assert.equal(row[i] * MS, deciders.backoff_next(wait, deciders.drawing(row[i] * MS / 2)))
      end
    end)
  end

  it("all have jitter: from half of the delay to all of it, whatever the random state", function ()
    for _, wait in pairs(deciders.backoffs()) do
      local least, most = math.huge, 0
      for seed = 1, 1000 do
        local delay = deciders.backoff_next({ first = wait.first, most = wait.most }, deciders.random(seed))
        least, most = math.min(least, delay), math.max(most, delay)
      end
      assert.is_true(least >= wait.first / 2 and least < wait.first * 0.51, least)
      assert.is_true(most <= wait.first and most > wait.first * 0.99, most)
    end
  end)
end)

describe("the time until a waiter's recheck", function ()
  local rows = {
    { "is `poll` at most", poll = 8 * S, draw = 0, is = 8 * S },
    { "is seven eighths of `poll` at least", poll = 8 * S, draw = 1 * S, is = 7 * S },
    { "is all of a `poll` that has no eighth", poll = 7, draw = 7, is = 7 },
    { "may be years", poll = "2305843009213693951", draw = 0, is = "2305843009213693951" },
  }
  for _, row in ipairs(rows) do
    it(row[1], function () assert.equal(row.is, deciders.backoff_recheck(row.poll, deciders.drawing(row.draw))) end)
  end
end)
