-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The judge of `make prove-fenced`, `make prove-fast` and `make prove-many`, by ledgers written by hand: what it must
-- find, and what it must not.
local history = require "tools.prove.history"
local ledger = require "tools.prove.ledger"

-- A lock from its ask to the moment at which it was certainly held.
local function lock(lane, number, kind, slot)
  return ("ask %s 1; got %s 1 %d %s %d; held %s 1; "):format(lane, lane, number, kind or "mutex", slot or 1, lane)
end

-- A rule, then journals that break it, each with words of the violation, then journals that do not (false).
local BOTH = "ask a 1; ask b 1; got b 1 9 %s; held b 1; got a 1 8 %s; held a 1"
local BACK = lock("a", 7) .. lock("b", 8) .. "held a 1"
local NONE = "ask a 1; ask b 1; got b 1 none fast_mutex 1; got a 1 none fast_mutex 1; "
local PARTED = NONE .. "held a 1; parted runner 0; held b 1; held a 1; "
local THREE = "ask a 1; got a 1 none slot 1; held a 1; ask b 1; got b 1 none slot 2; held b 1; "
  .. "ask c 1; got c 1 none slot 3; held c 1; "
local MINUTE = lock("1.1", 7) .. lock("2.1", 8) .. "minute runner 0; "

describe("the judge of fencing tokens finds", function()
  for rule, rows in pairs{
    ["nothing where numbers grow, with gaps"] = {
      { false, lock("a", 7) .. lock("b", 8) .. "ask c 1; none c 1 timeout; " .. lock("d", 100) },
      { false, "ask a 1; got a 1 7 mutex 1; ask b 1; got b 1 7~" }, -- its process was killed while it wrote
      { false, "ask a 1; ask b 1; got a 1 9 mutex 1; got b 1 8 mutex 1" } }, -- drawn before, read later
    ["a number that came twice, or is not larger than those of before"] = {
      { "b/1 has the number 7, which a/1 had", "ask a 1; ask b 1; got a 1 7 mutex 1; got b 1 7 mutex 1" },
      { "9 was known when it asked", "ask a 1; got a 1 9 mutex 1; ask b 1; got b 1 8 mutex 1" },
      { "9 was known", "ask a 1; got a 1 9 slot 1; ask b 1; got b 1 8 slot 2" } },
    ["a lock that was certainly held after one with a larger number, or again after it"] = {
      { "a/1 held it with the number 8, after b/1 did with 9", BOTH:format("mutex 1", "mutex 1") },
      { "a/1 held it", BOTH:format("slot 1", "slot 1") }, { false, BOTH:format("slot 1", "slot 2") },
      { "a/1 held it", BOTH:format("write 1", "read 1") }, { false, BOTH:format("read 1", "read 1") },
      { false, (BOTH:format("mutex 1", "mutex 1"):gsub("held a 1", "gone a 1 lost")) },
      { "a/1 held it", BACK }, { false, BACK, { at_once = true } }, -- where two may hold it at once
      { "a/1 held it", BOTH:format("mutex 1", "mutex 1"), { at_once = true } } },
    ["a holder without a number that comes back, except while the nodes are not connected"] = {
      { false, NONE .. "held a 1; held a 1; held b 1; held b 1; gone a 1 lost" },
      { "a/1 held it with the number 1, after b/1 did with 2", NONE .. "held a 1; held b 1; held a 1" },
      { false, PARTED .. "gone a 1 lost; whole runner 0; held b 1" }, { "a/1", PARTED .. "whole runner 0; held a 1" },
      { "a/1", "ask a 1; got a 1 7 mutex 1; ask b 1; got b 1 8 mutex 1; parted runner 0; held b 1; held a 1" } },
    ["more beside each other than there may be"] = {
      { false, THREE, { most = 1 } }, -- each was held for a moment
      { false, THREE .. "held a 1; held c 1", { most = 2 } },
      { "3 locks were held beside each other", THREE .. "held b 1; held a 1", { most = 2 } } },
    ["a lane that got no lock in a minute that is over"] = {
      { false, MINUTE .. lock("2.2", 9) .. lock("1.2", 10) .. "minute runner 0", { lanes = 2 } },
      { false, MINUTE .. lock("1.2", 9), { lanes = 2 } },
      { "lane 2 got no lock in a minute", MINUTE .. lock("1.2", 9) .. "minute runner 0", { lanes = 2 } } },
  } do
    it(rule, function()
      for _, row in ipairs(rows) do
        local found = ledger.check((row[2] .. "\n"):gsub("; *", "\n"):gsub("~\n", ""), row[3]).violations
        assert.equal(row[1] and 1 or 0, #found, row[2] .. table.concat(found, "\n"))
        if row[1] then assert.matches(row[1], found[1], 1, true) end
      end
    end)
  end
end)

it("a ledger is a history for porcupine: from ask to first held, from last held to the next thing known", function()
  local text = lock("a", 7) .. "held a 1; ask b 1; none b 1 timeout; ask b 2; gone a 1 lost; got b 2 8 mutex 1; "
    .. "held b 2; ask b 3; got b 3 9 mutex 1; minute runner 0; held b 3"
  local seen = {}
  for i, one in ipairs(history.of_ledger((text .. "\n"):gsub("; *", "\n"))) do
    seen[i] = { one.client, one.asked, one.first, one.last, one.free }
  end
  assert.same({ { "a", 1, 3, 4, 8 }, { "b", 7, 10, 10, 11 }, { "b", 11, 14, 14 } }, seen)
end)
