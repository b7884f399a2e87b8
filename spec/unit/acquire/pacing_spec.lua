-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local deciders = require "spec.support.deciders"

teardown(deciders.remove)

local MS, NEVER = 1e6, math.huge
local TOKEN, NO_TOKEN = true, false

-- What a search found, and what pacing says of it, in milliseconds.
local searches = {}

-- How long to leave the slot to others.
function searches.free(pacing, now, has_token) return deciders.pacing_leave(pacing, has_token, now) / MS end

-- How long until the next search; NEVER: the token is thrown away.
function searches.none(pacing, now, has_token, draw)
  return (deciders.pacing_next_search(pacing, has_token, now, deciders.drawing(draw or 0)) - now) / MS
end

-- Whether to search again at once.
function searches.over(pacing, _, has_token) return deciders.pacing_is_over(pacing, has_token) end

-- Each row: a rule, the options, and steps { at, what a search found, whether with a token, what is decided [, draw] }.
-- Unless a step says otherwise, 0 is drawn: a recheck after all of `poll`, the next search after half of its delay.
local function run(rows)
  for _, row in ipairs(rows) do
    it(row[1], function ()
      local options = row[2]
      local pacing = deciders.pacing{ fair = options.fair, is_wary = options.is_wary,
        poll = (options.poll or 5000) * MS }
      for i = 3, #row do
        local at, found, has_token, decided, draw = (table.unpack or unpack)(row[i], 1, 5)
        local now = math.floor(at * MS + 0.5)
        assert.equal(decided, searches[found](pacing, now, has_token, draw), ("step %d, at %g ms"):format(i - 2, at))
      end
    end)
  end
end

-- A row's steps, with some that are repeated: a free slot is left to others, and found taken.
local function slighted(times, row, ...)
  for _ = 1, times do
    table.insert(row, { 0, "free", NO_TOKEN, row[2].fair and 100 or 35 })
    table.insert(row, { 35, "none", NO_TOKEN, 5000 })
  end
  for _, step in ipairs{ ... } do table.insert(row, step) end
  return row
end

describe("a free slot", function ()
  run{
    { "without a token is left to others for 35 ms, and twice for 8 ms; then it is taken", {},
      { 0, "free", NO_TOKEN, 35 }, { 35, "free", NO_TOKEN, 8 }, { 43, "free", NO_TOKEN, 8 },
      { 51, "free", NO_TOKEN, 0 } },
    { "is left to others by the count of searches, whatever the clock says", {},
      { 0, "free", NO_TOKEN, 35 }, { 9000, "free", NO_TOKEN, 8 }, { 9000, "free", NO_TOKEN, 8 },
      { 9000, "free", NO_TOKEN, 0 } },
    { "that was not had after all is left to others anew", {},
      { 0, "free", NO_TOKEN, 35 }, { 35, "free", NO_TOKEN, 8 }, { 43, "free", NO_TOKEN, 8 },
      { 51, "free", NO_TOKEN, 0 }, { 52, "free", NO_TOKEN, 35 } },
    { "that was taken meanwhile is left to others anew", {},
      { 0, "free", NO_TOKEN, 35 }, { 35, "free", NO_TOKEN, 8 }, { 43, "none", NO_TOKEN, 5000 },
      { 50, "free", NO_TOKEN, 35 } },
    { "is left to others for 100 ms first by a fair caller", { fair = true },
      { 0, "free", NO_TOKEN, 100 }, { 100, "free", NO_TOKEN, 8 }, { 108, "free", NO_TOKEN, 8 },
      { 116, "free", NO_TOKEN, 0 } },
    { "is taken at once with a token", {}, { 0, "free", TOKEN, 0 } },
    { "is taken at once with a token, though it was left to others without", {},
      { 0, "free", NO_TOKEN, 35 }, { 10, "free", TOKEN, 0 } },
    { "is taken at once with a token that found nothing less than 20 ms ago", {},
      { 0, "none", TOKEN, 1 }, { 19.999999, "free", TOKEN, 0 } },
    { "is left to others twice for 8 ms with a token that found nothing 20 ms ago", {},
      { 0, "none", TOKEN, 1 }, { 20, "free", TOKEN, 8 }, { 28, "free", TOKEN, 8 }, { 36, "free", TOKEN, 0 } },
    { "is left to others with such a token for no longer by a fair caller", { fair = true },
      { 0, "none", TOKEN, 1 }, { 20, "free", TOKEN, 8 }, { 28, "free", TOKEN, 8 }, { 36, "free", TOKEN, 0 } },
    { "is judged by when the token found nothing first, not last", {},
      { 0, "none", TOKEN, 1 }, { 1, "none", TOKEN, 2 }, { 19, "none", TOKEN, 4 }, { 20, "free", TOKEN, 8 } },
    { "is taken at once with the next token, after one that found nothing is gone", {},
      { 0, "none", TOKEN, 1 }, { 1, "none", NO_TOKEN, 5000 }, { 1000, "free", TOKEN, 0 } },
  }
end)

