-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The judge of `make prove-fenced`, `make prove-fast` and `make prove-many`, by ledgers written by hand: what it must
-- find, and what it must not.
local ledger = require "tools.prove.ledger"

-- Lines separated by "; ".
local function check(lines, options) return ledger.check(lines:gsub("; *", "\n") .. "\n", options) end

local function violations(count, lines, options)
  local found = check(lines, options)
  assert.equal(count, #found.violations, table.concat(found.violations, "\n"))
  return found.violations[1], found
end

-- A lock from its ask to the moment at which it was certainly held.
local function lock(lane, number, kind, slot)
  return ("ask %s 1; got %s 1 %d %s %d; held %s 1; "):format(lane, lane, number, kind or "mutex", slot or 1, lane)
end

describe("the judge of fencing tokens", function()
  it("finds nothing where numbers grow, with gaps, and counts", function()
    local _, found = violations(0, lock("a", 7) .. lock("b", 8) .. "ask c 1; none c 1 timeout; " .. lock("d", 100))
    assert.same({ got = 3, held = 3, codes = { timeout = 1 }, largest = 100, beside = 1, violations = {} }, found)
    local killed = "ask a 1\ngot a 1 7 mutex 1\nask b 1\ngot b 1 7" -- while it wrote
    assert.same({}, ledger.check(killed).violations)
  end)

  it("finds a number that was got twice, or is not larger than all that were got before its acquire began", function()
    local text = violations(1, "ask a 1; ask b 1; got a 1 7 mutex 1; got b 1 7 mutex 1")
    assert.matches("b/1 has the number 7, which a/1 had", text, 1, true)
    text = violations(1, "ask a 1; got a 1 9 mutex 1; ask b 1; got b 1 8 mutex 1")
    assert.matches("b/1 has the number 8; 9 was known when it asked", text, 1, true)
    violations(0, "ask a 1; ask b 1; got a 1 9 mutex 1; got b 1 8 mutex 1") -- drawn before, read later
    violations(1, "ask a 1; got a 1 9 slot 1; ask b 1; got b 1 8 slot 2")
  end)

  it("finds a lock that was certainly held after a lock with a larger number was, or again after it", function()
    local both = "ask a 1; ask b 1; got b 1 9 %s; held b 1; got a 1 8 %s; held a 1"
    assert.matches("a/1 held it with the number 8, after b/1 did with 9",
      violations(1, both:format("mutex 1", "mutex 1")), 1, true)
    violations(1, both:format("slot 1", "slot 1"))
    violations(0, both:format("slot 1", "slot 2"))
    violations(0, both:format("read 1", "read 1"))
    violations(1, both:format("write 1", "read 1"))
    violations(1, both:format("read 1", "write 1"))
    violations(0, (both:format("mutex 1", "mutex 1"):gsub("held a 1", "gone a 1 lost")))
    local back = lock("a", 7) .. lock("b", 8) .. "held a 1"
    violations(1, back)
    violations(0, back, { at_once = true }) -- where two may hold it at once
    violations(1, both:format("mutex 1", "mutex 1"), { at_once = true })
  end)

  it("finds a holder without a number that comes back, except while the nodes are not connected", function()
    local both = "ask a 1; ask b 1; got b 1 none fast_mutex 1; got a 1 none fast_mutex 1; "
    violations(0, both .. "held a 1; held a 1; held b 1; held b 1; gone a 1 lost")
    assert.matches("a/1 held it with the number 1, after b/1 did with 2",
      violations(1, both .. "held a 1; held b 1; held a 1"), 1, true)
    local parted = both .. "held a 1; parted runner 0; held b 1; held a 1; "
    violations(0, parted .. "gone a 1 lost; whole runner 0; held b 1")
    violations(1, parted .. "whole runner 0; held a 1")
    violations(1, both .. "held a 1; held b 1; held a 1; parted runner 0")
    violations(1, "ask a 1; got a 1 7 mutex 1; ask b 1; got b 1 8 mutex 1; parted runner 0; held b 1; held a 1")
  end)

  it("counts locks that were held beside each other, and finds more than there may be", function()
    local three = ""
    for _, lane in ipairs { "a", "b", "c" } do
      three = three .. ("ask %s 1; got %s 1 none slot %d; held %s 1; "):format(lane, lane, lane:byte(), lane)
    end
    violations(0, three, { most = 1 }) -- each was held for a moment
    local _, found = violations(0, three .. "held a 1; held c 1", { most = 2 })
    assert.equal(2, found.beside)
    assert.equal("3 locks were held beside each other", (violations(1, three .. "held b 1; held a 1", { most = 2 })))
  end)

  it("finds a lane that got no lock in a minute that is over", function()
    local first = lock("1.1", 7) .. lock("2.1", 8) .. "minute runner 0; "
    violations(0, first .. lock("2.2", 9) .. lock("1.2", 10) .. "minute runner 0", { lanes = 2 })
    violations(0, first .. lock("1.2", 9), { lanes = 2 })
    assert.equal("lane 2 got no lock in a minute",
      (violations(1, first .. lock("1.2", 9) .. "minute runner 0", { lanes = 2 })))
  end)
end)