describe("a free slot that is found taken each time", function ()
  run{
    slighted(7, { "is left to others the eighth time", {} }, { 40, "free", NO_TOKEN, 35 }),
    slighted(8, { "is taken at once the ninth time", {} }, { 40, "free", NO_TOKEN, 0 }),
    slighted(8, { "is taken at once the ninth time with a token that is doubted", {} },
      { 50, "none", TOKEN, 1 }, { 90, "free", TOKEN, 0 }),
    slighted(8, { "is taken at once from then on", {} },
      { 40, "free", NO_TOKEN, 0 }, { 50, "none", NO_TOKEN, 5000 }, { 60, "free", NO_TOKEN, 0 }),
    slighted(7, { "counts if the search that found it taken had a token", {} },
      { 40, "free", NO_TOKEN, 35 }, { 75, "none", TOKEN, 1 }, { 80, "free", NO_TOKEN, 0 }),
    slighted(6, { "counts once if it was left to others twice", {} },
      { 40, "free", NO_TOKEN, 35 }, { 75, "free", NO_TOKEN, 8 }, { 83, "none", NO_TOKEN, 5000 },
      { 90, "free", NO_TOKEN, 35 }),
    slighted(7, { "counts once if two searches find none", {} },
      { 40, "none", NO_TOKEN, 5000 }, { 41, "none", NO_TOKEN, 5000 }, { 42, "free", NO_TOKEN, 35 }),
    slighted(7, { "does not count if it was left to others long enough", {} },
      { 40, "free", NO_TOKEN, 35 }, { 75, "free", NO_TOKEN, 8 }, { 83, "free", NO_TOKEN, 8 },
      { 91, "free", NO_TOKEN, 0 }, { 92, "none", NO_TOKEN, 5000 }, { 93, "free", NO_TOKEN, 35 }),
  }
end)

describe("the next search of a waiter without a token", function ()
  run{
    { "is after `poll` at most", { poll = 8000 }, { 10, "none", NO_TOKEN, 8000 } },
    { "is after seven eighths of `poll` at least", { poll = 8000 }, { 10, "none", NO_TOKEN, 7000, 1000 * MS } },
    { "is at once if `poll` is 0", { poll = 0 }, { 10, "none", NO_TOKEN, 0 } },
  }

  local most = "2305843009213693951"  -- a quarter of the longest time
  local rows = {
    { "is within some seventy years if `poll` is more", poll = "2305843009213693952", is = most },
    { "is sooner if `poll` is less", poll = "2305843009213693950", is = "2305843009213693950" },
    { "is within some seventy years if `poll` is never", poll = NEVER, is = most },
  }
  for _, row in ipairs(rows) do
    it(row[1], function ()
      local pacing = deciders.pacing{ poll = row.poll }
      assert.equal(row.is, deciders.pacing_next_search(pacing, NO_TOKEN, 0, deciders.drawing(0)))
    end)
  end

  it("is at a time that fits, if `poll` is never and the clock says a century", function ()
    local pacing = deciders.pacing{ poll = NEVER }
    assert.equal("5461443009213693951",
      deciders.pacing_next_search(pacing, NO_TOKEN, "3155600000000000000", deciders.drawing(0)))
  end)
end)

describe("the next search of a waiter with a token", function ()
  run{
    { "is soon, and later each time: after half of 2 ms at least, and of 100 ms in the end", {},
      { 0, "none", TOKEN, 1 }, { 1, "none", TOKEN, 2 }, { 3, "none", TOKEN, 4 }, { 7, "none", TOKEN, 8 },
      { 15, "none", TOKEN, 16 }, { 31, "none", TOKEN, 32 }, { 63, "none", TOKEN, 50 }, { 113, "none", TOKEN, 50 } },
    { "is after all of 2 ms at most", {}, { 0, "none", TOKEN, 2, 1 * MS } },
    { "is for two seconds of that token, not of an earlier one", {},
      { 0, "none", TOKEN, 1 }, { 1000, "none", NO_TOKEN, 5000 }, { 1900, "none", TOKEN, 1 },
      { 3899.999999, "none", TOKEN, 2 }, { 3900, "none", TOKEN, NEVER } },
    { "is for two seconds if `poll` is that", { poll = 2000 },
      { 0, "none", TOKEN, 1 }, { 1999.999999, "none", TOKEN, 2 }, { 2000, "none", TOKEN, NEVER } },
    { "is for the time of `poll` if that is less", { poll = 500 },
      { 0, "none", TOKEN, 1 }, { 499.999999, "none", TOKEN, 2 }, { 500, "none", TOKEN, NEVER } },
    { "is never if `poll` is 0: the token is thrown away", { poll = 0 }, { 0, "none", TOKEN, NEVER } },
  }
end)

-- A token is thrown away at 2000.
local function wasted(row, ...)
  for _, step in ipairs{ { 0, "none", TOKEN, 1 }, { 2000, "none", TOKEN, NEVER }, { 2000, "none", NO_TOKEN, 5000 },
    ... } do
    table.insert(row, step)
  end
  return row
end

describe("a token that follows one that was thrown away", function ()
  run{
    wasted({ "within 100 ms gets one search, and is thrown away too", {} }, { 2099.999999, "none", TOKEN, NEVER }),
    wasted({ "after 100 ms is believed as any other", {} },
      { 2100, "none", TOKEN, 1 }, { 4099.999999, "none", TOKEN, 2 }, { 4100, "none", TOKEN, NEVER }),
    wasted({ "within 100 ms of another one, which was thrown away as well, is thrown away too", {} },
      { 2099, "none", TOKEN, NEVER }, { 2099, "none", NO_TOKEN, 20 }, { 2198, "none", TOKEN, NEVER }),
    wasted({ "within 100 ms may be a dead client's: searches go on without it, less and less often, for 2 s", {} },
      { 2050, "none", TOKEN, NEVER }, { 2050, "none", NO_TOKEN, 20 }, { 2070, "none", NO_TOKEN, 40 },
      { 2110, "none", NO_TOKEN, 80 }, { 2190, "none", NO_TOKEN, 160 }, { 2350, "none", NO_TOKEN, 250 },
      { 4049.999999, "none", NO_TOKEN, 250 }, { 4050, "none", NO_TOKEN, 5000 }),
    wasted({ "within 100 ms, and then one that is believed: searches go on with that one", {} },
      { 2050, "none", TOKEN, NEVER }, { 2050, "none", NO_TOKEN, 20 }, { 2160, "none", TOKEN, 1 },
      { 2161, "none", NO_TOKEN, 5000 }),
    { "after one search, in line for a mutex that may be retained, is believed; for 2 s no slot is left to others",
      { is_wary = true }, { 0, "none", TOKEN, NEVER }, { 0, "none", NO_TOKEN, 1 }, { 1, "over", TOKEN, true },
      { 1, "free", TOKEN, 0 }, { 2, "none", NO_TOKEN, 2 }, { 4, "free", NO_TOKEN, 0 }, { 5, "none", TOKEN, NEVER },
      { 2004.999999, "free", NO_TOKEN, 0 }, { 2005, "free", NO_TOKEN, 35 } },
    wasted({ "within 100 ms does not take a free slot at once", {} },
      { 2099.999999, "free", TOKEN, 8 }, { 2100, "free", TOKEN, 0 }),
    wasted({ "after 100 ms takes a free slot at once", {} }, { 2100, "free", TOKEN, 0 }),
  }

  run{
    { "is not the first one, even at the beginning of the clock", {}, { 0, "free", TOKEN, 0 },
      { 0, "none", TOKEN, 1 } },
  }
end)

describe("a wait for the next search", function ()
  run{
    { "goes on without a token", {}, { 0, "none", NO_TOKEN, 5000 }, { 1, "over", NO_TOKEN, false } },
    { "is over when a token comes", {}, { 0, "none", NO_TOKEN, 5000 }, { 1, "over", TOKEN, true } },
    { "goes on with the token that it began with", {}, { 0, "none", TOKEN, 1 }, { 1, "over", TOKEN, false } },
    { "is over when the next token comes", {}, { 0, "none", TOKEN, 1 }, { 1, "none", NO_TOKEN, 5000 },
      { 2, "over", TOKEN, true } },
    { "is over when a token comes while a free slot is left to others", {}, { 0, "free", NO_TOKEN, 35 },
      { 1, "over", NO_TOKEN, false }, { 1, "over", TOKEN, true } },
  }
end)
